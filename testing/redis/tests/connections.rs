//! Clients that wait, subscribe, flood and vanish.

use crate::common::{ask, connect, serve, until};
use forebay::admission::{Admission, AdmissionOptions};
use forebay::{Options, Store};
use forebay_env::ManualClock;
use forebay_redis_differential::client::{Client, Value};
use forebay_server::{Server, ServerOptions, TlsOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn array(values: &[&str]) -> Value {
    Value::Many(b'*', values.iter().map(|value| bulk(value)).collect())
}

fn id(client: &mut Client) -> String {
    let Value::Integer(id) = client.call(&["CLIENT", "ID"]).unwrap() else { panic!("no number") };
    id.to_string()
}

/// A figure of `INFO`.
fn info(client: &mut Client, name: &str) -> String {
    let Value::Bulk(text) = client.call(&["INFO"]).unwrap() else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')));
    line.unwrap().to_owned()
}

fn until_blocked(client: &mut Client, count: usize) {
    until(|| info(client, "blocked_clients") == count.to_string());
}

#[test]
fn who_waits_longest_is_served_first() {
    for threads in [1, 3] {
        let server = serve(threads);
        let (mut first, mut second, mut other) = (connect(&server), connect(&server), connect(&server));
        ask(&mut first, &["BLPOP", "a", "b", "0"]);
        until_blocked(&mut other, 1);
        ask(&mut second, &["BLPOP", "b", "0"]);
        until_blocked(&mut other, 2);
        assert_eq!(other.call(&["RPUSH", "b", "1", "2", "3"]).unwrap(), Value::Integer(3));
        assert_eq!(first.receive().unwrap(), array(&["b", "1"]));
        assert_eq!(second.receive().unwrap(), array(&["b", "2"]));
        assert_eq!(other.call(&["LRANGE", "b", "0", "-1"]).unwrap(), array(&["3"]));
        // They are ordinary clients again.
        assert_eq!(first.call(&["BRPOP", "b", "0"]).unwrap(), array(&["b", "3"]));
        assert_eq!(info(&mut other, "blocked_clients"), "0");
    }
}

/// Makes a client wait in a request, sends other requests, and returns what the client gets.
fn awaited(server: &Server, request: &str, others: &[&str]) -> String {
    let words = |request: &str| request.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let (mut waiting, mut other) = (connect(server), connect(server));
    other.call(&["FLUSHALL"]).unwrap();
    waiting.send([&words(request)[..]]).unwrap();
    until_blocked(&mut other, 1);
    let others: Vec<Vec<Vec<u8>>> = others.iter().map(|request| words(request)).collect();
    other.send(others.iter().map(|words| &words[..])).unwrap();
    others.iter().for_each(|_| drop(other.receive().unwrap()));
    waiting.receive().unwrap().to_string()
}

#[test]
fn a_key_of_another_type_is_none_to_wait_for() {
    let server = serve(2);
    assert_eq!(awaited(&server, "BLPOP a b 0", &["SET a x", "RPUSH b v"]), array(&["b", "v"]).to_string());
    assert_eq!(awaited(&server, "BLMPOP 0 2 a b LEFT", &["SADD a x", "RPUSH b v"]), "*[\"b\" *[\"v\" ] ]");
    assert_eq!(awaited(&server, "BZPOPMIN a b 0", &["SET a x", "ZADD b 1 m"]), array(&["b", "m", "1"]).to_string());
    let entry = one_entry("1-1", &["f", "v"]).to_string();
    assert_eq!(awaited(&server, "XREAD BLOCK 0 STREAMS a s $ $", &["SET a x", "XADD s 1-1 f v"]), entry);
    // The client does not wait for the destination of the element.
    let refused = awaited(&server, "BLMOVE a b LEFT LEFT 0", &["SET b x", "RPUSH a v"]);
    assert!(refused.starts_with("-WRONGTYPE"), "{refused}");
    assert_eq!(connect(&server).call(&["LRANGE", "a", "0", "-1"]).unwrap(), array(&["v"]));
}

#[test]
fn a_stream_that_is_named_twice_comes_once_to_who_waits() {
    let server = serve(2);
    let others = ["XADD s 1-1 a b", "XADD s 3-1 f v"];
    let entry = one_entry("3-1", &["f", "v"]).to_string();
    assert_eq!(awaited(&server, "XREAD BLOCK 0 STREAMS s s 2-0 $", &others), entry);
}

#[test]
fn who_waits_is_served_from_the_key_that_changed_first() {
    let server = serve(2);
    let both = ["MULTI", "LPUSH b 1", "LPUSH a 1", "EXEC"];
    assert_eq!(awaited(&server, "BLPOP a b 0", &both), array(&["b", "1"]).to_string());
    let both = ["EVAL redis.call('zadd','b',1,'m')redis.call('zadd','a',1,'m') 0"];
    assert_eq!(awaited(&server, "BZPOPMAX a b 0", &both), array(&["b", "m", "1"]).to_string());
    let both = ["MULTI", "XADD s 1-1 f v", "XADD a 1-1 f v", "EXEC"];
    let entry = one_entry("1-1", &["f", "v"]).to_string();
    assert_eq!(awaited(&server, "XREAD BLOCK 0 STREAMS a s $ $", &both), entry);
}

#[test]
fn who_waits_comes_before_what_follows_in_a_pipeline() {
    let server = serve(2);
    let (mut waiting, mut other) = (connect(&server), connect(&server));
    ask(&mut waiting, &["BLPOP", "q", "0"]);
    until_blocked(&mut other, 1);
    let pipeline = [&["SET", "a", "x"][..], &["LPUSH", "q", "x"], &["LLEN", "q"], &["LPOP", "q"], &["GET", "a"]];
    let pipeline = pipeline.map(|request| request.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
    other.send(pipeline.iter().map(|request| &request[..])).unwrap();
    for reply in ["+OK", ":1", ":0", "null", "\"x\""] {
        assert_eq!(other.receive().unwrap().to_string(), reply);
    }
    assert_eq!(waiting.receive().unwrap(), array(&["q", "x"]));
}

#[test]
fn an_element_moves_along_those_who_wait() {
    let server = serve(2);
    let (mut mover, mut popper, mut other) = (connect(&server), connect(&server), connect(&server));
    ask(&mut popper, &["BLPOP", "to", "0"]);
    until_blocked(&mut other, 1);
    ask(&mut mover, &["BLMOVE", "from", "to", "LEFT", "RIGHT", "0"]);
    until_blocked(&mut other, 2);
    other.call(&["RPUSH", "from", "x"]).unwrap();
    assert_eq!(mover.receive().unwrap(), bulk("x"));
    assert_eq!(popper.receive().unwrap(), array(&["to", "x"]));
    ask(&mut popper, &["BZPOPMIN", "scores", "0"]);
    until_blocked(&mut other, 1);
    // A key of another type does not end the wait.
    other.call(&["RPUSH", "scores", "x"]).unwrap();
    other.call(&["DEL", "scores"]).unwrap();
    other.call(&["ZADD", "scores", "2", "b", "1", "a"]).unwrap();
    assert_eq!(popper.receive().unwrap(), array(&["scores", "a", "1"]));
}

#[test]
fn time_to_wait_ends() {
    let server = serve(1);
    let (mut client, mut other) = (connect(&server), connect(&server));
    assert_eq!(client.call(&["BLPOP", "a", "0.02"]).unwrap(), Value::NullArray);
    assert_eq!(client.call(&["WAIT", "1", "20"]).unwrap(), Value::Integer(0));
    assert_eq!(client.call(&["WAIT", "0", "0"]).unwrap(), Value::Integer(0));
    // In a transaction nobody waits.
    for (words, reply) in [
        (&["MULTI"][..], Value::Simple("OK".into())),
        (&["BLPOP", "a", "0"], Value::Simple("QUEUED".into())),
        (&["EXEC"], Value::Many(b'*', vec![Value::NullArray])),
    ] {
        assert_eq!(client.call(words).unwrap(), reply);
    }
    let number = id(&mut client);
    for (reason, reply) in
        [("TIMEOUT", Value::NullArray), ("ERROR", Value::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into()))]
    {
        // Commands after it also wait.
        ask(&mut client, &["BRPOP", "a", "0"]);
        ask(&mut client, &["ECHO", "behind"]);
        until_blocked(&mut other, 1);
        assert_eq!(other.call(&["CLIENT", "UNBLOCK", &number, reason]).unwrap(), Value::Integer(1));
        assert_eq!(client.receive().unwrap(), reply);
        assert_eq!(client.receive().unwrap(), bulk("behind"));
        assert_eq!(other.call(&["CLIENT", "UNBLOCK", &number]).unwrap(), Value::Integer(0));
    }
    let endless = Value::Error("ERR timeout is negative".into());
    assert_eq!(client.call(&["BLPOP", "a", "-1"]).unwrap(), endless);
}

/// Whether the system considers the server's end of a client's connection open. The end of the other side may arrive a
/// moment after it hung up, even on one machine, and after what others send then.
fn is_open(server: &Server, client: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let place = |address: SocketAddr| format!(":{:04X}", address.port());
    let (here, there) = (place(server.address()), place(client));
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let [local, remote, state] = [(); 3].map(|()| fields.next().unwrap_or_default());
        local.ends_with(&here) && remote.ends_with(&there) && state == ESTABLISHED
    })
}

