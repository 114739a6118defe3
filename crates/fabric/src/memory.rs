//! Mapped memory that others may read and write at the same time.
//!
//! No reference to plain bytes ever points into a mapping: `words` says how bytes go in and out.

use crate::pages::{self, HUGE_PAGE_BYTES};
use crate::prefetch::{LINE_BYTES, prefetch_line};
use crate::words::{copy_across, copy_in, copy_out, store_word};
use crate::{Error, stream};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Copies between mappings of at least this length bypass the caches: nobody reads all of the copy soon, and what is in
/// the caches is of more use.
const STREAMED_BYTES: usize = 64 << 10;

/// A memory mapping, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory that lives until the value is dropped. All access goes
// through `copy_in`, `copy_out` and atomics, which any thread may use at any time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes of zeros that only this process sees.
    pub(crate) fn anonymous(length: usize) -> Result<Self, Error> {
        Self::map(length, None, 0, true)
    }

    /// `length` bytes of zeros in a memory file that can be passed to other processes, with these seals in addition to
    /// the usual ones.
    pub(crate) fn memory_file(name: &str, length: usize, seals: SealFlags) -> Result<Self, Error> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| Error::io("creating a memory file", e))?;
        rustix::fs::ftruncate(&file, length as u64).map_err(|e| Error::io("sizing a memory file", e))?;
        // The file is made with access for all: a process that was given it for reading could open it again for
        // writing.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::io("saying who may open a memory file", e))?;
        let mapping = Self::map(length, Some(file), 0, true)?;
        // A peer that holds the file must not be able to cut it: touching what is cut off kills. Nor may it add seals,
        // which would keep others from writing.
        if let Some(file) = &mapping.file {
            rustix::fs::fcntl_add_seals(file, seals | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
                .map_err(|e| Error::io("sealing a memory file", e))?;
        }
        Ok(mapping)
    }

    /// Maps `length` bytes from `offset` (a multiple of the page size) of a memory file that
    /// another process passed. The range must be within the file, and the file of ordinary pages and sealed against
    /// shrinking. The descriptor is not kept.
    pub(crate) fn received(file: OwnedFd, offset: u64, length: usize, writable: bool) -> Result<Self, Error> {
        let size = rustix::fs::fstat(&file).map_err(|e| Error::io("asking a memory file's size", e))?.st_size;
        let fits = offset.checked_add(length as u64).is_some_and(|end| end <= u64::try_from(size).unwrap_or(0));
        if !fits {
            return Err(Error::Protocol(format!(
                "a memory file of {size} bytes was passed for {length} bytes at {offset}"
            )));
        }
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| Error::io("asking a memory file's seals", e))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::Protocol("a memory file was passed that its owner can cut".into()));
        }
        // Files of `hugetlbfs` also have seals, but can be mapped and unmapped in its huge pages only.
        let system = rustix::fs::fstatfs(&file).map_err(|e| Error::io("asking a memory file's kind", e))?;
        if system.f_type != libc::TMPFS_MAGIC {
            return Err(Error::Protocol("a memory file was passed that does not consist of ordinary pages".into()));
        }
        let mut mapping = Self::map(length, Some(file), offset, writable)?;
        mapping.file = None;
        Ok(mapping)
    }

    fn map(length: usize, file: Option<OwnedFd>, offset: u64, writable: bool) -> Result<Self, Error> {
        if length == 0 || !length.is_multiple_of(8) || length > isize::MAX as usize - HUGE_PAGE_BYTES {
            return Err(Error::Invalid(format!("a region of {length} bytes: its size must be a multiple of 8")));
        }
        let base = pages::map(length, file.as_ref(), offset, writable)?;
        Ok(Self { base, length, writable, file })
    }

    /// Commits all memory of the mapping, in 2 MB pages where the system gives them.
    ///
    /// # Errors
    /// [`Error::Io`] when there is not that much memory.
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.commit_huge();
        // SAFETY: the range is the mapping, which the system refuses if it is not writable.
        match unsafe { pages::populate(self.base, self.length, true) } {
            // Kernels before 5.14 do not know the advice: touch the pages.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (0..self.length as u64).step_by(rustix::param::page_size()).for_each(|at| self.touch(at));
                Ok(())
            }
            populated => populated.map_err(|e| Error::io("committing memory", e)),
        }
    }

    /// Maps all pages now, so that no access has to wait for one to be mapped. An old system refuses:
    /// then each is mapped when it is first touched.
    pub(crate) fn populate(&self) {
        // SAFETY: the range is the mapping.
        let _ = unsafe { pages::populate(self.base, self.length, self.writable) };
    }

    /// Commits the whole 2 MB pages as such. Without them everything works, with more TLB misses, so
    /// a refusal (an old system, no memory in one piece) is not an error.
    fn commit_huge(&self) {
        let whole = self.length / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        for at in (0..whole).step_by(HUGE_PAGE_BYTES) {
            // A page that nobody touched does not exist yet and cannot be made huge.
            self.touch(at as u64);
        }
        if whole > 0 {
            // SAFETY: the range is within the mapping.
            unsafe { pages::collapse(self.base, whole) };
        }
    }

    /// Makes the system allocate the page at `at`, if the mapping is writable.
    fn touch(&self, at: u64) {
        if let Some(word) = self.word(at) {
            // An addition of a known zero whose result nobody wants is optimised away.
            word.fetch_add(std::hint::black_box(0), Ordering::Relaxed);
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Whether [offset, offset + length) is within the mapping.
    #[inline]
    pub(crate) fn contains(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length as u64)
    }

    /// Asks the processor to load the cache lines of a range, as far as it is in the mapping.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.length as u64);
        let base = self.base.as_ptr();
        let mut at = offset;
        while at < end {
            prefetch_line(base.wrapping_add(at as usize));
            at += LINE_BYTES as u64;
        }
        // A range that does not begin at a line reaches into one more.
        if offset < end {
            prefetch_line(base.wrapping_add(end as usize - 1));
        }
    }

    /// Copies out `into.len()` bytes from `offset`. False, and nothing copied, when out of range.
    #[inline]
    #[must_use]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.contains(offset, into.len() as u64) {
            return false;
        }
        // SAFETY: the source range is within the mapping, which lives as long as `self` and consists
        // of whole words; the destination is a unique slice of the same length.
        unsafe { copy_out(self.base.as_ptr().add(offset as usize), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies `from` to `offset`. False, and nothing copied, when out of range or read-only.
    #[inline]
    #[must_use]
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> bool {
        if !self.writable || !self.contains(offset, from.len() as u64) {
            return false;
        }
        // SAFETY: the destination range is within the writable mapping, which consists of whole words;
        // the source is a slice.
        unsafe { copy_in(from.as_ptr(), self.base.as_ptr().add(offset as usize), from.len()) };
        true
    }

    /// Copies `length` bytes from `offset` of `source` to `at`. False, and nothing copied, when one of the ranges is
    /// out of its mapping, or this one read-only.
    #[must_use]
    pub(crate) fn copy_from(&self, at: u64, source: &Self, offset: u64, length: usize) -> bool {
        if !self.contains(at, length as u64) || !source.contains(offset, length as u64) || !self.writable {
            return false;
        }
        // Mappings begin at pages.
        if at % 8 == offset % 8 {
            // SAFETY: both ranges are within mappings that live as long as `self` and `source`, this one is
            // writable, and both start at the same place within a word.
            unsafe {
                let from = source.base.as_ptr().add(offset as usize);
                let to = self.base.as_ptr().add(at as usize);
                match length >= STREAMED_BYTES {
                    true => stream::copy(from, to, length),
                    false => copy_across(from, to, length, |to, word| store_word(to, word)),
                }
            };
            return true;
        }
        let mut piece = [0u8; 16 << 10];
        (0..length).step_by(piece.len()).all(|done| {
            let step = (length - done).min(piece.len());
            source.read(offset + done as u64, &mut piece[..step]) && self.write(at + done as u64, &piece[..step])
        })
    }

    /// The aligned word at `offset`. `None` when out of range, misaligned or read-only.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        if !self.writable || !offset.is_multiple_of(8) || !self.contains(offset, 8) {
            return None;
        }
        // SAFETY: in range, aligned (the base is page-aligned), writable, and alive as long as
        // `self`; every access to the mapping is atomic.
        Some(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset as usize).cast()) })
    }

    /// The value of the aligned word at `offset`. `None` when out of range or misaligned.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> Option<u64> {
        if !offset.is_multiple_of(8) || !self.contains(offset, 8) {
            return None;
        }
        // SAFETY: in range, aligned and alive; only loaded from, so a read-only mapping will do.
        Some(unsafe { &*self.base.as_ptr().add(offset as usize).cast::<AtomicU64>() }.load(Ordering::Acquire))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it any more.
        unsafe { pages::unmap(self.base, self.length) };
    }
}
