//! Keys that go from one server to another.

use crate::common::{ask, connect, said, serve, until};
use forebay::admission::{Admission, AdmissionOptions};
use forebay::{Options, Store};
use forebay_redis_differential::client::{Client, Value};
use forebay_redis_differential::run::{self, Engine, Pair};
use forebay_server::{Server, ServerOptions, TlsOptions};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const CONNECTING: &str = "-IOERR error or timeout connecting to the client";
const READING: &str = "-IOERR error or timeout reading to target instance";
/// The timeout for targets that answer.
const PATIENCE_MS: &str = "600000";

/// A server whose commands become long after few steps, so that restoring and dumping are long.
fn serve_long() -> Server {
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(store, ServerOptions { address, max_steps: 5, ..ServerOptions::default() }).unwrap()
}

fn serve_with_password(password: &str) -> Server {
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let password = Some(password.as_bytes().to_vec());
    Server::start(store, ServerOptions { address, password, ..ServerOptions::default() }).unwrap()
}

/// What a server says to `MIGRATE` to a port of this machine; the words begin with the key.
fn migrate(client: &mut Client, port: u16, words: &[&str]) -> String {
    let port = port.to_string();
    said(client, &[&["MIGRATE", "127.0.0.1", &port][..], words].concat())
}

/// A target that sends this to the first client, reads until `wanted` comes, waits for `then` and sends `more`. It ends when
/// the other side does.
struct Scripted {
    port: u16,
    thread: JoinHandle<()>,
}

impl Scripted {
    fn new(
        first: &'static [u8],
        wanted: &'static [u8],
        then: impl FnOnce() + Send + 'static,
        more: &'static [u8],
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::Builder::new()
            .spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                socket.write_all(first).unwrap();
                let (mut received, mut room) = (Vec::new(), [0; 4096]);
                while !received.windows(wanted.len()).any(|window| window == wanted) {
                    let read = socket.read(&mut room).unwrap();
                    assert!(read > 0, "the target does not get what it waits for");
                    received.extend_from_slice(&room[..read]);
                }
                then();
                socket.write_all(more).unwrap();
                // A client that was sent rubbish may have gone.
                let _ = socket.shutdown(Shutdown::Write);
                while matches!(socket.read(&mut room), Ok(1..)) {}
            })
            .unwrap();
        Self { port, thread }
    }

    /// A target that only sends.
    fn sending(bytes: &'static [u8]) -> Self {
        Self::new(b"", b"SELECT", || {}, bytes)
    }
}

fn fill(client: &mut Client) {
    let many: Vec<String> = (0..300).map(|number| format!("m{number}")).collect();
    let mut add = |first: &[&str], rest: Vec<&str>| {
        let reply = said(client, &[first, &rest].concat());
        assert!(!reply.starts_with('-'), "{reply}");
    };
    let names = || many.iter().map(|name| &**name).collect::<Vec<_>>();
    add(&["SET", "string", "\u{0}text\r\n"], Vec::new());
    add(&["SET", "number", "-12"], Vec::new());
    add(&["SET", "", "of the empty key"], Vec::new());
    add(&["SET", "large", &"x".repeat(3 << 20)], Vec::new());
    add(&["RPUSH", "list"], names());
    add(&["SADD", "set"], names());
    add(&["HSET", "hash"], names());
    add(&["ZADD", "sorted"], many.iter().flat_map(|name| ["1.5", name]).collect());
    for number in 1..30 {
        add(&["XADD", "stream", &format!("{number}-1"), "field", "value"], Vec::new());
    }
    add(&["XGROUP", "CREATE", "stream", "group", "0"], Vec::new());
    add(&["XREADGROUP", "GROUP", "group", "consumer", "COUNT", "3", "STREAMS", "stream", ">"], Vec::new());
}

const ALL: &[&str] = &["", "string", "number", "large", "list", "set", "hash", "sorted", "stream"];

