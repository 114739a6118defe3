//! What clients do.

use crate::history::Action;

/// A call of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An action on one of the keys.
    One(usize, Action),
    /// A scan of everything.
    Scan {
        /// From the last key down.
        backward: bool,
    },
    /// A get of all keys at once.
    MultiGet,
    /// A batch of blocks of this class is taken, even if the process has some.
    Take(u64),
    /// A batch of the process's blocks of this class is handed over.
    Give(u64),
    /// The next round of the stacks of free blocks begins: all readers have passed.
    Round,
}

impl Step {
    /// Whether it reads all keys.
    pub(crate) fn reads_all(&self) -> bool {
        matches!(self, Self::Scan { .. } | Self::MultiGet)
    }
}

/// A tree, and what clients do with it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// All keys that occur.
    pub keys: Vec<Vec<u8>>,
    /// What was done before.
    pub before: Vec<Step>,
    /// What each client does.
    pub scripts: Vec<Vec<Step>>,
    /// Whether the operations of a doorbell take effect in their order.
    pub is_ordered: bool,
    /// Whether all clients may be dead in any state.
    pub deaths: bool,
    /// Most times that a client that could continue its step has to wait for another.
    pub switches: usize,
    /// Whether no client may end with a block that another one began with: fewer than two rounds begin.
    pub apart: bool,
}
