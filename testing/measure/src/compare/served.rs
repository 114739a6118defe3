//! redis-benchmark on redis-server and on `forebay serve`, in the same run.

use super::findings::{Findings, Goal, Row, Unit};
use super::group::{Bench, Group, Section};
use crate::Outcome;
use crate::processes::{MemoryNode, Running, memory_flag, output};
use crate::scratch::Scratch;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// How it is measured, for the page.
pub const ABOUT: &str = "`redis-benchmark -c 50 -d 64` with random keys out of a million, over loopback, SET first and then GET, on \
                         `redis-server`\nwithout snapshots and on `forebay serve --durability none`, one after the other. A server's thread and the \
                         client's share the\ntwo cores; both servers have one thread unless a row says otherwise, and then only Forebay has more. \
                         Durable rows have\n`--appendfsync everysec` and `--path`, which syncs once a second. The rows of large data have 400 B values: \
                         Redis holds\nthem in its memory, Forebay's lie in a memory node of another process; its own memory is what the system counts as\n\
                         anonymous.";

const REDIS: &str = "redis-server";
const CLIENT: &str = "redis-benchmark";
const MILLION: u64 = 1_000_000;

/// The server's version.
///
/// # Errors
/// When the program is missing.
pub fn version() -> Outcome<String> {
    let text = output(Path::new(REDIS), &["--version".into()])
        .map_err(|error| format!("{error}; install Debian's package redis-server: `apt-get install redis-server`"))?;
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(format!("{REDIS} {}", version.unwrap_or("of an unknown version")))
}

/// All groups.
pub fn groups() -> Vec<Group> {
    let group = |name, about, measure| Group::new(Section::Served, name, about, measure);
    vec![
        group("served", "GET and SET, pipelines of 1, 16 and 64: rates and 99th percentiles", volatile),
        group("served-durable", "SET, synced once a second", durable),
        group("served-large", "GET and SET of data ten times the server's own memory", large),
    ]
}

/// A running server.
struct Server {
    process: Running,
    port: u16,
}

/// Starts redis-server with these flags.
fn redis(flags: &[&str]) -> Outcome<Server> {
    let failed = |error: std::io::Error| format!("a port: {error}");
    let port =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).map_err(failed)?;
    let mut arguments: Vec<String> = ["--bind", "127.0.0.1", "--save", "", "--port"].map(String::from).to_vec();
    arguments.push(port.port().to_string());
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let ready = |line: &str| line.contains("Ready to accept connections");
    let (process, _) = Running::start(Path::new(REDIS), &arguments, ready)?;
    Ok(Server { process, port: port.port() })
}

/// Starts `forebay serve` with these flags.
fn forebay(bench: &Bench, flags: &[String]) -> Outcome<Server> {
    let usual = ["serve", "--listen=127.0.0.1:0", "--admin=none"].map(String::from);
    let arguments = [&usual[..], flags].concat();
    let (process, line) = bench.forebay.start(arguments)?;
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
    Ok(Server { process, port: port.ok_or_else(|| format!("the server does not say its port: {line}"))? })
}

/// The options of redis-benchmark.
#[derive(Clone, Copy)]
struct Load {
    requests: u64,
    keys: u64,
    value_bytes: u64,
    pipeline: u64,
}

/// The result for one command.
#[derive(Debug, Clone, PartialEq)]
struct Served {
    command: String,
    per_second: f64,
    p99_ms: f64,
}

impl Server {
    /// Runs commands.
    fn load(&self, commands: &str, load: Load) -> Outcome<Vec<Served>> {
        let arguments = [
            "-p".to_owned(),
            self.port.to_string(),
            "-c".into(),
            "50".into(),
            "-n".into(),
            load.requests.to_string(),
            "-r".into(),
            load.keys.to_string(),
            "-d".into(),
            load.value_bytes.to_string(),
            "-P".into(),
            load.pipeline.to_string(),
            "-t".into(),
            commands.into(),
            "--csv".into(),
        ];
        let text = output(Path::new(CLIENT), &arguments)?;
        let found: Vec<_> = text.lines().filter_map(result).collect();
        if found.len() == commands.split(',').count() { Ok(found) } else { Err(format!("{CLIENT} printed: {text}")) }
    }

    /// Private memory of the process, bytes.
    fn own_bytes(&self) -> Outcome<u64> {
        let path = format!("/proc/{}/status", self.process.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| format!("{path} does not say the process's memory"))
    }
}

/// `"SET","123456.79","0.350","0.072","0.327","0.543","0.719","3.271"`: rate, and latencies in milliseconds; the fifth is
/// the 99th percentile.
fn result(line: &str) -> Option<Served> {
    let cells: Vec<&str> = line.split(',').map(|cell| cell.trim_matches('"')).collect();
    let number = |place: usize| cells.get(place)?.parse::<f64>().ok();
    Some(Served { command: (*cells.first()?).to_owned(), per_second: number(1)?, p99_ms: number(6)? })
}

