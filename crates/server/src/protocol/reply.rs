//! Replies, written in the version of the protocol that the client asked for.
//!
//! A short request may ask for much, for example for one value very often. So the replies to a run of commands are
//! bounded here. Writes beyond the bound are lost and take no memory. The executor of the run checks whether that
//! happened ([`Reply::is_full`]).
//!
//! What is sent to a client is in parts. A long value is a part of its own, which shares the memory of the value that
//! was read. Other parts end after about a MiB. So a long reply is never moved, and each part is freed once it is sent.
//!
//! ```text
//!   sent and freed   │ parts, oldest first            │ `bytes`: the last part
//!                    │ replies │ long value │ replies │ replies │ room
//! ```
//!
//! Lengths and positions count from the beginning of the first part. Short replies are one part, `bytes`.

use crate::text::number;
use bytes::Bytes;
use std::collections::VecDeque;

/// Most bytes of the replies to a run of commands.
pub const MAX_BYTES: usize = 512 << 20;
/// From this length on, a value is a part of its own, and a part ends. A shorter copy costs little beside sending it.
pub const PART_BYTES: usize = 1 << 20;
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

/// Replies of one connection, one after another. See the module.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    /// The parts before `bytes`. None is empty.
    parts: VecDeque<Bytes>,
    /// Number of bytes of these parts.
    parts_bytes: usize,
    /// A part ends when it has this many bytes.
    part_bytes: usize,
    protocol: Protocol,
    /// How long all parts together may become.
    most: usize,
    is_full: bool,
}

