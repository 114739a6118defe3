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
//! may use the headroom, and memory that the shard holds for it while room is short ([`Reserve`]). So a full database
//! can be emptied by deleting.
//!
//! The node is asked when room gets short; until then it is estimated from what was installed since.

use crate::placing::MOST_PARTS;
use crate::segment::{Remote, Segment};
use crate::shard::{Shard, State};
use crate::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_memory_client::Purpose;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_proto::replies::Statistics;
use forebay_table::SegmentKind;
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Memtables' room from which on memory is not short.
pub(crate) const PLENTY: u64 = 8;
/// Below this room the node is asked after each piece of background work.
const MEASURE_BELOW: u64 = 4 * PLENTY;
/// Room that writers are paced to keep.
const KEPT: u64 = PLENTY * 3 / 4;
/// Shortest and longest pause of a writer that switches memtables for want of room, nanoseconds.
const PAUSES: RangeInclusive<u64> = 50_000_000..=600_000_000;
/// How long nothing that may free memory must have been found before writers are refused: readers let go of what
/// they pin, and the node cleans what was freed.
pub(crate) const PATIENCE_NANOS: u64 = 500_000_000;

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

/// Memory that a shard holds while memory is short, so that there is a piece of the right length however the rest is
/// divided.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// For the flush of deletions.
    flush: Option<Arc<Segment>>,
    /// For neighbours of level 0 that are merged: a page for their index, and one for their records.
    join: Vec<Arc<Segment>>,
}

/// What a writer needs of the memtable that it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// It only deletes.
    pub(crate) frees: bool,
}

impl Need {
    /// Nothing: a memtable is only to be ended.
    pub(crate) const NOTHING: Self = Self { bytes: 0, frees: true };
}

impl State {
    /// Whether what may free memory is due, whatever it costs.
    pub(crate) fn is_short(&self) -> bool {
        self.full.is_some() || self.room.is_none()
    }

    /// The room as compactions are picked by it.
    pub(crate) fn room_for_compactions(&self) -> Room {
        let memtables = if self.full.is_some() { 0 } else { self.room.memtables };
        Room { memtables, ..self.room }
    }
}

impl Shard {
    /// Why a writer is refused: memory is short, and for a while nothing was found that may free some, nor is it
    /// tried just now. Deletions are refused only when their flush failed too.
    pub(crate) fn given_up(&self, state: &State, frees: bool) -> Option<Error> {
        let is_refused =
            self.is_hopeless(state) && state.compactions == 0 && (!frees || state.flush_again_at.is_some());
        is_refused.then(|| {
            let why = state.full.as_ref().map(|full| format!(" ({full})")).unwrap_or_default();
            let advice = "delete something, which is still accepted, or use a memory node with more memory";
            Error::new(ErrorKind::Full, format!("the memory node is full{why}: {advice}"))
        })
    }

    /// Whether memory is short, and for a while nothing was found that may free some.
    pub(crate) fn is_hopeless(&self, state: &State) -> bool {
        let waited = |since| self.options.clock.now().saturating_sub(since);
        state.is_short() && state.hopeless_since.is_some_and(|since| waited(since) >= PATIENCE_NANOS)
    }

    /// Lets go of a reserve memtable, which a writer found that does not only delete.
    ///
    /// # Errors
    /// `Full` when there is no room for another one.
    #[cold]
    pub(crate) fn leave_reserve(&self, reserve: &crate::memory::Buffer) -> Result<()> {
        if let Some(full) = self.given_up(&self.lock(), false) {
            return Err(full);
        }
        let _ = reserve.memtable.end_early();
        Ok(())
    }

    /// Finds out how much room is left, if it may be short, and prepares for what follows from it.
    pub(crate) fn measure_room(&self) {
        let before = self.lock().room;
        if before.memtables >= MEASURE_BELOW && !before.is_wanted && !self.remote.do_others_lack() {
            return;
        }
        if !before.is_plenty() || before.is_wanted {
            self.remote.give_back();
        }
        if let Some(room) = self.ask_for_room() {
            self.hold_reserve(room);
        }
    }

    /// Asks the node how much room is left.
    pub(crate) fn ask_for_room(&self) -> Option<Room> {
        let memtable_bytes = self.options.write_buffer_bytes as u64;
        let measured = match self.remote.room(memtable_bytes) {
            Ok(measured) => measured,
            Err(error) => {
                tracing::debug!(%error, "asking for the memory node's room");
                return None;
            }
        };
        let mut state = self.lock();
        let installed = 1 + self.view.load().sealed.len() as u64;
        let was_none = state.room.is_none();
        state.room = Room { memtables: measured.memtables.saturating_sub(installed), ..measured };
        let is_back = was_none && !state.room.is_none();
        if is_back {
            state.hopeless_since = None;
        }
        let room = state.room;
        self.remote.set_lacking(state.is_short());
        drop(state);
        if is_back {
            self.notify();
        }
        Some(room)
    }

