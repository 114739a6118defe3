//! Requests of clients, parsed where they were received.
//!
//! A request is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or a line of words ("inline"). A
//! [`Requests`] owns the bytes that came from a connection and remembers how far it has parsed them, so that a large
//! value that arrives in many pieces is looked at once. Arguments are ranges of these bytes and not copied.
//!
//! ```text
//!   received   │ whole request │ whole request │ part of a request │ free
//!                                              └ `begun`           └ `bytes.len()`
//!              └─ taken together by `consume` ─┘
//! ```
//!
//! The memory held is in proportion to what was received: a client that announces much has not sent it.
//!
//! Invariants: every range is within `bytes`; the ranges of whole requests are before `begun`.

use crate::text::words;
use std::io::Read;
use std::ops::Range;

/// Longest line, in bytes: an inline request, or a length.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Most arguments of a request.
const MAX_ARGUMENTS: i64 = 1 << 20;
/// Most bytes of a request.
const MAX_REQUEST_BYTES: usize = 512 << 20;
/// Most arguments of a request from a client that has not logged in.
const MAX_STRANGER_ARGUMENTS: i64 = 10;
const MAX_STRANGER_BULK_BYTES: i64 = 16 << 10;
/// Least number of bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Most bytes that are read at once.
const MAX_READ_BYTES: usize = 1 << 20;
/// Memory for an announced value is at most this many times what was received. So the value is seldom moved while it
/// arrives, and a client cannot take memory by announcing.
const GROWTH: usize = 4;
/// Room for this many arguments, and this many requests, is kept when they are answered.
const KEPT_ARGUMENTS: usize = 1 << 10;

/// A request that breaks the protocol. The connection cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(pub String);

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

fn broken<T>(why: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(why.into()))
}

/// What a connection sent and was not answered yet. See the module.
#[derive(Debug, Default)]
pub struct Requests {
    /// What was received, and room for more.
    bytes: Vec<u8>,
    /// How much of it was received.
    filled: usize,
    /// First byte that is not parsed.
    at: usize,
    /// Arguments of all requests, one after another; those of the last may not be complete.
    arguments: Vec<Range<usize>>,
    /// For each whole request, the number of arguments up to its end.
    ends: Vec<usize>,
    /// First byte after the whole requests.
    begun: usize,
    /// How many arguments of the last request are still to come.
    missing: usize,
    /// Length of the argument that comes next, when it is known.
    bulk: Option<usize>,
}

