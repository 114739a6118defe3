//! Checkpoints: the contents of a database at a snapshot, streamed to a file and loaded back in parallel (dLSM VIII).
//! `docs/formats/checkpoint.md` draws the file.
//!
//! Writing is one scan of a snapshot, so writers are not held up. The file gets its name once it is whole and
//! synced ([`OutputFile`]). Loading divides the sections among threads. Each thread verifies a block and then writes its entries as
//! batches. Order does not matter because each key occurs once.
//!
//! Only this module of the engine and that of [`OutputFile`] read and write files.

use crate::api::db::Db;
use crate::api::file::{OutputFile, failed};
use crate::terms::{Error, Options, Result};
use crate::write::batch::WriteBatch;
use forebay_base::{ErrorKind, KeyOrder, MAX_VALUE_BYTES, Record};
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::spawn;
use forebay_memory_client::MemoryClient;
use forebay_table::checkpoint::{
    self, BLOCK_HEADER_LENGTH, BlockEntry, Footer, Header, MAX_HEADER_BYTES, Section, StreamWriter, TRAILER_LENGTH,
};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Most bytes of records in one loaded batch, if the database takes as many at once. A longer entry has its own batch.
const BATCH_BYTES: u64 = 64 << 10;
/// Maximum number of loading threads.
const MAX_LOADERS: usize = 8;

/// The contents of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Number of keys.
    pub entries: u64,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Number of parts that can be loaded in parallel.
    pub sections: usize,
}

/// What a database is created with that a checkpoint is loaded into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointLayout {
    /// The order of the keys.
    pub key_order: KeyOrder,
    /// The merge operator of the database that the checkpoint is of, if it had one ([`Options::merge_operator`]).
    pub merge_operator: Option<String>,
    /// Bounds between shards, ascending in that order, for [`ShardBounds::Given`](crate::ShardBounds::Given).
    pub bounds: Vec<Vec<u8>>,
}

impl Db {
    /// Returns the settings of a checkpoint's database, and keys that divide the checkpoint into `shards` parts of about
    /// the same size, to within one block. A small checkpoint gives fewer parts.
    ///
    /// # Errors
    /// `Invalid` for a number of shards that no database can have; as [`Db::load`] for the file.
    pub fn checkpoint_layout(path: impl AsRef<Path>, shards: usize) -> Result<CheckpointLayout> {
        Options::check_shards(shards)?;
        let path = path.as_ref();
        let (Header { key_order, merge_operator }, footer, _) = read_footer(path)?;
        let bytes: u64 = footer.sections.iter().map(|section| section.length).sum();
        let parts = shards as u64;
        let mut bounds = Vec::new();
        for part in 1..parts {
            let share = u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(parts)).unwrap_or(bytes);
            bounds.extend(key_at(path, &footer.sections, share)?);
        }
        bounds.dedup();
        Ok(CheckpointLayout { key_order, merge_operator, bounds })
    }

    /// The name of the merge operator, if the database was created with one.
    #[must_use]
    pub fn merge_operator(&self) -> Option<&str> {
        self.options().merge_operator.as_deref()
    }

    /// Writes all current keys and values to a file. Writers are not held up. An existing file of this name is replaced
    /// once the new one is whole and synced. A device or a pipe is written to, and symbolic links are followed.
    ///
    /// # Errors
    /// Those of [`OutputFile`], `Full` among them; `Invalid` for a value that operands have made longer than 64 MiB,
    /// which could not be loaded: the message names its key; as [`Db::get`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<CheckpointSummary> {
        self.checkpoint_to(OutputFile::create(path.as_ref(), "checkpoint")?)
    }

    /// As [`Self::checkpoint`], to a file that was begun. If it fails, nothing of the file is kept.
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint_to(&self, mut file: OutputFile) -> Result<CheckpointSummary> {
        match write_stream(self, &mut file) {
            Ok(summary) => file.finish().map(|()| summary),
            Err(error) => Err(match file.abandon() {
                Some(left) => error.and(&left),
                None => error,
            }),
        }
    }

    /// Writes all keys and values of a checkpoint into this database, on several threads, and flushes. Existing keys
    /// get the checkpoint's values; other keys stay. If it fails, some keys may have been written.
    ///
    /// # Errors
    /// `Corrupt` when the file is damaged or incomplete; `Unsupported` when a newer build wrote it; `Io`; as
    /// [`Db::put`].
    pub fn load(&self, path: impl AsRef<Path>) -> Result<CheckpointSummary> {
        let path = path.as_ref();
        let (_, footer, summary) = read_footer(path)?;
        let sections = Arc::new(Mutex::new(footer.sections));
        let mut threads = Vec::new();
        for i in 0..summary.sections.min(MAX_LOADERS) {
            let (db, path, sections) = (self.clone(), path.to_path_buf(), Arc::clone(&sections));
            let load = move || load_sections(&db, &path, &sections);
            let thread = spawn(format!("forebay-load-{i}"), load);
            threads.push(thread.map_err(|error| Error::no_thread(&error)));
        }
        let mut result = Ok(());
        for thread in threads {
            let panicked = |_| Err(Error::panicked("loads a checkpoint"));
            let loaded = thread.and_then(|thread| thread.join().unwrap_or_else(panicked));
            result = result.and(loaded);
        }
        result?;
        self.flush()?;
        Ok(summary)
    }

    /// Creates a database and loads a checkpoint into it ([`Options::restoring`], [`Db::load_whole`]).
    ///
    /// # Errors
    /// As [`Db::open`] and [`Db::load_whole`].
    pub fn restore(clients: &[Arc<MemoryClient>], options: Options, path: impl AsRef<Path>) -> Result<Self> {
        let db = Self::open(clients, options.restoring())?;
        db.load_whole(path).map(|_| db)
    }

    /// Loads a checkpoint into a database that was created with [`Options::restoring`], and says that it is whole. If loading
    /// fails, the database is closed and dropped again.
    ///
    /// Nobody can open the database before it is whole ([`Options::unfinished`]). If a process ends in the middle, the
    /// next one that restores under this name first drops what is left. The exception is several copies in memory: then
    /// the process leaves a part of the database under the name, and [`Db::destroy_copied`] drops it.
    ///
    /// # Errors
    /// `Invalid` for a database that may have existed before; as [`Db::load`] and [`Db::finish`]. The message says what
    /// could not be dropped.
    pub fn load_whole(&self, path: impl AsRef<Path>) -> Result<CheckpointSummary> {
        let options = self.options();
        if !options.error_if_exists {
            return Err(Error::invalid(
                "a checkpoint is loaded as a whole into a database that was created for it only",
            ));
        }
        let loaded = self.load(path);
        let whole =
            loaded.and_then(|summary| if options.unfinished { self.finish().map(|()| summary) } else { Ok(summary) });
        whole.map_err(|error| {
            // The first error is the one to report.
            let _ = self.close();
            match self.drop_closed() {
                Err(left) if left.kind() != ErrorKind::NotFound => Error::new(
                    error.kind(),
                    format!("{error}; a part of the database is left that could not be dropped: {left}"),
                ),
                _ => error,
            }
        })
    }

    /// Drops the closed database, wherever it is stored. One without a name is gone already.
    fn drop_closed(&self) -> Result<()> {
        let options = self.options();
        let clients = &self.clients();
        match (&options.name, &options.storage, &options.register) {
            (None, ..) => Ok(()),
            (Some(name), Some(storage), _) => Self::destroy_stored(storage, clients, name),
            (Some(name), None, Some(register)) => Self::destroy_copied(register, clients, name),
            (Some(name), None, None) => Self::destroy(clients, name),
        }
    }
}

