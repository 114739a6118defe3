//! A server without sockets and threads: bytes of requests in, bytes of replies out, in the caller's thread. For tests
//! that need the commands and no network, such as fuzzing.
//!
//! There is no thread of scripts: a command that runs one waits forever.

use crate::acl::users::Users;
use crate::commands::command::Registry;
use crate::commands::table;
use crate::dialogue::Dialogue;
use crate::execute::Executor;
use crate::network::event_loop::MAIL;
use crate::network::expiry;
use crate::server::{Error, shared};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::session::Session;
use crate::state::shared::Shared;
use forebay::{ErrorKind, Store};
use forebay_env::Clock;
use mio::{Poll, Waker};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Nothing more is carried out when this much was to be sent at once.
const MAX_SENT_BYTES: usize = 16 << 20;

/// See the module.
#[derive(Debug)]
pub struct LocalServer {
    shared: Shared,
    registry: Registry,
    mailbox: Arc<Mailbox>,
    /// What the mailbox would wake.
    _poll: Poll,
}

/// A connection to a [`LocalServer`].
#[derive(Debug)]
pub struct LocalConnection<'s> {
    server: &'s LocalServer,
    dialogue: Dialogue,
}

impl LocalServer {
    /// A server of a store, without the commands of these names, in small letters.
    ///
    /// # Errors
    /// Those of the store; `Invalid` when it has keys, and no server has written them; `Io` when the system refuses what a mailbox
    /// needs.
    pub fn new(store: Store, clock: Arc<dyn Clock>, without: &[&str]) -> Result<Self, Error> {
        let io = Error::io("preparing a mailbox");
        let all = table::registry();
        let users = Users::new(table::catalogue(&all), None).map_err(|text| Error::new(ErrorKind::Invalid, text))?;
        let registry = Registry::new(all.all().iter().copied().filter(|command| !without.contains(&command.name)));
        let shared = shared(store, users, address(), 1, clock)?;
        let poll = Poll::new().and_then(|poll| Waker::new(poll.registry(), MAIL).map(|waker| (poll, waker)));
        let (poll, waker) = poll.map_err(io)?;
        Ok(Self { shared, registry, mailbox: Arc::new(Mailbox::new(waker)), _poll: poll })
    }

    /// The names of its commands, without subcommands.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.registry.all().iter().map(|command| command.name)
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.shared.store
    }

    /// A new connection.
    #[must_use]
    pub fn connect(&self) -> LocalConnection<'_> {
        let now_ms = self.shared.clock.wall_ms();
        let client = self.shared.clients.add(Arc::clone(&self.mailbox), address(), address(), now_ms);
        LocalConnection { server: self, dialogue: Dialogue::new(Session::new(client, self.shared.users.anonymous())) }
    }

    /// Sets a parameter, as `CONFIG SET` does.
    ///
    /// # Errors
    /// `Invalid`: there is none of this name, or it cannot have this value.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), Error> {
        let changed = self.shared.config.set(&[(parameter.as_bytes(), value.as_bytes())]);
        changed.map_err(|why| Error::new(ErrorKind::Invalid, why))
    }

    /// Removes keys that have expired.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sweep(&self) -> Result<(), Error> {
        let executor = Executor { shared: &self.shared, registry: &self.registry };
        loop {
            match expiry::remove_some(&executor) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(failure) => return Err(Error::new(ErrorKind::Io, failure.message().to_owned())),
            }
        }
    }
}