impl Requests {
    /// Reads once from `source`. Returns the number of bytes, which is zero when `source` has ended, and whether there
    /// may be more.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn fill(&mut self, source: &mut impl Read) -> std::io::Result<(usize, bool)> {
        let wanted = self.bulk.map_or(0, |bulk| (self.at + bulk + 2).saturating_sub(self.filled));
        let room = wanted.clamp(READ_BYTES, most_held(self.filled) - self.filled);
        // The rest of a long value is read into the room that there is for it: more room would move the value.
        let is_long = wanted > 0 && self.filled >= MAX_READ_BYTES;
        let least = if is_long { wanted.min(READ_BYTES) } else { READ_BYTES };
        if self.bytes.capacity() < self.filled + least {
            self.bytes.reserve_exact((self.filled + room).saturating_sub(self.bytes.len()));
        }
        let end = self.bytes.capacity().min(self.filled + room.min(MAX_READ_BYTES));
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let room = self.bytes.get_mut(self.filled..).unwrap_or_default();
        let read = source.read(room)?;
        let is_full = read == room.len();
        self.filled += read;
        Ok((read, is_full))
    }

    /// Adds bytes as if they had been received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(bytes);
        self.filled = self.bytes.len();
    }

    /// Returns how many bytes of memory are held.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.arguments.capacity() * size_of::<Range<usize>>()
            + self.ends.capacity() * size_of::<usize>()
    }

    /// Takes over memory for the next bytes, if there is none.
    pub fn borrow_memory(&mut self, spare: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, spare);
        }
    }

    /// Gives back memory that is not needed.
    pub fn return_memory(&mut self, spare: &mut Vec<u8>) {
        if self.filled == 0 || self.bytes.capacity() > most_held(self.filled) {
            let kept = self.received().to_vec();
            let all = std::mem::replace(&mut self.bytes, kept);
            if all.capacity() <= MAX_READ_BYTES {
                *spare = all;
            }
        }
        self.arguments.shrink_to(KEPT_ARGUMENTS.max(2 * self.arguments.len()));
        self.ends.shrink_to(KEPT_ARGUMENTS.max(2 * self.ends.len()));
    }

    fn received(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Number of whole requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no whole request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The arguments of a whole request.
    pub fn arguments(&self, request: usize) -> impl Iterator<Item = &[u8]> {
        let from = request.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let to = self.ends.get(request).copied().unwrap_or(from);
        let stretches = self.arguments.get(from..to).unwrap_or_default();
        stretches.iter().map(|stretch| self.bytes.get(stretch.clone()).unwrap_or_default())
    }

    /// Forgets the first whole requests, up to all. Once none is left, it also forgets bytes that were no request, such
    /// as empty lines.
    pub fn consume(&mut self, requests: usize) {
        if let Some(last) = requests.checked_sub(1) {
            let gone = self.ends.get(last).copied().unwrap_or(0);
            self.ends.drain(..requests.min(self.ends.len()));
            self.ends.iter_mut().for_each(|end| *end -= gone);
            self.arguments.drain(..gone);
        }
        if self.ends.is_empty() && self.begun > 0 {
            // The bytes that begin the next request move to the front.
            let gone_bytes = std::mem::take(&mut self.begun);
            for stretch in &mut self.arguments {
                *stretch = stretch.start - gone_bytes..stretch.end - gone_bytes;
            }
            self.at -= gone_bytes;
            self.bytes.copy_within(gone_bytes..self.filled, 0);
            self.filled -= gone_bytes;
        }
    }

    /// Parses what was received, up to `most` whole requests. A client that is not `trusted` may send only small
    /// requests.
    ///
    /// # Errors
    /// When the bytes are not a request. The requests before them are whole and can be answered.
    pub fn parse(&mut self, most: usize, max_bulk_bytes: usize, trusted: bool) -> Result<(), ProtocolError> {
        while self.ends.len() < most {
            if self.missing == 0 && !self.begin(trusted)? {
                break;
            }
            while self.missing > 0 {
                if !self.argument(max_bulk_bytes, trusted)? {
                    return Ok(());
                }
            }
            self.end();
        }
        Ok(())
    }

    /// Ends a request: the one that `missing` counted down is whole.
    fn end(&mut self) {
        // An empty request is no request.
        if self.arguments.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.arguments.len());
        }
        self.begun = self.at;
    }

    /// Reads the beginning of a request. Returns false when not all of it has arrived.
    fn begin(&mut self, trusted: bool) -> Result<bool, ProtocolError> {
        let Some(&first) = self.received().get(self.at) else { return Ok(false) };
        if first != b'*' {
            return self.inline();
        }
        let Some(line) = self.line("too big mbulk count string")? else { return Ok(false) };
        let count = parse_length(self.received().get(line.start + 1..line.end).unwrap_or_default());
        let Some(count) = count.filter(|&count| count <= MAX_ARGUMENTS) else {
            return broken("invalid multibulk length");
        };
        if !trusted && count > MAX_STRANGER_ARGUMENTS {
            return broken("unauthenticated multibulk length");
        }
        self.missing = usize::try_from(count).unwrap_or(0);
        Ok(true)
    }

    /// Reads an argument of an array. Returns false when not all of it has arrived.
    fn argument(&mut self, max_bulk_bytes: usize, trusted: bool) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => match self.bulk_length(max_bulk_bytes, trusted)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        self.bulk = Some(length);
        let end = self.at + length;
        if end - self.begun > MAX_REQUEST_BYTES {
            return broken("too big request");
        }
        match self.received().get(end..end + 2) {
            None => Ok(false),
            Some(b"\r\n") => {
                self.arguments.push(self.at..end);
                self.at = end + 2;
                self.bulk = None;
                self.missing -= 1;
                Ok(true)
            }
            Some(_) => broken("expected a line's end after a bulk string"),
        }
    }

    fn bulk_length(&mut self, max_bulk_bytes: usize, trusted: bool) -> Result<Option<usize>, ProtocolError> {
        let Some(&first) = self.received().get(self.at) else { return Ok(None) };
        if first != b'$' {
            return broken(format!("expected '$', got '{}'", shown(first)));
        }
        let Some(line) = self.line("too big bulk count string")? else { return Ok(None) };
        let length = parse_length(self.received().get(line.start + 1..line.end).unwrap_or_default());
        let Some(length) = length.filter(|&length| length >= 0 && length <= max_bulk_bytes as i64) else {
            return broken("invalid bulk length");
        };
        if !trusted && length > MAX_STRANGER_BULK_BYTES {
            return broken("unauthenticated bulk length");
        }
        Ok(usize::try_from(length).ok())
    }

    /// Takes a line without the `\r\n` at its end.
    fn line(&mut self, too_long: &str) -> Result<Option<Range<usize>>, ProtocolError> {
        let rest = self.received().get(self.at..).unwrap_or_default();
        let looked = rest.get(..rest.len().min(MAX_LINE_BYTES)).unwrap_or_default();
        let Some(length) = looked.iter().position(|&byte| byte == b'\r') else {
            return if rest.len() >= MAX_LINE_BYTES { broken(too_long) } else { Ok(None) };
        };
        match rest.get(length + 1) {
            None => Ok(None),
            Some(b'\n') => {
                let line = self.at..self.at + length;
                self.at += length + 2;
                Ok(Some(line))
            }
            Some(_) => broken("expected a line feed after a carriage return"),
        }
    }

    /// Reads a line of words. They are decoded in place, as decoding makes nothing longer.
    fn inline(&mut self) -> Result<bool, ProtocolError> {
        let rest = self.bytes.get_mut(self.at..self.filled).unwrap_or_default();
        let looked = rest.len().min(MAX_LINE_BYTES);
        let Some(end) = rest.iter().take(looked).position(|&byte| byte == b'\n') else {
            return if looked == MAX_LINE_BYTES { broken("too big inline request") } else { Ok(false) };
        };
        let line = rest.get_mut(..end).unwrap_or_default();
        let Some(words) = words::split(line) else { return broken("unbalanced quotes in request") };
        self.arguments.extend(words.into_iter().map(|word| self.at + word.start..self.at + word.end));
        self.at += end + 1;
        self.missing = 0;
        Ok(true)
    }
}

