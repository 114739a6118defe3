//! Files that hold certificates, keys and secrets.

use crate::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Most that is read of a file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

/// Reads a file of text that anybody may see; `what` says what it is, for errors.
pub(super) fn read(path: &Path, what: &str) -> Result<String, Error> {
    contents(path, what, 0)
}

/// Reads a file of text that not everybody may see or change.
pub(super) fn read_secret(path: &Path, what: &str) -> Result<String, Error> {
    contents(path, what, OTHERS)
}

fn contents(path: &Path, what: &str, forbidden_mode: u32) -> Result<String, Error> {
    let wrong = |cause: String| Error::Invalid(format!("{what} {}: {cause}", path.display()));
    let system = |error: std::io::Error| wrong(error.to_string());
    let file = File::open(path).map_err(system)?;
    let status = file.metadata().map_err(system)?;
    let mode = status.permissions().mode();
    if !status.is_file() {
        return Err(wrong("it is not a file".into()));
    }
    if mode & forbidden_mode != 0 {
        let mode = mode & 0o777;
        return Err(wrong(format!("everybody may open it (mode {mode:03o}): take that right away, as with chmod 600")));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(system)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
