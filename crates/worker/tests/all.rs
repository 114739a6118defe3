//! Pools of workers. The bug that `planted.rs` plants has a program of its own.

mod common;
mod election;
mod pool;
