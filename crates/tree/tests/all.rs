//! The shared tree. The bug that `rounds.rs` plants has a program of its own.

mod boundaries;
mod common;
mod concurrent;
mod counts;
mod full;
mod interleaved;
mod lifetime;
mod model;
mod speed;
mod stale;
