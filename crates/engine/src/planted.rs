//! Bugs that a test plants to see that the checkers find them: a checker counts only once it has
//! failed. They exist only with the feature `planted`; without it, asking for one is the constant
//! `false`.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A memtable leaves the view before its table is installed.
    DropBeforeInstalled = 1,
    /// What a compaction replaced is freed while iterators and snapshots still read it.
    FreeBeforeUnpinned,
    /// What a change replaces is freed before the change is recorded.
    FreeBeforeRecorded,
    /// A version names a table whose bytes may still be on their way.
    EditBeforeData,
    /// A root counts an edit that is not written yet.
    RootBeforeEdit,
    /// A writer publishes its numbers before its records are inserted.
    PublishBeforeInsert,
    /// Batches that cross shards do not wait for their turn to reserve.
    ReserveOutOfTurn,
    /// A reader of several shards does not look whether a batch that crosses them was in flight.
    UncheckedCut,
}

#[cfg(feature = "planted")]
impl Bug {
    /// Those that show between threads only.
    pub const OF_THREADS: [Self; 3] = [Self::PublishBeforeInsert, Self::ReserveOutOfTurn, Self::UncheckedCut];
    /// Those that show on one thread, with other work where somebody waits.
    pub const OF_ORDER: [Self; 5] = [
        Self::DropBeforeInstalled,
        Self::FreeBeforeUnpinned,
        Self::FreeBeforeRecorded,
        Self::EditBeforeData,
        Self::RootBeforeEdit,
    ];
}

forebay_env::plantable!(Bug);
