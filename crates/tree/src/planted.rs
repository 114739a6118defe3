//! Bugs that a test plants to see that the checkers find them: a checker counts only once it has
//! failed. They exist only with the feature `planted`; without it, asking for one is the constant
//! `false`.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A separator is entered although a slot before it is reserved and not yet used.
    EnterPastPending = 1,
    /// A key is inserted although a slot before it is reserved and not yet used.
    InsertPastPending,
    /// A retired node keeps its generation, and is used again without waiting for the readers.
    ReuseTooEarly,
    /// A bucket's generation is not checked.
    MissingGeneration,
    /// A leaf that is being replaced is taken for the right one: a key that is not in it counts as
    /// absent.
    TrustFrozen,
    /// A leaf is copied without being frozen.
    CopyWithoutFreezing,
    /// Words are frozen before the values are staged.
    StageTooLate,
    /// The right half of a split is entered after the left one is swung, not before.
    SwingBeforeEntering,
    /// A delete that finds another value than it read reports success.
    LostTombstone,
    /// A put that finds another value than it read reports success.
    LostUpdate,
    /// A scan does not check whether a leaf was frozen or gone.
    ScanStaleLeaf,
    /// A slot's value is written before its key.
    ValueBeforeKey,
    /// A slot in use is taken for another key's although its key was read too early.
    TrustTorn,
    /// A merge does not wait for entries that are on their way.
    MergePastPending,
    /// A pop reads the round before the tops.
    RoundBeforeTops,
    /// A list that was popped is used for another list at once.
    ListUsedAtOnce,
    /// A list is written after the top that leads to it.
    ListAfterTop,
    /// Retired blocks are pushed to the giving stack.
    PushToGiving,
    /// A round ends although readers have not passed.
    AdvanceTooEarly,
    /// A right half is entered before the separators that it takes over are marked in the old inner node.
    KeepSeparators,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::EnterPastPending,
        Self::InsertPastPending,
        Self::ReuseTooEarly,
        Self::MissingGeneration,
        Self::TrustFrozen,
        Self::CopyWithoutFreezing,
        Self::StageTooLate,
        Self::SwingBeforeEntering,
        Self::LostTombstone,
        Self::LostUpdate,
        Self::ScanStaleLeaf,
        Self::ValueBeforeKey,
        Self::TrustTorn,
        Self::MergePastPending,
        Self::RoundBeforeTops,
        Self::ListUsedAtOnce,
        Self::ListAfterTop,
        Self::PushToGiving,
        Self::AdvanceTooEarly,
        Self::KeepSeparators,
    ];
}

forebay_env::plantable!(Bug);
