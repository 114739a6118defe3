//! What callers ask of background work: to flush, to compact a range, and to wait for it.

use crate::plan::planner::Planner;
use crate::terms::Result;
use crate::terms::routing::KeyRange;
use crate::work::background::Idle;
use crate::work::shard::Shard;
use forebay_base::SequenceNumber;

impl Shard {
    /// Flushes what was written so far, and waits until that is done, also in storage.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let end = self.begin_flush()?;
        self.wait_flushed(end)
    }

    /// Begins to flush what was written so far. Returns the number up to which it flushes.
    pub(crate) fn begin_flush(&self) -> Result<SequenceNumber> {
        self.seal_active()?;
        Ok(self.tree.view.load().active.memtable.base())
    }

    /// Waits until everything up to a number is flushed, also in storage.
    pub(crate) fn wait_flushed(&self, end: SequenceNumber) -> Result<()> {
        self.wait_idle(Idle::FlushedUpTo(end))?;
        self.record()
    }

    /// Requests a compaction of a range, after waiting for an earlier requested one. Returns its number.
    pub(crate) fn begin_compaction(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<u64> {
        let mut state = self.lock();
        loop {
            self.check_compacting(&state)?;
            if let Some(number) = state.asked_to_compact(KeyRange { lower, upper }, self.expire_before_ms()) {
                self.notify();
                return Ok(number);
            }
            state = self.wait(state);
        }
    }

    /// Flushes, and requests a compaction of a range, unless another requested one is under way.
    pub(crate) fn suggest_compaction(&self, range: KeyRange<'_>) {
        if let Err(error) = self.flush_all() {
            tracing::debug!(%error, "flushing before a compaction");
            return;
        }
        let mut state = self.lock();
        if self.check_running(&state).is_ok() && state.asked_to_compact(range, self.expire_before_ms()).is_some() {
            drop(state);
            self.notify();
        }
    }

    /// The time, in milliseconds since 1970, before which what expired is hidden from everybody.
    fn expire_before_ms(&self) -> u64 {
        self.tree.pinned().expire_before_ms
    }

    /// Waits for the end of a requested compaction.
    pub(crate) fn wait_compacted(&self, number: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            if !state.goes_on(number) {
                self.tree.view.reclaim();
                return Ok(());
            }
            if let Err(error) = self.check_compacting(&state) {
                state.asked_no_more();
                return Err(error);
            }
            state = self.wait(state);
        }
    }

    /// Fails when compactions make no progress: one waits for room that only other compactions could make.
    pub(crate) fn check_compacting(&self, state: &Planner) -> Result<()> {
        self.check_running(state)?;
        state.given_up(false, self.tree.options.clock.now()).map_or(Ok(()), Err)
    }

    /// Fails when background work makes no progress.
    pub(crate) fn check_running(&self, state: &Planner) -> Result<()> {
        let given_up = || state.given_up(true, self.tree.options.clock.now());
        match self.failure(state).or_else(|| state.storage_failure().cloned()).or_else(given_up) {
            Some(failure) => Err(failure),
            None => self.tree.check_open(),
        }
    }
}