#[test]
fn every_type_goes_to_another_server() {
    let (here, there) = (serve_long(), serve_long());
    let (mut source, mut target) = (connect(&here), connect(&there));
    fill(&mut source);
    let held = run::everything(&mut source);
    let request = [&["", "0", PATIENCE_MS, "COPY", "KEYS"], ALL].concat();
    assert_eq!(migrate(&mut source, there.address().port(), &request), "+OK");
    assert_eq!(run::everything(&mut source), held);
    assert_eq!(run::everything(&mut target), held);
    // The target has them by now.
    let request = [&["", "0", PATIENCE_MS, "KEYS"], ALL].concat();
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(migrate(&mut source, there.address().port(), &request), busy);
    assert_eq!(run::everything(&mut source), held);
    let request = [&["", "0", PATIENCE_MS, "REPLACE", "KEYS"], ALL].concat();
    assert_eq!(migrate(&mut source, there.address().port(), &request), "+OK");
    assert_eq!(run::everything(&mut target), held);
    assert_eq!(said(&mut source, &["DBSIZE"]), ":0");
}

#[test]
fn keys_that_the_target_takes_leave_and_others_stay() {
    let (here, there) = (serve(1), serve(2));
    let (mut source, mut target) = (connect(&here), connect(&there));
    let port = there.address().port();
    assert_eq!(said(&mut target, &["SET", "k700", "busy"]), "+OK");
    let names: Vec<String> = (0..1000).map(|number| format!("k{number}")).collect();
    // Every third key does not exist.
    for name in names.iter().enumerate().filter(|(number, _)| number % 3 != 0).map(|(_, name)| name) {
        assert_eq!(said(&mut source, &["SET", name, "value"]), "+OK");
    }
    let keys: Vec<&str> = names.iter().map(|name| &**name).collect();
    let request = [&["", "0", PATIENCE_MS, "KEYS"], &keys[..]].concat();
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(migrate(&mut source, port, &request), busy);
    assert_eq!(said(&mut source, &["KEYS", "*"]), "*[\"k700\" ]");
    assert_eq!([said(&mut target, &["DBSIZE"]), said(&mut target, &["GET", "k700"])], [":666", "\"busy\""]);
    assert_eq!(migrate(&mut source, port, &["k700", "3", PATIENCE_MS]), "+OK");
    assert_eq!(said(&mut target, &["SELECT", "3"]), "+OK");
    assert_eq!([said(&mut target, &["GET", "k700"]), said(&mut source, &["DBSIZE"])], ["\"value\"", ":0"]);
    // A key that is named twice is sent twice.
    assert_eq!(said(&mut source, &["SET", "twice", "value"]), "+OK");
    assert_eq!(migrate(&mut source, port, &["", "0", PATIENCE_MS, "KEYS", "twice", "twice"]), busy);
    assert_eq!(said(&mut source, &["DBSIZE"]), ":0");
}

#[test]
fn what_is_not_there_reaches_no_target() {
    let here = serve(1);
    let mut source = connect(&here);
    said(&mut source, &["SET", "k", "v"]);
    assert_eq!(migrate(&mut source, 1, &["none", "0", "1000"]), "+NOKEY");
    assert_eq!(migrate(&mut source, 1, &["", "0", "1000", "KEYS", "none", "no"]), "+NOKEY");
    assert_eq!(migrate(&mut source, 1, &["", "0", "1000", "KEYS"]), "+NOKEY");
    said(&mut source, &["SET", "expired", "v", "PX", "1"]);
    until(|| said(&mut source, &["EXISTS", "expired"]) == ":0");
    assert_eq!(migrate(&mut source, 1, &["expired", "0", "1000"]), "+NOKEY");
    for (port, key) in [("1", "k"), ("x", "k"), ("70000", "k")] {
        assert_eq!(said(&mut source, &["MIGRATE", "127.0.0.1", port, key, "0", "1000"]), CONNECTING);
    }
    assert_eq!(said(&mut source, &["MIGRATE", &"h".repeat(300), "1", "k", "0", "1000"]), CONNECTING);
    assert_eq!(said(&mut source, &["GET", "k"]), "\"v\"");
}

