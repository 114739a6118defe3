//! What happens now: the difference between two answers of a process, per second.

use crate::status::{Clients, Database, Fabric, MemoryNode, Status, Worker};
use serde::Serialize;

/// What happened between two answers, per second unless a name says something else.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Time between the answers, by the clock of the process; 0 if there was only one answer, or the process was
    /// another one.
    pub seconds: f64,
    /// Processor time, seconds a second.
    pub cores: f64,
    /// Commands.
    pub commands: f64,
    /// Error replies.
    pub errors: f64,
    /// Bytes of requests.
    pub received_bytes: f64,
    /// Bytes of replies.
    pub sent_bytes: f64,
    /// How long commands that only read took.
    pub reads: Quantiles,
    /// How long commands of runs that write took.
    pub writes: Quantiles,
    /// Share of the time that writers waited; above 1 if several did.
    pub stalled: f64,
    /// The same by cause, in the order of the status.
    pub stalled_by_cause: Vec<f64>,
    /// Round trips.
    pub round_trips: f64,
    /// Bytes from memory nodes.
    pub fabric_read_bytes: f64,
    /// Bytes to memory nodes.
    pub fabric_written_bytes: f64,
    /// Bytes from storage.
    pub storage_read_bytes: f64,
    /// Bytes to storage, without logs in files.
    pub storage_written_bytes: f64,
    /// Syncs of storage.
    pub syncs: f64,
    /// Bytes of records that were logged.
    pub log_bytes: f64,
    /// Flushes.
    pub flushes: f64,
    /// Compactions.
    pub compactions: f64,
    /// Bytes that compactions wrote.
    pub compaction_written_bytes: f64,
    /// Calls of memory nodes.
    pub calls: f64,
    /// Jobs of memory nodes that ended well.
    pub jobs: f64,
    /// Attempts of a worker that went well.
    pub attempts: f64,
    /// Bytes that a worker read.
    pub worker_read_bytes: f64,
    /// Bytes that a worker wrote.
    pub worker_written_bytes: f64,
}

/// Durations in seconds below which a share of the commands stayed; `None` if there were no commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of them.
    pub p50: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
}

impl Rates {
    /// What happened between two answers.
    #[must_use]
    pub fn between(before: &Status, after: &Status) -> Self {
        let seconds = after.process.uptime_seconds - before.process.uptime_seconds;
        let is_same = after.process.started_seconds == before.process.started_seconds;
        if !is_same || seconds <= 0.0 {
            return Self::default();
        }
        let change = Change { before, after, seconds };
        let causes = after.database.iter().flat_map(|database| 0..database.stalls.len());
        Self {
            seconds,
            cores: change.rate(|status| status.process.cpu_seconds),
            commands: change.of_clients(|clients| clients.commands),
            errors: change.of_clients(|clients| clients.errors),
            received_bytes: change.of_clients(|clients| clients.received_bytes),
            sent_bytes: change.of_clients(|clients| clients.sent_bytes),
            reads: change.quantiles("read"),
            writes: change.quantiles("write"),
            stalled: change.of_database(|database| database.stalls.iter().map(|stalls| stalls.seconds).sum()),
            stalled_by_cause: causes
                .map(|place| {
                    change.of_database(|database| database.stalls.get(place).map_or(0.0, |stalls| stalls.seconds))
                })
                .collect(),
            round_trips: change.of_fabric(|fabric| fabric.round_trips),
            fabric_read_bytes: change.of_fabric(|fabric| fabric.read_bytes),
            fabric_written_bytes: change.of_fabric(|fabric| fabric.written_bytes),
            storage_read_bytes: change.of_database(|database| database.objects.read_bytes as f64),
            storage_written_bytes: change.of_database(|database| database.objects.written_bytes as f64),
            syncs: change.of_database(|database| database.objects.syncs as f64),
            log_bytes: change.of_database(|database| database.log.bytes as f64),
            flushes: change.of_database(|database| database.flushes as f64),
            compactions: change.of_database(|database| sum(&database.compactions, |done| done.count)),
            compaction_written_bytes: change.of_database(|database| database.compaction_written_bytes as f64),
            calls: change.of_nodes(|node| node.calls),
            jobs: change.of_nodes(|node| node.completed_jobs),
            attempts: change.of_worker(|worker| worker.completed),
            worker_read_bytes: change.of_worker(|worker| worker.read_bytes),
            worker_written_bytes: change.of_worker(|worker| worker.written_bytes),
        }
    }
}

fn sum<T>(parts: &[T], of: impl Fn(&T) -> u64) -> f64 {
    parts.iter().map(of).sum::<u64>() as f64
}

struct Change<'a> {
    before: &'a Status,
    after: &'a Status,
    seconds: f64,
}

