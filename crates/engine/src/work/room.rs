//! Tells the ledger what memory nodes grant, and holds memory while it is short (see `plan::ledger`).

use crate::plan::ledger::{Granted, Pool};
use crate::plan::planner::Need;
use crate::plan::room::{MEASURE_BELOW, MOST_PARTS, Room, reserve_bytes};
use crate::remote::segment::Remote;
use crate::terms::{Options, Result};
use crate::tree::buffer::Buffer;
use crate::work::reserve::Reserve;
use crate::work::shard::Shard;
use crate::work::stall::Pause;
use forebay_env::sync::lock;
use forebay_memory_client::Purpose;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::SegmentKind;
use std::sync::Arc;

/// How often, at least, a node that other databases share is asked, nanoseconds: they may lack what this one has
/// borrowed.
const POOL_INTERVAL: u64 = 100_000_000;

/// Bytes of a memtable with deletions and of its index.
const fn step_bytes(options: &Options) -> u64 {
    let bytes = options.write_buffer_bytes as u64;
    bytes + bytes / 4
}

impl Shard {
    /// Releases a reserve memtable, which a writer found that does more than delete. The caller holds no view: it would
    /// keep the memory of a replaced version while it waits here, and memory is short.
    ///
    /// # Errors
    /// `Full` when there is no room for another one; as for [`Shard::switch`].
    #[cold]
    pub(crate) fn leave_reserve(&self, reserve: &Arc<Buffer>) -> Result<()> {
        let given_up = self.lock().given_up(false, self.tree.options.clock.now());
        let Some(full) = given_up else {
            let _ = reserve.memtable.end_early();
            return Ok(());
        };
        // What was deleted frees memory only once the deletions are flushed. They may be few, so one flush at a time.
        if reserve.memtable.reserved_bytes() > 0 && self.tree.view.load().sealed.is_empty() {
            let _ = reserve.memtable.end_early();
            self.switch(reserve, Need::NOTHING, &mut Pause::default())?;
        }
        Err(full)
    }

    /// Finds out how much room is left, if it may be short, and prepares for what follows from it.
    pub(crate) fn measure_room(&self) {
        let before = self.look_at_ledger();
        let is_pooled = self.common.ledger().is_pooled(self.holder);
        if before.memtables >= MEASURE_BELOW && !before.is_wanted && !is_pooled {
            return;
        }
        if before.wants_more() {
            self.tree.remote.give_back();
        }
        if let Some(room) = self.ask_for_room() {
            self.hold_reserve(room);
        }
    }

    /// Tells the ledger what the node grants. Returns the room that follows.
    pub(crate) fn ask_for_room(&self) -> Option<Room> {
        let granted = match self.tree.remote.granted(&self.tree.options) {
            Ok(granted) => granted,
            Err(error) => {
                tracing::debug!(%error, "asking for the memory node's room");
                return None;
            }
        };
        let now = self.tree.options.clock.now();
        self.common.ledger().report(self.holder, self.account, &granted, now);
        Some(self.look_at_ledger())
    }

    /// Lets the planner look at the ledger. Returns the room that it finds.
    fn look_at_ledger(&self) -> Room {
        let mut state = self.lock();
        let view = Arc::clone(&self.tree.view.load());
        let before = state.room();
        self.with_scene(&view, |scene, ledger| state.look(scene, ledger));
        let room = state.room();
        drop(state);
        if before.is_none() && !room.is_none() {
            self.notify();
        }
        room
    }

    /// Measures room, without any other reason, if somebody may wait for it.
    pub(crate) fn watch_room(&self) {
        let (room, now) = (self.lock().room(), self.tree.options.clock.now());
        let is_stale = self.common.ledger().is_stale(self.holder, POOL_INTERVAL, now);
        if is_stale || room.wants_more() {
            self.measure_room();
        }
    }

    /// Releases the memory that was held for one flush. False when there was none.
    pub(crate) fn release_for_flush(&self) -> bool {
        lock(&self.reserve).flush.take().is_some()
    }

    /// Releases the memory that was held for merging neighbours of level 0.
    pub(crate) fn release_for_join(&self) {
        lock(&self.reserve).join.clear();
    }

    /// Holds the [`Reserve`] while memory is short.
    fn hold_reserve(&self, room: Room) {
        if room.is_plenty() {
            drop(std::mem::take(&mut *lock(&self.reserve)));
            return;
        }
        // The node is asked without holding the lock.
        let hold = |bytes| {
            let (id, kind) = (self.tree.next_segment(), SegmentKind::MemtableBlock);
            self.tree.remote.allocate(id, kind, bytes, Purpose::Flush).ok()
        };
        let is_missing = |reserve: &Reserve| (reserve.flush.is_none(), reserve.join.is_empty());
        let (for_flush, for_join) = is_missing(&lock(&self.reserve));
        if for_flush {
            let held = hold(step_bytes(&self.tree.options));
            lock(&self.reserve).flush = held;
        }
        if for_join {
            let held: Option<Vec<_>> = [GRANULARITY_BYTES; 2].into_iter().map(hold).collect();
            lock(&self.reserve).join = held.unwrap_or_default();
        }
    }
}

impl Remote {
    /// What the node grants this shard now.
    fn granted(&self, options: &Options) -> Result<Granted> {
        let credit = self.memory_node().tell_share(options)?;
        let extent_bytes = self.memory_node().client().extent_bytes();
        let least = options.write_buffer_bytes as u64 / MOST_PARTS;
        Ok(Granted {
            extent_bytes,
            extents: credit.free_extents,
            withheld: credit.withheld_extents,
            step_bytes: step_bytes(options),
            reserve_bytes: reserve_bytes(credit.headroom_extents, extent_bytes),
            owed_bytes: credit.owed_extents.saturating_mul(extent_bytes),
            leased_bytes: self.free_bytes(least),
            is_shared: !self.is_named(),
            outputs_bytes: self.node_part().map_or(0, |part| part.free_bytes(least)),
            pool: Pool { is_shared: credit.databases > 1, is_called: credit.is_called },
        })
    }
}
