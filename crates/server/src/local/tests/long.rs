//! Commands that take long, and what other clients do meanwhile.

use super::*;
use crate::keyspace::layout;
use crate::keyspace::locks::Reservation;

/// Most steps of a command in these tests.
const STEPS: u64 = 50;

/// A server with collections of more elements than a command may pass.
fn with_collections(max_steps: u64) -> LocalServer {
    let mut server = server(&Arc::default());
    let mut connection = server.connect();
    let mut fill = |command: &str, element: fn(u32) -> String| {
        let elements: String = (0..100).map(|number| format!(" {}", element(number))).collect();
        assert!(!connection.send(format!("{command}{elements}\r\n").as_bytes()).starts_with(b"-"), "{command}");
    };
    fill("RPUSH l", |number| format!("{}", number * 7 % 100));
    fill("SADD s", |number| format!("m{number}"));
    fill("SADD t", |number| format!("m{}", number + 50));
    fill("HSET h", |number| format!("f{number} v{number}"));
    fill("ZADD z", |number| format!("{number} m{number}"));
    fill("ZADD y", |number| format!("{} m{number}", number % 7));
    drop(connection);
    told(&server, "XADD x 1-1 a b; SET plain value");
    for number in 2..=100 {
        told(&server, &format!("XADD x {number}-1 a b"));
    }
    server.shared.max_steps = max_steps;
    server
}

fn is_blocked(connection: &LocalConnection<'_>) -> bool {
    connection.dialogue.session.blocked.is_some()
}

fn is_held(connection: &LocalConnection<'_>) -> bool {
    connection.dialogue.session.held_until.is_some()
}

/// Returns what a connection is sent after other threads have done something for it.
fn later(connection: &mut LocalConnection<'_>) -> String {
    // The mail comes first, and then earlier requests continue.
    let mut sent = connection.send(b"");
    sent.extend(connection.send(b""));
    String::from_utf8(sent).unwrap()
}

/// Reserves a key, as a command that works on it for long does.
fn reserve<'s>(server: &'s LocalServer, key: &str, writes: bool) -> crate::keyspace::locks::Locked<'s> {
    let keys = BTreeSet::from([server.shared.spaces.layout().hash(key.as_bytes())]);
    server.shared.locks.try_reserve(Reservation { keys, writes, reads_others: false }).unwrap()
}

#[test]
fn commands_over_many_elements_are_jobs_and_give_the_same() {
    let (bounded, free) = (with_collections(STEPS), with_collections(u64::MAX));
    let (mut left, mut here) = (bounded.connect(), free.connect());
    for request in [
        "COPY s c",
        "COPY z c REPLACE",
        "COPY x c REPLACE",
        "MOVE c 1",
        "SUNIONSTORE d s t",
        "SINTERSTORE d s t",
        "SDIFFSTORE d s t",
        "ZUNIONSTORE d 2 z y",
        "ZINTERSTORE d 2 z s",
        "ZDIFFSTORE d 2 z t",
        "ZRANGESTORE d z 0 -1",
        "SORT l STORE d",
        "SORT l BY nosort GET # GET z_* STORE d",
        "SORT_RO l BY w_* DESC",
        "SORT s ALPHA LIMIT 0 3",
        "LRANGE l 0 -1",
        "LPOS l 0 RANK -1",
        "LREM l 0 5",
        "SMEMBERS s",
        "SUNION s t",
        "SINTER s t",
        "SDIFF s t",
        "HGETALL h",
        "HKEYS h",
        "HVALS h",
        "HSCAN h 0 COUNT 100",
        "ZRANGE z 0 -1 WITHSCORES",
        "ZRANK z m80",
        "ZCOUNT z 1 90",
        "ZUNION 2 z y WITHSCORES",
        "ZREMRANGEBYSCORE y 1 6",
        "XRANGE x - +",
        "XTRIM x MAXLEN 1",
        "GEOSEARCH z FROMLONLAT 0 0 BYRADIUS 50000 km ASC",
        "DUMP l",
        "LPOP l 60",
        "KEYS m*",
    ] {
        let request = format!("{request}\r\n");
        let expected = here.send(request.as_bytes());
        if request.starts_with("KEYS") {
            (0..60).for_each(|number| _ = told(&bounded, &format!("SET k{number} v")));
        }
        assert_eq!(left.send(request.as_bytes()), b"", "{request}");
        assert!(is_blocked(&left), "{request}");
        assert_eq!(bounded.carry_out_jobs(), 1);
        // Members have another order in each store.
        let sorted = |reply: &[u8]| {
            let mut lines: Vec<Vec<u8>> = reply.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.sort_unstable();
            lines
        };
        let mut reply = left.send(b"");
        reply.extend(left.send(b""));
        assert_eq!(sorted(&reply), sorted(&expected), "{request}");
    }
    // Short ones are not.
    for request in ["LRANGE l 0 5", "ZRANGE z 0 9", "HGET h f1", "SISMEMBER s m1", "ZRANGE z 90 -1 REV LIMIT 0 1"] {
        let request = format!("{request}\r\n");
        assert_eq!(left.send(request.as_bytes()), here.send(request.as_bytes()), "{request}");
    }
}

