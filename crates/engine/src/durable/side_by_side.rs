//! Copies of a segment, read piece by piece at the same places, with the damage to what is used of them (see `whole`,
//! `used`).

use crate::durable::used::Used;
use crate::durable::whole::{self, Damage};
use crate::remote::endpoints::Pooled;
use crate::remote::pipeline::read_range;
use crate::remote::segment::Segment;
use crate::terms::Error;
use forebay_table::SegmentKind;
use std::ops::Range;

/// Bytes of a piece, unless it is an image or has a longer record.
const PIECE_BYTES: u64 = 4 << 20;

/// See the module.
pub(crate) struct SideBySide<'a> {
    copies: Vec<(&'a Segment, Pooled)>,
    used: &'a Used,
    kind: SegmentKind,
    length: u64,
    next: u64,
    piece: u64,
}

/// A part of a segment that was read.
pub(crate) struct Piece {
    pub(crate) offset: u64,
    /// The bytes of each copy.
    pub(crate) bytes: Vec<Vec<u8>>,
    /// Places count from `offset`.
    pub(crate) damage: Vec<Damage>,
}

impl Piece {
    /// The bytes of the first copy, with damaged ones taken from copies that have them whole; and the ranges that
    /// nobody has.
    pub(crate) fn mended(self) -> (Vec<u8>, Vec<Range<u64>>) {
        let mut bytes = self.bytes.into_iter().next().unwrap_or_default();
        let mut lost = Vec::new();
        for damage in self.damage.into_iter().filter(|damage| damage.copies.contains(&0)) {
            match (damage.whole, bytes.get_mut(damage.at.clone())) {
                (Some(whole), Some(place)) if place.len() == whole.len() => place.copy_from_slice(&whole),
                _ => lost.push(self.offset + damage.at.start as u64..self.offset + damage.at.end as u64),
            }
        }
        (bytes, lost)
    }

    /// Whether the first copy is damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage.iter().any(|damage| damage.copies.contains(&0))
    }
}

/// Why a piece was not read: the place of the copy that failed.
pub(crate) type Failed = (usize, Error);

impl<'a> SideBySide<'a> {
    /// The copies from `offset` on, where a piece began before.
    pub(crate) fn new(copies: &[&'a Segment], used: &'a Used, offset: u64) -> std::result::Result<Self, Failed> {
        let open = |(number, copy): (usize, &&'a Segment)| match copy.remote().background() {
            Ok(endpoint) => Ok((*copy, endpoint)),
            Err(error) => Err((number, error)),
        };
        let kind = copies.first().map_or(SegmentKind::Run, |copy| copy.info().kind);
        let length = copies.iter().map(|copy| copy.info().length).min().unwrap_or(0);
        let copies = copies.iter().enumerate().map(open).collect::<std::result::Result<_, _>>()?;
        Ok(Self { copies, used, kind, length, next: offset, piece: PIECE_BYTES })
    }

    /// The next piece; `None` after the last.
    pub(crate) fn next(&mut self) -> std::result::Result<Option<Piece>, Failed> {
        while self.next < self.length {
            let rest = self.length - self.next;
            let length = if self.kind == SegmentKind::TableImage { rest } else { self.piece.min(rest) };
            let mut bytes = Vec::with_capacity(self.copies.len());
            for (number, (copy, endpoint)) in self.copies.iter_mut().enumerate() {
                let read = copy.at(self.next).and_then(|from| read_range(endpoint, from, length));
                bytes.push(read.map_err(|error| (number, error))?);
            }
            let read: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
            let (judged, damage) = match self.kind {
                SegmentKind::TableImage => (length as usize, whole::image(&read)),
                SegmentKind::MemtableBlock | SegmentKind::Run => whole::records(&read, length == rest),
            };
            if judged == 0 {
                // A record is longer than the piece.
                self.piece = self.piece.saturating_mul(4);
                continue;
            }
            let offset = self.next;
            self.next += judged as u64;
            self.piece = PIECE_BYTES;
            bytes.iter_mut().for_each(|bytes| bytes.truncate(judged));
            let matters = |damage: &Damage| {
                let at = offset + damage.at.start as u64..offset + damage.at.end as u64;
                self.copies.first().is_some_and(|(copy, _)| self.used.matters(copy, &at, damage.whole.is_some()))
            };
            let damage = damage.into_iter().filter(matters).collect();
            return Ok(Some(Piece { offset, bytes, damage }));
        }
        Ok(None)
    }
}
