//! Building a point index: one counting pass, one placing pass.

use super::bits::{store, width};
use super::length_code::LengthCoding;
use super::{
    EntryShape, FEWEST_FINGERPRINT_BITS, FRAME, MAX_ENTRY_BITS, PADDING_BYTES, SegmentSpan, TOO_LARGE, bucket,
};
use crate::error::{Error, Result};
use forebay_base::Writer;

/// The trade-off of a point index between bytes and false positives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointIndexOptions {
    /// Bits of a fingerprint, 4 to 24. Fewer are used when an entry would not fit into 57 bits.
    pub fingerprint_bits: u32,
    /// Average number of entries in a bucket.
    pub load: u32,
}

impl Default for PointIndexOptions {
    fn default() -> Self {
        Self { fingerprint_bits: 12, load: 8 }
    }
}

/// An entry to index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointEntry {
    pub hash: u64,
    pub offset_units: u64,
    pub ordinal: u32,
    /// Length in bytes without padding.
    pub length: u32,
}

/// Appends the point index of `entries`. They may come in any order, except that the versions of
/// one key come newest first. Each is within the span of its segment.
pub(crate) fn build(
    out: &mut Vec<u8>,
    spans: &[SegmentSpan],
    entries: &[PointEntry],
    options: PointIndexOptions,
) -> Result<()> {
    let count = u32::try_from(entries.len()).map_err(|_| Error::Invalid("the table has too many entries"))?;
    let mut total_units = 0u64;
    let mut bases = Vec::with_capacity(spans.len());
    for span in spans {
        bases.push(total_units);
        total_units = total_units.checked_add(span.span_units).ok_or(TOO_LARGE)?;
    }
    let shortest = entries.iter().map(|entry| entry.length).min().unwrap_or(0);
    let longest = entries.iter().map(|entry| entry.length).max().unwrap_or(0);
    let (coding, length_bits) = LengthCoding::choose(shortest, longest);
    let location_bits = width(total_units.saturating_sub(1));
    let room = MAX_ENTRY_BITS.checked_sub(location_bits + length_bits).ok_or(TOO_LARGE)?;
    if room < FEWEST_FINGERPRINT_BITS {
        return Err(TOO_LARGE);
    }
    let fingerprint_bits = options.fingerprint_bits.clamp(FEWEST_FINGERPRINT_BITS, 24).min(room);
    let shape = EntryShape { fingerprint_bits, location_bits, length_bits };
    let bucket_count = count.div_ceil(options.load.max(1)).max(1);

    let mut positions = vec![0u32; bucket_count as usize + 1];
    for entry in entries {
        positions[bucket(entry.hash, bucket_count) as usize + 1] += 1;
    }
    for i in 1..positions.len() {
        positions[i] += positions[i - 1];
    }
    let entries_bytes = (u64::from(count) * u64::from(shape.total_bits())).div_ceil(8) as usize;
    let mut packed = vec![0u8; entries_bytes + PADDING_BYTES];
    let mut cursors = positions.clone();
    for entry in entries {
        let cursor = &mut cursors[bucket(entry.hash, bucket_count) as usize];
        let (base, span) = (bases[entry.ordinal as usize], &spans[entry.ordinal as usize]);
        let location = base + (entry.offset_units - span.first_unit);
        let word = shape.pack(shape.fingerprint(entry.hash), location, coding.encode(entry.length).into());
        store(&mut packed, *cursor, shape.total_bits(), word);
        *cursor += 1;
    }

    FRAME.encode(out, |body| {
        body.put_u32(count);
        body.put_u32(bucket_count);
        body.put_u32(spans.len() as u32);
        body.put_u32(coding.smallest_code());
        for bits in [fingerprint_bits, location_bits, length_bits, coding.mantissa_bits()] {
            body.put_u8(bits as u8);
        }
        body.put_u32(0);
        for span in spans {
            body.put_u64(span.id.0);
            body.put_u64(span.first_unit);
            body.put_u64(span.span_units);
        }
        for position in positions {
            body.put_u32(position);
        }
        body.extend_from_slice(&packed);
    })
}