/// Otherwise it would be one write, which may be much shorter than what memory has room for.
#[test]
fn a_value_of_many_elements_is_restored_by_a_job() {
    let server = with_collections(STEPS);
    for (key, count) in [("l", "LLEN r"), ("s", "SCARD r"), ("h", "HLEN r"), ("z", "ZCARD r"), ("x", "XLEN r")] {
        let mut connection = server.connect();
        assert_eq!(connection.send(format!("DUMP {key}\r\n").as_bytes()), b"", "{key}");
        assert_eq!(server.carry_out_jobs(), 1, "{key}");
        let dumped = connection.send(b"");
        let request = [&b"*5\r\n$7\r\nRESTORE\r\n$1\r\nr\r\n$1\r\n0\r\n"[..], &dumped, b"$7\r\nREPLACE\r\n"].concat();
        assert_eq!(connection.send(&request), b"", "{key}");
        assert!(is_blocked(&connection), "{key}");
        assert_eq!(server.carry_out_jobs(), 1, "{key}");
        assert_eq!((connection.send(b""), told(&server, count)), (b"+OK\r\n".to_vec(), ":100\r\n".to_owned()), "{key}");
    }
}

/// Otherwise each new entry of a stream that is kept short would cost up to 99 others.
#[test]
fn entries_that_a_rough_trim_keeps_are_not_read() {
    let server = with_collections(STEPS);
    let mut connection = server.connect();
    for number in 101..110 {
        let added = connection.send(format!("XADD x MAXLEN ~ 10 {number}-1 a b\r\n").as_bytes());
        assert!(added.starts_with(b"$5\r\n"), "{number}");
    }
    // Now there are a hundred too many.
    assert_eq!(connection.send(b"XADD x MAXLEN ~ 10 110-1 a b\r\n"), b"");
    assert_eq!((server.carry_out_jobs(), later(&mut connection)), (1, "$5\r\n110-1\r\n".to_owned()));
    assert_eq!(told(&server, "XLEN x"), ":10\r\n");
}

#[test]
fn many_words_are_a_job_before_keys_are_read() {
    let server = with_collections(STEPS);
    let mut connection = server.connect();
    let keys: String = (0..60).map(|number| format!(" k{number} v")).collect();
    assert_eq!(connection.send(format!("SET a 1\r\nMSET{keys}\r\nGET k59\r\n").as_bytes()), b"+OK\r\n");
    assert_eq!(server.connect().send(b"EXISTS k0 k59\r\n"), b":0\r\n");
    assert_eq!((server.carry_out_jobs(), later(&mut connection)), (1, "+OK\r\n$1\r\nv\r\n".to_owned()));
}