#[test]
fn who_has_gone_takes_nothing() {
    let server = serve(3);
    let mut other = connect(&server);
    for round in 0..100 {
        let mut gone = connect(&server);
        ask(&mut gone, &["BLPOP", "a", "0"]);
        until_blocked(&mut other, 1);
        let address = gone.address().unwrap();
        assert!(is_open(&server, address));
        drop(gone);
        // Then the system knows. The thread that serves the connection may not know yet.
        until(|| !is_open(&server, address));
        other.call(&["RPUSH", "a", "x"]).unwrap();
        assert_eq!(other.call(&["LPOP", "a"]).unwrap(), bulk("x"), "{round}");
        until_blocked(&mut other, 0);
    }
}

#[test]
fn messages_reach_subscribers() {
    let server = serve(2);
    let (mut two, mut three, mut other) = (connect(&server), connect(&server), connect(&server));
    three.call(&["HELLO", "3"]).unwrap();
    let confirmed =
        |sign, what: &str, name: &str, count| Value::Many(sign, vec![bulk(what), bulk(name), Value::Integer(count)]);
    ask(&mut two, &["SUBSCRIBE", "a", "b"]);
    assert_eq!(two.receive().unwrap(), confirmed(b'*', "subscribe", "a", 1));
    assert_eq!(two.receive().unwrap(), confirmed(b'*', "subscribe", "b", 2));
    assert_eq!(three.call(&["PSUBSCRIBE", "?"]).unwrap(), confirmed(b'>', "psubscribe", "?", 1));
    assert_eq!(other.call(&["PUBLISH", "a", "hello"]).unwrap(), Value::Integer(2));
    assert_eq!(two.receive().unwrap(), array(&["message", "a", "hello"]));
    let Value::Many(_, parts) = array(&["pmessage", "?", "a", "hello"]) else { unreachable!() };
    assert_eq!(three.receive().unwrap(), Value::Many(b'>', parts));
    // With RESP2 a subscriber may do little else; with RESP3 everything.
    let Value::Error(refusal) = two.call(&["GET", "a"]).unwrap() else { panic!("no error") };
    assert!(refusal.starts_with("ERR Can't execute 'get': only (P|S)SUBSCRIBE"), "{refusal}");
    assert_eq!(two.call(&["PING"]).unwrap(), array(&["pong", ""]));
    assert_eq!(three.call(&["GET", "a"]).unwrap(), Value::Null);
    assert_eq!(other.call(&["PUBSUB", "CHANNELS"]).unwrap(), array(&["a", "b"]));
    let counts = Value::Many(b'*', vec![bulk("a"), Value::Integer(1), bulk("c"), Value::Integer(0)]);
    assert_eq!(other.call(&["PUBSUB", "NUMSUB", "a", "c"]).unwrap(), counts);
    assert_eq!(two.call(&["UNSUBSCRIBE", "a"]).unwrap(), confirmed(b'*', "unsubscribe", "a", 1));
    assert_eq!(two.call(&["UNSUBSCRIBE"]).unwrap(), confirmed(b'*', "unsubscribe", "b", 0));
    assert_eq!(two.call(&["GET", "a"]).unwrap(), Value::Null);
    drop(three);
    until(|| other.call(&["PUBLISH", "a", "hello"]).unwrap() == Value::Integer(0));
}

