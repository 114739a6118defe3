//! What is counted of commands, and events that took long.

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

#[test]
fn keys_are_told_with_what_is_done_with_them() {
    let server = server(&Arc::default());
    let keys = told(
        &server,
        "COMMAND GETKEYSANDFLAGS SET a 1; COMMAND GETKEYSANDFLAGS MGET a b; COMMAND GETKEYSANDFLAGS PING x",
    );
    let of = |key: &str, access: &str| format!("*2\r\n$1\r\n{key}\r\n*1\r\n+{access}\r\n");
    let expected = format!("*1\r\n{}*2\r\n{}{}", of("a", "RW"), of("a", "RO"), of("b", "RO"));
    assert_eq!(keys, expected + "-ERR The command has no key arguments\r\n");
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
