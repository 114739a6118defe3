//! Objects that checkpoints name: they stay even if no version needs them.

use crate::terms::planted::{Bug, instead_when_planted};
use forebay_env::sync::{Mutex, lock};
use std::collections::{BTreeMap, BTreeSet};

/// See the module. All shards of a database share it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each checkpoint names; `None` if that cannot be read, and may be anything.
    checkpoints: BTreeMap<String, Option<BTreeSet<String>>>,
    /// Objects that nothing but checkpoints needs.
    waiting: BTreeSet<String>,
}

impl State {
    fn is_kept(&self, object: &str) -> bool {
        self.checkpoints.values().any(|objects| objects.as_ref().is_none_or(|objects| objects.contains(object)))
    }
}

impl Kept {
    /// Keeps the objects that a checkpoint names; `None` keeps all objects, as it is unknown which it names.
    pub(crate) fn add(&self, checkpoint: &str, objects: Option<BTreeSet<String>>) {
        lock(&self.state).checkpoints.insert(checkpoint.to_owned(), objects);
    }

    /// The checkpoints, as they were added, in order.
    pub(crate) fn checkpoints(&self) -> Vec<String> {
        lock(&self.state).checkpoints.keys().cloned().collect()
    }

    /// Whether an object that nothing else needs must stay.
    pub(crate) fn holds_back(&self, object: &str) -> bool {
        instead_when_planted!(Bug::DeleteUnderCheckpoints, false);
        let mut state = lock(&self.state);
        let is_kept = state.is_kept(object);
        if is_kept {
            state.waiting.insert(object.to_owned());
        }
        is_kept
    }

    /// Ends a checkpoint. Returns the objects that nothing needs any more.
    pub(crate) fn remove(&self, checkpoint: &str) -> Vec<String> {
        let mut state = lock(&self.state);
        state.checkpoints.remove(checkpoint);
        let mut waiting = std::mem::take(&mut state.waiting);
        let freed = waiting.extract_if(.., |object| !state.is_kept(object)).collect();
        state.waiting = waiting;
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_checkpoints_name_waits_for_both() {
        let kept = Kept::default();
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
        kept.add("one", names(&["a", "b"]));
        kept.add("two", names(&["b", "c"]));
        assert!(kept.holds_back("a") && kept.holds_back("b") && !kept.holds_back("d"));
        assert_eq!(kept.remove("one"), ["a"]);
        assert_eq!(kept.checkpoints(), ["two"]);
        // The version still needs `c`.
        assert_eq!(kept.remove("two"), ["b"]);
        assert!(!kept.holds_back("c"));
    }

    #[test]
    fn everything_waits_for_a_checkpoint_that_cannot_be_read() {
        let kept = Kept::default();
        kept.add("known", Some(BTreeSet::from(["a".to_owned()])));
        kept.add("damaged", None);
        assert!(kept.holds_back("a") && kept.holds_back("b"));
        assert!(kept.remove("known").is_empty());
        assert_eq!(kept.remove("damaged"), ["a", "b"]);
        assert!(!kept.holds_back("b"));
    }
}
