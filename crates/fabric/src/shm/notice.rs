//! What a node tells its clients through memory: that it lives, how often it has revoked something, and how many frames it
//! has for each client. All links share one memory file, which clients only read (`docs/formats/shm-frame.md`).
//!
//! ```text
//! memory file of a node
//!  0  4  thread that serves the node's sockets; bits 0 to 29 become zero when it ends
//!  4  4  zero
//!  8  8  how often the node has taken something back
//!  4096 + 8 n
//!     8  frames that the node had for its n-th line, after the one that opened the link
//! ```
//!
//! After a copy, a client asks whether the copy was in time ([`Endpoint::confirm`](crate::Endpoint::confirm)). The socket
//! knows: it holds a frame for each revoked grant, and it ends with the link and with the node. But asking the socket takes
//! a system call, and threads contend there. This page says whether there is anything to ask for.
//!
//! **Why a load is enough when something is revoked.** The client copies, passes a sequentially consistent fence
//! ([`Notice::is_unchanged`]) and loads the count. The node sends the frame, counts, passes such a fence
//! ([`Page::taken_back`]), and only then does what depends on the revocation: it answers a new owner, or gives the memory to
//! others. One of the two fences comes first. If it is the client's, the node and those who hear from it afterwards read
//! what the copy wrote. If it is the node's, the client finds a count that it does not know, and asks the socket. By then
//! the frame is there or on its way. A count is known when all frames that were announced before it have been handled. So a
//! client that finds a known count finds the effect of those frames in its tables.
//!
//! **Why frames are announced.** A node waits for no client. It keeps frames for which the socket has no room, and sends
//! them when the client has read what is there. So a client that finds its socket empty has seen everything only if it has
//! read as many frames as its line says. Otherwise it waits for the rest, for which it has just made room.
//!
//! **Why a load is enough when the node dies.** A node that is killed counts nothing. Its thread has registered the first
//! word with the kernel ([`Page::live`], a robust futex), and the kernel changes the word when the thread ends, however it
//! ends. The kernel does so before it closes the process's sockets, and before anybody can learn of the death by waiting for
//! the process. So a client that still finds the thread in the word has copied before anybody could know that the node is
//! dead.
//!
//! Besides the node, only the kernel writes the page: its file is sealed before it is passed on, so nobody can map it for
//! writing, not even through another descriptor. A process that may trace the node's process can still write the page.

use crate::{Backing, Error, Region};
use forebay_env::sync::atomic::{AtomicU64, Ordering, fence};
use forebay_env::sync::lock;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// Links at one time.
pub(super) const LINES: u32 = 8192;
/// Where their lines begin.
const LINES_AT: u64 = 4096;
/// Length of the memory file.
const BYTES: usize = LINES_AT as usize + 8 * LINES as usize;
const THREAD: u64 = 0;
const COUNT: u64 = 8;
/// Length of the other mapping here: a page.
const LIST_BYTES: usize = 4096;
/// Bits of the first word that hold the number of the thread while it lives (`FUTEX_TID_MASK`).
const THREAD_BITS: u32 = 0x3fff_ffff;

/// The node's side.
#[derive(Debug, Clone)]
pub(super) struct Page {
    region: Region,
    /// Lines that belong to no link.
    free: Arc<Mutex<Vec<u32>>>,
}

/// A link's line of the page: how many frames the node has for its client.
#[derive(Debug)]
pub(super) struct Line {
    page: Page,
    pub(super) number: u32,
}

impl Line {
    /// Counts a frame that is or will be sent, which the client then waits for. Call this before the client can learn by
    /// other ways of what it will look for in the frame.
    pub(super) fn announce(&self) {
        let counted = self.page.region.fetch_add(line_at(self.number), 1);
        debug_assert!(counted.is_ok(), "the line is within the page");
        // Pairs with the fence in `Notice::announced`.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        lock(&self.page.free).push(self.number);
    }
}

const fn line_at(number: u32) -> u64 {
    LINES_AT + 8 * number as u64
}

