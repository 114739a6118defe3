//! Any commands of Redis, in pipelines of two connections, with time that passes between them.
//!
//! The first byte says how the rest is used: as raw bytes of the protocol, or as instructions. Instructions say, byte by
//! byte, which command to send, how many arguments, and what each argument is. Whatever was sent:
//!
//! - replies are values of the protocol, and bounded;
//! - there are as many keys as `DBSIZE` says;
//! - when all keys are removed one by one, the store holds nothing of them.

#![no_main]

use forebay::{Options, Store};
use forebay_env::{Clock, ManualClock, SystemClock};
use forebay_server::local::{LocalConnection, LocalServer};
use std::sync::Arc;
use std::time::Duration;

/// Commands that are left out: they run in a thread of their own, connect to other servers, or change what the checks
/// depend on.
const WITHOUT: &[&str] = &[
    "acl",
    "client",
    "config",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "function",
    "migrate",
    "script",
    "shutdown",
];
/// Longest string, bytes.
const MAX_STRING: &str = "1048576";
/// The database's memory, bytes: it stays the same from input to input.
const MEMORY_BYTES: u64 = 256 << 20;
/// Most bytes of replies that are sent at a time: 16 MiB, and those of the last run of commands.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// Words of commands.
const WORDS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "GET",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "COUNT",
    "MATCH",
    "TYPE",
    "LIMIT",
    "WITHSCORES",
    "WITHVALUES",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "MIN",
    "MAX",
    "BYSCORE",
    "BYLEX",
    "REV",
    "STREAMS",
    "BLOCK",
    "GROUP",
    "NOACK",
    "MKSTREAM",
    "MAXLEN",
    "MINID",
    "NOMKSTREAM",
    "ENTRIESREAD",
    "IDLE",
    "TIME",
    "RETRYCOUNT",
    "FORCE",
    "JUSTID",
    "LASTID",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "RANK",
    "ASC",
    "DESC",
    "ALPHA",
    "BY",
    "STORE",
    "REPLACE",
    "DB",
    "ABSTTL",
    "FREQ",
    "FROMMEMBER",
    "FROMLONLAT",
    "BYRADIUS",
    "BYBOX",
    "WITHCOORD",
    "WITHDIST",
    "WITHHASH",
    "ANY",
    "STOREDIST",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "SET",
    "INCRBY",
    "i8",
    "u63",
    "BIT",
    "BYTE",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "SAMPLES",
    "ON",
    "OFF",
    "SKIP",
    "CREATE",
    "DESTROY",
    "SETID",
    "CREATECONSUMER",
    "DELCONSUMER",
    "CONSUMERS",
    "STREAM",
    "FULL",
    "USAGE",
    "ENCODING",
    "REFCOUNT",
    "LIST",
    "INFO",
    "ID",
    "KILL",
    "UNBLOCK",
    "DOCS",
    "GETKEYS",
    "HELP",
    "km",
    "m",
    "=",
    "~",
    "*",
    "+",
    "-",
    "$",
    ">",
    "(1",
    "[a",
    "-inf",
    "+inf",
    "nan",
];
/// Numbers at edges.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "-2",
    "3",
    "10",
    "100",
    "1000",
    "65535",
    "65536",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "0.5",
    "-1.5",
    "1e308",
    "1e-320",
    "180",
    "85",
    "0-0",
    "0-1",
    "1-1",
    "5-3",
    "18446744073709551615-18446744073709551615",
];

struct Rig {
    clock: Arc<ManualClock>,
    server: LocalServer,
    names: Vec<&'static str>,
}

