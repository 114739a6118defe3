//! The words in which the ordered index lives: relocatable, because links are word offsets.

use crate::error::IndexError;
use crate::height::{HEADER_WORDS, MAX_HEIGHT, node_words};
use crate::search::Words;
use forebay_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// See [`crate::index`] for who writes which word when.
#[derive(Debug)]
pub(crate) struct Arena {
    words: Box<[AtomicU32]>,
    /// Words handed out; may grow beyond the length when the arena is full.
    used: AtomicU64,
    /// Levels that have, or are about to have, a node. A hint: levels above are empty.
    height: AtomicU32,
}

/// Zeroed words, which the system commits when they are first touched.
#[cfg(not(any(loom, shuttle)))]
fn zeroed(length: usize) -> Box<[AtomicU32]> {
    // SAFETY: zero bytes are a valid `AtomicU32`.
    unsafe { Box::new_zeroed_slice(length).assume_init() }
}

#[cfg(any(loom, shuttle))]
fn zeroed(length: usize) -> Box<[AtomicU32]> {
    (0..length).map(|_| AtomicU32::new(0)).collect()
}

impl Arena {
    pub(crate) fn new(words: usize) -> Self {
        let words = zeroed(words.clamp(node_words(MAX_HEIGHT), u32::MAX as usize));
        Self { words, used: AtomicU64::new(node_words(MAX_HEIGHT) as u64), height: AtomicU32::new(1) }
    }

    /// Takes the words of a node of this height and returns its offset. Only counts: relaxed.
    #[inline]
    pub(crate) fn allocate(&self, height: usize) -> Result<u32, IndexError> {
        let words = node_words(height) as u64;
        let start = self.used.fetch_add(words, Relaxed);
        if start + words > self.words.len() as u64 {
            return Err(IndexError::Full(self.words.len()));
        }
        Ok(start as u32)
    }

    #[inline]
    pub(crate) fn raise(&self, height: usize) {
        if (self.height.load(Relaxed) as usize) < height {
            self.height.fetch_max(height as u32, Relaxed);
        }
    }

    /// The word at `at`, if there is one.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&AtomicU32> {
        self.words.get(at)
    }

    /// The link of `node` at `level`.
    #[inline]
    pub(crate) fn link(&self, node: u32, level: usize) -> Result<&AtomicU32, IndexError> {
        self.words.get(node as usize + HEADER_WORDS + level).ok_or(IndexError::BadLink { node, level })
    }

    /// Words handed out.
    pub(crate) fn used(&self) -> usize {
        (self.used.load(Relaxed) as usize).min(self.words.len())
    }
}

impl Words for &Arena {
    #[inline]
    fn word(&self, at: usize) -> Option<u32> {
        // Relaxed: a field of a node that was reached by an acquiring load of a link.
        self.words.get(at).map(|word| word.load(Relaxed))
    }

    #[inline]
    fn next(&self, at: usize) -> Option<u32> {
        // Pairs with the release by which `Index::insert` links a node.
        self.words.get(at).map(|word| word.load(Acquire))
    }

    #[inline]
    fn length(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn height(&self) -> usize {
        self.height.load(Relaxed) as usize
    }
}
