//! Bugs that a test plants to see that the checkers find them: a checker counts only once it has
//! failed. They exist only with the feature `planted`. Without it, a query for one is the constant
//! `false`.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A memtable leaves the view before its table is installed.
    DropBeforeInstalled = 1,
    /// The inputs of a compaction are freed while iterators and snapshots still read them.
    FreeBeforeUnpinned,
    /// What a change replaces is freed before the change is recorded.
    FreeBeforeRecorded,
    /// A version names a table whose bytes may not have arrived yet.
    EditBeforeData,
    /// A root covers an edit that is not written yet.
    RootBeforeEdit,
    /// A write is acknowledged as durable before it is in the log.
    AcknowledgeBeforeShipped,
    /// A part of the log ends before all of its records are in tables.
    EndPartsEarly,
    /// A batch that crosses shards counts although a shard lacks its part.
    HalfCrossings,
    /// A write is acknowledged before the batches that cross shards before it are in all logs.
    AcknowledgeBeforeCrossings,
    /// A table counts before the batches in it that cross shards are in all logs.
    TablesAheadOfCrossings,
    /// A version counts before storage has its segments.
    VersionBeforeObjects,
    /// A table counts before the log in storage has its records.
    TablesAheadOfLog,
    /// The log in storage is trimmed before tables hold what it held.
    TrimEarly,
    /// A group of the log in storage counts when only a part of it exists.
    HalfGroups,
    /// A sync that failed is taken for a success.
    FailedSyncForgotten,
    /// An object is deleted while a version that counts may name it.
    DeleteBeforeRecorded,
    /// A writer publishes its numbers before it inserts its records.
    PublishBeforeInsert,
    /// Batches that cross shards do not wait for their turn to reserve numbers.
    ReserveOutOfTurn,
    /// A reader of several shards does not check whether a batch that crosses them was in flight.
    UncheckedCut,
    /// The time by which keys expire follows the clock back.
    TimeGoesBack,
    /// Conditions of a write are judged before its numbers are reserved.
    JudgeBeforeReserved,
    /// A new keyspace has the number of the one before.
    ReuseKeyspaces,
    /// A compaction drops what has expired, although a snapshot's time is earlier.
    ExpireUnderSnapshots,
    /// A table that a range deletion hides goes although a snapshot's number is smaller.
    HideFromSnapshots,
    /// A lookup that is delegated passes over the sealed memtables.
    DelegatePastMemtables,
    /// The address of a record that was learnt counts whatever was flushed since.
    TrustLearntAddress,
    /// What an executor says of copies in storage is believed.
    TrustCopies,
    /// A version counts before the other members have its segments.
    OneCopy,
    /// A write is acknowledged before all members have it.
    AcknowledgeAtFirstCopy,
    /// A copy that is left out stays in the register.
    LeaveOutUnrecorded,
    /// A member that is left out continues to be read.
    ReadLeftOut,
    /// A member joins without the log of what its tables lack.
    JoinWithoutLog,
    /// What members made by the same job is not compared.
    UncomparedOutputs,
    /// A compaction that has ended keeps what it had reserved.
    LeakCredits,
    /// A moved bound copies what operands make of a value that expires as a value that does not.
    MoveMergedValues,
    /// A read that merges does not look beyond the first memtable that has operands.
    MergeOneMemtable,
    /// Objects are deleted although a checkpoint names them.
    DeleteUnderCheckpoints,
}

#[cfg(feature = "planted")]
impl Bug {
    /// The bugs that only show between threads.
    pub const OF_THREADS: [Self; 3] = [Self::PublishBeforeInsert, Self::ReserveOutOfTurn, Self::UncheckedCut];
    /// The bugs of durability `storage`.
    pub const OF_STORAGE: [Self; 6] = [
        Self::VersionBeforeObjects,
        Self::TablesAheadOfLog,
        Self::TrimEarly,
        Self::HalfGroups,
        Self::FailedSyncForgotten,
        Self::DeleteBeforeRecorded,
    ];
    /// The bugs of batches that cross shards, in memory.
    pub const OF_CROSSINGS: [Self; 3] =
        [Self::HalfCrossings, Self::AcknowledgeBeforeCrossings, Self::TablesAheadOfCrossings];
    /// The bugs of lookups without a point index.
    pub const OF_LOOKUPS: [Self; 2] = [Self::DelegatePastMemtables, Self::TrustLearntAddress];
    /// The bugs of several copies in memory.
    pub const OF_COPIES: [Self; 6] = [
        Self::OneCopy,
        Self::AcknowledgeAtFirstCopy,
        Self::LeaveOutUnrecorded,
        Self::ReadLeftOut,
        Self::JoinWithoutLog,
        Self::UncomparedOutputs,
    ];
    /// The bugs of who may use memory.
    pub const OF_SPACE: [Self; 1] = [Self::LeakCredits];
    /// The bugs that show when keys expire.
    pub const OF_EXPIRY: [Self; 2] = [Self::TimeGoesBack, Self::ExpireUnderSnapshots];
    /// The bugs that show when ranges are deleted.
    pub const OF_DELETIONS: [Self; 1] = [Self::HideFromSnapshots];
    /// The bugs of checkpoints in storage.
    pub const OF_CHECKPOINTS: [Self; 1] = [Self::DeleteUnderCheckpoints];
    /// The bugs of merges.
    pub const OF_MERGES: [Self; 2] = [Self::MoveMergedValues, Self::MergeOneMemtable];
    /// The bugs that show on one thread, where a waiting call runs other work.
    pub const OF_ORDER: [Self; 7] = [
        Self::DropBeforeInstalled,
        Self::FreeBeforeUnpinned,
        Self::FreeBeforeRecorded,
        Self::EditBeforeData,
        Self::RootBeforeEdit,
        Self::AcknowledgeBeforeShipped,
        Self::EndPartsEarly,
    ];
}

forebay_env::plantable!(Bug);

/// Runs `mischief` if `bug` is planted.
#[inline(always)]
pub(crate) fn when_planted(bug: Bug, mischief: impl FnOnce()) {
    if planted(bug) {
        mischief();
    }
}

/// Returns `$mischief` in place of what follows if `$bug` is planted.
macro_rules! instead_when_planted {
    ($bug:expr, $mischief:expr) => {
        if $crate::terms::planted::planted($bug) {
            return $mischief;
        }
    };
}
pub(crate) use instead_when_planted;
