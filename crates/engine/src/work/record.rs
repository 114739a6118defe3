//! Tables reach storage, where it lags behind (see `durable::recorded` and `plan::lag`).

use crate::durable::keeping;
use crate::durable::storage_log::StorageLog;
use crate::plan::lag::Lag;
use crate::remote::segment::Segment;
use crate::terms::Result;
use crate::work::shard::Shard;
use std::sync::Arc;

impl Shard {
    /// Brings the tables as they are now to storage, and releases the log that holds them. Returns at once if storage
    /// has them already.
    ///
    /// # Errors
    /// Those of the storage; `Fenced`; `Closed`.
    pub(crate) fn record(&self) -> Result<()> {
        let Some(recorded) = self.lagging() else { return Ok(()) };
        self.lock().records();
        let outcome = recorded.catch_up(&self.tree, |segments| self.keep(segments));
        self.lock().recorded(outcome.is_ok());
        self.notify();
        outcome.map_err(|error| self.tree.judged(error))?;
        self.tidy_log();
        Ok(())
    }

    /// Whether storage gets tables later than memory does.
    pub(super) fn lags(&self) -> bool {
        self.lagging().is_some()
    }

    /// Puts copies of those of these segments that are in memory into storage.
    pub(super) fn keep(&self, mut segments: Vec<Arc<Segment>>) -> Result<()> {
        segments.retain(|segment| !segment.is_stored());
        if self.keep_offloaded(&segments)? { Ok(()) } else { keeping::keep(&self.tree, segments) }
    }

    /// Records if that is due. Returns whether it was.
    pub(super) fn record_when_due(&self, log: &StorageLog, shard: usize) -> bool {
        // Without threads, a caller that waits for storage may take this step.
        let Some(recorded) = self.lagging().filter(|recorded| !recorded.is_catching_up()) else { return false };
        let installed = Arc::clone(&self.tree.view.load().version);
        let lacks = (installed.version.last_sequence(), recorded.flushed_bytes());
        let now = self.tree.options.clock.now();
        let (may_try, is_memory_short, is_old, was_refused) = {
            let mut state = self.lock();
            let is_old = state.is_unrecorded_for_long(&self.tree.options, lacks, now);
            (state.may_record(now), state.room().wants_more(), is_old, state.is_unrecorded())
        };
        let lag = Lag {
            flushed_bytes: lacks.1,
            held_bytes: recorded.held_bytes(&installed),
            is_memory_short,
            is_old,
            was_refused,
            holds_log: log.waits_for_record(shard, installed.version.last_sequence()),
        };
        drop(installed);
        if self.tree.is_closed() || !may_try || !lag.is_due(&self.tree.options) {
            return false;
        }
        if let Err(error) = self.record() {
            self.not_recorded(error.during("bringing tables to storage"));
        }
        true
    }
}
