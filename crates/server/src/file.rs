//! Files that are replaced while they are in use.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Longest name of a file that file systems take, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// What the name of a file ends in until the file is whole.
const NEW: &str = ".new";

/// Writes a file anew, with the permissions `mode` if it creates the file. Whatever fails, the file holds either its
/// old contents or `bytes`. Only one thread may replace a file at a time.
///
/// # Errors
/// Those of the system; `InvalidInput` for a path that names no file.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = path.with_file_name(new_name(path.file_name().ok_or(ErrorKind::InvalidInput)?));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// The name that a file has until it is whole. It stands for a name that leaves no room for its end.
fn new_name(name: &OsStr) -> OsString {
    if name.len() + NEW.len() > MAX_NAME_BYTES {
        return format!("{:016x}{NEW}", xxh3_64(name.as_encoded_bytes())).into();
    }
    let mut new = name.to_owned();
    new.push(NEW);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_names_of_any_length_are_replaced() {
        let folder = std::env::temp_dir().join(format!("forebay-replaced-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let longest = MAX_NAME_BYTES - NEW.len();
        let lengths = [1, longest, longest + 1, MAX_NAME_BYTES];
        for length in lengths {
            let path = folder.join("n".repeat(length));
            for bytes in [&b"old"[..], b"new"] {
                replace_file(&path, bytes, 0o600).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), bytes);
            }
        }
        // Nothing else is left.
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), lengths.len());
        assert_eq!(replace_file(Path::new("/"), b"", 0o600).unwrap_err().kind(), ErrorKind::InvalidInput);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