#[test]
fn a_pipeline_goes_on_after_its_long_command_and_is_shown_once() {
    let server = with_collections(STEPS);
    // It watches itself.
    let mut connection = server.connect();
    assert_eq!(connection.send(b"MONITOR\r\n"), b"+OK\r\n");
    let requests =
        b"SADD a 1\r\nSADD a 2\r\nSMEMBERS s\r\nSCARD s\r\nSISMEMBER s x\r\nCOPY s c\r\nSELECT 0\r\nSCARD c\r\n";
    let mut sent = String::from_utf8(connection.send(requests)).unwrap();
    for _ in 0..2 {
        assert!(is_blocked(&connection), "{sent}");
        assert_eq!(server.carry_out_jobs(), 1);
        sent.push_str(&later(&mut connection));
    }
    let (shown, replies): (Vec<&str>, Vec<&str>) =
        sent.lines().partition(|line| line.starts_with('+') && *line != "+OK");
    let names: Vec<&str> = shown.iter().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(names, ["SADD", "SADD", "SMEMBERS", "SCARD", "SISMEMBER", "COPY", "SELECT", "SCARD"], "{shown:?}");
    assert_eq!((&replies[..3], &replies[203..]), (&[":1", ":1", "*100"][..], &[":100", ":0", ":1", "+OK", ":100"][..]));
}

#[test]
fn a_transaction_over_many_elements_is_one_job() {
    let server = with_collections(STEPS);
    let exec = |connection: &mut LocalConnection<'_>| {
        let sent =
            connection.send(b"SET plain a\r\nMULTI\r\nSET plain b\r\nCOPY s c\r\nSCARD c\r\nEXEC\r\nGET plain\r\n");
        assert!(sent.ends_with(b"+QUEUED\r\n") && is_blocked(connection));
        assert_eq!(server.connect().send(b"GET plain\r\nEXISTS c\r\n"), b"$1\r\na\r\n:0\r\n");
    };
    let mut connection = server.connect();
    exec(&mut connection);
    let replies = "*3\r\n+OK\r\n:1\r\n:100\r\n$1\r\nb\r\n";
    assert_eq!((server.carry_out_jobs(), later(&mut connection)), (1, replies.to_owned()));
    // A watched key changes before the transaction is carried out.
    assert_eq!(connection.send(b"DEL c\r\nWATCH h\r\n"), b":1\r\n+OK\r\n");
    exec(&mut connection);
    assert_eq!(server.connect().send(b"HSET h f1 other\r\n"), b":0\r\n");
    assert_eq!((server.carry_out_jobs(), later(&mut connection)), (1, "*-1\r\n$1\r\na\r\n".to_owned()));
    assert!(server.shared.watches.is_empty());
    // A script is busy.
    assert_eq!(connection.send(b"WATCH h\r\n"), b"+OK\r\n");
    exec(&mut connection);
    let clock = Arc::new(ManualClock::new());
    let begun = server.shared.scripts.progress.begin(busy_script(&clock));
    server.executor().turn_jobs_away();
    drop(begun);
    assert!(later(&mut connection).starts_with("-EXECABORT Transaction discarded because of: BUSY"));
    assert!(server.shared.watches.is_empty());
    // Commands that change the connection are carried out in its own thread.
    let sent = connection.send(b"MULTI\r\nSELECT 1\r\nSELECT 0\r\nSMEMBERS s\r\nEXEC\r\n");
    assert!(String::from_utf8(sent).unwrap().contains("*3\r\n+OK\r\n+OK\r\n*100\r\n"));
}

/// The part that was done before the transaction was found to be long has changed nothing, and nobody was told.
#[test]
fn a_transaction_that_empties_databases_does_not_break_its_own_marks() {
    let server = with_collections(STEPS);
    for empties in ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1"] {
        told(&server, "SET plain value");
        let (mut connection, mut other) = (server.connect(), server.connect());
        assert_eq!(other.send(b"WATCH plain\r\n"), b"+OK\r\n");
        let add = |from: u32| {
            let members: String = (from..from + 40).map(|number| format!(" n{number}")).collect();
            format!("SADD n{members}\r\n")
        };
        let long = format!("{}{}SMEMBERS n\r\n", add(0), add(40));
        connection.send(format!("WATCH plain s\r\nMULTI\r\n{empties}\r\n{long}EXEC\r\n").as_bytes());
        assert!(is_blocked(&connection), "{empties}");
        assert_eq!(server.carry_out_jobs(), 1, "{empties}");
        let replies = later(&mut connection);
        assert!(replies.starts_with("*4\r\n+OK\r\n:40\r\n:40\r\n*80\r\n"), "{empties}: {replies}");
        // Other clients that watch removed keys are told.
        let ended = other.send(b"MULTI\r\nPING\r\nEXEC\r\n");
        assert!(ended.ends_with(b"*-1\r\n"), "{empties}: {}", String::from_utf8_lossy(&ended));
    }
}

