//! Loading a dump.

use crate::binary::Blocks;
use crate::entry::{Entry, Format};
use crate::error::{Error, Result};
use crate::loader::Loader;
use crate::{json, tsv};
use forebay::{Db, Keyspace, Keyspaces};
use std::io::{BufRead, BufReader, Read};

/// Longest line that is read, in bytes: a value whose bytes are all escaped, and a key.
const MAX_LINE_BYTES: u64 = 512 << 20;
/// `progress` is called after this many entries.
const ENTRIES_A_STEP: u64 = 1 << 10;

/// What happens at a line, or a block, that cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The load ends. What was read before stays written.
    #[default]
    Stop,
    /// The line or block is passed over, and reported.
    Skip,
}

/// How a dump is loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The dump's form.
    pub format: Format,
    /// What happens to what cannot be loaded.
    pub on_error: OnError,
}

/// What was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub entry_bytes: u64,
    /// Bytes of the dump that were read.
    pub bytes: u64,
    /// Lines or blocks that were passed over.
    pub skipped: u64,
    /// Whether the last line has no line feed: the dump may have been cut in it.
    pub lacks_end: bool,
}

/// Loads a dump into a database, or into a keyspace of it. Of several entries of one key the last one stays. When the
/// call has returned, everything is written, and as durable as the database's writes are. It calls `progress` from time
/// to time, and `skipped` for what is passed over.
///
/// # Errors
/// `Invalid` for a line, naming its number, and where keys would be in no keyspace, or in a wrong one: a database that has
/// keyspaces takes a dump into one of them only, and one that is not empty takes no dump of all keyspaces; `Corrupt` for a
/// binary dump that is damaged or not whole; those of the input and of writes. What was read before the error is written,
/// as far as writes succeed.
pub fn load(
    db: &Db,
    keyspace: Option<&Keyspace>,
    input: impl Read,
    options: LoadOptions,
    progress: &mut dyn FnMut(Loaded),
    skipped: &mut dyn FnMut(&Error),
) -> Result<Loaded> {
    let takes_keyspaces = keyspace.is_some() || takes_keyspaces(db)?;
    let loader = Loader::new(db, keyspace)?;
    let mut load = Load { loader, takes_keyspaces, options, loaded: Loaded::default(), progress, skipped };
    let read = match options.format {
        Format::Binary => load.blocks(input),
        Format::Tsv => load.lines(input, tsv::decode),
        Format::Json => load.lines(input, json::decode),
    };
    let written = load.loader.finish();
    read.and(written)?;
    (load.progress)(load.loaded);
    Ok(load.loaded)
}

/// Returns whether a database takes keyspaces with their numbers and names, because it is empty.
///
/// # Errors
/// `Invalid` when the database has keyspaces: keys of the dump would be in none, or in those that happen to have the
/// same numbers.
fn takes_keyspaces(db: &Db) -> Result<bool> {
    if Keyspaces::exist_in(db)? {
        return Err(Error::invalid(
            "the database has keyspaces: load into one of them (--keyspace NAME), or a dump of all into an empty database",
        ));
    }
    let mut keys = db.iter()?;
    keys.seek_to_first()?;
    Ok(!keys.valid())
}

struct Load<'a> {
    loader: Loader,
    /// Whether the dump may have keyspaces.
    takes_keyspaces: bool,
    options: LoadOptions,
    loaded: Loaded,
    progress: &'a mut dyn FnMut(Loaded),
    skipped: &'a mut dyn FnMut(&Error),
}

impl Load<'_> {
    fn lines(&mut self, input: impl Read, decode: impl Fn(&[u8]) -> Result<Entry<'_>>) -> Result<()> {
        let mut input = BufReader::with_capacity(1 << 20, input);
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let read = read.map_err(|cause| Error::io("reading the dump", &cause))? as u64;
            if read == 0 {
                break;
            }
            self.loaded.bytes += read;
            let place = format!("line {number}");
            let text = match line.strip_suffix(b"\n") {
                Some(text) => text.strip_suffix(b"\r").unwrap_or(text),
                None if read == MAX_LINE_BYTES => return Err(Error::invalid("it is longer than any entry").at(place)),
                None => {
                    self.loaded.lacks_end = true;
                    &line
                }
            };
            match decode(text) {
                Ok(entry) => self.push(&entry, &place)?,
                Err(error) => self.fail(error.at(place))?,
            }
        }
        Ok(())
    }

    fn blocks(&mut self, input: impl Read) -> Result<()> {
        let mut blocks = Blocks::begin(BufReader::with_capacity(1 << 20, input))?;
        while let Some(block) = blocks.read()? {
            let place = format!("block {} of the dump", block.number);
            match block.entries() {
                Ok(entries) => entries.iter().try_for_each(|entry| self.push(entry, &place))?,
                Err(error) => self.fail(error.at(place))?,
            }
            self.loaded.bytes = blocks.offset();
        }
        let counted = blocks.entries().unwrap_or_default();
        if counted != self.loaded.entries && self.loaded.skipped == 0 {
            let found = self.loaded.entries;
            return Err(Error::corrupt(format!("the dump has {found} entries, and its end says {counted}")));
        }
        Ok(())
    }

    fn push(&mut self, entry: &Entry<'_>, place: &str) -> Result<()> {
        if let Err(error) = self.loader.check(entry) {
            return self.fail(error.at(place));
        }
        if !self.takes_keyspaces && Keyspaces::are_marked_by(&entry.key) {
            let message =
                "the dump has keyspaces, and the database has keys that are in none: load it into an empty one";
            return Err(Error::invalid(message).at(place));
        }
        self.loader.add(entry)?;
        self.loaded.entries += 1;
        self.loaded.entry_bytes += (entry.key.len() + entry.value.len()) as u64;
        if self.loaded.entries.is_multiple_of(ENTRIES_A_STEP) {
            (self.progress)(self.loaded);
        }
        Ok(())
    }

    /// Stops or skips, when something cannot be loaded.
    fn fail(&mut self, error: Error) -> Result<()> {
        match self.options.on_error {
            OnError::Stop => Err(error),
            OnError::Skip => {
                self.loaded.skipped += 1;
                (self.skipped)(&error);
                Ok(())
            }
        }
    }
}
