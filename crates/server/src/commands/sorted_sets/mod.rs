//! Sorted sets: members with scores. Each member is two records of the engine: one leads from the member to its
//! score, and one is in the order of scores.
//!
//! A range of scores costs as much as it has members. A rank costs as much as there are members before it, or after it,
//! because the engine does not count.
//!
//! | module | holds |
//! |---|---|
//! | `members` | reading and changing members |
//! | `bounds` | ranges of ranks, scores and members |
//! | `basic` | commands about members |
//! | `ranges` | commands about ranges |
//! | `pops` | commands that remove the first or last members |
//! | `algebra` | unions, intersections, differences |

pub mod algebra;
pub mod basic;
mod bounds;
pub(crate) mod members;
pub mod pops;
pub mod ranges;
