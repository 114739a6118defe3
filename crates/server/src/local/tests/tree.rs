//! A server on a shared tree.

use super::*;
use crate::records::testing::on_tree;
use crate::records::tree::TreeRecords;

fn server_on_tree(memory_bytes: u64, clock: &Arc<ManualClock>) -> LocalServer {
    LocalServer::new(on_tree(memory_bytes), Arc::clone(clock) as _, &[]).unwrap()
}

fn tree(server: &LocalServer) -> &TreeRecords {
    server.records().tree().unwrap()
}

/// Requests of all types, one connection each.
const REQUESTS: &[&str] = &[
    "SET a 1; GET a; APPEND a 23; STRLEN a; INCR a; SETRANGE a 5 x; GETRANGE a 0 -1; GETDEL a; GET a",
    "MSET b 1 c 2 d 3; MGET b c d e; MSETNX e 1 b 2; DEL b c nosuch; EXISTS b c d; DBSIZE",
    "HSET h f 1 g 2; HGETALL h; HINCRBY h f 5; HDEL h g; HLEN h; HSCAN h 0; OBJECT ENCODING h",
    "RPUSH l a b c; LPUSH l z; LRANGE l 0 -1; LINSERT l BEFORE b y; LPOP l 2; LLEN l; LMOVE l m LEFT RIGHT; LRANGE m 0 -1",
    "SADD s a b c; SREM s b; SISMEMBER s a; SCARD s; SADD t c d; SINTER s t; SDIFFSTORE u s t; SMEMBERS u",
    "ZADD z 1 a 2 b 3 c; ZRANGE z 0 -1 WITHSCORES; ZREVRANGE z 0 0; ZINCRBY z 5 a; ZRANK z a; ZPOPMIN z; ZCARD z; ZSCORE z a",
    "XADD x 1-1 f v; XADD x 2-1 g w; XRANGE x - +; XREVRANGE x + -; XGROUP CREATE x g 0; XREADGROUP GROUP g c STREAMS x >; XACK x g 1-1; XLEN x",
    "SETBIT bits 7 1; BITCOUNT bits; BITFIELD bits INCRBY u8 0 5; PFADD hll a b c; PFCOUNT hll; GEOADD geo 13 38 p; GEOPOS geo q",
    "MULTI; SET t1 1; RPUSH t2 a b; INCR t1; EXEC; GET t1; LRANGE t2 0 -1",
    "EVAL \"redis.call('SET',KEYS[1],ARGV[1]);return{redis.call('GET',KEYS[1]),redis.call('HSET','sh','f','1')}\" 1 sk v",
    "COPY z z2; RENAME z z3; TYPE z3; EXISTS z; ZRANGE z2 0 -1; TOUCH z2 z3; SORT l ALPHA",
    "SET ex 1 PX 10; PTTL nosuch; EXPIRE l 100; TTL l; PERSIST l; TTL l",
    "SELECT 1; SET other 1; SWAPDB 0 1; DBSIZE; SELECT 0; GET other; SWAPDB 0 1; MOVE a 2; FLUSHDB; DBSIZE",
    "KEYS *hll*; RANDOMKEY x; SCAN 0 COUNT 1000 MATCH hll; DUMP nosuch; WAIT 0 0; OBJECT HELP",
    "SINTERSTORE s s nosuch; EXISTS s; DEL h l m t u z2 z3 x bits hll geo; DBSIZE",
    "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f',function()return redis.call('INCR','fn')end)\"; FCALL f 0; FCALL f 0",
];

