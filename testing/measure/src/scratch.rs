//! Folders for databases.

use crate::Outcome;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

/// Bytes of a block in the system's file sizes.
const BLOCK_BYTES: u64 = 512;

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// An empty folder of its own below another one.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn below(folder: &Path, name: &str) -> Outcome<Self> {
        let prefix = format!("forebay-measure-{name}-");
        let made =
            fs::create_dir_all(folder).and_then(|()| tempfile::Builder::new().prefix(&prefix).tempdir_in(folder));
        made.map(Self).map_err(|error| format!("{}: {error}", folder.display()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Bytes that its files take on the disk.
    pub fn taken_bytes(&self) -> u64 {
        taken_bytes(self.path())
    }
}

fn taken_bytes(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| taken_bytes(&entry.path())).sum(),
        Err(_) => fs::symlink_metadata(path).map_or(0, |about| about.blocks() * BLOCK_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_empty_and_does_not_stay() {
        let scratch = Scratch::below(&std::env::temp_dir(), "test").unwrap();
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/file"), [1; 10_000]).unwrap();
        assert!((10_000..100_000).contains(&scratch.taken_bytes()), "{}", scratch.taken_bytes());
        // A second one has another folder.
        drop(Scratch::below(&std::env::temp_dir(), "test").unwrap());
        assert!(path.join("inner/file").exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
