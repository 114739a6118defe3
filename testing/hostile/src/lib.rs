//! Clients that attack a memory node, beside an honest one that must not notice.
//!
//! | module | holds |
//! |---|---|
//! | [`decoders`] | the decoders of bytes from outside, as functions that take any bytes |
//! | [`field`], [`onslaught`] | a node that is attacked for a while, and the continuous attacks |
//! | [`arena`] | the node, the honest tenant, and what must hold |
//!
//! All attacks except those by compaction jobs use `testing/raw-client`, which uses no crate of Forebay. The attacks are in
//! `tests/attacks.rs`, those by compaction jobs in `tests/compactions.rs`, and those on admission in `tests/admission.rs`.
//! They count events, and use no clock. The program `hostile` runs the continuous attacks together for a while
//! ([`onslaught`]), against a node in a process of its own ([`field`]), and measures the honest tenant.

#![forbid(unsafe_code)]

pub mod arena;
pub mod decoders;
pub mod field;
pub mod onslaught;