#[test]
fn a_message_before_a_long_command_is_sent_once() {
    let server = with_collections(STEPS);
    let mut listens = server.connect();
    listens.send(b"SUBSCRIBE news\r\n");
    for requests in
        ["SET plain a\r\nPUBLISH news one\r\nSUNION s t\r\n", "MULTI\r\nPUBLISH news one\r\nSUNION s t\r\nEXEC\r\n"]
    {
        let mut connection = server.connect();
        let executor = server.executor();
        connection.dialogue.requests.push(requests.as_bytes());
        while connection.may_go_on() && connection.dialogue.carry_out(&executor) {}
        let mut mail = server.mailbox.take();
        server.carry_out_jobs();
        mail.extend(server.mailbox.take());
        let is_news =
            |message: &Message| matches!(message, Message::Send { letter, .. } if letter.bytes().ends_with(b"one\r\n"));
        assert_eq!(mail.iter().filter(|message| is_news(message)).count(), 1, "{requests}");
    }
}

#[test]
fn others_go_on_unless_they_need_reserved_keys() {
    let server = with_collections(STEPS);
    for (request, reply) in [
        ("GET plain\r\nSET plain x\r\nLLEN l\r\nSCARD s\r\n", ":100\r\n"),
        ("SCARD s\r\nGET plain\r\n", ":100\r\n$1\r\nx\r\n"),
        ("WATCH s\r\n", "+OK\r\n"),
        ("MULTI\r\nSCARD s\r\nEXEC\r\n", "*1\r\n:100\r\n"),
        ("SORT l BY w_* LIMIT 0 0\r\n", "*0\r\n"),
        ("SWAPDB 1 2\r\n", "+OK\r\n"),
    ] {
        let reserved = reserve(&server, "s", true);
        assert!(told(&server, "GET plain; SET other x; LLEN l; DBSIZE").ends_with("+OK\r\n:100\r\n:9\r\n"));
        let mut connection = server.connect();
        let sent = String::from_utf8(connection.send(request.as_bytes())).unwrap();
        assert!(
            !sent.contains(reply) && is_held(&connection) && later(&mut connection).is_empty(),
            "{request}: {sent}"
        );
        drop(reserved);
        server.shared.scripts.release();
        let mut sent = later(&mut connection);
        server.carry_out_jobs();
        sent.push_str(&later(&mut connection));
        assert!(sent.ends_with(reply), "{request}: {sent}");
    }
}

/// Jobs may come without end, one after the other.
#[test]
fn who_is_held_twice_comes_in_its_turn() {
    let server = with_collections(STEPS);
    for (request, reply) in [
        ("SCARD s\r\n", ":100\r\n"),
        ("MULTI\r\nSCARD s\r\nEXEC\r\n", "*1\r\n:100\r\n"),
        ("SWAPDB 1 2\r\n", "+OK\r\n"),
        ("FLUSHALL\r\n", "+OK\r\n"),
    ] {
        let mut connection = server.connect();
        let reserved = reserve(&server, "s", true);
        connection.send(request.as_bytes());
        assert!(is_held(&connection), "{request}");
        drop(reserved);
        server.shared.scripts.release();
        let reserved = reserve(&server, "s", true);
        assert_eq!((later(&mut connection), is_blocked(&connection)), (String::new(), true), "{request}");
        assert!(connection.dialogue.session.client.line(0).contains(" multi=-1 "), "{request}");
        drop(reserved);
        assert_eq!((server.carry_out_jobs(), later(&mut connection)), (1, reply.to_owned()));
        assert!(!connection.dialogue.session.was_held);
    }
}

