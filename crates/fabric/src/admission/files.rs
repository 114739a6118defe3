//! Files that hold certificates, keys and secrets.

use crate::Error;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Most that is read of a file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

/// Reads a file of text that anybody may see; `what` says what it is, for errors.
pub(super) fn read(path: &Path, what: &str) -> Result<String, Error> {
    contents(path, what, false)
}

/// Reads a file of text that not everybody may see or change.
pub(super) fn read_secret(path: &Path, what: &str) -> Result<String, Error> {
    contents(path, what, true)
}

/// Whether everybody may read, write or run a file.
#[must_use]
pub fn is_open_to_all(file: &Metadata) -> bool {
    file.permissions().mode() & OTHERS != 0
}

fn contents(path: &Path, what: &str, is_secret: bool) -> Result<String, Error> {
    let wrong = |cause: String| Error::Invalid(format!("{what} {}: {cause}", path.display()));
    let system = |error: std::io::Error| wrong(error.to_string());
    let file = File::open(path).map_err(system)?;
    let status = file.metadata().map_err(system)?;
    if !status.is_file() {
        return Err(wrong("it is not a file".into()));
    }
    if is_secret && is_open_to_all(&status) {
        let mode = status.permissions().mode() & 0o777;
        return Err(wrong(format!("everybody may open it (mode {mode:03o}): take that right away, as with chmod 600")));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(system)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
