//! Reads of keys whose newest records are operands of merges (`docs/decisions/0047`).
//!
//! The search continues from the newest operand to older ones, through memtables and tables, until it meets a value or
//! a record that hides everything older. Each record costs a round trip, so operands that compactions have not merged
//! yet are slower to read than a value.

use crate::read::get::verified;
use crate::read::probe::{Probe, Step};
use crate::remote::segment::Remote;
use crate::terms::planted::{Bug, planted};
use crate::terms::time::ReadTime;
use crate::terms::{Error, Result};
use crate::tree::shared::{Tree, View};
use forebay_base::{InternalKey, Kind, Record, SequenceNumber, Tag};
use forebay_memtable::OwnedCursor;
use std::sync::Arc;

/// The newest records of a key.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Newest first.
    pub(crate) operands: Vec<Vec<u8>>,
    newest: SequenceNumber,
    /// The next older record has a number up to this one.
    older: SequenceNumber,
    /// The value that the operands apply to; `expiry_ms` says when it expires.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) expiry_ms: Option<u64>,
    /// Whether the chain is complete: older records do not count.
    is_whole: bool,
}

impl Chain {
    /// Starts the chain of a read at `number`.
    fn new(number: SequenceNumber) -> Self {
        let newest = SequenceNumber::default();
        Self { operands: Vec::new(), newest, older: number, value: None, expiry_ms: None, is_whole: false }
    }

    /// Adds the next older record, unless `hidden`, the number of a range deletion over the key, hides it.
    fn add(&mut self, record: &Record<'_>, hidden: Option<SequenceNumber>, time: ReadTime<'_>) {
        let sequence = record.tag.sequence();
        self.newest = self.newest.max(sequence);
        self.older = SequenceNumber(sequence.0.saturating_sub(1));
        self.is_whole = true;
        if hidden.is_some_and(|hidden| hidden > sequence) {
            return;
        }
        match record.tag.kind() {
            Kind::Merge => {
                self.operands.push(record.value.to_vec());
                self.is_whole = false;
            }
            Kind::Put if !time.is_past(record.expiry_ms) => {
                self.value = Some(record.value.to_vec());
                self.expiry_ms = record.expiry_ms;
            }
            Kind::Put | Kind::Delete | Kind::RangeDelete | Kind::Nothing | Kind::Crossing => {}
        }
    }
}

impl Tree {
    /// Passes a record with the merged value of `key`, as of a view and a number, to `found`. The record has the number
    /// of the newest operand. Returns `None` when there is no value.
    ///
    /// # Errors
    /// `Unsupported` when the operator is not known to this process; `Invalid` when it cannot apply the operands to the value;
    /// as for other reads.
    #[cold]
    pub(crate) fn get_merged<T>(
        &self,
        view: &View,
        key: &[u8],
        at_time: (SequenceNumber, ReadTime<'_>),
        mut found: impl FnMut(Record<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        self.wherever(|at| self.get_merged_at(at, view, key, at_time, &mut found))
    }

    /// Does the same, reading at the member `at`.
    #[cold]
    pub(crate) fn get_merged_at<T>(
        &self,
        at: &Remote,
        view: &View,
        key: &[u8],
        at_time: (SequenceNumber, ReadTime<'_>),
        mut found: impl FnMut(Record<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Chain { mut operands, newest, value, .. } = self.chain_at(at, view, key, at_time)?;
        operands.reverse();
        let value = match operands.is_empty() {
            true => value,
            false => Some(self.merge(key, value.as_deref(), &operands)?),
        };
        let tag = Tag::new(newest, Kind::Put, false);
        Ok(value.and_then(|value| found(Record { tag, expiry_ms: None, key, value: &value })))
    }

    /// Returns the records that make up the merged value of `key`, as of a view and a number.
    ///
    /// # Errors
    /// As for other reads.
    #[cold]
    pub(crate) fn chain(&self, view: &View, key: &[u8], at_time: (SequenceNumber, ReadTime<'_>)) -> Result<Chain> {
        self.wherever(|at| self.chain_at(at, view, key, at_time))
    }

    fn chain_at(
        &self,
        at: &Remote,
        view: &View,
        key: &[u8],
        (number, time): (SequenceNumber, ReadTime<'_>),
    ) -> Result<Chain> {
        let mut chain = Chain::new(number);
        add_from_memtables(view, key, number, time, &mut chain)?;
        if !chain.is_whole {
            self.add_from_tables(at, view, key, time, &mut chain)?;
        }
        Ok(chain)
    }

    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[Vec<u8>]) -> Result<Vec<u8>> {
        let name = self.options.merge_operator.as_deref().unwrap_or_default();
        let operator = self.options.merge_operators.get(name)?;
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        operator.full(key, value, &operands).ok_or_else(|| {
            let key = key.escape_ascii();
            Error::invalid(format!(
                "the merge operator {name:?} cannot merge into the value of \"{key}\": set another one"
            ))
        })
    }

    fn add_from_tables(
        &self,
        at: &Remote,
        view: &View,
        key: &[u8],
        time: ReadTime<'_>,
        chain: &mut Chain,
    ) -> Result<()> {
        // The walk learns the newest record up to its number. Memtables may have newer ones.
        let mut probe = Probe::new(at, &self.learnt, &view.version, key, chain.older).towards_older();
        probe.approach();
        if !probe.approach_entries() {
            return self.check_open();
        }
        let mut endpoint = at.foreground().take()?;
        let mut next = probe.next();
        while let Some(step) = next {
            match step {
                Step::Record(table, candidate) => {
                    let slot = self.read(at, &mut endpoint, table, candidate)?;
                    let record = verified(&slot, table, candidate)?;
                    if record.key == key && record.tag.sequence() <= probe.number() {
                        chain.add(&record, probe.hidden(), time);
                        probe.go_behind(chain.older);
                    }
                    endpoint.release(slot);
                }
                Step::Delivered => {
                    let Some(bytes) = probe.take_delivered() else { break };
                    let record = Record::decode(&bytes)?;
                    chain.add(&record, probe.hidden(), time);
                    probe.go_behind(chain.older);
                }
                Step::Index => self.look_up(at, &mut endpoint, &mut [&mut probe])?,
            }
            if chain.is_whole {
                return Ok(());
            }
            next = probe.next();
        }
        self.check_open()
    }
}

fn add_from_memtables(
    view: &View,
    key: &[u8],
    number: SequenceNumber,
    time: ReadTime<'_>,
    chain: &mut Chain,
) -> Result<()> {
    let target = InternalKey { user_key: key, tag: Tag::seek(number) };
    for buffer in view.buffers() {
        let hidden = buffer.range_deletions.newest_over(key, number);
        let mut cursor = OwnedCursor::new(Arc::clone(&buffer.memtable));
        cursor.seek(target)?;
        while let Some(found) = cursor.record()?
            && found.record.key == key
        {
            chain.add(&found.record, hidden, time);
            if chain.is_whole {
                return Ok(());
            }
            cursor.next()?;
        }
        if hidden.is_some() || (planted(Bug::MergeOneMemtable) && !chain.operands.is_empty()) {
            chain.is_whole = true;
            return Ok(());
        }
    }
    Ok(())
}