impl Page {
    /// The page of a node that has revoked nothing, and whose thread does not run yet.
    ///
    /// # Errors
    /// [`Error::Io`], also from kernels that do not know the seal (before 5.1).
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self::over(Region::allocate_for_readers(BYTES)?))
    }

    fn over(region: Region) -> Self {
        Self { region, free: Arc::new(Mutex::new((0..LINES).rev().collect())) }
    }

    /// An empty line for a new link; `None` when there are too many links.
    pub(super) fn line(&self) -> Option<Line> {
        let number = lock(&self.free).pop()?;
        let line = Line { page: self.clone(), number };
        self.region.store(line_at(number), 0).ok().map(|()| line)
    }

    /// The memory, to be passed to clients.
    ///
    /// # Errors
    /// None: a file always exists.
    pub(super) fn file(&self) -> Result<BorrowedFd<'_>, Error> {
        self.region.file().ok_or_else(|| Error::io("passing a memory file", "there is none"))
    }

    /// Counts a revocation. The clients concerned already find its frame at their sockets; whatever depends on the
    /// revocation comes after this.
    pub(super) fn taken_back(&self) {
        // Releases: pairs with the acquire in `Notice::now`.
        let counted = self.region.fetch_add(COUNT, 1);
        debug_assert!(counted.is_ok(), "the page is this process's own");
        // Pairs with the fence in `Notice::is_unchanged`.
        fence(Ordering::SeqCst);
    }

    /// Shows that the node lives, as long as this thread lives and the value is not dropped.
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel does not watch threads. Clients then ask their sockets each time.
    pub(super) fn live(&self) -> Result<Living, Error> {
        Living::begin(self.region.clone())
    }
}

/// Registers a thread with the kernel, which marks the node dead when the thread ends.
#[derive(Debug)]
pub(super) struct Living {
    page: Region,
    /// What the kernel reads when the thread ends. It is not in the page, because it holds addresses. It is shared memory,
    /// because the kernel may take private memory from a process that it kills before it reads this.
    _list: Region,
    /// The list of the C library, which this one replaces: this thread holds none of that library's locks when it is killed.
    former: (usize, usize),
    /// Drop it on the thread that made it.
    thread: PhantomData<*const ()>,
}

const _: () = assert!(size_of::<usize>() == 8, "the list consists of words of 8 bytes");

impl Living {
    /// Layout of the list that the kernel walks (`robust_list_head`): one entry, which leads back to the head.
    const NEXT: u64 = 0;
    const OFFSET: u64 = 8;
    const PENDING: u64 = 16;
    const ENTRY: u64 = 24;
    /// Length of the head, by which the kernel knows its layout.
    const HEAD_BYTES: usize = 24;

    fn begin(page: Region) -> Result<Self, Error> {
        let list = Region::allocate(LIST_BYTES, Backing::Shareable)?;
        let head = list.as_ptr().addr().get();
        let entry = head + Self::ENTRY as usize;
        let word = page.as_ptr().addr().get() + THREAD as usize;
        list.store(Self::NEXT, entry as u64)?;
        list.store(Self::OFFSET, word.wrapping_sub(entry) as u64)?;
        list.store(Self::PENDING, 0)?;
        list.store(Self::ENTRY, head as u64)?;
        let refused = |e| Error::io("having the kernel watch a node's thread", e);
        let former = robust_list().map_err(refused)?;
        set_robust_list(head, Self::HEAD_BYTES).map_err(refused)?;
        let living = Self { page, _list: list, former, thread: PhantomData };
        living.set(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())?;
        Ok(living)
    }

    fn set(&self, thread: u32) -> Result<(), Error> {
        let [a, b, c, d] = thread.to_ne_bytes();
        self.page.store(THREAD, u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]))
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let done = self.set(0);
        debug_assert!(done.is_ok(), "the page is this process's own");
        // Before the list's memory is freed. The kernel refuses no list that it returned itself.
        let done = set_robust_list(self.former.0, self.former.1);
        debug_assert!(done.is_ok(), "{done:?}");
    }
}

/// Address of the calling thread's list, which the kernel walks when the thread ends, and the length of its head.
fn robust_list() -> io::Result<(usize, usize)> {
    let (mut head, mut bytes) = (0usize, 0usize);
    // SAFETY: the kernel writes two words to two words of ours.
    let done = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes) };
    if done == 0 { Ok((head, bytes)) } else { Err(io::Error::last_os_error()) }
}