#[test]
fn a_monitor_sees_commands_escaped_and_no_passwords() {
    let server = serve(1);
    let (mut monitor, mut other) = (connect(&server), connect(&server));
    assert_eq!(monitor.call(&["MONITOR"]).unwrap(), Value::Simple("OK".into()));
    other.call(&["AUTH", "default", "secret"]).unwrap();
    other.call(&["SET", "key", "\r\n\x1b[31m\""]).unwrap();
    for end in [r#"] "AUTH" "(redacted)" "(redacted)""#, r#"] "SET" "key" "\r\n\x1b[31m\"""#] {
        let Value::Simple(line) = monitor.receive().unwrap() else { panic!("no line") };
        assert!(line.ends_with(end), "{line}");
    }
}

#[test]
fn a_flood_with_a_closed_reader_is_bounded() {
    let server = serve(1);
    let (mut flood, mut other) = (TcpStream::connect(server.address()).unwrap(), connect(&server));
    other.call(&[&b"SET"[..], b"key", &vec![b'x'; 10_000]]).unwrap();
    flood.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let requests = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(1000);
    // A million requests, which ask for ten gigabytes, unless nobody accepts them.
    let sent = (0..1000).take_while(|_| flood.write_all(&requests).is_ok()).count();
    assert!(sent < 1000, "all requests were taken");
    assert_eq!(other.call(&["GET", "nothing"]).unwrap(), Value::Null);
    let Value::Bulk(lines) = other.call(&["CLIENT", "LIST"]).unwrap() else { panic!("no list") };
    let lines = String::from_utf8(lines).unwrap();
    let address = flood.local_addr().unwrap().to_string();
    let line = lines.lines().find(|line| line.contains(&format!("addr={address} "))).unwrap();
    let held = line.split(' ').find_map(|field| field.strip_prefix("tot-mem=")).unwrap();
    let held: usize = held.parse().unwrap();
    assert!((1..16 << 20).contains(&held), "{line}");
}

