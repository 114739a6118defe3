//! A status and its rates as lines. Text from another process reaches a terminal without control characters.

use super::figures::{bar, bytes, duration, percent, short};
use forebay_admin::Rates;
use forebay_admin::rates::Quantiles;
use forebay_admin::status::{Clients, Database, MemoryNode, Process, SharedTree, Status};

/// Places of a bar.
const BAR: usize = 20;
/// Slow commands that are shown.
const SLOW: usize = 8;

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Figures.
    Plain,
    /// The heading of a part.
    Heading,
    /// Something that an operator must act on.
    Bad,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The text of the line.
    pub text: String,
    /// The kind of the line.
    pub tone: Tone,
}

#[derive(Default)]
struct Lines(Vec<Line>);

impl Lines {
    fn add(&mut self, tone: Tone, text: &str) {
        let text = text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect();
        self.0.push(Line { text, tone });
    }

    fn heading(&mut self, text: &str) {
        self.add(Tone::Plain, "");
        self.add(Tone::Heading, text);
    }

    fn plain(&mut self, text: &str) {
        self.add(Tone::Plain, text);
    }
}

/// Returns all that is shown of a process.
pub fn lines(status: &Status, rates: &Rates) -> Vec<Line> {
    let mut lines = Lines::default();
    process(&mut lines, &status.process, rates);
    if let Some(why) = &status.unreachable {
        lines.add(Tone::Bad, &format!("no answer of {why}"));
    }
    if let Some(shown) = &status.clients {
        clients(&mut lines, shown, rates);
    }
    if status.database.is_some() || status.tree.is_some() {
        traffic(&mut lines, status, rates);
    }
    if let Some(shown) = &status.database {
        levels(&mut lines, shown);
        background(&mut lines, shown, rates);
        stalls(&mut lines, shown, rates);
    }
    if let Some(shown) = &status.tree {
        shared_tree(&mut lines, shown);
    }
    nodes(&mut lines, status, rates);
    tenants(&mut lines, status);
    if let Some(worker) = &status.worker {
        lines.heading("JOBS");
        let Rates { attempts, worker_read_bytes, worker_written_bytes, .. } = rates;
        lines.plain(&format!(
            "{}/s, {} done, {} failed   reads {}/s   writes {}/s",
            short(*attempts),
            short(worker.completed as f64),
            short(worker.failed as f64),
            bytes(*worker_read_bytes),
            bytes(*worker_written_bytes)
        ));
    }
    if let Some(scheduler) = &status.scheduler {
        lines.heading("SCHEDULER");
        lines.plain(&scheduler.term.map_or("stands by".to_owned(), |term| format!("elected, in term {term}")));
    }
    if let Some(shown) = status.clients.as_ref().filter(|clients| !clients.slow.is_empty()) {
        lines.heading("SLOW COMMANDS");
        for slow in shown.slow.iter().take(SLOW) {
            lines.plain(&format!("{:>9}  {:<21}  {}", duration(Some(slow.seconds)), slow.client, slow.command));
        }
    }
    lines.0
}

/// The line above the last status, when no status comes any more.
pub fn no_answer(why: &str) -> Line {
    let mut lines = Lines::default();
    lines.add(Tone::Bad, &format!("NO ANSWER, what follows is the last one: {why}"));
    lines.0.remove(0)
}

fn process(lines: &mut Lines, process: &Process, rates: &Rates) {
    let Process { role, version, address, uptime_seconds, resident_bytes, not_ready, .. } = process;
    lines.add(
        Tone::Heading,
        &format!(
            "forebay {role} {address}   version {version}, up {}, {} cores, {} resident",
            duration(Some(*uptime_seconds)),
            short(rates.cores),
            bytes(*resident_bytes as f64)
        ),
    );
    if !not_ready.is_empty() {
        lines.add(Tone::Bad, &format!("not ready: {not_ready}"));
    }
}

fn clients(lines: &mut Lines, clients: &Clients, rates: &Rates) {
    lines.heading("CLIENTS");
    let looked = clients.hits + clients.misses;
    lines.plain(&format!(
        "{} commands/s, {} errors/s   {} connected, {} blocked   {} of keys found",
        short(rates.commands),
        short(rates.errors),
        short(clients.connected as f64),
        short(clients.blocked as f64),
        if looked == 0 { "–".to_owned() } else { percent(clients.hits as f64 / looked as f64) }
    ));
    for (kind, Quantiles { p50, p99, p999 }) in [("reads", rates.reads), ("writes", rates.writes)] {
        lines.plain(&format!(
            "{kind:<8}median {:>8}   p99 {:>8}   p99.9 {:>8}",
            duration(p50),
            duration(p99),
            duration(p999)
        ));
    }
}

