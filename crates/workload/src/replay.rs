//! Replay of traces against a store, with a model that knows the expected result of each read.
//!
//! A trace gives keys but no bytes, so a value is a function of its key and a version
//! ([`crate::values`]). The model holds the last written version of each key. Every read is
//! compared with it: a lost, old, foreign or damaged value ends the replay.
//!
//! * A page reference writes the page when it is new. Later it writes in a share of cases (30 % by
//!   default) chosen by a hash of the page and of the reference's number. Otherwise it reads the
//!   page.
//! * A request for blocks uses one key per block. A write is one batch, a read one multi-get. A
//!   block that was never written is not found, unless the store had records before.

use crate::keys::KeyBuffer;
use crate::measure::{Call, Phase, Run, Timing, Worker, run_phase};
use crate::mix::mix_two;
use crate::report::PhaseReport;
use crate::trace::{BLOCK_BYTES, Form, Request, Trace};
use crate::values::Values;
use crate::{Cursor, Error, Store};
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use std::path::PathBuf;

/// Settings of a replay.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The trace.
    pub path: PathBuf,
    /// End after this many requests.
    pub limit: Option<u64>,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// Length of a page in bytes.
    pub page_size: usize,
    /// Of 100 references to existing pages, the number that write.
    pub write_percent: u32,
}

impl Settings {
    /// The default settings for a trace.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), limit: None, key_size: 16, page_size: 4096, write_percent: 30 }
    }

    /// Checks the settings, and opens the trace and reads its beginning, so that errors are found before a store is
    /// opened. The trace is opened once, so it may be a pipe.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what would be valid, [`Error::Io`], [`Error::Trace`].
    pub fn open(&self) -> Result<Opened, Error> {
        if self.write_percent > 100 {
            return Err(Error::Invalid(format!("write percent {}: 0 to 100 are possible", self.write_percent)));
        }
        let mut trace = Trace::open(&self.path)?;
        let first = trace.next_request()?;
        let replayer = Replayer::new(self, trace.form())?;
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned();
        Ok(Opened { name, limit: self.limit, first, trace, replayer })
    }
}

/// A trace that can be replayed.
#[derive(Debug)]
pub struct Opened {
    name: String,
    limit: Option<u64>,
    /// The first request, which is already read.
    first: Option<Request>,
    trace: Trace,
    replayer: Replayer,
}

/// Replays a trace.
///
/// # Errors
/// [`Error::Verification`] at the first read that differs from the model, [`Error::Trace`] at the
/// first invalid line, and errors of the store.
pub fn replay<S: Store>(mut opened: Opened, store: &S, run: &mut Run<'_>) -> Result<PhaseReport, Error> {
    let phase = Phase {
        name: format!("replay {}", opened.name),
        threads: 1,
        has_background: false,
        planned: opened.limit.unwrap_or(0),
        tells_found: true,
        timing: Timing::Each,
    };
    opened.replayer.began_empty = is_empty(store)?;
    // For the one thread.
    let opened = Mutex::new(Some(opened));
    run_phase(store, &|| store.figures(), run, phase, move |store: &S, worker| {
        let Some(Opened { limit, mut first, mut trace, mut replayer, .. }) = lock(&opened).take() else {
            return Ok(());
        };
        while limit.is_none_or(|limit| worker.operations < limit) {
            let next = first.take().map_or_else(|| trace.next_request(), |first| Ok(Some(first)))?;
            let Some(request) = next else { break };
            replayer.one(store, worker, request)?;
        }
        Ok(())
    })
}

/// Whether a store has no records.
fn is_empty(store: &impl Store) -> Result<bool, Error> {
    let mut cursor = store.cursor().map_err(Error::store("opening an iterator"))?;
    cursor.seek_to_first().map_err(Error::store("seek to first"))?;
    Ok(cursor.entry().is_none())
}

#[derive(Debug)]
struct Replayer {
    write_percent: u64,
    /// Whether the store had no records before, so that everything in it is of this replay.
    began_empty: bool,
    /// Last written version, by key number.
    model: HashMap<u64, u64>,
    keys: KeyBuffer,
    values: Values,
    value: Vec<u8>,
    batch: Buffers,
}

