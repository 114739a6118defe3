//! What a snapshot is to C. Databases make and release it, options of reads name it.

use forebay::Snapshot;
use forebay::process::Owned;
use std::sync::Arc;

/// A moment of a database.
pub struct leveldb_snapshot_t(pub(crate) Arc<Owned<Snapshot>>);
