//! Blocks in memory that is registered with the fabric, so that they can be sent without a copy.

use crate::Memtable;
use crate::block::BlockMemory;
use crate::lookup::LookupPool;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::{Backing, Endpoint, Error, Region, RemoteAddress, Word, WorkId};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Maximum number of idle blocks in a pool.
const MAX_IDLE: usize = 4;
/// Size of the smallest blocks that are made ahead.
const LEAST_PREPARED_BYTES: usize = 2 << 20;

/// Registered memory for blocks of one size, reused: committing fresh pages costs about as much as filling them with
/// records.
#[derive(Debug)]
pub struct BlockPool {
    block_bytes: usize,
    idle: Mutex<Vec<Region>>,
    /// Number of existing blocks of the pool's own size, including lent ones.
    blocks: AtomicUsize,
    lookups: Arc<LookupPool>,
}

/// Registered memory for one block.
#[derive(Debug)]
pub struct RegisteredBlock(Arc<Lent>);

/// The right to send a block's bytes. It allows reading them and nothing else.
#[derive(Debug)]
pub struct SealedBlock(Arc<Lent>);

/// Memory that goes back to its pool when dropped.
#[derive(Debug)]
struct Lent {
    region: Region,
    pool: Weak<BlockPool>,
}

impl BlockPool {
    /// A pool of blocks of `block_bytes`, a multiple of 8.
    #[must_use]
    pub fn new(block_bytes: usize) -> Arc<Self> {
        let (idle, blocks) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { block_bytes, idle, blocks, lookups: LookupPool::new(block_bytes) })
    }

    /// Lookup memory for memtables over such blocks.
    #[must_use]
    pub fn lookups(&self) -> &Arc<LookupPool> {
        &self.lookups
    }

    /// Registered memory of `length_bytes`, a multiple of 8, and the right to send it. Its contents are arbitrary. Only
    /// blocks of the pool's own size are reused.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad length, [`Error::Io`] when there is no memory.
    pub fn take(self: &Arc<Self>, length_bytes: usize) -> Result<(RegisteredBlock, SealedBlock), Error> {
        let is_own_size = length_bytes == self.block_bytes;
        let idle = if is_own_size { lock(&self.idle).pop() } else { None };
        let region = match idle {
            Some(region) => region,
            None => {
                let region = Region::allocate(length_bytes, Backing::Private)?;
                self.blocks.fetch_add(usize::from(is_own_size), Ordering::Relaxed);
                region
            }
        };
        let lent = Arc::new(Lent { region, pool: Arc::downgrade(self) });
        Ok((RegisteredBlock(Arc::clone(&lent)), SealedBlock(lent)))
    }

    /// Makes and commits one more block, unless there are `most` or one is idle. Its user then meets no page that must
    /// still be allocated and zeroed. Returns false when nothing was done, for instance for blocks that are too small to
    /// gain from this.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory.
    pub fn prepare(&self, most: usize) -> Result<bool, Error> {
        let add = |blocks| (blocks < most).then_some(blocks + 1);
        let is_due = self.block_bytes >= LEAST_PREPARED_BYTES
            && lock(&self.idle).is_empty()
            && self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if is_due {
            let prepare = || {
                let region = Region::allocate(self.block_bytes, Backing::Private)?;
                region.commit().map(|()| region)
            };
            let region = prepare().inspect_err(|_| self.forget_block())?;
            lock(&self.idle).push(region);
        }
        Ok(is_due)
    }

    fn forget_block(&self) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        if self.region.length() != pool.block_bytes as u64 {
            return;
        }
        // An operation that is still in flight because its endpoint broke keeps a clone. Then the memory must not be
        // written again.
        let mut idle = lock(&pool.idle);
        if self.region.is_unshared() && idle.len() < MAX_IDLE {
            idle.push(self.region.clone());
        } else {
            pool.forget_block();
        }
    }
}

// SAFETY: the region was allocated by a pool, is mapped, initialised and writable until its last
// clone is dropped, and starts at a page. Besides this block it is reached only through
// `SealedBlock`, which never writes it, and through operations that read it; it is granted to
// nobody, and it is lent again only when it has no other clone.
unsafe impl BlockMemory for RegisteredBlock {
    fn base(&self) -> NonNull<u8> {
        self.0.region.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.region.length() as usize
    }
}

impl SealedBlock {
    /// Queues a write of `length` bytes from `offset` of the block of `memtable` to `to`, without a copy.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the block belongs to another memtable or the bytes are not complete
    /// ([`Memtable::filled_prefix_bytes`], [`Memtable::inserted`]); as [`Endpoint::post_write_sealed`].
    pub fn post(
        &self,
        memtable: &Memtable,
        endpoint: &mut Endpoint,
        to: RemoteAddress,
        offset: usize,
        length: usize,
    ) -> Result<WorkId, Error> {
        self.check_complete(memtable, offset, length)?;
        endpoint.post_write_sealed(to, &self.0.region, offset as u64, length)
    }

