//! The point read path (dLSM VI).
//!
//! ```text
//!   view and number of this moment         the view shows all that the number covers, see `Tree::present`
//!   memtables, newest first                no round trip
//!   probe of the cached point indexes      no round trip; says where a record may be
//!   lookup in those that are not held      one round trip for all of them (see `lookup`), which may bring the record
//!   read of exactly that record            one round trip; verified, or the next candidate
//! ```
//!
//! All of it is read at one member of the shard. An endpoint may break while its link lives on. What it did not bring is read again
//! over another endpoint, a few times. If that does not help, the call begins again at another member.
//!
//! A candidate may be another key's record (colliding fingerprints, about 1 in 500 per table) or a
//! record too new for a snapshot. Then the next candidate is read.
//!
//! Range deletions of memtables and tables are checked where there are any. A range deletion hides
//! older entries in its own source and in all older ones.

use crate::read::found::Found;
use crate::read::lookup;
use crate::read::probe::{Probe, Step};
use crate::remote::endpoints::Taken;
use crate::remote::segment::Remote;
use crate::remote::spot::{Posted, Spot};
use crate::terms::planted::{Bug, planted};
use crate::terms::time::{Horizon, ReadTime};
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::{Tree, View};
use crate::tree::table::Table;
use forebay_base::{Record, SequenceNumber};
use forebay_fabric::{Endpoint, Slot};
use forebay_memtable::KeyHash;
use forebay_table::Candidate;
use std::sync::Arc;

/// How often a call replaces a broken endpoint.
const REOPENS: u32 = 3;

impl Tree {
    /// Passes the record that gives `key` its value, as of a snapshot or now, to `found`. `None` when there is no
    /// value.
    #[inline]
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        snapshot: Option<Horizon>,
        found: impl FnOnce(Record<'_>) -> T,
    ) -> Result<Option<T>> {
        let mut found = Some(found);
        let read = |at| self.find(at, key, snapshot, |record| found.take().map(|found| found(record)));
        self.wherever(read)
    }

    /// Does a read at the member where this thread reads, and again at others as long as that may help.
    ///
    /// # Errors
    /// What the failure of the read means. The member where it failed says so: others may not be taken over yet.
    #[inline]
    pub(crate) fn wherever<'t, T>(&'t self, mut read: impl FnMut(&'t Arc<Remote>) -> Result<T>) -> Result<T> {
        self.remote.wherever(|at| read(at).map_err(|error| self.why_failed_at(at, error)))
    }

    #[inline]
    fn find<T>(
        &self,
        at: &Arc<Remote>,
        key: &[u8],
        snapshot: Option<Horizon>,
        mut found: impl FnMut(Record<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        self.check_open()?;
        let (view, present) = self.present();
        let number = snapshot.map_or(present, |at| at.number);
        let time = snapshot.map_or(ReadTime::Now(&self.time), |at| ReadTime::At(at.time_ms));
        let mut probe = Probe::new(at, &self.learnt, &view.version, key, number);
        probe.approach();
        if let Some(newest) = in_memtables(&view, key, number)? {
            if newest.merges() {
                return self.get_merged_at(at, &view, key, (number, time), found);
            }
            return Ok(newest.with_value(time).and_then(found));
        }
        if !probe.approach_entries() {
            self.check_open()?;
            return Ok(None);
        }
        // The index arrives from memory meanwhile.
        let mut endpoint = at.foreground().take()?;
        let mut next = probe.next();
        while let Some(step) = next {
            match step {
                Step::Record(table, candidate) => {
                    let slot = self.read(at, &mut endpoint, table, candidate)?;
                    let record = verified(&slot, table, candidate)?;
                    if probe.accepts(table, candidate, &record) {
                        let newest = Found { record: Some(record), hidden: probe.hidden() };
                        if newest.merges() {
                            endpoint.release(slot);
                            drop(endpoint);
                            return self.get_merged_at(at, &view, key, (number, time), found);
                        }
                        let value = newest.with_value(time).and_then(&mut found);
                        endpoint.release(slot);
                        return Ok(value);
                    }
                    endpoint.release(slot);
                }
                Step::Delivered => {
                    let Some(bytes) = probe.take_delivered() else { break };
                    let newest = Found { record: Some(Record::decode(&bytes)?), hidden: probe.hidden() };
                    if newest.merges() {
                        drop(endpoint);
                        return self.get_merged_at(at, &view, key, (number, time), found);
                    }
                    return Ok(newest.with_value(time).and_then(found));
                }
                Step::Index => self.look_up(at, &mut endpoint, &mut [&mut probe])?,
            }
            next = probe.next();
        }
        drop(endpoint);
        self.check_open()?;
        Ok(None)
    }

    /// Lets probes continue that wait for a point index, at the node of a member.
    #[cold]
    pub(crate) fn look_up(&self, at: &Remote, endpoint: &mut Taken<'_>, probes: &mut [&mut Probe<'_>]) -> Result<()> {
        let mut reopens = 0;
        loop {
            match lookup::look_up(self, at, endpoint, probes) {
                Ok(()) => return Ok(()),
                Err(error) => self.reopen(at, endpoint, &mut reopens, error)?,
            }
        }
    }

