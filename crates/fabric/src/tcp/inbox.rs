//! How many messages of a connection wait at the node, and which connections continue when messages are taken.
//!
//! A connection has room for few. When the room is used up, nothing more is received from the connection, so what
//! its client sends stays in the socket. When half of the room is free again, the I/O thread is told, and looks at
//! the connection.

use super::wakers::Waker;
use crate::transport::{Place, Room};
use forebay_env::sync::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Room for a connection's messages, bytes. One message always finds room.
const ROOM_BYTES: usize = 64 << 10;
/// What a message takes up besides its bytes; so at most 16 messages wait.
const MESSAGE_BYTES: usize = 4 << 10;

/// Connections that may continue, for the I/O thread.
#[derive(Debug)]
pub(super) struct Resumed {
    connections: Mutex<Vec<u64>>,
    server: Arc<Waker>,
}

impl Resumed {
    pub(super) fn new(server: Arc<Waker>) -> Self {
        Self { connections: Mutex::default(), server }
    }

    /// The connections that may continue since the last call.
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.connections))
    }
}

/// The room of one connection.
#[derive(Debug)]
pub(super) struct Inbox {
    connection: u64,
    /// Bytes in use.
    taken: AtomicUsize,
    /// Whether the connection waits for room.
    waits: AtomicBool,
    resumed: Arc<Resumed>,
}

impl Inbox {
    pub(super) const fn new(connection: u64, resumed: Arc<Resumed>) -> Self {
        Self { connection, taken: AtomicUsize::new(0), waits: AtomicBool::new(false), resumed }
    }

    /// Whether a message may be accepted. If not, the connection is resumed once it may. Only the I/O thread calls
    /// this.
    pub(super) fn has_room(&self) -> bool {
        if self.taken.load(Ordering::SeqCst) < ROOM_BYTES {
            return true;
        }
        // All SeqCst: at least one of this and `give_back` sees the other's change.
        self.waits.store(true, Ordering::SeqCst);
        self.taken.load(Ordering::SeqCst) <= ROOM_BYTES / 2 && self.waits.swap(false, Ordering::SeqCst)
    }

    /// Takes room for a message.
    pub(super) fn take(self: &Arc<Self>, message_bytes: usize) -> Place {
        let bytes = MESSAGE_BYTES + message_bytes;
        self.taken.fetch_add(bytes, Ordering::SeqCst);
        Place::new(Arc::clone(self) as Arc<dyn Room>, bytes)
    }
}

impl Room for Inbox {
    fn give_back(&self, bytes: usize) {
        let left = self.taken.fetch_sub(bytes, Ordering::SeqCst).saturating_sub(bytes);
        if left <= ROOM_BYTES / 2 && self.waits.swap(false, Ordering::SeqCst) {
            lock(&self.resumed.connections).push(self.connection);
            self.resumed.server.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no event counters")]
    fn a_connection_goes_on_when_half_of_its_room_is_free() {
        let resumed = Arc::new(Resumed::new(Arc::new(Waker::new().unwrap())));
        let inbox = Arc::new(Inbox::new(7, Arc::clone(&resumed)));
        let mut places = Vec::new();
        while inbox.has_room() {
            places.push(inbox.take(100));
        }
        assert_eq!(places.len(), 16);
        while places.len() > 8 {
            assert!(resumed.take().is_empty(), "{} are left", places.len());
            places.pop();
        }
        // The eight that remain take more than half.
        assert!(resumed.take().is_empty());
        places.pop();
        assert_eq!(resumed.take(), [7]);
        places.clear();
        assert!(resumed.take().is_empty(), "it is told once");
        // One message always finds room, but of long ones only one.
        assert!(inbox.has_room());
        let long = inbox.take(ROOM_BYTES);
        assert!(!inbox.has_room());
        drop(long);
        assert_eq!(resumed.take(), [7]);
        assert!(inbox.has_room());
    }
}
