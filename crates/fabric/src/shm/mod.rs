//! The shared-memory back end: node and clients are processes of one machine.
//!
//! A node listens on a Unix socket. A grant passes the memory file of a region to the other side,
//! which maps the granted pages and reads and writes them itself: an operation is a copy by the
//! thread that posted it, and the other side's processor does nothing.
//!
//! ```text
//!   client                                                 node
//!   ┌──────────────────────────┐                           ┌────────────────────────────┐
//!   │ link's thread ◄─ control socket: grants, revocations ─► socket thread ─► events   │
//!   │ endpoint      ◄─ its socket: messages, immediates ────►      │                    │
//!   │    └─► mapped region  ═════ one memory file ═════════  region │                    │
//!   │        region         ═════ one memory file ═════════  mapped region ◄─ peer      │
//!   │ confirm ◄─ read-only  ═════ one page of the node ════  it lives, has taken back   │
//!   └──────────────────────────┘                           └────────────────────────────┘
//! ```
//!
//! **What is enforced and what is not.** The process that carries out an operation checks its key, bounds, rights and
//! alignment, as the target would. Memory granted for reading only is passed as a file opened for reading only, which
//! processes of other users cannot open again for writing (`docs/decisions/0059`). Still, the system protects only whole
//! memory files. A client that ignores this code can map all of a file although only a part was granted, and a process of
//! the node's own user can open the file for writing, or do more. Peers that distrust one another get regions of their
//! own, or another back end.
//!
//! **Memory that a node grants is committed** at the grant, in 2 MB pages, because random reads in small pages wait for
//! the TLB.
//!
//! **Who connects** is known: the system says whose process it is, and [`listen_for`] says who is admitted.
//!
//! **Revocation** is cooperative: the other side is asked, stops every use of the mapping, unmaps it and says so
//! ([`Revocation::is_complete`](crate::Revocation::is_complete)). If its process ends, or it ends the link, that counts
//! like an answer. If the node ends the link, it does not: the process may be suspended in the middle of a copy. The node
//! also notes in shared memory that it has asked, so [`Endpoint::confirm`](crate::Endpoint::confirm) takes two loads
//! (`notice`).
//!
//! **A dead node's memory would still answer**, so the end of the sockets signals the death: it fails every endpoint of
//! the link with [`Error::PeerLost`]. The link's thread sees that end as soon as it runs; until then operations still
//! succeed, on memory that no later life of the node has.

mod capabilities;
mod channel;
#[cfg(feature = "decoders")]
pub(crate) mod decoders;
mod events;
mod frame;
mod handle;
mod link;
mod notice;
mod offered;
mod outlet;
mod peer;
mod server;
#[cfg(all(test, not(miri)))]
mod tests;
mod transport;

use crate::admission::{AdmissionCounts, Tally, Users};
use crate::transport::{Event, Link, Listener};
use crate::{Backing, Capabilities, Error, NodeIdentity, Region};
use capabilities::CAPABILITIES;
use channel::{Door, display};
use events::Events;
use forebay_env::Random;
use forebay_env::thread::JoinHandle;
use server::{MAX_CONNECTIONS_OF_ONE, Server};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts a node that listens on a socket at `path`, which only processes of the same user may
/// open. The socket of a dead node is replaced.
///
/// # Errors
/// [`Error::Invalid`] when a node is alive there, the path cannot be used, or somebody keeps its folder locked;
/// [`Error::Io`].
pub fn listen(path: &Path, node: u32) -> Result<ShmListener, Error> {
    listen_for(path, node, Users::default())
}

/// As [`listen`], but only for processes of these users and groups; the node's own user is not
/// exempt.
///
/// # Errors
/// As [`listen`].
pub fn listen_for(path: &Path, node: u32, users: Users) -> Result<ShmListener, Error> {
    listen_with(path, node, users, MAX_CONNECTIONS_OF_ONE)
}

/// As [`listen_for`], with at most `most_of_one` connections of one user.
fn listen_with(path: &Path, node: u32, users: Users, most_of_one: usize) -> Result<ShmListener, Error> {
    let incarnation = Random::secret().map_err(|e| Error::io("drawing an incarnation", e))? as u64;
    let identity = NodeIdentity { node, incarnation };
    let door = Door::open(path, !users.is_empty())?;
    let tally = Arc::new(Tally::default());
    let address = display(door.path());
    let events = Arc::new(Events::new()?);
    let stopping = Arc::new(AtomicBool::new(false));
    let who = (door, users, Arc::clone(&tally));
    let server = Server::new(who, identity, Arc::clone(&events), Arc::clone(&stopping), most_of_one)?;
    let thread = forebay_env::thread::spawn("forebay-shm-node", move || server.run())
        .map_err(|e| Error::io("starting a node's thread", e))?;
    Ok(ShmListener { identity, address, events, tally, stopping, thread: Some(thread) })
}

/// Opens a link to the node that listens at `path`.
///
/// # Errors
/// [`Error::PeerLost`] when no node is there or it does not answer, [`Error::Invalid`] when the
/// path cannot be used, [`Error::Io`].
pub fn connect(path: &Path) -> Result<Arc<dyn Link>, Error> {
    handle::open(path)
}

/// The node's side. Dropping it ends all links and removes the socket.
#[derive(Debug)]
pub struct ShmListener {
    identity: NodeIdentity,
    address: String,
    events: Arc<Events>,
    tally: Arc<Tally>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.events.wake_reader();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
        self.events.clear();
    }
}

impl Listener for ShmListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn identity(&self) -> NodeIdentity {
        self.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn admission_counts(&self) -> AdmissionCounts {
        self.tally.counts()
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Shareable)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        match self.events.next(limit) {
            None if self.thread.as_ref().is_none_or(JoinHandle::is_finished) => {
                Err(Error::io("serving sockets", "the node's thread has ended"))
            }
            event => Ok(event),
        }
    }
}
