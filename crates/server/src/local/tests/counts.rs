//! Counts of commands, and events that took long.

use super::*;
use crate::state::latencies::Sample;

#[test]
fn commands_and_errors_are_counted() {
    let server = server(&Arc::default());
    told(
        &server,
        "SET k 1; GET k; GET k; LPUSH k x; GET; NOSUCH; MULTI; GET k; EXEC; OBJECT ENCODING k; OBJECT NOSUCH",
    );
    let text = told(&server, "INFO everything");
    let counted = |command: &str, calls: u64, rejected: u64, failed: u64| {
        let counts = format!("calls={calls},usec=0,usec_per_call=0.00,rejected_calls={rejected},failed_calls={failed}");
        let line = format!("cmdstat_{command}:{counts}");
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    };
    counted("get", 3, 1, 0);
    counted("lpush", 1, 0, 1);
    counted("exec", 1, 0, 0);
    counted("object|encoding", 1, 0, 0);
    for line in ["errorstat_ERR:count=3", "errorstat_WRONGTYPE:count=1", "# Commandstats", "# Latencystats"] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    assert!(text.contains("latency_percentiles_usec_get:p50=0.000,p99=0.000,p99.9=0.000"), "{text}");
    assert!(!text.contains("cmdstat_del:") && !told(&server, "INFO").contains("cmdstat_"));
    let histogram = told(&server, "LATENCY HISTOGRAM GET object nosuch");
    let of = |name: &str, calls: u64| {
        format!(
            "${}\r\n{name}\r\n*4\r\n$5\r\ncalls\r\n:{calls}\r\n$14\r\nhistogram_usec\r\n*2\r\n:1\r\n:{calls}\r\n",
            name.len()
        )
    };
    assert_eq!(histogram, format!("*4\r\n{}{}", of("get", 3), of("object|encoding", 1)));
    server.shared.counts.reset();
    let left = told(&server, "INFO commandstats errorstats");
    assert!(!left.contains("cmdstat_") && !left.contains("errorstat_"), "{left}");
}

/// A clock that advances by 5 ms whenever it is read.
#[derive(Debug, Default)]
struct TickingClock(ManualClock);

impl Clock for TickingClock {
    fn now(&self) -> Nanos {
        self.0.advance(Duration::from_millis(5));
        self.0.now()
    }

