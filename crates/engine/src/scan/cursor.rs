//! Sources of a scan: memtables and tables as sorted streams of entries, in either direction.
//!
//! Only after the merge is it known which records a scan needs, so a source says where a record is. It reads records
//! itself only where they are stored in key order with nothing else between them.

use crate::scan::delegated::DelegatedCursor;
use crate::scan::found::{Filled, Location, goes_on};
use crate::scan::level_cursor::LevelCursor;
use crate::scan::scan_batch::ScanBatch;
use crate::scan::visibility::{Verdict, Visibility};
use crate::terms::{Error, Result};
use forebay_base::InternalKey;
use forebay_memtable::OwnedCursor;
use forebay_table::merge::Rival;
use forebay_table::{Direction, SortedStream};

/// A source of a scan.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Level(Box<LevelCursor>),
    /// The first entries of all tables, if a memory node returned them.
    Delegated(DelegatedCursor),
}

impl Source {
    /// Goes to the first entry from `target` on in `direction`; without a target, from the end. The source then moves
    /// in that direction.
    pub(crate) fn seek(&mut self, direction: Direction, target: Option<InternalKey<'_>>) -> Result<()> {
        match self {
            Self::Memtable(source) => source.seek(direction, target),
            Self::Level(source) => source.seek(direction, target),
            Self::Delegated(source) => {
                source.clear();
                Ok(())
            }
        }
    }

    /// Goes forward from the current entry, and adds what is shown to `batch`, as long as the source comes before its
    /// `rival` and the batch has fewer than `limit` entries.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt`.
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        match self {
            Self::Memtable(source) => source.fill(batch, visibility, limit, rival),
            Self::Level(source) => source.fill(batch, visibility, limit, rival),
            Self::Delegated(source) => source.fill(batch, visibility, limit, rival),
        }
    }

    /// The current entry's expiry.
    pub(crate) fn expiry_ms(&self) -> Result<Option<u64>> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.record()?.and_then(|found| found.record.expiry_ms)),
            Self::Level(source) => Ok(source.expiry_ms()),
            Self::Delegated(source) => Ok(source.expiry_ms()),
        }
    }

    /// Where the current entry's value is.
    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.record()?.map(|found| Location::Local(found.record.value))),
            Self::Level(source) => source.location(),
            Self::Delegated(source) => source.location(),
        }
    }
}

impl SortedStream for Source {
    type Error = Error;

    fn key(&self) -> Option<InternalKey<'_>> {
        match self {
            Self::Memtable(source) => source.key(),
            Self::Level(source) => source.key(),
            Self::Delegated(source) => source.key(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memtable(source) => source.advance(),
            Self::Level(source) => source.advance(),
            Self::Delegated(source) => {
                source.advance();
                Ok(())
            }
        }
    }
}

/// A memtable.
pub(crate) struct MemtableCursor {
    cursor: OwnedCursor,
    direction: Direction,
}

impl MemtableCursor {
    pub(crate) const fn new(cursor: OwnedCursor) -> Self {
        Self { cursor, direction: Direction::Forward }
    }

    fn seek(&mut self, direction: Direction, target: Option<InternalKey<'_>>) -> Result<()> {
        self.direction = direction;
        match (direction, target) {
            (Direction::Forward, None) => self.cursor.seek_to_first()?,
            (Direction::Forward, Some(target)) => self.cursor.seek(target)?,
            (Direction::Backward, None) => self.cursor.seek_to_last()?,
            (Direction::Backward, Some(target)) => self.cursor.seek_for_prev(target)?,
        }
        Ok(())
    }

    /// See [`Source::fill`].
    fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        while let Some(found) = self.cursor.record()? {
            let key = InternalKey { user_key: found.record.key, tag: found.record.tag };
            match visibility.decide(key, found.record.expiry_ms) {
                Verdict::Shown => {
                    batch.add(key.user_key, Some(Location::Local(found.record.value)))?;
                    batch.expires(found.record.expiry_ms);
                }
                Verdict::Merged => batch.add_merged(key.user_key),
                Verdict::Hidden => {}
                Verdict::Outside => return Ok(Filled::End),
            }
            self.advance()?;
            if !batch.has_room(limit) || !self.key().is_some_and(|key| goes_on(rival, key.user_key)) {
                break;
            }
        }
        Ok(Filled::Some)
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        // A cursor fails only over overwritten memory, and then its next move also fails.
        let found = self.cursor.record().ok().flatten()?;
        Some(InternalKey { user_key: found.record.key, tag: found.record.tag })
    }

    fn advance(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.cursor.next()?,
            Direction::Backward => self.cursor.prev()?,
        }
        Ok(())
    }
}
