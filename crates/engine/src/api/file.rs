//! Files that a database is written to: checkpoints, and dumps.

use crate::terms::{Error, Result};
use forebay_base::{ErrorKind, checksum, envelope_checksum};
use forebay_env::sync::{Mutex, lock};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, TryLockError};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of symbolic links that lead to a file, as for the system.
const MAX_LINKS: usize = 40;
/// How often a file is opened again because its name leads to another one meanwhile.
const MAX_OPENED: usize = 100;
/// What the name of a file ends in until the file is whole.
const PARTIAL: &str = ".partial";
/// Longest name of a file, in bytes, that leaves room for that: file systems take 255.
const LONGEST_WITH_ROOM: usize = 255 - PARTIAL.len();

/// A file being written. Once it is whole and synced, it gets its name and replaces a file of that name. Symbolic links
/// stay, and lead to it. A device or a pipe also stays, and is written to directly.
#[derive(Debug)]
pub struct OutputFile {
    out: BufWriter<File>,
    path: PathBuf,
    /// None for a device or a pipe.
    partial: Option<PartialFile>,
}

/// The file being written, under the name that it has until it is whole.
#[derive(Debug, Clone)]
pub struct PartialFile {
    path: PathBuf,
    /// What the file is to be.
    what: &'static str,
    /// Whether the file is whole, or removed. From then on the name may be that of another process's file.
    has_ended: Arc<Mutex<bool>>,
}

impl PartialFile {
    /// Deletes the file, which will not be whole, and says what became of it; `None` if it has become whole.
    #[must_use]
    pub fn remove(&self) -> Option<String> {
        let Self { path, what, has_ended } = self;
        let mut has_ended = lock(has_ended);
        if std::mem::replace(&mut *has_ended, true) {
            return None;
        }
        match std::fs::remove_file(path) {
            Ok(()) => Some(format!("nothing of the {what} was kept")),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => None,
            Err(cause) => Some(format!("a part of the {what} is left in {}: {cause}", path.display())),
        }
    }

    /// Gives the file, which is whole, its name. Fails for one that was removed.
    fn rename(&self, name: &Path) -> std::io::Result<()> {
        let mut has_ended = lock(&self.has_ended);
        if *has_ended {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        std::fs::rename(&self.path, name)?;
        *has_ended = true;
        Ok(())
    }
}

/// An error of the file system.
pub(crate) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |cause| Error::new(ErrorKind::of_file(cause.kind()), format!("{doing} {}: {cause}", path.display()))
}

impl OutputFile {
    /// Begins the file, for `what` (such as `checkpoint`).
    ///
    /// # Errors
    /// `Invalid` for a path that names no file; `Busy` while another process writes this one; `NotFound`,
    /// `AccessDenied`, `Full`, `Io`.
    pub fn create(path: &Path, what: &'static str) -> Result<Self> {
        let begun = |file, path, partial| Self { out: BufWriter::with_capacity(BUFFER_BYTES, file), path, partial };
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            let file = File::options().write(true).open(path).map_err(failed("opening", path))?;
            return Ok(begun(file, path.to_owned(), None));
        }
        let path = followed(path)?;
        let name = path.file_name().ok_or_else(|| Error::invalid(format!("{} names no file", path.display())))?;
        let partial = path.with_file_name(partial_name(name));
        let file = begin(&partial, is_named)?;
        Ok(begun(file, path, Some(PartialFile { path: partial, what, has_ended: Arc::default() })))
    }

    /// Writes these bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failed("writing", &self.path))
    }

    /// Makes the written file durable under its name. If that fails, nothing is kept of a file that has no name yet.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn finish(mut self) -> Result<()> {
        let flushed = self.out.flush();
        let Some(partial) = &self.partial else { return flushed.map_err(failed("writing", &self.path)) };
        let synced = flushed.and_then(|()| self.out.get_ref().sync_all());
        if let Err(cause) = synced.and_then(|()| partial.rename(&self.path)) {
            let error = failed("writing", &self.path)(cause);
            return Err(match self.abandon() {
                Some(left) => error.and(&left),
                None => error,
            });
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("syncing", folder))
    }

    /// Deletes the file that was begun, which will not be whole, and says what became of it. What went to a device or a
    /// pipe stays there.
    #[must_use]
    pub fn abandon(self) -> Option<String> {
        self.partial?.remove()
    }

    /// The file, until it is whole; none for a device or a pipe.
    #[must_use]
    pub const fn partial(&self) -> Option<&PartialFile> {
        self.partial.as_ref()
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// The name that a file has until it is whole.
fn partial_name(name: &OsStr) -> OsString {
    if name.len() > LONGEST_WITH_ROOM {
        let bytes = name.as_encoded_bytes();
        return format!("{:08x}{:08x}{PARTIAL}", envelope_checksum(bytes), checksum(bytes)).into();
    }
    let mut partial = name.to_owned();
    partial.push(PARTIAL);
    partial
}

/// Opens the file under the name that it has until it is whole, and empties it. While it is open, others are refused:
/// the bytes of two writers would mix, and the first to end would give the mixture its name.
fn begin(partial: &Path, is_named: impl Fn(&Path, &Metadata) -> bool) -> Result<File> {
    let failed = || failed("creating", partial);
    for _ in 0..MAX_OPENED {
        let file = File::options().create(true).truncate(false).write(true).open(partial).map_err(failed())?;
        let about = file.metadata().map_err(failed())?;
        if !about.is_file() {
            return Ok(file);
        }
        // Without locks in the file system, nobody is refused.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let message = format!("{}: another process is writing it: wait, or name another file", partial.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        // Between these steps, another process may have given the file its final name.
        if is_named(partial, &about) {
            file.set_len(0).map_err(failed())?;
            return Ok(file);
        }
    }
    let message = format!("{}: the name leads to another file each time: name a file elsewhere", partial.display());
    Err(Error::new(ErrorKind::Io, message))
}

/// Whether the name leads to the file that this is about.
fn is_named(path: &Path, about: &Metadata) -> bool {
    path.metadata().is_ok_and(|named| (named.dev(), named.ino()) == (about.dev(), about.ino()))
}

/// Returns where symbolic links lead from `path`. Nothing needs to exist there.
fn followed(path: &Path) -> Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        // What is no link cannot be read as one.
        let Ok(target) = at.read_link() else { return Ok(at) };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(Error::invalid(format!("{} leads through too many links: name the file itself", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a file system whose numbers of files change.
    #[test]
    fn a_name_that_never_leads_to_the_opened_file_is_refused() {
        let path = std::env::temp_dir().join(format!("forebay-begin-{}.partial", std::process::id()));
        let opened = std::cell::Cell::new(0);
        let begun = begin(&path, |_, _| {
            opened.set(opened.get() + 1);
            false
        });
        assert!(begun.is_err_and(|error| error.kind() == ErrorKind::Io) && opened.get() > 1);
        assert!(begin(&path, is_named).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
