//! Clients of a server on a shared tree, whose threads carry commands out at the same time.

use crate::common::said;
use forebay::{OwnedTree, TreeOptions};
use forebay_env::thread::spawn;
use forebay_redis_differential::client::Client;
use forebay_server::{Server, ServerOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: u32 = 300;

/// Exactly one of two keys exists at any time, and four keys have the same value. Every reader sees this, even one that
/// names no key.
#[test]
fn nobody_sees_half_of_what_another_client_writes() {
    let tree = OwnedTree::embedded(256 << 20, TreeOptions::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(tree, ServerOptions { address, threads: 4, ..ServerOptions::default() }).unwrap();
    let port = server.address().port();
    said(&mut Client::connect(port).unwrap(), &["MSET", "one", "1", "a", "0", "b", "0", "c", "0", "d", "0"]);
    let ended = Arc::new(AtomicBool::new(false));
    let reader = |number: u32| {
        let ended = Arc::clone(&ended);
        let look = move || {
            let mut client = Client::connect(port).unwrap();
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) || looks < 10 {
                looks += 1;
                let keys = match number {
                    0 => said(&mut client, &["KEYS", "*"]),
                    _ => said(&mut client, &["SCAN", "0", "COUNT", "1000"]),
                };
                assert!(keys.contains("one") != keys.contains("two"), "{keys}");
                let values = said(&mut client, &["MGET", "a", "b", "c", "d"]);
                let mut values = values.trim_matches(['*', '[', ']', ' ']).split(' ').filter(|value| !value.is_empty());
                let first = values.next().unwrap().to_owned();
                assert!(values.all(|value| value == first));
            }
        };
        spawn(format!("reader-{number}"), look).unwrap()
    };
    let readers = [reader(0), reader(1), reader(2)];
    let mut client = Client::connect(port).unwrap();
    for round in 0..ROUNDS {
        let (comes, goes) = if round % 2 == 0 { ("two", "one") } else { ("one", "two") };
        said(&mut client, &["MULTI"]);
        said(&mut client, &["DEL", goes]);
        said(&mut client, &["SET", comes, "1"]);
        said(&mut client, &["EXEC"]);
        let value = round.to_string();
        said(&mut client, &["MSET", "a", &value, "b", &value, "c", &value, "d", &value]);
    }
    ended.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    server.stop().unwrap();
}