/// `count` connections at once; every hundredth asks for much and reads nothing for a long time.
fn crowd(count: usize) {
    const REQUESTS: usize = 300;
    let server = serve(2);
    let mut other = connect(&server);
    let most = (count + 100).to_string();
    assert_eq!(other.call(&["CONFIG", "SET", "maxclients", &most]).unwrap(), Value::Simple("OK".into()));
    let mut clients: Vec<Client> = (0..count).map(|_| connect(&server)).collect();
    let large = vec![b'x'; 10_000];
    other.call(&[&b"SET"[..], b"large", &large]).unwrap();
    let get = [b"GET".to_vec(), b"large".to_vec()];
    for slow in clients.iter_mut().step_by(100) {
        slow.send((0..REQUESTS).map(|_| &get[..])).unwrap();
    }
    let is_quick = |number: &usize| !number.is_multiple_of(100);
    for number in (0..count).filter(is_quick) {
        let key = number.to_string();
        ask(&mut clients[number], &["SET", &key, &key]);
        ask(&mut clients[number], &["GET", &key]);
    }
    for number in (0..count).filter(is_quick) {
        assert_eq!(clients[number].receive().unwrap(), Value::Simple("OK".into()));
        assert_eq!(clients[number].receive().unwrap(), bulk(&number.to_string()));
    }
    assert_eq!(info(&mut other, "connected_clients"), (count + 1).to_string());
    let Value::Bulk(lines) = other.call(&["CLIENT", "LIST"]).unwrap() else { panic!("no list") };
    let lines = String::from_utf8(lines).unwrap();
    let held = lines.split_ascii_whitespace().filter_map(|field| field.strip_prefix("tot-mem="));
    let held: usize = held.map(|bytes| bytes.parse::<usize>().unwrap()).sum();
    // Data that was not read waits as requests.
    assert!(held < count.div_ceil(100) * (2 << 20) + count * 1024, "{held} bytes are held");
    for slow in clients.iter_mut().step_by(100) {
        for _ in 0..REQUESTS {
            assert_eq!(slow.receive().unwrap(), Value::Bulk(large.clone()));
        }
    }
    drop(clients);
    until(|| info(&mut other, "connected_clients") == "1");
}

#[test]
fn a_crowd_with_slow_readers_is_served() {
    crowd(300);
}

