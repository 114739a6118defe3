//! The store's idle threads, lent to other databases of its memory nodes.

use crate::arguments::NodeAddresses;
use crate::failure::Failure;
use crate::stores::EngineArguments;
use crate::worker::{self, SignedNames};
use forebay::{Options, Store};
use forebay_worker::{Occupied, Worker};
use std::sync::Arc;

/// Checks that there are databases to lend threads to, and that there are threads.
///
/// # Errors
/// Usage.
pub fn check(memory: &NodeAddresses, options: &Options) -> Result<(), Failure> {
    if memory.is_local() {
        return Err(Failure::usage(
            "--lend-threads is for memory nodes that other databases have, too: name them in --memory",
        ));
    }
    if options.background_threads == 0 {
        return Err(Failure::usage("--lend-threads needs threads: --max-background-jobs is 0"));
    }
    Ok(())
}

/// Starts a worker with as many threads as the store has in the background. It takes jobs only for idle threads.
///
/// # Errors
/// When a node cannot be reached.
pub fn lend(
    store: &Store,
    memory: &NodeAddresses,
    engine: &EngineArguments,
    options: &Options,
) -> Result<Arc<Worker>, Failure> {
    let count = |threads: usize| u32::try_from(threads).unwrap_or(u32::MAX);
    let db = store.db().clone();
    let options = forebay_worker::Options {
        threads: count(options.background_threads),
        queue_limit: 0,
        storage: options.storage.clone(),
        signed: SignedNames::Https.access(),
        occupied: Some(Occupied::by(move || count(db.working_threads()))),
        ..forebay_worker::Options::default()
    };
    worker::start(memory, engine.scheduler(memory, true)?, options)
}
