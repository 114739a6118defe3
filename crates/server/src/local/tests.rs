//! What the server replies to connections.

mod bounds;
mod connections;
mod counts;
mod details;
mod long;
mod messages;
mod tracking;
mod transactions;
mod tree;
mod waiting;

use super::*;
use crate::records::direction::Direction;
use crate::script::progress::{Kind, Running};
use crate::state::channels::Topic;
use forebay::{Durability, Keyspaces, Options, Storage, StorageOptions, Store, Syncing};
use forebay_env::{ManualClock, Nanos};
use forebay_storage::{DiskFault, SimDisk};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn server(clock: &Arc<ManualClock>) -> LocalServer {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let options = Options { background_threads: 0, clock: Arc::clone(&clock), ..Options::default() };
    LocalServer::new(Store::embedded(64 << 20, options).unwrap(), clock, &["config"]).unwrap()
}

/// A server whose writes wait for this disk.
fn server_on(disk: &SimDisk, clock: &Arc<ManualClock>, syncing: Syncing) -> LocalServer {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    LocalServer::new(store_on(disk, &clock, syncing), clock, &[]).unwrap()
}

fn store_on(disk: &SimDisk, clock: &Arc<dyn Clock>, syncing: Syncing) -> Store {
    Store::embedded(64 << 20, options_on(disk, clock, syncing)).unwrap()
}

fn options_on(disk: &SimDisk, clock: &Arc<dyn Clock>, syncing: Syncing) -> Options {
    Options {
        name: Some("db".to_owned()),
        storage: Some(Storage::of_disk(Arc::new(disk.clone()), 1, StorageOptions::default())),
        durability: Durability::Storage(syncing),
        takeover: true,
        background_threads: 0,
        clock: Arc::clone(clock),
        ..Options::default()
    }
}

/// Keys that no server has written, in a database without keyspaces and in one with some, are neither hidden nor changed.
#[test]
fn a_store_of_others_is_refused_and_stays_as_it_is() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let entries = |store: &Store| {
        let (mut keys, mut found) = (store.iter().unwrap(), Vec::new());
        keys.seek_to_first().unwrap();
        while keys.valid() {
            found.push((keys.key().to_vec(), keys.value().to_vec()));
            keys.next().unwrap();
        }
        found
    };
    let wrote: [fn(&Store); 3] = [
        |store| store.put(b"key", b"value").unwrap(),
        |store| store.put(b"\x02key", b"value").unwrap(),
        |store| _ = Keyspaces::open(store).unwrap().create("some").unwrap(),
    ];
    for write in wrote {
        let disk = SimDisk::new();
        let store = store_on(&disk.handle(), &clock, Syncing::Sync);
        write(&store);
        let before = entries(&store);
        let refused = LocalServer::new(store, Arc::clone(&clock), &[]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("forebay serve has not written"), "{refused}");
        assert_eq!(entries(&store_on(&disk, &clock, Syncing::Sync)), before);
    }
    // A store that a server has written stays its own, even when all keys were removed.
    let disk = SimDisk::new();
    for request in ["SET key value", "DEL key", "FLUSHALL"] {
        let server =
            LocalServer::new(store_on(&disk.handle(), &clock, Syncing::Sync), Arc::clone(&clock), &[]).unwrap();
        assert!(!told(&server, request).starts_with('-'));
    }
}

/// From now on the disk is full for every operation.
fn fill(disk: &SimDisk) {
    (0..10_000).for_each(|step| disk.fail_at(disk.steps() + step, DiskFault::Refused(ErrorKind::Full)));
}

