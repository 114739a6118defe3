//! A status with everything in it, and a client that says exactly what it is told.

#![allow(dead_code, reason = "each test program uses a part")]

use forebay_admin::Admin;
use forebay_admin::status::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A name with every character that has a meaning in the text format's labels.
pub const STRANGE: &str = "a\"b\\c\nd{e}=,";

/// A status with every part.
pub fn full() -> Status {
    let bucket = |most_seconds, count| Bucket { most_seconds, count };
    let buckets = vec![bucket(Some(0.001), 3), bucket(Some(0.1), 2), bucket(None, 1)];
    Status {
        process: Process { role: "serve".into(), version: "1.2.3".into(), ..Process::default() },
        clients: Some(Clients {
            commands: 7,
            latencies: vec![Latency { kind: "read".into(), buckets, seconds: 0.25 }],
            ..Clients::default()
        }),
        database: Some(Database {
            levels: vec![Level { tier: "memory".into(), bytes: 5, ..Level::default() }],
            compactions: vec![Compactions { place: "pool".into(), count: 2 }],
            stalls: vec![Stalls { cause: "memtables".into(), count: 1, seconds: 0.5 }],
            fabric: vec![Fabric {
                traffic: "foreground".into(),
                operations: vec![Operations { kind: "read".into(), count: 9 }],
                ..Fabric::default()
            }],
            caches: vec![Cache { cache: "index".into(), hits: 1, misses: 2 }],
            ..Database::default()
        }),
        tree: Some(SharedTree { name: "shop".into(), keys: 7, ..SharedTree::default() }),
        memory_nodes: vec![MemoryNode {
            node: "0".into(),
            extents: vec![Extents { state: "free".into(), bytes: 64 }],
            ..MemoryNode::default()
        }],
        tenants: vec![Tenant { name: STRANGE.into(), denied_calls: 3, ..Tenant::default() }],
        door: vec![Visitors { outcome: "refused".into(), count: 4 }],
        worker: Some(Worker::default()),
        scheduler: Some(Scheduler { term: Some(3) }),
        ..Status::default()
    }
}

/// A listener that shows the full status.
pub fn serving() -> Admin {
    let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), "serve").unwrap();
    admin.serve("redis://here", |status| Status { process: status.process, ..full() });
    admin
}

/// Sends bytes, and reads until the other side closes.
pub fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A refusal may come before everything is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The answer to a GET: its status line, and its body.
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    let answer =
        say(address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}
