//! The positions of each bucket's entries, as a compute node keeps them.
//!
//! An image has four bytes for each bucket (see the drawing in the module above). Here twelve
//! buckets share sixteen bytes, a third of that. The first step of a lookup cannot overlap with
//! other work, so this makes cache misses in it rarer.
//!
//! ```text
//!  group of 12 buckets, aligned to 16 bytes
//!  u32       position of the first entry
//!  u8 × 12   entries from there to the end of each bucket
//! ```
//!
//! An index in which a group has more than 255 entries (a key with many versions) keeps the image's
//! positions instead. The image's layout: `docs/formats/point-index.md`.

use std::ops::Range;
use std::sync::Arc;

const GROUP_BUCKETS: usize = 12;
const POSITION_BYTES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(16))]
pub(super) struct Group {
    first: u32,
    ends: [u8; GROUP_BUCKETS],
}

const _: () = assert!(size_of::<Group>() == 16);

#[derive(Debug, Clone)]
pub(super) enum Buckets {
    /// Groups of buckets. Surplus buckets of the last group are empty.
    Groups(Arc<[Group]>),
    /// As in the image.
    Positions(Arc<[u8]>),
}

/// Position `index` of an image, or none.
#[inline]
fn position(positions: &[u8], index: usize) -> Option<u32> {
    positions.get(POSITION_BYTES * index..)?.first_chunk().copied().map(u32::from_le_bytes)
}

impl Buckets {
    /// Takes an image's positions; there is one more than there are buckets.
    pub(super) fn new(positions: &[u8]) -> Self {
        match grouped(positions) {
            Some(groups) => Self::Groups(groups),
            None => Self::Positions(positions.into()),
        }
    }

    /// The entries of a bucket; none for a bucket that does not exist.
    #[inline]
    pub(super) fn entries(&self, bucket: u32) -> Range<u32> {
        let bucket = bucket as usize;
        match self {
            Self::Groups(groups) => {
                let Some(group) = groups.get(bucket / GROUP_BUCKETS) else { return 0..0 };
                let within = bucket % GROUP_BUCKETS;
                let before = if within == 0 { 0 } else { group.ends[within - 1] };
                group.first + u32::from(before)..group.first + u32::from(group.ends[within])
            }
            Self::Positions(positions) => {
                let both = (position(positions, bucket), position(positions, bucket + 1));
                if let (Some(first), Some(end)) = both { first..end } else { 0..0 }
            }
        }
    }

    /// Bytes of the line that [`Buckets::entries`] reads.
    #[inline]
    pub(super) fn line(&self, bucket: u32) -> &[u8] {
        let bucket = bucket as usize;
        match self {
            Self::Groups(groups) => groups.get(bucket / GROUP_BUCKETS).map_or(&[], |group| &group.ends),
            Self::Positions(positions) => {
                let at = POSITION_BYTES * bucket;
                positions.get(at..at + 2 * POSITION_BYTES).unwrap_or_default()
            }
        }
    }

    /// Bytes that the positions take in memory.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Groups(groups) => size_of_val(&**groups),
            Self::Positions(positions) => positions.len(),
        }
    }
}

/// The groups, unless one has too many entries or the positions are not in order.
fn grouped(positions: &[u8]) -> Option<Arc<[Group]>> {
    let buckets = (positions.len() / POSITION_BYTES).checked_sub(1)?;
    let group = |from: usize| {
        let first = position(positions, from)?;
        let mut ends = [0; GROUP_BUCKETS];
        let mut before = 0;
        for (within, end) in ends.iter_mut().enumerate() {
            let bucket = (from + within).min(buckets - 1);
            *end = u8::try_from(position(positions, bucket + 1)?.checked_sub(first)?).ok()?;
            if *end < before {
                return None;
            }
            before = *end;
        }
        Some(Group { first, ends })
    };
    (0..buckets).step_by(GROUP_BUCKETS).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(positions: &[u32]) -> Vec<u8> {
        positions.iter().flat_map(|position| position.to_le_bytes()).collect()
    }

    /// Checks that the ranges equal the image's, in either representation.
    fn assert_same(positions: &[u32], is_grouped: bool) {
        let buckets = Buckets::new(&image(positions));
        assert_eq!(matches!(buckets, Buckets::Groups(_)), is_grouped, "{positions:?}");
        for (bucket, both) in positions.windows(2).enumerate() {
            assert_eq!(buckets.entries(bucket as u32), both[0]..both[1], "bucket {bucket}");
            assert!(!buckets.line(bucket as u32).is_empty());
        }
    }

    #[test]
    fn groups_say_what_positions_say() {
        for count in [2, 3, 12, 13, 14, 25, 26, 100] {
            assert_same(&(0..count).map(|at| at * 8).collect::<Vec<_>>(), true);
            assert_same(&(0..count).map(|at| at / 5).collect::<Vec<_>>(), true);
        }
        assert_same(&[0, 255], true);
    }

    #[test]
    fn what_fits_no_group_is_kept_as_it_is() {
        assert_same(&[0, 256], false);
        assert_same(&(0..30).map(|at| at * 100).collect::<Vec<_>>(), false);
        assert_same(&[0, 4, 2, 8], false);
    }

    #[test]
    fn a_bucket_that_is_not_there_has_no_entries() {
        for positions in [&[0, 8, 16][..], &[0, 300, 600]] {
            let buckets = Buckets::new(&image(positions));
            for bucket in [12, 1_000, u32::MAX] {
                assert!(buckets.entries(bucket).is_empty());
            }
        }
        assert!(Buckets::new(&[]).entries(0).is_empty());
    }

    #[test]
    fn twelve_buckets_take_sixteen_bytes() {
        let positions: Vec<_> = (0..=1_200).map(|at| at * 8).collect();
        assert_eq!(Buckets::new(&image(&positions)).size_bytes(), 1_600);
    }
}