#[test]
fn nothing_is_carried_out_for_who_was_ended_before() {
    let server = with_collections(STEPS);
    for request in ["COPY s c\r\n", "WATCH h\r\nMULTI\r\nCOPY s c\r\nEXEC\r\n"] {
        let mut connection = server.connect();
        connection.send(request.as_bytes());
        assert!(is_blocked(&connection), "{request}");
        connection.dialogue.session.client.kill();
        assert_eq!((server.carry_out_jobs(), told(&server, "EXISTS c")), (1, ":0\r\n".to_owned()));
        assert!(server.shared.watches.is_empty());
    }
}

#[test]
fn who_only_reads_keeps_readers_from_nothing() {
    let server = with_collections(STEPS);
    let _reserved = reserve(&server, "s", false);
    assert_eq!(told(&server, "SCARD s"), ":100\r\n");
    let mut connection = server.connect();
    assert_eq!((connection.send(b"SADD s x\r\n"), is_held(&connection)), (vec![], true));
}

#[test]
fn a_reserved_key_that_has_expired_keeps_no_other_from_being_removed() {
    let clock = Arc::new(ManualClock::new());
    let server = server(&clock);
    assert_eq!(told(&server, "SET reserved 1 PX 1"), "+OK\r\n");
    (0..300).for_each(|key| assert_eq!(told(&server, &format!("SET expires{key} 1 PX 10")), "+OK\r\n"));
    clock.advance(Duration::from_millis(20));
    let keys = || told(&server, "INFO keyspace");
    for writes in [false, true] {
        let reserved = reserve(&server, "reserved", writes);
        server.sweep().unwrap();
        assert!(keys().contains("keys=1,expires=1"), "{}", keys());
        drop(reserved);
    }
    server.sweep().unwrap();
    assert!(!keys().contains("expires="), "{}", keys());
}

/// Each sweep begins where the one before has ended.
#[test]
fn what_a_sweep_has_removed_is_not_passed_again() {
    let clock = Arc::new(ManualClock::new());
    let mut server = server(&clock);
    let begins = |server: &LocalServer| server.shared.spaces.swept().begin(0);
    let advance = || {
        clock.advance(Duration::from_millis(20));
        layout::expiries_before(0, clock.wall_ms()).1
    };
    (0..600).for_each(|key| assert_eq!(told(&server, &format!("SET expires{key} 1 PX 10")), "+OK\r\n"));
    told(&server, "SET reserved 1 PX 5; SET k 1 PX 1000000");
    let (expires_ms, now) = (clock.wall_ms() + 5, advance());
    let reserved = reserve(&server, "reserved", true);
    server.sweep().unwrap();
    assert_eq!(begins(&server), layout::expiry(0, expires_ms, b"reserved"));
    drop(reserved);
    server.sweep().unwrap();
    assert_eq!(begins(&server), now);
    // A time that has passed.
    assert_eq!(told(&server, "SET old 1 PXAT 5; SET other 1 PXAT 6"), "+OK\r\n+OK\r\n");
    assert_eq!(begins(&server), layout::expiry(0, 5, b"old"));
    server.sweep().unwrap();
    assert_eq!((begins(&server), told(&server, "DBSIZE")), (now, ":1\r\n".to_owned()));
    // What is not written does not count.
    let now = advance();
    server.sweep().unwrap();
    let most = std::mem::replace(&mut server.shared.max_written_bytes, 1000);
    let refused = told(&server, &format!("MULTI; SET old 1 PXAT 5; SET long {}; EXEC", "v".repeat(2000)));
    assert!(refused.contains("QUEUED\r\n-ERR"), "{refused}");
    server.shared.max_written_bytes = most;
    assert_eq!(begins(&server), now);
    // A run that is written after a sweep that began later.
    let mut keys = server.shared.transaction(clock.wall_ms());
    keys.set_string(0, b"late", b"1", Some(clock.wall_ms() + 1)).unwrap();
    let now = advance();
    server.sweep().unwrap();
    assert_eq!(begins(&server), now);
    assert_eq!(keys.commit(), Ok(None));
    drop(keys);
    server.sweep().unwrap();
    assert_eq!((begins(&server), told(&server, "DBSIZE")), (now, ":1\r\n".to_owned()));
}

