//! Storage that flags name. Only [`NamedStorage::open`] creates a directory, and commands call it after all flags are
//! checked: a refused command leaves nothing behind.

use forebay::{ErrorKind, Storage, StorageOptions};
use std::path::PathBuf;
use std::str::FromStr;

/// A directory that a flag names.
///
/// # Errors
/// For the URL of other storage.
pub fn directory(text: &str) -> Result<PathBuf, String> {
    if text.contains("://") {
        return Err("a directory of this machine has no such name: for other storage use --storage".to_owned());
    }
    Ok(text.into())
}

/// The storage in a directory that a flag names.
///
/// # Errors
/// As [`directory`], and for an invalid path.
pub fn named_directory(text: &str) -> Result<NamedStorage, String> {
    // The text is a path, whatever it begins with.
    let path = std::path::absolute(directory(text)?).map_err(|error| error.to_string())?;
    path.to_string_lossy().parse()
}

fn open(url: &str, create_directory: bool) -> Result<Storage, (ErrorKind, String)> {
    Storage::open(url, StorageOptions { create_directory, ..StorageOptions::default() }).map_err(|error| {
        let message = match error.kind() {
            ErrorKind::NotFound => format!("{error}: is the path right?"),
            _ => error.to_string(),
        };
        (error.kind(), message)
    })
}

/// Storage that a flag names, and that may not exist yet.
#[derive(Debug, Clone)]
pub struct NamedStorage {
    url: String,
    there: Option<Storage>,
}

impl FromStr for NamedStorage {
    type Err = String;

    /// Opens existing storage. Only a wrong URL is an error of the flag. Whether a directory is missing, or may not be
    /// read, is found out by the code that needs it.
    fn from_str(url: &str) -> Result<Self, String> {
        let there = match open(url, false) {
            Err((ErrorKind::Invalid | ErrorKind::Unsupported, message)) => return Err(message),
            opened => opened.ok(),
        };
        Ok(Self { url: url.to_owned(), there })
    }
}

/// Parses storage that a flag names, and that outlives the command.
///
/// # Errors
/// For memory of this process, and for an invalid URL.
pub fn lasting(url: &str) -> Result<NamedStorage, String> {
    let named: NamedStorage = url.parse()?;
    if named.ends_with_process() { Err(ENDS.to_owned()) } else { Ok(named) }
}

/// The message for storage in memory of this process, where something is to be kept.
pub const ENDS: &str = "what is written to memory: ends with this command; name a directory, or other storage";

impl NamedStorage {
    /// Whether the storage is memory of this process.
    pub fn ends_with_process(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Returns the storage, if it exists.
    pub fn found(&self) -> Option<Storage> {
        self.there.clone().or_else(|| open(&self.url, false).ok())
    }

    /// Opens the storage for the flag of this name, and creates a missing directory.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn open(&self, flag: &str) -> Result<Storage, forebay::Error> {
        self.opened(flag, true)
    }

    /// The same, but a directory must exist.
    ///
    /// # Errors
    /// `NotFound`; those of the storage.
    pub fn open_existing(&self, flag: &str) -> Result<Storage, forebay::Error> {
        self.opened(flag, false)
    }

    fn opened(&self, flag: &str, create_directory: bool) -> Result<Storage, forebay::Error> {
        let said = |(kind, why)| forebay::Error::Below { kind, message: format!("{flag}: {why}") };
        self.there.clone().map_or_else(|| open(&self.url, create_directory).map_err(said), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_opening_creates_a_directory() {
        let path = std::env::temp_dir().join(format!("forebay-named-{}", std::process::id()));
        let named: NamedStorage = path.to_string_lossy().parse().unwrap();
        assert!(named.found().is_none());
        let missing = named.open_existing("--flag").unwrap_err();
        assert!(missing.kind() == ErrorKind::NotFound && missing.to_string().starts_with("--flag: "), "{missing}");
        assert!(!path.exists());
        named.open("--flag").unwrap();
        assert!(path.is_dir() && named.found().is_some());
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_directory_is_no_invalid_flag() {
        let path = std::env::temp_dir().join(format!("forebay-endless-{}", std::process::id()));
        // A link to itself: nobody can follow it, not even root.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let named: Result<NamedStorage, _> = path.join("sub").to_string_lossy().parse();
        let opened = named.map(|named| named.open("--flag").map(drop));
        std::fs::remove_file(&path).unwrap();
        let error = opened.unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().starts_with("--flag: "), "{error}");
        assert!("s3://".parse::<NamedStorage>().is_err());
    }
}