fn sorted(replies: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = replies.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn both_engines_answer_alike() {
    let clock = Arc::new(ManualClock::new());
    let servers = [server(&clock), server_on_tree(64 << 20, &clock)];
    for requests in REQUESTS {
        // Fields and members come in the order of hashes with another seed.
        let [lsm, tree] = servers.each_ref().map(|server| told(server, requests));
        assert_eq!(sorted(&lsm), sorted(&tree), "{requests}");
    }
    clock.advance(Duration::from_millis(20));
    servers.iter().for_each(|server| server.sweep().unwrap());
    for requests in ["DBSIZE; GET ex; FLUSHALL; DBSIZE", "FUNCTION FLUSH; DBSIZE"] {
        let [lsm, tree] = servers.each_ref().map(|server| told(server, requests));
        assert_eq!(lsm, tree, "{requests}");
    }
    let left = servers[1].records().scan(&[2], &[255], Direction::Forward).unwrap();
    assert!(!left.valid(), "only records of the server itself are left");
}

/// Collections that need pages, ranges of deletion and batches of a megabyte.
#[test]
fn large_collections_are_walked_and_removed() {
    let server = server_on_tree(256 << 20, &Arc::default());
    for from in (0..5_000).step_by(250) {
        let pairs: String = (from..from + 250).map(|field| format!(" field{field} {:0100}", field)).collect();
        assert_eq!(told(&server, &format!("HSET hash{pairs}")), ":250\r\n");
    }
    assert_eq!(told(&server, "HLEN hash; HGET hash field4321"), format!(":5000\r\n$100\r\n{:0100}\r\n", 4321));
    assert!(told(&server, "HGETALL hash").starts_with("*10000\r\n"));
    assert_eq!(told(&server, "COPY hash copy; HLEN copy; DBSIZE"), ":1\r\n:5000\r\n:2\r\n");
    let (mut cursor, mut seen) = ("0".to_owned(), 0);
    loop {
        let reply = told(&server, &format!("HSCAN hash {cursor} COUNT 700"));
        let lines: Vec<&str> = reply.lines().collect();
        cursor = lines[2].to_owned();
        seen += lines[3][1..].parse::<u32>().unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, 10_000);
    assert_eq!(told(&server, "DEL hash copy; DBSIZE"), ":2\r\n:0\r\n");
    assert!(tree(&server).figures().journals > 20);
    let left = server.records().scan(&[2], &[255], Direction::Forward).unwrap();
    assert!(!left.valid());
}

/// The tree removes each element by itself, which counts as a lookup.
#[test]
fn what_removes_many_elements_is_a_job() {
    const STEPS: u64 = 360;
    const ELEMENTS: u32 = 100;
    let mut server = server_on_tree(64 << 20, &Arc::default());
    server.shared.max_steps = STEPS;
    let all = |element: fn(u32) -> String| (1..=ELEMENTS).map(element).collect::<String>();
    let members = all(|number| format!(" m{number}"));
    let pairs = all(|number| format!(" {number} m{number}"));
    let stream = all(|number| format!("XADD k {number}-1 f v; ")) + "XLEN k";
    let group = format!("{stream}; XGROUP CREATE k g 0; XREADGROUP GROUP g c STREAMS k >");
    for (fill, request, reply) in [
        (format!("SADD k{members}"), "DEL k", ":1\r\n"),
        (format!("HSET k{pairs}"), "UNLINK other k", ":1\r\n"),
        (format!("ZADD k{pairs}"), "SET k x", "+OK\r\n"),
        (format!("RPUSH k{members}"), "RENAME plain k", "+OK\r\n"),
        (format!("RPUSH k{members}"), "LTRIM k 95 99", "+OK\r\n"),
        (stream.clone(), "DEL k", ":1\r\n"),
        (stream, "XTRIM k MAXLEN 5", ":95\r\n"),
        (group.clone(), "XGROUP DELCONSUMER k g c", ":100\r\n"),
        (group, "XGROUP DESTROY k g", ":1\r\n"),
    ] {
        assert!(!told(&server, &format!("DEL k; SET plain x; {fill}")).contains("-ERR"), "{fill}");
        let mut connection = server.connect();
        assert_eq!(connection.send(format!("{request}\r\n").as_bytes()), b"", "{request}");
        assert!(connection.dialogue.session.blocked.is_some(), "{request}");
        assert_eq!(server.connect().send(b"GET plain\r\n"), b"$1\r\nx\r\n", "{request}");
        assert_eq!(server.carry_out_jobs(), 1, "{request}");
        assert_eq!(connection.send(b""), reply.as_bytes(), "{request}");
    }
    told(&server, "DEL k plain");
    let left = server.records().scan(&[2], &[255], Direction::Forward).unwrap();
    assert!(!left.valid());
    // Few elements are removed at once.
    told(&server, "SADD k a b c");
    assert_eq!(server.connect().send(b"DEL k\r\n"), b":1\r\n");
}

#[test]
fn what_lies_in_memory_alone_says_so() {
    let server = server_on_tree(64 << 20, &Arc::default());
    told(&server, "SET a 1");
    for (request, says) in [
        ("SAVE", "-ERR storage: the shared tree lies in memory alone"),
        ("BGSAVE", "-ERR storage: the shared tree lies in memory alone"),
        ("WAITAOF 1 0 0", "-ERR WAITAOF cannot be used when numlocal is set"),
        ("FOREBAY.CHECKPOINT CREATE monday", "-ERR checkpoints lie in storage"),
        ("FOREBAY.CHECKPOINT LIST", "-ERR checkpoints lie in storage"),
        ("BGREWRITEAOF", "-ERR there is no append only file"),
    ] {
        let said = told(&server, request);
        assert!(said.starts_with(says), "{request}: {said}");
    }
    assert_eq!(told(&server, "WAITAOF 0 0 0"), "*2\r\n:0\r\n:0\r\n");
    let info = told(&server, "INFO everything");
    for line in
        ["forebay_engine:tree", "aof_enabled:0", "rdb_saves:0", "rdb_last_bgsave_time_sec:-1", "db0:keys=1,expires=0"]
    {
        assert!(info.contains(line), "{line}: {info}");
    }
    let figure = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap().parse().unwrap()
    };
    assert!(figure("used_memory") > 0 && figure("used_memory_dataset") <= figure("used_memory"));
    assert!(told(&server, "MEMORY DOCTOR").contains("Nothing is wrong"));
    for request in ["MEMORY STATS", "MEMORY USAGE a", "LASTSAVE", "CONFIG GET *", "DEBUG SLEEP 0", "LATENCY DOCTOR"] {
        assert!(!told(&server, request).is_empty(), "{request}");
    }
}

