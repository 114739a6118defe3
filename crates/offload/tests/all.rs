//! Jobs on other nodes, and all that can happen to them.

mod explore;
mod seeds;
mod world;
