//! Jobs that wait to be placed: first come, first served, with about equal service for each database.
//!
//! The job that came first is next, unless its database is ahead: it has been served more bytes than another database
//! whose jobs also wait, by more than a bound. So a database that bursts gets all the room while others are idle, and
//! holds up another one by no more than the bound. A database that comes back starts at the served bytes of the waiting
//! database that was served least: nobody saves up.

use crate::job::JobName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Included};

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
    /// Bytes of jobs that were placed while others waited, on top of the least that any waiting database had been
    /// served when this one came.
    served_bytes: u128,
    /// Whether the database was served more than another one, by more than the bound.
    is_ahead: bool,
}

impl Share {
    /// Returns the database's first job, and its standing among those of others.
    fn first(&self) -> Option<(Standing, JobName)> {
        let first = self.waiting.front()?;
        Some(((self.is_ahead, first.arrival), first.name))
    }
}

/// Whether the database is ahead of others, and when the job arrived. The job with the least standing is next.
type Standing = (bool, u64);

/// Jobs that wait. No call looks at all of them: a database that fills the line must not slow down the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line {
    most_ahead_bytes: u128,
    shares: BTreeMap<u128, Share>,
    /// The first job of each database, except those that were taken.
    firsts: BTreeMap<Standing, JobName>,
    /// The databases by the bytes that they were served.
    served: BTreeSet<(u128, u128)>,
    arrivals: u64,
}

impl Line {
    /// Makes an empty line, with the bound.
    pub fn new(most_ahead_bytes: u64) -> Self {
        Self {
            most_ahead_bytes: most_ahead_bytes.into(),
            shares: BTreeMap::new(),
            firsts: BTreeMap::new(),
            served: BTreeSet::new(),
            arrivals: 0,
        }
    }

    /// Returns how many jobs of a database wait.
    pub fn waiting_of(&self, database: u128) -> usize {
        self.shares.get(&database).map_or(0, |share| share.waiting.len())
    }

    /// Adds a job.
    pub fn push(&mut self, name: JobName, bytes: u64) {
        let database = name.database;
        let least = self.least();
        let share = self.shares.entry(database).or_insert_with(|| {
            self.served.insert((least, database));
            Share { served_bytes: least, ..Share::default() }
        });
        self.arrivals += 1;
        share.waiting.push_back(Waiting { arrival: self.arrivals, name, bytes });
        self.put_back(database);
    }

    /// Takes the next job, from the first jobs of the databases. Afterwards remove the job, or put its database back.
    pub fn take(&mut self) -> Option<JobName> {
        self.firsts.pop_first().map(|(_, name)| name)
    }

    /// Lets the first job of a database be taken again.
    pub fn put_back(&mut self, database: u128) {
        let least = self.least();
        let Some(share) = self.shares.get_mut(&database) else { return };
        if let Some((standing, _)) = share.first() {
            self.firsts.remove(&standing);
        }
        share.is_ahead = share.served_bytes.saturating_sub(least) > self.most_ahead_bytes;
        self.firsts.extend(share.first());
    }

    /// Removes a job. If it `was_placed`, its bytes count.
    pub fn remove(&mut self, name: JobName, was_placed: bool) {
        let waiting = self.shares.get(&name.database).map(|share| &share.waiting);
        if let Some(at) = waiting.and_then(|waiting| waiting.iter().position(|waiting| waiting.name == name)) {
            self.remove_at(name.database, at, was_placed);
        }
    }

    /// Removes the job of a database that came last.
    pub fn take_last(&mut self, database: u128) -> Option<JobName> {
        let waiting = &self.shares.get(&database)?.waiting;
        let (at, last) = (waiting.len().checked_sub(1)?, waiting.back()?.name);
        self.remove_at(database, at, false);
        Some(last)
    }

    fn remove_at(&mut self, database: u128, at: usize, was_placed: bool) {
        let least = self.least();
        let Some(share) = self.shares.get_mut(&database) else { return };
        if let Some((standing, _)) = share.first() {
            self.firsts.remove(&standing);
        }
        self.served.remove(&(share.served_bytes, database));
        if let Some(waiting) = share.waiting.remove(at)
            && was_placed
        {
            share.served_bytes = share.served_bytes.saturating_add(waiting.bytes.into());
        }
        // A database without waiting jobs holds up nobody, and is owed nothing.
        if share.waiting.is_empty() {
            self.shares.remove(&database);
        } else {
            self.served.insert((share.served_bytes, database));
            self.put_back(database);
        }
        self.least_rose(least);
    }

    /// Returns the bytes of the database that was served least.
    fn least(&self) -> u128 {
        self.served.first().map_or(0, |&(least, _)| least)
    }

    /// Updates the databases that are no longer ahead, now that the least is more than `before`.
    fn least_rose(&mut self, before: u128) {
        let reach = |least: u128| (least.saturating_add(self.most_ahead_bytes), u128::MAX);
        let now = self.least().max(before);
        let caught_up = self.served.range((Excluded(reach(before)), Included(reach(now))));
        let caught_up: Vec<u128> = caught_up.map(|&(_, database)| database).collect();
        caught_up.into_iter().for_each(|database| self.put_back(database));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(database: u128, job: u64) -> JobName {
        JobName { database, shard: 0, epoch: 1, job }
    }

    /// Serves `count` jobs, and returns whose they were.
    fn serve(line: &mut Line, count: usize) -> Vec<u128> {
        let mut served = Vec::new();
        for _ in 0..count {
            let Some(next) = line.take() else { break };
            line.remove(next, true);
            served.push(next.database);
        }
        served
    }

    #[test]
    fn who_came_first_is_first() {
        let mut line = Line::new(1000);
        for (database, number) in [(1, 1), (2, 1), (1, 2), (3, 1)] {
            line.push(job(database, number), 10);
        }
        assert_eq!(serve(&mut line, 9), [1, 2, 1, 3]);
        assert_eq!((line.shares.len(), line.served.len(), line.firsts.len()), (0, 0, 0));
    }

    #[test]
    fn a_burst_holds_up_another_database_by_no_more_than_the_bound() {
        let mut line = Line::new(30);
        for number in 0..100 {
            line.push(job(1, number), 10);
        }
        for number in 0..10 {
            line.push(job(2, number), 10);
        }
        let served = serve(&mut line, 24);
        // Four jobs of the burst are 40 bytes, more than the bound; from then on both are served alternately.
        assert_eq!(&served[..4], [1, 1, 1, 1]);
        assert_eq!(served.iter().filter(|&&database| database == 2).count(), 10, "{served:?}");
        // The burst gets what others do not use.
        assert_eq!(serve(&mut line, 200).len(), 86);
    }

    #[test]
    fn nobody_saves_up() {
        let mut line = Line::new(0);
        for number in 0..20 {
            line.push(job(1, number), 10);
            line.push(job(2, number), 10);
        }
        serve(&mut line, 20);
        for number in 0..10 {
            line.push(job(3, number), 10);
        }
        let served = serve(&mut line, 9);
        for database in 1..=3 {
            assert!(served.iter().filter(|&&of| of == database).count() <= 4, "{served:?}");
        }
    }
}