#[test]
fn what_is_too_long_for_the_tree_names_the_limit() {
    let server = server_on_tree(64 << 20, &Arc::default());
    let long = "k".repeat(4033);
    let key = "-ERR the key is too long: at most 4032 bytes\r\n";
    let element = "-ERR a field or member is too long: at most 4032 bytes\r\n";
    for (request, says) in [
        (format!("SET {long} 1"), key),
        (format!("RPUSH {long} 1"), key),
        (format!("MSET {long} 1 a 1"), key),
        (format!("HSET h {long} 1"), element),
        (format!("SADD s a {long}"), element),
        (format!("ZADD z 1 {long}"), element),
        (format!("GET {long}"), "$-1\r\n"),
        (format!("HGET h {long}"), "$-1\r\n"),
        (format!("DEL {long}"), ":0\r\n"),
    ] {
        assert_eq!(told(&server, &request), says);
    }
    assert_eq!(told(&server, "DBSIZE"), ":0\r\n");
    let fits = "k".repeat(4032);
    assert_eq!(
        told(&server, &format!("SET {fits} 1; SADD s {fits}; ZADD z 1 {fits}; EXPIRE {fits} 9; DBSIZE")),
        "+OK\r\n:1\r\n:1\r\n:1\r\n:3\r\n"
    );
}

