//! How threads tell each other about connections.
//!
//! Each thread that serves connections has a mailbox. Whoever has something for one of its connections leaves a message and
//! wakes the thread.

use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use mio::Waker;
use mio::net::TcpStream;
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a letter costs beside its bytes.
const LETTER_BYTES: usize = 64;

/// What a client is sent without having asked. It counts for the client as long as it is there.
#[derive(Debug)]
pub struct Letter {
    bytes: Bytes,
    waiting: Arc<AtomicUsize>,
}

impl Letter {
    /// A letter to a client for whom so many bytes wait; `None` when there would be more than `most`.
    #[must_use]
    pub fn new(bytes: Bytes, waiting: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let size = bytes.len() + LETTER_BYTES;
        let letter = Self { bytes, waiting: Arc::clone(waiting) };
        (waiting.fetch_add(size, Ordering::Relaxed) + size <= most).then_some(letter)
    }

    /// Replies.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes.len() + LETTER_BYTES, Ordering::Relaxed);
    }
}

/// What a thread is told.
#[derive(Debug)]
pub enum Message {
    /// Serve this connection, within TLS if this says how.
    Serve(TcpStream, Option<Arc<ServerConfig>>),
    /// Send this to a client that has subscribed to it, or waits for it.
    Send {
        /// The client's number.
        client: u64,
        /// What it is sent.
        letter: Letter,
    },
    /// A client that waits goes on.
    Unblock {
        /// The client's number.
        client: u64,
        /// The reply to its command.
        bytes: Vec<u8>,
    },
    /// A command of this client that was held goes on.
    Release(u64),
    /// End the connection of this client.
    Kill(u64),
    /// End all connections, and the thread.
    Stop,
}

/// The messages for one thread.
#[derive(Debug)]
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Mailbox {
    /// An empty mailbox of the thread that this wakes.
    #[must_use]
    pub const fn new(waker: Waker) -> Self {
        Self { messages: Mutex::new(Vec::new()), waker }
    }

    /// Leaves a message and wakes the thread.
    pub fn send(&self, message: Message) {
        let mut messages = lock(&self.messages);
        messages.push(message);
        if messages.len() == 1
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "waking a thread of the server");
        }
    }

    /// Takes all messages.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *lock(&self.messages))
    }
}