/// An error that names a damaged file.
fn damaged(path: &Path) -> impl Fn(forebay_table::Error) -> Error + '_ {
    move |error| Error::from(error).during(&path.display().to_string())
}

fn cut(path: &Path) -> Error {
    Error::corrupt(format!("{}: it ends before it is complete", path.display()))
}

fn write_stream(db: &Db, file: &mut OutputFile) -> Result<CheckpointSummary> {
    let mut out = Vec::new();
    let header = Header { key_order: db.key_order(), merge_operator: db.merge_operator().map(str::to_owned) };
    let mut writer = StreamWriter::begin(&header, &mut out)?;
    let mut iterator = db.iter()?;
    iterator.seek_to_first()?;
    while iterator.valid() {
        let (key, value, expiry_ms) = (iterator.key(), iterator.value(), iterator.expiry_ms());
        check_loadable(key, value)?;
        writer.push(BlockEntry { key, value, expiry_ms }, &mut out)?;
        iterator.next()?;
        file.put(&out)?;
        out.clear();
    }
    let (footer, file_bytes) = writer.finish(&mut out)?;
    file.put(&out)?;
    Ok(CheckpointSummary { entries: footer.entries(), file_bytes, sections: footer.sections.len() })
}

/// Refuses a value that no database would load from the file: merge operands can make a value longer than a put may.
fn check_loadable(key: &[u8], value: &[u8]) -> Result<()> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let (key, bytes) = (key.escape_ascii(), value.len());
    Err(Error::invalid(format!(
        "the value of {key} is merged to {bytes} bytes, and at most {MAX_VALUE_BYTES} can be loaded: put a shorter one, or \
         delete the key"
    )))
}

fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(failed("opening", path))
}

/// Fills `bytes` from the current position of the file.
fn fill(from: &mut impl Read, bytes: &mut [u8], path: &Path) -> Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => cut(path),
        _ => failed("reading", path)(error),
    })
}

