//! Clients that attack a memory node, beside an honest one that must not notice.
//!
//! | module | holds |
//! |---|---|
//! | [`decoders`] | what decodes bytes from outside, to be given any |
//! | [`field`], [`onslaught`] | a node that is attacked for a while, and the attacks that last |
//! | [`arena`] | the node, the honest tenant, and what must hold |
//!
//! All attacks but those by jobs that compact are made with `testing/raw-client`, which uses no crate of Forebay.
//! The attacks are in `tests/attacks.rs`, those by jobs that compact in `tests/compactions.rs`, and those on who may connect in
//! `tests/admission.rs`; they count, and have no clock. The program `hostile` lets those that last run together for a while ([`onslaught`]), against a node in a
//! process of its own ([`field`]), and measures the honest one.

#![forbid(unsafe_code)]

pub mod arena;
pub mod decoders;
pub mod field;
pub mod onslaught;
