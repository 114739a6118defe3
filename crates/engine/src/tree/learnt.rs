//! Addresses of records that lookups without a point index have found (O3-LSM 4.5, the key-offset cache).
//!
//! Such a lookup costs a message or a read of index blocks before the record can be read. The next one of the same key
//! reads the record at once, if nothing can have changed:
//!
//! * The table is still on the key's way. Then its segments are held, and the record is where it was.
//! * No newer record of the key can be in it, or in a table before it whose index is not held. Each entry says up to
//!   which number the record is known to be the key's newest: none of these tables may have a later one, unless the read
//!   itself is not later.
//!
//! Entries are found by the key's hash. The record that is read has the key and the number, or the entry is dropped and
//! the lookup begins anew. It also does when it meets something else of the key first: keys may have the same hash. Which
//! entries stay is up to crate `quick_cache`.

use crate::terms::Options;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics::{add, get};
use crate::tree::table::Table;
use forebay_base::SequenceNumber;
use forebay_table::{Candidate, TableId};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::AtomicU64;

/// Bytes of an entry, with what the cache needs for it, about.
const ENTRY_BYTES: u64 = 96;
/// Most entries: 96 MiB of them.
const MOST_ENTRIES: u64 = 1 << 20;

/// The place of a key's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) table: TableId,
    pub(crate) place: Candidate,
    /// The record's number.
    pub(crate) sequence: SequenceNumber,
    /// The key has no newer record up to this number.
    pub(crate) newest_to: SequenceNumber,
}

/// The hasher's keys are fixed, so that two runs of a simulation are alike. What is hashed is a hash already.
type Addresses = Cache<u64, Address, UnitWeighter, BuildHasherDefault<DefaultHasher>>;

/// See the module.
pub(crate) struct Learnt {
    addresses: Option<Addresses>,
    used: AtomicU64,
    stale: AtomicU64,
}

impl fmt::Debug for Learnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learnt").field("entries", &self.addresses.as_ref().map(Cache::len)).finish_non_exhaustive()
    }
}

impl Learnt {
    /// Nothing is known yet. A tree has its part of the budget for addresses.
    pub(crate) fn new(options: &Options) -> Self {
        let budget = options.budget_for_addresses() / options.shards.max(1) as u64;
        let entries = (budget / ENTRY_BYTES).min(MOST_ENTRIES);
        let cache = || {
            let hasher = BuildHasherDefault::default();
            Cache::with(entries as usize, entries, UnitWeighter, hasher, DefaultLifecycle::default())
        };
        let (used, stale) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { addresses: (entries > 0).then(cache), used, stale }
    }

    /// Remembers the record of the key with this hash.
    pub(crate) fn learn(&self, hash: u64, address: Address) {
        if let Some(addresses) = &self.addresses {
            addresses.insert(hash, address);
        }
    }

    /// The address of the newest record of the key with this hash up to `number`, if it is known. `tables` are those on
    /// the key's way whose point indexes are not held.
    pub(crate) fn find<'t>(
        &self,
        hash: u64,
        number: SequenceNumber,
        tables: impl IntoIterator<Item = &'t Table>,
    ) -> Option<Address> {
        let address = self.addresses.as_ref()?.get(&hash)?;
        if address.sequence > number {
            return None;
        }
        for table in tables {
            let is_later = number > address.newest_to && table.properties().largest_sequence > address.newest_to;
            if is_later && !planted(Bug::TrustLearntAddress) {
                break;
            }
            if table.id() == address.table {
                add(&self.used, 1);
                return Some(address);
            }
        }
        self.forget(hash);
        None
    }

    /// Drops the entry of the key with this hash, which is wrong or of no use any more.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(addresses) = &self.addresses
            && addresses.remove(&hash).is_some()
        {
            add(&self.stale, 1);
        }
    }

    /// How many addresses were used, and how many dropped because something had changed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (get(&self.used), get(&self.stale))
    }

    /// Bytes that the entries take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.addresses.as_ref().map_or(0, |addresses| addresses.len() as u64 * ENTRY_BYTES)
    }
}