#[test]
#[ignore = "opens 20,000 files: cargo xtask redis-crowd"]
fn ten_thousand_connections_with_slow_readers_are_served() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Both ends are in this process. Where fewer files may be open, there are fewer connections.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let files = maximum.map_or(20_200, |maximum| maximum.min(20_200));
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    let count = usize::try_from(files.saturating_sub(100) / 2).unwrap().min(10_000);
    println!("{count} connections");
    crowd(count);
}

#[test]
fn a_large_value_comes_and_goes() {
    let server = serve(1);
    let mut client = connect(&server);
    let value: Vec<u8> = (0..7_000_000_u32).map(|number| number as u8).collect();
    assert_eq!(client.call(&[&b"SET"[..], b"key", &value]).unwrap(), Value::Simple("OK".into()));
    assert_eq!(client.call(&["GET", "key"]).unwrap(), Value::Bulk(value));
    let Value::Error(refusal) = client.call(&["SETRANGE", "key", "67108800", "x"]).unwrap() else { panic!("no error") };
    assert_eq!(refusal, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
}

#[test]
fn keys_that_expired_are_removed_and_uncounted() {
    let server = serve(1);
    let mut client = connect(&server);
    for number in 0..600 {
        client.call(&["SET", &format!("key{number}"), "x", "PX", "1"]).unwrap();
    }
    client.call(&["HSET", "hash", "a", "1"]).unwrap();
    client.call(&["PEXPIRE", "hash", "1"]).unwrap();
    client.call(&["SET", "stays", "x"]).unwrap();
    until(|| client.call(&["DBSIZE"]).unwrap() == Value::Integer(1));
    assert_eq!(client.call(&["KEYS", "*"]).unwrap(), array(&["stays"]));
    assert_eq!(info(&mut client, "expired_keys"), "601");
}

/// What `XREAD` replies about one entry of the stream `s`.
fn one_entry(id: &str, words: &[&str]) -> Value {
    let entry = Value::Many(b'*', vec![bulk(id), array(words)]);
    Value::Many(b'*', vec![Value::Many(b'*', vec![bulk("s"), Value::Many(b'*', vec![entry])])])
}

#[test]
fn entries_of_streams_are_waited_for() {
    for threads in [1, 3] {
        let server = serve(threads);
        let (mut reader, mut member, mut other) = (connect(&server), connect(&server), connect(&server));
        let (latest, of_group) = (
            ["XREAD", "BLOCK", "0", "STREAMS", "s", "$"],
            ["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"],
        );
        ask(&mut reader, &latest);
        until_blocked(&mut other, 1);
        assert_eq!(other.call(&["XADD", "s", "1-1", "a", "b"]).unwrap(), bulk("1-1"));
        assert_eq!(reader.receive().unwrap(), one_entry("1-1", &["a", "b"]));
        assert_eq!(other.call(&["XGROUP", "CREATE", "s", "g", "$"]).unwrap(), Value::Simple("OK".into()));
        ask(&mut reader, &latest);
        ask(&mut member, &of_group);
        until_blocked(&mut other, 2);
        assert_eq!(other.call(&["XADD", "s", "1-2", "c", "d"]).unwrap(), bulk("1-2"));
        for client in [&mut reader, &mut member] {
            assert_eq!(client.receive().unwrap(), one_entry("1-2", &["c", "d"]));
        }
        assert_eq!(other.call(&["XACK", "s", "g", "1-2"]).unwrap(), Value::Integer(1));
        // Group and stream are removed while a client waits.
        ask(&mut member, &of_group);
        until_blocked(&mut other, 1);
        assert_eq!(other.call(&["XGROUP", "DESTROY", "s", "g"]).unwrap(), Value::Integer(1));
        let gone = "NOGROUP the consumer group this client was blocked on no longer exists";
        assert_eq!(member.receive().unwrap(), Value::Error(gone.into()));
        for end in [&["SET", "s", "x"][..], &["FLUSHDB"], &["FLUSHALL"], &["PEXPIRE", "s", "1"]] {
            other.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]).unwrap();
            ask(&mut member, &of_group);
            until_blocked(&mut other, 1);
            other.call(end).unwrap();
            let gone = "UNBLOCKED the stream key no longer exists";
            assert_eq!(member.receive().unwrap(), Value::Error(gone.into()), "{end:?}");
            other.call(&["DEL", "s"]).unwrap();
        }
    }
}