/// A command may come to a key that is too long after it has written.
#[test]
fn what_is_too_long_changes_nothing() {
    let server = server_on_tree(64 << 20, &Arc::default());
    let long = "k".repeat(4033);
    let key = "-ERR the key is too long: at most 4032 bytes\r\n";
    told(&server, "SET a 1; RPUSH l x y; SADD s x y; HSET h f v");
    let read = || told(&server, "GET a; LRANGE l 0 -1; SMISMEMBER s x y; HGET h f; DBSIZE");
    let (before, records) = (read(), server.records().count());
    for request in [
        format!("RENAME a {long}"),
        format!("RENAMENX l {long}"),
        format!("MSET a 2 {long} 1"),
        format!("LMOVE l {long} LEFT LEFT"),
        format!("SMOVE s {long} x"),
        format!("COPY h {long}"),
        format!("SUNIONSTORE {long} s"),
        format!("SORT l ALPHA STORE {long}"),
        format!("RPUSH {long} x"),
        format!("EVAL \"redis.call('SET', 'a', 2) redis.pcall('RENAME', 'a', KEYS[1])\" 1 {long}"),
    ] {
        assert_eq!(told(&server, &request), key, "{request}");
        assert_eq!((read(), server.records().count()), (before.clone(), records), "{request}");
    }
    let (mut waits, mut pushes) = (server.connect(), server.connect());
    assert!(waits.send(format!("BLMOVE none {long} LEFT LEFT 0\r\n").as_bytes()).is_empty());
    pushes.dialogue.requests.push(b"RPUSH none x\r\n");
    pushes.dialogue.carry_out(&server.executor());
    assert_eq!(waits.send(b""), key.as_bytes());
    assert_eq!(told(&server, "LRANGE none 0 -1; DEL none"), "*1\r\n$1\r\nx\r\n:1\r\n");
    // The other commands of a pipeline count, and those of a transaction do not.
    assert_eq!(
        told(&server, &format!("INCR a; RENAME a {long}; DECR a; MULTI; INCR a; RENAME a {long}; EXEC")),
        format!(":2\r\n{key}:1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n{key}")
    );
    // What another server can hold need not fit here.
    let other = super::server(&Arc::default());
    told(&other, &format!("HSET h {long} v"));
    let dumped = other.connect().send(b"DUMP h\r\n");
    let request = [&b"*5\r\n$7\r\nRESTORE\r\n$1\r\na\r\n$1\r\n0\r\n"[..], &dumped, b"$7\r\nREPLACE\r\n"].concat();
    let element = b"-ERR a field or member is too long: at most 4032 bytes\r\n";
    assert_eq!(server.connect().send(&request), element);
    assert_eq!((read(), server.records().count()), (before, records));
}

/// A full memory node refuses whole commands that need room; commands that remove keys make room again.
#[test]
fn a_full_node_refuses_whole_commands_and_recovers() {
    let server = server_on_tree(16 << 20, &Arc::default());
    let value = "v".repeat(900);
    let mut done = 0;
    loop {
        let fields: String = (0..20).map(|field| format!(" {field} {value}")).collect();
        let said = told(&server, &format!("HSET hash{done}{fields}"));
        if said != ":20\r\n" {
            assert_eq!(said, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
            break;
        }
        done += 1;
    }
    assert!(done > 10);
    for hash in 0..=done {
        let expected = if hash < done { ":20\r\n" } else { ":0\r\n" };
        assert_eq!(told(&server, &format!("HLEN hash{hash}")), expected);
        let fields = if hash < done { "*40\r\n" } else { "*0\r\n" };
        assert!(told(&server, &format!("HGETALL hash{hash}")).starts_with(fields), "{hash}");
    }
    for hash in 0..done / 2 {
        assert_eq!(told(&server, &format!("DEL hash{hash}")), ":1\r\n");
    }
    assert_eq!(told(&server, "HSET again f v; DBSIZE"), format!(":1\r\n:{}\r\n", done - done / 2 + 1));
}

/// Keys of other programs are neither hidden nor changed.
#[test]
fn a_tree_of_others_is_refused() {
    let records = on_tree(64 << 20);
    records.put(b"\x02key", b"value").unwrap();
    let refused = LocalServer::new(records, Arc::new(ManualClock::new()), &[]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("forebay serve has not written"), "{refused}");
}
