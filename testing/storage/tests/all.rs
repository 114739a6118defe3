//! The back ends of storage, and crashes. Bugs that are planted have a program of their own: `planted.rs`.

mod answers;
mod backends;
mod crash;
mod kill;
mod servers;
mod signed;
