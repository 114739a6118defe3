//! The health of a database: what is lost, what has failed, what is at work.

use crate::api::db::Db;
use crate::terms::Error;
use forebay_base::ErrorKind;

impl Db {
    /// How many copies of shards in memory are missing, because memory nodes were lost.
    #[must_use]
    pub fn missing_copies(&self) -> usize {
        let copies = self.inner.options.copies();
        self.shards().iter().map(|shard| copies.saturating_sub(shard.tree.remote.copies())).sum()
    }

    /// How many of [`Options::background_threads`](crate::Options::background_threads) flush or compact now. The others
    /// can be lent to a worker of this process, which runs jobs of other databases (O3-LSM 4.3).
    #[must_use]
    pub fn working_threads(&self) -> usize {
        self.inner.background.working()
    }

    /// The error with which a shard's background work has failed for good, if it has: every later write to that shard
    /// fails with it. `Fenced` when another process took over and a commit, a sync or [`Db::check_owner`] has noticed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        let fenced = || self.log_failure().filter(|error| error.kind() == ErrorKind::Fenced);
        self.shards().iter().find_map(|shard| shard.failure(&shard.lock())).or_else(fenced)
    }

    /// Whether writes go to a log in storage.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.inner.log.is_some()
    }

    /// Why the last write to the log in storage failed, if it did. Until the log can be written, writes that are to be
    /// durable there are refused. [`Db::resume`] tries again, even where that needs another log.
    #[must_use]
    pub fn log_failure(&self) -> Option<Error> {
        self.inner.log.as_ref().and_then(|log| log.failure())
    }
}