/// Most memory that is held for this many received bytes: at least for two reads.
fn most_held(received: usize) -> usize {
    (2 * READ_BYTES).max(GROWTH * received)
}

/// A length: decimal digits in the shortest form.
fn parse_length(digits: &[u8]) -> Option<i64> {
    crate::text::number::integer(digits)
}

fn shown(byte: u8) -> String {
    byte.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MANY: usize = 1000;
    const BULK: usize = 1 << 20;

    fn all(requests: &Requests) -> Vec<Vec<Vec<u8>>> {
        (0..requests.len()).map(|at| requests.arguments(at).map(<[u8]>::to_vec).collect()).collect()
    }

    fn parsed(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let mut requests = Requests::default();
        requests.push(bytes);
        requests.parse(MANY, BULK, true).map_err(|error| error.to_string())?;
        Ok(all(&requests))
    }

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn arrays_and_lines() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n  PING \r\n\r\n*0\r\n*-1\r\nset \"a\\x41\\n\" 'it\\'s'\n*1\r\n$0\r\n\r\n";
        let expected = vec![words(&["GET", "k"]), words(&["PING"]), words(&["set", "aA\n", "it's"]), words(&[""])];
        assert_eq!(parsed(bytes).unwrap(), expected);
    }

    #[test]
    fn what_breaks_the_protocol_is_named() {
        for (bytes, why) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*99999999\r\n", "invalid multibulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$01\r\n", "invalid bulk length"),
            (b"*1\r\n$9999999\r\n", "invalid bulk length"),
            (b"*1\r\n$1\r\nabc", "expected a line's end after a bulk string"),
            (b"*1\rx", "expected a line feed after a carriage return"),
            (b"get \"a\n", "unbalanced quotes in request"),
            (b"get \"a\"b\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(parsed(bytes).unwrap_err(), format!("Protocol error: {why}"));
        }
        assert_eq!(parsed(&vec![b'a'; MAX_LINE_BYTES]).unwrap_err(), "Protocol error: too big inline request");
        let mut long = b"*".to_vec();
        long.resize(MAX_LINE_BYTES, b'1');
        assert_eq!(parsed(&long).unwrap_err(), "Protocol error: too big mbulk count string");
    }

    #[test]
    fn what_is_no_request_is_not_kept() {
        let mut requests = Requests::default();
        for _ in 0..100 {
            requests.push(b"\r\n*0\r\n*-1\r\n   \r\n");
            requests.parse(MANY, BULK, true).unwrap();
            requests.consume(0);
            assert_eq!((requests.len(), requests.filled), (0, 0));
        }
    }

    /// A socket that has these bytes, and gives up to this many at once.
    struct Socket<'a>(&'a [u8], usize);

    impl Read for Socket<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let most = room.len().min(self.1);
            self.0.read(&mut room[..most])
        }
    }

    #[test]
    fn what_was_announced_takes_no_memory_before_it_comes() {
        let value = vec![b'v'; 50_000_000];
        let mut bytes = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\nGET k");
        for at_once in [700, 20_000, usize::MAX] {
            let (mut requests, mut spare) = (Requests::default(), vec![0; MAX_READ_BYTES]);
            // While only a little of it has arrived, and when all of it has.
            let bytes = if at_once == 700 { &bytes[..100_000] } else { &bytes };
            let mut socket = Socket(bytes, at_once);
            let (mut turns, mut moved) = (0, 0);
            while !socket.0.is_empty() {
                requests.borrow_memory(&mut spare);
                let (capacity, filled, whole) = (requests.bytes.capacity(), requests.filled, !requests.is_empty());
                requests.fill(&mut socket).unwrap();
                // A request that is whole is carried out before more is read.
                moved += if requests.bytes.capacity() == capacity || whole { 0 } else { filled };
                requests.parse(MANY, value.len(), true).unwrap();
                requests.return_memory(&mut spare);
                turns += 1;
                let (held, received) = (requests.size_bytes(), requests.filled);
                assert!(held <= most_held(received) + 1000, "{held} bytes are held of {received}");
                assert!(requests.bytes.len() <= received + MAX_READ_BYTES);
            }
            if at_once == 700 {
                assert_eq!((requests.len(), spare.len()), (0, MAX_READ_BYTES));
                continue;
            }
            // The buffer grows to some times what has come, and then by a MiB for each read.
            assert!(at_once < usize::MAX || turns < 60, "{turns}");
            assert!(3 * moved <= 4 * value.len(), "{moved} bytes were moved");
            assert_eq!((requests.len(), requests.filled), (1, bytes.len()));
            requests.consume(1);
            requests.return_memory(&mut spare);
            assert!(requests.size_bytes() < 1000 && requests.filled == 5 && spare.len() <= MAX_READ_BYTES);
        }
    }

    #[test]
    fn many_arguments_are_forgotten_with_their_request() {
        let bytes = [&b"*100000\r\n"[..], &b"$0\r\n\r\n".repeat(100_000)].concat();
        let (mut requests, mut spare) = (Requests::default(), Vec::new());
        requests.push(&bytes);
        requests.parse(MANY, BULK, true).unwrap();
        assert!(requests.size_bytes() > 100_000 * size_of::<Range<usize>>());
        requests.consume(1);
        requests.return_memory(&mut spare);
        assert!(requests.size_bytes() <= KEPT_ARGUMENTS * (size_of::<Range<usize>>() + size_of::<usize>()));
    }

    #[test]
    fn strangers_send_little() {
        for (bytes, why) in [("*11\r\n", "multibulk"), ("*1\r\n$16385\r\n", "bulk")] {
            let mut requests = Requests::default();
            requests.push(bytes.as_bytes());
            let error = requests.parse(MANY, BULK, false).unwrap_err();
            assert_eq!(error.0, format!("unauthenticated {why} length"));
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..20),
            sizes in prop::collection::vec(1usize..60, 1..50),
            most in 1usize..5,
        ) {
            let mut bytes = Vec::new();
            for request in &requests {
                bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
                for argument in request {
                    bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                    bytes.extend_from_slice(argument);
                    bytes.extend_from_slice(b"\r\n");
                }
            }
            let (mut reader, mut found, mut rest) = (Requests::default(), Vec::new(), &bytes[..]);
            for size in sizes.iter().cycle() {
                let (piece, tail) = rest.split_at(rest.len().min(*size));
                reader.push(piece);
                rest = tail;
                loop {
                    reader.parse(most, BULK, true).unwrap();
                    let more = reader.len() == most;
                    while !reader.is_empty() {
                        found.push(all(&reader).remove(0));
                        reader.consume(1);
                    }
                    if !more { break; }
                }
                if rest.is_empty() { break; }
            }
            prop_assert_eq!(found, requests);
            prop_assert_eq!(reader.filled, 0);
        }

        #[test]
        fn any_bytes_give_requests_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parsed(&bytes);
        }

        #[test]
        fn bytes_of_the_protocol_give_requests_or_an_error(bytes in "[*$0-9\r\na'\"\\\\x -]{0,80}") {
            let _ = parsed(bytes.as_bytes());
        }
    }
}