impl LocalConnection<'_> {
    /// Carries out what these bytes ask for, together with what was sent before and was not whole, and returns what the
    /// client is sent. What it asks for after 16 MiB of replies waits for the next call. Nothing is carried out once the
    /// connection has ended, or waits in a command.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let executor = Executor { shared: &self.server.shared, registry: &self.server.registry };
        self.dialogue.requests.push(bytes);
        let mut sent = Vec::new();
        while self.may_go_on() && sent.len() < MAX_SENT_BYTES && self.dialogue.carry_out(&executor) {
            self.take_out(&mut sent);
        }
        self.read_mail();
        self.take_out(&mut sent);
        sent
    }

    fn take_out(&mut self, sent: &mut Vec<u8>) {
        sent.extend_from_slice(self.dialogue.out.bytes());
        self.dialogue.out.forget();
    }

    /// Whether requests are carried out: the connection has not ended, and waits for nothing.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.dialogue.session.may_go_on()
    }

    /// Takes what others have for this connection; that for others is lost.
    fn read_mail(&mut self) {
        let dialogue = &mut self.dialogue;
        let here = dialogue.session.client.id;
        for message in self.server.mailbox.take() {
            match message {
                Message::Send { client, letter } if client == here => dialogue.out.raw(letter.bytes()),
                Message::Unblock { client, bytes } if client == here => dialogue.unblock(&bytes),
                Message::Release(client) if client == here => dialogue.release(),
                Message::Kill(client) if client == here => dialogue.session.is_closing = true,
                _ => {}
            }
        }
    }
}

impl Drop for LocalConnection<'_> {
    fn drop(&mut self) {
        Executor { shared: &self.server.shared, registry: &self.server.registry }.forget(&mut self.dialogue.session);
    }
}

