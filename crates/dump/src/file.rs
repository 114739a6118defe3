//! Files, standard input and standard output.

use crate::error::{Error, Result};
use forebay::OutputFile;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 20;

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

/// Where a dump goes: a file, as an [`OutputFile`], or standard output.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stream(BufWriter<std::io::Stdout>),
    /// A file, a device or a pipe.
    File(OutputFile),
}

impl Output {
    /// Begins the file, or standard output for `-`.
    ///
    /// # Errors
    /// As [`OutputFile::create`].
    pub fn create(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stream(BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout())));
        }
        Ok(Self::File(OutputFile::create(path, "dump")?))
    }

    /// Makes what was written survive, under its name. Where that fails, nothing is kept of a file that has no name yet.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Stream(mut out) => out.flush().map_err(|cause| Error::io("writing to standard output", &cause)),
            Self::File(file) => Ok(file.finish()?),
        }
    }

    /// Deletes the file that was begun, as it will not be whole. Returns why, with what became of the file. What went elsewhere is
    /// there.
    #[must_use]
    pub fn abandon(self, why: Error) -> Error {
        let left = match self {
            Self::Stream(_) => None,
            Self::File(file) => file.abandon(),
        };
        match left {
            Some(left) => why.and(left),
            None => why,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Stream(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stream(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}
