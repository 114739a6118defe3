//! How much room a memory node has left, and what that means for writers and for compactions.
//!
//! Room is counted in **memtables**: as many as can still be flushed without touching the headroom,
//! beyond those that were installed already. So a memtable that takes puts is installed only when its flush
//! has room, and what was accepted can always be flushed.
//!
//! | room | writers | compactions |
//! |---|---|---|
//! | [`PLENTY`] or more | as ever | as ever |
//! | less | pause at each switch, longer and longer until room stays ([`RoomPace`]) | due earlier; the limit of dead bytes sinks; those of level 0 take fewer tables; what their outputs take together is bounded |
//! | none | puts wait, as long as a compaction may free something, and then fail with `Full` | all that may free something are due |
//!
//! Deletions are accepted without room too: in a **reserve** memtable, which takes nothing else and whose flush
//! may use the headroom, and memory that the shard holds for it while room is short. So a full database
//! can be emptied by deleting.
//!
//! The node is asked when room gets short; until then it is estimated from what was installed since.

use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Memtables' room from which on memory is not short.
pub(crate) const PLENTY: u64 = 8;
/// Below this room the node is asked after each piece of background work.
pub(crate) const MEASURE_BELOW: u64 = 4 * PLENTY;
/// Room that writers are paced to keep.
const KEPT: u64 = PLENTY * 3 / 4;
/// Shortest and longest pause of a writer that switches memtables for want of room, nanoseconds.
const PAUSES: RangeInclusive<u64> = 50_000_000..=600_000_000;
/// How long nothing that may free memory must have been found before writers are refused: readers let go of what
/// they pin, and the node cleans what was freed.
pub(crate) const PATIENCE_NANOS: u64 = 500_000_000;

/// Most parts, about, that a memtable's block is cut into where it is flushed to.
pub(crate) const MOST_PARTS: u64 = 32;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Memtables.
    pub(crate) memtables: u64,
    /// Bytes that compactions may take for their outputs, the headroom included.
    pub(crate) scratch_bytes: u64,
    /// Length of an extent, once it was measured; else zero.
    pub(crate) extent_bytes: u64,
    /// Another shard of the database has none.
    pub(crate) is_wanted: bool,
}

impl Default for Room {
    /// Room that was not measured yet.
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

    /// Not for one memtable more.
    pub(crate) const fn is_none(self) -> bool {
        self.memtables == 0
    }

    /// `most` where there is plenty, `least` where there is none, and in between in proportion.
    pub(crate) fn scale(self, least: u64, most: u64) -> u64 {
        let share = self.memtables.min(PLENTY);
        least + most.saturating_sub(least) * share / PLENTY
    }

    /// Takes the room of a memtable of `memtable_bytes`.
    pub(crate) fn take_memtable(&mut self, memtable_bytes: u64) {
        self.memtables = self.memtables.saturating_sub(1);
        self.scratch_bytes = self.scratch_bytes.saturating_sub(memtable_bytes);
    }

    /// Takes the room of outputs of `bytes`: from the reserve, and only beyond that from memtables of `memtable_bytes`.
    pub(crate) fn take_outputs(&mut self, bytes: u64, memtable_bytes: u64) {
        self.scratch_bytes = self.scratch_bytes.saturating_sub(bytes);
        self.memtables = self.memtables.min(self.scratch_bytes / memtable_bytes.max(1));
    }
}

/// How writers are slowed down so that room stays: the pause of each switch grows by half as long as there is less
/// room than [`KEPT`], and shrinks by a fifth as long as there is more. So it comes to what collection takes for a
/// memtable, however fast that is.
#[derive(Debug, Default)]
pub(crate) struct RoomPace {
    nanos: u64,
}

impl RoomPace {
    /// How long the writer pauses that has just taken room for a memtable and left so much.
    pub(crate) fn pause(&mut self, room: Room) -> Duration {
        let next = match room.memtables.cmp(&KEPT) {
            Ordering::Less => self.nanos.saturating_mul(3) / 2,
            Ordering::Equal => self.nanos,
            Ordering::Greater => self.nanos / 5 * 4,
        };
        self.nanos = next.clamp(*PAUSES.start(), *PAUSES.end());
        if room.is_plenty() { Duration::ZERO } else { Duration::from_nanos(self.nanos) }
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

    #[test]
    fn pauses_grow_until_room_stays() {
        let room = |memtables| Room { memtables, scratch_bytes: 0, ..Room::default() };
        let mut pace = RoomPace::default();
        assert_eq!(pace.pause(room(PLENTY)), Duration::ZERO);
        let pauses: Vec<_> = (0..30).map(|_| pace.pause(room(KEPT - 1))).collect();
        assert!(pauses.is_sorted() && pauses[0] < Duration::from_millis(100));
        assert_eq!(pauses[29], Duration::from_nanos(*PAUSES.end()));
        assert_eq!(pace.pause(room(KEPT)), pauses[29]);
        assert!((0..5).map(|_| pace.pause(room(KEPT + 1))).is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn room_is_taken_in_whole_memtables() {
        let mut room = Room { memtables: 3, scratch_bytes: 100, ..Room::default() };
        room.take_memtable(10);
        assert_eq!((room.memtables, room.scratch_bytes), (2, 90));
        room.take_outputs(70, 10);
        assert_eq!((room.memtables, room.scratch_bytes), (2, 20));
        room.take_outputs(9, 10);
        assert_eq!((room.memtables, room.scratch_bytes), (1, 11));
        room.take_outputs(1000, 10);
        assert!(room.is_none() && room.scratch_bytes == 0);
    }
}
