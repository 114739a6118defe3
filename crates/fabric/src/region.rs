//! Registered memory.

use crate::Error;
use crate::memory::Mapping;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::SealFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The kind of memory of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Memory of this process.
    Private,
    /// A memory file that can be granted to other processes of the machine (back end `shm`).
    Shareable,
}

/// Registered memory: zeroed when allocated, freed when the last clone is dropped.
///
/// Others may write it at any time, so all access copies.
#[derive(Debug, Clone)]
pub struct Region(Arc<Mapping>);

impl Region {
    /// Allocates `length` bytes (a positive multiple of 8) of zeros. Pages are committed when first
    /// touched, 2 MB at a time where the system gives them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad length, [`Error::Io`] when the system has no memory to give.
    pub fn allocate(length: usize, backing: Backing) -> Result<Self, Error> {
        let mapping = match backing {
            Backing::Private => Mapping::anonymous(length)?,
            Backing::Shareable => Mapping::memory_file("forebay", length, SealFlags::empty())?,
        };
        Ok(Self(Arc::new(mapping)))
    }

    /// Allocates `length` bytes of zeros in a memory file that other processes can only read: this mapping stays the only one
    /// for writing.
    ///
    /// # Errors
    /// As [`Region::allocate`]; [`Error::Io`] also from kernels that do not know the seal (before 5.1).
    pub(crate) fn allocate_for_readers(length: usize) -> Result<Self, Error> {
        Ok(Self(Arc::new(Mapping::memory_file("forebay-page", length, SealFlags::FUTURE_WRITE)?)))
    }

    /// A region over `length` bytes from `offset` of a memory file that a peer passed. The offset
    /// must be a multiple of the page size.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the file ends before the range does or can be cut, [`Error::Io`].
    pub fn from_received(file: OwnedFd, offset: u64, length: usize, writable: bool) -> Result<Self, Error> {
        Ok(Self(Arc::new(Mapping::received(file, offset, length, writable)?)))
    }

    /// Commits the memory, in 2 MB pages where the system gives them: later accesses meet no page that is yet to be
    /// allocated and zeroed. Costs as much as zeroing the memory.
    ///
    /// # Errors
    /// [`Error::Io`] when there is not that much memory, or this process may only read it.
    pub fn commit(&self) -> Result<(), Error> {
        self.0.commit()
    }