    pub(crate) fn read(
        &self,
        at: &Remote,
        endpoint: &mut Taken<'_>,
        table: &Table,
        candidate: Candidate,
    ) -> Result<Slot> {
        let segment = table.segment(candidate.address.segment)?;
        let spot = segment.spot_at(at.member(), candidate.address.offset)?;
        if let Spot::Memory { address, .. } = spot {
            endpoint.approach(address, candidate.read_length as usize);
        }
        let length = segment.clip(candidate.address.offset, candidate.read_length.into());
        let mut reopens = 0;
        loop {
            match spot.post_read(endpoint, length)?.wait(endpoint) {
                Ok(slot) => return Ok(slot),
                Err(error) => self.reopen(at, endpoint, &mut reopens, error)?,
            }
        }
    }

    /// Opens another endpoint to a member after a failure. Returns the failure when that would not help; the member is left out then, if it
    /// is lost.
    pub(crate) fn reopen(
        &self,
        at: &Remote,
        endpoint: &mut Taken<'_>,
        reopens: &mut u32,
        failure: Error,
    ) -> Result<()> {
        if *reopens == REOPENS || failure.is_not_held() {
            return Err(self.why_failed_at(at, failure));
        }
        if !self.remote.may_read_again(at, &failure) {
            self.remote.reads_again(&failure, at.member());
            return Err(self.why_failed_at(at, failure));
        }
        tracing::debug!(%failure, "reading again over a new endpoint");
        *reopens += 1;
        endpoint.reopen()
    }
}

/// What the memtables know of a key; `None` when they know nothing.
#[inline]
pub(crate) fn in_memtables<'v>(view: &'v View, key: &[u8], number: SequenceNumber) -> Result<Option<Found<'v>>> {
    let hash = KeyHash::of(key);
    for buffer in view.buffers().take(memtables_to_ask()) {
        if let Some(found) = in_memtable(buffer, key, hash, number)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The same of one memtable.
#[inline]
pub(crate) fn in_memtable<'v>(
    buffer: &'v Buffer,
    key: &[u8],
    hash: KeyHash,
    number: SequenceNumber,
) -> Result<Option<Found<'v>>> {
    let record = buffer.memtable.get_hashed(key, hash, number)?.map(|found| found.record);
    let hidden = buffer.range_deletions.newest_over(key, number);
    Ok((record.is_some() || hidden.is_some()).then_some(Found { record, hidden }))
}

/// How many memtables are asked: all, unless a bug is planted.
pub(crate) fn memtables_to_ask() -> usize {
    if planted(Bug::DelegatePastMemtables) { 1 } else { usize::MAX }
}

#[inline]
pub(crate) fn post(at: &Remote, endpoint: &mut Endpoint, table: &Table, candidate: Candidate) -> Result<Posted> {
    let segment = table.segment(candidate.address.segment)?;
    let length = segment.clip(candidate.address.offset, candidate.read_length.into());
    segment.spot_at(at.member(), candidate.address.offset)?.post_read(endpoint, length)
}

pub(crate) fn verified<'s>(slot: &'s Slot, table: &Table, candidate: Candidate) -> Result<Record<'s>> {
    Record::decode(slot)
        .map_err(|error| Error::from(error).during(&format!("table {}, {}", table.id().0, candidate.address)))
}
