//! For a job that reads or writes storage: where its objects are stored, and what its owner allows an executor to do with
//! them. This header comes before the job's arguments.
//!
//! ```text
//!   0   4 "FBos"
//!   4   1 version (1 without signed names, 2 with)
//!   5   1 1 if the outputs go to storage
//!   6   1 compression of outputs: 0 none, 1 LZ4, 2 Zstandard
//!   7   1 level of Zstandard
//!   8   4 bytes of a block of outputs
//!  12   8 epoch that outputs are named by
//!  20   2 length of the prefix
//!  22   … prefix of the names of the shard's objects
//!         version 2: 2 names signed to be read, 2 names signed to be written, together at least one; each
//!           2 length of the name │ name │ 2 length of the URL │ URL
//!   …   4 CRC32C of all that is before
//! ```
//!
//! An output is named by the epoch and by its segment's number, and each attempt has numbers of its own
//! ([`Attempt::numbers`]), so no attempt ever writes what another one has written.
//!
//! A signed name is a URL that lets its holder do one thing to one object until a moment that the URL says. So an
//! executor needs no rights of its own. The URL is a secret: nothing here shows it.
//!
//! Purpose and golden test: `docs/formats/offload-storage.md`.

use crate::job::Attempt;
use forebay_base::{DecodeError, Reader, Writer, checksum};
use std::fmt;
use std::ops::Range;

const MAGIC: &[u8; 4] = b"FBos";
/// The version without signed names.
const PLAIN: u8 = 1;
/// The version with signed names.
const SIGNED: u8 = 2;
const CHECKSUM_BYTES: usize = 4;
/// Longest prefix, and longest name, in bytes.
const MAX_PREFIX_BYTES: usize = 1024;
/// Most signed names of a job.
pub const MAX_SIGNED_NAMES: usize = 4096;
/// Longest URL of a signed name, in bytes.
pub const MAX_URL_BYTES: usize = 8192;
/// Parts into which the numbers of a job's outputs are divided, for its attempts.
const PARTS: u64 = 8;

/// The name of an object, and a URL that allows one operation on it for a while.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedName {
    /// The object, as the database names it.
    pub name: String,
    /// The URL: a secret.
    pub url: String,
}

impl fmt::Debug for SignedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SignedName").field(&self.name).finish()
    }
}

/// What the owner of a job has signed: all that the job reads and writes, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SignedNames {
    /// Objects that may be read, also by ranges.
    pub reads: Vec<SignedName>,
    /// Objects that may be put.
    pub writes: Vec<SignedName>,
}

