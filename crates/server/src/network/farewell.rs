//! A client that is refused within TLS: it is told why after its handshake.
//!
//! It is not a client of the server: it asks nothing, and nothing is kept for it except its handshake. There are few
//! such clients at a time, and their time is bounded like that of other handshakes.

use crate::stream::Stream;
use forebay_env::Nanos;
use std::io::{ErrorKind, Read, Result, Write};

/// Most clients that are told at a time. Others are refused without a word.
pub const MOST: usize = 64;
/// Most bytes that are read from such a client and discarded.
const FORGOTTEN_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct Farewell {
    stream: Stream,
    /// What was not sent yet.
    reply: &'static [u8],
    has_ended: bool,
    read_bytes: usize,
    /// When its time is over.
    pub until: Nanos,
}

impl Farewell {
    /// Makes the farewell of the client at this stream, with this reply, until its time is over.
    #[must_use]
    pub const fn new(stream: Stream, reply: &'static [u8], until: Nanos) -> Self {
        Self { stream, reply, has_ended: false, read_bytes: 0, until }
    }

    /// Continues when the socket has data or takes data. Returns true when there is nothing left to do.
    pub fn go_on(&mut self) -> bool {
        match self.step() {
            Ok(is_done) => is_done,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    fn step(&mut self) -> Result<bool> {
        while self.stream.is_handshaking() {
            if self.forget()? {
                return Ok(true);
            }
        }
        while !self.reply.is_empty() || self.stream.is_pending() {
            let taken = self.stream.write(self.reply)?;
            self.reply = self.reply.get(taken..).unwrap_or_default();
        }
        if !self.has_ended {
            self.has_ended = true;
            self.stream.end();
        }
        // Closing a socket with unread data would take back what was sent.
        while !self.forget()? {}
        Ok(true)
    }

    /// Reads data and discards it. Returns true when there is no more, or too much.
    fn forget(&mut self) -> Result<bool> {
        let read = self.stream.read(&mut [0; 1024])?;
        self.read_bytes += read;
        Ok((read == 0 && !self.stream.is_handshaking()) || self.read_bytes > FORGOTTEN_BYTES)
    }
}
