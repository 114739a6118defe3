//! Forebay's C interface: the 68 functions of LevelDB's C interface under their own names, and `forebay_…` functions
//! for what LevelDB does not have. `include/forebay.h` declares both; the C++ headers beside it are built on them.
//!
//! A program that links LevelDB can link Forebay instead. `docs/reference/bindings.md` says what differs. This crate
//! holds no logic of a database: it turns pointers into values, calls crate `forebay`, and turns results into pointers.
//!
//! # Safety
//!
//! The compiler cannot check what a C program passes. Each function relies on these rules, and on nothing else:
//!
//! 1. A handle (`leveldb_t *` and the like) is `NULL` or came from this library, and was not destroyed.
//! 2. While a function runs on an iterator or a batch, or changes an options object, no other thread uses that object.
//!    Databases, snapshots, tables of requests, comparators, caches, environments, and options that nobody changes
//!    meanwhile may be used by any number of threads.
//! 3. A pointer and a length name that many readable bytes, which nobody changes during the call. Strings end with a
//!    zero byte. An array has as many elements as the function's count says.
//! 4. An error pointer is `NULL`, or points to `NULL` or to a string that `malloc` gave.
//! 5. Functions that are passed in obey their own declarations, and do not unwind.
//!
//! A process that is forked after a database was opened may still pass the database's handle: functions refuse it, and
//! functions that end a handle forget it.
//!
//! In return, no function unwinds into C: a panic becomes an error, or no effect where a function cannot fail. `NULL`
//! where it is not allowed has the same result. The caller owns what a function returns. Memory for the caller comes
//! from `malloc`, and `leveldb_free` frees it.

#![allow(non_camel_case_types, reason = "types have the names that C programs know")]

mod batch;
mod border;
mod comparator;
mod database;
mod environment;
mod extensions;
mod failure;
mod hints;
mod iterator;
mod options;
mod process;
mod requests;
mod snapshot;

pub use batch::*;
pub use comparator::*;
pub use database::*;
pub use environment::*;
pub use extensions::*;
pub use hints::*;
pub use iterator::*;
pub use options::*;
pub use requests::*;
pub use snapshot::*;