    /// Maps all pages now, so that no access has to wait for one to be mapped. This commits pages that nobody has written,
    /// so it is for memory whose peer has committed it already, or is trusted with what it takes.
    pub(crate) fn populate(&self) {
        self.0.populate();
    }

    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.0.length() as u64
    }

    /// Where the region is mapped. For writers that own disjoint ranges of a private region that is
    /// granted to nobody, such as memtable blocks; the pointer is valid while a clone lives.
    #[must_use]
    pub fn as_ptr(&self) -> std::ptr::NonNull<u8> {
        self.0.base()
    }

    /// Whether this process may write it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    /// The memory file of a shareable region.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.0.file().map(rustix::fd::AsFd::as_fd)
    }

    /// Copies `into.len()` bytes out.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        if self.0.read(offset, into) { Ok(()) } else { Err(out_of_bounds(offset, into.len())) }
    }

    /// Copies `from` in.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], also when the region is read-only.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        if self.0.write(offset, from) { Ok(()) } else { Err(out_of_bounds(offset, from.len())) }
    }

    /// Copies `length` bytes from `offset` of `source` to `at`; long pieces bypass the caches where both are
    /// aligned alike within words of 8 bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], also when the region is read-only.
    pub fn copy_from(&self, at: u64, source: &Self, offset: u64, length: usize) -> Result<(), Error> {
        if !source.0.contains(offset, length as u64) {
            return Err(out_of_bounds(offset, length));
        }
        if self.0.copy_from(at, &source.0, offset, length) { Ok(()) } else { Err(out_of_bounds(at, length)) }
    }

    /// Fills a range with zeros.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        if !self.0.contains(offset, length) {
            return Err(Error::OutOfBounds { offset, length });
        }
        let mut done = 0;
        while done < length {
            let step = (length - done).min(ZEROS.len() as u64);
            self.write(offset + done, &ZEROS[..step as usize])?;
            done += step;
        }
        Ok(())
    }

    /// Loads the aligned word at `offset` (acquire).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, Error> {
        self.0.load(offset).ok_or_else(|| bad_word(offset))
    }

    /// Stores the aligned word at `offset` (release).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    #[inline]
    pub fn store(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.0.word(offset).ok_or_else(|| bad_word(offset))?.store(value, Ordering::Release);
        Ok(())
    }

    /// Compares the aligned word at `offset` with `expected` and swaps it for `new` if equal.
    /// Returns the word before.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    #[inline]
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, Error> {
        let word = self.0.word(offset).ok_or_else(|| bad_word(offset))?;
        Ok(match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) | Err(before) => before,
        })
    }

    /// Adds `delta`, wrapping, to the aligned word at `offset`. Returns the word before.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    #[inline]
    pub fn fetch_add(&self, offset: u64, delta: u64) -> Result<u64, Error> {
        let word = self.0.word(offset).ok_or_else(|| bad_word(offset))?;
        Ok(word.fetch_add(delta, Ordering::SeqCst))
    }

    /// Asks the processor to load the cache lines of a range.
    #[inline]
    pub fn prefetch(&self, offset: u64, length: u64) {
        self.0.prefetch(offset, length);
    }

    /// Whether this is the only clone.
    #[must_use]
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether both are the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn out_of_bounds(offset: u64, length: usize) -> Error {
    Error::OutOfBounds { offset, length: length as u64 }
}

