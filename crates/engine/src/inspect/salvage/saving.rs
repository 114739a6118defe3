//! Decides what counts of what was found of a shard, and hands it out.

use super::{Counts, Found, FoundAt, Part, SalvagedEntry, Source};
use crate::inspect::numbers::{Missing, Numbers};
use crate::inspect::report::Report;
use crate::terms::{Error, Result};
use forebay_base::{ErrorKind, KeyOrder, Kind, Record, SequenceNumber};
use forebay_table::{DeletionSweep, MergeOperator, TableProperties};
use std::cmp::Ordering;
use std::sync::Arc;

/// The versions of a key, newest first.
struct Versions<'f> {
    newest: &'f Found,
    all: &'f [Found],
    standing: Standing,
}

/// The value of a key that was saved, and until when the key has it.
#[derive(Debug)]
struct Saved {
    value: Vec<u8>,
    expiry_ms: Option<u64>,
}

/// Whether a version of a key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Counts,
    InDoubt,
    Dead,
}

impl Part {
    /// Hands out what can be saved.
    pub(super) fn save<E: From<Error>>(
        &mut self,
        (order, operator): (KeyOrder, Option<&dyn MergeOperator>),
        report: &mut Report,
        counts: &mut Counts,
        each: &mut impl FnMut(SalvagedEntry<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<(), E> {
        let mut found = std::mem::take(&mut self.found);
        // Newest first within a key.
        found.sort_by(|a, b| order.compare(&a.key, &b.key).then(b.tag.cmp(&a.tag)));
        let (mut lost, mut first_lost) = (0_u64, None);
        let (mut in_doubt, mut first_in_doubt) = (0_u64, None);
        let missing = self.missing(&found);
        let mut deletions = DeletionSweep::new(order, std::mem::take(&mut self.deletions));
        for versions in found.chunk_by(|a, b| a.key == b.key) {
            let versions = self.standing(versions, &missing).filter(|versions| self.owns(order, &versions.newest.key));
            let Some(Versions { newest, all, standing }) = versions else { continue };
            let number = newest.tag.sequence();
            // What is older is deleted with it.
            let deleted = deletions.newest_over(&newest.key).unwrap_or_default();
            if newest.tag.kind() == Kind::Delete || deleted > number {
                continue;
            }
            let value = match newest.tag.kind() {
                Kind::Merge => self.merged(deleted, operator, all, report),
                _ => self.first_whole(all, report).map(Some),
            };
            match value {
                Ok(None) => {}
                Ok(Some(Saved { value, expiry_ms })) => {
                    let is_in_doubt = standing == Standing::InDoubt || missing.may_replace(&newest.key, number);
                    if is_in_doubt {
                        in_doubt += 1;
                        first_in_doubt.get_or_insert_with(|| newest.key.clone());
                    }
                    let entry = SalvagedEntry { key: &newest.key, value: &value, expiry_ms, is_in_doubt };
                    counts.saved += u64::from(each(entry)?);
                }
                Err(error) => {
                    lost += 1;
                    first_lost.get_or_insert_with(|| (newest.key.clone(), error));
                }
            }
        }
        let about = format!("shard {}", self.shard);
        if let Some((key, error)) = first_lost {
            let detail = format!("{lost} keys are lost, the first is {}: {error}", key.escape_ascii());
            report.problem(about.as_str(), error.kind(), detail);
        }
        if let Some(key) = first_in_doubt {
            let detail = format!(
                "{in_doubt} keys are in doubt, the first is {}: what may have deleted or overwritten them is lost",
                key.escape_ascii()
            );
            report.problem(about, ErrorKind::Corrupt, detail);
        }
        counts.lost += lost;
        counts.in_doubt += in_doubt;
        Ok(())
    }

    /// The versions of a key from the newest on that counts or is in doubt; `None` if there is none.
    fn standing<'f>(&self, mut all: &'f [Found], missing: &Missing) -> Option<Versions<'f>> {
        while let Some(newest) = all.first() {
            let copies = all.iter().take_while(|found| found.tag == newest.tag);
            let (copies, older) = all.split_at(copies.count());
            match copies.iter().map(|found| self.standing_of(found, missing)).min() {
                None | Some(Standing::Dead) => all = older,
                Some(standing) => return Some(Versions { newest, all, standing }),
            }
        }
        None
    }

    fn standing_of(&self, found: &Found, missing: &Missing) -> Standing {
        let number = found.tag.sequence();
        match found.source {
            _ if found.tag.kind() == Kind::Delete => Standing::Counts,
            Source::Table | Source::Search { has_newest: true } => Standing::Counts,
            // Nothing that is lost is newer.
            Source::Search { .. } if missing.last <= number => Standing::Counts,
            Source::Search { .. } => Standing::InDoubt,
            Source::Log if self.flushed.is_none_or(|flushed| number > flushed) => Standing::Counts,
            // Tables have what counts of it.
            Source::Log
                if self.incomplete.iter().any(|table| {
                    table.may_contain(&found.key)
                        && (table.smallest_sequence..=table.largest_sequence).contains(&number)
                }) =>
            {
                Standing::InDoubt
            }
            Source::Log => Standing::Dead,
        }
    }

