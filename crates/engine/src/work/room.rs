//! Asking the memory node for its room, and holding memory while it is short (see `plan::room`).

use crate::plan::room::{MEASURE_BELOW, MOST_PARTS, Room};
use crate::remote::segment::{Remote, Segment};
use crate::terms::Result;
use crate::tree::buffer::Buffer;
use crate::work::reserve::Reserve;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_memory_client::Purpose;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_proto::replies::Statistics;
use forebay_table::SegmentKind;
use std::sync::Arc;

impl Shard {
    /// Lets go of a reserve memtable, which a writer found that does not only delete.
    ///
    /// # Errors
    /// `Full` when there is no room for another one.
    #[cold]
    pub(crate) fn leave_reserve(&self, reserve: &Buffer) -> Result<()> {
        if let Some(full) = self.lock().given_up(false, self.tree.options.clock.now()) {
            return Err(full);
        }
        let _ = reserve.memtable.end_early();
        Ok(())
    }

    /// Finds out how much room is left, if it may be short, and prepares for what follows from it.
    pub(crate) fn measure_room(&self) {
        let before = self.lock().room();
        if before.memtables >= MEASURE_BELOW && !before.is_wanted && !self.tree.remote.do_others_lack() {
            return;
        }
        if !before.is_plenty() || before.is_wanted {
            self.tree.remote.give_back();
        }
        if let Some(room) = self.ask_for_room() {
            self.hold_reserve(room);
        }
    }

    /// Asks the node how much room is left.
    pub(crate) fn ask_for_room(&self) -> Option<Room> {
        let memtable_bytes = self.tree.options.write_buffer_bytes as u64;
        let measured = match self.tree.remote.room(memtable_bytes) {
            Ok(measured) => measured,
            Err(error) => {
                tracing::debug!(%error, "asking for the memory node's room");
                return None;
            }
        };
        let mut state = self.lock();
        let installed = 1 + self.tree.view.load().sealed.len() as u64;
        let is_back = state.room_reported(measured, installed);
        let room = state.room();
        self.tree.remote.set_lacking(state.is_short());
        drop(state);
        if is_back {
            self.notify();
        }
        Some(room)
    }

    /// Whether room is to be measured without other reason: somebody may wait for it.
    pub(crate) fn is_room_short(&self) -> bool {
        let room = self.lock().room();
        !room.is_plenty() || room.is_wanted || self.tree.remote.do_others_lack()
    }

    /// Memory for what a flush writes, in one piece. It was let in, so it may use the headroom in need.
    pub(crate) fn allocate_for_flush(&self, kind: SegmentKind, length: u64) -> Result<Arc<Segment>> {
        let allocate = |purpose| self.tree.remote.allocate(self.tree.next_segment(), kind, length, purpose);
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
        if self.tree.remote.node_part().is_none() || self.lock().room().is_plenty() {
            return false;
        }
        let held = u64::from(lock(&self.reserve).flush.is_some());
        let left = self.tree.remote.room_for_flushes(self.tree.options.write_buffer_bytes as u64).unwrap_or(0);
        left + held < 1 + self.tree.view.load().sealed.len() as u64
    }

    /// Holds the [`Reserve`] while memory is short.
    fn hold_reserve(&self, room: Room) {
        if room.is_plenty() {
            drop(std::mem::take(&mut *lock(&self.reserve)));
            return;
        }
        // The node is asked without the lock.
        let hold = |bytes| {
            let (id, kind) = (self.tree.next_segment(), SegmentKind::MemtableBlock);
            self.tree.remote.allocate(id, kind, bytes, Purpose::Flush).ok()
        };
        let is_missing = |reserve: &Reserve| (reserve.flush.is_none(), reserve.join.is_empty());
        let (for_flush, for_join) = is_missing(&lock(&self.reserve));
        if for_flush {
            let bytes = self.tree.options.write_buffer_bytes as u64;
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