fn traffic(lines: &mut Lines, status: &Status, rates: &Rates) {
    lines.heading("TRAFFIC                       there          back");
    let mut way = |name: &str, there: f64, back: f64, more: String| {
        lines.plain(&format!("{name:<22}{:>11}/s {:>11}/s   {more}", bytes(there), bytes(back)));
    };
    if status.clients.is_some() {
        way("clients, compute node", rates.received_bytes, rates.sent_bytes, String::new());
    }
    let round_trips = format!("{} round trips/s", short(rates.round_trips));
    way("compute, memory nodes", rates.fabric_written_bytes, rates.fabric_read_bytes, round_trips);
    let Some(database) = &status.database else { return };
    if !database.storage.is_empty() {
        let syncs = format!("{} syncs/s, {}", short(rates.syncs), database.storage);
        way("compute node, storage", rates.storage_written_bytes, rates.storage_read_bytes, syncs);
    }
    lines.plain(&format!(
        "log of writes         {:>11}/s                 {}",
        bytes(rates.log_bytes),
        database.durability
    ));
}

fn shared_tree(lines: &mut Lines, tree: &SharedTree) {
    lines.heading("SHARED TREE");
    lines.plain(&format!(
        "{}: {} keys, {} of {} in use, {} of inner nodes remembered",
        tree.name,
        short(tree.keys as f64),
        bytes(tree.live_bytes as f64),
        bytes(tree.used_bytes as f64),
        bytes(tree.cached_bytes as f64)
    ));
    if tree.unfinished > 0 {
        lines.add(Tone::Bad, &format!("{} batches wait for memory: free some, or add some", tree.unfinished));
    }
}

fn levels(lines: &mut Lines, database: &Database) {
    lines.heading("TREE   tier                               size    entries  tables    runs");
    let most = database.levels.iter().map(|level| level.bytes).max().unwrap_or(0).max(1);
    let shown = database.levels.iter().rposition(|level| level.tables > 0).map_or(1, |deepest| deepest + 1);
    for (number, level) in database.levels.iter().enumerate().take(shown) {
        lines.plain(&format!(
            "L{number:<6}{:<8} {} {:>10} {:>10} {:>7} {:>7}",
            level.tier,
            bar(level.bytes as f64 / most as f64, BAR),
            bytes(level.bytes as f64),
            short(level.entries as f64),
            short(level.tables as f64),
            short(level.runs as f64)
        ));
    }
    lines.plain(&format!(
        "memtables {}, cached indexes {}, dead {}, held by readers {}",
        bytes(database.memtable_bytes as f64),
        bytes(database.cached_index_bytes as f64),
        bytes(database.dead_bytes as f64),
        bytes(database.pinned_bytes as f64)
    ));
}

fn background(lines: &mut Lines, database: &Database, rates: &Rates) {
    lines.heading("BACKGROUND");
    let places = database.compactions.iter().filter(|done| done.count > 0);
    let places: Vec<String> = places.map(|done| format!("{} at {}", short(done.count as f64), done.place)).collect();
    lines.plain(&format!(
        "flushes {}/s, {} running, {} waiting   compactions {}/s, {} running, write {}/s{}{}",
        short(rates.flushes),
        database.running_flushes,
        database.sealed_memtables,
        short(rates.compactions),
        database.running_compactions,
        bytes(rates.compaction_written_bytes),
        if places.is_empty() { "" } else { "; " },
        places.join(", ")
    ));
    if database.missing_copies > 0 {
        lines.add(
            Tone::Bad,
            &format!("{} copies of shards are missing: memory nodes were lost", database.missing_copies),
        );
    }
    if database.failed_shards > 0 {
        lines.add(Tone::Bad, &format!("background work of {} shards has failed: see the log", database.failed_shards));
    }
}

fn stalls(lines: &mut Lines, database: &Database, rates: &Rates) {
    lines.heading(&format!(
        "STALLS                                    now   stalls    in all   ({} of the time)",
        percent(rates.stalled)
    ));
    for (place, stalls) in database.stalls.iter().enumerate() {
        let now = rates.stalled_by_cause.get(place).copied().unwrap_or(0.0);
        let line = format!(
            "{:<17} {} {:>6} {:>8} {:>9}",
            stalls.cause,
            bar(now, BAR),
            percent(now),
            short(stalls.count as f64),
            duration(Some(stalls.seconds))
        );
        lines.add(if now > 0.2 { Tone::Bad } else { Tone::Plain }, &line);
    }
}