impl SignedNames {
    /// Whether nothing is signed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Whether the names can be encoded.
    #[must_use]
    pub fn are_within_limits(&self) -> bool {
        let fits = |name: &SignedName| name.name.len() <= MAX_PREFIX_BYTES && name.url.len() <= MAX_URL_BYTES;
        let all = || self.reads.iter().chain(&self.writes);
        all().count() <= MAX_SIGNED_NAMES && all().all(fits)
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlace {
    /// Prefix of the names of the shard's objects.
    pub prefix: String,
    /// The epoch that outputs are named by.
    pub epoch: u64,
    /// Whether outputs go to storage.
    pub has_outputs: bool,
    /// How outputs are compressed: 0 not at all, 1 LZ4, 2 Zstandard.
    pub compression: u8,
    /// Level of Zstandard.
    pub level: u8,
    /// Bytes of a block of outputs.
    pub block_bytes: u32,
    /// What the owner has signed, within limits.
    pub signed: SignedNames,
}

impl StoredPlace {
    /// Appends it to `out`. Signed names that are not within limits are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        let signed = Some(&self.signed).filter(|signed| !signed.is_empty() && signed.are_within_limits());
        let version = if signed.is_some() { SIGNED } else { PLAIN };
        out.extend_from_slice(&[version, u8::from(self.has_outputs), self.compression, self.level]);
        out.put_u32(self.block_bytes);
        out.put_u64(self.epoch);
        put_text(out, &self.prefix, MAX_PREFIX_BYTES);
        if let Some(SignedNames { reads, writes }) = signed {
            out.put_u16(reads.len() as u16);
            out.put_u16(writes.len() as u16);
            for SignedName { name, url } in reads.iter().chain(writes) {
                put_text(out, name, MAX_PREFIX_BYTES);
                put_text(out, url, MAX_URL_BYTES);
            }
        }
        let checksum = checksum(out.get(start..).unwrap_or_default());
        out.put_u32(checksum);
    }

    /// Decodes the place at the beginning of `bytes`. Returns it with its length.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let bad = |what, found: u64| DecodeError::BadValue { what, found };
        let mut reader = Reader::new(bytes);
        if reader.bytes(MAGIC.len())? != MAGIC {
            return Err(bad("magic of a place in storage", 0));
        }
        let (version, outputs) = (reader.u8()?, reader.u8()?);
        if ![PLAIN, SIGNED].contains(&version) || outputs > 1 {
            return Err(bad("version of a place in storage", u64::from(version) << 8 | u64::from(outputs)));
        }
        let (compression, level, block_bytes) = (reader.u8()?, reader.u8()?, reader.u32()?);
        let epoch = reader.u64()?;
        let prefix = take_text(&mut reader, "prefix of names", MAX_PREFIX_BYTES)?;
        let signed = if version == PLAIN { SignedNames::default() } else { take_signed(&mut reader)? };
        let covered = reader.offset();
        let expected = reader.u32()?;
        if checksum(bytes.get(..covered).unwrap_or_default()) != expected {
            return Err(bad("checksum of a place in storage", expected.into()));
        }
        let has_outputs = outputs == 1;
        let place = Self { prefix, epoch, has_outputs, compression, level, block_bytes, signed };
        Ok((place, covered + CHECKSUM_BYTES))
    }
}

fn put_text(out: &mut Vec<u8>, text: &str, most_bytes: usize) {
    let text = text.as_bytes().get(..most_bytes).unwrap_or(text.as_bytes());
    out.put_u16(text.len() as u16);
    out.extend_from_slice(text);
}

fn take_text(reader: &mut Reader<'_>, what: &'static str, most_bytes: usize) -> Result<String, DecodeError> {
    let length = reader.u16()?;
    let bad = DecodeError::BadValue { what, found: length.into() };
    if usize::from(length) > most_bytes {
        return Err(bad);
    }
    Ok(std::str::from_utf8(reader.bytes(length.into())?).map_err(|_| bad)?.to_owned())
}

fn take_signed(reader: &mut Reader<'_>) -> Result<SignedNames, DecodeError> {
    let (reads, writes) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
    if !(1..=MAX_SIGNED_NAMES).contains(&(reads + writes)) {
        return Err(DecodeError::BadValue { what: "number of signed names", found: (reads + writes) as u64 });
    }
    let mut take = |count| {
        let one = |_| {
            let name = take_text(reader, "signed name", MAX_PREFIX_BYTES)?;
            Ok(SignedName { name, url: take_text(reader, "URL of a signed name", MAX_URL_BYTES)? })
        };
        (0..count).map(one).collect::<Result<_, DecodeError>>()
    };
    Ok(SignedNames { reads: take(reads)?, writes: take(writes)? })
}

impl Attempt {
    /// Returns this attempt's part of a job's numbers for outputs.
    #[must_use]
    pub fn numbers(self, of_job: &Range<u64>) -> Range<u64> {
        part(of_job, u64::from(self.term.0).wrapping_mul(3).wrapping_add(u64::from(self.number)) % PARTS)
    }

    /// Returns all numbers that any attempt at a job may use, if each makes at most `most_outputs`.
    pub fn all_numbers(of_job: &Range<u64>, most_outputs: u64) -> impl Iterator<Item = u64> {
        let first =
            move |numbers: Range<u64>| numbers.start..numbers.end.min(numbers.start.saturating_add(most_outputs));
        (0..PARTS).flat_map(move |number| first(part(of_job, number)))
    }
}

