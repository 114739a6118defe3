//! How much memory is left to a shard, as its [`Ledger`](crate::plan::ledger::Ledger) tells, and what follows from that.
//!
//! Room is counted in **memtables**: as many as may still be installed, each with the memory of its flush. While a
//! writer waits for a larger memtable, because its batch is long, room is counted in memtables of that size.
//!
//! | room | writers | compactions |
//! |---|---|---|
//! | [`PLENTY`] or more | as ever | as ever |
//! | less | pause at each switch (see [`pace`](crate::plan::pace)) | due earlier; the limit of dead bytes sinks; those of level 0 take fewer tables |
//! | none | puts wait, as long as a compaction may free something, and then fail with `Full` | all that may free something are due |
//!
//! Deletions are accepted without room too: in a **reserve** memtable, which takes nothing else and whose flush
//! may use what is left to compactions. They take turns. So a full database can be emptied by deleting.

/// Memtables' room from which on memory is not short.
pub(crate) const PLENTY: u64 = 8;
/// Below this room the node is asked after each piece of background work.
pub(crate) const MEASURE_BELOW: u64 = 4 * PLENTY;
/// Most parts, about, that a memtable's block is cut into where it is flushed to.
pub(crate) const MOST_PARTS: u64 = 32;

/// Bytes that memtables leave to compactions at a node with this headroom: the headroom, and as much again, which jobs
/// have of their own at first.
pub(crate) const fn reserve_bytes(headroom_extents: u64, extent_bytes: u64) -> u64 {
    headroom_extents.saturating_mul(2).saturating_mul(extent_bytes)
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Memtables.
    pub(crate) memtables: u64,
    /// Bytes that compactions may take for their outputs, the headroom included.
    pub(crate) scratch_bytes: u64,
    /// Length of an extent, once it was measured; else zero.
    pub(crate) extent_bytes: u64,
    /// Another shard of the database has no room.
    pub(crate) is_wanted: bool,
}

impl Default for Room {
    /// Room that was not yet measured.
    fn default() -> Self {
        Self { memtables: PLENTY, scratch_bytes: u64::MAX, extent_bytes: 0, is_wanted: false }
    }
}

impl Room {
    /// None at all.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { memtables: 0, scratch_bytes: u64::MAX, extent_bytes: 0, is_wanted: false };

    pub(crate) const fn is_plenty(self) -> bool {
        self.memtables >= PLENTY
    }

    /// Whether the shard, or another one of the database, wants memory that may come back.
    pub(crate) const fn wants_more(self) -> bool {
        !self.is_plenty() || self.is_wanted
    }

    /// Whether there is no room for another memtable.
    pub(crate) const fn is_none(self) -> bool {
        self.memtables == 0
    }

    /// `most` where there is plenty, `least` where there is none, and in between in proportion.
    pub(crate) fn scale(self, least: u64, most: u64) -> u64 {
        let share = self.memtables.min(PLENTY);
        least + most.saturating_sub(least) * share / PLENTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_room_goes_from_plenty_to_none() {
        let room = |memtables| Room { memtables, scratch_bytes: 0, ..Room::default() };
        assert_eq!([0, 4, 8, 100].map(|memtables| room(memtables).scale(6, 20)), [6, 13, 20, 20]);
    }
}