    /// The last numbers of which no record was found. `found` is everything that was found.
    fn missing(&self, found: &[Found]) -> Missing {
        // Logs may have what was never acknowledged, under numbers that were used again. So may objects without the
        // register.
        let numbers: Numbers = match self.flushed.is_some() && !self.searched.is_empty() {
            true => {
                let indexed = found.iter().filter(|found| found.source == Source::Table);
                indexed.map(|found| found.tag.sequence()).chain(self.searched.iter().copied()).collect()
            }
            false => Numbers::default(),
        };
        let of_table = |table: &Arc<TableProperties>| (Arc::clone(table), numbers.last_missing(table.largest_sequence));
        let tables = self.incomplete.iter().map(of_table).collect();
        let last = numbers.last_missing(self.flushed.unwrap_or(SequenceNumber::MAX));
        Missing { last, in_logs: self.lost, tables }
    }

    /// What operands make of a key. `versions` are its versions, newest first, and those below number `deleted` are
    /// deleted; `None` when it has no value.
    fn merged(
        &mut self,
        deleted: SequenceNumber,
        operator: Option<&dyn MergeOperator>,
        versions: &[Found],
        report: &mut Report,
    ) -> Result<Option<Saved>> {
        let unknown = "its newest record is an operand, and it is not known which operands were merged already";
        let flushed = self.flushed.ok_or_else(|| Error::corrupt(unknown))?;
        let is_searched =
            |found: &Found| matches!(found.source, Source::Search { .. }) && found.tag.kind() != Kind::Delete;
        let is_incomplete = |key: &[u8]| self.incomplete.iter().any(|table| table.may_contain(key));
        if versions.iter().any(is_searched) || versions.first().is_some_and(|newest| is_incomplete(&newest.key)) {
            return Err(Error::corrupt(unknown));
        }
        let operator = operator
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the merge operator of its operands is not known"))?;
        // For what tables hold, a log still has the records as they were before they were merged.
        // A deletion counts wherever it is.
        let counts = |found: &&Found| {
            let is_deletion = found.tag.kind() == Kind::Delete;
            is_deletion || found.source == Source::Table || found.tag.sequence() > flushed
        };
        let counted: Vec<_> = versions.iter().filter(counts).collect();
        let (mut operands, mut value) = (Vec::new(), None);
        // The number of what they are operands of.
        let mut base = SequenceNumber::default();
        for copies in counted.chunk_by(|a, b| a.tag == b.tag) {
            let Some(newest) = copies.first() else { continue };
            let (kind, number) = (newest.tag.kind(), newest.tag.sequence());
            if kind == Kind::Delete || deleted > number {
                base = number;
                break;
            }
            let found = self.first_whole(copies.iter().copied(), report)?;
            if kind == Kind::Merge {
                operands.push(found.value);
                continue;
            }
            if !operands.is_empty() && found.expiry_ms.is_some() {
                return Err(Error::new(ErrorKind::Unsupported, "operands stand above a value that expires"));
            }
            (value, base) = (Some(found), number);
            break;
        }
        if self.lost > base {
            return Err(Error::corrupt(
                "its newest record is an operand, and logs may have lost others of its operands",
            ));
        }
        if operands.is_empty() {
            return Ok(value);
        }
        let oldest_first: Vec<_> = operands.iter().rev().map(Vec::as_slice).collect();
        let key = versions.first().map_or(&[][..], |newest| &newest.key);
        let merged = operator.full(key, value.as_ref().map(|found| &found.value[..]), &oldest_first);
        let merged = merged.ok_or_else(|| Error::invalid("the merge operator does not take its value or operands"))?;
        Ok(Some(Saved { value: merged, expiry_ms: None }))
    }

    /// What the newest of these versions holds, from the first copy that is whole. Copies have the same tag.
    fn first_whole<'f>(&mut self, versions: impl IntoIterator<Item = &'f Found>, report: &mut Report) -> Result<Saved> {
        let mut failure = Error::corrupt("it has no record");
        let mut newest = None;
        for copy in versions {
            if *newest.get_or_insert(copy.tag) != copy.tag {
                break;
            }
            match self.read(copy, report) {
                Ok(saved) => return Ok(saved),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn read(&mut self, found: &Found, report: &mut Report) -> Result<Saved> {
        let bytes = match &found.place {
            FoundAt::Log(bytes) => bytes.clone(),
            FoundAt::Gone(segment) => return Err(Error::corrupt(format!("{segment} is not there"))),
            FoundAt::Object { name, offset, length } => {
                let object = self.object(name, report);
                let object = object.ok_or_else(|| Error::corrupt(format!("{name} cannot be read")))?;
                let mut bytes = vec![0; *length as usize];
                object.read_at(*offset, &mut bytes)?;
                bytes.into()
            }
        };
        let record = Record::decode(&bytes)?;
        if record.key != found.key || record.tag != found.tag {
            return Err(Error::corrupt("the record is not the one that the index names"));
        }
        Ok(Saved { value: record.value.to_vec(), expiry_ms: record.expiry_ms })
    }

    fn owns(&self, order: KeyOrder, key: &[u8]) -> bool {
        self.lower.as_ref().is_none_or(|lower| order.compare(lower, key) != Ordering::Greater)
            && self.upper.as_ref().is_none_or(|upper| order.compare(key, upper) == Ordering::Less)
    }
}
