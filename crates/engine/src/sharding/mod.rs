//! Several shards as one: routing, cuts, batches that cross shards, bounds that move.
//!
//! Owns the [`Router`](router::Router), and with it all shards of a database. May use the rooms below it. Never here: a
//! key with two owners, or a reader that sees part of a batch.

pub(crate) mod fitting;
pub(crate) mod held;
pub(crate) mod move_bound;
pub(crate) mod open;
pub(crate) mod open_copied;
pub(crate) mod open_stored;
pub(crate) mod opened;
pub(crate) mod pause;
pub(crate) mod rebalance;
pub(crate) mod rejoining;
pub(crate) mod router;
pub(crate) mod split;
pub(crate) mod transact;
pub(crate) mod weights;
