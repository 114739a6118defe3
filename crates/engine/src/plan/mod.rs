//! What to do next: which memtables to flush, which tables to compact, which writers wait and for how long, and who gets room.
//!
//! Pure: what happened goes in, what to do comes out. Owns the bookkeeping of background work, which
//! [`work`](crate::work) keeps under its lock. May use [`terms`](crate::terms) and the metadata of
//! [`tree`](crate::tree). Never here: a lock, a clock, a thread, or the fabric; callers pass the time in as a number.

pub(crate) mod age;
pub(crate) mod delegating;
pub(crate) mod lag;
pub(crate) mod ledger;
pub(crate) mod manual;
#[cfg(test)]
pub(crate) mod model;
pub(crate) mod pace;
pub(crate) mod picker;
pub(crate) mod planner;
pub(crate) mod replication;
pub(crate) mod room;
pub(crate) mod settling;
pub(crate) mod space;
pub(crate) mod stall;
pub(crate) mod tiers;