#[test]
fn a_pause_holds_commands_until_it_ends() {
    for threads in [1, 2] {
        let server = serve(threads);
        let (mut writer, mut other) = (connect(&server), connect(&server));
        let ok = Value::Simple("OK".into());
        assert_eq!(other.call(&["CLIENT", "PAUSE", "100000000", "WRITE"]).unwrap(), ok);
        ask(&mut writer, &["GET", "a"]);
        ask(&mut writer, &["SET", "a", "1"]);
        ask(&mut writer, &["GET", "a"]);
        // Reads continue.
        assert_eq!(writer.receive().unwrap(), Value::Null);
        assert_eq!(other.call(&["GET", "a"]).unwrap(), Value::Null);
        assert_eq!(other.call(&["CLIENT", "UNPAUSE"]).unwrap(), ok);
        assert_eq!(writer.receive().unwrap(), ok);
        assert_eq!(writer.receive().unwrap(), bulk("1"));
        // This pause ends by itself.
        assert_eq!(other.call(&["CLIENT", "PAUSE", "1"]).unwrap(), ok);
        assert_eq!(writer.call(&["SET", "a", "2"]).unwrap(), ok);
    }
}

#[test]
fn whoever_does_nothing_for_long_is_let_go() {
    let (clock, address) = (Arc::new(ManualClock::new()), SocketAddr::from(([127, 0, 0, 1], 0)));
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let server =
        Server::start(store, ServerOptions { address, clock: clock.clone(), ..ServerOptions::default() }).unwrap();
    let [mut client, mut idle, mut waiting, mut subscriber, mut monitor] = [(); 5].map(|()| connect(&server));
    client.call(&["CONFIG", "SET", "timeout", "10"]).unwrap();
    idle.call(&["PING"]).unwrap();
    subscriber.call(&["SUBSCRIBE", "c"]).unwrap();
    monitor.call(&["MONITOR"]).unwrap();
    ask(&mut waiting, &["BLPOP", "a", "0"]);
    until_blocked(&mut client, 1);
    clock.advance(Duration::from_secs(9));
    assert_eq!(info(&mut client, "connected_clients"), "5");
    clock.advance(Duration::from_secs(2));
    until(|| info(&mut client, "connected_clients") == "4");
    assert!(idle.receive().is_err());
    client.call(&["RPUSH", "a", "x"]).unwrap();
    assert_eq!(waiting.receive().unwrap(), array(&["a", "x"]));
}

#[test]
fn whoever_does_not_finish_a_handshake_is_let_go() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (certificate, key) = (file("tls.pem", made.cert.pem()), file("tls.key", made.signing_key.serialize_pem()));
    let files = AdmissionOptions { certificate: Some(certificate), key: Some(key), ..AdmissionOptions::default() };
    let admission = Arc::new(Admission::load(files).unwrap());
    let (clock, address) = (Arc::new(ManualClock::new()), SocketAddr::from(([127, 0, 0, 1], 0)));
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let tls = Some(TlsOptions { address, admission, is_required: false });
    let options = ServerOptions { address, tls, clock: clock.clone(), ..ServerOptions::default() };
    let server = Server::start(store, options).unwrap();
    let mut client = connect(&server);
    let mut silent = TcpStream::connect(server.tls_address().unwrap()).unwrap();
    let mut half = TcpStream::connect(server.tls_address().unwrap()).unwrap();
    // The beginning of a record that says hello, and nothing more.
    half.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 252, 3]).unwrap();
    until(|| info(&mut client, "connected_clients") == "3");
    clock.advance(Duration::from_secs(9));
    assert_eq!(info(&mut client, "connected_clients"), "3");
    clock.advance(Duration::from_secs(2));
    for late in [&mut silent, &mut half] {
        let mut rest = Vec::new();
        let _ = late.read_to_end(&mut rest);
        assert!(rest.len() < 100, "{}", rest.len());
    }
    until(|| info(&mut client, "connected_clients") == "1");
    // A connection without any TLS ends at once.
    let mut plain = TcpStream::connect(server.tls_address().unwrap()).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"+PONG"));
}
