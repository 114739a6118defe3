//! Serving a shared tree.

use super::running::Opened;
use crate::arguments::{MemoryArguments, NodeAddresses, TREE_CACHE_BYTES};
use crate::configuration::Usual;
use crate::failure::Failure;
use crate::given::Given;
use crate::stores::EngineArguments;
use crate::units;
use forebay::{DEFAULT_NAME, OwnedTree, TreeOptions};
use std::collections::BTreeMap;

/// The flag of an LSM database that a tree also has.
const NAME: &str = "--db";

/// Flags that only a tree has.
#[derive(Debug, clap::Args)]
pub struct TreeArguments {
    /// Memory for the inner nodes of a shared tree; by default 256 MiB.
    #[arg(long, value_parser = units::length, value_name = "SIZE")]
    tree_cache_size: Option<usize>,
}

impl TreeArguments {
    /// Whether one of these flags is given.
    pub const fn is_given(&self) -> bool {
        self.tree_cache_size.is_some()
    }

    /// Opens the tree, or creates it.
    ///
    /// # Errors
    /// Those of opening; when another process has it.
    pub fn open(&self, memory: &MemoryArguments, name: Option<&str>) -> Result<Opened, forebay::Error> {
        let cache_bytes = self.tree_cache_size.unwrap_or(TREE_CACHE_BYTES);
        let options = TreeOptions { cache_bytes, ..TreeOptions::default() };
        let tree = if memory.memory.is_local() {
            OwnedTree::embedded(memory.local_memory_size, options)
        } else {
            OwnedTree::connect(memory.memory.all(), name.unwrap_or(DEFAULT_NAME), options)
        };
        Ok(Opened { records: tree?.into(), settings: None, lent: None })
    }
}

/// Refuses flags that only an LSM database has.
///
/// # Errors
/// Usage.
pub fn check(memory: &NodeAddresses, engine: &Given<EngineArguments>, lends: bool) -> Result<(), Failure> {
    if let Some(flag) = engine.first_but(NAME).or(lends.then_some("--lend-threads")) {
        return Err(Failure::usage(format_args!(
            "{flag} is for --engine=lsm: the shared tree lies in memory nodes alone, which --memory names, and survives this process there. \
             Leave {flag} out, or serve an LSM database"
        )));
    }
    if memory.is_local() && engine.flags.name().is_some() {
        return Err(Failure::usage(
            "--db names a tree on memory nodes of other processes: name them in --memory. Without, it ends with this process and has no name",
        ));
    }
    Ok(())
}

/// Returns the options in effect where nobody set any.
pub fn usual(memory: &NodeAddresses) -> Usual {
    let mut values = BTreeMap::from([("tree-cache-size", units::of_size(TREE_CACHE_BYTES as u64))]);
    values.extend((!memory.is_local()).then(|| ("db", DEFAULT_NAME.to_owned())));
    let mut unused = Given::<EngineArguments>::names();
    unused.remove(NAME.trim_start_matches('-'));
    Usual { values, unused }
}
