//! Keys that transactions depend on.
//!
//! `WATCH` leaves a mark at each key. A run that changes a key breaks the marks at the key while it has the key locked.
//! A watcher also leaves its marks while it has the keys locked, so it misses no later change.

use crate::keyspace::transaction::Name;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Whether something that was watched has changed.
#[derive(Debug, Default)]
pub struct Mark(AtomicBool);

impl Mark {
    /// Whether a change came.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Breaks the mark, because a change came. Pairs with [`Mark::is_broken`].
    pub fn break_it(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Marks that are about to be broken, by their addresses. They stay allocated as long as this value exists.
#[derive(Debug, Default)]
pub struct Doomed(BTreeMap<usize, Arc<Mark>>);

fn address(mark: &Arc<Mark>) -> usize {
    Arc::as_ptr(mark).addr()
}

/// The marks at all keys.
#[derive(Debug, Default)]
pub struct Watches {
    marks: Mutex<BTreeMap<Name, Vec<Weak<Mark>>>>,
    /// Number of marks, so that nobody looks for marks when there are none.
    count: AtomicUsize,
}

impl Watches {
    /// Leaves a mark at a key. The caller has the key locked.
    pub fn watch(&self, name: Name, mark: &Arc<Mark>) {
        lock(&self.marks).entry(name).or_default().push(Arc::downgrade(mark));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a mark from these keys.
    pub fn unwatch<'n>(&self, names: impl Iterator<Item = &'n Name>, mark: &Arc<Mark>) {
        let mut marks = lock(&self.marks);
        for name in names {
            let Some(at) = marks.get_mut(name) else { continue };
            let before = at.len();
            at.retain(|other| other.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, mark)));
            self.count.fetch_sub(before - at.len(), Ordering::Relaxed);
            if at.is_empty() {
                marks.remove(name);
            }
        }
    }

    /// Whether nobody watches a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The keys that are watched.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        lock(&self.marks).keys().cloned().collect()
    }

    /// Whether a mark at a key is neither broken nor among these.
    #[must_use]
    pub fn is_whole(&self, name: &Name, doomed: &Doomed) -> bool {
        let is_whole = |mark: Arc<Mark>| !mark.is_broken() && !doomed.0.contains_key(&address(&mark));
        lock(&self.marks).get(name).is_some_and(|at| at.iter().filter_map(Weak::upgrade).any(is_whole))
    }

    /// Adds the marks at a key to those that are about to be broken.
    pub fn doom(&self, name: &Name, doomed: &mut Doomed) {
        let marks = lock(&self.marks);
        let at = marks.get(name).into_iter().flatten().filter_map(Weak::upgrade);
        doomed.0.extend(at.map(|mark| (address(&mark), mark)));
    }

    /// Breaks the marks at these keys, which have changed. The caller has the keys locked.
    pub fn changed(&self, names: &[Name]) {
        if self.is_empty() {
            return;
        }
        let marks = lock(&self.marks);
        for mark in names.iter().filter_map(|name| marks.get(name)).flatten().filter_map(Weak::upgrade) {
            mark.break_it();
        }
    }
}
