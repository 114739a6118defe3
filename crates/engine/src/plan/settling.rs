//! A shard at rest settles: it asks for the compaction that a caller may ask for, of everything.
//!
//! A scan reads each record that is outside of its table's run by itself. While a shard is written to, bringing all of
//! them into key order costs more than it is worth ([`picker`](crate::plan::picker) does little of it). At rest there
//! is time.
//!
//! | | |
//! |---|---|
//! | begins | when the shard has rested for [`Options::settle_after`](crate::terms::Options::settle_after), nothing else is due, and more than an eighth of the records' bytes are outside of their table's longest run |
//! | only | where compactions cluster, all tables are in memory and are to stay there, and memory stays plenty even if each record exists twice for a while |
//! | continues | level by level and table by table, as [`manual`](crate::plan::manual) says; its steps come before others |
//! | ends | when it is done, when one of these conditions no longer holds, or when the ledger has no memory for a step; and at once when the shard no longer rests: what is under way is installed |
//!
//! A shard rests while no memtable is sealed or flushed and little is written: in the time after which it settles, less than
//! a 64th of a memtable. So it settles beside a trickle of writes, and never between the flushes of a stream of them.
//!
//! Once settling is done or was given up, it does not begin again before a flush, whatever is left.
//!
//! # What it moves
//!
//! Indexes are merged on the way down, with small records above the last level, as usual; each table of the last level
//! is rewritten at most once. So one settling moves no more than the shard's records. What is outside of the longest
//! runs afterwards was written since, or went down to another last level. So settling moves at most eight bytes for
//! each byte of those.

use crate::plan::picker::{Picker, gatherings};
use crate::plan::room::PLENTY;
use crate::plan::tiers::{Tier, is_in_memory};
use crate::terms::Options;
use crate::terms::options::CompactionStyle;

/// At most one part in this many of the records' bytes may be outside of the longest runs.
const SHARE: u64 = 8;

/// A shard rests while less than one part in this many of a memtable is written in the time after which it settles.
const WRITTEN_SHARE: u64 = 64;

/// How long a shard has rested, as far as its planner was told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    /// Since it was first seen to rest.
    seen: Option<Seen>,
    /// It has settled, or given up.
    is_over: bool,
}

/// A shard that rests.
#[derive(Debug, Clone, Copy)]
struct Seen {
    since: u64,
    /// A time since then, and how much of the active memtable was written by then.
    at: u64,
    written: u64,
}

impl Rest {
    /// Looks at how much of the active memtable is written now. False when so much came since the last look that the
    /// shard does not rest.
    pub(crate) fn look(&mut self, options: &Options, now: u64, written: u64) -> bool {
        let Some(after) = options.settle_after else { return true };
        let begun = Seen { since: now, at: now, written };
        let seen = self.seen.get_or_insert(begun);
        let elapsed = u128::from(now.saturating_sub(seen.at));
        let times = (elapsed / after.as_nanos().max(1)).max(1);
        let rests = u128::from(written.saturating_sub(seen.written)) * u128::from(WRITTEN_SHARE)
            <= options.write_buffer_bytes as u128 * times;
        if !rests {
            *seen = begun;
        } else if elapsed >= after.as_nanos() {
            *seen = Seen { since: seen.since, ..begun };
        }
        rests
    }

    /// Ends the rest: the shard does not settle before it is written to again.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether the shard is to settle once it has rested for long enough.
    pub(crate) fn is_due(&self, picker: &Picker<'_>) -> bool {
        !self.is_over && may_settle(picker) && is_scattered(picker)
    }

    /// Whether the shard is to settle at this time.
    pub(crate) fn is_due_at(&self, picker: &Picker<'_>, now: u64) -> bool {
        let (Some(after), Some(seen)) = (picker.options.settle_after, self.seen) else { return false };
        u128::from(now.saturating_sub(seen.since)) >= after.as_nanos() && self.is_due(picker)
    }
}

/// Whether a shard may settle: settling is of use, memory is plenty, and nothing comes from storage or goes there.
pub(crate) fn may_settle(picker: &Picker<'_>) -> bool {
    let options = picker.options;
    let is_wanted = options.settle_after.is_some()
        && options.compaction_style == CompactionStyle::Clustered
        && !options.bulk_load
        && picker.room.is_plenty();
    let last = picker.deepest().unwrap_or(0).max(1);
    let all_in_memory = || picker.version.segments().keys().all(|id| is_in_memory(picker.version, *id));
    is_wanted && picker.tier_of(last) == Tier::Memory && all_in_memory()
}

/// Whether too many bytes are outside of their table's longest run, and there is room to change that. Large records do
/// not count: they stay where they were written.
fn is_scattered(picker: &Picker<'_>) -> bool {
    let (mut all, mut scattered) = (0u64, 0u64);
    for table in picker.version.levels().iter().flatten() {
        let uses = || table.properties.segments.iter().filter(|used| !picker.is_of_large(used));
        let longest = gatherings(uses()).into_values().map(|(live_bytes, _)| live_bytes).max().unwrap_or(0);
        scattered += uses().map(|used| used.live_bytes).sum::<u64>().saturating_sub(longest);
        all += table.properties.record_bytes;
    }
    let memtables = all / (picker.options.write_buffer_bytes as u64).max(1);
    scattered > all / SHARE && picker.room.memtables.saturating_sub(PLENTY) >= memtables
}
