//! Pages of the operating system: mapping, unmapping, and advice about them.

use crate::Error;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Mappings are aligned to this as what they map is, so that the system can use 2 MB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maps `length` bytes, positive and far below the address space, of `file` from `offset`, or of
/// zeros that only this process sees. Begins at a page; to be given to [`unmap`] once.
pub(crate) fn map(length: usize, file: Option<&OwnedFd>, offset: u64, writable: bool) -> Result<NonNull<u8>, Error> {
    let page = rustix::param::page_size();
    let mapped = length.next_multiple_of(page);
    let reserved = mapped + HUGE_PAGE_BYTES;
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a fresh reservation chosen by the kernel; nothing else lives there.
    let reservation = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            reserved,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .map_err(|e| Error::io("reserving address space", e))?;
    // Aligned as the file's offset is, or huge pages of the file cannot be mapped as such.
    let front = (offset as usize).wrapping_sub(reservation.addr()) % HUGE_PAGE_BYTES;
    // SAFETY: `front < HUGE_PAGE_BYTES`, so the result is within the reservation.
    let base = unsafe { reservation.byte_add(front) };
    // SAFETY: [base, base + mapped) lies within the reservation made above, which nothing uses.
    let mapping = unsafe {
        match file {
            Some(file) => {
                rustix::mm::mmap(base, mapped, protection, MapFlags::SHARED | MapFlags::FIXED, file.as_fd(), offset)
            }
            None => rustix::mm::mmap_anonymous(base, mapped, protection, MapFlags::PRIVATE | MapFlags::FIXED),
        }
    };
    // SAFETY: these are the parts of the reservation around the mapping.
    unsafe {
        if front > 0 {
            let _ = rustix::mm::munmap(reservation, front);
        }
        let _ = rustix::mm::munmap(base.byte_add(mapped), HUGE_PAGE_BYTES - front);
    }
    let base = match mapping {
        Ok(base) => base,
        Err(e) => {
            // SAFETY: what is left of the reservation.
            let _ = unsafe { rustix::mm::munmap(base, mapped) };
            return Err(Error::io("mapping memory", e));
        }
    };
    if mapped >= HUGE_PAGE_BYTES {
        // Advice only: without it everything works, with more TLB misses.
        // SAFETY: the range was just mapped.
        let _ = unsafe { rustix::mm::madvise(base, mapped, Advice::LinuxHugepage) };
    }
    NonNull::new(base.cast::<u8>()).ok_or_else(|| Error::io("mapping memory", "null"))
}

/// Unmaps what [`map`] mapped.
///
/// # Safety
/// `base` came from [`map`] with the same length, and nobody uses the memory any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, length: usize) {
    let mapped = length.next_multiple_of(rustix::param::page_size());
    // SAFETY: the caller's contract.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), mapped) };
}

/// Commits and maps all pages of a range; their contents stay as they are.
///
/// # Safety
/// The range is within one mapping and begins at a page.
pub(crate) unsafe fn populate(base: NonNull<u8>, length: usize, writable: bool) -> io::Result<()> {
    let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: the caller's contract.
    let populated = unsafe { libc::madvise(base.as_ptr().cast(), length, advice) };
    if populated == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for 2 MB pages in a range, now; its contents stay as they are. The advice in [`map`] needs the
/// kernel's consent by configuration; this does not.
///
/// # Safety
/// The range is within one mapping and begins at a page.
pub(crate) unsafe fn collapse(base: NonNull<u8>, length: usize) {
    // SAFETY: the caller's contract.
    let _ = unsafe { libc::madvise(base.as_ptr().cast(), length, libc::MADV_COLLAPSE) };
}
