//! One request for adjacent blocks of an object, and the threads that wait for it.
//!
//! ```text
//!              claim                     complete
//!   waiting ───────────▸ running ─────────────────────▸ done
//!      │
//!      └── given up by all who wanted it ─────────────▸ done (cancelled)
//! ```
//!
//! The thread that claims it carries it out: a thread of the cache, or the first that waits for it.

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

/// The blocks of a request: each, or what is wrong with it.
pub(super) type Decoded = Vec<Result<Bytes>>;

/// An object that is read through the cache.
#[derive(Debug)]
pub(super) struct Object {
    /// Its number in the cache.
    pub id: u64,
    /// Its name in errors.
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
    /// How many blocks of it are wanted; a block counts once for each caller that wants it.
    wanted: usize,
    /// Number of threads that wait for it: even a wake-up of nobody costs a system call.
    waiting: usize,
}

#[derive(Debug)]
enum Stage {
    Waiting,
    Running,
    Done(Result<Decoded>),
}

impl Fetch {
    /// A request that nobody wants yet.
    pub fn new(object: Arc<Object>, blocks: Range<u32>) -> Self {
        let state = State { stage: Stage::Waiting, wanted: 0, waiting: 0 };
        Self { object, blocks, state: Mutex::new(state), done: Condvar::new() }
    }

    /// Counts one more caller that wants a block of it.
    pub fn want(&self) {
        lock(&self.state).wanted += 1;
    }

    /// Counts one caller less that wants a block of it. Returns whether the request was cancelled, because nobody wants a
    /// block and nobody has begun the request.
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

    /// Claims the request. Returns whether the caller must carry it out.
    pub fn claim(&self) -> bool {
        let mut state = lock(&self.state);
        let is_waiting = matches!(state.stage, Stage::Waiting);
        if is_waiting {
            state.stage = Stage::Running;
        }
        is_waiting
    }

    /// The number of bytes that the request asks for.
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

    /// Decodes the blocks from their stored form.
    pub fn decode(&self, stored: Bytes) -> Decoded {
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
                // A holder of one block must not keep the memory of all of them.
                Cow::Borrowed(part) => Bytes::copy_from_slice(part),
            })
        };
        self.blocks.clone().map(block).collect()
    }

    /// Gives the waiting threads the result.
    pub fn complete(&self, blocks: Result<Decoded>) {
        let mut state = lock(&self.state);
        state.stage = Stage::Done(blocks);
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.done.notify_all();
        }
    }

    /// Waits until the request is done, and returns a block of it.
    pub fn wait(&self, block: u32) -> Result<Bytes> {
        let mut state = lock(&self.state);
        loop {
            if let Stage::Done(blocks) = &state.stage {
                let blocks = blocks.as_ref().map_err(Error::clone)?;
                let at = block.checked_sub(self.blocks.start).and_then(|at| blocks.get(at as usize));
                let missing = || Error::corrupt(&self.object.name, format!("block {block} was not asked for"));
                return at.cloned().unwrap_or_else(|| Err(missing()));
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
