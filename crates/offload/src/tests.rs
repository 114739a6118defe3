//! What the tests of this crate share.

use crate::job::{Package, Span, StorageNeed, Ticket};

/// Returns a job of the first life of memory node 7. It holds `memory_bytes` in its executor's memory, and writes
/// `storage_bytes` to storage.
pub fn package(memory_bytes: u64, storage_bytes: u64) -> Package {
    let ticket = Ticket { node: 7, incarnation: 1, job: 1, secret: 1 };
    let arguments = Span { extent: 0, offset: 0, length: 1, checksum: 0 };
    let storage = if storage_bytes > 0 { StorageNeed::Own } else { StorageNeed::None };
    Package { kind: 16, storage, ticket, arguments, memory_bytes, storage_bytes }
}
