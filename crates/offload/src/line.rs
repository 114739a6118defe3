//! Jobs that wait to be placed: first come, first served, among databases that are served about equally.
//!
//! The job that came first is next, unless its database has been served more bytes than another one whose jobs wait as
//! well, by more than a bound. So a database that bursts gets all there is while others are idle, and holds up another
//! one by no more than the bound. A database that comes back begins with as much as whoever waits had least: nobody
//! saves up.

use crate::job::JobName;
use std::collections::{BTreeMap, VecDeque};

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Waiting {
    arrival: u64,
    name: JobName,
    bytes: u64,
}

/// Jobs of one database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Share {
    waiting: VecDeque<Waiting>,
    /// Bytes of jobs that were placed while others waited, counted from where it began.
    served_bytes: u64,
}

/// Jobs that wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Line {
    shares: BTreeMap<u128, Share>,
    arrivals: u64,
}

impl Line {
    /// Jobs of a database that wait.
    pub fn waiting_of(&self, database: u128) -> usize {
        self.shares.get(&database).map_or(0, |share| share.waiting.len())
    }

    /// A job comes.
    pub fn push(&mut self, name: JobName, bytes: u64) {
        let least = self.shares.values().map(|share| share.served_bytes).min().unwrap_or(0);
        let share = self.shares.entry(name.database).or_default();
        if share.waiting.is_empty() {
            share.served_bytes = share.served_bytes.max(least);
        }
        self.arrivals += 1;
        share.waiting.push_back(Waiting { arrival: self.arrivals, name, bytes });
    }

    /// The jobs that are next, of each database the first, best first: by arrival, but those of databases that are
    /// ahead of another one by more than `most_ahead_bytes` last.
    pub fn next(&self, most_ahead_bytes: u64) -> Vec<JobName> {
        let least = self.shares.values().map(|share| share.served_bytes).min().unwrap_or(0);
        let mut heads: Vec<_> =
            self.shares.values().filter_map(|share| Some((share.served_bytes, share.waiting.front()?))).collect();
        heads.sort_by_key(|(served, first)| (served - least > most_ahead_bytes, first.arrival));
        heads.into_iter().map(|(_, first)| first.name).collect()
    }

    /// A job waits no more. If it `was_placed`, its bytes count.
    pub fn remove(&mut self, name: JobName, was_placed: bool) {
        let Some(share) = self.shares.get_mut(&name.database) else { return };
        let Some(at) = share.waiting.iter().position(|waiting| waiting.name == name) else { return };
        if let Some(waiting) = share.waiting.remove(at)
            && was_placed
        {
            share.served_bytes = share.served_bytes.saturating_add(waiting.bytes);
        }
        // Who waits for nothing holds up nobody, and is not owed anything.
        self.shares.retain(|_, share| !share.waiting.is_empty());
        let least = self.shares.values().map(|share| share.served_bytes).min().unwrap_or(0);
        self.shares.values_mut().for_each(|share| share.served_bytes -= least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(database: u128, job: u64) -> JobName {
        JobName { database, shard: 0, epoch: 1, job }
    }

    /// Serves `count` jobs, and returns whose they were.
    fn serve(line: &mut Line, most_ahead: u64, count: usize) -> Vec<u128> {
        let mut served = Vec::new();
        for _ in 0..count {
            let Some(&next) = line.next(most_ahead).first() else { break };
            line.remove(next, true);
            served.push(next.database);
        }
        served
    }

    #[test]
    fn who_came_first_is_first() {
        let mut line = Line::default();
        for (database, number) in [(1, 1), (2, 1), (1, 2), (3, 1)] {
            line.push(job(database, number), 10);
        }
        assert_eq!(serve(&mut line, 1000, 9), [1, 2, 1, 3]);
        assert_eq!(line.shares.len(), 0);
    }

    #[test]
    fn a_burst_holds_up_another_database_by_no_more_than_the_bound() {
        let mut line = Line::default();
        for number in 0..100 {
            line.push(job(1, number), 10);
        }
        for number in 0..10 {
            line.push(job(2, number), 10);
        }
        let served = serve(&mut line, 30, 24);
        // Four jobs of the burst are 40 bytes, more than the bound; from then on both are served in turns.
        assert_eq!(&served[..4], [1, 1, 1, 1]);
        assert_eq!(served.iter().filter(|&&database| database == 2).count(), 10, "{served:?}");
        // What others do not use, the burst gets.
        assert_eq!(serve(&mut line, 30, 200).len(), 86);
    }

    #[test]
    fn nobody_saves_up() {
        let mut line = Line::default();
        for number in 0..20 {
            line.push(job(1, number), 10);
            line.push(job(2, number), 10);
        }
        serve(&mut line, 0, 20);
        for number in 0..10 {
            line.push(job(3, number), 10);
        }
        let served = serve(&mut line, 0, 9);
        for database in 1..=3 {
            assert!(served.iter().filter(|&&of| of == database).count() <= 4, "{served:?}");
        }
    }
}
