//! Replaces `pages` under Miri with zeroed memory from the allocator. Miri supports neither
//! reservations of address space nor memory files nor advice. All code above runs unchanged.

use crate::Error;
use rustix::fd::OwnedFd;
use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;

/// As in `pages`; nothing is aligned to it here.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

fn layout(length: usize) -> Option<Layout> {
    Layout::from_size_align(length, rustix::param::page_size()).ok()
}

/// `length` bytes of zeros, `length` being positive. There are no files.
pub(crate) fn map(length: usize, file: Option<&OwnedFd>, _offset: u64, _writable: bool) -> Result<NonNull<u8>, Error> {
    if file.is_some() {
        return Err(Error::Unsupported("memory files under Miri"));
    }
    let layout = layout(length).ok_or(Error::Unsupported("mapping of that size"))?;
    // SAFETY: the size is not zero.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(base).ok_or_else(|| Error::io("mapping memory", "null"))
}

/// Frees what [`map`] allocated.
///
/// # Safety
/// `base` came from [`map`] with the same length, and nobody uses the memory any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, length: usize) {
    if let Some(layout) = layout(length) {
        // SAFETY: the caller's contract; the layout is the same as in `map`.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
    }
}

/// Refuses, as an old kernel does.
///
/// # Safety
/// None is needed here.
pub(crate) unsafe fn populate(_base: NonNull<u8>, _length: usize, _writable: bool) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Does nothing.
///
/// # Safety
/// None is needed here.
pub(crate) unsafe fn collapse(_base: NonNull<u8>, _length: usize) {}
