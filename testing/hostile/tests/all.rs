//! Each attack by itself. `onslaught.rs`, which loads the machine, is a program of its own.

mod admission;
mod attacks;
mod bodies;
mod compactions;
mod decoders;