impl Change<'_> {
    /// A count that became less was restarted.
    fn rate(&self, of: impl Fn(&Status) -> f64) -> f64 {
        let (was, is) = (of(self.before), of(self.after));
        (if is >= was { is - was } else { is }) / self.seconds
    }

    fn of_clients(&self, of: impl Fn(&Clients) -> u64) -> f64 {
        self.rate(|status| status.clients.as_ref().map_or(0.0, |clients| of(clients) as f64))
    }

    fn of_fabric(&self, of: impl Fn(&Fabric) -> u64) -> f64 {
        self.rate(|status| status.fabric().map(&of).sum::<u64>() as f64)
    }

    fn of_database(&self, of: impl Fn(&Database) -> f64) -> f64 {
        self.rate(|status| status.database.as_ref().map_or(0.0, &of))
    }

    /// Sums over the nodes that answered both times.
    fn of_nodes(&self, of: impl Fn(&MemoryNode) -> u64) -> f64 {
        let was = |node: &MemoryNode| self.before.memory_nodes.iter().find(|before| before.node == node.node);
        let both = self.after.memory_nodes.iter().filter_map(|node| Some((of(was(node)?), of(node))));
        // A count that became less was restarted.
        both.map(|(was, is)| is.checked_sub(was).unwrap_or(is)).sum::<u64>() as f64 / self.seconds
    }

    fn of_worker(&self, of: impl Fn(&Worker) -> u64) -> f64 {
        self.rate(|status| status.worker.as_ref().map_or(0.0, |worker| of(worker) as f64))
    }

    fn quantiles(&self, kind: &str) -> Quantiles {
        let buckets = |status: &Status| {
            let latencies = status.clients.iter().flat_map(|clients| &clients.latencies);
            let mut of_kind = latencies.filter(|latency| latency.kind == kind);
            of_kind.next().map(|latency| latency.buckets.clone()).unwrap_or_default()
        };
        let was = buckets(self.before);
        let counted = |(place, bucket): (usize, &crate::status::Bucket)| {
            let count = bucket.count.saturating_sub(was.get(place).map_or(0, |bucket| bucket.count));
            (bucket.most_seconds, count as f64)
        };
        let counts: Vec<_> = buckets(self.after).iter().enumerate().map(counted).collect();
        let below = |share| quantile(&counts, share);
        Quantiles { p50: below(0.5), p99: below(0.99), p999: below(0.999) }
    }
}

/// Returns the duration below which this share of the buckets' commands stayed, as if each bucket were evenly filled.
/// For the bucket without a bound, whose longest duration is unknown, it returns the least duration.
fn quantile(buckets: &[(Option<f64>, f64)], share: f64) -> Option<f64> {
    let mut left = buckets.iter().map(|(_, count)| count).sum::<f64>() * share;
    let mut least = 0.0;
    for &(most, count) in buckets {
        if count > 0.0 && left <= count {
            return Some(most.map_or(least, |most| least + (most - least) * (left / count)));
        }
        left -= count;
        least = most.unwrap_or(least);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Bucket, Latency, Stalls};

    fn status(uptime_seconds: f64, commands: u64, counts: [u64; 3]) -> Status {
        let bounds = [Some(0.001), Some(0.002), None];
        let buckets = bounds.into_iter().zip(counts).map(|(most_seconds, count)| Bucket { most_seconds, count });
        let latency = Latency { kind: "read".into(), buckets: buckets.collect(), seconds: 0.0 };
        let mut status = Status::default();
        status.process.uptime_seconds = uptime_seconds;
        status.clients = Some(Clients { commands, latencies: vec![latency], ..Clients::default() });
        let stalls = vec![Stalls { cause: "memtables".into(), count: 1, seconds: uptime_seconds / 4.0 }];
        status.database = Some(Database { stalls, ..Database::default() });
        status
    }

    #[test]
    fn rates_are_differences() {
        let rates = Rates::between(&status(10.0, 100, [5, 0, 0]), &status(12.0, 150, [5, 100, 0]));
        assert_eq!((rates.seconds, rates.commands, rates.stalled), (2.0, 25.0, 0.25));
        assert_eq!(rates.stalled_by_cause, [0.25]);
        assert_eq!(rates.reads.p50, Some(0.0015));
        assert_eq!(rates.writes, Quantiles::default());
    }

    /// A node that does not answer for a while does not change the rates of the others.
    #[test]
    fn rates_of_nodes_are_of_those_that_answered_both_times() {
        let with = |uptime_seconds, nodes: &[(&str, u64)]| {
            let node = |(node, calls): &(&str, u64)| MemoryNode {
                node: (*node).into(),
                calls: *calls,
                ..MemoryNode::default()
            };
            Status { memory_nodes: nodes.iter().map(node).collect(), ..status(uptime_seconds, 0, [0; 3]) }
        };
        let (both, one) = (with(1.0, &[("0", 1000), ("1", 10)]), with(2.0, &[("1", 15)]));
        assert_eq!(Rates::between(&both, &one).calls, 5.0);
        assert_eq!(Rates::between(&one, &with(3.0, &[("0", 1000), ("1", 22)])).calls, 7.0);
        assert_eq!(Rates::between(&one, &with(3.0, &[("1", 3)])).calls, 3.0);
    }

    #[test]
    fn what_began_anew_counts_from_zero() {
        let rates = Rates::between(&status(10.0, 100, [5, 0, 0]), &status(11.0, 7, [0, 0, 3]));
        assert_eq!((rates.commands, rates.reads.p99), (7.0, Some(0.002)));
        let mut other = status(12.0, 7, [0; 3]);
        other.process.started_seconds = 1.0;
        assert_eq!(Rates::between(&status(10.0, 100, [0; 3]), &other), Rates::default());
        assert_eq!(Rates::between(&other, &other), Rates::default());
    }
}
