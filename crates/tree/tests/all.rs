//! The shared tree. What plants bugs has a program of its own: `planted.rs`.

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
