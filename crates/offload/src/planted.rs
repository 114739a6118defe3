//! Bugs that tests plant to see that the checkers find them. They exist only with the feature `planted`. Without it, a
//! query for one is the constant `false`.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An owner installs the result of an attempt that it no longer waits for.
    InstallsLate,
    /// An owner frees the inputs of a job before it has acknowledged the job and the job's keys are revoked.
    FreesInputsEarly,
    /// An owner leaves a job's ticket open when it is done with the job.
    GrantsOutlive,
    /// A scheduler continues when its lease has run out, and an executor listens to it.
    TwoSchedulers,
}

/// The bug that is planted in a decider, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Planted(#[cfg(feature = "planted")] pub Option<Bug>);

impl Planted {
    #[cfg(feature = "planted")]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) const fn has(self, _bug: Bug) -> bool {
        false
    }
}
