//! Which clients wait, and which are served.

use super::*;

/// A server's own clock. The server asks it for the date once for each change of keys, and the clock counts that.
#[derive(Debug, Default)]
struct CountingClock(ManualClock, AtomicU64);

impl CountingClock {
    fn take_count(&self) -> u64 {
        self.1.swap(0, Ordering::Relaxed)
    }
}

impl Clock for CountingClock {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wall_ms(&self) -> u64 {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.wall_ms()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

/// Connections that wait in this command, the oldest first.
fn waiters<'s>(server: &'s LocalServer, request: &str, count: usize) -> Vec<LocalConnection<'s>> {
    let wait = || {
        let mut connection = server.connect();
        assert_eq!(connection.send(format!("{request}\r\n").as_bytes()), b"", "{request}");
        connection
    };
    (0..count).map(|_| wait()).collect()
}

/// Returns which of these connections wait.
fn wait(server: &LocalServer, connections: &[LocalConnection<'_>]) -> Vec<bool> {
    let id = |connection: &LocalConnection<'_>| connection.dialogue.session.client.id;
    connections.iter().map(|connection| server.shared.waiting.of_client(id(connection)).is_some()).collect()
}

#[test]
fn who_cannot_find_anything_is_not_tried() {
    let counting = Arc::new(CountingClock::default());
    let options = Options { background_threads: 0, ..Options::default() };
    let store = Store::embedded(64 << 20, options).unwrap();
    let server = LocalServer::new(store, Arc::clone(&counting) as _, &[]).unwrap();
    let mut writes = server.connect();
    let older = waiters(&server, "BZPOPMIN k other 0", 1000);
    let lists = waiters(&server, "BLPOP k k 0", 1000);
    let others = waiters(&server, "XREAD BLOCK 0 STREAMS k 0", 2);
    let mut tried = |requests: &[u8]| {
        counting.take_count();
        writes.send(requests);
        counting.take_count()
    };
    // The oldest gets the element, and one of each type is tried before and after that.
    assert!(tried(b"RPUSH k a\r\n") < 20);
    assert!(tried(b"RPUSH k b c\r\n") < 30);
    assert_eq!(wait(&server, &lists), [vec![false; 3], vec![true; 997]].concat());
    assert!(tried(b"SET k x\r\nDEL k\r\n") < 20);
    assert!(tried(b"MULTI\r\nRPUSH k a\r\nDEL k\r\nEXEC\r\n") < 20);
    assert!(tried(b"ZADD k 1 m\r\n") < 20);
    assert_eq!(wait(&server, &older), [vec![false; 1], vec![true; 999]].concat());
    // All of these get what is there.
    assert!(tried(b"XADD k 1-1 f v\r\n") < 20);
    assert_eq!(wait(&server, &others), [false; 2]);
    tried(b"DEL k\r\n");
    assert_eq!(server.shared.waiting.count(), 997 + 999);
}

#[test]
fn all_who_wait_for_entries_are_tried() {
    let server = server(&Arc::default());
    let late = waiters(&server, "XREAD BLOCK 0 STREAMS k 5-0", 2);
    let early = waiters(&server, "XREAD BLOCK 0 STREAMS k 0-0", 2);
    told(&server, "XADD k 1-1 f v");
    assert_eq!([wait(&server, &late), wait(&server, &early)], [[true; 2], [false; 2]]);
    told(&server, "XADD k 5-1 f v");
    assert_eq!(wait(&server, &late), [false; 2]);
}

/// A key has the type that some wait for, and becomes of the type that others wait for.
#[test]
fn who_waits_for_several_keys_is_served_in_turn() {
    let server = server(&Arc::default());
    let both = waiters(&server, "BLMPOP 0 2 a b LEFT COUNT 2", 2);
    let moves = waiters(&server, "BLMOVE a b LEFT RIGHT 0", 2);
    let sorted = waiters(&server, "BZMPOP 0 2 b c MAX", 2);
    let last = waiters(&server, "BLPOP b 0", 3);
    // The first two take four elements, the next two move one each to clients that wait at the other key.
    told(&server, "RPUSH a 1 2 3 4 5 6");
    assert_eq!(server.shared.waiting.count(), 3);
    assert_eq!(
        [wait(&server, &both), wait(&server, &moves), wait(&server, &sorted)].concat(),
        [false, false, false, false, true, true]
    );
    assert_eq!(wait(&server, &last), [false, false, true]);
    told(&server, "ZADD b 1 m; RPUSH c x; DEL c; ZADD c 1 m");
    assert_eq!((server.shared.waiting.count(), told(&server, "EXISTS a b c")), (1, ":0\r\n".to_owned()));
    drop(last);
    assert_eq!(server.shared.waiting.count(), 0);
}

/// Redis ends the wait for entries that are gone, and does not end one where a key of another type was replaced.
#[test]
fn a_wait_ends_when_there_is_something_and_not_before() {
    let server = server(&Arc::default());
    told(&server, "RPUSH l 2 1; ZADD z 1 m");
    for request in ["XREAD BLOCK 0 STREAMS s $", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"] {
        told(&server, "DEL s; XGROUP CREATE s g $ MKSTREAM");
        let waiting = waiters(&server, request, 1);
        told(&server, "MULTI; XADD s * f v; XTRIM s MAXLEN 0; EXEC; XADD s MAXLEN 0 * f v");
        assert_eq!(wait(&server, &waiting), [true], "{request}");
        told(&server, "XADD s * f v");
        assert_eq!(wait(&server, &waiting), [false], "{request}");
    }
    for (request, store) in [
        ("BLPOP k 0", "SORT l STORE k"),
        ("BZPOPMIN k 0", "ZUNIONSTORE k 1 z"),
        ("BZPOPMAX k 0", "ZRANGESTORE k z 0 -1"),
    ] {
        let waiting = waiters(&server, request, 1);
        told(&server, "SET k x");
        assert_eq!(wait(&server, &waiting), [true], "{request}");
        told(&server, store);
        assert_eq!(wait(&server, &waiting), [false], "{request}");
        told(&server, "DEL k");
    }
}

#[test]
fn who_was_missed_because_of_a_script_is_served_after_the_next_one() {
    let clock = Arc::new(ManualClock::new());
    for script in ["EVAL 'return 1' 0", "MULTI; EVAL 'return 1' 0; EXEC"] {
        let server = server(&clock);
        let waiting = waiters(&server, "BLPOP k 0", 1);
        let waiter = server.shared.waiting.of_client(waiting[0].dialogue.session.client.id).unwrap();
        let claim = waiter.claim().unwrap();
        std::thread::scope(|scope| {
            let push = scope.spawn(|| told(&server, "RPUSH k x"));
            while told(&server, "LLEN k") == ":0\r\n" {
                std::thread::yield_now();
            }
            let locked = server.shared.locks.try_lock_all().unwrap();
            let begun = server.shared.scripts.progress.begin(busy_script(&clock));
            drop(claim);
            assert_eq!(push.join().unwrap(), ":1\r\n");
            drop((begun, locked));
        });
        assert_eq!(wait(&server, &waiting), [true]);
        told(&server, script);
        assert_eq!((wait(&server, &waiting), told(&server, "LLEN k")), (vec![false], ":0\r\n".to_owned()));
    }
}

/// Otherwise nobody may come to serve the clients that were missed.
#[test]
fn nobody_is_missed_because_of_a_script_that_has_ended() {
    let clock = Arc::new(ManualClock::new());
    let Shared { scripts, locks, .. } = &server(&clock).shared;
    assert!(!scripts.miss(locks));
    let begun = scripts.progress.begin(busy_script(&clock));
    assert!(scripts.miss(locks));
    drop(begun);
    assert!(!scripts.miss(locks) && scripts.take_missed() && !scripts.take_missed());
}

#[test]
fn nobody_is_left_waiting_where_there_is_something() {
    let server = server(&Arc::default());
    let waiting = waiters(&server, "BLPOP k 0", 300);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut writes = server.connect();
                (0..60).for_each(|_| _ = writes.send(b"RPUSH k x\r\n"));
            });
        }
    });
    assert_eq!((server.shared.waiting.count(), told(&server, "EXISTS k")), (60, ":0\r\n".to_owned()));
    drop(waiting);
    assert_eq!(server.shared.waiting.count(), 0);
}

