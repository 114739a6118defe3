//! Sources of a scan: memtables and tables as sorted streams of entries, in either direction.
//!
//! Which records a scan needs is known after the merge, so a source tells where a record is. It reads
//! records only where they lie in key order and nothing else lies between them.

use crate::level_cursor::LevelCursor;
use crate::run_reader::{RunReader, RunRecord};
use crate::scan_batch::ScanBatch;
use crate::visibility::Visibility;
use crate::{Error, Result};
use forebay_base::{InternalKey, LogicalAddress};
use forebay_fabric::RemoteAddress;
use forebay_memory_client::ExtentId;
use forebay_memtable::OwnedCursor;
use forebay_table::{Direction, SortedStream};

/// A source of a scan.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Level(Box<LevelCursor>),
}

/// What came of filling a batch from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Nothing: entries have to be taken one by one.
    Not,
    /// The source went on.
    Some,
    /// All that is shown was passed.
    End,
}

/// Where an entry's value is.
pub(crate) enum Location<'s> {
    /// Here.
    Local(&'s [u8]),
    /// In a record that a run's reader brought.
    Run { reader: &'s RunReader, record: &'s RunRecord },
    /// In a record of remote memory.
    Remote {
        /// For error messages.
        logical: LogicalAddress,
        /// Where the record starts, to read it.
        address: RemoteAddress,
        /// The same, to have it brought.
        extent: ExtentId,
        /// Length of the record, without padding.
        length: u32,
    },
}

impl Source {
    /// Goes to the first entry from `target` on in `direction`, in which the source then moves; from
    /// the end without a target.
    pub(crate) fn seek(&mut self, direction: Direction, target: Option<InternalKey<'_>>) -> Result<()> {
        match self {
            Self::Memtable(source) => source.seek(direction, target),
            Self::Level(source) => source.seek(direction, target),
        }
    }

    /// Goes forward, adding what is shown to `batch`, up to `limit` entries of it or for as long as
    /// this works.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt`.
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
    ) -> Result<Filled> {
        match self {
            Self::Memtable(_) => Ok(Filled::Not),
            Self::Level(source) => source.fill(batch, visibility, limit),
        }
    }

    /// Where the current entry's value is.
    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.record()?.map(|found| Location::Local(found.record.value))),
            Self::Level(source) => source.location(),
        }
    }
}

impl SortedStream for Source {
    type Error = Error;

    fn key(&self) -> Option<InternalKey<'_>> {
        match self {
            Self::Memtable(source) => source.key(),
            Self::Level(source) => source.key(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memtable(source) => source.advance(),
            Self::Level(source) => source.advance(),
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

    fn key(&self) -> Option<InternalKey<'_>> {
        // A cursor fails only over overwritten memory, and then its next move fails too.
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
