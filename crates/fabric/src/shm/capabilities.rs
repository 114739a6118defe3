//! What the back end promises.

use super::frame::MAX_MESSAGE_BYTES;
use crate::{Atomics, Capabilities, RevocationMode};

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name: "shm",
    atomics: Atomics::Coherent,
    ordered: true,
    revocation: RevocationMode::Cooperative,
    max_operation_bytes: 1 << 30,
    max_message_bytes: MAX_MESSAGE_BYTES,
};
