//! Durability `storage`: a database survives the loss of everything but its storage.

mod failing;
mod kept;
mod logs;
mod owners;
