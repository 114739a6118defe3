//! How threads tell each other about connections.
//!
//! Each thread that serves connections has a mailbox. A thread that has something for one of these connections leaves a
//! message and wakes the thread.

use crate::protocol::reply::Protocol;
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use mio::Waker;
use mio::net::TcpStream;
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory cost of a letter beside its bytes.
const LETTER_BYTES: usize = 128;

/// Why a client is sent bytes that it did not ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It has subscribed to this channel.
    Channel(Bytes),
    /// It has subscribed to this pattern.
    Pattern(Bytes),
    /// It has subscribed to this channel of a shard.
    Shard(Bytes),
    /// Cached keys have changed. The message has this version of the protocol.
    Invalidated(Protocol),
    /// It watches all commands.
    Monitors,
}

/// Bytes that a client is sent without having asked. They count for the client as long as the letter exists.
#[derive(Debug)]
pub struct Letter {
    bytes: Bytes,
    reason: Reason,
    waiting: Arc<AtomicUsize>,
}

impl Letter {
    /// Makes a letter to a client, and adds it to the client's `waiting` bytes; `None` when these would be more than
    /// `most`.
    #[must_use]
    pub fn new(bytes: Bytes, reason: Reason, waiting: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let size = bytes.len() + LETTER_BYTES;
        let letter = Self { bytes, reason, waiting: Arc::clone(waiting) };
        (waiting.fetch_add(size, Ordering::Relaxed) + size <= most).then_some(letter)
    }

    /// Returns why the client is sent this.
    #[must_use]
    pub const fn reason(&self) -> &Reason {
        &self.reason
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

/// A message to a thread.
#[derive(Debug)]
pub enum Message {
    /// Serve this connection, within TLS if the second part says how.
    Serve(TcpStream, Option<Arc<ServerConfig>>),
    /// Send this to a client that has subscribed to it or waits for it.
    Send {
        /// The client's number.
        client: u64,
        /// The bytes for the client.
        letter: Letter,
    },
    /// Let a waiting client continue.
    Unblock {
        /// The client's number.
        client: u64,
        /// The reply to its command.
        bytes: Vec<u8>,
    },
    /// Let a held command of this client continue.
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
    /// Makes an empty mailbox of the thread that `waker` wakes.
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

    /// Takes the letters to a client.
    pub fn take_letters(&self, to: u64) -> Vec<Letter> {
        let is_wanted = |message: &mut Message| matches!(message, Message::Send { client, .. } if *client == to);
        let letter = |message| match message {
            Message::Send { letter, .. } => Some(letter),
            _ => None,
        };
        lock(&self.messages).extract_if(.., is_wanted).filter_map(letter).collect()
    }

    /// Takes all messages.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *lock(&self.messages))
    }
}
