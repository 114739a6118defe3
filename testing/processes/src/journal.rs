//! What a client wrote, in a file. A killed process leaves it as it was at that moment.
//!
//! ```text
//!   0  operations done | 8 checks made | 16 keys read back after a kill | 24 0   32  entries
//!   entry   0  state before the write that was begun last | 8 state after it
//! ```
//!
//! An entry is a key of the client's class, or what the client itself did to a key of the shared class. A
//! state is the version of the value, or 0 for none. While the two words differ, it is unknown whether
//! the write took effect.

use crate::common::Outcome;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;

/// A key's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// The state before the last write.
    pub before: u64,
    /// The state after it.
    pub after: u64,
}

/// The progress of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Operations.
    pub done: u64,
    /// Answers that were checked.
    pub checks: u64,
    /// Keys whose values were read back after a kill.
    pub read_back: u64,
}

impl Progress {
    /// Reads the progress from the journal at `path`; zero where there is no journal yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> Outcome<Self> {
        let mut header = [0; HEADER_BYTES];
        match File::open(path).and_then(|file| file.read_at(&mut header, 0)) {
            Ok(HEADER_BYTES) => Ok(Self::decode(&header)),
            Ok(_) => Ok(Self::default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn decode(header: &[u8]) -> Self {
        Self { done: word(header, 0), checks: word(header, 8), read_back: word(header, 16) }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// A client's journal: its file, and a copy in memory.
#[derive(Debug)]
pub struct Journal {
    file: File,
    entries: Vec<Entry>,
    /// What was done so far.
    pub progress: Progress,
}

impl Journal {
    /// Opens the journal of `keys` keys; makes an empty one if there is none.
    ///
    /// # Errors
    /// When the file cannot be made or read.
    pub fn open(path: &Path, keys: u64) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut bytes = vec![0; HEADER_BYTES + ENTRY_BYTES * keys as usize];
        file.set_len(bytes.len() as u64).map_err(failed)?;
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let (header, entries) = bytes.split_at(HEADER_BYTES);
        let entries = entries.chunks_exact(ENTRY_BYTES).map(|b| Entry { before: word(b, 0), after: word(b, 8) });
        Ok(Self { file, entries: entries.collect(), progress: Progress::decode(header) })
    }

    /// The entry of a key.
    pub fn entry(&self, place: u64) -> Entry {
        self.entries[place as usize]
    }

    /// Notes that a write begins whose result is the state `after`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(&mut self, place: u64, after: u64) -> Outcome {
        let before = self.entry(place).before;
        self.set(place, Entry { before, after })
    }

    /// Notes that the state is known.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn settle(&mut self, place: u64, state: u64) -> Outcome {
        self.set(place, Entry { before: state, after: state })
    }

    fn set(&mut self, place: u64, entry: Entry) -> Outcome {
        if self.entry(place) == entry {
            return Ok(());
        }
        self.entries[place as usize] = entry;
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&entry.before.to_le_bytes());
        bytes[8..].copy_from_slice(&entry.after.to_le_bytes());
        self.write(HEADER_BYTES as u64 + ENTRY_BYTES as u64 * place, &bytes)
    }

    /// Records what was done so far.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_progress(&self) -> Outcome {
        let Progress { done, checks, read_back } = self.progress;
        self.write(0, &[done, checks, read_back].map(u64::to_le_bytes).concat())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Outcome {
        self.file.write_all_at(bytes, at).map_err(|error| format!("the journal: {error}"))
    }
}
