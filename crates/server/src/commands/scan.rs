//! Keys that are not named: `SCAN`, `KEYS`, `RANDOMKEY`.
//!
//! A cursor is the first bits of the hash at which the next headers begin (`keyspace::layout`), and zero at the end.
//! Keys whose hashes share these bits come in one step.

use crate::commands::arguments::{Arguments, Words};
use crate::commands::command::flags::READONLY;
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Header;
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use crate::text::pattern;
use bytes::Bytes;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(Family::Generic, "keys", 2, READONLY, keys)
        .looks_around()
        .doc("1.0.0", "Returns the keys that match a pattern."),
    Command::new(Family::Generic, "randomkey", 1, READONLY, randomkey)
        .looks_around()
        .doc("1.0.0", "Returns a random key."),
    Command::new(Family::Generic, "scan", -2, READONLY, scan)
        .looks_around()
        .doc("2.8.0", "Returns some keys, and where others are."),
];

/// How many keys a step looks at, unless the client says otherwise.
const COUNT: u64 = 10;
/// Most keys that a step looks at.
const MAX_COUNT: u64 = 100_000;
/// Keys among which a random one is chosen.
const CANDIDATES: usize = 16;
/// Bits of a hash that are not in a cursor. Those of Redis are small, so some clients keep cursors in signed words, and
/// others in floating-point numbers, whose integers have 53 bits.
const CUT_BITS: u32 = u64::BITS - 53;

/// The cursor of elements with this hash.
pub(crate) const fn cursor_of(hash: u64) -> u64 {
    hash >> CUT_BITS
}

/// Options of `SCAN` and its like.
pub(crate) struct ScanOptions<'a> {
    /// The hash to continue from.
    pub(crate) from: u64,
    /// How many elements to look at.
    pub(crate) count: u64,
    /// The pattern that elements must match.
    pub(crate) pattern: Option<&'a [u8]>,
    /// The type that keys must have.
    pub(crate) kind: Option<&'a [u8]>,
}

impl ScanOptions<'_> {
    /// Whether an element is wanted.
    pub(crate) fn wants(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|wanted| pattern::matches(wanted, element))
    }
}

/// Reads a cursor.
pub(crate) fn cursor(text: &[u8]) -> Outcome<u64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, text),
    };
    // C's function reads an empty text as zero, and accepts a sign.
    let number = match digits {
        [] if text.is_empty() => Some(0),
        _ if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok())
        }
        _ => None,
    };
    let number: u64 = number.ok_or(Failure::text("ERR invalid cursor"))?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

/// Reads the options after a cursor.
pub(crate) fn scan_options<'a>(cursor: u64, mut words: Words<'a>, has_kind: bool) -> Outcome<ScanOptions<'a>> {
    // No element has a cursor with more bits.
    let from = cursor.saturating_mul(1 << CUT_BITS);
    let mut options = ScanOptions { from, count: COUNT, pattern: None, kind: None };
    while !words.is_done() {
        if let Some(count) = words.take_with_value("COUNT") {
            let count = crate::commands::arguments::integer(count)?;
            let count = u64::try_from(count).ok().filter(|&count| count > 0).ok_or(Failure::SYNTAX)?;
            options.count = count.min(MAX_COUNT);
        } else if let Some(pattern) = words.take_with_value("MATCH") {
            options.pattern = Some(pattern);
        } else if let Some(kind) = has_kind.then(|| words.take_with_value("TYPE")).flatten() {
            options.kind = Some(kind);
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok(options)
}

fn scan(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let options = scan_options(cursor(arguments.at(1))?, arguments.words(2), true)?;
    let now_ms = cx.keys.now_ms();
    let range = layout::headers_from(cx.space(), options.from);
    let (mut found, mut bytes, mut seen, mut last, mut next) = (Vec::new(), 0, 0, 0, 0);
    let reads = &*cx;
    reads.keys.reads().scan(&range, Direction::Forward, |key, value| {
        let cursor = cursor_of(layout::header_hash(key));
        if seen >= options.count && cursor != last {
            next = cursor;
            return Ok(false);
        }
        (seen, last) = (seen + 1, cursor);
        let name = layout::client_key(key);
        if options.wants(name) {
            let header = Header::outline(value)?;
            let is_kind = |kind: &[u8]| kind.eq_ignore_ascii_case(header.kind().name().as_bytes());
            if !header.is_expired(now_ms) && options.kind.is_none_or(is_kind) {
                bytes += name.len() + 1;
                reads.make_room(bytes)?;
                found.push(Bytes::copy_from_slice(name));
            }
        }
        Ok(true)
    })?;
    cx.out.array(2);
    cx.out.bulk(next.to_string());
    cx.out.array(found.len());
    found.iter().for_each(|key| cx.out.bulk(key));
    Ok(())
}

fn keys(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let now_ms = cx.keys.now_ms();
    let range = layout::headers_from(cx.space(), 0);
    cx.keys.reads().expect_steps(u64::try_from(cx.keys.size(cx.space())).unwrap_or(0))?;
    let (start, mut count, out) = (cx.out.len(), 0, &mut *cx.out);
    cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
        let name = layout::client_key(key);
        if pattern::matches(arguments.at(1), name) && !Header::outline(value)?.is_expired(now_ms) {
            count += 1;
            out.bulk(name);
        }
        Ok(!out.is_full())
    })?;
    out.array_from(start, count);
    Ok(())
}

/// Replies with one of several keys that follow a random place, so that a key after a long gap is not much likelier
/// than others.
fn randomkey(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let (now_ms, space) = (cx.keys.now_ms(), cx.space());
    let start = cx.shared.random();
    let mut found: Vec<Bytes> = Vec::new();
    for from in [start, 0] {
        let range = layout::headers_from(space, from);
        cx.keys.writes().scan(&range, Direction::Forward, |key, value| {
            if !Header::outline(value)?.is_expired(now_ms) {
                found.push(Bytes::copy_from_slice(layout::client_key(key)));
            }
            Ok(found.len() < CANDIDATES)
        })?;
        if found.len() >= CANDIDATES {
            break;
        }
    }
    let chosen = usize::try_from(cx.shared.random_below(found.len() as u64)).unwrap_or(0);
    cx.out.bulk_or_null(found.get(chosen));
    Ok(())
}