fn bad_word(offset: u64) -> Error {
    if offset.is_multiple_of(8) { Error::OutOfBounds { offset, length: 8 } } else { Error::Misaligned { offset } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts_as_zeros_and_keeps_its_bounds(backing: Backing) {
        let region = Region::allocate(4096, backing).unwrap();
        assert_eq!(region.load(4088), Ok(0));
        assert_eq!(region.load(4096), Err(Error::OutOfBounds { offset: 4096, length: 8 }));
        assert_eq!(region.load(4), Err(Error::Misaligned { offset: 4 }));
        assert_eq!(region.write(4090, &[1; 7]), Err(Error::OutOfBounds { offset: 4090, length: 7 }));
        assert!(region.read(u64::MAX, &mut [0; 8]).is_err());
        assert_eq!(region.compare_swap(8, 0, 5), Ok(0));
        assert_eq!(region.compare_swap(8, 0, 6), Ok(5));
        assert_eq!(region.fetch_add(8, 2), Ok(5));
        assert_eq!(region.load(8), Ok(7));
        assert_eq!(region.file().is_some(), backing == Backing::Shareable);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memory files")]
    fn a_shareable_region_starts_as_zeros_and_keeps_its_bounds() {
        starts_as_zeros_and_keeps_its_bounds(Backing::Shareable);
    }

    #[test]
    fn a_private_region_starts_as_zeros_and_keeps_its_bounds() {
        starts_as_zeros_and_keeps_its_bounds(Backing::Private);
        assert!(Region::allocate(0, Backing::Private).is_err());
        assert!(Region::allocate(12, Backing::Private).is_err());
    }

    #[test]
    fn reads_of_any_length_are_exact() {
        const LENGTH: usize = 40 << 10;
        let region = Region::allocate(LENGTH, Backing::Private).unwrap();
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 + i / 251) as u8).collect();
        region.write(0, &bytes).unwrap();
        // Lengths around a line, and around the points where a long copy begins and ends to
        // prefetch.
        let lengths = [0, 1, 7, 8, 9, 63, 64, 65, 8_191, 8_192, 8_193, 8_256, 16_384, 30_001, LENGTH - 16];
        for (from, length) in [0, 1, 8, 13].into_iter().flat_map(|from| lengths.map(|length| (from, length))) {
            let mut read = vec![0; length];
            region.read(from as u64, &mut read).unwrap();
            assert!(read == bytes[from..from + length], "{length} bytes from {from}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memory files")]
    fn copies_between_regions_are_exact() {
        const LENGTH: usize = 160 << 10;
        let source = Region::allocate(LENGTH, Backing::Private).unwrap();
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 + i / 251) as u8).collect();
        source.write(0, &bytes).unwrap();
        // Short and long, aligned alike within words and not.
        for (at, offset, length) in [
            (0, 0, LENGTH),
            (3, 11, 100_001),
            (5, 5, 65_535),
            (5, 5, 65_536),
            (0, 4, 70_000),
            (8, 16, 65_549),
            (9, 1, 0),
            (7, 0, 9),
        ] {
            let target = Region::allocate(LENGTH, Backing::Shareable).unwrap();
            target.copy_from(at as u64, &source, offset as u64, length).unwrap();
            let mut whole = vec![1; LENGTH];
            target.read(0, &mut whole).unwrap();
            assert_eq!(whole[at..at + length], bytes[offset..offset + length], "{length} bytes from {offset} to {at}");
            assert!(whole[..at].iter().chain(&whole[at + length..]).all(|&b| b == 0));
            let end = LENGTH as u64 - length as u64 + 1;
            assert!(target.copy_from(end, &source, 0, length).is_err());
            assert!(target.copy_from(0, &source, end, length).is_err());
        }
    }

    #[test]
    fn committed_memory_keeps_its_contents() {
        let region = Region::allocate((2 << 20) + 8, Backing::Private).unwrap();
        region.store(4096, 7).unwrap();
        region.store(2 << 20, 8).unwrap();
        region.commit().unwrap();
        assert_eq!((region.load(0), region.load(4096), region.load(2 << 20)), (Ok(0), Ok(7), Ok(8)));
    }

    /// Three threads write and read ranges that overlap and begin and end within words.
    #[test]
    fn threads_tear_no_word_and_lose_no_byte_of_another() {
        let region = Region::allocate(128, Backing::Private).unwrap();
        let rounds = if cfg!(miri) { 6 } else { 2_000 };
        std::thread::scope(|scope| {
            for writer in 0..3u8 {
                let region = &region;
                scope.spawn(move || {
                    let own = u64::from(writer) * 2 + 1;
                    for round in 0..rounds {
                        let round = round as u8;
                        region.write(11, &[round.wrapping_mul(3) ^ writer; 74]).unwrap();
                        // The word at 0 has bytes of each thread, which no other thread ever
                        // writes.
                        region.write(own, &[round, !round]).unwrap();
                        // Reads whole words where the others write parts of them.
                        let mut seen = [0; 128];
                        region.read(0, &mut seen).unwrap();
                        let whole = seen[16..80].chunks_exact(8);
                        whole.for_each(|word| assert!(word.iter().all(|byte| *byte == word[0]), "torn: {word:?}"));
                        let mut kept = [0; 2];
                        region.read(own, &mut kept).unwrap();
                        assert_eq!(kept, [round, !round]);
                    }
                });
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn copies_are_exact(offset in 0u64..64, bytes in proptest::collection::vec(any::<u8>(), 0..400), skew in 0usize..8) {
            let region = Region::allocate(512, Backing::Private).unwrap();
            let mut source = vec![0; skew];
            source.extend_from_slice(&bytes);
            region.write(offset, &source[skew..]).unwrap();
            let mut whole = vec![0u8; 512];
            region.read(0, &mut whole).unwrap();
            let start = offset as usize;
            prop_assert_eq!(&whole[start..start + bytes.len()], &bytes[..]);
            prop_assert!(whole[..start].iter().chain(&whole[start + bytes.len()..]).all(|&b| b == 0));
            let mut part = vec![0u8; bytes.len() + skew];
            region.read(offset, &mut part[skew..]).unwrap();
            prop_assert_eq!(&part[skew..], &bytes[..]);
        }
    }
}
