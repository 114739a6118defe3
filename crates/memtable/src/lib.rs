//! The structures that one shard of the engine writes into: key-value blocks, the concurrent ordered index over them,
//! and the reservation and publication of sequence numbers. Knows neither tables nor the network.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@block`] | the key-value block and the memory that carries it |
//! | [`reservation`] | one fetch-and-add for bytes and sequence numbers |
//! | [`log`] | a slot for each record, and chains of slots by hash |
//! | [`index`] | the B+-tree from internal keys to records, for readers that need order |
//! | `sorted` | the records of a complete memtable in order |
//! | [`image`] | an index as bytes, which a receiver can search |
//! | `pieces` | which bytes of a block are complete |
//! | [`memtable`] | all of the above as one memtable |
//! | [`publication`] | the published number of a shard |
//! | [`mod@switch`] | the current memtable, loaded without a lock |
//!
//! Glossary: a **reservation** is the range of bytes and sequence numbers that one writer fills. A record's **ordinal**
//! is its number among the memtable's records, from 0. A memtable's **end** is its final count of records and bytes. A
//! record is **listed** when its slot of the log is in use. A **piece** is a part of the block that can be sent by
//! itself. A **mark** shows that a reservation is finished. A **slot** is an entry of the log, or of a **node** of the
//! index. A **snapshot** of a node is the value of its latch at one moment.
//!
//! # A write
//!
//! ```
//! use forebay_base::{KeyOrder, Kind, Record, SequenceNumber};
//! use forebay_memtable::{HeapMemory, Memtable, MemtableOptions, Publication, Reserved, Switch};
//! use std::sync::Arc;
//!
//! let options = MemtableOptions {
//!     order: KeyOrder::Bytewise,
//!     base: SequenceNumber(0),
//!     capacity_bytes: 1 << 16,
//!     piece_bytes: MemtableOptions::DEFAULT_PIECE_BYTES,
//! };
//! let memory = Box::new(HeapMemory::new(options.capacity_bytes));
//! let switch = Switch::new(Arc::new(Memtable::new(options, memory)?));
//! let publication = Publication::new(SequenceNumber(0), Publication::DEFAULT_SLOTS);
//!
//! let memtable = switch.load();
//! let bytes = Record::encoded_length(3, 5, false);
//! let Reserved::Fits(mut reservation) = memtable.reserve(1, bytes as u64)? else { panic!("it is empty") };
//! let at = reservation.insert(Kind::Put, b"key", b"value", None)?;
//! publication.publish(at.sequence, at.sequence);
//! publication.wait_published(at.sequence);
//!
//! let found = memtable.get(b"key", publication.published())?.expect("just written");
//! assert_eq!(found.record.value, b"value");
//! # Ok::<(), forebay_memtable::MemtableError>(())
//! ```
//!
//! # Checks
//!
//! ```text
//! cargo test -p forebay-memtable
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p forebay-memtable --test loom
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p forebay-memtable --test shuttle
//! cargo xtask miri
//! cargo xtask miri-seeds
//! cargo run -p forebay-memtable --release --example insert_rate
//! ```
//!
//! loom explores every interleaving of two or three threads over the kernels (publication, reservation with switch,
//! inserting into the index). shuttle samples schedules of the whole write path. Miri checks the unsafe code, including
//! that of the fabric. Planted bugs check both model checkers (`planted`).

pub mod block;
mod cursor;
mod error;
pub mod image;
pub mod index;
pub mod log;
mod lookup;
pub mod memtable;
mod node;
mod padded;
mod pieces;
#[cfg(any(loom, shuttle))]
pub mod planted;
#[cfg(not(any(loom, shuttle)))]
mod planted;
mod prefetch;
pub mod publication;
mod records;
#[cfg(not(any(loom, shuttle)))]
mod registered;
pub mod reservation;
mod sorted;
pub mod switch;
mod target;
mod walk;

pub use block::{BlockMemory, HeapMemory, RecordRef};
pub use cursor::Cursor;
pub use error::{IndexError, MemtableError};
pub use image::{BlockBytes, ImageCursor, IndexImage};
#[cfg(not(any(loom, shuttle)))]
pub use lookup::LookupPool;
#[cfg(not(any(loom, shuttle)))]
pub use memtable::OwnedCursor;
pub use memtable::{KeyHash, Memtable, MemtableCursor, MemtableOptions, RecordAt, Reservation, Reserved};
pub use publication::Publication;
#[cfg(not(any(loom, shuttle)))]
pub use registered::{BlockPool, RegisteredBlock, SealedBlock};
pub use reservation::{Extent, MAX_CAPACITY_BYTES, MAX_RESERVATION_BYTES, MAX_RESERVATION_COUNT};
pub use sorted::SortedRecords;
pub use switch::{Guard, Switch};
