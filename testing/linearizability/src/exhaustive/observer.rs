//! The observer of the tree at the end of a schedule, or after the clients died: a process of its own.

use super::memory::Words;
use crate::history::Value;
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use forebay_tree::{BlockName, Range, Tree};
use std::sync::Arc;

/// The state of the tree.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) values: Vec<Value>,
    /// Blocks of all chunks.
    pub(crate) all: Vec<BlockName>,
    /// Of these, blocks that can be reached from the root, or taken by anybody.
    pub(crate) there: Vec<BlockName>,
    /// What the observer has.
    pub(crate) stock: Vec<BlockName>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Observer {
    tree: Arc<Tree>,
    keys: Arc<[Vec<u8>]>,
    /// What was seen in equal memory.
    seen: HashMap<[u64; 2], Result<Arc<Observed>, String>>,
}

impl Observer {
    pub(crate) fn new(tree: Arc<Tree>, keys: Arc<[Vec<u8>]>) -> Self {
        Self { tree, keys, seen: HashMap::default() }
    }

    /// Number of different contents of the memory that it has examined.
    pub(crate) fn memories(&self) -> usize {
        self.seen.len()
    }

    /// Verifies and reads the tree, and restores the memory afterwards.
    pub(crate) fn look(&mut self, memory: &Mutex<Words>) -> Result<Arc<Observed>, String> {
        let mark = lock(memory).mark();
        let hash = lock(memory).hash();
        if let Some(seen) = self.seen.get(&hash) {
            return seen.clone();
        }
        let observed = self.observe().map(Arc::new);
        lock(memory).undo(mark);
        self.seen.insert(hash, observed.clone());
        observed
    }

    fn observe(&self) -> Result<Observed, String> {
        let tree = self.tree.fork();
        let failed = |error: forebay_tree::Error| error.to_string();
        let mut client = tree.client().map_err(failed)?;
        let statistics = client.verify().map_err(failed)?;
        let values = self.keys.iter().map(|key| client.get(key)).collect::<Result<Vec<Value>, _>>().map_err(failed)?;
        let keys = values.iter().flatten().count() as u64;
        if keys != statistics.keys {
            return Err(format!("{keys} keys are found, and {} are there", statistics.keys));
        }
        let forward = client.scan(Range::all()).map_err(failed)?;
        let mut backward = client.scan(Range { backward: true, ..Range::all() }).map_err(failed)?;
        backward.reverse();
        let pairs = self.keys.iter().zip(&values);
        let expected: Vec<_> = pairs.filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        if forward != expected || backward != expected {
            return Err(format!("scans found {forward:?} and {backward:?}, and gets {expected:?}"));
        }
        let mut there = client.reachable().map_err(failed)?;
        there.extend(client.shared_blocks().map_err(failed)?);
        there.sort_unstable();
        let all = client.all_blocks().map_err(failed)?;
        drop(client);
        if let Some(block) = there.iter().find(|block| all.binary_search(block).is_err()) {
            return Err(format!("block {block:x?} is of no chunk"));
        }
        if let Some(pair) = there.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("block {:x?} is in two places", pair[0]));
        }
        Ok(Observed { values, all, there, stock: tree.stock() })
    }
}