/// Rates and 99th percentiles side by side.
fn rows(
    findings: &mut Findings,
    what: &str,
    ours: &[Served],
    theirs: Option<&[Served]>,
    goals: (Option<f64>, Option<f64>),
) {
    for (place, ours) in ours.iter().enumerate() {
        let theirs = theirs.and_then(|theirs| theirs.get(place));
        let label = format!("{}, {what}", ours.command);
        let rate = Row::new(label.clone(), Unit::PerSecond, ours.per_second);
        let rate = rate.beside("Redis", theirs.map(|theirs| theirs.per_second));
        findings.rows.push(rate.with_goal(goals.0.map(Goal::TimesAtLeast)));
        let p99 = Row::new(format!("{label}: 99th percentile"), Unit::Milliseconds, ours.p99_ms);
        let p99 = p99.beside("Redis", theirs.map(|theirs| theirs.p99_ms));
        findings.rows.push(p99.with_goal(goals.1.map(Goal::TimesAtMost)));
    }
}

fn volatile(bench: &Bench, findings: &mut Findings) -> Outcome {
    for (pipeline, threads, requests, goal) in
        [(1, 1, MILLION, 1.0), (16, 1, 8 * MILLION, 1.2), (64, 2, 16 * MILLION, 1.5)]
    {
        let load = Load { requests: bench.scaled(requests), keys: MILLION, value_bytes: 64, pipeline };
        let theirs = bench.other(findings, || redis(&["--appendonly", "no"])?.load("set,get", load));
        let flags = ["--durability=none".to_owned(), format!("--threads={threads}")];
        let ours = forebay(bench, &flags)?.load("set,get", load)?;
        let of_threads = if threads > 1 { format!(", {threads} threads") } else { String::new() };
        let what = format!("pipelines of {pipeline}{of_threads}");
        rows(findings, &what, &ours, theirs.as_deref(), (Some(goal), Some(1.5)));
    }
    Ok(())
}

fn durable(bench: &Bench, findings: &mut Findings) -> Outcome {
    for (pipeline, requests, goal) in [(1, 2 * MILLION, Some(0.9)), (16, 8 * MILLION, Some(0.9))] {
        let load = Load { requests: bench.scaled(requests), keys: MILLION, value_bytes: 64, pipeline };
        let folder = Scratch::below(&bench.folder, "served")?;
        let path = folder.path().canonicalize().map_err(|error| error.to_string())?.display().to_string();
        let theirs = bench.other(findings, || {
            redis(&["--appendonly", "yes", "--appendfsync", "everysec", "--dir", &path])?.load("set", load)
        });
        drop(folder);
        let folder = Scratch::below(&bench.folder, "served")?;
        let ours = forebay(bench, &[format!("--path={}", folder.path().display())])?.load("set", load)?;
        rows(
            findings,
            &format!("synced once a second, pipelines of {pipeline}"),
            &ours,
            theirs.as_deref(),
            (goal, None),
        );
    }
    Ok(())
}

/// Data that only a memory node holds, compared with Redis, which has all of it in its memory.
fn large(bench: &Bench, findings: &mut Findings) -> Outcome {
    /// Key and value of a record, and its overhead, bytes.
    const RECORD_BYTES: u64 = 16 + 400;
    const STORED_BYTES: u64 = RECORD_BYTES + 60;
    let keys = bench.scaled(4 * MILLION);
    let load = Load { requests: keys * 2, keys, value_bytes: 400, pipeline: 16 };
    let theirs = bench.other(findings, || redis(&["--appendonly", "no"])?.load("set,get", load));
    let node: MemoryNode = bench.forebay.memory_node(1, (keys * STORED_BYTES * 3).max(2 << 30), 2)?;
    let mut flags = vec!["--durability=none".to_owned(), "--write_buffer_size=8MiB".into()];
    flags.extend(["--max_write_buffer_number=3".to_owned(), "--cached-index-size=32MiB".into()]);
    flags.extend(memory_flag(&[&node]));
    let served = forebay(bench, &flags)?;
    let ours = served.load("set,get", load)?;
    let times = (keys * RECORD_BYTES) as f64 / served.own_bytes()? as f64;
    let what = format!("pipelines of 16, {:.1} GB of data", (keys * RECORD_BYTES) as f64 / 1e9);
    rows(findings, &what, &ours, theirs.as_deref(), (Some(0.5), None));
    let row = Row::new("data, times the memory of the server's own", Unit::Times, times);
    findings.rows.push(row.with_goal(Goal::AtLeast(10.0)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let line = r#""SET","123456.79","0.350","0.072","0.327","0.543","0.719","3.271""#;
        let found = Served { command: "SET".into(), per_second: 123_456.79, p99_ms: 0.719 };
        assert_eq!(result(line), Some(found));
        let heading = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms""#;
        assert_eq!(result(heading), None);
        assert_eq!(result(""), None);
    }
}
