//! The server beside a real Redis.

mod access;
mod clients;
mod common;
mod connections;
mod dumps;
mod events;
mod forms;
mod long;
mod migrate;
mod scripts;
mod short;
mod tracking;
mod tree;