#[test]
fn nobody_is_held_when_the_job_has_ended() {
    let server = with_collections(STEPS);
    let client = Arc::clone(&server.connect().dialogue.session.client);
    let Shared { scripts, locks, .. } = &server.shared;
    assert!(!scripts.hold(&client, locks));
    let reserved = reserve(&server, "s", true);
    assert!(scripts.hold(&client, locks) && scripts.miss(locks));
    drop(reserved);
    assert!(!scripts.hold(&client, locks) && !scripts.miss(locks));
}

#[test]
fn who_waits_for_a_reserved_key_is_served_when_the_job_is_done() {
    let server = with_collections(STEPS);
    let mut waiting = server.connect();
    assert_eq!(waiting.send(b"BLMOVE a s2 LEFT LEFT 0\r\n"), b"");
    let reserved = reserve(&server, "s2", true);
    assert_eq!(told(&server, "RPUSH a x"), ":1\r\n");
    assert_eq!(later(&mut waiting), "");
    drop(reserved);
    let mut connection = server.connect();
    connection.send(b"SMEMBERS s\r\n");
    assert_eq!((server.carry_out_jobs(), later(&mut waiting)), (1, "$1\r\nx\r\n".to_owned()));
}

/// The commands before a long one are carried out twice, and so are those of a transaction.
#[test]
fn what_is_carried_out_again_is_counted_once() {
    let mut server = with_collections(STEPS);
    let counted = |server: &LocalServer, lines: &[&str]| {
        let info = told(server, "INFO everything");
        for line in lines {
            assert!(info.lines().any(|found| found.starts_with(line)), "{line} is not in {info}");
        }
        server.shared.counts.reset();
    };
    let once = ["cmdstat_set:calls=1,", "cmdstat_lpush:calls=1,", "cmdstat_smembers:calls=1,", "keyspace_hits:1"];
    let error = "errorstat_WRONGTYPE:count=1";
    for requests in [
        "SET plain x\r\nGET plain\r\nLPUSH plain x\r\nSMEMBERS s\r\n",
        "MULTI\r\nSET plain x\r\nGET plain\r\nLPUSH plain x\r\nSMEMBERS s\r\nEXEC\r\n",
    ] {
        server.shared.counts.reset();
        let mut connection = server.connect();
        connection.send(requests.as_bytes());
        assert!(is_blocked(&connection), "{requests}");
        assert_eq!(server.carry_out_jobs(), 1);
        assert!(later(&mut connection).contains("*100\r\n"));
        counted(&server, &[&once[..], &[error]].concat());
    }
    // A run that is too large for one batch. A transaction sees what is counted of itself.
    server.shared.max_written_bytes = 10_000;
    let value = "x".repeat(6_000);
    assert_eq!(told(&server, &format!("SET a {value}; LPUSH a x; SET b {value}")).matches("+OK").count(), 2);
    counted(&server, &["cmdstat_set:calls=2,", "cmdstat_lpush:calls=1,", error]);
    let sent = told(&server, "MULTI; LPUSH a x; GET a; INFO everything; EXEC");
    for line in ["cmdstat_lpush:calls=1,", "keyspace_hits:1\r\n", error] {
        assert!(sent.contains(line), "{line} is not in {sent}");
    }
}