/// Returns the part of a job's numbers with this index.
fn part(of_job: &Range<u64>, number: u64) -> Range<u64> {
    let length = of_job.end.saturating_sub(of_job.start) / PARTS;
    let start = of_job.start.saturating_add(number * length);
    start..start.saturating_add(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Term;
    use proptest::prelude::*;

    fn place() -> StoredPlace {
        let (prefix, signed) = ("db/s".into(), SignedNames::default());
        StoredPlace { prefix, epoch: 5, has_outputs: true, compression: 2, level: 3, block_bytes: 16384, signed }
    }

    fn name(name: &str, url: &str) -> SignedName {
        SignedName { name: name.into(), url: url.into() }
    }

    fn signed() -> StoredPlace {
        let (reads, writes) = (vec![name("a", "h:r")], vec![name("b/c", "h:w?s")]);
        StoredPlace { signed: SignedNames { reads, writes }, ..place() }
    }

    fn encoded(place: &StoredPlace) -> Vec<u8> {
        let mut bytes = Vec::new();
        place.encode(&mut bytes);
        bytes
    }

    #[test]
    fn golden_place() {
        let rest = "01020300400000050000000000000004006462 2f73";
        let names = "0100 0100 0100 61 0300 683a72 0300 622f63 0500 683a773f73";
        for (place, covered) in [
            (place(), format!("46426f73 01 {rest} 9a4a9851")),
            (signed(), format!("46426f73 02 {rest} {names} 714e50c6")),
        ] {
            let bytes = encoded(&place);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, covered.replace(' ', ""));
            assert_eq!(StoredPlace::decode(&bytes).unwrap(), (place, bytes.len()));
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(StoredPlace::decode(&changed).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn limits_are_kept() {
        let decoded = |reads, writes| {
            let place = StoredPlace { signed: SignedNames { reads, writes }, ..place() };
            StoredPlace::decode(&encoded(&place)).unwrap().0 == place
        };
        let names = |count| vec![name("n", "u"); count];
        assert!(decoded(names(MAX_SIGNED_NAMES / 2), names(MAX_SIGNED_NAMES / 2)));
        assert!(!decoded(names(MAX_SIGNED_NAMES / 2), names(MAX_SIGNED_NAMES / 2 + 1)), "all are left out");
        let long = |extra| vec![name(&"n".repeat(MAX_PREFIX_BYTES), &"u".repeat(MAX_URL_BYTES + extra))];
        assert!(decoded(long(0), vec![]) && !decoded(vec![], long(1)));
        let limits = |at: usize, bytes: [u8; 2]| {
            let mut changed = encoded(&signed());
            changed[at..at + 2].copy_from_slice(&bytes);
            let end = changed.len() - CHECKSUM_BYTES;
            let sum = checksum(&changed[..end]);
            changed[end..].copy_from_slice(&sum.to_le_bytes());
            StoredPlace::decode(&changed).unwrap_err().to_string()
        };
        let count = 26;
        assert!(limits(count, [0, 0x10]).contains("number of signed names"));
        assert!(limits(count + 4, [1, 4]).contains("signed name"));
        assert!(limits(count + 7, [1, 0x20]).contains("URL"));
    }

    #[test]
    fn signatures_are_not_shown() {
        let shown = format!("{:?}", signed());
        assert!(shown.contains("b/c") && !shown.contains("h:r") && !shown.contains("h:w"), "{shown}");
    }

    #[test]
    fn attempts_have_numbers_of_their_own() {
        let attempt = |term, number| Attempt { term: Term(term), number }.numbers(&(800..1600));
        assert_eq!((attempt(0, 1), attempt(0, 2), attempt(0, 3)), (900..1000, 1000..1100, 1100..1200));
        // Also the numbers of the next term.
        assert_eq!((attempt(1, 1), attempt(1, 3)), (1200..1300, 1400..1500));
        assert!(Attempt { term: Term(u32::MAX), number: u32::MAX }.numbers(&(0..0)).is_empty());
        let all = |most| Attempt::all_numbers(&(800..1600), most).collect::<Vec<_>>();
        assert_eq!(all(2), (8..16).flat_map(|part| [part * 100, part * 100 + 1]).collect::<Vec<_>>());
        assert!(all(u64::MAX) == (800..1600).collect::<Vec<_>>() && all(0).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_place_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((place, length)) = StoredPlace::decode(&bytes) {
                let mut again = Vec::new();
                place.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }
    }
}
