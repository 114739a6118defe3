//! Bugs that are planted in the tree are found, each by the tests of its topic.

use forebay_env::sync::{Mutex, MutexGuard, lock};

mod common;
mod halves_planted;
mod interleaved_planted;
mod rounds;

/// A bug is planted for the whole process, so each test of this program runs alone.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}