    fn wall_ms(&self) -> u64 {
        7_000
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

/// A server whose commands take 5 ms each.
fn slow_server() -> LocalServer {
    let options = Options { background_threads: 0, ..Options::default() };
    let store = Store::embedded(64 << 20, options).unwrap();
    LocalServer::new(store, Arc::<TickingClock>::default(), &[]).unwrap()
}

#[test]
fn commands_that_take_as_long_as_the_threshold_are_noted() {
    let server = slow_server();
    let history = |kind: &str| told(&server, &format!("LATENCY HISTORY {kind}"));
    told(&server, "CONFIG SET latency-monitor-threshold 6; GET k; KEYS *");
    assert_eq!((history("fast-command"), history("command")), ("*0\r\n".to_owned(), "*0\r\n".to_owned()));
    told(&server, "CONFIG SET latency-monitor-threshold 5; GET k; KEYS *");
    let noted = "*1\r\n*2\r\n:7\r\n:5\r\n";
    assert_eq!((history("fast-command").as_str(), history("command").as_str()), (noted, noted));
    let latest = told(&server, "LATENCY LATEST");
    for kind in ["$7\r\ncommand", "$12\r\nfast-command"] {
        assert!(latest.contains(&format!("*4\r\n{kind}\r\n:7\r\n:5\r\n:5\r\n")), "{latest}");
    }
    assert_eq!(told(&server, "LATENCY RESET fast-command; LATENCY HISTORY fast-command"), ":1\r\n*0\r\n");
    told(&server, "CONFIG SET latency-monitor-threshold 0");
    assert_eq!(told(&server, "LATENCY RESET; GET k; LATENCY LATEST"), ":1\r\n$-1\r\n*0\r\n");
}

#[test]
fn counts_begin_anew_when_they_are_reset() {
    let server = slow_server();
    told(&server, "SET k 1; GET k; GET none; LPUSH k x; LATENCY HISTOGRAM get");
    let info = told(&server, "INFO everything");
    let counts = [
        "cmdstat_get:calls=2,usec=10000,",
        "percentiles_usec_get:p50=5",
        "errorstat_WRONGTYPE:count=1",
        "keyspace_hits:1",
    ];
    assert!(counts.iter().all(|line| info.contains(line)), "{info}");
    assert_eq!(told(&server, "CONFIG RESETSTAT; LATENCY HISTOGRAM get"), "+OK\r\n*0\r\n");
    let info = told(&server, "INFO everything");
    for gone in ["cmdstat_get:", "cmdstat_lpush:", "usec_get:", "errorstat_"] {
        assert!(!info.contains(gone), "{info}");
    }
    for count in
        ["keyspace_hits", "keyspace_misses", "total_error_replies", "total_connections_received", "expired_keys"]
    {
        assert!(info.lines().any(|line| line == format!("{count}:0")), "{count} in {info}");
    }
    // What comes afterwards is counted, with what the reset itself is.
    told(&server, "GET k");
    let info = told(&server, "INFO everything");
    for line in ["cmdstat_get:calls=1,usec=5000,", "cmdstat_config|resetstat:calls=1,", "keyspace_hits:1"] {
        assert!(info.contains(line), "{line} in {info}");
    }
}

#[test]
fn calls_that_wait_are_counted() {
    let server = slow_server();
    let counted = |calls: u64, usec: u64, failed: u64| {
        let info = told(&server, "INFO commandstats");
        let line = info.lines().find(|line| line.starts_with("cmdstat_blpop:")).unwrap_or("no calls");
        let each = usec as f64 / calls as f64;
        let counts =
            format!("calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls=0,failed_calls={failed}");
        assert_eq!(line, format!("cmdstat_blpop:{counts}"));
    };
    let wait = || {
        let mut waits = server.connect();
        assert_eq!(waits.send(b"BLPOP list 0\r\n"), b"");
        waits
    };
    let first = wait();
    counted(1, 5_000, 0);
    // The command is carried out a second time, and then finds something.
    told(&server, "RPUSH list x");
    counted(1, 10_000, 0);
    let others = [wait(), wait()];
    for (number, (waits, how)) in (1..).zip(others.iter().zip(["", "ERROR"])) {
        let unblock = format!("CLIENT UNBLOCK {} {how}", waits.dialogue.session.client.id);
        assert_eq!(told(&server, unblock.trim()), ":1\r\n");
        counted(3, 20_000, number);
    }
    assert!(told(&server, "INFO errorstats").contains("errorstat_UNBLOCKED:count=1"));
    drop((first, others, wait()));
    counted(4, 25_000, 2);
    told(&server, "MULTI; BLPOP list 0; EXEC");
    counted(5, 30_000, 2);
}

#[test]
fn keys_are_told_with_what_is_done_with_them() {
    let server = server(&Arc::default());
    let of = |key: &str, flags: &[&str]| {
        let flags: String = flags.iter().map(|flag| format!("+{flag}\r\n")).collect::<String>();
        format!("*2\r\n${}\r\n{key}\r\n*{}\r\n{flags}", key.len(), flags.lines().count())
    };
    let all = |keys: &[String]| format!("*{}\r\n{}", keys.len(), keys.concat());
    let (reads, writes, changes) = (["RO", "access"], ["OW", "update"], ["RW", "access", "update"]);
    let moves = ["RW", "access", "delete"];
    for (request, keys) in [
        ("SET a 1", vec![of("a", &writes)]),
        ("SET a 1 GET", vec![of("a", &changes)]),
        ("MGET a b", vec![of("a", &reads), of("b", &reads)]),
        ("BITFIELD a GET u8 0", vec![of("a", &reads)]),
        ("BITFIELD a INCRBY u8 0 1", vec![of("a", &changes)]),
        ("MIGRATE h 1 a 0 0 COPY", vec![of("a", &moves)]),
        ("MIGRATE h 1 \"\" 0 0 AUTH KEYS KEYS a b", vec![of("a", &moves), of("b", &moves)]),
        ("SORT a BY w_* STORE b", vec![of("a", &reads), of("b", &writes)]),
    ] {
        assert_eq!(told(&server, &format!("COMMAND GETKEYSANDFLAGS {request}")), all(&keys), "{request}");
    }
    for (request, part) in [
        (
            "COMMAND INFO GETEX",
            "*1\r\n*8\r\n$5\r\nnotes\r\n$45\r\nThe time at which the key expires may change.\r\n$5\r\nflags\r\n",
        ),
        ("COMMAND INFO EXEC", "+skip_slowlog\r\n"),
        ("COMMAND INFO EVAL", "+no_mandatory_keys\r\n+skip_monitor\r\n"),
        ("COMMAND INFO SAVE", "+no_async_loading\r\n"),
        ("COMMAND DOCS HSET", "$7\r\nhistory\r\n*1\r\n*2\r\n$5\r\n4.0.0\r\n"),
    ] {
        let said = told(&server, request);
        assert!(said.contains(part), "{request}: {said}");
    }
    assert_eq!(told(&server, "COMMAND GETKEYSANDFLAGS PING x"), "-ERR The command has no key arguments\r\n");
}

#[test]
fn events_that_take_long_are_noted() {
    let clock = Arc::<ManualClock>::default();
    let server = server(&clock);
    assert_eq!(told(&server, "LATENCY LATEST; LATENCY RESET"), "*0\r\n:0\r\n");
    for took_ms in [3, 7] {
        server.shared.latencies.add("command", Sample { at_s: 5, took_ms });
    }
    assert_eq!(told(&server, "LATENCY HISTORY command"), "*1\r\n*2\r\n:5\r\n:7\r\n");
    assert_eq!(told(&server, "LATENCY LATEST"), "*1\r\n*4\r\n$7\r\ncommand\r\n:5\r\n:7\r\n:7\r\n");
    assert!(told(&server, "LATENCY GRAPH command").contains("command - high 7 ms, low 7 ms"));
    assert!(told(&server, "LATENCY DOCTOR").contains("command: 1 seconds"));
    assert_eq!(
        told(&server, "LATENCY RESET fast-command; LATENCY RESET command; LATENCY LATEST"),
        ":0\r\n:1\r\n*0\r\n"
    );
}
