//! A moment at which nobody writes, so that what the shards hold belongs together.

use crate::sharding::held::Held;
use crate::sharding::router::Router;
use crate::terms::Result;
use forebay_env::sync::lock;
use std::sync::Arc;

impl Router {
    /// Runs `work` while no batch is written to one shard and not yet to another: in a database of several shards, while
    /// nobody writes at all. No bound moves meanwhile.
    ///
    /// # Errors
    /// Those of `work`; why the last move of a bound did not finish.
    pub(crate) fn between_writes<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _moving = lock(&self.moving);
        if self.shards().len() == 1 {
            return work();
        }
        let routing = self.free_routing()?;
        self.replace(Arc::clone(&routing), Some(Held::new(None, None, 0)));
        let done = work();
        self.replace(routing, None);
        done
    }
}