#[test]
fn a_key_keeps_the_time_that_is_left_to_it() {
    let (here, there) = (serve(1), serve(1));
    let (mut source, mut target) = (connect(&here), connect(&there));
    said(&mut source, &["SET", "ends", "v", "PX", "500000"]);
    said(&mut source, &["SET", "stays", "v"]);
    let request = ["", "0", PATIENCE_MS, "KEYS", "ends", "stays"];
    assert_eq!(migrate(&mut source, there.address().port(), &request), "+OK");
    let Value::Integer(left_ms) = target.call(&["PTTL", "ends"]).unwrap() else { panic!("no number") };
    assert!((1..=500_000).contains(&left_ms), "{left_ms}");
    assert_eq!(said(&mut target, &["PTTL", "stays"]), ":-1");
}

#[test]
fn the_target_is_told_who_asks() {
    let (here, there) = (serve(1), serve_with_password("secret"));
    let (mut source, mut target) = (connect(&here), connect(&there));
    let port = there.address().port();
    assert_eq!(said(&mut target, &["AUTH", "secret"]), "+OK");
    let told = "-ERR Target instance replied with error: ";
    for (login, expected) in [
        (&[][..], "NOAUTH Authentication required."),
        (&["AUTH", "wrong"], "WRONGPASS invalid username-password pair or user is disabled."),
        (&["AUTH2", "nobody", "secret"], "WRONGPASS invalid username-password pair or user is disabled."),
        (&["AUTH", "secret"], ""),
        (&["AUTH2", "default", "secret"], ""),
    ] {
        said(&mut source, &["SET", "k", "v"]);
        let reply = migrate(&mut source, port, &[&["k", "0", PATIENCE_MS, "REPLACE"], login].concat());
        let is_there = said(&mut source, &["EXISTS", "k"]) == ":1";
        if expected.is_empty() {
            assert_eq!((&*reply, is_there), ("+OK", false));
        } else {
            assert_eq!((reply, is_there), (format!("{told}{expected}"), true));
            assert_eq!(said(&mut target, &["DBSIZE"]), ":0");
        }
    }
    // Where there is no such database, nothing is sent.
    said(&mut source, &["SET", "k", "v"]);
    let reply = migrate(&mut source, port, &["k", "99", PATIENCE_MS, "AUTH", "secret", "REPLACE"]);
    assert_eq!(reply, format!("{told}ERR DB index is out of range"));
    assert_eq!(said(&mut source, &["EXISTS", "k"]), ":1");
}

#[test]
fn a_target_that_replies_rubbish_takes_nothing() {
    const LONG: &[u8] = &[b'+'; 5000];
    let here = serve(1);
    let mut source = connect(&here);
    said(&mut source, &["MSET", "a", "1", "b", "2"]);
    for rubbish in [
        &b""[..],
        b"\r\n",
        b"+OK\n",
        b"+FINE\r\n",
        b":1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        LONG,
        b"+OK\r\n",
        b"+OK\r\n+OKAY\r\n",
        b"+OK\r\n$2\r\nOK\r\n",
        b"+OK\r\n+O",
    ] {
        let target = Scripted::sending(rubbish);
        let reply = migrate(&mut source, target.port, &["", "0", PATIENCE_MS, "KEYS", "a", "b"]);
        assert_eq!(reply, READING, "{}", rubbish.escape_ascii());
        target.thread.join().unwrap();
        assert_eq!(said(&mut source, &["DBSIZE"]), ":2");
    }
    // A key that the target accepted before the rubbish is gone, and an error of the target is
    // shown as text.
    let target = Scripted::sending(b"+OK\r\n+OK\r\n");
    assert_eq!(migrate(&mut source, target.port, &["", "0", PATIENCE_MS, "KEYS", "a", "b"]), READING);
    target.thread.join().unwrap();
    assert_eq!(said(&mut source, &["KEYS", "*"]), "*[\"b\" ]");
    let target = Scripted::sending(b"+OK\r\n-ODD \x00\x1b[2J\xff\r\n");
    let reply = migrate(&mut source, target.port, &["b", "0", PATIENCE_MS]);
    assert_eq!(reply, "-ERR Target instance replied with error: ODD ??[2J?");
    target.thread.join().unwrap();
    assert_eq!(said(&mut source, &["DBSIZE"]), ":1");
}