fn nodes(lines: &mut Lines, status: &Status, rates: &Rates) {
    if status.memory_nodes.is_empty() {
        return;
    }
    lines.heading(&format!("MEMORY NODES   {} calls/s, {} jobs/s", short(rates.calls), short(rates.jobs)));
    for node in &status.memory_nodes {
        let MemoryNode { allocated_bytes, memory_bytes, sessions, running_jobs, queued_jobs, .. } = node;
        let share = *allocated_bytes as f64 / (*memory_bytes).max(1) as f64;
        let line = format!(
            "node {:<5}{} {:>5} of {:<10} {sessions} sessions, {} of {} shards owned, jobs: {running_jobs} running, \
             {queued_jobs} waiting, {} failed",
            node.node,
            bar(share, BAR),
            percent(share),
            bytes(*memory_bytes as f64),
            node.owned_shards,
            node.shards,
            short(node.failed_jobs as f64)
        );
        lines.add(if share > 0.9 { Tone::Bad } else { Tone::Plain }, &line);
        let states = node.extents.iter().filter(|extents| extents.bytes > 0);
        let states: Vec<String> =
            states.map(|extents| format!("{} {}", extents.state, bytes(extents.bytes as f64))).collect();
        lines.plain(&format!("          {}", states.join(", ")));
    }
}

fn tenants(lines: &mut Lines, status: &Status) {
    if status.tenants.is_empty() {
        return;
    }
    lines.heading(
        "TENANTS                      memory         of  sessions   jobs      calls  refused  limited  denied",
    );
    for tenant in &status.tenants {
        let figures = [tenant.calls, tenant.refused_calls, tenant.limited_calls, tenant.denied_calls];
        let [calls, refused, limited, denied] = figures.map(|figure| short(figure as f64));
        let line = format!(
            "{:<24} {:>10} {:>10} {:>9} {:>6} {calls:>10} {refused:>8} {limited:>8} {denied:>7}",
            tenant.name,
            bytes(tenant.memory_bytes as f64),
            bytes(tenant.most_memory_bytes as f64),
            tenant.sessions,
            tenant.jobs
        );
        lines.plain(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_admin::status::{Level, Slow, Stalls, Tenant};

    fn text(status: &Status, rates: &Rates) -> String {
        lines(status, rates).into_iter().map(|line| line.text + "\n").collect()
    }

    #[test]
    fn parts_that_are_not_there_are_not_shown() {
        let shown = text(&Status::default(), &Rates::default());
        assert_eq!(shown.lines().count(), 1, "{shown}");
        let node = Status { memory_nodes: vec![MemoryNode::default()], ..Status::default() };
        let shown = text(&node, &Rates::default());
        assert!(shown.contains("MEMORY NODES") && !shown.contains("TREE"), "{shown}");
    }

    #[test]
    fn a_shared_tree_is_shown() {
        let tree = SharedTree { name: "shop".into(), keys: 7, unfinished: 2, ..SharedTree::default() };
        let shown = text(&Status { tree: Some(tree), ..Status::default() }, &Rates::default());
        assert!(shown.contains("shop: 7 keys") && shown.contains("2 batches wait for memory"), "{shown}");
    }

    #[test]
    fn what_others_say_cannot_control_the_terminal() {
        let slow = Slow { command: "\x1b[2Jget \u{9b}".into(), client: "\r\n".into(), ..Slow::default() };
        let status = Status {
            process: Process { role: "\x07".into(), not_ready: "\x1b]0;x\x07".into(), ..Process::default() },
            clients: Some(Clients { slow: vec![slow], ..Clients::default() }),
            tenants: vec![Tenant { name: "\x1b[31m".into(), ..Tenant::default() }],
            ..Status::default()
        };
        let shown = lines(&status, &Rates::default());
        assert!(shown.iter().all(|line| !line.text.contains(char::is_control)), "{shown:?}");
    }

    #[test]
    fn trouble_stands_out() {
        let stalls = vec![Stalls { cause: "memory_full".into(), count: 2, seconds: 3.0 }];
        let levels = vec![Level { tables: 1, bytes: 10, ..Level::default() }, Level::default()];
        let status = Status {
            unreachable: Some("gone".into()),
            database: Some(Database { failed_shards: 1, stalls, levels, ..Database::default() }),
            ..Status::default()
        };
        let rates = Rates { stalled_by_cause: vec![0.5], ..Rates::default() };
        let bad: Vec<_> = lines(&status, &rates).into_iter().filter(|line| line.tone == Tone::Bad).collect();
        assert_eq!(bad.len(), 3, "{bad:?}");
        assert!(bad.iter().any(|line| line.text.starts_with("memory_full") && line.text.contains("50 %")), "{bad:?}");
    }
}