const fn address() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::progress::{Kind, Running};
    use crate::state::channels::Topic;
    use forebay::{Durability, Keyspaces, Options, Storage, StorageOptions, Syncing};
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
        let options = Options {
            name: Some("db".to_owned()),
            storage: Some(Storage::of_disk(Arc::new(disk.clone()), 1, StorageOptions::default())),
            durability: Durability::Storage(syncing),
            takeover: true,
            background_threads: 0,
            clock: Arc::clone(clock),
            ..Options::default()
        };
        Store::embedded(64 << 20, options).unwrap()
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
        // What a server has written is its own, also when all keys were removed.
        let disk = SimDisk::new();
        for request in ["SET key value", "DEL key", "FLUSHALL"] {
            let server =
                LocalServer::new(store_on(&disk.handle(), &clock, Syncing::Sync), Arc::clone(&clock), &[]).unwrap();
            assert!(!told(&server, request).starts_with('-'));
        }
    }

    /// Whatever the disk is asked from now on, it is full.
    fn fill(disk: &SimDisk) {
        (0..10_000).for_each(|step| disk.fail_at(disk.steps() + step, DiskFault::Refused(ErrorKind::Full)));
    }

    /// What such a write is answered, up to the disk's own words.
    const IN_DOUBT: &str = "-ERR storage failed, and the write may have taken effect: ";

    #[test]
    fn a_write_that_is_not_durable_takes_effect_and_is_an_error() {
        let (disk, clock) = (SimDisk::new(), Arc::new(ManualClock::new()));
        let handle = disk.handle();
        let server = server_on(&handle, &clock, Syncing::Sync);
        let is_in_doubt = |request: &str| {
            let sent = told(&server, request);
            assert!(
                sent.starts_with(IN_DOUBT) && sent.contains("full") && sent.lines().count() == 1,
                "{request}: {sent}"
            );
        };
        assert_eq!(told(&server, "CONFIG SET notify-keyspace-events KEA; SET kept 1"), "+OK\r\n+OK\r\n");
        // The first id of a collection takes a block of them from the store.
        assert_eq!(told(&server, "SADD first x; DEL first"), ":1\r\n:1\r\n");
        let (mut waits, mut watches, mut learns) = (server.connect(), server.connect(), server.connect());
        assert!(waits.send(b"BLPOP list 0\r\n").is_empty());
        assert_eq!(watches.send(b"WATCH watched\r\nMULTI\r\nPING\r\n"), b"+OK\r\n+OK\r\n+QUEUED\r\n");
        learns.send(b"SUBSCRIBE __keyspace@0__:new\r\n");
        fill(&handle);
        let executor = Executor { shared: &server.shared, registry: &server.registry };
        let mut writes = server.connect();
        writes.dialogue.requests.push(b"RPUSH list x y\r\n");
        writes.dialogue.carry_out(&executor);
        assert!(String::from_utf8_lossy(writes.dialogue.out.bytes()).starts_with(IN_DOUBT));
        // Who waited has lost the element, and does not know whether for good.
        let served = waits.send(b"");
        assert!(served.starts_with(IN_DOUBT.as_bytes()) && waits.may_go_on(), "{}", served.escape_ascii());
        assert_eq!(told(&server, "LRANGE list 0 -1"), "*1\r\n$1\r\ny\r\n");
        is_in_doubt("SET watched 1");
        assert_eq!(watches.send(b"EXEC\r\n"), b"*-1\r\n");
        writes.dialogue.out.forget();
        writes.dialogue.requests.push(b"SET new 1\r\n");
        writes.dialogue.carry_out(&executor);
        assert!(learns.send(b"").ends_with(b"$3\r\nset\r\n"));
        // A pipeline, a transaction and a script.
        let sent = told(&server, "SET a 1; GET a; SET b 1; MULTI; SET c 1; EXEC; EVAL \"redis.call('SET', 'd', 1)\" 0");
        assert!(sent.lines().filter(|line| line.starts_with(IN_DOUBT)).count() == 5, "{sent}");
        assert_eq!(sent.lines().filter(|line| ["+OK", "+QUEUED"].contains(line)).count(), 2, "{sent}");
        assert_eq!(told(&server, "MGET a b c d; DBSIZE"), format!("*4\r\n{}:8\r\n", "$1\r\n1\r\n".repeat(4)));
        // What expires is removed, and counted.
        (0..300).for_each(|key| is_in_doubt(&format!("SET expires{key} 1 PX 10")));
        assert!(told(&server, "INFO keyspace").contains("db0:keys=308,expires=300\r\n"));
        clock.advance(Duration::from_millis(20));
        (0..2).for_each(|_| assert!(server.sweep().is_err()));
        assert!(told(&server, "INFO keyspace").contains("db0:keys=8,expires=0\r\n"));
        // Once there is room, what is there is what was counted.
        let room = disk.handle();
        drop((waits, watches, learns, writes));
        drop(server);
        let server = server_on(&room, &clock, Syncing::Sync);
        let keys = told(&server, "KEYS *").lines().filter(|line| !line.starts_with(['*', '$'])).count();
        assert_eq!(told(&server, "DBSIZE"), format!(":{keys}\r\n"));
    }

    /// Storage and memory that are full are two things, and so are a write that is refused and one that is not durable.
    #[test]
    fn what_is_full_is_named() {
        let disk = SimDisk::new();
        let hour = Duration::from_secs(3600);
        let server = server_on(&disk, &Arc::default(), Syncing::Interval(hour));
        assert_eq!(told(&server, "SET a 1"), "+OK\r\n");
        fill(&disk);
        // A sync fails that no write waits for. Those to come are refused.
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
        for job in server.shared.scripts.take_waiting() {
            Executor { shared: &server.shared, registry: &server.registry }.carry_out(job);
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

    /// What a script returns.
    fn eval(server: &LocalServer, command: &str, script: &str) -> String {
        told(server, &format!("{command} \"{script}\" 0")).trim_end().to_owned()
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
            ("local ok, e = pcall(redis.pcall, 'nosuch') return tostring(ok) .. type(e)", "truetable"),
            ("return select(2, xpcall(function() redis.call('nosuch') end, function(e) return e.err end))", unknown),
            ("return type(select(2, xpcall(error, function() return {err = 'x'} end)))", "table"),
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

    /// Only who gives up what was not saved ends a script with the server.
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
        let executor = Executor { shared: &server.shared, registry: &server.registry };
        let shown = |requests: &str| {
            let mut connection = server.connect();
            connection.dialogue.requests.push(format!("{}\r\n", requests.replace("; ", "\r\n")).as_bytes());
            while connection.may_go_on() && connection.dialogue.carry_out(&executor) {}
            server.shared.scripts.take_waiting().into_iter().for_each(|job| executor.carry_out(job));
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
        let server = server(&Arc::default());
        let text = told(&server, "SET k 1 EX 10; INFO");
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(ToOwned::to_owned)
        };
        assert!(figure("used_memory_rss").unwrap().parse::<u64>().unwrap() > 1 << 16);
        assert!(figure("used_cpu_user").unwrap().parse::<f64>().is_ok());
        assert!(figure("used_cpu_sys").unwrap().parse::<f64>().is_ok());
        assert_eq!(figure("instantaneous_ops_per_sec").unwrap(), "0");
        assert_eq!(figure("db0").unwrap(), "keys=1,expires=1");
        assert_eq!(figure("mem_fragmentation_ratio"), None);
    }

    /// Replies to ranges of sorted sets are written as members are read.
    #[test]
    fn a_range_that_is_too_long_is_not_read_to_its_end() {
        let mut server = server(&Arc::default());
        for from in (0..20_000).step_by(250) {
            let members: String = (from..from + 250).map(|place| format!(" 1 {place:0200}")).collect();
            told(&server, &format!("ZADD set{members}"));
        }
        told(&server, "ZADD other 1 a 2 b 3 c");
        server.store().flush().unwrap();
        server.shared.max_reply_bytes = 10_000;
        let read = || server.store().statistics().foreground.bytes_read;
        let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
        for request in [
            "ZRANGE set 0 -1",
            "ZRANGE set 0 -1 WITHSCORES",
            "ZREVRANGE set 0 -1",
            "ZRANGE set 5 -1 REV",
            "ZRANGEBYSCORE set -inf +inf",
            "ZREVRANGEBYSCORE set +inf -inf LIMIT 3 15000",
            "ZRANGE set 0 2 BYSCORE",
            "ZRANGEBYLEX set - +",
            "ZREVRANGEBYLEX set + [0",
        ] {
            let before = read();
            assert_eq!(told(&server, request), refusal, "{request}");
            let took = read() - before;
            assert!(took < 1 << 20, "{request} read {took} bytes");
        }
        assert_eq!(told(&server, "ZRANGE other - + BYLEX LIMIT 1 1"), "*1\r\n$1\r\nb\r\n");
        assert_eq!(told(&server, "ZRANGE other (a + BYLEX LIMIT 1 9"), "*1\r\n$1\r\nc\r\n");
        assert_eq!(told(&server, "ZRANGE other 5 9; ZRANGE none 0 1"), "*0\r\n*0\r\n");
        assert_eq!(
            told(&server, "HELLO 3; ZRANGE other 2 3 BYSCORE WITHSCORES").split_once("*2\r\n").unwrap().1,
            "*2\r\n$1\r\nb\r\n,2\r\n*2\r\n$1\r\nc\r\n,3\r\n"
        );
    }

    #[test]
    fn what_is_made_of_sets_is_not_read_to_its_end_when_it_is_too_long() {
        let mut server = server(&Arc::default());
        for from in (0..20_000).step_by(250) {
            let members: String = (from..from + 250).map(|place| format!(" {place:0200}")).collect();
            told(&server, &format!("SADD set{members}"));
        }
        server.store().flush().unwrap();
        server.shared.max_reply_bytes = 10_000;
        let read = || server.store().statistics().foreground.bytes_read;
        for request in ["SUNION set none", "SDIFF set none", "SINTER set set"] {
            let before = read();
            assert!(told(&server, request).starts_with("-ERR too much is replied at once"), "{request}");
            let took = read() - before;
            assert!(took < 2 << 20, "{request} read {took} bytes");
        }
        let before = read();
        assert_eq!(told(&server, "SINTERCARD 2 set set LIMIT 7"), ":7\r\n");
        assert!(read() - before < 2 << 20);
    }

    /// Portions are short where many sets are read together.
    #[test]
    fn sets_are_combined_in_portions() {
        let server = server(&Arc::default());
        let multiples = |of: usize| (0..3000).step_by(of).map(|number| format!(" {number}")).collect::<String>();
        let scored = |of: usize| (0..3000).step_by(of).map(|number| format!(" {number} {number}")).collect::<String>();
        told(&server, &format!("SADD two{}; SADD three{}; SADD five{}", multiples(2), multiples(3), multiples(5)));
        told(&server, &format!("ZADD ztwo{}; ZADD zthree{}", scored(2), scored(3)));
        let numbers = |is_in: fn(&usize) -> bool| {
            (0..3000).filter(is_in).map(|number| number.to_string()).collect::<BTreeSet<_>>()
        };
        let members = |reply: String| {
            let mut lines = reply.lines();
            let count: usize = lines.next().unwrap()[1..].parse().unwrap();
            let members: Vec<String> = lines.skip(1).step_by(2).map(str::to_owned).collect();
            assert_eq!(members.len(), count);
            let distinct: BTreeSet<String> = members.into_iter().collect();
            assert_eq!(distinct.len(), count);
            distinct
        };
        let many = |sets: &str| vec![sets; 100].join(" ");
        let union = numbers(|number| number % 2 == 0 || number % 3 == 0);
        let both = numbers(|number| number % 6 == 0);
        let rest = numbers(|number| number % 5 == 0 && number % 2 != 0 && number % 3 != 0);
        assert_eq!(members(told(&server, &format!("SUNION {}", many("two three")))), union);
        assert_eq!(members(told(&server, &format!("SINTER {}", many("two three")))), both);
        assert_eq!(members(told(&server, &format!("SDIFF five {}", many("two three none")))), rest);
        assert_eq!(told(&server, "SDIFF none five; SINTER two none; SUNION none"), "*0\r\n*0\r\n*0\r\n");
        for (request, expected) in [
            (format!("SUNIONSTORE made {}", many("two three")), &union),
            (format!("SINTERSTORE made {}", many("two three")), &both),
            (format!("SDIFFSTORE made five {}", many("two three")), &rest),
            ("SUNIONSTORE two two three".to_owned(), &union),
        ] {
            assert_eq!(told(&server, &request), format!(":{}\r\n", expected.len()), "{request}");
            let made = if request.contains("made") { "made" } else { "two" };
            assert_eq!(told(&server, &format!("SCARD {made}")), format!(":{}\r\n", expected.len()));
            assert_eq!(&members(told(&server, &format!("SMEMBERS {made}"))), expected, "{request}");
        }
        assert_eq!(told(&server, "SINTERSTORE made two none; EXISTS made"), ":0\r\n:0\r\n");
        let count = |is_in: fn(&usize) -> bool| (0..3000).filter(is_in).count();
        // Sets of both kinds, each many times: the scores of their members are added.
        let sent = told(&server, &format!("ZUNIONSTORE made 200 {}; ZSCORE made 6; ZSCORE made 3", many("ztwo three")));
        let size = count(|number| number % 2 == 0 || number % 3 == 0);
        assert_eq!(sent, format!(":{size}\r\n$3\r\n700\r\n$3\r\n100\r\n"));
        let sent =
            told(&server, &format!("ZINTERSTORE made 200 {}; ZSCORE made 6; ZSCORE made 3", many("ztwo zthree")));
        assert_eq!(sent, format!(":{}\r\n$4\r\n1200\r\n$-1\r\n", both.len()));
        let sent = told(&server, "ZDIFFSTORE made 2 ztwo three; ZRANGE made 0 0; ZINTERCARD 2 ztwo zthree LIMIT 3");
        assert_eq!(sent, format!(":{}\r\n*1\r\n$1\r\n2\r\n:3\r\n", count(|number| number % 2 == 0 && number % 3 != 0)));
        let sent = told(&server, "ZUNION 2 ztwo zthree WEIGHTS 1 2 AGGREGATE MAX WITHSCORES");
        assert!(
            sent.starts_with(
                "*4000\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n4\r\n$1\r\n4\r\n$1\r\n3\r\n$1\r\n6\r\n"
            ),
            "{}",
            &sent[..200]
        );
    }

    #[test]
    fn ranges_by_rank_are_the_same_from_either_end() {
        let server = server(&Arc::default());
        let size = 1200;
        let all: String = (0..size).map(|place| format!(" {place} {place}")).collect();
        told(&server, &format!("ZADD set{all}"));
        for (from, to) in
            [(0, 3), (3, 899), (700, 1000), (800, 1199), (1100, 1199), (600, 1199), (1199, 1199), (0, 1199)]
        {
            let bulk = |place: i32| format!("${}\r\n{place}\r\n", place.to_string().len());
            let count = to - from + 1;
            let expected: String = (from..=to).map(bulk).collect();
            let reversed: String = (from..=to).map(|place| bulk(size - 1 - place)).collect();
            for (from, to) in [(from, to), (from - size, to - size)] {
                let sent = told(&server, &format!("ZRANGE set {from} {to}"));
                assert_eq!(sent, format!("*{count}\r\n{expected}"), "{from} {to}");
                let sent = told(&server, &format!("ZRANGE set {from} {to} REV"));
                assert_eq!(sent, format!("*{count}\r\n{reversed}"), "{from} {to}");
            }
        }
    }

    #[test]
    fn who_asks_for_many_keys_gets_all_in_order() {
        let server = server(&Arc::default());
        told(&server, "SETRANGE k 9 x");
        let keys: Vec<String> =
            (0..1000).map(|place| if place % 3 == 0 { "k".to_owned() } else { place.to_string() }).collect();
        let sent = told(&server, &format!("MGET {}", keys.join(" ")));
        let found = "$10\r\n\0\0\0\0\0\0\0\0\0x\r\n";
        assert_eq!(sent, format!("*1000\r\n{found}{}", format!("$-1\r\n$-1\r\n{found}").repeat(333)));
    }

    #[test]
    fn what_is_replied_at_once_is_bounded() {
        let mut server = server(&Arc::default());
        let value = "v".repeat(300);
        for key in ["k", "other"] {
            told(&server, &format!("SET {key} {value}"));
        }
        told(&server, &format!("RPUSH list {value} 2 3 4; HSET hash a {value} b {value}"));
        told(&server, &format!("XADD stream * f {value}"));
        server.shared.max_reply_bytes = 1000;
        let bulk = format!("$300\r\n{value}\r\n");
        let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
        // One command.
        assert_eq!(told(&server, "MGET k k other"), format!("*3\r\n{}", bulk.repeat(3)));
        for request in [
            "MGET k k k k",
            "HMGET hash a b a b",
            "SORT list BY nosort GET k* GET # GET # GET # GET #",
            "SORT list BY nosort GET # GET # GET # GET # STORE made",
            "XREAD STREAMS stream stream stream stream 0 0 0 0",
            "HRANDFIELD hash -4 WITHVALUES",
            &format!("MGET {} k k k", "a ".repeat(40)),
        ] {
            assert_eq!(told(&server, request), refusal, "{request}");
        }
        assert_eq!(told(&server, "EXISTS made"), ":0\r\n");
        // A pipeline goes on, and only what is too long itself fails.
        let gets = |count: usize| vec!["GET k"; count].join("; ");
        assert_eq!(told(&server, &gets(50)), bulk.repeat(50));
        let expected = format!("{bulk}:1\r\n{refusal}{}", bulk.repeat(2));
        assert_eq!(told(&server, "GET k; SADD new x; MGET k k k k; GET k; GET k"), expected);
        // A transaction is refused as a whole, and nothing of it stays.
        let queued = |count: usize| format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count));
        let sent = told(&server, &format!("MULTI; {}; EXEC", gets(3)));
        assert_eq!(sent, format!("{}*3\r\n{}", queued(3), bulk.repeat(3)));
        for last in
            [&gets(4)[..], "LRANGE list 0 0; LRANGE list 0 0; HGETALL hash", "EVAL \"return {'v'}\" 0; MGET k k k k"]
        {
            let sent = told(&server, &format!("MULTI; SET made 1; {last}; EXEC; EXISTS made"));
            assert!(sent.ends_with(&format!("+QUEUED\r\n{refusal}:0\r\n")), "{last}: {sent}");
        }
        // Replies that nobody is sent are none.
        let quiet = format!("CLIENT REPLY OFF; MULTI; SET made 1; {}; EXEC; CLIENT REPLY ON; EXISTS made", gets(9));
        assert_eq!(told(&server, &quiet), "+OK\r\n:1\r\n");
        // A script may call as often as it likes, but not for too much at once.
        let long = "EVAL \"for i = 1, 20 do redis.call('GET', 'k') end return redis.call('GET', 'k')\" 0";
        assert_eq!(told(&server, long), bulk);
        for (script, expected) in [
            ("redis.call('SET', 'new', 1) return redis.pcall('MGET', 'k', 'k', 'k', 'k')", refusal),
            ("redis.call('SET', 'new', 1) local k = redis.call('GET', 'k') return {k, k, k, k}", refusal),
        ] {
            assert_eq!(told(&server, &format!("EVAL \"{script}\" 0")), expected, "{script}");
        }
        assert_eq!(told(&server, "TYPE new"), "+set\r\n");
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
        // What follows in the same transaction or script sees it, and twice is as before.
        let sent = told(&server, "MULTI; SWAPDB 0 1; GET k; DBSIZE; SELECT 1; DBSIZE; SWAPDB 1 0; DBSIZE; EXEC");
        assert!(sent.ends_with("*7\r\n+OK\r\n$3\r\none\r\n:2\r\n+OK\r\n:1\r\n+OK\r\n:2\r\n"), "{sent}");
        is_as_before();
        let script = "EVAL \"redis.call('SWAPDB', 0, 1) redis.call('SET', 'k', 2) return redis.call('GET', 'k')\" 0";
        assert_eq!(told(&server, script), "$1\r\n2\r\n");
        assert_eq!(told(&server, "GET k; SELECT 1; STRLEN k"), "$1\r\n2\r\n+OK\r\n:300\r\n");
        // An event names the database in which the key was then, and who waits is served in the one in which it is.
        let mut learns = server.connect();
        learns.send(b"PSUBSCRIBE __key*\r\n");
        let mut writes = server.connect();
        let executor = Executor { shared: &server.shared, registry: &server.registry };
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
    fn what_waits_for_a_subscriber_is_bounded_and_held_once() {
        let server = server(&Arc::default());
        let subscribers = [server.connect(), server.connect()].map(|mut connection| {
            connection.send(b"SUBSCRIBE news\r\n");
            connection
        });
        server.shared.channels.publish(Topic::Channel, b"news", b"first");
        let letters = server.mailbox.take();
        let place = |message: &Message| match message {
            Message::Send { letter, .. } => letter.bytes().as_ptr(),
            _ => panic!("no message"),
        };
        let places: Vec<_> = letters.iter().map(place).collect();
        assert!(places.len() == 2 && places[0] == places[1]);
        drop(letters);
        let message = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            server.shared.channels.publish(Topic::Channel, b"news", &message);
        }
        let (letters, others): (Vec<_>, Vec<_>) =
            server.mailbox.take().into_iter().partition(|message| matches!(message, Message::Send { .. }));
        assert_eq!(letters.len(), 2 * 31);
        assert!(matches!(others[..], [Message::Kill(_), Message::Kill(_)]));
        // What was taken out does not count any more.
        drop(letters);
        server.shared.channels.publish(Topic::Channel, b"news", &message);
        assert_eq!(server.mailbox.take().len(), 2);
        drop(subscribers);
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

    /// Somebody who carries its command out may not have come to the keys yet.
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

    /// A clock of a server alone, which asks it for the date once for what it does to keys: it counts that.
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

    /// Which of these wait.
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

    /// A key is of one type for some, and becomes one for others.
    #[test]
    fn who_waits_for_several_keys_is_served_in_turn() {
        let server = server(&Arc::default());
        let both = waiters(&server, "BLMPOP 0 2 a b LEFT COUNT 2", 2);
        let moves = waiters(&server, "BLMOVE a b LEFT RIGHT 0", 2);
        let sorted = waiters(&server, "BZMPOP 0 2 b c MAX", 2);
        let last = waiters(&server, "BLPOP b 0", 3);
        // The first two take four elements, the next two move one each for those who wait at the other key.
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

    /// Otherwise nobody may come who serves those that were missed.
    #[test]
    fn nobody_is_missed_because_of_a_script_that_has_ended() {
        let clock = Arc::new(ManualClock::new());
        let scripts = &server(&clock).shared.scripts;
        assert!(!scripts.miss());
        let begun = scripts.progress.begin(busy_script(&clock));
        assert!(scripts.miss());
        drop(begun);
        assert!(!scripts.miss() && scripts.take_missed() && !scripts.take_missed());
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

    /// Whether a key is known to be plain shows in no reply.
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
        let mut left = server.store().iter().unwrap();
        left.seek_to_first().unwrap();
        while left.valid() {
            assert_eq!(left.key().first(), Some(&1), "only records of the server itself are left");
            left.next().unwrap();
        }
    }
}
