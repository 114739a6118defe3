//! Finds records in unknown bytes: a header says how long a record is, and its checksum that it is one.

use forebay_base::record::ALIGNMENT;
use forebay_base::{Record, RecordHeader};
use std::ops::Range;

/// Where whole records are in `bytes`, ascending. What is no record, because it was damaged or never written, is
/// skipped.
pub(crate) fn find(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, Record<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let start = at;
            if let Ok(header) = RecordHeader::decode(rest)
                && let Ok(record) = Record::decode(rest)
            {
                at = at.saturating_add(header.padded_length());
                return Some((start..start + header.length(), record));
            }
            at = at.saturating_add(ALIGNMENT);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Record, SequenceNumber};
    use proptest::prelude::*;

    #[test]
    fn records_behind_damage_are_found() {
        let mut bytes = Vec::new();
        for number in 1..=5 {
            Record::put(SequenceNumber(number), b"key", &[7; 20]).encode(&mut bytes);
        }
        let numbers = |bytes: &[u8]| find(bytes).map(|(_, record)| record.tag.sequence().0).collect::<Vec<_>>();
        assert_eq!(numbers(&bytes), [1, 2, 3, 4, 5]);
        bytes[90] ^= 1;
        assert_eq!(numbers(&bytes), [1, 2, 4, 5]);
        bytes.resize(bytes.len() + 100, 0);
        assert_eq!(numbers(&bytes), [1, 2, 4, 5]);
        assert!(numbers(&bytes[..30]).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_panic(bytes: Vec<u8>) {
            find(&bytes).for_each(drop);
        }
    }
}
