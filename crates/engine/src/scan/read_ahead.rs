//! A range of a segment, read in pieces ahead of their use, in either direction (dLSM VI, IX).
//!
//! ```text
//!   forward    [ … seen … | piece | asked for | asked for | not yet … ]
//!   backward   [ … not yet | asked for | asked for | piece | … seen … ]
//! ```
//!
//! Pieces double up to a length, [`MAX_PIECE_BYTES`] at most: a short scan reads little, a long one streams. Pieces from
//! storage are longer and grow faster, as a request takes longer there. Once a scan streams, [`AHEAD`] reads are kept in
//! flight after the piece in use. How far the scan goes is an estimate. Beyond it, nothing is read ahead of need, and a
//! scan that still continues begins small again.

use crate::remote::segment::Segment;
use crate::scan::scan_endpoint::{Asked, SharedEndpoint};
use crate::terms::Result;
use forebay_env::sync::lock;
use forebay_fabric::Slot;
use forebay_table::Direction;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the first piece of records.
pub(crate) const FIRST_PIECE_BYTES: u64 = 8 << 10;
/// Maximum bytes of a piece. Larger ones are no faster and would not stay in the cache until they are used.
pub(crate) const MAX_PIECE_BYTES: u64 = 256 << 10;
/// The same for many runs that are read side by side.
pub(crate) const LEAST_PIECE_BYTES: u64 = 32 << 10;
/// A piece from storage is this many times longer: a request there takes longer than one to memory.
const STORED_SCALE: u64 = 4;
/// Reads in flight once the scan streams.
const AHEAD: usize = 2;

/// See the module.
pub(crate) struct ReadAhead {
    segment: Arc<Segment>,
    endpoint: SharedEndpoint,
    direction: Direction,
    /// How many times longer than otherwise pieces are.
    scale: u64,
    /// The part of the range that was not asked for yet.
    rest: Range<u64>,
    /// How much of `rest` the scan needs, as far as is known.
    likely_bytes: u64,
    next_bytes: u64,
    /// Maximum bytes of a piece.
    most_bytes: u64,
    /// Bytes that were wanted of the last piece. The range's end may have made the piece shorter.
    last_bytes: u64,
    asked: VecDeque<(u64, Asked)>,
}

impl ReadAhead {
    /// Reads `range` in `direction`, from the end where that direction begins. Of the range, the scan needs about what
    /// is within `likely`. The first piece has `first_bytes`, and no piece more than `most_bytes`.
    pub(crate) fn new(
        segment: Arc<Segment>,
        endpoint: SharedEndpoint,
        direction: Direction,
        range: Range<u64>,
        likely: &Range<u64>,
        first_bytes: u64,
        most_bytes: u64,
    ) -> Self {
        let likely_bytes = match direction {
            Direction::Forward => likely.end.saturating_sub(range.start),
            Direction::Backward => range.end.saturating_sub(likely.start),
        };
        let asked = VecDeque::new();
        let scale = if segment.is_stored() { STORED_SCALE } else { 1 };
        Self {
            segment,
            endpoint,
            direction,
            scale,
            rest: range,
            likely_bytes,
            next_bytes: first_bytes,
            most_bytes,
            last_bytes: first_bytes,
            asked,
        }
    }

    pub(crate) const fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns how many bytes were wanted of the last piece. A scan that continues elsewhere begins with this length,
    /// neither small nor larger.
    pub(crate) const fn last_bytes(&self) -> u64 {
        self.last_bytes
    }

    /// Returns the next piece, and where in the segment it begins; `None` after the last. `cut` moves the far end of a
    /// piece to a place where it may end: the piece that it returns must have at least one such place.
    ///
    /// # Errors
    /// Those of the fabric.
    pub(crate) fn next(&mut self, cut: impl Fn(Range<u64>) -> Range<u64>) -> Result<Option<(u64, Slot)>> {
        let mut endpoint = lock(&self.endpoint);
        let wanted = if self.next_bytes >= self.most_bytes { AHEAD + 1 } else { 1 };
        while self.asked.len() < wanted && !self.rest.is_empty() {
            if self.likely_bytes == 0 {
                if !self.asked.is_empty() {
                    break;
                }
                (self.likely_bytes, self.next_bytes) = (u64::MAX, FIRST_PIECE_BYTES);
            }
            let bytes = (self.next_bytes * self.scale).min(self.likely_bytes.max(FIRST_PIECE_BYTES));
            let piece = cut(self.piece(bytes));
            let bytes = piece.end - piece.start;
            let spot = self.segment.spot_at(endpoint.member(), piece.start)?;
            self.asked.push_back((piece.start, endpoint.ask(spot, bytes as usize)?));
            match self.direction {
                Direction::Forward => self.rest.start = piece.end,
                Direction::Backward => self.rest.end = piece.start,
            }
            self.likely_bytes = self.likely_bytes.saturating_sub(bytes);
            self.last_bytes = self.next_bytes.max(bytes).min(self.most_bytes);
            self.next_bytes = (self.last_bytes * 2).min(self.most_bytes);
        }
        endpoint.flush();
        let Some((start, asked)) = self.asked.pop_front() else { return Ok(None) };
        Ok(Some((start, endpoint.wait(asked)?)))
    }

    /// Returns the next `bytes` of the rest, or all of it if it has fewer.
    fn piece(&self, bytes: u64) -> Range<u64> {
        let Range { start, end } = self.rest;
        match self.direction {
            Direction::Forward => start..end.min(start.saturating_add(bytes)),
            Direction::Backward => start.max(end.saturating_sub(bytes))..end,
        }
    }

    /// Takes back a piece.
    pub(crate) fn release(&self, slot: Slot) {
        lock(&self.endpoint).release(slot);
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut endpoint = lock(&self.endpoint);
        self.asked.drain(..).for_each(|(_, asked)| endpoint.give_up(asked));
    }
}
