//! One request for blocks that lie side by side in an object, and who waits for it.
//!
//! ```text
//!              claim                     complete
//!   waiting ───────────▸ running ─────────────────────▸ done
//!      │
//!      └── given up by all who wanted it ─────────────▸ done (cancelled)
//! ```
//!
//! Whoever claims it carries it out: a thread of the cache, or the first who waits for it.

use super::block::{Place, decode};
use super::directory::BlockDirectory;
use crate::error::{Error, Result};
use crate::objects::ObjectReader;
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::sync::{Condvar, Mutex, lock};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// An object that is read through the cache.
#[derive(Debug)]
pub(super) struct Object {
    /// What the cache knows it by.
    pub id: u64,
    /// What errors call it.
    pub name: String,
    pub reader: Arc<dyn ObjectReader>,
    pub directory: BlockDirectory,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fetch {
    pub object: Arc<Object>,
    pub blocks: Range<u32>,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// How many blocks of it are wanted, each once for each who wants it.
    wanted: usize,
    /// Threads that wait for it. To wake nobody would cost a system call too.
    waiting: usize,
}

#[derive(Debug)]
enum Stage {
    Waiting,
    Running,
    Done(Result<Vec<Bytes>>),
}

impl Fetch {
    /// A request that nobody wants yet.
    pub fn new(object: Arc<Object>, blocks: Range<u32>) -> Self {
        let state = State { stage: Stage::Waiting, wanted: 0, waiting: 0 };
        Self { object, blocks, state: Mutex::new(state), done: Condvar::new() }
    }

    /// One more wants a block of it.
    pub fn want(&self) {
        lock(&self.state).wanted += 1;
    }

    /// One who wanted a block of it does not any more. Whether it was cancelled, because nobody does and nobody has begun
    /// it.
    pub fn give_up(&self) -> bool {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.saturating_sub(1);
        let is_cancelled = state.wanted == 0 && matches!(state.stage, Stage::Waiting);
        if is_cancelled {
            let detail = "nobody waits for these blocks any more";
            state.stage = Stage::Done(Err(Error::new(ErrorKind::Closed, "read", &self.object.name, detail)));
        }
        is_cancelled
    }

    /// Whether nobody has claimed it.
    pub fn is_waiting(&self) -> bool {
        matches!(lock(&self.state).stage, Stage::Waiting)
    }

    /// Whether the caller is to carry it out.
    pub fn claim(&self) -> bool {
        let mut state = lock(&self.state);
        let is_waiting = matches!(state.stage, Stage::Waiting);
        if is_waiting {
            state.stage = Stage::Running;
        }
        is_waiting
    }

    /// How many bytes the request asks for.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks.clone().map(|block| length(&self.object.directory.place_of(block))).sum()
    }

    /// The lengths of the blocks, as they are stored.
    pub fn stored_lengths(&self) -> Vec<u32> {
        self.blocks.clone().map(|block| length(&self.object.directory.place_of(block)) as u32).collect()
    }

    /// Reads the blocks with one request, as they are stored.
    pub fn read(&self) -> Result<Bytes> {
        let Object { reader, directory, .. } = &*self.object;
        let start = directory.place_of(self.blocks.start).start;
        let mut stored = vec![0; self.stored_bytes() as usize];
        reader.read_at(start, &mut stored)?;
        Ok(Bytes::from(stored))
    }

    /// The blocks, from what is stored of them.
    pub fn decode(&self, stored: Bytes) -> Result<Vec<Bytes>> {
        let directory = &self.object.directory;
        let mut rest = stored;
        let is_one = self.blocks.len() == 1;
        let block = |number: u32| {
            let bytes = length(&directory.place_of(number)) as usize;
            let block = rest.split_to(bytes.min(rest.len()));
            let place = Place { identity: directory.identity, number };
            let decoded = decode(place, length(&directory.bytes_of(number)) as usize, &block);
            let decoded = decoded.map_err(|cause| {
                Error::corrupt(&self.object.name, format!("block {number} of the object is damaged: {cause}"))
            })?;
            Ok(match decoded {
                Cow::Owned(bytes) => Bytes::from(bytes),
                Cow::Borrowed(part) if is_one => block.slice_ref(part),
                // Who holds one block of several is not to hold all of them.
                Cow::Borrowed(part) => Bytes::copy_from_slice(part),
            })
        };
        self.blocks.clone().map(block).collect()
    }

    /// Tells those who wait what came of it.
    pub fn complete(&self, blocks: Result<Vec<Bytes>>) {
        let mut state = lock(&self.state);
        state.stage = Stage::Done(blocks);
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.done.notify_all();
        }
    }

    /// Waits until it is done, and returns a block of it.
    pub fn wait(&self, block: u32) -> Result<Bytes> {
        let mut state = lock(&self.state);
        loop {
            if let Stage::Done(blocks) = &state.stage {
                let blocks = blocks.as_ref().map_err(Error::clone)?;
                let at = block.checked_sub(self.blocks.start).and_then(|at| blocks.get(at as usize));
                let missing = || Error::corrupt(&self.object.name, format!("block {block} was not asked for"));
                return at.cloned().ok_or_else(missing);
            }
            state.waiting += 1;
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

/// How many bytes a range has.
pub(super) const fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}