#[test]
fn who_waits_for_the_log_finds_it_in_the_storage() {
    let (disk, clock) = (SimDisk::new(), Arc::new(ManualClock::new()));
    let server = server_on(&disk.handle(), &clock, Syncing::Interval(Duration::from_secs(3600)));
    let groups = || server.shared.store.lsm().unwrap().statistics().log.groups;
    let before = groups();
    assert_eq!(told(&server, "SET key value"), "+OK\r\n");
    assert_eq!(groups(), before);
    assert_eq!(told(&server, "WAITAOF 1 0 0"), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(groups(), before + 1);
    // There is no replica, now or later.
    assert!(server.connect().send(b"WAITAOF 0 1 0\r\n").is_empty());
    let out_of_range = "-ERR value is out of range, value must between 0 and 1\r\n";
    assert_eq!(told(&server, "WAITAOF 2 0 0"), out_of_range);
    assert!(told(&server, "WAITAOF 1 -1 0").starts_with("-ERR value is out of range, must be positive"));
    assert_eq!(told(&server, "WAITAOF 1 0 -1"), "-ERR timeout is negative\r\n");
    // A store that ends with its process.
    let server = self::server(&clock);
    assert!(told(&server, "WAITAOF 1 0 0").starts_with("-ERR WAITAOF cannot be used"));
    assert_eq!(told(&server, "WAITAOF 0 0 0"), "*2\r\n:0\r\n:0\r\n");
}

/// A thread may still see a pause that another one has just ended.
#[test]
fn nobody_is_held_by_a_pause_that_was_ended() {
    let server = server(&Arc::default());
    let connection = server.connect();
    let (pause, client) = (&server.shared.pause, &connection.dialogue.session.client);
    pause.begin(0, 1_000, true);
    assert_eq!(pause.hold(client, false, 10), Some(1_000));
    pause.end();
    assert_eq!(pause.hold(client, false, 10), None);
}

#[test]
fn what_is_refused_does_not_wait_for_the_end_of_a_pause() {
    let server = server(&Arc::default());
    assert_eq!(told(&server, "ACL SETUSER reader on nopass ~* +@read"), "+OK\r\n");
    for pause in ["CLIENT PAUSE 1000 WRITE", "CLIENT PAUSE 1000 ALL"] {
        let (mut reader, mut stranger, mut other) = (server.connect(), server.connect(), server.connect());
        assert_eq!(reader.send(b"AUTH reader x\r\n"), b"+OK\r\n");
        stranger.dialogue.session.user = None;
        assert_eq!(other.send(format!("{pause}\r\n").as_bytes()), b"+OK\r\n");
        let is_refused = |connection: &mut LocalConnection<'_>, request: &str, code: &str| {
            let sent = String::from_utf8(connection.send(format!("{request}\r\n").as_bytes())).unwrap();
            assert!(sent.starts_with(code) && connection.may_go_on(), "{pause}, {request}: {sent}");
        };
        is_refused(&mut reader, "SET a 1", "-NOPERM");
        is_refused(&mut stranger, "SET a 1", "-NOAUTH");
        is_refused(&mut other, "SET a", "-ERR wrong number of arguments");
        is_refused(&mut other, "NOSUCH", "-ERR unknown command");
        // A client that may write waits.
        assert_eq!((other.send(b"SET a 1\r\n"), other.may_go_on()), (vec![], false), "{pause}");
    }
}