/// Keys and values of a batch, one after another.
#[derive(Debug, Default)]
struct Buffers {
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Replayer {
    fn new(settings: &Settings, form: Form) -> Result<Self, Error> {
        let value_size = if form == Form::Block { BLOCK_BYTES as usize } else { settings.page_size };
        let values = Values::new(value_size)?;
        Ok(Self {
            write_percent: u64::from(settings.write_percent),
            began_empty: false,
            model: HashMap::default(),
            keys: KeyBuffer::new(settings.key_size, u64::MAX)?,
            value: values.buffer(),
            values,
            batch: Buffers::default(),
        })
    }

    fn one<S: Store>(&mut self, store: &S, worker: &mut Worker, request: Request) -> Result<(), Error> {
        match request {
            Request::Page(page) => match self.model.get(&page) {
                Some(&version) if mix_two(page, worker.operations) % 100 >= self.write_percent => {
                    self.read_page(store, worker, page, version)
                }
                version => self.write_page(store, worker, page, version.map_or(1, |version| version + 1)),
            },
            Request::ReadBlocks { first, count } => self.read_blocks(store, worker, first, count),
            Request::WriteBlocks { first, count } => self.write_blocks(store, worker, first, count),
        }
    }

    fn write_page<S: Store>(&mut self, store: &S, worker: &mut Worker, page: u64, version: u64) -> Result<(), Error> {
        self.model.insert(page, version);
        self.values.fill(page, version, &mut self.value);
        worker.begin();
        store.put(self.keys.set(page), &self.value).map_err(Error::store("put"))?;
        worker.finish(Call::Put, 1)
    }

    fn read_page<S: Store>(&mut self, store: &S, worker: &mut Worker, page: u64, version: u64) -> Result<(), Error> {
        worker.begin();
        let value = store.get(self.keys.set(page)).map_err(Error::store("get"))?;
        worker.finish(Call::Get, 1)?;
        worker.found += u64::from(value.is_some());
        self.check("get", page, Some(version), value.as_deref())
    }

    fn write_blocks<S: Store>(&mut self, store: &S, worker: &mut Worker, first: u64, count: u64) -> Result<(), Error> {
        let Buffers { keys, values } = &mut self.batch;
        keys.clear();
        values.clear();
        for block in first..first + count {
            let version = self.model.entry(block).or_insert(0);
            *version += 1;
            self.values.fill(block, *version, &mut self.value);
            values.extend_from_slice(&self.value);
            keys.extend_from_slice(self.keys.set(block));
        }
        let (key_size, value_size) = (keys.len() / count as usize, self.values.length());
        let records: Vec<_> = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size)).collect();
        worker.begin();
        store.put_batch(&records).map_err(Error::store("batch"))?;
        worker.finish(Call::Batch, 1)
    }

    fn read_blocks<S: Store>(&mut self, store: &S, worker: &mut Worker, first: u64, count: u64) -> Result<(), Error> {
        let keys = &mut self.batch.keys;
        keys.clear();
        for block in first..first + count {
            keys.extend_from_slice(self.keys.set(block));
        }
        let wanted: Vec<_> = keys.chunks_exact(keys.len() / count as usize).collect();
        worker.begin();
        let values = store.multi_get(&wanted).map_err(Error::store("multiget"))?;
        worker.finish(Call::MultiGet, 1)?;
        if values.len() as u64 != count {
            let found = format!("{} values for {count} keys", values.len());
            return Err(Error::Verification { what: "multiget", key: first, found });
        }
        for (block, value) in (first..).zip(&values) {
            worker.found += u64::from(value.is_some());
            self.check("multiget", block, self.model.get(&block).copied(), value.as_deref())?;
        }
        Ok(())
    }

    /// Compares a read value with the model.
    fn check(&self, what: &'static str, key: u64, expected: Option<u64>, value: Option<&[u8]>) -> Result<(), Error> {
        let found = match (expected, value) {
            (None, None) => return Ok(()),
            (Some(version), Some(value)) => match self.values.check_version(key, version, value) {
                Ok(()) => return Ok(()),
                Err(found) => found,
            },
            (Some(version), None) => format!("nothing where version {version} was written last"),
            (None, Some(_)) if !self.began_empty => return Ok(()),
            (None, Some(_)) => "a value where nothing was written".into(),
        };
        Err(Error::Verification { what, key, found })
    }
}
