//! Bugs planted in the engine and its storage are found, each by the tests of its topic.

use forebay_env::sync::{Mutex, MutexGuard, lock};

mod bit_flips_planted;
mod common;
mod copies_planted;
mod crossings_planted;
mod planted_lookups;
mod planted_records;
mod planted_threads;
mod storage_planted;

/// A bug is planted for the whole process, so each test of this program runs alone.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}
