//! Bugs that a test plants to see that the model checkers find them: a checker counts only once it
//! has failed. They exist only under `--cfg loom` and `--cfg shuttle`. Elsewhere a query for one is
//! the constant `false`.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A latch is loaded without acquire, so a node's words and records may not be visible.
    RelaxedLatch,
    /// Words of a node are trusted although the node changed meanwhile.
    UncheckedSnapshot,
    /// A writer changes a node without its latch.
    SkippedLatch,
    /// A leaf is split, and the previous leaf does not lead to the new one.
    UnlinkedLeaf,
    /// A record is linked before its bytes are written.
    LinkBeforeWrite,
    /// The published number jumps to a writer's last number, past unfinished writers.
    PublishMaximum,
    /// A finished writer does not order its mark before its look at the others' marks.
    PublishWithoutFence,
    /// Every writer that does not fit installs a memtable, not only the one that crosses.
    EveryoneCrosses,
    /// The current value is used without a check that it is still current once it is protected.
    UncheckedHazard,
    /// A reader does not order its slot before its look at the current value.
    UnfencedHazard,
    /// A slot is cleared without release, so the uses of its value may not come before the value's drop.
    RelaxedClear,
    /// Only the first group of slots is searched for a value before it is dropped.
    ForgottenSlots,
    /// A slot is put at the front of its chain, whatever is there.
    UnorderedChain,
    /// A slot is put into its chain without release, so its contents may not be visible.
    RelaxedChain,
}

#[cfg(any(loom, shuttle))]
mod checked {
    use super::Bug;
    use std::cell::Cell;

    std::thread_local! {
        /// The checkers run all threads of a model on the thread of the test.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Keeps a bug planted until dropped.
    #[derive(Debug)]
    #[must_use]
    pub struct Planting(());

    /// Plants `bug` for tests on this thread.
    pub fn plant(bug: Bug) -> Planting {
        PLANTED.set(Some(bug));
        Planting(())
    }

    impl Drop for Planting {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(any(loom, shuttle))]
pub(crate) use checked::planted;
#[cfg(any(loom, shuttle))]
pub use checked::{Planting, plant};

#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}
