//! HyperLogLog: how many different elements were added, about, in at most 12 KiB.
//!
//! A sketch is a string, byte for byte as Redis has it, so that `GET` and `SET` carry it from one to the other.
//!
//! | module | holds |
//! |---|---|
//! | `estimate` | the hash of an element, and the estimate from what registers hold |
//! | `sketch` | the string |
//! | `commands` | commands |

pub mod commands;
mod estimate;
mod sketch;
