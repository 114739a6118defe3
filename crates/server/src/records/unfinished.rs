//! Batches of the shared tree that count but are not applied yet.
//!
//! A batch counts once its journal exists. If its changes cannot be made then, usually because the memory nodes are
//! full, they are remembered here, and reads look here before they look into the tree. So nobody sees a part of the
//! batch.

use crate::records::changes::{self, Change};
use crate::records::direction::Direction;
use crate::records::journal::Slot;
use forebay::Error;
use forebay::tree::Entry;
use forebay_env::sync::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard};

/// The state of a key after a batch: its value, or `None` if it has none.
type State = Option<Vec<u8>>;

/// A batch that is not applied.
#[derive(Debug)]
pub struct Batch {
    /// Where its journal is.
    pub slot: Slot,
    /// Number of the journal's pieces beside the head.
    pub pieces: u16,
    /// Its changes, as bytes.
    pub changes: Vec<u8>,
    states: BTreeMap<Vec<u8>, State>,
    removed: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Batch {
    /// Makes the batch whose journal is at a slot.
    ///
    /// # Errors
    /// `Corrupt` when these are no changes.
    pub fn new(slot: Slot, pieces: u16, changes: Vec<u8>) -> Result<Self, Error> {
        let (mut states, mut removed) = (BTreeMap::new(), Vec::new());
        for change in changes::read(&changes) {
            match change? {
                Change::Put(key, value) => _ = states.insert(key.to_vec(), Some(value.to_vec())),
                Change::Delete(key) => _ = states.insert(key.to_vec(), None),
                Change::DeleteRange(from, to) => {
                    states.retain(|key: &Vec<u8>, _: &mut State| !is_within(key, from, to));
                    removed.push((from.to_vec(), to.to_vec()));
                }
            }
        }
        Ok(Self { slot, pieces, changes, states, removed })
    }

    fn is_removed(&self, key: &[u8]) -> bool {
        self.removed.iter().any(|(from, to)| is_within(key, from, to))
    }

    /// Returns the state of a key, if the batch changes the key.
    fn state(&self, key: &[u8]) -> Option<State> {
        self.states.get(key).cloned().or_else(|| self.is_removed(key).then_some(None))
    }

    fn touches(&self, change: Change<'_>) -> bool {
        match change {
            Change::Put(key, _) | Change::Delete(key) => self.states.contains_key(key) || self.is_removed(key),
            Change::DeleteRange(from, to) => {
                let crosses =
                    |(other_from, other_to): &(Vec<u8>, Vec<u8>)| from < &other_to[..] && &other_from[..] < to;
                self.removed.iter().any(crosses) || self.states.keys().any(|key| is_within(key, from, to))
            }
        }
    }
}

fn is_within(key: &[u8], from: &[u8], to: &[u8]) -> bool {
    from <= key && key < to
}

/// All such batches. No two touch the same key.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Whether there are any. A thread that has locked a key sees what earlier holders of the lock recorded.
    any: AtomicBool,
    batches: RwLock<Vec<Arc<Batch>>>,
}

impl Unfinished {
    /// Whether there are some.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Batch>>> {
        self.batches.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all current batches.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Batch>> {
        self.read().clone()
    }

    /// Adds a batch.
    pub fn add(&self, batch: Batch) {
        let mut batches = self.batches.write().unwrap_or_else(PoisonError::into_inner);
        batches.push(Arc::new(batch));
        // Pairs with `any`.
        self.any.store(true, Ordering::Release);
    }

    /// Removes a batch, whose changes are made.
    pub fn remove(&self, slot: Slot) {
        let mut batches = self.batches.write().unwrap_or_else(PoisonError::into_inner);
        batches.retain(|batch| batch.slot != slot);
        self.any.store(!batches.is_empty(), Ordering::Release);
    }

    /// Returns the state of a key, if one of the batches changes the key.
    #[inline]
    #[must_use]
    pub fn state(&self, key: &[u8]) -> Option<State> {
        if self.any() { self.read().iter().find_map(|batch| batch.state(key)) } else { None }
    }

    /// Whether one of the batches touches keys that these changes change.
    ///
    /// # Errors
    /// `Corrupt` when these are no changes.
    pub fn touches(&self, changes: &[u8]) -> Result<bool, Error> {
        let batches = self.read();
        for change in changes::read(changes) {
            let change = change?;
            if batches.iter().any(|batch| batch.touches(change)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Applies batches to entries, which the tree has between two bounds, in order. They are those of before the entries
/// were read: the entries may have a part of a batch that was finished meanwhile.
pub fn amend(
    batches: &[Arc<Batch>],
    entries: &mut Vec<Entry>,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) {
    if batches.is_empty() {
        return;
    }
    let is_known = |batch: &Arc<Batch>, key: &[u8]| batch.states.contains_key(key) || batch.is_removed(key);
    entries.retain(|(key, _)| !batches.iter().any(|batch| is_known(batch, key)));
    for batch in batches {
        let within = batch.states.range::<[u8], _>(bounds);
        entries.extend(within.filter_map(|(key, state)| Some((key.clone(), state.clone()?))));
    }
    entries.sort_unstable_by(|(a, _), (b, _)| match direction {
        Direction::Forward => a.cmp(b),
        Direction::Backward => b.cmp(a),
    });
}
