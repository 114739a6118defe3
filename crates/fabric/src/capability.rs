//! What a back end promises beyond the common contract.

/// What an atomic operation is atomic with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// With other remote atomics and with the target CPU's own atomics.
    Coherent,
    /// With other remote atomics only.
    RemoteOnly,
    /// As [`Atomics::Coherent`], because the target's CPU does them: they cost it time.
    ByTargetCpu,
    /// The back end has no atomic operations.
    None,
}

/// How a grant is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationMode {
    /// At the target, at once.
    Enforced,
    /// The peer releases the memory when asked, or when its connection ends.
    Cooperative,
}

/// What a back end promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The back end's name: `inprocess`, `shm`, `tcp`, `sim`.
    pub name: &'static str,
    /// Atomic operations.
    pub atomics: Atomics,
    /// Operations of one endpoint take effect in the order in which they were posted.
    pub ordered: bool,
    /// How grants are revoked.
    pub revocation: RevocationMode,
    /// Largest read or write in bytes.
    pub max_operation_bytes: usize,
    /// Largest message in bytes.
    pub max_message_bytes: usize,
}