#[test]
fn a_target_that_hangs_is_given_up_when_time_is_over() {
    let here = serve(1);
    let mut source = connect(&here);
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    said(&mut source, &["SET", "k", "v"]);
    assert_eq!(migrate(&mut source, silent.local_addr().unwrap().port(), &["k", "0", "50"]), READING);
    assert_eq!(said(&mut source, &["GET", "k"]), "\"v\"");
}

/// This includes users of its key, and commands that need all keys. There is one thread for
/// connections.
#[test]
fn nobody_else_waits_for_the_target() {
    let here = serve(1);
    let (mut source, mut other) = (connect(&here), connect(&here));
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    said(&mut source, &["SET", "k", "v"]);
    let id = said(&mut source, &["CLIENT", "ID"]).replace(':', "");
    ask(&mut source, &["MIGRATE", "127.0.0.1", &port, "k", "0", PATIENCE_MS]);
    let (accepted, _) = silent.accept().unwrap();
    assert!(said(&mut other, &["CLIENT", "LIST", "ID", &id]).contains("cmd=migrate"));
    assert_eq!(said(&mut other, &["APPEND", "k", "w"]), ":2");
    assert_eq!(said(&mut other, &["EVAL", "return redis.call('get', 'k')", "0"]), "\"vw\"");
    assert_eq!(said(&mut other, &["SORT", "k", "BY", "x*"]).get(..10), Some("-WRONGTYPE"));
    assert_eq!(said(&mut other, &["FLUSHALL"]), "+OK");
    // An operator ends it.
    assert_eq!(said(&mut other, &["CLIENT", "KILL", "ID", &id]), ":1");
    until(|| is_closed(&accepted));
    // A server that must stop does not wait either.
    let mut source = connect(&here);
    said(&mut source, &["SET", "k", "v"]);
    ask(&mut source, &["MIGRATE", "127.0.0.1", &port, "k", "0", PATIENCE_MS]);
    let _accepted = silent.accept().unwrap();
    here.stop().unwrap();
}

/// Whether the other side of a connection has ended it.
fn is_closed(mut socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let mut room = [0; 4096];
    matches!(socket.read(&mut room), Ok(0))
}

#[test]
fn a_key_that_changes_on_its_way_stays() {
    let here = serve(1);
    let mut source = connect(&here);
    said(&mut source, &["MSET", "same", "1", "changed", "1", "removed", "1"]);
    let mut other = connect(&here);
    let change = move || {
        assert_eq!(said(&mut other, &["INCR", "changed"]), ":2");
        assert_eq!(said(&mut other, &["DEL", "removed"]), ":1");
        // Reading a key is not a change.
        assert_eq!(said(&mut other, &["GET", "same"]), "\"1\"");
    };
    let target = Scripted::new(b"+OK\r\n", b"removed", change, b"+OK\r\n+OK\r\n+OK\r\n");
    let request = ["", "0", PATIENCE_MS, "KEYS", "same", "changed", "removed"];
    let reply = migrate(&mut source, target.port, &request);
    assert!(reply.starts_with("-ERR a key changed while it was sent, so it stays here"), "{reply}");
    target.thread.join().unwrap();
    assert_eq!([said(&mut source, &["GET", "changed"]), said(&mut source, &["DBSIZE"])], ["\"2\"", ":1"]);
    // A copy leaves the source unchanged, so a change does not matter.
    let mut other = connect(&here);
    let change = move || drop(said(&mut other, &["INCR", "changed"]));
    let target = Scripted::new(b"+OK\r\n", b"RESTORE", change, b"+OK\r\n");
    assert_eq!(migrate(&mut source, target.port, &["changed", "0", PATIENCE_MS, "COPY"]), "+OK");
    target.thread.join().unwrap();
    assert_eq!(said(&mut source, &["GET", "changed"]), "\"3\"");
}

