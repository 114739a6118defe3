//! Pages of the operating system: mapping, unmapping, and advice about them.

use crate::Error;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// Size of a huge page. A mapping is aligned to this in the same way as what it maps, so that the system can use 2 MB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maps `length` bytes, positive and far below the address space, of `file` from `offset`, or of
/// zeros that only this process sees. Begins at a page; the caller gives it to [`unmap`] once.
pub(crate) fn map(length: usize, file: Option<&OwnedFd>, offset: u64, writable: bool) -> Result<NonNull<u8>, Error> {
    let mapped = length.next_multiple_of(rustix::param::page_size());
    let base = loop {
        let at = find_space(mapped, offset)?;
        if let Some(base) = map_at(at, mapped, file, offset, writable)? {
            break base;
        }
        // Another thread has taken the space meanwhile.
    };
    if mapped >= HUGE_PAGE_BYTES {
        // Advice only: without it everything works, with more TLB misses.
        // SAFETY: the range was just mapped.
        let _ = unsafe { rustix::mm::madvise(base, mapped, Advice::LinuxHugepage) };
    }
    NonNull::new(base.cast::<u8>()).ok_or_else(|| Error::io("mapping memory", "null"))
}

/// Finds `mapped` free bytes of address space, aligned as `offset` is: otherwise huge pages of a file cannot be mapped as
/// such. Nothing keeps the space free.
fn find_space(mapped: usize, offset: u64) -> Result<*mut c_void, Error> {
    let reserved = mapped + HUGE_PAGE_BYTES;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh reservation chosen by the kernel; nothing else lives there.
    let reservation = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), flags) }
        .map_err(|e| Error::io("reserving address space", e))?;
    // SAFETY: all of the reservation, which nothing uses.
    unsafe { rustix::mm::munmap(reservation, reserved) }.map_err(|e| Error::io("reserving address space", e))?;
    let front = (offset as usize).wrapping_sub(reservation.addr()) % HUGE_PAGE_BYTES;
    Ok(reservation.wrapping_byte_add(front))
}

/// Maps at `at`; `None` when something else is mapped there. It never replaces another mapping, not even for a moment: a
/// replacement that fails can leave a hole, and cleaning that up may unmap what another thread has mapped into the hole.
fn map_at(
    at: *mut c_void,
    mapped: usize,
    file: Option<&OwnedFd>,
    offset: u64,
    writable: bool,
) -> Result<Option<*mut c_void>, Error> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let place = MapFlags::FIXED_NOREPLACE;
    // SAFETY: the flag keeps what is mapped already, so this touches no memory that anybody uses.
    let mapping = unsafe {
        match file {
            Some(file) => rustix::mm::mmap(at, mapped, protection, MapFlags::SHARED | place, file.as_fd(), offset),
            None => rustix::mm::mmap_anonymous(at, mapped, protection, MapFlags::PRIVATE | place),
        }
    };
    match mapping {
        Ok(base) if base == at => Ok(Some(base)),
        Ok(elsewhere) => {
            // A kernel that does not know the flag (before 4.17) treated the address as a hint.
            // SAFETY: the range was just mapped.
            let _ = unsafe { rustix::mm::munmap(elsewhere, mapped) };
            Ok(None)
        }
        Err(Errno::EXIST) => Ok(None),
        Err(e) => Err(Error::io("mapping memory", e)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 64 << 10;

    #[test]
    fn nothing_is_mapped_over_what_is_there() {
        let there = map(LENGTH, None, 0, true).unwrap();
        // SAFETY: the byte was just mapped, and only this thread knows of it.
        unsafe { there.write(7) };
        // Nor across its end.
        for at in [0, LENGTH - rustix::param::page_size()] {
            let at = there.as_ptr().cast::<c_void>().wrapping_byte_add(at);
            assert_eq!(map_at(at, LENGTH, None, 0, true), Ok(None));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { there.read() }, 7);
        // SAFETY: it was mapped with this length.
        unsafe { unmap(there, LENGTH) };
    }
}
