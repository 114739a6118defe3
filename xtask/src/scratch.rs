//! A folder for the temporary files of a run, in which the run may leave nothing.

use crate::{Failure, Outcome};
use std::path::{Path, PathBuf};

/// The folder, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A folder for `what`. Its path is short: a socket's has at most 107 bytes.
    pub(crate) fn new(what: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("forebay-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::Failed(format!("cannot make {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Checks that nothing of Forebay's is left in the folder. Files that compilers and servers leave do not count.
    pub(crate) fn check(&self) -> Outcome {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut left: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        left.retain(|name| name.starts_with("forebay"));
        left.sort_unstable();
        if left.is_empty() {
            return Ok(());
        }
        Err(Failure::Failed(format!("tests left in the temporary folder: {}", left.join(", "))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named() {
        let scratch = Scratch::new("left").unwrap_or_else(|_| panic!("a folder can be made"));
        assert!(scratch.check().is_ok());
        std::fs::write(scratch.path().join("forebay-socket"), "").unwrap();
        let Err(Failure::Failed(message)) = scratch.check() else { panic!("nothing was found") };
        assert!(message.ends_with("forebay-socket"), "{message}");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
