//! Point reads: a key's memtables, the places in tables that may hold it, and the single read of its record.
//!
//! Owns nothing: a read holds a view and an endpoint while it runs. May use [`terms`](crate::terms),
//! [`remote`](crate::remote), [`tree`](crate::tree), and what [`plan`](crate::plan) decides about lookups. Never here: a lock that a writer or background work takes, or
//! an unverified record.

pub(crate) mod delegated;
pub(crate) mod found;
pub(crate) mod get;
pub(crate) mod lookup;
pub(crate) mod merged;
pub(crate) mod multi_get;
pub(crate) mod probe;
