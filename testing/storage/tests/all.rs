//! The back ends of storage, and crashes. Planted bugs have a program of their own: `planted.rs`.

mod answers;
mod backends;
mod crash;
mod kill;
mod servers;
mod signed;
