//! How each type is written, and all forms in which it is read.
//!
//! Described in `docs/formats/redis-dump.md`.
//!
//! ```text
//!   type   value                                                     written
//!   0      string                                                    strings
//!   1      count │ elements                                          lists
//!   2      count │ members                                           sets
//!   3      count │ members, each with its score as text
//!   4      count │ fields, each with its value                       hashes
//!   5      count │ members, each with its score, 8 bytes             sorted sets
//!   11     integers (see `packed`)
//!   16     listpack of fields and values
//!   17     listpack of members and scores
//!   18     count │ parts: 1 │ element, or 2 │ listpack of elements
//!   15,19  streams (see `streams`)                                   19
//! ```
//!
//! Scores are little-endian. Redis before 7.0 keeps small collections in other forms, as types 9, 10, 12, 13 and 14:
//! these are refused.

use super::packed::{self, Value};
use super::reader::{BAD, Reader, put_length, put_string};
use crate::commands::whole::Whole;
use crate::keyspace::failure::Outcome;
use crate::text::number;
use bytes::Bytes;
use forebay_env::HashSet;

/// Part of a list that is one element.
const PLAIN: u64 = 1;
/// Part of a list that is a listpack.
const PACKED: u64 = 2;

/// Writes a value with its type.
pub(super) fn write(whole: &Whole) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut head = |kind: u8, count: usize| {
        bytes.push(kind);
        put_length(&mut bytes, count as u64);
    };
    match whole {
        Whole::String(string) => {
            bytes.push(0);
            put_string(&mut bytes, string);
        }
        Whole::List(elements) => {
            head(1, elements.len());
            elements.iter().for_each(|element| put_string(&mut bytes, element));
        }
        Whole::Set(members) => {
            head(2, members.len());
            members.iter().for_each(|member| put_string(&mut bytes, member));
        }
        Whole::Hash(pairs) => {
            head(4, pairs.len());
            for (field, value) in pairs {
                put_string(&mut bytes, field);
                put_string(&mut bytes, value);
            }
        }
        Whole::SortedSet(scored) => {
            head(5, scored.len());
            for (member, score) in scored {
                put_string(&mut bytes, member);
                bytes.extend_from_slice(&score.to_le_bytes());
            }
        }
    }
    bytes
}

/// Reads a value of a type that is no stream.
pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Outcome<Whole> {
    let whole = match kind {
        0 => Whole::String(reader.string()?),
        1 => Whole::List(strings(reader)?),
        2 => Whole::Set(strings(reader)?),
        3 | 5 => {
            let mut scored = Vec::new();
            for _ in 0..reader.count()? {
                let member = reader.string()?;
                let score = if kind == 3 { text_score(reader)? } else { f64::from_le_bytes(reader.array()?) };
                scored.push((member, score));
            }
            Whole::SortedSet(scored)
        }
        4 => {
            let mut pairs = Vec::new();
            for _ in 0..reader.count()? {
                pairs.push((reader.string()?, reader.string()?));
            }
            Whole::Hash(pairs)
        }
        11 => Whole::Set(packed::integers(&reader.string()?)?),
        16 => {
            Whole::Hash(pairs(&reader.string()?)?.into_iter().map(|(a, b)| (a.into_bytes(), b.into_bytes())).collect())
        }
        17 => {
            let score = |value: Value| number::double(&value.into_bytes()).ok_or(BAD);
            let pairs = pairs(&reader.string()?)?;
            let scored = pairs.into_iter().map(|(member, value)| Ok((member.into_bytes(), score(value)?)));
            Whole::SortedSet(scored.collect::<Outcome<_>>()?)
        }
        18 => {
            let mut elements = Vec::new();
            for _ in 0..reader.count()? {
                match (reader.length()?, reader.string()?) {
                    (PLAIN, element) => elements.push(element),
                    (PACKED, pack) => {
                        let values = packed::values(&pack)?;
                        reader.count_parts(values.len())?;
                        elements.extend(values.into_iter().map(Value::into_bytes));
                    }
                    _ => return Err(BAD),
                }
            }
            Whole::List(elements)
        }
        _ => return Err(BAD),
    };
    check(&whole)?;
    Ok(whole)
}

