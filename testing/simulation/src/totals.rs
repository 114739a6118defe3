//! Totals of many seeds, and the minimum of each count.

use crate::{CheckpointCounts, DamageCounts, Report};
use std::fmt;

/// Counts of several seeds.
#[derive(Debug, Default)]
pub struct Totals {
    sum: Report,
    /// For each seed: calls, memtables flushed, compactions, deliberate faults.
    each: [Vec<u64>; 4],
}

impl Totals {
    /// Adds the counts of a seed.
    pub fn add(&mut self, report: &Report) {
        self.sum.add(report);
        let Report { operations, flushes, compactions, crashes, kills, takeovers, .. } = *report;
        for (each, count) in self.each.iter_mut().zip([operations, flushes, compactions, crashes + kills + takeovers]) {
            each.push(count);
        }
    }

    /// Adds the counts of other seeds.
    pub fn merge(&mut self, other: Self) {
        self.sum.add(&other.sum);
        for (each, others) in self.each.iter_mut().zip(other.each) {
            each.extend(others);
        }
    }

    /// Number of seeds.
    #[must_use]
    pub fn seeds(&self) -> usize {
        self.each[0].len()
    }

    /// Minimum and median of a count.
    fn least_and_median(&self, at: usize) -> String {
        let mut counts = self.each[at].clone();
        counts.sort_unstable();
        match counts.first() {
            Some(least) => format!("{least} to {}", counts[counts.len() / 2]),
            None => "none".to_owned(),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operations, failed, full, flushes, compactions, near_data_compactions, .. } = self.sum;
        let Report { offloaded_compactions, offloaded_copies, worker_kills, power_losses, .. } = self.sum;
        let Report { crashes, kills, takeovers, recoveries, losses, nested_steps, nested_calls, .. } = self.sum;
        writeln!(
            f,
            "{operations} calls ({failed} failed, {full} of them for want of memory), {flushes} flushes, \
             {compactions} compactions ({near_data_compactions} near the data, {offloaded_compactions} by workers, which \
             made {offloaded_copies} copies in storage and were killed {worker_kills} times)"
        )?;
        writeln!(
            f,
            "{crashes} memory nodes crashed, {kills} compute nodes killed ({power_losses} of them without power), \
             {takeovers} taken over; {recoveries} \
             databases found again, {losses} lost; {nested_steps} steps inside of calls, {nested_calls} calls inside \
             of steps"
        )?;
        let DamageCounts { stored, reads, copies, met, cut, found, mended } = self.sum.damage;
        writeln!(
            f,
            "{stored} places in storage and {reads} reads of it damaged: {met} of them failed a call or an opening, and {cut} took \
             a log's last group; {copies} places in copies damaged: {found} found and {mended} mended, some of them once for each shard \
             that read them"
        )?;
        let CheckpointCounts { made, dropped, read } = self.sum.checkpoints;
        writeln!(f, "{made} checkpoints made, {dropped} dropped; {read} times one was read as a whole")?;
        write!(
            f,
            "a seed, least to median: {} calls, {} flushes, {} compactions, {} faults on purpose",
            self.least_and_median(0),
            self.least_and_median(1),
            self.least_and_median(2),
            self.least_and_median(3),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_and_the_median_of_all_seeds_are_said() {
        let seed = |flushes| Report { flushes, kills: 1, ..Report::default() };
        let (mut totals, mut others) = (Totals::default(), Totals::default());
        [7, 2].iter().for_each(|&flushes| totals.add(&seed(flushes)));
        others.add(&seed(5));
        totals.merge(others);
        let text = totals.to_string();
        assert!(text.contains("14 flushes") && text.contains("2 to 5 flushes"), "{text}");
        assert!(text.contains("1 to 1 faults on purpose"), "{text}");
    }
}
