//! The suite on each back end, and seeds of the simulated one.

mod inprocess;
mod seeds;
mod shm;
mod sim;
mod tcp;
