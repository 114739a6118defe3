//! Counts of what was done over the fabric.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whose traffic it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traffic {
    /// Operations that a caller waits for.
    #[default]
    Foreground,
    /// Flushes, compactions, upkeep.
    Background,
}

/// Counts of an endpoint, or sums of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Round trips that a thread waited for.
    pub round_trips: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// One-sided reads.
    pub reads: u64,
    /// One-sided writes, with immediate or without.
    pub writes: u64,
    /// Compare-and-swaps and fetch-and-adds.
    pub atomics: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes that reads and atomics brought, and replies written to this side by RPC.
    pub bytes_read: u64,
    /// Bytes that writes, atomics and messages sent.
    pub bytes_written: u64,
}

impl Counts {
    /// Operations of all kinds.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.reads + self.writes + self.atomics + self.messages
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.round_trips += other.round_trips;
        self.doorbells += other.doorbells;
        self.reads += other.reads;
        self.writes += other.writes;
        self.atomics += other.atomics;
        self.messages += other.messages;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            doorbells: self.doorbells.saturating_sub(earlier.doorbells),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            atomics: self.atomics.saturating_sub(earlier.atomics),
            messages: self.messages.saturating_sub(earlier.messages),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}

/// Counts that one thread updates with each of its operations, and any thread reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CountsCell {
    round_trips: AtomicU64,
    doorbells: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    atomics: AtomicU64,
    messages: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl CountsCell {
    /// Adds to a count. Only the owning thread calls it, so no read-modify-write is needed.
    fn bump(cell: &AtomicU64, by: u64) {
        cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    pub(crate) fn round_trip(&self) {
        Self::bump(&self.round_trips, 1);
    }
    pub(crate) fn doorbell(&self) {
        Self::bump(&self.doorbells, 1);
    }
    pub(crate) fn read(&self, bytes: usize) {
        Self::bump(&self.reads, 1);
        Self::bump(&self.bytes_read, bytes as u64);
    }
    pub(crate) fn write(&self, bytes: usize) {
        Self::bump(&self.writes, 1);
        Self::bump(&self.bytes_written, bytes as u64);
    }
    pub(crate) fn atomic(&self) {
        Self::bump(&self.atomics, 1);
        Self::bump(&self.bytes_read, 8);
        Self::bump(&self.bytes_written, 8);
    }
    pub(crate) fn message(&self, bytes: usize) {
        Self::bump(&self.messages, 1);
        Self::bump(&self.bytes_written, bytes as u64);
    }
    pub(crate) fn reply(&self, bytes: usize) {
        Self::bump(&self.bytes_read, bytes as u64);
    }

    /// The counts now.
    pub fn read_all(&self) -> Counts {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counts {
            round_trips: get(&self.round_trips),
            doorbells: get(&self.doorbells),
            reads: get(&self.reads),
            writes: get(&self.writes),
            atomics: get(&self.atomics),
            messages: get(&self.messages),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
        }
    }
}

/// The counts of all endpoints of a link, those that are gone included.
#[derive(Debug, Default)]
pub struct CountsRegistry {
    cells: Mutex<Registered>,
}

#[derive(Debug, Default)]
struct Registered {
    live: Vec<(Traffic, Arc<CountsCell>)>,
    gone: [Counts; 2],
}

impl CountsRegistry {
    /// A cell for a new endpoint.
    pub fn register(&self, traffic: Traffic) -> Arc<CountsCell> {
        let mut registered = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let Registered { live, gone } = &mut *registered;
        live.retain(|(traffic, cell)| {
            let keep = Arc::strong_count(cell) > 1;
            if !keep {
                gone[*traffic as usize] += cell.read_all();
            }
            keep
        });
        let cell = Arc::new(CountsCell::default());
        live.push((traffic, Arc::clone(&cell)));
        cell
    }

    /// The sum of the counts of this traffic.
    pub fn sum(&self, traffic: Traffic) -> Counts {
        let registered = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = registered.gone[traffic as usize];
        for (of, cell) in &registered.live {
            if *of == traffic {
                sum += cell.read_all();
            }
        }
        sum
    }
}
