//! Databases of this process, named by a path.
//!
//! A path stands for a memory node that is a thread of this process, with one database. The node starts when the path is
//! first opened, and outlives the [`Store`]: whoever opens the path again finds what was written. It ends with the
//! process, or when the path is destroyed. No file is touched.

use crate::embedded::Node;
use crate::{Error, Store};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of a path's database on its node.
const NAME: &str = "main";

/// The nodes by absolute path. Locked while a database is opened or destroyed, never while one is used.
static NODES: Mutex<BTreeMap<PathBuf, Node>> = Mutex::new(BTreeMap::new());

impl Store {
    /// Opens the database that `path` names in this process. Unless the path was opened before, starts a memory node
    /// that offers `memory_bytes`.
    ///
    /// **What was written ends with the process.** Until then it is found again by whoever opens the path. Nothing is
    /// written to the file system.
    ///
    /// # Errors
    /// `Invalid` for an empty path, or for options with a name (the path is the name) or that conflict; `NotFound` when
    /// the database must exist and does not; `AlreadyExists`; `Busy` while it is open; `Io` when there is no memory.
    pub fn open(path: impl AsRef<Path>, memory_bytes: u64, options: Options) -> Result<Self, Error> {
        let path = absolute(path.as_ref())?;
        if options.name.is_some() {
            return Err(Error::Address("a database that is opened by a path has that name: give it no other".into()));
        }
        let options = Options { name: Some(NAME.into()), ..options };
        let mut nodes = nodes();
        if let Some(node) = nodes.get(&path) {
            return Self::on(node, options);
        }
        if !options.create_if_missing {
            return Err(not_there(&path));
        }
        let node = Node::start(memory_bytes, &options)?;
        let store = Self::on(&node, options)?;
        nodes.insert(path, node);
        Ok(store)
    }

    /// Drops the database that `path` names in this process, and gives its memory back.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while it is open.
    pub fn destroy_path(path: impl AsRef<Path>) -> Result<(), Error> {
        let path = absolute(path.as_ref())?;
        let mut nodes = nodes();
        let node = nodes.get(&path).ok_or_else(|| not_there(&path))?;
        Db::destroy(&[node.client(&Options::default())?], NAME)?;
        nodes.remove(&path);
        Ok(())
    }
}

fn nodes() -> MutexGuard<'static, BTreeMap<PathBuf, Node>> {
    // A panic while it was locked leaves the table as it was before or after one change.
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::Address(format!("the path {:?}: {error}", path.display())))
}

fn not_there(path: &Path) -> Error {
    let message = format!("this process has no database {:?}", path.display());
    Error::Below { kind: ErrorKind::NotFound, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY_BYTES: u64 = 64 << 20;

    #[test]
    fn a_path_is_found_again_until_it_is_destroyed() {
        let path = "local-tests/found-again";
        let open =
            |create_if_missing| Store::open(path, MEMORY_BYTES, Options { create_if_missing, ..Options::default() });
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(Store::destroy_path(path).unwrap_err().kind(), ErrorKind::NotFound);
        let store = open(true).unwrap();
        store.put(b"key", b"value").unwrap();
        assert!(store.is_embedded());
        assert_eq!(open(true).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(Store::destroy_path(path).unwrap_err().kind(), ErrorKind::Busy);
        store.close().unwrap();
        drop(store);
        let store = open(false).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        let again = Options { error_if_exists: true, ..Options::default() };
        drop(store);
        assert_eq!(Store::open(path, MEMORY_BYTES, again).unwrap_err().kind(), ErrorKind::AlreadyExists);
        Store::destroy_path(path).unwrap();
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn paths_are_apart() {
        let open = |path: &str| Store::open(path, MEMORY_BYTES, Options::default()).unwrap();
        let (one, other) = (open("local-tests/one"), open("local-tests/other"));
        one.put(b"key", b"value").unwrap();
        assert_eq!(other.get(b"key").unwrap(), None);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let named = Options { name: Some("name".into()), ..Options::default() };
        for (path, options) in [("", Options::default()), ("local-tests/named", named)] {
            assert_eq!(Store::open(path, MEMORY_BYTES, options).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