#[test]
fn who_wants_no_replies_gets_none_at_the_end_of_a_wait() {
    let server = server(&Arc::default());
    let executor = server.executor();
    told(&server, "SET string x");
    for replies in ["OFF", "SKIP"] {
        for (wait, end) in [
            ("BLPOP k 0", "RPUSH k x"),
            // An error: the target is no list.
            ("BLMOVE k string LEFT LEFT 0", "RPUSH k x"),
            ("BLPOP k 0", "CLIENT UNBLOCK {id}"),
            ("BLPOP k 0", "CLIENT UNBLOCK {id} ERROR"),
        ] {
            let (mut waits, mut ends) = (server.connect(), server.connect());
            assert_eq!(waits.send(format!("CLIENT REPLY {replies}\r\n{wait}\r\n").as_bytes()), b"", "{wait}");
            assert!(!waits.may_go_on(), "{wait}");
            let end = end.replace("{id}", &waits.dialogue.session.client.id.to_string());
            ends.dialogue.requests.push(format!("{end}\r\n").as_bytes());
            ends.dialogue.carry_out(&executor);
            assert_eq!(waits.send(b""), b"", "{replies} {wait} {end}");
            assert_eq!(waits.send(b"CLIENT REPLY ON\r\nPING\r\n"), b"+OK\r\n+PONG\r\n", "{replies} {wait} {end}");
            told(&server, "DEL k");
        }
    }
}

/// A thread that carries its command out may not have reached the keys yet.
#[test]
fn who_is_unblocked_while_its_command_is_tried_goes_on() {
    let server = server(&Arc::default());
    let executor = server.executor();
    for (reason, reply) in
        [("", "*-1\r\n"), (" TIMEOUT", "*-1\r\n"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        let (mut waits, mut writes) = (server.connect(), server.connect());
        assert_eq!(waits.send(b"BLPOP k 0\r\n"), b"");
        let id = waits.dialogue.session.client.id;
        let unblock = format!("CLIENT UNBLOCK {id}{reason}");
        let waiter = server.shared.waiting.of_client(id).unwrap();
        let claim = waiter.claim().unwrap();
        assert_eq!(told(&server, &unblock), ":1\r\n", "{reason}");
        drop(claim);
        assert_eq!((wait(&server, std::slice::from_ref(&waits)), waits.send(b"")), (vec![true], vec![]), "{reason}");
        // The mail is for the client that waits.
        writes.dialogue.requests.push(b"RPUSH k x\r\n");
        writes.dialogue.carry_out(&executor);
        assert_eq!(waits.send(b""), reply.as_bytes(), "{reason}");
        assert_eq!(told(&server, &format!("{unblock}; LPOP k")), ":0\r\n$1\r\nx\r\n", "{reason}");
        assert_eq!(server.shared.waiting.count(), 0);
    }
}

/// They take several runs, because their replies are long.
#[test]
fn reads_before_a_held_write_go_on() {
    let server = server(&Arc::default());
    assert_eq!(told(&server, "SETRANGE k 1100000 x; CLIENT PAUSE 1000 WRITE"), ":1100001\r\n+OK\r\n");
    let mut client = server.connect();
    let sent = client.send(b"GET k\r\nGET k\r\nGET k\r\nSET k 1\r\nPING\r\n");
    assert_eq!(sent.len(), 3 * ("$1100001\r\n".len() + 1_100_001 + 2));
    assert!(client.dialogue.session.held_until.is_some());
}