fn read_footer(path: &Path) -> Result<(Header, Footer, CheckpointSummary)> {
    let mut file = open_file(path)?;
    let file_bytes = file.metadata().map_err(failed("reading", path))?.len();
    let at_trailer = file_bytes.checked_sub(TRAILER_LENGTH).ok_or_else(|| cut(path))?;
    let mut header = vec![0; BLOCK_HEADER_LENGTH];
    fill(&mut file, &mut header, path)?;
    let header_bytes = checkpoint::header_length(&header, MAX_HEADER_BYTES.min(file_bytes)).map_err(damaged(path))?;
    header.resize(header_bytes, 0);
    let rest = header.get_mut(BLOCK_HEADER_LENGTH..).unwrap_or_default();
    fill(&mut file, rest, path)?;
    let header = checkpoint::decode_header(&header).map_err(damaged(path))?;
    let mut trailer = [0; TRAILER_LENGTH as usize];
    seek(&mut file, at_trailer, path)?;
    fill(&mut file, &mut trailer, path)?;
    let (offset, length) = Footer::locate(&trailer, file_bytes)
        .map_err(|error| damaged(path)(error).during("it is no checkpoint, or not all of one"))?;
    // Within the file, as checked above.
    let mut footer = vec![0; length];
    seek(&mut file, offset, path)?;
    fill(&mut file, &mut footer, path)?;
    let footer = Footer::decode(&footer, header_bytes as u64, offset).map_err(damaged(path))?;
    let summary = CheckpointSummary { entries: footer.entries(), file_bytes, sections: footer.sections.len() };
    Ok((header, footer, summary))
}

fn seek(file: &mut File, offset: u64, path: &Path) -> Result<()> {
    file.seek(SeekFrom::Start(offset)).map(drop).map_err(failed("reading", path))
}

/// Loads sections until none is left or one fails.
fn load_sections(db: &Db, path: &Path, sections: &Mutex<Vec<Section>>) -> Result<()> {
    loop {
        let next = lock(sections).pop();
        let Some(section) = next else { return Ok(()) };
        if let Err(error) = load_section(db, path, section) {
            lock(sections).clear();
            return Err(error);
        }
    }
}

fn load_section(db: &Db, path: &Path, section: Section) -> Result<()> {
    let mut file = open_file(path)?;
    seek(&mut file, section.offset, path)?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let (mut left, mut entries) = (section.length, 0);
    let mut block = Vec::new();
    while left > 0 {
        let length = begin_block(&mut file, &mut block, left, path)?;
        end_block(&mut file, &mut block, length, path)?;
        let decoded = checkpoint::decode_block(&block).map_err(damaged(path))?;
        entries += decoded.len() as u64;
        left -= length as u64;
        write_entries(db, &decoded)?;
    }
    if entries != section.entries {
        let message = format!("{}: a section has {entries} entries, not {}", path.display(), section.entries);
        return Err(Error::corrupt(message));
    }
    Ok(())
}

/// Reads the header of the block at the current position and returns the block's length. At most `left` bytes may
/// follow.
fn begin_block(file: &mut impl Read, block: &mut Vec<u8>, left: u64, path: &Path) -> Result<usize> {
    block.resize(BLOCK_HEADER_LENGTH, 0);
    fill(file, block, path)?;
    checkpoint::block_length(block, left).map_err(damaged(path))
}

/// Reads the rest of a block.
fn end_block(file: &mut impl Read, block: &mut Vec<u8>, length: usize, path: &Path) -> Result<()> {
    block.resize(length, 0);
    fill(file, block.get_mut(BLOCK_HEADER_LENGTH..).unwrap_or_default(), path)
}

/// The first key of the block that is `share` bytes after the start of the first section; `None` for the first block.
fn key_at(path: &Path, sections: &[Section], mut share: u64) -> Result<Option<Vec<u8>>> {
    let mut file = open_file(path)?;
    for (number, section) in sections.iter().enumerate() {
        if share >= section.length {
            share -= section.length;
            continue;
        }
        let (mut at, mut block) = (0, Vec::new());
        loop {
            seek(&mut file, section.offset + at, path)?;
            let length = begin_block(&mut file, &mut block, section.length - at, path)?;
            if at + length as u64 > share {
                if number == 0 && at == 0 {
                    return Ok(None);
                }
                end_block(&mut file, &mut block, length, path)?;
                let entries = checkpoint::decode_block(&block).map_err(damaged(path))?;
                return Ok(entries.first().map(|entry| entry.key.to_vec()));
            }
            at += length as u64;
        }
    }
    Ok(None)
}

fn write_entries(db: &Db, entries: &[BlockEntry<'_>]) -> Result<()> {
    let most = BATCH_BYTES.min(db.max_write_bytes());
    let mut batch = WriteBatch::new();
    for &BlockEntry { key, value, expiry_ms } in entries {
        let bytes = Record::encoded_length(key.len(), value.len(), expiry_ms.is_some()) as u64;
        if !batch.is_empty() && batch.record_bytes() + bytes > most {
            db.write(&batch)?;
            batch.clear();
        }
        batch.set(key, value, expiry_ms);
    }
    db.write(&batch)
}
