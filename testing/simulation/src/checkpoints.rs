//! What a reader of a checkpoint must find.
//!
//! | last call for a checkpoint | what is found under its name, whatever happens to the owner |
//! |---|---|
//! | it was made | what the database held during the call |
//! | a drop of it failed | the same, or nothing |
//! | it was dropped | not that content |
//! | making it failed | nothing, what the database held during the call, or a checkpoint that lacks objects, because nobody keeps them. What is found may change at any time |
//!
//! A call that has begun counts as failed until it returns. So the table holds at every moment, also in the middle of a
//! call. A process whose database was taken over before the call drops nothing. Names are reused.
//!
//! A reader opens a checkpoint as it is, or begins a clone with it, which may be compacted first. At most one clone is
//! left when its process is killed. Until that clone is dropped, a checkpoint that it needs is not dropped.

use crate::model::Model;
use forebay_base::KeyOrder;
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The names of checkpoints.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Draws the name of a checkpoint.
pub(crate) fn any_name(random: &mut Random) -> &'static str {
    NAMES[random.below(NAMES.len() as u64) as usize]
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// Checkpoints made.
    pub made: u64,
    /// Checkpoints dropped.
    pub dropped: u64,
    /// Checkpoints that were read as a whole.
    pub read: u64,
}

impl CheckpointCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.dropped += other.dropped;
        self.read += other.read;
    }
}

/// What is known of a name.
#[derive(Debug, Clone, Default)]
struct Named {
    /// What the checkpoint that was made holds.
    made: Option<Arc<Model>>,
    /// A drop of it has begun.
    may_be_gone: bool,
    /// What the checkpoints hold that may or may not have been made.
    unsure: Vec<Arc<Model>>,
}

impl Named {
    fn is_sure(&self) -> bool {
        self.made.is_some() && !self.may_be_gone
    }

    fn may_be_there(&self) -> bool {
        self.made.is_some() || !self.unsure.is_empty()
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    names: BTreeMap<String, Named>,
    /// A clone may exist, which reads what one of the checkpoints names.
    may_have_clone: bool,
    counts: CheckpointCounts,
}

/// What the checkpoints of a database hold: see the module.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    state: Mutex<State>,
}

/// The entries of a checkpoint in order, and the time by which keys have expired there.
pub(crate) struct Contents {
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) time_ms: u64,
}

impl Checkpoints {
    /// Returns a copy of what is known now.
    pub(crate) fn copy(&self) -> Self {
        Self { state: Mutex::new(lock(&self.state).clone()) }
    }

    pub(crate) fn counts(&self) -> CheckpointCounts {
        lock(&self.state).counts
    }

    /// Notes whether there may be a clone.
    pub(crate) fn note_clone(&self, may_be_there: bool) {
        lock(&self.state).may_have_clone = may_be_there;
    }

    pub(crate) fn may_have_clone(&self) -> bool {
        lock(&self.state).may_have_clone
    }

    /// Whether a checkpoint of a name certainly exists.
    pub(crate) fn is_sure(&self, name: &str) -> bool {
        lock(&self.state).names.get(name).is_some_and(Named::is_sure)
    }

    /// Returns the names whose checkpoints certainly exist.
    pub(crate) fn sure(&self) -> Vec<String> {
        let state = lock(&self.state);
        state.names.iter().filter(|(_, named)| named.is_sure()).map(|(name, _)| name.clone()).collect()
    }

    /// Checks the names of the checkpoints that a database has.
    pub(crate) fn expect_names(&self, found: &[String]) {
        for name in self.sure() {
            assert!(found.contains(&name), "the checkpoint {name:?} is lost: {found:?}");
        }
        let state = lock(&self.state);
        for name in found {
            let may_be_there = state.names.get(name).is_some_and(Named::may_be_there);
            assert!(may_be_there, "there is a checkpoint {name:?}, which nobody made, or which was dropped");
        }
    }

    /// Checks what a checkpoint holds.
    pub(crate) fn expect(&self, name: &str, order: KeyOrder, found: &Contents) {
        let mut state = lock(&self.state);
        state.counts.read += 1;
        let named = state.names.get(name).cloned().unwrap_or_default();
        let holds = |model: &Arc<Model>| {
            let mut model = Model::clone(model);
            model.pass_time(found.time_ms);
            let found = found.entries.iter().map(|(key, value)| (&key[..], &value[..]));
            model.entries(order, model.now()).eq(found)
        };
        // A checkpoint that certainly exists hides older ones.
        let others = named.unsure.iter().filter(|_| !named.is_sure());
        let is_right = named.made.iter().chain(others).any(holds);
        assert!(is_right, "the checkpoint {name:?} holds {} entries, and not what it did", found.entries.len());
    }

    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Named, &mut CheckpointCounts) -> T) -> T {
        let State { names, counts, .. } = &mut *lock(&self.state);
        change(names.entry(name.to_owned()).or_default(), counts)
    }

    /// Notes that a checkpoint is being made.
    pub(crate) fn make(&self, name: &str, model: Model) {
        self.with(name, |named, _| named.unsure.push(Arc::new(model)));
    }

    /// Notes that the checkpoint was made.
    pub(crate) fn made(&self, name: &str) {
        self.with(name, |named, counts| {
            assert!(!named.is_sure(), "a second checkpoint {name:?} was made");
            (named.made, named.may_be_gone) = (named.unsure.pop(), false);
            counts.made += 1;
        });
    }

    /// Notes that the checkpoint was not made. Returns whether another one of the name may exist.
    pub(crate) fn not_made(&self, name: &str) -> bool {
        self.with(name, |named, _| {
            drop(named.unsure.pop());
            named.may_be_there()
        })
    }

    /// Notes that a checkpoint is being dropped. Returns whether it certainly existed.
    pub(crate) fn drop_begins(&self, name: &str) -> bool {
        self.with(name, |named, _| {
            let was_sure = named.is_sure();
            named.may_be_gone = true;
            was_sure
        })
    }

    /// Notes that the checkpoint stays, because a clone needs it.
    pub(crate) fn stays(&self, name: &str) {
        self.with(name, |named, _| named.may_be_gone = false);
    }

    /// Notes that the checkpoint is gone.
    pub(crate) fn is_gone(&self, name: &str) {
        self.with(name, |named, _| *named = Named { unsure: std::mem::take(&mut named.unsure), ..Named::default() });
    }

    pub(crate) fn dropped(&self, name: &str) {
        self.with(name, |named, counts| {
            assert!(named.may_be_there(), "a checkpoint {name:?} was dropped that nobody made");
            counts.dropped += 1;
        });
        self.is_gone(name);
    }
}
