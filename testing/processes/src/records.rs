//! Keys and values.
//!
//! A *number* stands for a key: its class (a client's, or [`SHARED`]) and its index in the class.
//! Consecutive numbers belong to different classes, so that all clients change the same leaves.
//!
//! | index modulo 4 | key |
//! |---|---|
//! | 0, 1 | the number, 8 bytes: dense |
//! | 2 | its bits reversed, after a set bit: scattered |
//! | 3 | text with a long prefix in common |
//!
//! A value is a function of its key, its writer and the *version*, a number that the writer uses once.
//!
//! ```text
//!   0  hash 18 | version 43 | writer 3     8  bytes that follow from the first word and the number
//! ```
//!
//! Most have 8 bytes, some have more, and some of a client's own keys fewer.

/// Number of clients.
pub const CLIENTS: u64 = 4;
/// The class that all clients write.
pub const SHARED: u64 = CLIENTS;
const CLASSES: u64 = CLIENTS + 1;
const PREFIX: &[u8] = b"user/profile/";
const WRITER_BITS: u32 = 3;
const VERSION_BITS: u32 = 43;
/// Bits of a version that count within a life.
const LIFE_SHIFT: u32 = 32;

/// The number of an index of a class.
pub fn number_of(class: u64, index: u64) -> u64 {
    index * CLASSES + class
}

/// Class and index.
pub fn place_of(number: u64) -> (u64, u64) {
    (number % CLASSES, number / CLASSES)
}

/// The `count`-th version of a life.
pub fn version(life: u64, count: u64) -> u64 {
    (life + 1) << LIFE_SHIFT | count
}

/// The key of a number.
pub fn key(number: u64) -> Vec<u8> {
    match place_of(number).1 % 4 {
        0 | 1 => number.to_be_bytes().to_vec(),
        2 => (1 << 63 | number.reverse_bits() >> 1).to_be_bytes().to_vec(),
        _ => [PREFIX, format!("{number:010}").as_bytes()].concat(),
    }
}

/// The number of a key, if it is one of these.
pub fn parse_key(bytes: &[u8]) -> Option<u64> {
    let number = match <[u8; 8]>::try_from(bytes).map(u64::from_be_bytes) {
        Ok(word) if word >> 63 == 0 => word,
        Ok(word) => (word << 1).reverse_bits(),
        Err(_) => std::str::from_utf8(bytes.strip_prefix(PREFIX)?).ok()?.parse().ok()?,
    };
    (key(number) == bytes).then_some(number)
}

/// A value.
pub fn value(number: u64, writer: u64, version: u64) -> Vec<u8> {
    let hash = mix(mix(number << WRITER_BITS | writer) ^ version);
    let word = hash << (WRITER_BITS + VERSION_BITS) | version << WRITER_BITS | writer;
    let draw = hash >> 24;
    let length = match hash >> 59 {
        0 => 16 + draw % 1500,
        1 => 16 + draw % 200,
        2 => 9 + draw % 8,
        3 if place_of(number).0 != SHARED => draw % 8,
        _ => 8,
    };
    let words = std::iter::once(word).chain((1..).map(|place| mix(word ^ number << 20 ^ place)));
    words.flat_map(u64::to_le_bytes).take(length as usize).collect()
}

/// Writer and version of a value of at least 8 bytes. `None` when no client ever wrote it.
pub fn parse_value(number: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let writer = word & ((1 << WRITER_BITS) - 1);
    let version = word >> WRITER_BITS & ((1 << VERSION_BITS) - 1);
    let is_writer = writer < CLIENTS && [writer, SHARED].contains(&place_of(number).0);
    (is_writer && value(number, writer, version) == bytes).then_some((writer, version))
}

/// Spreads a word over all its bits.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let word = (word ^ (word >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    word ^ (word >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_versions_come_back() {
        let mut lengths = std::collections::BTreeSet::new();
        for index in 0..2000 {
            for class in 0..CLASSES {
                let number = number_of(class, index);
                assert_eq!((place_of(number), parse_key(&key(number))), ((class, index), Some(number)));
                let writer = if class == SHARED { index % CLIENTS } else { class };
                let (life, count) = (index % 1000, index * 7);
                let bytes = value(number, writer, version(life, count));
                lengths.insert(bytes.len().min(20));
                if bytes.len() >= 8 {
                    assert_eq!(parse_value(number, &bytes), Some((writer, version(life, count))));
                    assert_eq!(parse_value(number + CLASSES, &bytes), None);
                    let torn = [&[bytes[0] ^ 8], &bytes[1..]].concat();
                    assert_eq!(parse_value(number, &torn), None);
                }
            }
        }
        assert!([0, 5, 7, 8, 9, 16, 20].iter().all(|length| lengths.contains(length)), "{lengths:?}");
        assert_eq!(parse_key(b"user/profile/1"), None);
        assert_eq!(parse_key(b""), None);
    }
}
