//! An ordered index that lives in memory nodes and that any number of clients read and write at once by
//! one-sided operations (Dolphin). Nobody owns it.
//!
//! Inner nodes route by separators, and clients cache them. Leaves hold keys and values in hashed
//! buckets, so a get reads one bucket of one leaf. There are no locks. One compare-and-swap of an
//! aligned word decides every change, and a client that meets an incomplete structure change completes
//! it. The protocol, with its invariants and why each interleaving and each death of a client is safe,
//! is in `docs/concepts/shared-tree.md`.
//!
//! | module | holds |
//! |---|---|
//! | `word`, `layout`, `key` | the layout of words and nodes |
//! | `verbs`, `client` | one-sided operations; finding the leaf of a key |
//! | `operate` | get, put, insert, update, compare-and-set, delete |
//! | `freeze`, `replace`, `inner` | splits, merges, growth |
//! | `scan`, `bulk`, `verify` | ranges, loading sorted input, checking every invariant |
//! | `fork`, `planted` | code that only tests use |
//! | `class`, `memory`, `allocate` | remote memory: how it is divided, and what a process holds of it |
//! | `shelf`, `stacks`, `account` | free blocks that all processes share, and when they are reused |
//! | `cache`, `cached_node` | what clients cache |

#![forbid(unsafe_code)]

mod account;
mod allocate;
mod bulk;
mod cache;
mod cached_node;
mod class;
mod client;
mod error;
#[cfg(feature = "planted")]
mod fork;
mod freeze;
mod inner;
mod key;
mod layout;
mod memory;
mod operate;
mod options;
pub mod planted;
mod replace;
mod scan;
mod shared;
mod shelf;
mod stacks;
#[cfg(test)]
mod tests;
mod tree;
mod verbs;
mod verify;
mod word;

pub use account::TreeMemory;
#[cfg(feature = "planted")]
pub use class::BlockName;
pub use client::TreeClient;
pub use error::Error;
pub use key::MAX_KEY_BYTES;
pub use options::TreeOptions;
pub use scan::{Entry, Range};
pub use shared::Tree;
pub use verbs::{Hook, Verb};
pub use verify::TreeStatistics;