    /// Writes the bytes that [`SealedBlock::post`] would, then a word if there is one, and returns when all is in place and
    /// confirmed. It does so where the back end can write at once. Otherwise returns false, with nothing done, and the bytes
    /// must be posted.
    ///
    /// # Errors
    /// As [`SealedBlock::post`] and [`Endpoint::write_at_once`].
    #[inline]
    pub fn write_at_once(
        &self,
        memtable: &Memtable,
        endpoint: &mut Endpoint,
        to: RemoteAddress,
        offset: usize,
        length: usize,
        then: Option<Word>,
    ) -> Result<bool, Error> {
        self.check_complete(memtable, offset, length)?;
        endpoint.write_at_once(to, &self.0.region, offset as u64, length, then)
    }

    /// Reading bytes that are still being written would be a data race.
    #[inline]
    fn check_complete(&self, memtable: &Memtable, offset: usize, length: usize) -> Result<(), Error> {
        let complete = |end| end <= memtable.known_inserted_bytes() || end <= memtable.filled_prefix_bytes();
        let is_complete = (offset as u64).checked_add(length as u64).is_some_and(complete);
        if memtable.memory().base() != self.0.region.as_ptr() || !is_complete {
            return Err(Error::Invalid(format!("{length} bytes at {offset} of a block are not complete")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemtableOptions, Reserved};
    use forebay_base::{KeyOrder, Kind, SequenceNumber};
    use forebay_fabric::{EndpointOptions, Event, Listener, Rights, inprocess};
    use std::time::Duration;

    #[test]
    fn a_block_arrives_as_it_stands() {
        let (mut listener, connector) = inprocess::listen(1).unwrap();
        let link = connector.connect().unwrap();
        let Some(Event::Joined(peer)) = listener.next(Duration::from_secs(5)).unwrap() else { panic!("no link") };
        let target = listener.allocate(4096).unwrap();
        let key = peer.grant(&target, 0, 4096, Rights::ALL).unwrap();
        let pool = BlockPool::new(4096);
        let (memory, sealed) = pool.take(4096).unwrap();
        let options = MemtableOptions {
            order: KeyOrder::Bytewise,
            base: SequenceNumber::ZERO,
            capacity_bytes: 4096,
            piece_bytes: 1024,
        };
        let memtable = Memtable::new(options, Box::new(memory)).unwrap();
        let Reserved::Fits(mut reservation) = memtable.reserve(1, 24).unwrap() else { panic!("it fits") };
        reservation.insert(Kind::Put, b"key", b"value", None).unwrap();
        memtable.end_early().unwrap();
        let mut endpoint = link.endpoint(EndpointOptions::background()).unwrap();
        let id = sealed.post(&memtable, &mut endpoint, key.at(8), 0, 24).unwrap();
        endpoint.wait_for(id).unwrap();
        let mut arrived = [0; 24];
        target.read(8, &mut arrived).unwrap();
        assert_eq!(arrived, memtable.filled_prefix());
        assert!(sealed.post(&memtable, &mut endpoint, key.at(8), 4090, 24).is_err());
        let word = Word { at: key.at(96), value: 7 };
        assert_eq!(sealed.write_at_once(&memtable, &mut endpoint, key.at(64), 0, 24, Some(word)), Ok(true));
        target.read(64, &mut arrived).unwrap();
        assert_eq!(arrived, memtable.filled_prefix());
        assert_eq!(target.load(96).unwrap(), 7);
        let misaligned = Word { at: key.at(97), value: 7 };
        assert!(sealed.write_at_once(&memtable, &mut endpoint, key.at(64), 0, 24, Some(misaligned)).is_err());
        assert!(sealed.write_at_once(&memtable, &mut endpoint, key.at(8), 4090, 24, None).is_err());
        let first = memtable.memory().base();
        drop((memtable, sealed));
        let (again, _) = pool.take(4096).unwrap();
        assert_eq!(again.base(), first);
        let (other, _) = pool.take(4096).unwrap();
        assert_ne!(other.base(), first);
    }

    #[test]
    fn blocks_are_made_ahead_up_to_a_number() {
        let pool = BlockPool::new(LEAST_PREPARED_BYTES);
        let first = pool.take(LEAST_PREPARED_BYTES).unwrap();
        assert!(pool.prepare(2).unwrap());
        assert!(!pool.prepare(2).unwrap());
        let second = pool.take(LEAST_PREPARED_BYTES).unwrap();
        assert!(lock(&pool.idle).is_empty());
        assert!(!pool.prepare(2).unwrap());
        drop((first, second));
        assert_eq!((lock(&pool.idle).len(), pool.blocks.load(Ordering::Relaxed)), (2, 2));
        assert!(!BlockPool::new(4096).prepare(2).unwrap());
    }
}
