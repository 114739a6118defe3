//! Looks at a database in storage, or on memory nodes, without opening it: shows it, verifies it, and saves what is
//! left.
//!
//! Owns nothing that lasts. Reads what `durable` wrote, by the same names and codecs, and changes nothing: it claims no
//! register, acquires no shard, seals no log and deletes no object. May use the rooms below it. Never here: a write, or
//! an end at the first damage. It reports damage with the object's name, and continues with the rest.
//!
//! | | |
//! |---|---|
//! | [`report`] | what was found, as rows |
//! | [`source`] | the bytes of segments, in storage or in an open database |
//! | [`check`] | whether a version's tables and segments are what they should be |
//! | [`stored`] | a database as it is in storage |
//! | [`verify`] | all of a database |
//! | [`show`] | a part of it |
//! | [`in_memory`] | a part of a database as it is on memory nodes |
//! | [`rows`] | what versions, images and records say |
//! | [`numbers`], [`records`], [`remains`], [`salvage`] | what can be saved when the register, or objects, are gone |

pub(crate) mod check;
pub(crate) mod in_memory;
pub(crate) mod numbers;
pub(crate) mod records;
pub(crate) mod remains;
pub(crate) mod report;
pub(crate) mod rows;
pub(crate) mod salvage;
pub(crate) mod show;
pub(crate) mod source;
pub(crate) mod stored;
pub(crate) mod verify;
