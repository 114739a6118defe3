//! HyperLogLog: about how many different elements were added, in at most 12 KiB.
//!
//! A sketch is a string, byte for byte as in Redis, so that `GET` and `SET` can copy it between the two.
//!
//! | module | holds |
//! |---|---|
//! | `estimate` | the hash of an element, and the estimate from what registers hold |
//! | `sketch` | the string |
//! | `commands` | commands |

pub mod commands;
mod estimate;
mod sketch;