impl Rig {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let options = Options {
            background_threads: 0,
            // Checks pass over all deleted records that are not compacted yet, those of earlier inputs included.
            write_buffer_bytes: 128 << 10,
            level0_compaction_trigger: 2,
            clock: Arc::clone(&shared),
            ..Options::default()
        };
        let store = Store::embedded(MEMORY_BYTES, options).expect("a store in memory");
        let server = LocalServer::new(store, shared, WITHOUT).expect("a server");
        server.set("proto-max-bulk-len", MAX_STRING).expect("a parameter");
        let names = server.commands().collect();
        Self { clock, server, names }
    }

    fn run(&self, bytes: &[u8]) {
        let Some((&form, rest)) = bytes.split_first() else { return };
        let mut connections = [self.server.connect(), self.server.connect()];
        if form % 2 == 0 {
            self.send(&mut connections[0], rest);
        } else {
            self.follow(&mut connections, rest);
        }
        drop(connections);
        self.check();
    }

    /// Sends the commands that `bytes` encode.
    fn follow<'s>(&'s self, connections: &mut [LocalConnection<'s>; 2], bytes: &[u8]) {
        let mut bytes = bytes.iter().copied();
        let mut pipeline = Vec::new();
        while let Some(step) = bytes.next() {
            let at = usize::from(step & 1);
            match step >> 1 {
                0..8 => {
                    self.send(&mut connections[at], &pipeline);
                    pipeline.clear();
                }
                8..12 => {
                    let time = Duration::from_millis(1 << (step & 15));
                    self.clock.advance(time);
                    // The lease takes ten seconds of this clock. The thread that renews it looks each 200 ms of the real one.
                    SystemClock::new().sleep(time / 10);
                }
                12 => self.server.sweep().expect("a sweep"),
                13 => connections[at] = self.server.connect(),
                _ => {
                    let name = usize::from(bytes.next().unwrap_or(0)) % self.names.len();
                    let count = usize::from(bytes.next().unwrap_or(0) % 9);
                    let mut words = vec![self.names[name].as_bytes().to_vec()];
                    words.extend((0..count).map(|_| word(&mut bytes)));
                    push(&mut pipeline, &words);
                }
            }
        }
        self.send(&mut connections[0], &pipeline);
    }

    fn send(&self, connection: &mut LocalConnection<'_>, bytes: &[u8]) {
        let replies = connection.send(bytes);
        assert!(replies.len() <= MAX_REPLY_BYTES, "{} bytes of replies", replies.len());
        let mut rest = &replies[..];
        while !rest.is_empty() {
            value(&mut rest, 0).unwrap_or_else(|| panic!("no reply: {}", replies.escape_ascii()));
        }
    }

    /// Checks what must hold for the present keys, and removes them.
    fn check(&self) {
        let mut connection = self.server.connect();
        let mut ask = |words: &[&[u8]]| {
            let mut request = Vec::new();
            push(&mut request, &words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
            connection.send(&request)
        };
        self.server.sweep().expect("a sweep");
        for database in 0..16 {
            ask(&[b"SELECT", database.to_string().as_bytes()]);
            let size = ask(&[b"DBSIZE"]);
            if size == b":0\r\n" {
                continue;
            }
            let keys = bulks(&ask(&[b"KEYS", b"*"]));
            assert_eq!(size, format!(":{}\r\n", keys.len()).as_bytes(), "keys of database {database}");
            for key in keys {
                assert_eq!(ask(&[b"DEL", &key]), b":1\r\n", "{}", key.escape_ascii());
            }
        }
        let mut left = self.server.records().lsm().expect("an LSM database").iter().expect("an iterator");
        left.seek_to_first().expect("a place");
        while left.valid() {
            // Records of the server itself.
            assert_eq!(left.key().first(), Some(&1), "{} is left", left.key().escape_ascii());
            left.next().expect("the next place");
        }
    }
}

/// An argument.
fn word(bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let (kind, which) = (bytes.next().unwrap_or(0), bytes.next().unwrap_or(0));
    let of = |words: &[&str]| words[usize::from(which) % words.len()].as_bytes().to_vec();
    match kind % 8 {
        0..3 => vec![b'k', b'0' + which % 4],
        3 => vec![b'a' + which % 8],
        4 => of(NUMBERS),
        5 | 6 => of(WORDS),
        _ => bytes.take(usize::from(which % 32)).collect(),
    }
}

fn push(request: &mut Vec<u8>, words: &[Vec<u8>]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, after) = rest.split_at(end);
    *rest = after.get(2..)?;
    Some(line)
}

/// Takes a value of the protocol.
fn value(rest: &mut &[u8], depth: usize) -> Option<()> {
    let line = line(rest)?;
    let (kind, text) = line.split_first()?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let several = |rest: &mut &[u8], count: i64| {
        let count = if depth < 16 { count } else { return None };
        (0..count).try_for_each(|_| value(rest, depth + 1))
    };
    match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => Some(()),
        b'$' | b'=' if number()? < 0 => Some(()),
        b'$' | b'=' => {
            let length = usize::try_from(number()?).ok()?;
            let after = rest.get(length..)?.strip_prefix(b"\r\n")?;
            *rest = after;
            Some(())
        }
        b'*' | b'~' | b'>' => several(rest, number()?.max(0)),
        b'%' => several(rest, number()?.checked_mul(2)?),
        _ => None,
    }
}

/// The strings of an array.
fn bulks(reply: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = reply;
    let length = |line: &[u8]| std::str::from_utf8(line.get(1..)?).ok()?.parse::<usize>().ok();
    let count = line(&mut rest).and_then(length).expect("an array");
    (0..count)
        .map(|_| {
            let length = line(&mut rest).and_then(length).expect("a string");
            let (bulk, after) = rest.split_at(length);
            rest = after.strip_prefix(b"\r\n").expect("its end");
            bulk.to_vec()
        })
        .collect()
}

thread_local! {
    static RIG: Rig = Rig::new();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| RIG.with(|rig| rig.run(bytes)));
