//! Records for tests.

use crate::records::store::Records;
use forebay::{Options, OwnedTree, Store, TreeOptions};

/// Empty records on each engine, in this process.
pub fn on_each_engine(memory_bytes: u64) -> [Records; 2] {
    [on_lsm(memory_bytes), on_tree(memory_bytes)]
}

/// Those of an LSM database.
pub fn on_lsm(memory_bytes: u64) -> Records {
    Store::embedded(memory_bytes, Options { background_threads: 0, ..Options::default() }).unwrap().into()
}

/// Those of a shared tree.
pub fn on_tree(memory_bytes: u64) -> Records {
    OwnedTree::embedded(memory_bytes, TreeOptions::default()).unwrap().into()
}

impl Records {
    /// Number of records, without journals.
    pub fn count(&self) -> usize {
        let mut cursor = self.scan(b"\x01k", &[255], crate::records::direction::Direction::Forward).unwrap();
        let mut count = 0;
        while cursor.valid() {
            count += 1;
            cursor.step().unwrap();
        }
        count
    }
}
