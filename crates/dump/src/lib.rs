//! Dumps: the keys and values of a database as a stream, in one of three forms, and back.
//!
//! | form | for | module |
//! |---|---|---|
//! | lines of text with tabs | spreadsheets, `sort`, `awk` | [`tsv`] |
//! | lines of JSON | programs | [`json`] |
//! | binary, with checksums | keeping, moving | [`binary`]: the bytes are those of a checkpoint |
//!
//! [`write()`] reads a database or a keyspace as of one moment and writes a dump; it holds only what it is writing at
//! the time. [`load()`] reads one and hands its entries to a [`Loader`], which writes large batches on several threads.
//! A line that makes no sense is an error with its number, which stops the load or is passed over.
//!
//! All forms hold all keys, values and expiry times without loss.

#![forbid(unsafe_code)]

pub mod binary;
mod entry;
mod error;
mod file;
pub mod json;
mod load;
mod loader;
pub mod tsv;
mod write;

pub use entry::{Entry, Format};
pub use error::{Error, Result};
pub use file::{Input, Output};
pub use load::{LoadOptions, Loaded, OnError, load};
pub use loader::Loader;
pub use write::{Dumped, Range, write};
