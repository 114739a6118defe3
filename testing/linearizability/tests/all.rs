//! Histories of the shared tree. Bugs that are planted have programs of their own.

mod exhaustive;
mod seeds;
