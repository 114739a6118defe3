//! `DUMP` and `RESTORE`: what a key holds, in the bytes that Redis 7.0 reads and writes.
//!
//! | module | holds |
//! |---|---|
//! | `payload` | the bytes around a value: version and checksum |
//! | `reader` | lengths and strings |
//! | `packed` | several values in one string, as Redis keeps small collections |
//! | `values` | what each type is written as, and all the ways in which it may come |
//! | `streams` | the same of streams |
//! | `commands` | commands |

pub mod commands;
mod packed;
pub(in crate::commands) mod payload;
pub(in crate::commands) mod reader;
mod streams;
mod values;
