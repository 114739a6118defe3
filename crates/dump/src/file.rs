//! Files, standard input and standard output.

use crate::entry::Format;
use crate::error::{Error, Result};
use forebay::{OutputFile, PartialFile};
use forebay_table::checkpoint::begins_checkpoint;
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Write};
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 20;
/// The number of bytes at its start that tell a dump's form: a magic, which may also be the beginning of a key, and
/// numbers with zeros.
const START_BYTES: u64 = 8;

/// Where a dump comes from.
pub struct Input {
    /// Bytes that were read to look at them.
    start: Vec<u8>,
    reader: Box<dyn Read + Send>,
    place: String,
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
            let place = "standard input".to_owned();
            return Ok(Self { start: Vec::new(), reader: Box::new(std::io::stdin()), place, bytes: None });
        }
        let opening = |cause| Error::io(format_args!("opening {}", path.display()), &cause);
        let file = File::open(path).map_err(opening)?;
        let about = file.metadata().map_err(opening)?;
        let (place, bytes) = (path.display().to_string(), about.is_file().then_some(about.len()));
        Ok(Self { start: Vec::new(), reader: Box::new(file), place, bytes })
    }

    /// Reads the beginning, so that a dump in another form is found before anything is written.
    ///
    /// # Errors
    /// `Invalid` for a binary dump, or a checkpoint, where lines are expected; `Corrupt` for an input that is no binary
    /// dump; `Io`.
    pub fn check(&mut self, format: Format) -> Result<()> {
        let place = &self.place;
        let read = self.reader.by_ref().take(START_BYTES).read_to_end(&mut self.start);
        read.map_err(|cause| Error::io(format_args!("reading {place}"), &cause))?;
        match (format, begins_checkpoint(&self.start)) {
            (Format::Tsv | Format::Json, true) if self.start.contains(&0) => Err(Error::invalid(format!(
                "{place} is a checkpoint, or a dump in the binary form: load it with --format binary, or create a database \
                 from it with forebay restore"
            ))),
            (Format::Binary, false) => Err(Error::corrupt(format!("{place} is no dump in the binary form"))),
            _ => Ok(()),
        }
    }

    /// Returns the length in bytes, where it is known.
    #[must_use]
    pub const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The bytes.
    #[must_use]
    pub fn into_reader(self) -> impl Read + Send {
        Cursor::new(self.start).chain(self.reader)
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

    /// Makes the output survive, under its name. If that fails, a file that has no name yet is not kept.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Stream(mut out) => out.flush().map_err(|cause| Error::io("writing to standard output", &cause)),
            Self::File(file) => Ok(file.finish()?),
        }
    }

    /// Returns the file while it is incomplete; none for output that goes elsewhere.
    #[must_use]
    pub const fn partial(&self) -> Option<&PartialFile> {
        match self {
            Self::Stream(_) => None,
            Self::File(file) => file.partial(),
        }
    }

    /// Deletes the unfinished file. Returns `why`, with what became of the file. Output that went elsewhere stays.
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
