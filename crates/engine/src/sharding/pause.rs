//! A moment at which nobody writes, so that the contents of the shards fit together.

use crate::sharding::held::Held;
use crate::sharding::router::Router;
use crate::terms::Result;
use forebay_env::sync::lock;
use std::sync::Arc;

impl Router {
    /// Runs `work` while no batch is written to one shard and not yet to another. In a database of several shards,
    /// nobody writes at all meanwhile. No bound moves either.
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
