//! A client that dies between the two steps of an inner node's split.

use super::dying::insert_until_split;
use super::{Nodes, small};
use forebay_tree::{Tree, TreeClient};
use std::ops::Range;
use std::sync::Arc;

/// Keys whose separators do not fit into the slots of an inner node.
fn key(number: u64) -> Vec<u8> {
    format!("a long key {number:06}").into_bytes()
}

/// A tree with an inner node whose right half is entered, and whose left half is still the frozen node.
pub struct HalfSplit {
    tree: Arc<Tree>,
    /// The keys from 0 on.
    keys: u64,
    deleted: Range<u64>,
    /// Keys between the first two of the others.
    added: u64,
}

impl HalfSplit {
    /// Loads a tree, and splits its last inner node in half.
    pub fn new(nodes: &Nodes) -> Self {
        let mut split = Self::loaded(nodes);
        split.split(nodes, true);
        split
    }

    /// Loads a tree.
    pub fn loaded(nodes: &Nodes) -> Self {
        let tree = nodes.create(small());
        tree.client().unwrap().bulk_load((0..1_000).map(|number| (key(number), b"12345678"))).unwrap();
        Self { tree, keys: 1_000, deleted: 0..0, added: 0 }
    }

    /// A client inserts keys until the last inner node is split. It dies right before it reserves a slot for the right half,
    /// or, if it `enters`, right after it entered that.
    pub fn split(&mut self, nodes: &Nodes, enters: bool) {
        let mut dying = nodes.open().client().unwrap();
        self.keys = insert_until_split(&mut dying, key, self.keys, enters);
    }

    pub fn client(&self) -> TreeClient {
        self.tree.client().unwrap()
    }

    /// Merges leaves of the right half until it has freed separators, and uses their memory for keys that are below all
    /// separators of the node.
    pub fn use_again(&mut self) {
        let mut client = self.client();
        self.deleted = self.keys - 120..self.keys - 40;
        for number in self.deleted.clone() {
            assert!(client.delete(&key(number)).unwrap(), "{number}");
        }
        while self.added < 2_000 {
            if self.added.is_multiple_of(20) {
                client.reclaim().unwrap();
            }
            self.added += 1;
            let added = [key(0), format!(" {:06}", self.added).into_bytes()].concat();
            assert!(client.insert(&added, b"12345678").unwrap());
        }
    }

    /// Reads all keys, first those of the left half.
    pub fn read(&self) -> Result<(), String> {
        let mut client = self.client();
        for number in (0..self.keys).rev().filter(|number| *number < 1_000).chain(1_000..self.keys) {
            let found = client.get(&key(number)).map_err(|error| format!("{number}: {error}"))?;
            if found.is_some() == self.deleted.contains(&number) {
                return Err(format!("the key {number} is {found:?}"));
            }
        }
        Ok(())
    }

    pub fn verify(&self) -> Result<(), String> {
        let count = self.client().verify().map(|statistics| statistics.keys);
        let expected = self.keys - (self.deleted.end - self.deleted.start) + self.added;
        match count {
            Ok(count) if count == expected => Ok(()),
            other => Err(format!("{expected} keys, and not {other:?}")),
        }
    }
}