/// Registers the address of the list. The kernel checks whatever it reads and writes there.
fn set_robust_list(head: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the kernel only keeps the address. When the thread ends, it changes a word of the list that holds this
    // thread's number, and no other. The list's memory is mapped until another list is set.
    let done = unsafe { libc::syscall(libc::SYS_set_robust_list, head, bytes) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The client's side.
#[derive(Debug)]
pub(super) struct Notice {
    page: Region,
    /// The number of this link's line.
    line: u32,
    /// A count of the node. All frames that were announced before the node reached it have been handled and have had their
    /// effect.
    known: AtomicU64,
}

impl Notice {
    /// Makes the client's side of a mapped page.
    fn new(page: Region, line: u32) -> Self {
        Self { page, line, known: AtomicU64::new(0) }
    }

    /// Maps what the node passed.
    ///
    /// # Errors
    /// [`Error::Protocol`] when it is something else, [`Error::Io`].
    pub(super) fn of_file(file: OwnedFd, line: u32) -> Result<Self, Error> {
        if line >= LINES {
            return Err(Error::Protocol(format!("line {line} is not on a node's page")));
        }
        Ok(Self::new(Region::from_received(file, 0, BYTES, false)?, line))
    }

    /// How many frames the node has had for this link so far: at least every frame that is implied by what this thread has
    /// read.
    pub(super) fn announced(&self) -> u64 {
        // Pairs with the fence in `Line::announce`.
        fence(Ordering::SeqCst);
        self.page.load(line_at(self.line)).unwrap_or_default()
    }

    /// Whether what this thread has written so far was in place before the node died, and before it revoked anything whose
    /// frames have not had their effect yet.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        // Pairs with the fence in `Page::taken_back`.
        fence(Ordering::SeqCst);
        // Acquires: pairs with the release in `taken_in`.
        self.now() == Some(self.known.load(Ordering::Acquire)) && self.lives()
    }

    #[inline]
    fn lives(&self) -> bool {
        self.page.load(THREAD).is_ok_and(|word| {
            let [a, b, c, d, ..] = word.to_ne_bytes();
            u32::from_ne_bytes([a, b, c, d]) & THREAD_BITS != 0
        })
    }

    /// How often the node has revoked something so far.
    #[inline]
    pub(super) fn now(&self) -> Option<u64> {
        self.page.load(COUNT).ok()
    }

    /// Notes that all frames that were announced before the count was `count` have been handled.
    pub(super) fn taken_in(&self, count: Option<u64>) {
        // Releases the effect of the frames.
        self.known.fetch_max(count.unwrap_or(0), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GrantTable, Rights};
    use forebay_env::sync::{Mutex, lock};
    use std::sync::Barrier;

    /// A node revokes memory and then reads it, a client writes there and asks for confirmation, and another thread of the
    /// client handles the node's frames. The node sees every confirmed write.
    #[test]
    fn what_threads_have_confirmed_the_node_sees() {
        let rounds = if cfg!(miri) { 40 } else { 2000 };
        for round in 0..rounds {
            // The client looks its key up again, or holds its table until it knows.
            let holds_table = round % 2 == 0;
            let start = Barrier::new(2);
            let page = Region::allocate(BYTES, Backing::Private).unwrap();
            page.store(THREAD, 1).unwrap();
            let memory = Region::allocate(64, Backing::Private).unwrap();
            let (node, notice) = (Page::over(page.clone()), Notice::new(page, 0));
            let table = GrantTable::new();
            let key = table.grant(&memory, 0, 64, Rights::ALL).unwrap();
            // The socket, with a frame in it or none.
            let socket = Mutex::new(false);
            let take_in = || {
                let mut frame = lock(&socket);
                let count = notice.now();
                if std::mem::take(&mut *frame) {
                    table.revoke(key);
                }
                notice.taken_in(count);
            };
            let (seen, is_confirmed) = std::thread::scope(|scope| {
                let node = scope.spawn(|| {
                    start.wait();
                    *lock(&socket) = true;
                    node.taken_back();
                    memory.load(0).unwrap()
                });
                let client = scope.spawn(|| {
                    start.wait();
                    let is_confirmed = {
                        let held = table.hold();
                        let Ok((region, at)) = held.check(key.at(0), 8, Rights::WRITE) else { return false };
                        region.write(at, &7u64.to_le_bytes()).unwrap();
                        holds_table && notice.is_unchanged()
                    };
                    let is_confirmed =
                        is_confirmed || !holds_table && notice.is_unchanged() && table.hold().knows(&key);
                    is_confirmed || {
                        take_in();
                        table.hold().knows(&key)
                    }
                });
                scope.spawn(take_in);
                (node.join().unwrap(), client.join().unwrap())
            });
            assert!(!is_confirmed || seen == 7, "confirmed, and not there");
        }
    }
}
