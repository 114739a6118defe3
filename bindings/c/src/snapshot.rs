//! Snapshots as C sees them. Databases make and release them, options of reads name them.

use forebay::Snapshot;
use forebay::process::Owned;
use std::sync::Arc;

/// A moment of a database.
pub struct leveldb_snapshot_t(pub(crate) Arc<Owned<Snapshot>>);
