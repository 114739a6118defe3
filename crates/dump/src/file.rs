//! Files, standard input and standard output.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 20;
/// So many symbolic links may lead to a file, as for the system.
const MAX_LINKS: usize = 40;

/// Where a dump comes from.
pub struct Input {
    reader: Box<dyn Read + Send>,
    bytes: Option<u64>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Input {
    /// Opens the file, or standard input for `-`.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Io`.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { reader: Box::new(std::io::stdin()), bytes: None });
        }
        let opening = |cause| Error::io(format_args!("opening {}", path.display()), &cause);
        let file = File::open(path).map_err(opening)?;
        let about = file.metadata().map_err(opening)?;
        Ok(Self { reader: Box::new(file), bytes: about.is_file().then_some(about.len()) })
    }

    /// How long it is, where that is known.
    #[must_use]
    pub const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The bytes.
    #[must_use]
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        self.reader
    }
}

/// Where a dump goes. A file gets its name once it is whole and synced. A device or a pipe is written to as it is.
#[derive(Debug)]
pub struct Output {
    target: Target,
}

#[derive(Debug)]
enum Target {
    Stream(BufWriter<std::io::Stdout>),
    Special { out: BufWriter<File>, path: PathBuf },
    File { out: BufWriter<File>, partial: PathBuf, path: PathBuf },
}

impl Output {
    /// Begins the file, or standard output for `-`.
    ///
    /// # Errors
    /// `Invalid` for a path that names no file; `AccessDenied`, `Full`, `Io`.
    pub fn create(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            let out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout());
            return Ok(Self { target: Target::Stream(out) });
        }
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            let file = File::options().write(true).open(path);
            let file = file.map_err(|cause| Error::io(format_args!("opening {}", path.display()), &cause))?;
            let out = BufWriter::with_capacity(BUFFER_BYTES, file);
            return Ok(Self { target: Target::Special { out, path: path.to_owned() } });
        }
        let path = followed(path)?;
        let name = path.file_name().ok_or_else(|| Error::invalid(format!("{} names no file", path.display())))?;
        let mut name = name.to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = File::create(&partial);
        let file = file.map_err(|cause| Error::io(format_args!("creating {}", partial.display()), &cause))?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Self { target: Target::File { out, partial, path } })
    }

    /// Makes what was written survive, under its name. Where that fails, nothing is kept of a file that has no name yet.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn finish(mut self) -> Result<()> {
        match &mut self.target {
            Target::Stream(out) => out.flush().map_err(|cause| Error::io("writing to standard output", &cause)),
            Target::Special { out, path } => {
                out.flush().map_err(|cause| Error::io(format_args!("writing {}", path.display()), &cause))
            }
            Target::File { out, partial, path } => {
                let writing = |cause| Error::io(format_args!("writing {}", path.display()), &cause);
                let synced = out.flush().and_then(|()| out.get_ref().sync_all());
                if let Err(error) = synced.and_then(|()| std::fs::rename(&*partial, &*path)).map_err(writing) {
                    return Err(self.abandon(error));
                }
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(writing)
            }
        }
    }

    /// Deletes the file that was begun, as it will not be whole. Returns why, with what became of the file. What went elsewhere is
    /// there.
    #[must_use]
    pub fn abandon(self, why: Error) -> Error {
        let Target::File { partial, .. } = &self.target else { return why };
        match std::fs::remove_file(partial) {
            Ok(()) => why.and("nothing of the dump was kept"),
            Err(cause) => why.and(format_args!("a part of the dump is left in {}: {cause}", partial.display())),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut self.target {
            Target::Stream(out) => out.write(bytes),
            Target::Special { out, .. } | Target::File { out, .. } => out.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match &mut self.target {
            Target::Stream(out) => out.flush(),
            Target::Special { out, .. } | Target::File { out, .. } => out.flush(),
        }
    }
}

/// Where symbolic links lead from `path`. Nothing need be there.
fn followed(path: &Path) -> Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        // What is no link cannot be read as one.
        let Ok(target) = at.read_link() else { return Ok(at) };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(Error::invalid(format!("{} leads through too many links: name the file itself", path.display())))
}