/// The operator learns what to do about the store, even if the server's own first write fails.
#[test]
fn a_server_that_begins_on_a_full_disk_says_so() {
    let (clock, disk): (Arc<dyn Clock>, _) = (Arc::new(ManualClock::new()), SimDisk::new());
    let store = store_on(&disk, &clock, Syncing::Sync);
    fill(&disk);
    let error = LocalServer::new(store, clock, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}

/// The reply to such a write, up to the disk's own words.
const IN_DOUBT: &str = "-ERR storage failed, and the write may have taken effect: ";

#[test]
fn a_write_that_is_not_durable_takes_effect_and_is_an_error() {
    let (disk, clock) = (SimDisk::new(), Arc::new(ManualClock::new()));
    let handle = disk.handle();
    let server = server_on(&handle, &clock, Syncing::Sync);
    // The disk has room for what failed before, and then for nothing.
    let becomes_full = || {
        handle.mend();
        assert_eq!(told(&server, "SET room 1"), "+OK\r\n");
        fill(&handle);
    };
    let is_in_doubt = |sent: &[u8]| sent.starts_with(IN_DOUBT.as_bytes()) && sent.ends_with(b"\r\n");
    assert_eq!(told(&server, "CONFIG SET notify-keyspace-events KEA; SET kept 1"), "+OK\r\n+OK\r\n");
    // The first id of a collection takes a block of them from the store.
    assert_eq!(told(&server, "SADD first x; DEL first"), ":1\r\n:1\r\n");
    (0..300).for_each(|key| assert_eq!(told(&server, &format!("SET expires{key} 1 PX 10")), "+OK\r\n"));
    let (mut waits, mut watches, mut learns) = (server.connect(), server.connect(), server.connect());
    assert!(waits.send(b"BLPOP list 0\r\n").is_empty());
    assert_eq!(watches.send(b"WATCH watched\r\nMULTI\r\nPING\r\n"), b"+OK\r\n+OK\r\n+QUEUED\r\n");
    learns.send(b"SUBSCRIBE __keyspace@0__:new\r\n");
    let executor = server.executor();
    let mut writes = server.connect();
    becomes_full();
    writes.dialogue.requests.push(b"RPUSH list x y\r\n");
    writes.dialogue.carry_out(&executor);
    assert!(is_in_doubt(writes.dialogue.out.bytes()));
    // The client that waited is refused, and the element is there.
    let refused = waits.send(b"");
    assert!(refused.starts_with(b"-ERR") && !is_in_doubt(&refused) && waits.may_go_on(), "{}", refused.escape_ascii());
    assert_eq!(told(&server, "LRANGE list 0 -1"), "*2\r\n$1\r\nx\r\n$1\r\ny\r\n");
    becomes_full();
    let sent = told(&server, "SET watched 1");
    assert!(is_in_doubt(sent.as_bytes()) && sent.contains("full") && sent.lines().count() == 1, "{sent}");
    assert_eq!(watches.send(b"EXEC\r\n"), b"*-1\r\n");
    writes.dialogue.out.forget();
    becomes_full();
    writes.dialogue.requests.push(b"SET new 1\r\n");
    writes.dialogue.carry_out(&executor);
    assert!(learns.send(b"").ends_with(b"$3\r\nset\r\n"));
    // A pipeline, a transaction and a script. Later writes are refused, and leave nothing.
    let script = "EVAL \"redis.call('SET', 'c', 1)\" 0";
    for (requests, doubtful) in [("SET a 1; GET a; SET d 1", 3), ("MULTI; SET b 1; EXEC", 1), (script, 1)] {
        becomes_full();
        let sent = told(&server, requests);
        assert_eq!(sent.lines().filter(|line| line.starts_with(IN_DOUBT)).count(), doubtful, "{sent}");
        let refused = told(&server, "SET e 1");
        assert!(refused.starts_with("-ERR") && !refused.starts_with(IN_DOUBT), "{refused}");
    }
    assert_eq!(told(&server, "MGET a b c d e"), format!("*5\r\n{}$-1\r\n", "$1\r\n1\r\n".repeat(4)));
    // Expired keys are removed, and counted.
    let counted = |server: &LocalServer| told(server, "INFO keyspace");
    assert!(counted(&server).contains("keys=309,expires=300"), "{}", counted(&server));
    clock.advance(Duration::from_millis(20));
    becomes_full();
    assert!(server.sweep().is_err());
    let of_doubt = counted(&server);
    assert!(server.sweep().is_err());
    assert_eq!(counted(&server), of_doubt);
    handle.mend();
    server.sweep().unwrap();
    assert!(counted(&server).contains("keys=9,expires=0"), "{}", counted(&server));
    // Once there is room, the store agrees with the counts.
    drop((waits, watches, learns, writes));
    drop(server);
    let server = server_on(&disk, &clock, Syncing::Sync);
    let keys = told(&server, "KEYS *").lines().filter(|line| !line.starts_with(['*', '$'])).count();
    assert_eq!(told(&server, "DBSIZE"), format!(":{keys}\r\n"));
}

/// Full storage and full memory are reported differently, and so are a refused write and a write that is not durable.
#[test]
fn what_is_full_is_named() {
    let disk = SimDisk::new();
    let hour = Duration::from_secs(3600);
    let server = server_on(&disk, &Arc::default(), Syncing::Interval(hour));
    assert_eq!(told(&server, "SET a 1"), "+OK\r\n");
    fill(&disk);
    // A sync that no write waits for fails. Later writes are refused.
    for request in ["SAVE", "SET b 1", "RPUSH c x"] {
        let sent = told(&server, request);
        assert!(sent.starts_with("-ERR storage is full: "), "{request}: {sent}");
    }
    assert_eq!(told(&server, "DBSIZE; EXISTS b c"), ":1\r\n:0\r\n");
    let options = Options { background_threads: 0, ..Options::default() };
    let small = Store::embedded(16 << 20, options).unwrap();
    let server = LocalServer::new(small, Arc::new(ManualClock::new()), &[]).unwrap();
    let mut sent = (0..100).map(|key| told(&server, &format!("SETRANGE {key} 300000 x")));
    let refused = sent.rfind(|sent| sent.starts_with('-')).unwrap();
    assert_eq!(refused, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
}

/// What a client saw expire does not come back.
#[test]
fn a_clock_that_is_set_back_brings_no_key_back() {
    #[derive(Debug, Default)]
    struct WallClock(AtomicU64);
    impl Clock for WallClock {
        fn now(&self) -> Nanos {
            0
        }
        fn wall_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn sleep(&self, _: Duration) {}
    }
    let clock = Arc::new(WallClock::default());
    let options = Options { background_threads: 0, ..Options::default() };
    let server = LocalServer::new(Store::embedded(64 << 20, options).unwrap(), Arc::clone(&clock) as _, &[]).unwrap();
    for (at_ms, request, reply) in [
        (10_000, "SET k v PX 1000; EXISTS k", "+OK\r\n:1\r\n"),
        (11_500, "EXISTS k", ":0\r\n"),
        (10_500, "EXISTS k; SET k v PX 1000; PEXPIRETIME k", ":0\r\n+OK\r\n:12500\r\n"),
        (12_000, "EXISTS k", ":1\r\n"),
        (12_501, "EXISTS k", ":0\r\n"),
    ] {
        clock.0.store(at_ms, Ordering::Relaxed);
        assert_eq!(told(&server, request), reply, "{at_ms} {request}");
    }
}

/// The operator fixes the cause, and saves.
#[test]
fn a_log_that_was_lost_is_begun_again_by_saving() {
    let disk = SimDisk::new();
    let server = server_on(&disk, &Arc::default(), Syncing::Interval(Duration::from_secs(3600)));
    assert_eq!(told(&server, "SET a 1"), "+OK\r\n");
    // The log is written, and then synced.
    disk.fail_at(disk.steps() + 1, DiskFault::Lost);
    for request in ["SAVE", "SET b 1"] {
        let sent = told(&server, request);
        assert!(
            sent.starts_with("-ERR storage: ") && sent.contains("until another one has begun"),
            "{request}: {sent}"
        );
        assert!(!sent.contains("::"), "{sent}");
    }
    assert_eq!(told(&server, "SAVE; SET b 2; GET b"), "+OK\r\n+OK\r\n$1\r\n2\r\n");
}

/// The store continues, and a database that begins with the checkpoint has the state of that moment.
#[test]
fn a_checkpoint_keeps_the_store_as_it_was() {
    let (disk, clock) = (SimDisk::new(), Arc::default());
    let server = server_on(&disk, &clock, Syncing::Sync);
    let mut connection = server.connect();
    connection.send(b"SET a 1\r\nFOREBAY.CHECKPOINT CREATE monday\r\nSET a 2\r\n");
    assert_eq!(told(&server, "GET a"), "$1\r\n1\r\n", "what follows waits for the checkpoint, and nobody else does");
    drop(connection);
    let kept = told(&server, "FOREBAY.CHECKPOINT CREATE tuesday; SET a 3; FOREBAY.CHECKPOINT LIST");
    assert_eq!(kept, "+OK\r\n+OK\r\n*2\r\n$6\r\nmonday\r\n$7\r\ntuesday\r\n");
    for (request, refused) in [
        ("FOREBAY.CHECKPOINT CREATE monday", "-ERR there is a checkpoint \"monday\" already\r\n"),
        ("FOREBAY.CHECKPOINT DROP friday", "-ERR there is no checkpoint \"friday\"\r\n"),
        ("FOREBAY.CHECKPOINT CREATE .", "-ERR naming of .: invalid: "),
        ("MULTI; FOREBAY.CHECKPOINT CREATE friday", "+OK\r\n-ERR Command not allowed inside a transaction\r\n"),
        ("FOREBAY.CHECKPOINT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try FOREBAY.CHECKPOINT HELP.\r\n"),
    ] {
        let sent = told(&server, request);
        assert!(sent.starts_with(refused), "{request}: {sent}");
    }
    let storage = Storage::of_disk(Arc::new(disk.clone()), 1, StorageOptions::default());
    forebay::Db::clone_checkpoint(&storage, "db", "monday", "copy").unwrap();
    let kept = told(&server, "GET a; FOREBAY.CHECKPOINT DROP tuesday; FOREBAY.CHECKPOINT LIST");
    assert_eq!(kept, "$1\r\n3\r\n+OK\r\n*1\r\n$6\r\nmonday\r\n");
    drop(server);
    let clock: Arc<dyn Clock> = clock;
    let options = Options { name: Some("copy".to_owned()), ..options_on(&disk, &clock, Syncing::Sync) };
    let copy = LocalServer::new(Store::embedded(64 << 20, options).unwrap(), clock, &[]).unwrap();
    assert_eq!(told(&copy, "GET a"), "$1\r\n1\r\n");
}

#[test]
fn a_store_without_storage_has_no_checkpoints() {
    for request in ["CREATE monday", "DROP monday", "LIST"] {
        let sent = told(&server(&Arc::default()), &format!("FOREBAY.CHECKPOINT {request}"));
        assert!(sent.starts_with("-ERR ") && sent.contains("storage"), "{sent}");
    }
}

#[test]
fn requests_are_carried_out_in_pieces() {
    let server = server(&Arc::default());
    let mut connection = server.connect();
    assert_eq!(connection.send(b"SET a 1\r\nGET a\r\nGE"), b"+OK\r\n$1\r\n1\r\n");
    assert_eq!(connection.send(b"T b\r\nCONFIG GET x\r\n").split_at(5).0, b"$-1\r\n");
    assert!(connection.may_go_on());
    assert!(connection.send(b"*x\r\n").starts_with(b"-ERR Protocol error"));
    assert!(!connection.may_go_on());
}

/// A page in a browser could otherwise carry commands out, in the body of a request.
#[test]
fn who_speaks_http_is_not_served() {
    let server = server(&Arc::default());
    for request in
        ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nHost: localhost:6379", "host: x", "*2\r\n$4\r\npost\r\n$1\r\n/"]
    {
        let mut connection = server.connect();
        connection.send(format!("SET a 1\r\n{request}\r\n\r\nSET a 2\r\n").as_bytes());
        assert!(!connection.may_go_on(), "{request}");
        assert_eq!(server.connect().send(b"GET a\r\n"), b"$1\r\n1\r\n", "{request}");
    }
    assert_eq!(server.connect().send(b"POST / HTTP/1.1\r\n"), b"");
}

#[test]
fn who_waits_is_served_and_what_expires_is_removed() {
    let clock = Arc::new(ManualClock::new());
    let server = server(&clock);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    assert!(waiting.send(b"BLPOP list 0\r\n").is_empty() && !waiting.may_go_on());
    assert_eq!(other.send(b"RPUSH list x\r\nSET k v PX 10\r\n"), b":1\r\n+OK\r\n");
    clock.advance(Duration::from_millis(20));
    server.sweep().unwrap();
    assert_eq!(other.send(b"DBSIZE\r\n"), b":0\r\n");
}

/// The store of this server takes 2 MiB at once.
#[test]
fn a_pipeline_may_write_more_than_one_batch_holds() {
    let server = server(&Arc::default());
    for length in [100_000, 700_000, 1_500_000] {
        let requests: String = (0..9).map(|key| format!("SETRANGE {key} {} x\r\n", length - 1)).collect();
        let replies = format!(":{length}\r\n").repeat(9);
        assert_eq!(String::from_utf8(server.connect().send(requests.as_bytes())).unwrap(), replies);
    }
    let sent = server.connect().send(b"SETRANGE a 1500000 x\r\nSETRANGE b 3000000 x\r\nSTRLEN a\r\nSTRLEN b\r\n");
    let sent = String::from_utf8(sent).unwrap();
    assert!(sent.starts_with(":1500001\r\n-ERR storage: ") && sent.ends_with("\r\n:1500001\r\n:0\r\n"), "{sent}");
    let skipped = b"CLIENT REPLY SKIP\r\nSETRANGE a 1500000 x\r\nSETRANGE b 1500000 x\r\nPING\r\n";
    assert_eq!(server.connect().send(skipped), b":1500001\r\n+PONG\r\n");
}

#[test]
fn a_transaction_ends_at_the_command_that_writes_too_much() {
    let server = server(&Arc::default());
    let queued: String = (0..8).map(|key| format!("SETRANGE {key} 60000000 x\r\n")).collect();
    let sent = server.connect().send(format!("MULTI\r\n{queued}EXEC\r\nDBSIZE\r\n").as_bytes());
    let sent = String::from_utf8(sent).unwrap();
    let refusal = "-ERR too much is written at once: at most 256 MiB\r\n:0\r\n";
    assert_eq!(sent, format!("+OK\r\n{}{refusal}", "+QUEUED\r\n".repeat(8)));
}

/// Sends requests, one a line, carries out scripts, and returns the replies.
fn told(server: &LocalServer, requests: &str) -> String {
    let mut connection = server.connect();
    let mut sent = connection.send(format!("{}\r\n", requests.replace("; ", "\r\n")).as_bytes());
    while server.carry_out_jobs() > 0 {
        // The mail comes first, and then earlier requests continue.
        sent.extend(connection.send(b""));
        sent.extend(connection.send(b""));
    }
    sent.extend(connection.send(b""));
    String::from_utf8(sent).unwrap()
}

/// `SORT` may read any key by its patterns, `RESTORE` takes what could be harmful, and a script that only reads is code.
#[test]
fn what_is_dangerous_is_no_mere_reading() {
    let server = server(&Arc::default());
    let all_but = "ACL SETUSER most on nopass ~* &* +@all -@dangerous";
    assert_eq!(told(&server, &format!("{all_but}; ACL SETUSER reader on nopass ~* +@read")), "+OK\r\n+OK\r\n");
    for (user, request, name) in [
        ("most", "SORT l", "sort"),
        ("most", "SORT_RO l", "sort_ro"),
        ("most", "RESTORE k 0 x", "restore"),
        ("most", "KEYS *", "keys"),
        ("reader", "EVAL_RO \"return 1\" 0", "eval_ro"),
        ("reader", "EVALSHA_RO name 0", "evalsha_ro"),
        ("reader", "FCALL_RO name 0", "fcall_ro"),
    ] {
        let expected = format!("+OK\r\n-NOPERM this user has no permissions to run the '{name}' command\r\n");
        assert_eq!(told(&server, &format!("AUTH {user} x; {request}")), expected, "{request}");
    }
    assert_eq!(told(&server, "AUTH reader x; GET k"), "+OK\r\n$-1\r\n");
}

/// Lua has room for about 8,000 values that are held from outside: scripts, functions and arguments are not held one by one.
#[test]
fn there_may_be_many_scripts_functions_and_arguments() {
    let server = server(&Arc::default());
    (0..9000).for_each(|number| assert_eq!(eval(&server, "EVAL", &format!("return {number}")), format!(":{number}")));
    let many = "x ".repeat(20_000);
    assert_eq!(told(&server, &format!("EVAL \"return #ARGV + #KEYS\" 10000 {many}")), ":20000\r\n");
    let library = "#!lua name=m\nfor i = 1, 9000 do redis.register_function('f' .. i, function(keys, words) return i + #words end) end";
    let load = |text: &str| format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{text}\r\n", text.len());
    assert_eq!(told(&server, load(library).trim_end()), "$1\r\nm\r\n");
    assert_eq!(told(&server, &format!("FCALL f9000 0 {many}")), ":29000\r\n");
    assert_eq!(told(&server, "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"), ":1\r\n");
    assert_eq!(eval(&server, "EVAL", "return 8999"), ":8999");
}

/// What a script returns.
fn eval(server: &LocalServer, command: &str, script: &str) -> String {
    told(server, &format!("{command} \"{script}\" 0")).trim_end().to_owned()
}

#[test]
fn scripts_return_what_resp3_has() {
    let server = server(&Arc::default());
    for (script, expected) in [
        ("return {big_number = '12345678901234567890'}", "(12345678901234567890"),
        ("return {verbatim_string = {format = 'toolong', string = 'x'}}", "=5\r\ntoo:x"),
        ("return {verbatim_string = {format = 't', string = 'x'}}", "=5\r\nt  :x"),
        ("return {verbatim_string = {string = 'x'}}", "*0"),
        ("return {double = 1.5, big_number = '5'}", ",1.5"),
    ] {
        let sent = told(&server, &format!("HELLO 3; EVAL \"redis.setresp(3) {script}\" 0"));
        assert!(sent.ends_with(&format!("\r\n{expected}\r\n")), "{script}: {sent}");
    }
}

#[test]
fn a_protected_call_gives_the_text_of_an_error() {
    let server = server(&Arc::default());
    let unknown = "ERR Unknown Redis command called from script";
    for (script, expected) in [
        ("local ok, e = pcall(redis.call, 'nosuch') return 'msg: ' .. e", &format!("msg: {unknown}")[..]),
        ("local ok, e = pcall(function() redis.call('nosuch') end) return e", unknown),
        ("local ok, e = pcall(error, {err = 'a'}) return e", "a"),
        ("local ok, e = pcall(error, {err = 5}) return type(e)", "number"),
        ("local ok, e = pcall(error, {b = 'a'}) return type(e)", "table"),
        ("local ok, e = pcall(error, 'x') return e", "x"),
        ("local ok, e = pcall(cjson.decode, '[') return e", "Expected value but found T_END at character 2"),
        (
            "local ok, e = pcall(function() local d = cjson.decode('[') end) return e",
            "user_script:1: Expected value but found T_END at character 2",
        ),
        ("local ok, e = pcall(cjson.encode, tostring) return e", "Cannot serialise function: type not supported"),
        (
            "local ok, e = pcall(function() local t = cjson.encode({1/0}) end) return e",
            "user_script:1: Cannot serialise number: must not be NaN or Inf",
        ),
        ("local ok, e = pcall(redis.pcall, 'nosuch') return tostring(ok) .. type(e)", "truetable"),
        ("return select(2, xpcall(function() redis.call('nosuch') end, function(e) return e.err end))", unknown),
        ("return type(select(2, xpcall(error, function() return {err = 'x'} end)))", "table"),
        ("return {big_number = '123' .. string.char(13, 10) .. '4', map = {a = 'b'}}", "123  4"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}, set = {a = true}}", "x"),
        (
            "local c = coroutine.create(function() redis.call('nosuch') end) \
             return type(select(2, coroutine.resume(c)))",
            "table",
        ),
    ] {
        assert_eq!(eval(&server, "EVAL", script), format!("${}\r\n{expected}", expected.len()), "{script}");
    }
}

#[test]
fn scripts_may_do_what_those_of_redis_may() {
    let server = server(&Arc::default());
    let read_only = "ERR Write commands are not allowed from read-only scripts.";
    let flags = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
    let no_flags = "ERR redis.set_repl() requires two arguments.";
    for (command, script, error) in [
        ("EVAL_RO", "return redis.call('publish', 'a', '1')", read_only),
        ("EVAL_RO", "return redis.call('spublish', 'a', '1')", read_only),
        ("EVAL_RO", "return redis.call('pfcount', 'a')", read_only),
        (
            "EVAL",
            "return redis.call('xread', 'block', 0, 'streams', 'nos', '$')",
            "ERR xread command is not allowed with BLOCK option from scripts",
        ),
        (
            "EVAL",
            "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'BLOCK', 'x', 'STREAMS', 'nos', '>')",
            "ERR XREADGROUP command is not allowed with BLOCK option from scripts",
        ),
        ("EVAL", "redis.set_repl()", no_flags),
        ("EVAL", "redis.set_repl(1, 2)", no_flags),
        ("EVAL", "redis.set_repl(99)", flags),
        ("EVAL", "redis.set_repl(-1)", flags),
    ] {
        let told = eval(&server, command, script);
        assert!(told.starts_with(&format!("-{error} script: ")), "{script}: {told}");
    }
    assert_eq!(eval(&server, "EVAL_RO", "return redis.call('get', 'a')"), "$-1");
    assert_eq!(eval(&server, "EVAL", "return redis.call('publish', 'a', '1')"), ":0");
    for argument in ["redis.REPL_ALL", "'x'", "1.5", "{}"] {
        assert_eq!(eval(&server, "EVAL", &format!("return redis.set_repl({argument})")), "$-1", "{argument}");
    }
    assert_eq!(eval(&server, "EVAL", "#!lua"), "-ERR Invalid script shebang");
    // What a script selects ends with the script.
    assert!(told(&server, "EVAL \"redis.call('select', 1)\" 0; CLIENT INFO").contains(" db=0 "));
}

#[test]
fn an_exec_that_is_refused_ends_the_transaction() {
    let server = server(&Arc::default());
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
    let all = format!("+OK\r\n+QUEUED\r\n{refused}+PONG\r\n-ERR EXEC without MULTI\r\n");
    assert_eq!(told(&server, "MULTI; SET a 1; EXEC x; PING; EXEC"), all);
    assert_eq!(told(&server, "EXEC x"), refused);
}

#[test]
fn what_ends_the_server_or_watches_it_is_for_no_transaction() {
    let server = server(&Arc::default());
    let refused = "+OK\r\n-ERR Command not allowed inside a transaction\r\n\
                   -EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n";
    assert_eq!(told(&server, "MULTI; SHUTDOWN; EXEC; PING"), refused);
    assert_eq!(told(&server, "MULTI; SAVE; EXEC; PING"), refused);
    let watched = told(&server, "MULTI; MONITOR; EXEC");
    assert_eq!(watched, "+OK\r\n+QUEUED\r\n*1\r\n-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n");
    assert!(server.shared.monitors.is_empty());
    for (request, error) in [
        ("SHUTDOWN ABORT", "ERR No shutdown in progress."),
        ("SHUTDOWN ABORT NOW", "ERR syntax error"),
        ("SHUTDOWN SAVE NOSAVE", "ERR syntax error"),
        ("SHUTDOWN SOON", "ERR syntax error"),
    ] {
        assert_eq!(told(&server, request), format!("-{error}\r\n"));
    }
    assert!(!server.shared.is_stopping());
}

/// A script that is busy.
fn busy_script(clock: &ManualClock) -> Running {
    let (name, request, now) = (String::new(), Vec::new(), clock.now());
    Running { kind: Kind::Script, name, request, began_at: now, busy_at: now, ends_when_busy: false }
}

/// Only a request that gives up unsaved data ends a script with the server.
#[test]
fn a_busy_script_is_not_ended_in_passing() {
    let clock = Arc::new(ManualClock::new());
    for (request, stops) in [("SHUTDOWN", false), ("SHUTDOWN SAVE NOW", false), ("SHUTDOWN NOSAVE", true)] {
        let server = server(&clock);
        let begun = server.shared.scripts.progress.begin(busy_script(&clock));
        let expected = if stops { String::new() } else { format!("-{}\r\n", Kind::Script.busy()) };
        assert_eq!(told(&server, request), expected, "{request}");
        assert_eq!(server.shared.is_stopping(), stops, "{request}");
        drop(begun);
    }
}

#[test]
fn monitors_are_shown_what_redis_shows() {
    let server = server(&Arc::default());
    let mut monitor = server.connect();
    assert_eq!(monitor.send(b"MONITOR\r\n"), b"+OK\r\n");
    let watches = monitor.dialogue.session.client.id;
    let executor = server.executor();
    let shown = |requests: &str| {
        let mut connection = server.connect();
        connection.dialogue.requests.push(format!("{}\r\n", requests.replace("; ", "\r\n")).as_bytes());
        while connection.may_go_on() && connection.dialogue.carry_out(&executor) {}
        server.carry_out_jobs();
        let sent = server.mailbox.take().into_iter().filter_map(|message| match message {
            Message::Send { client, letter } if client == watches => Some(letter.bytes().to_vec()),
            _ => None,
        });
        let sent = String::from_utf8(sent.collect::<Vec<_>>().concat()).unwrap();
        // The time and the address come first.
        let line = |line: &str| {
            let (source, words) = line.split_once("] ").unwrap();
            let from = if source.ends_with("[0 lua") { "lua " } else { "" };
            format!("{from}{}", words.replace('"', ""))
        };
        sent.lines().map(line).collect::<Vec<_>>().join("; ")
    };
    for same in ["MULTI; SET k 1; GET k; EXEC", "WATCH k; MULTI; DISCARD; UNWATCH", "ACL WHOAMI", "RESET", "QUIT"] {
        assert_eq!(shown(same), same);
    }
    for (requests, expected) in [
        ("MULTI; GETX; EXEC", "MULTI; EXEC"),
        ("AUTH secret", "AUTH (redacted)"),
        ("AUTH default secret", "AUTH (redacted) (redacted)"),
        (
            "HELLO 3 SETNAME AUTH AUTH default secret; HELLO 2",
            "HELLO 3 SETNAME AUTH AUTH (redacted) (redacted); HELLO 2",
        ),
        (
            "MIGRATE host 1 nothing 0 10 COPY AUTH2 user secret",
            "MIGRATE host 1 nothing 0 10 COPY AUTH2 (redacted) (redacted)",
        ),
        ("CLIENT LIST; CLIENT ID; ACL SETUSER u; ACL DELUSER u; LATENCY LATEST; GET", "CLIENT ID"),
        (
            "EVAL \"redis.call('get', 'k') return redis.pcall('nosuch')\" 0",
            "EVAL redis.call('get', 'k') return redis.pcall('nosuch') 0; lua get k",
        ),
    ] {
        assert_eq!(shown(requests), expected);
    }
}

#[test]
fn a_client_that_queues_commands_is_seen_to() {
    let server = server(&Arc::default());
    let mut client = server.connect();
    for (request, expected) in [
        ("CLIENT ID", "N -1 client|id"),
        ("MULTI", "x 0 multi"),
        ("SET k 1", "x 1 set"),
        ("CLIENT ID", "x 2 client|id"),
        ("EXEC", "N -1 exec"),
        ("WATCH k", "N -1 watch"),
        ("MULTI", "x 0 multi"),
        ("GET k", "x 1 get"),
        ("DISCARD", "N -1 discard"),
        ("MULTI", "x 0 multi"),
        ("EXEC now", "N -1 multi"),
    ] {
        client.send(format!("{request}\r\n").as_bytes());
        let line = client.dialogue.session.client.line(0);
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap().to_owned();
        assert_eq!(["flags=", "multi=", "cmd="].map(field).join(" "), expected, "{request}");
    }
}

#[test]
fn containers_help() {
    let server = server(&Arc::default());
    for container in ["ACL", "CLIENT", "COMMAND", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT", "SLOWLOG"] {
        let expected = format!("+{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
        let said = told(&server, &format!("{container} HELP"));
        assert!(said.contains(&expected) && !said.starts_with('-'), "{said}");
    }
}

#[test]
fn information_is_measured_or_left_out() {
    let mut server = server(&Arc::default());
    let text = told(&server, "SET k 1 EX 10; INFO");
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(ToOwned::to_owned)
    };
    assert!(figure("used_memory_rss").unwrap().parse::<u64>().unwrap() > 1 << 16);
    assert!(figure("used_cpu_user").unwrap().parse::<f64>().is_ok());
    assert!(figure("used_cpu_sys").unwrap().parse::<f64>().is_ok());
    assert_eq!(figure("instantaneous_ops_per_sec").unwrap(), "0");
    assert_eq!(figure("db0").unwrap(), "keys=1,expires=1,avg_ttl=10000");
    let bytes = |name: &str| figure(name).unwrap().parse::<u64>().unwrap();
    assert!(bytes("used_memory_peak") >= bytes("used_memory") && bytes("used_memory") >= bytes("used_memory_startup"));
    assert_eq!((figure("mem_fragmentation_ratio"), figure("mem_allocator")), (None, None));
    server.shared.allocator = Some("mimalloc");
    assert!(told(&server, "INFO memory").contains("\r\nmem_allocator:mimalloc\r\n"));
}

#[test]
fn databases_are_exchanged_with_the_rest_of_a_transaction_or_script() {
    let mut server = server(&Arc::default());
    let value = "v".repeat(300);
    server.set("notify-keyspace-events", "KE$").unwrap();
    told(&server, &format!("SET k {value}; SELECT 1; SET k one; SET l x"));
    server.shared.max_reply_bytes = 1000;
    let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
    let is_as_before = || {
        let sent = told(&server, "STRLEN k; DBSIZE; SELECT 1; GET k; DBSIZE");
        assert_eq!(sent, ":300\r\n:1\r\n+OK\r\n$3\r\none\r\n:2\r\n");
    };
    let mut waits = server.connect();
    assert!(waits.send(b"BLPOP list 0\r\n").is_empty());
    for failing in [
        "MULTI; SWAPDB 0 1; RPUSH list x; SELECT 1; MGET k k k k; EXEC",
        "EVAL \"redis.call('SWAPDB', 0, 1) redis.call('SELECT', 1) return redis.call('MGET', 'k', 'k', 'k', 'k')\" 0",
    ] {
        let sent = told(&server, failing);
        assert!(sent.ends_with(refusal), "{sent}");
        is_as_before();
    }
    assert!(waits.send(b"").is_empty() && !waits.may_go_on());
    // Later commands of the same transaction or script see the exchange, and a second exchange restores the first
    // state.
    let sent = told(&server, "MULTI; SWAPDB 0 1; GET k; DBSIZE; SELECT 1; DBSIZE; SWAPDB 1 0; DBSIZE; EXEC");
    assert!(sent.ends_with("*7\r\n+OK\r\n$3\r\none\r\n:2\r\n+OK\r\n:1\r\n+OK\r\n:2\r\n"), "{sent}");
    is_as_before();
    let script = "EVAL \"redis.call('SWAPDB', 0, 1) redis.call('SET', 'k', 2) return redis.call('GET', 'k')\" 0";
    assert_eq!(told(&server, script), "$1\r\n2\r\n");
    assert_eq!(told(&server, "GET k; SELECT 1; STRLEN k"), "$1\r\n2\r\n+OK\r\n:300\r\n");
    // An event names the database in which the key was at the time, and a waiting client is served in the database in
    // which the key is now.
    let mut learns = server.connect();
    learns.send(b"PSUBSCRIBE __key*\r\n");
    let mut writes = server.connect();
    let executor = server.executor();
    writes.dialogue.requests.push(b"SELECT 1\r\nMULTI\r\nSET new 1\r\nRPUSH list x\r\nSWAPDB 0 1\r\nEXEC\r\n");
    while writes.dialogue.carry_out(&executor) {}
    let mail = server.mailbox.take();
    let told_of = |channel: &[u8]| {
        let is_of = |message: &&Message| matches!(message, Message::Send { letter, .. } if letter.bytes().windows(channel.len()).any(|found| found == channel));
        mail.iter().filter(is_of).count()
    };
    assert_eq!((told_of(b"__keyspace@1__:new"), told_of(b"__keyspace@0__:new")), (1, 0));
    let id = waits.dialogue.session.client.id;
    let is_served = |message: &Message| matches!(message, Message::Unblock { client, .. } if *client == id);
    assert!(mail.iter().any(is_served));
}

#[test]
fn an_exchange_is_in_doubt_with_its_batch_and_stays() {
    let (disk, clock) = (SimDisk::new(), Arc::new(ManualClock::new()));
    let handle = disk.handle();
    let server = server_on(&handle, &clock, Syncing::Sync);
    told(&server, "SET k zero; SELECT 1; SET k one");
    fill(&handle);
    assert!(told(&server, "SWAPDB 0 1").starts_with(IN_DOUBT));
    assert_eq!(told(&server, "GET k"), "$3\r\none\r\n");
    drop(server);
    let server = server_on(&disk.handle(), &clock, Syncing::Sync);
    let found = told(&server, "GET k; SELECT 1; GET k");
    assert!(
        ["$3\r\none\r\n+OK\r\n$4\r\nzero\r\n", "$4\r\nzero\r\n+OK\r\n$3\r\none\r\n"].contains(&&found[..]),
        "{found}"
    );
    // A write that is refused exchanges nothing.
    let handle = disk.handle();
    drop(server);
    let server = server_on(&handle, &clock, Syncing::Interval(Duration::from_secs(3600)));
    told(&server, "SET other 1");
    fill(&handle);
    told(&server, "SAVE");
    assert!(told(&server, "SWAPDB 0 1").starts_with("-ERR storage is full: "));
    assert_eq!(told(&server, "GET k; SELECT 1; GET k"), found);
}

#[test]
fn what_comes_after_a_client_was_killed_is_not_for_it() {
    let server = server(&Arc::default());
    told(&server, "ACL SETUSER guest on nopass ~* &* +@all");
    let killings: [fn(u64) -> String; 6] = [
        |id| format!("CLIENT KILL ID {id}; RPUSH list x"),
        |_| "CLIENT KILL 127.0.0.1:0; RPUSH list x".to_owned(),
        |_| "CLIENT KILL ADDR 127.0.0.1:0; RPUSH list x".to_owned(),
        |_| "CLIENT KILL TYPE normal USER guest; RPUSH list x".to_owned(),
        |id| format!("MULTI; CLIENT KILL ID {id}; RPUSH list x; EXEC"),
        |_| "ACL DELUSER guest; RPUSH list x".to_owned(),
    ];
    for killing in killings {
        let mut waits = server.connect();
        assert_eq!(waits.send(b"AUTH guest x\r\nBLPOP list 0\r\nSET late 1\r\n"), b"+OK\r\n");
        let requests = killing(waits.dialogue.session.client.id);
        told(&server, &requests);
        assert_eq!(server.shared.waiting.count(), 0, "{requests}");
        assert_eq!(told(&server, "LRANGE list 0 -1; DEL list"), "*1\r\n$1\r\nx\r\n:1\r\n", "{requests}");
        assert_eq!(waits.send(b"SET late 1\r\n"), b"", "{requests}");
        assert!(!waits.may_go_on() && told(&server, "EXISTS late") == ":0\r\n", "{requests}");
    }
}

/// A thread that carries its command out may not have reached the keys yet.
#[test]
fn who_is_killed_while_its_command_is_tried_gets_nothing() {
    let server = server(&Arc::default());
    let mut waits = server.connect();
    waits.send(b"BLPOP list 0\r\n");
    let id = waits.dialogue.session.client.id;
    let waiter = server.shared.waiting.of_client(id).unwrap();
    let claim = waiter.claim().unwrap();
    assert_eq!(told(&server, &format!("CLIENT KILL ID {id}")), ":1\r\n");
    drop(claim);
    assert_eq!(server.shared.waiting.count(), 1);
    assert_eq!(told(&server, "RPUSH list x; LLEN list"), ":1\r\n:1\r\n");
    assert_eq!(server.shared.waiting.count(), 0);
}

#[test]
fn who_kills_itself_is_answered_first() {
    let server = server(&Arc::default());
    for (requests, replies) in [
        ("CLIENT KILL ID {id} SKIPME no; PING", ":1\r\n"),
        ("CLIENT KILL TYPE normal; PING", ":0\r\n+PONG\r\n"),
        ("CLIENT KILL 127.0.0.1:0; PING", "+OK\r\n"),
        (
            "MULTI; SET k 1; CLIENT KILL ID {id} SKIPME no; EXEC; PING",
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n",
        ),
    ] {
        let mut connection = server.connect();
        let id = connection.dialogue.session.client.id.to_string();
        let requests = format!("{requests}\r\n").replace("{id}", &id).replace("; ", "\r\n");
        let sent = connection.send(requests.as_bytes());
        assert_eq!(String::from_utf8(sent).unwrap(), replies, "{requests}");
        assert_eq!(connection.may_go_on(), replies.ends_with("PONG\r\n"), "{requests}");
    }
    assert_eq!(told(&server, "GET k"), "$1\r\n1\r\n");
}

#[test]
fn a_reply_that_is_skipped_is_that_of_the_next_command() {
    let server = server(&Arc::default());
    for (requests, replies) in [
        ("PING; PING", "+PONG"),
        ("NOSUCH; PING", "+PONG"),
        ("MULTI; PING; EXEC", "+QUEUED *1 +PONG"),
        ("DISCARD; WATCH a; UNWATCH", "+OK +OK"),
        ("CLIENT REPLY SKIP; PING; ECHO x", "$1 x"),
        ("CLIENT REPLY ON; PING", "+OK +PONG"),
        ("SUBSCRIBE a; PING", "*3 $9 subscribe $1 a :1 *2 $4 pong $0  "),
        ("CLIENT REPLY OFF; PING; SUBSCRIBE a; PING", "*3 $9 subscribe $1 a :1"),
        ("CLIENT REPLY OFF; UNSUBSCRIBE; PING", "*3 $11 unsubscribe $-1 :0"),
        ("CLIENT REPLY OFF; PING; MULTI; NOSUCH; CLIENT REPLY ON", ""),
    ] {
        let requests = format!("CLIENT REPLY SKIP; {requests}").replace("; ", "\r\n");
        let replies: String = replies.split_terminator(' ').map(|reply| format!("{reply}\r\n")).collect();
        let sent = server.connect().send(format!("{requests}\r\n").as_bytes());
        assert_eq!(String::from_utf8(sent).unwrap(), replies, "{requests}");
    }
}

#[test]
fn the_end_of_a_wait_is_no_array() {
    let server = server(&Arc::default());
    for request in ["BLPOP a 1", "BLMOVE a b LEFT LEFT 1", "BRPOPLPUSH a b 1", "BZPOPMIN a 1"] {
        let mut connection = server.connect();
        assert!(connection.send(format!("{request}\r\n").as_bytes()).is_empty());
        let waiter = connection.dialogue.session.blocked.as_ref().unwrap();
        assert_eq!(waiter.nothing, b"*-1\r\n", "{request}");
    }
    let mut connection = server.connect();
    let replies = connection.send(b"MULTI\r\nBLMOVE a b LEFT LEFT 1\r\nBRPOPLPUSH a b 1\r\nBLPOP a 1\r\nEXEC\r\n");
    assert!(replies.ends_with(b"*3\r\n$-1\r\n$-1\r\n*-1\r\n"));
}

#[test]
fn a_pause_of_writes_holds_what_may_write() {
    let server = server(&Arc::default());
    assert_eq!(server.connect().send(b"CLIENT PAUSE 1000 WRITE\r\n"), b"+OK\r\n");
    for (request, is_held) in [
        ("SET a 1", true),
        ("PFCOUNT a", true),
        ("PUBLISH c m", true),
        ("SPUBLISH c m", true),
        ("EVAL script 0", true),
        ("EVALSHA script 0", true),
        ("FCALL function 0", true),
        ("EVAL_RO script 0", false),
        ("FCALL_RO function 0", false),
        ("GET a", false),
    ] {
        let mut connection = server.connect();
        connection.send(format!("{request}\r\n").as_bytes());
        assert_eq!(connection.dialogue.session.held_until.is_some(), is_held, "{request}");
    }
}

/// No reply shows whether a key is known to be plain.
#[test]
fn plain_keys_behave_as_others_do() {
    let clock = Arc::new(ManualClock::new());
    let server = server(&clock);
    let mut connection = server.connect();
    let mut check = |requests: &str, replies: &str| {
        let requests: String = requests.split(';').map(|request| format!("{}\r\n", request.trim())).collect();
        let expected: String = replies.split(' ').map(|reply| format!("{reply}\r\n")).collect();
        assert_eq!(String::from_utf8(connection.send(requests.as_bytes())).unwrap(), expected, "{requests}");
    };
    check("SET a 1; SET a 2; DBSIZE; GET a; SET a 3 NX; SET a 4 XX; GET a", "+OK +OK :1 $1 2 $-1 +OK $1 4");
    check("SET a 5 GET; DEL a; DEL a; DBSIZE; SET a 6 XX; SETNX a 7; SETNX a 8", "$1 4 :1 :0 :0 $-1 :1 :0");
    // Other kinds of keys come in between, in runs of their own and in the same one.
    check("DEL a; RPUSH a x y", ":1 :2");
    check("SET a 1; LLEN b; DBSIZE; DEL a", "+OK :0 :1 :1");
    check("SET a 1; EXPIRE a 10; SET a 2; TTL a; DBSIZE", "+OK :1 +OK :-1 :1");
    check("SET a 1 PX 5", "+OK");
    clock.advance(Duration::from_millis(10));
    check("SET a 2 NX; TTL a; DBSIZE", "+OK :-1 :1");
    check("MULTI; SET a 1; FLUSHALL; SET b 1; EXEC", "+OK +QUEUED +QUEUED +QUEUED *3 +OK +OK +OK");
    check("SETNX a 1; SETNX b 1; DBSIZE", ":1 :0 :2");
    check("FLUSHALL", "+OK");
    check("SETNX a 1; SETNX b 1; DBSIZE", ":1 :1 :2");
    check("SELECT 1; SET a 1; SWAPDB 0 1; SETNX b 2; DBSIZE; DEL a", "+OK +OK +OK :0 :2 :1");
    check("DEL b; SELECT 0; DEL a; DBSIZE", ":1 +OK :1 :0");
    let left = server.records().scan(&[2], &[255], Direction::Forward).unwrap();
    assert!(!left.valid(), "only records of the server itself are left");
}