    /// Whether room is to be measured without other reason: somebody may wait for it.
    pub(crate) fn is_room_short(&self) -> bool {
        let room = self.lock().room;
        !room.is_plenty() || room.is_wanted || self.remote.do_others_lack()
    }

    /// Memory for what a flush writes, in one piece. It was let in, so it may use the headroom in need.
    pub(crate) fn allocate_for_flush(&self, kind: SegmentKind, length: u64) -> Result<Arc<Segment>> {
        let allocate = |purpose| self.remote.allocate(self.next_segment(), kind, length, purpose);
        match allocate(Purpose::Flush) {
            Err(error) if error.kind() == ErrorKind::Full => allocate(Purpose::Collection),
            allocated => allocated,
        }
    }

    /// Lets go of the memory that was held for one flush. False when there was none.
    pub(crate) fn release_for_flush(&self) -> bool {
        lock(&self.reserve).flush.take().is_some()
    }

    /// Lets go of the memory that was held for merging neighbours of level 0.
    pub(crate) fn release_for_join(&self) {
        lock(&self.reserve).join.clear();
    }

    /// Whether there is no room left for the flushes of all memtables that were let in, where a compaction could
    /// run at the memory node, which has memory of its own for it.
    pub(crate) fn has_taken_from_flushes(&self) -> bool {
        if self.remote.node_part().is_none() || self.lock().room.is_plenty() {
            return false;
        }
        let held = u64::from(lock(&self.reserve).flush.is_some());
        let left = self.remote.room_for_flushes(self.options.write_buffer_bytes as u64).unwrap_or(0);
        left + held < 1 + self.view.load().sealed.len() as u64
    }

    /// Holds the [`Reserve`] while memory is short.
    fn hold_reserve(&self, room: Room) {
        if room.is_plenty() {
            drop(std::mem::take(&mut *lock(&self.reserve)));
            return;
        }
        // The node is asked without the lock.
        let hold = |bytes| {
            let (id, kind) = (self.next_segment(), SegmentKind::MemtableBlock);
            self.remote.allocate(id, kind, bytes, Purpose::Flush).ok()
        };
        let is_missing = |reserve: &Reserve| (reserve.flush.is_none(), reserve.join.is_empty());
        let (for_flush, for_join) = is_missing(&lock(&self.reserve));
        if for_flush {
            let bytes = self.options.write_buffer_bytes as u64;
            let held = hold(bytes + bytes / 4);
            lock(&self.reserve).flush = held;
        }
        if for_join {
            let held: Option<Vec<_>> = [GRANULARITY_BYTES; 2].into_iter().map(hold).collect();
            lock(&self.reserve).join = held.unwrap_or_default();
        }
    }
}

impl Remote {
    /// How many memtables of `memtable_bytes` can be flushed, with nothing left to compactions.
    fn room_for_flushes(&self, memtable_bytes: u64) -> Result<u64> {
        Ok(self.free(memtable_bytes)?.1 / memtable_bytes.max(1))
    }

    /// The room of memtables of `memtable_bytes`, those not subtracted that wait for their flush.
    fn room(&self, memtable_bytes: u64) -> Result<Room> {
        let (node, free) = self.free(memtable_bytes)?;
        // Compactions need as much as the headroom, and as jobs have of their own at first.
        let reserve = node.headroom_extents.saturating_mul(2).saturating_mul(node.extent_bytes);
        Ok(Room {
            memtables: free.saturating_sub(reserve) / memtable_bytes.max(1),
            scratch_bytes: free,
            extent_bytes: node.extent_bytes,
            is_wanted: self.do_others_lack(),
        })
    }

    /// The node's statistics, and the free bytes that flushes and compactions could use: in what this session leased,
    /// where outputs of this shard's jobs lie, and in what the node has.
    fn free(&self, memtable_bytes: u64) -> Result<(Statistics, u64)> {
        let node = self.memory_node().client().node_statistics()?;
        let extents = node.free_extents.saturating_add(node.recycling_extents).saturating_add(node.kept_extents);
        // The node counts what jobs write just now, but for all shards.
        let among_all = node.job_extents.saturating_mul(node.extent_bytes).saturating_sub(node.job_bytes);
        let among_outputs = self.node_part().map_or(0, |part| part.free_bytes(node.extent_bytes)).min(among_all);
        let own = self.free_bytes(memtable_bytes / MOST_PARTS);
        let free = extents.saturating_mul(node.extent_bytes).saturating_add(among_outputs).saturating_add(own);
        Ok((node, free))
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