impl Reply {
    /// Begins with no replies. All of them will be one part.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self {
            bytes: Vec::new(),
            parts: VecDeque::new(),
            parts_bytes: 0,
            part_bytes: usize::MAX,
            protocol,
            most: usize::MAX,
            is_full: false,
        }
    }

    /// The same, but long replies will be in parts.
    #[must_use]
    pub fn in_parts(protocol: Protocol) -> Self {
        Self { part_bytes: PART_BYTES, ..Self::new(protocol) }
    }

    /// Begins a run of commands, whose replies have at most this many bytes.
    pub fn begin(&mut self, most: usize) {
        self.most = self.len().saturating_add(most);
        self.is_full = false;
    }

    /// Bytes that may still be written.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_full { 0 } else { self.most.saturating_sub(self.len()) }
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

    /// What was written to a reply of one part.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what was written to a reply of one part. Later writes have no bound until a run begins.
    pub fn take(&mut self) -> Vec<u8> {
        (self.most, self.is_full) = (usize::MAX, false);
        std::mem::take(&mut self.bytes)
    }

    /// The first part: what is sent next.
    #[must_use]
    pub fn first_part(&self) -> &[u8] {
        self.parts.front().map_or(&self.bytes[..], |part| &part[..])
    }

    /// All parts, in order. The last one may be empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part[..]).chain([&self.bytes[..]])
    }

    /// Copies what was written after the first `start` bytes.
    #[must_use]
    pub fn copied_from(&self, start: usize) -> Vec<u8> {
        let mut before = start;
        let mut copied = Vec::new();
        for part in self.parts() {
            copied.extend_from_slice(part.get(before..).unwrap_or_default());
            before = before.saturating_sub(part.len());
        }
        copied
    }

    /// Returns how many bytes of memory are held for what was written.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.parts_bytes + self.bytes.capacity() }
    }

    /// Forgets everything, and keeps a little memory. Later writes have no bound until a run begins.
    pub fn forget(&mut self) {
        _ = self.forget_first(self.len());
    }

    /// The same for the first bytes: the rest stays, and takes at most twice its length. But a part before the last one
    /// is kept as a whole. Returns how many of the first bytes are left for that reason.
    #[must_use]
    pub fn forget_first(&mut self, count: usize) -> usize {
        (self.most, self.is_full) = (usize::MAX, false);
        let mut left = self.forget_parts(count);
        if self.parts.is_empty() {
            self.bytes.drain(..left.min(self.bytes.len()));
            left = 0;
        }
        self.bytes.shrink_to(KEPT_BYTES.max(2 * self.bytes.len()));
        left
    }

    /// Forgets the parts that are within the first bytes. Returns how many of these bytes are left: they are in the
    /// first part.
    pub fn forget_parts(&mut self, mut count: usize) -> usize {
        while let Some(part) = self.parts.pop_front_if(|part| part.len() <= count) {
            count -= part.len();
            self.parts_bytes -= part.len();
        }
        count
    }

    /// Number of bytes that were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what was written after the first `length` bytes, and that anything was lost.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length.saturating_sub(self.parts_bytes));
        while self.parts_bytes > length
            && let Some(mut part) = self.parts.pop_back()
        {
            self.parts_bytes -= part.len();
            part.truncate(length.saturating_sub(self.parts_bytes));
            if !part.is_empty() {
                self.parts_bytes += part.len();
                self.parts.push_back(part);
            }
        }
        self.is_full = false;
    }

    /// Ends the last part.
    #[cold]
    fn end_part(&mut self) {
        let part = Bytes::from(std::mem::take(&mut self.bytes));
        self.add_part(part);
    }

    fn add_part(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.parts_bytes += part.len();
            self.parts.push_back(part);
        }
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
        if self.is_empty() {
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
        if bytes.len() >= PART_BYTES {
            self.expect(bytes.len());
        }
        self.header(b'$', bytes.len() as i64);
        self.add(bytes);
        self.add(b"\r\n");
        if self.bytes.len() >= self.part_bytes {
            self.end_part();
        }
    }

    /// Makes room in memory for long bytes with what surrounds them: a line's end that does not fit would move them.
    #[cold]
    fn expect(&mut self, bytes: usize) {
        if HEADER_BYTES + bytes + 2 <= self.room() {
            self.bytes.reserve(HEADER_BYTES + bytes + 2);
        }
    }

    /// As [`Reply::bulk`]. Long bytes are not copied if the replies are in parts: their memory is shared.
    pub fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < self.part_bytes {
            return self.bulk(bytes);
        }
        self.header(b'$', bytes.len() as i64);
        if self.has_room(bytes.len()) {
            self.end_part();
            self.add_part(bytes.clone());
        }
        self.add(b"\r\n");
    }

    /// The same for a part of `whole`. It is copied if it is less than half: all of `whole` would wait until it is
    /// sent.
    pub fn shared_part(&mut self, whole: &Bytes, part: &[u8]) {
        if part.len() < self.part_bytes || part.len() < whole.len() / 2 {
            return self.bulk(part);
        }
        self.shared(&whole.slice_ref(part));
    }

    /// Bytes, whose memory is shared if they are long, or null.
    pub fn shared_or_null(&mut self, bytes: Option<&Bytes>) {
        match bytes {
            Some(bytes) => self.shared(bytes),
            None => self.null(),
        }
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
        if start < self.parts_bytes {
            let head = self.bytes.split_off(end);
            return self.insert_part(start, head.into());
        }
        let head = self.bytes.len() - end;
        if let Some(replies) = self.bytes.get_mut((start - self.parts_bytes).min(end)..) {
            replies.rotate_right(head);
        }
    }

    /// Puts a part after the first `start` bytes, which are in parts.
    fn insert_part(&mut self, start: usize, new: Bytes) {
        if new.is_empty() {
            return;
        }
        let (mut place, mut before) = (0, start);
        while let Some(part) = self.parts.get(place).filter(|part| part.len() <= before) {
            before -= part.len();
            place += 1;
        }
        if before > 0
            && let Some(part) = self.parts.get_mut(place)
        {
            place += 1;
            let rest = part.split_off(before);
            self.parts.insert(place, rest);
        }
        self.parts_bytes += new.len();
        self.parts.insert(place, new);
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
    use proptest::prelude::*;

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

    #[test]
    fn a_long_value_is_shared_until_it_is_sent() {
        let value = Bytes::from(vec![b'v'; 8 << 20]);
        let mut reply = Reply::in_parts(Protocol::Two);
        reply.ok();
        reply.shared(&value);
        reply.shared_part(&value, value.get(3..).unwrap());
        reply.shared_or_null(Some(&value));
        let shares = |part: &[u8]| part.as_ptr_range().end == value.as_ptr_range().end;
        assert_eq!(reply.parts().filter(|part| shares(part)).count(), 3);
        // The rest of a value would be held in vain.
        reply.shared_part(&value, value.get(5 << 20..).unwrap());
        assert_eq!(reply.parts().filter(|part| shares(part)).count(), 3);
        let mut left = reply.len();
        while left > 0 {
            assert!((left..left + 1000).contains(&reply.size_bytes()), "{} for {left}", reply.size_bytes());
            let first = reply.first_part().len();
            left -= first;
            if reply.forget_parts(first) > 0 {
                reply.forget();
            }
        }
        assert!(reply.is_empty() && value.is_unique());
    }

    #[test]
    fn a_long_value_that_is_copied_takes_its_length() {
        let value = vec![b'v'; 8 << 20];
        for mut reply in [Reply::new(Protocol::Two), Reply::in_parts(Protocol::Two)] {
            reply.ok();
            reply.bulk(&value);
            assert!(reply.size_bytes() < value.len() + 1000, "{}", reply.size_bytes());
            reply.forget();
            reply.begin(value.len());
            reply.bulk(&value);
            assert!(reply.is_full() && reply.size_bytes() <= KEPT_BYTES, "{}", reply.size_bytes());
        }
    }

    #[test]
    fn many_short_values_are_never_moved_together() {
        let mut reply = Reply::in_parts(Protocol::Two);
        (0..1_000_000).for_each(|number| reply.bulk_integer(number));
        assert!(reply.parts().all(|part| part.len() < PART_BYTES + 100) && reply.bytes.capacity() <= 2 * PART_BYTES);
        assert!(reply.size_bytes() < reply.len() + 2 * PART_BYTES);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Copied(usize),
        Shared(usize),
        SharedPart(usize, usize),
        Integer,
        ArrayFrom(usize),
        Truncate(usize),
        Forget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let length = || 0usize..60;
        let place = any::<usize>;
        prop_oneof![
            length().prop_map(Step::Copied),
            length().prop_map(Step::Shared),
            (length(), length()).prop_map(|(whole, part)| Step::SharedPart(whole, part)),
            Just(Step::Integer),
            place().prop_map(Step::ArrayFrom),
            place().prop_map(Step::Truncate),
            place().prop_map(Step::Forget),
        ]
    }

    /// Carries a step out on what follows the first bytes, which are sent. Returns how many are sent then.
    fn carry_out(step: &Step, reply: &mut Reply, sent: usize) -> usize {
        let value = |length: usize| Bytes::from((0..length as u8).collect::<Vec<u8>>());
        let places = reply.len() - sent + 1;
        let at = |place: usize| sent + place % places;
        match *step {
            Step::Copied(length) => reply.bulk(value(length)),
            Step::Shared(length) => reply.shared(&value(length)),
            Step::SharedPart(whole, from) => {
                let whole = value(whole);
                reply.shared_part(&whole, whole.get(from..).unwrap_or_default());
            }
            Step::Integer => reply.integer(7),
            Step::ArrayFrom(place) => reply.array_from(at(place), 3),
            Step::Truncate(place) => reply.truncate(at(place)),
            Step::Forget(place) => return reply.forget_first(at(place)),
        }
        sent
    }

    proptest! {
        #[test]
        fn what_is_in_parts_is_the_same(steps in prop::collection::vec(step(), 0..60), place: usize) {
            let mut whole = Reply::new(Protocol::Two);
            let mut parts = Reply { part_bytes: 20, ..Reply::new(Protocol::Two) };
            let mut sent = 0;
            for step in &steps {
                assert_eq!(carry_out(step, &mut whole, 0), 0);
                sent = carry_out(step, &mut parts, sent);
                let place = place % (whole.len() + 1);
                prop_assert_eq!(parts.copied_from(sent + place), &whole.bytes()[place..]);
                prop_assert_eq!(parts.len(), sent + whole.len());
                prop_assert!(parts.parts.iter().all(|part| !part.is_empty()));
                prop_assert_eq!(parts.parts.iter().map(Bytes::len).sum::<usize>(), parts.parts_bytes);
            }
        }
    }
}
