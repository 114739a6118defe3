//! Bits of strings.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::strings::clamp;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Header;
use crate::text::number;

const FAMILY: Family = Family::Bitmap;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "bitcount", -2, READONLY, bitcount)
        .keys(1, 1, 1)
        .doc("2.6.0", "Counts the bits of a string that are set."),
    Command::new(FAMILY, "bitop", -4, WRITE | DENYOOM, bitop)
        .keys(2, -1, 1)
        .doc("2.6.0", "Combines the bits of strings."),
    Command::new(FAMILY, "bitpos", -3, READONLY, bitpos)
        .keys(1, 1, 1)
        .doc("2.8.7", "Finds the first bit of a string that is set or clear."),
    Command::new(FAMILY, "getbit", 3, READONLY | FAST, getbit).keys(1, 1, 1).doc("2.2.0", "Returns a bit of a string."),
    Command::new(FAMILY, "setbit", 4, WRITE | DENYOOM, setbit)
        .keys(1, 1, 1)
        .doc("2.2.0", "Changes a bit of a string and returns what it was."),
];

/// The place of a bit.
pub(crate) fn bit_offset(cx: &Context<'_, '_>, text: &[u8]) -> Outcome<u64> {
    let most = cx.shared.config.max_bulk_bytes().unsigned_abs();
    let offset = number::integer(text).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset >> 3 < most).ok_or(Failure::text("ERR bit offset is not an integer or out of range"))
}

fn place(offset: u64) -> (usize, u8) {
    (usize::try_from(offset >> 3).unwrap_or(usize::MAX), 7 - (offset & 7) as u8)
}

fn bit(bytes: &[u8], offset: u64) -> bool {
    let (byte, shift) = place(offset);
    bytes.get(byte).is_some_and(|byte| byte >> shift & 1 == 1)
}

fn setbit(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(1);
    let offset = bit_offset(cx, arguments.at(2))?;
    let value = match number::integer(arguments.at(3)) {
        Some(value @ (0 | 1)) => value == 1,
        _ => return Err(Failure::text("ERR bit is not an integer or out of range")),
    };
    let former = cx.string(key)?;
    let was = former.as_ref().is_some_and(|bytes| bit(bytes, offset));
    let (byte, shift) = place(offset);
    let is_there = former.as_ref().is_some_and(|bytes| byte < bytes.len());
    if was != value || !is_there {
        let mut bytes = former.unwrap_or_default().to_vec();
        bytes.resize(bytes.len().max(byte + 1), 0);
        if let Some(byte) = bytes.get_mut(byte) {
            *byte = *byte & !(1 << shift) | u8::from(value) << shift;
        }
        cx.set_string(key, bytes)?;
        cx.notify(Class::STRING, "setbit", key);
    }
    cx.out.integer(i64::from(was));
    Ok(())
}

fn getbit(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let offset = bit_offset(cx, arguments.at(2))?;
    let value = cx.look_up_string(arguments.at(1))?;
    cx.out.integer(i64::from(value.is_some_and(|bytes| bit(&bytes, offset))));
    Ok(())
}

/// Whether the words at a place say that a range counts bits.
fn in_bits(arguments: Arguments<'_>, place: usize) -> Outcome<bool> {
    match () {
        () if arguments.len() == place => Ok(false),
        () if arguments.len() > place + 1 => Err(Failure::SYNTAX),
        () if arguments.is(place, "BIT") => Ok(true),
        () if arguments.is(place, "BYTE") => Ok(false),
        () => Err(Failure::SYNTAX),
    }
}

fn bitcount(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    // Errors in the range do not matter when there is no string.
    let Some(value) = cx.look_up_string(arguments.at(1))? else {
        cx.out.integer(0);
        return Ok(());
    };
    if arguments.len() == 2 {
        cx.out.count(count_ones(&value));
        return Ok(());
    }
    if !matches!(arguments.len(), 4 | 5) {
        return Err(Failure::SYNTAX);
    }
    let (start, end) = (arguments.integer(2)?, arguments.integer(3)?);
    // Redis answers before it looks at the unit.
    if start < 0 && end < 0 && start > end {
        cx.out.integer(0);
        return Ok(());
    }
    let in_bits = in_bits(arguments, 4)?;
    let count = if in_bits {
        let range = clamp(start, end, value.len() * 8).unwrap_or(0..0);
        count_in_bits(&value, range)
    } else {
        clamp(start, end, value.len()).and_then(|part| value.get(part)).map_or(0, count_ones)
    };
    cx.out.count(count);
    Ok(())
}

fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

fn count_in_bits(bytes: &[u8], bits: std::ops::Range<usize>) -> u64 {
    let (first, last) = (bits.start.div_ceil(8), bits.end / 8);
    let single = |range: std::ops::Range<usize>| range.filter(|&at| bit(bytes, at as u64)).count() as u64;
    if first >= last {
        return single(bits);
    }
    single(bits.start..first * 8) + count_ones(bytes.get(first..last).unwrap_or_default()) + single(last * 8..bits.end)
}

fn bitpos(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let wanted = match arguments.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Failure::text("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = cx.look_up_string(arguments.at(1))? else {
        cx.out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    if arguments.len() > 6 {
        return Err(Failure::SYNTAX);
    }
    let start = if arguments.len() > 3 { arguments.integer(3)? } else { 0 };
    let in_bits = if arguments.len() > 5 { in_bits(arguments, 5)? } else { false };
    let end = if arguments.len() > 4 { Some(arguments.integer(4)?) } else { None };
    let length = if in_bits { value.len() * 8 } else { value.len() };
    let Some(range) = clamp_position(start, end.unwrap_or(-1), length) else {
        cx.out.integer(-1);
        return Ok(());
    };
    let bits = if in_bits { range } else { range.start * 8..range.end * 8 };
    let found = find_bit(&value, bits.clone(), wanted);
    cx.out.integer(match found {
        Some(at) => at as i64,
        // A string is followed by zeros, unless the request gives an end.
        None if !wanted && end.is_none() => bits.end as i64,
        None => -1,
    });
    Ok(())
}

/// As [`clamp`], but whether the start is after the end is checked only once both are known.
fn clamp_position(start: i64, end: i64, length: usize) -> Option<std::ops::Range<usize>> {
    let total = length as i64;
    let from_end = |place: i64| if place < 0 { place.saturating_add(total).max(0) } else { place };
    let (start, end) = (from_end(start), from_end(end).min(total - 1));
    if start > end {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()? + 1)
}

fn find_bit(bytes: &[u8], bits: std::ops::Range<usize>, wanted: bool) -> Option<usize> {
    let skipped = if wanted { 0 } else { 0xff };
    let mut at = bits.start;
    while at < bits.end {
        if at.is_multiple_of(8) && at + 8 <= bits.end && bytes.get(at / 8) == Some(&skipped) {
            at += 8;
            continue;
        }
        if bit(bytes, at as u64) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn bitop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is = |word: &str| arguments.is(1, word);
    let combine: fn(u8, u8) -> u8 = match () {
        () if is("AND") => |a, b| a & b,
        () if is("OR") => |a, b| a | b,
        () if is("XOR") => |a, b| a ^ b,
        () if is("NOT") => |a, _| a,
        () => return Err(Failure::SYNTAX),
    };
    if is("NOT") && arguments.len() != 4 {
        return Err(Failure::text("ERR BITOP NOT must be called with a single source key."));
    }
    let Some((first, others)) = arguments.from(3).split_first() else { return Err(Failure::SYNTAX) };
    let mut result = cx.string(first)?.unwrap_or_default().to_vec();
    for key in others {
        // One at a time: a short request may name many long strings, or the same ones many times.
        let other = cx.string(key)?.unwrap_or_default();
        result.resize(result.len().max(other.len()), 0);
        let padded = other.iter().copied().chain(std::iter::repeat(0));
        result.iter_mut().zip(padded).for_each(|(byte, other)| *byte = combine(*byte, other));
    }
    let length = result.len();
    if is("NOT") {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if result.is_empty() {
        cx.delete(arguments.at(2))?;
    } else {
        cx.set_header(arguments.at(2), &Header::string(result))?;
        cx.notify(Class::STRING, "set", arguments.at(2));
    }
    cx.out.count(length);
    Ok(())
}
