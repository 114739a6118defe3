//! The shared tree. Tests that plant bugs have a program of their own: `planted.rs`.

mod boundaries;
mod common;
mod concurrent;
mod counts;
mod full;
mod halves;
mod interleaved;
mod lifetime;
mod model;
mod speed;
mod stale;