/// A command after a long one is planned twice, and so is one after a run that is too large. A long transaction is
/// carried out twice.
#[test]
fn what_is_denied_is_remembered_and_counted_once() {
    let mut server = with_collections(STEPS);
    let check = |server: &LocalServer, requests: &str| {
        let denied = told(server, "ACL LOG");
        assert!(denied.starts_with("*1\r\n") && denied.contains("\r\ncount\r\n:1\r\n"), "{requests}: {denied}");
        assert!(told(server, "INFO errorstats").contains("errorstat_NOPERM:count=1\r\n"), "{requests}");
        told(server, "ACL LOG RESET; ACL SETUSER u +del");
        server.shared.counts.reset();
    };
    told(&server, "ACL SETUSER u on nopass ~* &* +@all");
    for requests in [
        "SET plain x\r\nSMEMBERS s\r\nDEL a\r\n",
        "MULTI\r\nDEL a\r\nSMEMBERS s\r\nEXEC\r\n",
        "MULTI\r\nDEL a\r\nSMEMBERS s\r\nCLIENT GETNAME\r\nEXEC\r\n",
    ] {
        let mut connection = server.connect();
        assert_eq!(connection.send(b"AUTH u x\r\n"), b"+OK\r\n");
        // The right is taken away when the commands are queued.
        let (before, after) = requests.split_once("EXEC").unwrap_or(("", requests));
        connection.send(before.as_bytes());
        told(&server, "ACL SETUSER u -del");
        let after = if before.is_empty() { after.to_owned() } else { format!("EXEC{after}") };
        let mut sent = String::from_utf8(connection.send(after.as_bytes())).unwrap();
        while server.carry_out_jobs() > 0 {
            sent.push_str(&later(&mut connection));
        }
        assert!(sent.contains("*100\r\n") && sent.contains("-NOPERM"), "{requests}: {sent}");
        check(&server, requests);
    }
    // The first write leaves no room for the second one.
    server.shared.max_written_bytes = 10_000;
    told(&server, "ACL SETUSER u -del");
    let value = "x".repeat(6_000);
    let sent = told(&server, &format!("AUTH u x; SET a {value}; SET b {value}; DEL a"));
    assert!(sent.starts_with("+OK\r\n+OK\r\n+OK\r\n-NOPERM"), "{sent}");
    check(&server, "a run that is too large");
}

/// Otherwise a client would hold what the job has read, and not learn of changes.
#[test]
fn a_choice_of_keys_to_hold_lasts_until_the_job_is_done() {
    let server = with_collections(STEPS);
    let mut connection = server.connect();
    connection.send(b"CLIENT TRACKING ON OPTIN\r\nCLIENT CACHING YES\r\nSMEMBERS s\r\n");
    assert!(is_blocked(&connection));
    let held = || server.shared.tracking.totals().keys;
    assert_eq!((held(), server.connect().send(b"SADD s other\r\n"), held()), (1, b":1\r\n".to_vec(), 0));
    assert_eq!((server.carry_out_jobs(), held()), (1, 1));
}

#[test]
fn libraries_that_a_long_transaction_deletes_are_gone() {
    let server = with_collections(STEPS);
    let loads = "FUNCTION LOAD \"#!lua name=one\\nredis.register_function('one', function() return 1 end)\"";
    for deletes in ["FUNCTION DELETE one", "FUNCTION FLUSH"] {
        assert_eq!(told(&server, loads), "$3\r\none\r\n");
        let mut connection = server.connect();
        connection.send(format!("MULTI\r\n{deletes}\r\nSMEMBERS s\r\nEXEC\r\n").as_bytes());
        assert!(is_blocked(&connection), "{deletes}");
        assert_eq!(server.carry_out_jobs(), 1);
        let replies = later(&mut connection);
        assert!(replies.starts_with("*2\r\n+OK\r\n*100\r\n"), "{deletes}: {replies}");
        // They are gone from the store, too.
        server.shared.scripts.doubt();
        assert_eq!(told(&server, "FUNCTION LIST"), "*0\r\n", "{deletes}");
    }
}

/// A library keeps what its variables hold.
#[test]
fn a_long_command_has_no_library_loaded_again() {
    let server = with_collections(STEPS);
    let function = "local n = 0 redis.register_function('count', function() n = n + 1 return n end)";
    assert_eq!(told(&server, &format!("FUNCTION LOAD \"#!lua name=one\\n{function}\"")), "$3\r\none\r\n");
    assert_eq!(told(&server, "FCALL count 0"), ":1\r\n");
    let mut connection = server.connect();
    connection.send(b"SMEMBERS s\r\n");
    assert!(is_blocked(&connection));
    assert_eq!(server.carry_out_jobs(), 1);
    assert_eq!(told(&server, "FCALL count 0"), ":2\r\n");
}
