//! Each attack by itself. `onslaught.rs`, which loads the machine, is a separate program.

mod admission;
mod attacks;
mod bodies;
mod compactions;
mod decoders;