fn strings(reader: &mut Reader<'_>) -> Outcome<Vec<Bytes>> {
    (0..reader.count()?).map(|_| reader.string()).collect()
}

fn pairs(pack: &[u8]) -> Outcome<Vec<(Value, Value)>> {
    let (pairs, rest) =
        packed::values(pack)?.into_iter().fold((Vec::new(), None), |(mut pairs, first), value| match first {
            None => (pairs, Some(value)),
            Some(first) => {
                pairs.push((first, value));
                (pairs, None)
            }
        });
    if rest.is_some() { Err(BAD) } else { Ok(pairs) }
}

/// A score of the old form: a length and text, or one of three values.
fn text_score(reader: &mut Reader<'_>) -> Outcome<f64> {
    match reader.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length => number::double(reader.take(usize::from(length))?).ok_or(BAD),
    }
}

/// Checks that a collection has elements, and each of them once.
fn check(whole: &Whole) -> Outcome {
    let is_right = match whole {
        Whole::String(_) => true,
        Whole::List(elements) => !elements.is_empty(),
        Whole::Set(members) => all_differ(members.iter()),
        Whole::Hash(pairs) => all_differ(pairs.iter().map(|(field, _)| field)),
        Whole::SortedSet(scored) => {
            scored.iter().all(|(_, score)| !score.is_nan()) && all_differ(scored.iter().map(|(member, _)| member))
        }
    };
    if is_right { Ok(()) } else { Err(BAD) }
}

/// Whether there are names, all of them different.
fn all_differ<'n>(names: impl Iterator<Item = &'n Bytes>) -> bool {
    let (mut seen, mut count) = (HashSet::default(), 0);
    names.for_each(|name| {
        seen.insert(name);
        count += 1;
    });
    count > 0 && seen.len() == count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dump::packed::Listpack;
    use crate::commands::dump::reader::MAX_PARTS;
    use proptest::prelude::*;

    fn whole() -> impl Strategy<Value = Whole> {
        let word = || prop::collection::vec(any::<u8>(), 0..100).prop_map(Bytes::from);
        let words = || prop::collection::btree_set(word(), 1..20);
        prop_oneof![
            word().prop_map(Whole::String),
            prop::collection::vec(word(), 1..20).prop_map(Whole::List),
            words().prop_map(|words| Whole::Set(words.into_iter().collect())),
            words().prop_map(|words| Whole::Hash(words.iter().map(|word| (word.clone(), word.clone())).collect())),
            (words(), -1e9..1e9)
                .prop_map(|(words, score)| Whole::SortedSet(words.into_iter().map(|word| (word, score)).collect())),
        ]
    }

    /// Compressed parts of a list are short, and may have very many elements.
    #[test]
    fn the_elements_of_a_list_are_counted() {
        let mut pack = Listpack::new();
        (0..3).for_each(|number| pack.integer(number));
        let pack = pack.into_bytes();
        let mut bytes = vec![2];
        for _ in 0..2 {
            put_length(&mut bytes, PACKED);
            put_string(&mut bytes, &pack);
        }
        // Two parts of three elements.
        for (most, is_taken) in [(8, true), (7, false)] {
            let mut reader = Reader::new(&bytes);
            reader.count_parts(MAX_PARTS - most).unwrap();
            assert_eq!(read(18, &mut reader).is_ok(), is_taken);
        }
    }

    proptest! {
        #[test]
        fn values_survive(whole in whole()) {
            let bytes = write(&whole);
            let (kind, rest) = bytes.split_first().unwrap();
            let mut reader = Reader::new(rest);
            prop_assert_eq!(read(*kind, &mut reader).unwrap(), whole);
            prop_assert!(reader.0.is_empty());
        }

        #[test]
        fn any_bytes_are_a_value_or_refused(kind in 0_u8..20, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(kind, &mut Reader::new(&bytes));
        }
    }
}
