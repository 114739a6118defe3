//! The point read path (dLSM VI).
//!
//! ```text
//!   view = load; number = published        (in this order, see `shard`)
//!   memtables, newest first                no round trip
//!   probe of the cached point indexes      no round trip; says where a record may be
//!   lookup in those that are not held      one round trip for all of them (see `lookup`)
//!   read of exactly that record            one round trip; verified, or the next candidate
//! ```
//!
//! An endpoint may break while its link lives on: what it did not bring is read again over another,
//! a few times.
//!
//! A candidate may be another key's record (a fingerprint that collides, about 1 in 500 a table) or
//! a record that is too new for a snapshot; then the next one is read.
//!
//! Range deletions of memtables and tables are looked at where there are any: one hides what is
//! older than it, in its own source and in all older ones.

use crate::endpoints::Taken;
use crate::lookup;
use crate::probe::{Probe, Step};
use crate::shard::{Shard, View};
use crate::table::Table;
use crate::{Error, Result};
use forebay_base::{Kind, Record, SequenceNumber};
use forebay_fabric::{Endpoint, Outcome, Slot, WorkId};
use forebay_table::Candidate;

/// How often a call opens another endpoint in the place of one that broke.
const REOPENS: u32 = 3;

impl Shard {
    /// Hands the value of `key` to `found`, as of `snapshot` or now. `None` when there is none.
    #[inline]
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        snapshot: Option<SequenceNumber>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.find(key, snapshot, found).map_err(|error| self.judged(error))
    }

    fn find<T>(
        &self,
        key: &[u8],
        snapshot: Option<SequenceNumber>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.check_open()?;
        let view = self.view.load();
        let number = snapshot.unwrap_or_else(|| self.publication.published());
        let mut probe = view.version.probe(key, number);
        probe.approach();
        if let Some(value) = in_memtables(&view, key, number)? {
            return Ok(value.map(found));
        }
        if !probe.approach_entries() {
            self.check_open()?;
            return Ok(None);
        }
        // The index comes meanwhile.
        let mut endpoint = self.remote.foreground().take()?;
        let mut next = probe.next();
        while let Some(step) = next {
            match step {
                Step::Record(table, candidate) => {
                    let slot = self.read(&mut endpoint, table, candidate)?;
                    let record = verified(&slot, table, candidate)?;
                    if is_visible(&record, key, number) {
                        let value = value_of(record, probe.hidden()).map(found);
                        endpoint.release(slot);
                        return Ok(value);
                    }
                    endpoint.release(slot);
                }
                Step::Index => self.look_up(&mut endpoint, &mut [&mut probe])?,
            }
            next = probe.next();
        }
        drop(endpoint);
        self.check_open()?;
        Ok(None)
    }

    /// Lets probes that wait for a point index go on.
    #[cold]
    pub(crate) fn look_up(&self, endpoint: &mut Taken<'_>, probes: &mut [&mut Probe<'_>]) -> Result<()> {
        let mut reopens = 0;
        loop {
            match lookup::look_up(endpoint, probes) {
                Ok(()) => return Ok(()),
                Err(error) => self.reopen(endpoint, &mut reopens, error)?,
            }
        }
    }

    fn read(&self, endpoint: &mut Taken<'_>, table: &Table, candidate: Candidate) -> Result<Slot> {
        let address = table.segment(candidate.address.segment)?.at(candidate.address.offset);
        endpoint.approach(address, candidate.read_length as usize);
        let mut reopens = 0;
        loop {
            let id = post(endpoint, table, candidate)?;
            match endpoint.wait_for(id).map_err(Error::from) {
                Ok(outcome) => return received(outcome),
                Err(error) => self.reopen(endpoint, &mut reopens, error)?,
            }
        }
    }

    /// Opens another endpoint after a failure, or returns it when that would not help.
    pub(crate) fn reopen(&self, endpoint: &mut Taken<'_>, reopens: &mut u32, failure: Error) -> Result<()> {
        if *reopens == REOPENS || !self.remote.may_retry(&failure) {
            return Err(self.judged(failure));
        }
        tracing::debug!(%failure, "reading again over a new endpoint");
        *reopens += 1;
        endpoint.reopen()
    }
}

/// What the memtables say of a key, if they do: its value, or that it has none.
pub(crate) fn in_memtables<'v>(view: &'v View, key: &[u8], number: SequenceNumber) -> Result<Option<Option<&'v [u8]>>> {
    for buffer in view.buffers() {
        let found = buffer.memtable.get(key, number)?;
        let hidden = buffer.range_deletions.newest_over(key, number);
        if let Some(found) = found {
            return Ok(Some(value_of(found.record, hidden)));
        }
        if hidden.is_some() {
            return Ok(Some(None));
        }
    }
    Ok(None)
}

/// The value of a record, unless it is a deletion or older than the range deletion `hidden`.
#[inline]
pub(crate) fn value_of(record: Record<'_>, hidden: Option<SequenceNumber>) -> Option<&[u8]> {
    if hidden.is_some_and(|hidden| hidden > record.tag.sequence()) {
        return None;
    }
    match record.tag.kind() {
        Kind::Put => Some(record.value),
        Kind::Delete | Kind::RangeDelete | Kind::Merge => None,
    }
}

#[inline]
pub(crate) fn is_visible(record: &Record<'_>, key: &[u8], number: SequenceNumber) -> bool {
    record.key == key && record.tag.sequence() <= number
}

#[inline]
pub(crate) fn post(endpoint: &mut Endpoint, table: &Table, candidate: Candidate) -> Result<WorkId> {
    let segment = table.segment(candidate.address.segment)?;
    let length = segment.clip(candidate.address.offset, candidate.read_length.into());
    let slot = endpoint.slot(length)?;
    Ok(endpoint.post_read(segment.at(candidate.address.offset), slot)?)
}

#[inline]
pub(crate) fn received(outcome: Outcome) -> Result<Slot> {
    match outcome {
        Outcome::Read(slot) => Ok(slot),
        other => Err(Error::corrupt(format!("a read completed with {other:?}"))),
    }
}

pub(crate) fn verified<'s>(slot: &'s Slot, table: &Table, candidate: Candidate) -> Result<Record<'s>> {
    Record::decode(slot)
        .map_err(|error| Error::from(error).during(&format!("table {}, {}", table.id().0, candidate.address)))
}