/// Each waits for the other one, which could not continue if a waiting migration held anything.
#[test]
fn servers_migrate_to_each_other_and_to_themselves() {
    let servers = [serve_long(), serve_long()];
    let ports = servers.each_ref().map(|server| server.address().port());
    std::thread::scope(|scope| {
        for (number, server) in servers.iter().enumerate() {
            scope.spawn(move || {
                let mut client = connect(server);
                let (list, other) = (format!("list{number}"), ports[1 - number]);
                for _ in 0..20 {
                    said(&mut client, &["RPUSH", &list, "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
                    assert_eq!(migrate(&mut client, other, &[&list, "0", PATIENCE_MS, "REPLACE"]), "+OK");
                    said(&mut client, &["RPUSH", &list, "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
                    assert_eq!(migrate(&mut client, ports[number], &[&list, "5", PATIENCE_MS, "REPLACE"]), "+OK");
                }
            });
        }
    });
    for (number, server) in servers.iter().enumerate() {
        let mut client = connect(server);
        assert_eq!(said(&mut client, &["KEYS", "*"]), format!("*[\"list{}\" ]", 1 - number));
        said(&mut client, &["SELECT", "5"]);
        assert_eq!(said(&mut client, &["LLEN", &format!("list{number}")]), ":9");
    }
}

/// An increment made here while the counter goes to another server counts once: there, or here if the key changed on its
/// way.
#[test]
fn no_change_is_lost_or_doubled() {
    const CHANGES: i64 = 2000;
    let (here, there) = (serve(2), serve(1));
    let port = there.address().port();
    let (mut source, mut target) = (connect(&here), connect(&there));
    let has_ended = AtomicBool::new(false);
    let (mut arrived, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = connect(&here);
            (0..CHANGES).for_each(|_| assert!(said(&mut client, &["INCR", "count"]).starts_with(':')));
            has_ended.store(true, Ordering::Release);
        });
        loop {
            let is_last = has_ended.load(Ordering::Acquire);
            match &*migrate(&mut source, port, &["count", "0", PATIENCE_MS, "REPLACE"]) {
                "+OK" => {
                    let Value::Bulk(count) = target.call(&["GETDEL", "count"]).unwrap() else { panic!("no count") };
                    arrived += String::from_utf8(count).unwrap().parse::<i64>().unwrap();
                }
                "+NOKEY" => {}
                reply => {
                    assert!(reply.starts_with("-ERR a key changed while it was sent"), "{reply}");
                    refused += 1;
                }
            }
            if is_last {
                break;
            }
        }
    });
    assert_eq!(arrived, CHANGES, "{refused} times the key had changed");
    assert_eq!(said(&mut source, &["DBSIZE"]), ":0");
}

#[test]
fn those_who_subscribe_and_those_who_hold_keys_are_told() {
    let (here, there) = (serve(1), serve(1));
    let (mut source, mut holds, mut learns) = (connect(&here), connect(&here), connect(&here));
    said(&mut source, &["CONFIG", "SET", "notify-keyspace-events", "Eg"]);
    said(&mut learns, &["SUBSCRIBE", "__keyevent@0__:del"]);
    said(&mut source, &["SET", "k", "v"]);
    said(&mut holds, &["HELLO", "3"]);
    said(&mut holds, &["CLIENT", "TRACKING", "ON"]);
    said(&mut holds, &["GET", "k"]);
    said(&mut holds, &["WATCH", "k"]);
    assert_eq!(migrate(&mut source, there.address().port(), &["k", "0", PATIENCE_MS]), "+OK");
    assert!(learns.receive().unwrap().to_string().contains("\"k\""));
    assert_eq!(holds.receive().unwrap().to_string(), ">[\"invalidate\" *[\"k\" ] ]");
    for (request, expected) in [("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "null")] {
        assert_eq!(said(&mut holds, &[request]), expected);
    }
}

#[test]
fn what_cannot_wait_cannot_migrate() {
    let here = serve(1);
    let mut source = connect(&here);
    let request = ["MIGRATE", "127.0.0.1", "1", "k", "0", "1000"];
    said(&mut source, &["MULTI"]);
    assert_eq!(said(&mut source, &request), "-ERR Command not allowed inside a transaction");
    assert!(said(&mut source, &["EXEC"]).starts_with("-EXECABORT"));
    let reply = said(&mut source, &["EVAL", "return redis.call('migrate', 'h', 1, 'k', 0, 0)", "0"]);
    assert!(reply.starts_with("-ERR This Redis command is not allowed from script"), "{reply}");
}

#[test]
fn every_type_goes_to_a_real_redis_and_back() {
    let pair = Pair::start(Engine::Lsm);
    let ports = [pair.forebay.address().port(), pair.redis.port];
    let [mut forebay, mut redis] = ports.map(|port| Client::connect(port).unwrap());
    fill(&mut forebay);
    let held = run::everything(&mut forebay);
    let request = [&["", "0", PATIENCE_MS, "KEYS"], ALL].concat();
    assert_eq!(migrate(&mut forebay, ports[1], &request), "+OK");
    assert_eq!([run::everything(&mut forebay), run::everything(&mut redis)], [String::new(), held.clone()]);
    assert_eq!(migrate(&mut redis, ports[0], &request), "+OK");
    assert_eq!([run::everything(&mut redis), run::everything(&mut forebay)], [String::new(), held]);
    // Replies to errors, where the target is the other server and where there is no target.
    for client in [&mut forebay, &mut redis] {
        said(client, &["SET", "busy", "v"]);
    }
    let mut replies = Vec::new();
    for (client, port) in [(&mut forebay, ports[1]), (&mut redis, ports[0])] {
        replies.push(
            [
                &["busy", "0", PATIENCE_MS][..],
                &["busy", "99", PATIENCE_MS],
                &["none", "0", PATIENCE_MS],
                &["", "0", "1", "KEYS"],
            ]
            .map(|words| migrate(client, port, words)),
        );
    }
    assert_eq!(replies[0], replies[1]);
}

/// A file that only its owner may open.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn keys_go_within_tls_where_tls_cluster_says_so() {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // What it signs has the usual name, and must not seem self-signed.
    parameters.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let authority = file("migrate-authority.pem", &parameters.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(parameters, key);
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.serial_number = Some(SerialNumber::from(7));
    let made = parameters.signed_by(&key, &issuer).unwrap();
    let revoke = |number: u64| {
        let (day, later) = (date_time_ymd(2021, 1, 1), date_time_ymd(4000, 1, 1));
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(number),
            revocation_time: day,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: day,
            next_update: later,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        file("migrate-revoked.pem", &list.signed_by(&issuer).unwrap().pem().unwrap())
    };
    let files = AdmissionOptions {
        certificate: Some(file("migrate.pem", &made.pem())),
        key: Some(file("migrate.key", &key.serialize_pem())),
        client_authority: Some(authority),
        ..AdmissionOptions::default()
    };
    let load = |files| Arc::new(Admission::load(files).unwrap());
    let start = |admission: &Arc<Admission>| {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let tls = Some(TlsOptions { address, admission: Arc::clone(admission), is_required: false });
        let store = Store::embedded(256 << 20, Options::default()).unwrap();
        Server::start(store, ServerOptions { address, tls, ..ServerOptions::default() }).unwrap()
    };
    let careful = load(AdmissionOptions { client_revocations: Some(revoke(7)), ..files.clone() });
    let (here, there) = (start(&careful), start(&load(files)));
    let (mut source, mut target) = (connect(&here), connect(&there));
    fill(&mut source);
    let held = run::everything(&mut source);
    let port = there.tls_address().unwrap().port().to_string();
    let send = |source: &mut Client, host: &str| {
        said(source, &[&["MIGRATE", host, &port, "", "0", PATIENCE_MS, "KEYS"][..], ALL].concat())
    };
    // The target does not understand what is in plain.
    assert!(send(&mut source, "localhost").starts_with("-IOERR"));
    assert_eq!(said(&mut source, &["CONFIG", "SET", "tls-cluster", "yes"]), "+OK");
    assert_eq!(send(&mut source, "localhost"), CONNECTING, "its certificate is revoked");
    revoke(8);
    careful.reload().unwrap();
    assert_eq!(send(&mut source, "127.0.0.1"), CONNECTING, "its certificate is for another host");
    assert_eq!([run::everything(&mut source), run::everything(&mut target)], [held.clone(), String::new()]);
    assert_eq!(send(&mut source, "localhost"), "+OK");
    assert_eq!([run::everything(&mut source), run::everything(&mut target)], [String::new(), held]);
    let refused = said(&mut connect(&serve(1)), &["CONFIG", "SET", "tls-cluster", "yes"]);
    assert!(refused.starts_with("-ERR CONFIG SET failed") && refused.contains("no TLS to others"), "{refused}");
}
