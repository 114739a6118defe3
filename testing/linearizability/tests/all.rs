//! Histories of the shared tree. Tests of planted bugs have programs of their own.

mod exhaustive;
mod seeds;
