//! Bugs that tests plant, to see that they would be found (`testing/storage/tests/planted.rs`).

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A commit replaces what has its number.
    CommitReplaces = 1,
    /// The writer's own commit, whose reply was lost, is taken for another writer's.
    LostReplyFences,
    /// A writer does not check whether a number is absent because it was pruned.
    PrunedNumberIsFree,
    /// A frame is acknowledged when it is written, not when it is synced.
    AcknowledgedBeforeSync,
    /// A failed sync is repeated, and believed.
    FailedSyncIsRetried,
    /// A writer does not check whether its log was sealed.
    SealIsNotSeen,
    /// A bad frame is a torn tail wherever it is.
    DamageIsTorn,
    /// After a bad frame, reading continues at the next good one.
    HolesAreSkipped,
    /// What is recovered is not made durable before it is returned.
    RecoveredIsNotSynced,
    /// A segment's name is used before it survives.
    FolderIsNotSynced,
    /// An object gets its name before its bytes survive.
    ObjectIsNotSynced,
    /// An object is acknowledged before its name survives.
    NameIsNotSynced,
    /// Of two processes that recover a log, the later one decides where it ends.
    RecoveryReplaces,
    /// A segment whose frames reach the end of its file is taken for a torn one.
    CutIsTorn,
    /// A frame is written to room that may be gone after a power failure.
    RoomIsNotSynced,
    /// A segment that one read does not find is taken for one that was trimmed.
    NotFoundIsTrimmed,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::CommitReplaces,
        Self::LostReplyFences,
        Self::PrunedNumberIsFree,
        Self::AcknowledgedBeforeSync,
        Self::FailedSyncIsRetried,
        Self::SealIsNotSeen,
        Self::DamageIsTorn,
        Self::HolesAreSkipped,
        Self::RecoveredIsNotSynced,
        Self::FolderIsNotSynced,
        Self::ObjectIsNotSynced,
        Self::NameIsNotSynced,
        Self::RecoveryReplaces,
        Self::CutIsTorn,
        Self::RoomIsNotSynced,
        Self::NotFoundIsTrimmed,
    ];
}

forebay_env::plantable!(Bug);
