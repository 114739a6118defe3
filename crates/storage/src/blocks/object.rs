//! A block object, read by ranges of its bytes before compression.

use super::directory::BlockDirectory;
use super::fetch::{Fetch, Object, length};
use super::shared::{Shared, Wanted};
use crate::error::{Error, Result};
use crate::objects::ReadRequest;
use bytes::Bytes;
use smallvec::SmallVec;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// See the module. Any number of threads may read at once. It holds only the object's directory.
#[derive(Debug)]
pub struct BlockObject {
    cache: Arc<Shared>,
    object: Arc<Object>,
}

/// A range that was asked for. Its blocks that are not in the cache are requested when somebody waits for the range, or
/// earlier by [`Asked::begin`]. If it is dropped without a wait, it is given up: requests that nobody else wants, and nobody
/// has begun, are not made.
#[derive(Debug)]
pub struct Asked {
    cache: Arc<Shared>,
    object: Arc<Object>,
    range: Range<u64>,
    /// The next wanted block.
    block: u32,
    wanted: smallvec::IntoIter<[Wanted; 2]>,
    /// The requests that this range made, and that nobody has begun.
    new: Vec<Arc<Fetch>>,
}

impl BlockObject {
    pub(super) const fn new(cache: Arc<Shared>, object: Arc<Object>) -> Self {
        Self { cache, object }
    }

    /// The object's directory.
    #[must_use]
    pub fn directory(&self) -> &BlockDirectory {
        &self.object.directory
    }

    /// Asks for a range of the bytes before compression.
    ///
    /// # Errors
    /// `Corrupt` when the object ends before the range does: the caller knows its length.
    pub fn ask(&self, range: Range<u64>) -> Result<Asked> {
        let Object { name, directory, .. } = &*self.object;
        let blocks = directory.blocks_of(&range).ok_or_else(|| {
            let Range { start, end } = range;
            Error::corrupt(name, format!("bytes {start} to {end} of {} were asked for", directory.length))
        })?;
        let first = blocks.start;
        let (wanted, new) = self.cache.find(&self.object, blocks);
        let (cache, object) = (Arc::clone(&self.cache), Arc::clone(&self.object));
        Ok(Asked { cache, object, range, block: first, wanted: wanted.into_iter(), new })
    }

    /// Fills `out` with bytes from `offset`. Makes no request when they are in the cache, and one when none of them is (and
    /// one request is long enough).
    ///
    /// # Errors
    /// As for [`BlockObject::ask`]; `Corrupt` when a block is damaged; those of
    /// [`ObjectReader::read_at`](crate::ObjectReader::read_at).
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, out }])
    }

    /// Reads several ranges. Requests what the cache does not have at the same time.
    ///
    /// # Errors
    /// As for [`BlockObject::read_at`]; some ranges may have been read.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let mut all: SmallVec<[_; 1]> = SmallVec::with_capacity(requests.len());
        for request in &*requests {
            let end = request.offset.saturating_add(request.out.len() as u64);
            all.push(self.ask(request.offset..end)?);
        }
        // The first request is carried out here.
        let new = all.iter_mut().flat_map(|asked| std::mem::take(&mut asked.new));
        self.cache.begin(new.skip(1).collect());
        requests.iter_mut().zip(all).try_for_each(|(request, asked)| asked.wait(request.out))
    }

    /// The object in its stored form, from its first byte to its last, in pieces of about `piece_bytes`. Each block of a
    /// piece is verified before the piece is handed out, and the last piece is the directory. The cache is not used. The
    /// iterator must not be used further after an error.
    ///
    /// # Errors
    /// Of an item: `Corrupt` when a block is damaged; those of [`ObjectReader::read_at`](crate::ObjectReader::read_at).
    pub fn stored(&self, piece_bytes: u64) -> impl Iterator<Item = Result<Bytes>> {
        let directory = self.directory();
        let mut next = 0;
        let pieces = iter::from_fn(move || {
            let first = next;
            let start = directory.place_of(first).start;
            let fits = |block| directory.place_of(block).end.saturating_sub(start) <= piece_bytes;
            while next < directory.blocks() && (next == first || fits(next)) {
                next += 1;
            }
            (next > first).then(|| Fetch::new(Arc::clone(&self.object), first..next))
        });
        let verified = |fetch: Fetch| {
            let stored = fetch.read()?;
            fetch.decode(stored.clone()).into_iter().try_for_each(|block| block.map(drop))?;
            Ok(stored)
        };
        // It was verified when the object was opened.
        let mut tail = Vec::new();
        directory.encode(&mut tail);
        pieces.map(verified).chain(iter::once(Ok(tail.into())))
    }
}

impl Asked {
    /// The range that was asked for.
    #[must_use]
    pub const fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Makes the cache's threads fetch what is missing, with as many requests in flight as there are threads.
    pub fn begin(&mut self) {
        self.cache.begin(std::mem::take(&mut self.new));
    }

    /// Waits for the range, and fills `out` with it; both have the same length.
    ///
    /// # Errors
    /// As for [`BlockObject::read_at`]; `Invalid` when `out` has another length.
    pub fn wait(mut self, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 != length(&self.range) {
            let detail = format!("{} bytes were asked for, and {} are to be filled", length(&self.range), out.len());
            return Err(Error::new(forebay_base::ErrorKind::Invalid, "read", &self.object.name, detail));
        }
        let Range { start, end } = self.range;
        let mut rest = out;
        for wanted in self.wanted.by_ref() {
            let bytes = self.cache.wait(wanted, self.block)?;
            let here = self.object.directory.bytes_of(self.block);
            let part = start.max(here.start)..end.min(here.end);
            let part = bytes.get((part.start - here.start) as usize..(part.end - here.start) as usize);
            // A block was decoded to the number of bytes that the directory says.
            let part = part.unwrap_or_default();
            let (filled, after) = std::mem::take(&mut rest).split_at_mut(part.len());
            filled.copy_from_slice(part);
            rest = after;
            self.block += 1;
        }
        Ok(())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.wanted.by_ref().for_each(|wanted| self.cache.give_up(&wanted));
    }
}
