//! Replies, written in the version of the protocol that the client asked for.
//!
//! A short request may ask for much, for example for one value very often. So the replies to a run of commands are
//! bounded here. Writes beyond the bound are lost and take no memory. The executor of the run checks whether that
//! happened ([`Reply::is_full`]).

use crate::text::number;

/// Most bytes of the replies to a run of commands.
pub const MAX_BYTES: usize = 512 << 20;
/// Memory that is kept for later replies, in bytes.
const KEPT_BYTES: usize = 1 << 10;

/// A sign, an integer of 64 bits and the end of a line.
const HEADER_BYTES: usize = 23;

/// The version of the protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2: simple strings, errors, integers, bulk strings, arrays.
    #[default]
    Two,
    /// RESP3: also maps, sets, doubles, booleans, verbatim strings, pushes, one null.
    Three,
}

/// Replies of one connection, one after another.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    protocol: Protocol,
    /// How long `bytes` may become.
    most: usize,
    is_full: bool,
}

impl Reply {
    /// Begins with no replies.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self { bytes: Vec::new(), protocol, most: usize::MAX, is_full: false }
    }

    /// Begins a run of commands, whose replies have at most this many bytes.
    pub fn begin(&mut self, most: usize) {
        self.most = self.bytes.len().saturating_add(most);
        self.is_full = false;
    }

    /// Bytes that may still be written.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_full { 0 } else { self.most.saturating_sub(self.bytes.len()) }
    }

    /// Whether a write was lost.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the version of the next writes.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version of the next writes.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what was written. Later writes have no bound until a run begins.
    pub fn take(&mut self) -> Vec<u8> {
        (self.most, self.is_full) = (usize::MAX, false);
        std::mem::take(&mut self.bytes)
    }

    /// Forgets everything, and keeps a little memory. Later writes have no bound until a run begins.
    pub fn forget(&mut self) {
        self.forget_first(self.bytes.len());
    }

    /// The same for the first bytes: the rest stays, and takes at most twice its length.
    pub fn forget_first(&mut self, count: usize) {
        (self.most, self.is_full) = (usize::MAX, false);
        self.bytes.drain(..count.min(self.bytes.len()));
        self.bytes.shrink_to(KEPT_BYTES.max(2 * self.bytes.len()));
    }

    /// Number of bytes that were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was written after the first `length` bytes, and that anything was lost.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.is_full = false;
    }

    /// Whether there is room for this many bytes. After the first write without room, all later writes are lost.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.is_full |= bytes > self.room();
        !self.is_full
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Adds bytes that are already replies, and have a bound of their own. They are not copied if nothing was written
    /// before.
    pub fn adopt(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.raw(&bytes);
        }
    }

    /// Adds bytes that are already replies, with a bound of their own.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_three(&self) -> bool {
        self.protocol == Protocol::Three
    }

    fn header(&mut self, sign: u8, number: i64) {
        if self.has_room(HEADER_BYTES) {
            self.bytes.push(sign);
            number::push_integer(&mut self.bytes, number);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.add(b"+OK\r\n");
    }

    /// A short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.add(b"+");
        self.add(text.as_bytes());
        self.add(b"\r\n");
    }

    /// An error: a code in capitals and a text. Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.add(b"-");
        if self.has_room(text.len()) {
            self.bytes.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        }
        self.add(b"\r\n");
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A count.
    pub fn count(&mut self, count: impl TryInto<i64>) {
        self.integer(count.try_into().unwrap_or(i64::MAX));
    }

    /// Bytes of any kind.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.header(b'$', bytes.len() as i64);
        self.add(bytes);
        self.add(b"\r\n");
    }

    /// Bytes, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An integer as bytes.
    pub fn bulk_integer(&mut self, number: i64) {
        let mut digits = Vec::with_capacity(20);
        number::push_integer(&mut digits, number);
        self.bulk(digits);
    }

    /// Text that is shown to people.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_as(*b"txt", text.as_bytes());
    }

    /// The same in another format than plain text.
    pub fn verbatim_as(&mut self, format: [u8; 3], text: &[u8]) {
        if self.is_three() {
            self.header(b'=', text.len() as i64 + 4);
            self.add(&format);
            self.add(b":");
            self.add(text);
            self.add(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// An integer of any length, as this text.
    pub fn big_number(&mut self, digits: &[u8]) {
        if self.is_three() {
            self.add(b"(");
            self.add(digits);
            self.add(b"\r\n");
        } else {
            self.bulk(digits);
        }
    }

    /// No value.
    pub fn null(&mut self) {
        self.add(if self.is_three() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No array.
    pub fn null_array(&mut self) {
        self.add(if self.is_three() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// A number with a fraction.
    pub fn double(&mut self, number: f64) {
        self.double_as(&number::double_text(number));
    }

    /// A number with a fraction, as this text.
    pub fn double_as(&mut self, text: &str) {
        if self.is_three() {
            self.add(b",");
            self.add(text.as_bytes());
            self.add(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// True or false.
    pub fn boolean(&mut self, value: bool) {
        if self.is_three() {
            self.add(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.integer(i64::from(value));
        }
    }

    /// The head of an array of this many replies.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length as i64);
    }

    /// Puts the head of an array of this many replies in front of what was written from `start` on, for callers that
    /// count replies while they write.
    pub fn array_from(&mut self, start: usize, length: usize) {
        self.head_from(start, |reply| reply.array(length));
    }

    /// The same with the head of a set.
    pub fn set_from(&mut self, start: usize, length: usize) {
        self.head_from(start, |reply| reply.set(length));
    }

    fn head_from(&mut self, start: usize, write: impl FnOnce(&mut Self)) {
        let end = self.bytes.len();
        write(self);
        let head = self.bytes.len() - end;
        if let Some(replies) = self.bytes.get_mut(start.min(end)..) {
            replies.rotate_right(head);
        }
    }

    /// Lines of text, as an array.
    pub fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        lines.iter().for_each(|line| self.simple(line));
    }

    /// The head of a map of this many pairs.
    pub fn map(&mut self, pairs: usize) {
        if self.is_three() {
            self.header(b'%', pairs as i64);
        } else {
            self.header(b'*', pairs as i64 * 2);
        }
    }

    /// The head of a set of this many replies.
    pub fn set(&mut self, length: usize) {
        self.header(if self.is_three() { b'~' } else { b'*' }, length as i64);
    }

    /// The head of a message that was not asked for.
    pub fn push(&mut self, length: usize) {
        self.header(if self.is_three() { b'>' } else { b'*' }, length as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_in_both_versions() {
        let written = |protocol| {
            let mut reply = Reply::new(protocol);
            reply.ok();
            reply.error("ERR two\r\nlines");
            reply.integer(-7);
            reply.bulk("a\r\nb");
            reply.verbatim("t");
            reply.null();
            reply.null_array();
            reply.double(0.5);
            reply.boolean(true);
            reply.array(1);
            reply.map(2);
            reply.set(3);
            reply.push(4);
            String::from_utf8(reply.take()).unwrap()
        };
        assert_eq!(
            written(Protocol::Two),
            "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n$1\r\nt\r\n$-1\r\n*-1\r\n$3\r\n0.5\r\n:1\r\n*1\r\n*4\r\n*3\r\n*4\r\n"
        );
        assert_eq!(
            written(Protocol::Three),
            "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n=5\r\ntxt:t\r\n_\r\n_\r\n,0.5\r\n#t\r\n*1\r\n%2\r\n~3\r\n>4\r\n"
        );
    }

    #[test]
    fn the_head_of_an_array_may_come_last() {
        let mut reply = Reply::new(Protocol::Two);
        reply.ok();
        let start = reply.len();
        reply.array_from(start, 0);
        let start = reply.len();
        reply.bulk("a");
        reply.integer(7);
        reply.array_from(start, 2);
        assert_eq!(reply.take(), b"+OK\r\n*0\r\n*2\r\n$1\r\na\r\n:7\r\n");
        // Without room for the head, everything is lost.
        reply.begin(29);
        reply.bulk("a");
        reply.array_from(0, 1);
        assert!(reply.is_full());
    }

    #[test]
    fn what_is_beyond_the_bound_takes_no_memory() {
        let mut reply = Reply::new(Protocol::Two);
        reply.raw(&[0; 1000]);
        reply.begin(100);
        reply.bulk([b'x'; 60]);
        assert!(!reply.is_full() && reply.room() == 100 - 67);
        // A part that has room is also lost, after one that has none.
        for _ in 0..1_000_000 {
            reply.bulk([b'x'; 60]);
            reply.integer(1);
            reply.ok();
            reply.error("ERR");
        }
        assert!(reply.is_full() && reply.room() == 0 && reply.len() <= 1100 && reply.bytes.capacity() < 4000);
        reply.truncate(1000);
        assert!(!reply.is_full() && reply.room() == 100);
        for _ in 0..1_000_000 {
            reply.integer(1);
        }
        assert!(reply.is_full() && reply.len() <= 1100);
        reply.begin(10);
        reply.ok();
        assert!(!reply.is_full());
    }
}
