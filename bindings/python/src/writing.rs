//! What writes of all kinds share.

use forebay::{Durability, Store, WriteOptions};

/// Options of a write. A node in this process ends with it, so there is nothing to sync to.
pub(crate) fn write_options(store: &Store, sync: bool) -> WriteOptions {
    WriteOptions { durability: (sync && !store.is_embedded()).then_some(Durability::Memory { copies: 1 }) }
}
