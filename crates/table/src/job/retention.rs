//! Decides which versions of a key a reader can still see.
//!
//! The snapshots divide the sequence numbers into **stripes**: `(…, s1], (s1, s2], …, (sn, …)`. Of each key, a reader
//! sees the newest version of its stripe or of an older one. So only the newest version of each key and stripe is kept.
//! A deletion must be kept as long as an older stripe or an older table may hold something that it hides. It is dropped
//! in the oldest stripe of a bottommost compaction. A range deletion hides older entries in its own stripe.
//!
//! A reader without a registered snapshot is safe if it takes its version first and its number second: entries dropped
//! from that version's tables were hidden by entries that had been published.
//!
//! A record that has expired by the job's time hides what a deletion hides, and is dropped where a deletion is. The
//! job's time is not later than that of any snapshot, so each snapshot still sees what had not expired by its time.
//!
//! An operand of a merge hides nothing: what follows it in its stripe is also kept, up to and including the entry that
//! ends the **chain** of operands: a value, or what hides everything older. A job that writes records anew makes one
//! record of a chain.
//!
//! Entries come in key order, so range deletions are swept along with them, separately for each stripe.

use crate::deletions::DeletionSweep;
use crate::entry::{IndexEntry, RangeTombstone};
use forebay_base::record::is_expired;
use forebay_base::{KeyOrder, Kind, SequenceNumber, Tag};

/// Decides entry by entry, in order of internal keys.
#[derive(Debug)]
pub(super) struct Retention {
    snapshots: Vec<SequenceNumber>,
    is_bottommost: bool,
    expire_before_ms: u64,
    /// The range deletions by stripe; empty if there are no range deletions.
    deletions: Vec<DeletionSweep>,
    /// The last entry's key and stripe.
    key: Vec<u8>,
    stripe: Option<usize>,
    /// Whether the last entry was an operand, so that the next one of the key and stripe continues the chain.
    in_chain: bool,
}

/// The decision about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether it must be kept.
    pub is_kept: bool,
    /// Its place in a chain of operands; `None` outside of one.
    pub link: Option<Link>,
}

/// A place in a chain of operands of one key and stripe, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// The first operand.
    First,
    /// A further one.
    Further,
    /// The value that the operands apply to ends the chain.
    Value,
    /// The end: there is no value, because this entry, or what hides it, deletes the value.
    Nothing,
}

impl Retention {
    pub fn new(
        order: KeyOrder,
        snapshots: Vec<SequenceNumber>,
        is_bottommost: bool,
        expire_before_ms: u64,
        tombstones: Vec<RangeTombstone>,
    ) -> Self {
        let deletions = sweeps(order, &snapshots, tombstones);
        Self { snapshots, is_bottommost, expire_before_ms, deletions, key: Vec::new(), stripe: None, in_chain: false }
    }

    /// Number of the stripe of a sequence number; the oldest is 0.
    fn stripe(&self, tag: Tag) -> usize {
        stripe_of(&self.snapshots, tag)
    }

    /// Whether a deletion with this tag no longer hides anything.
    pub fn is_spent(&self, tag: Tag) -> bool {
        self.is_bottommost && self.stripe(tag) == 0
    }

    /// Decides on an entry. Entries come in order of their internal keys.
    pub fn judge(&mut self, entry: &IndexEntry<'_>) -> Verdict {
        let stripe = self.stripe(entry.key.tag);
        let same_key = self.stripe.is_some() && self.key == entry.key.user_key;
        let same_stripe = same_key && self.stripe == Some(stripe);
        let goes_on = std::mem::take(&mut self.in_chain) && same_stripe;
        if same_stripe && !goes_on {
            return Verdict { is_kept: false, link: None };
        }
        if !same_key {
            self.key.clear();
            self.key.extend_from_slice(entry.key.user_key);
        }
        self.stripe = Some(stripe);
        let nothing = goes_on.then_some(Link::Nothing);
        if self.is_covered(entry, stripe) {
            return Verdict { is_kept: false, link: nothing };
        }
        match entry.key.tag.kind() {
            Kind::Merge => {
                self.in_chain = true;
                Verdict { is_kept: true, link: Some(if goes_on { Link::Further } else { Link::First }) }
            }
            kind if kind == Kind::Delete || is_expired(entry.expiry_ms, self.expire_before_ms) => {
                Verdict { is_kept: !self.is_spent(entry.key.tag), link: nothing }
            }
            _ => Verdict { is_kept: true, link: goes_on.then_some(Link::Value) },
        }
    }

    fn is_covered(&mut self, entry: &IndexEntry<'_>, stripe: usize) -> bool {
        let newest = self.deletions.get_mut(stripe).and_then(|sweep| sweep.newest_over(entry.key.user_key));
        newest.is_some_and(|newest| newest > entry.key.tag.sequence())
    }
}

fn stripe_of(snapshots: &[SequenceNumber], tag: Tag) -> usize {
    snapshots.partition_point(|snapshot| *snapshot < tag.sequence())
}

/// The range deletions, by stripe.
fn sweeps(order: KeyOrder, snapshots: &[SequenceNumber], tombstones: Vec<RangeTombstone>) -> Vec<DeletionSweep> {
    if tombstones.is_empty() {
        return Vec::new();
    }
    let mut stripes = vec![Vec::new(); snapshots.len() + 1];
    for tombstone in tombstones {
        if let Some(stripe) = stripes.get_mut(stripe_of(snapshots, tombstone.tag)) {
            stripe.push(tombstone);
        }
    }
    stripes.into_iter().map(|stripe| DeletionSweep::new(order, stripe)).collect()
}
