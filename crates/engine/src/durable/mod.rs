//! What outlives this process: the manifest of a named database, its recovery, and the only way in which a version is
//! replaced ([`commit`]).
//!
//! Owns the manifest, the commit register and the logs, and the turn of commits. May use the rooms below it. Never
//! here: a version installed before its root is set, or before storage has it; a root set at a past epoch.
//!
//! | | on memory nodes | on storage |
//! |---|---|---|
//! | versions | [`manifest`] | [`register`], after those in memory: [`recorded`] |
//! | records of memtables | [`log`] | [`storage_log`] |
//! | segments | where they are | also objects: [`keeping`] |
//! | opening | [`recovery`], [`replay`] | [`restore`], [`groups`] |
//! | checks before anything is taken over | [`known`] | [`known`], [`unnamed`] |
//! | checkpoints | | [`checkpoints`] |
//! | remains of a drop | | [`dropping`] |
//! | damaged copies | [`mending`] | |

pub(crate) mod checkpoints;
pub(crate) mod commit;
pub(crate) mod copies;
pub(crate) mod crossing;
pub(crate) mod database;
pub(crate) mod dropping;
pub(crate) mod findings;
pub(crate) mod groups;
pub(crate) mod joining;
pub(crate) mod keeping;
pub(crate) mod known;
pub(crate) mod lead;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod mark;
pub(crate) mod member_register;
pub(crate) mod mending;
pub(crate) mod named;
pub(crate) mod node_register;
pub(crate) mod recorded;
pub(crate) mod recovery;
pub(crate) mod regaining;
pub(crate) mod register;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod shipping;
pub(crate) mod side_by_side;
pub(crate) mod storage_log;
pub(crate) mod unnamed;
pub(crate) mod used;
pub(crate) mod whole;
