//! Saves what is left of a database in storage, when its register is gone or objects are damaged.
//!
//! ```text
//!  register whole      the tables of its versions, and the logs that it names, or named before its last commits were lost;
//!                      other objects are put aside
//!  register damaged    every image that can be read is a table, and every log counts
//!                      then, in both cases:
//!  images              their entries, each of which leads to its record
//!  damaged indexes     the segments of the table are searched for records, for those that its point index leads to
//!  segments that no image that can be read leads to      searched for records
//!  logs                whole groups; of a damaged log all whole frames
//!                      then, for each key, newest first: the first put or deletion decides, with the operands above it
//! ```
//!
//! Nothing is written here: entries are handed out in key order, and the caller writes them to a new database.
//!
//! # What is promised
//!
//! 1. A value is handed out only if its record is whole, and no newer record of its key was seen.
//! 2. If the newest record of a key cannot be read, and has no other copy, the key is lost. An older value is not handed out.
//! 3. Without the register, a table may be found that a compaction had replaced and whose object was not yet deleted,
//!    and what a deposed owner wrote. So a key that was deleted may come back, and a write that was never acknowledged
//!    may appear. This is noted.
//! 4. Operands become a value only where it is known which of them a compaction had merged already: what the tables of
//!    the register's versions hold counts, and after them the logs. Otherwise the key is lost.
//! 5. What an object or a log still holds may be dead: overwritten or deleted, by what a compaction has dropped since.
//!    So with the register, a record counts if an index that can be read leads to it, or if it is in a log after the
//!    tables. Deletions count wherever they are. A table with a damaged index may have had the records that are found
//!    in its segments and that no other table has. It had them if no more are found than it had entries. Entries that
//!    it had and that are not found may have overwritten or deleted older ones. Keys for which one or the other is so
//!    are **in doubt**: they are handed out marked as such, or left out.
//! 6. Each write of a shard has a number of its own, and none is left out. What overwrote or deleted a key had a higher
//!    number than the key's record. So a key is not in doubt if, for each number that this could be, a record of a
//!    segment was found: up to the last number of the table that lacks something, or up to the last that tables hold.
//! 7. Nobody knows the keys of what a log has lost, nor of entries that neither an index nor a search has found. So it
//!    is not known then how many keys are lost. With a log, a key is in doubt if its record has a lower number than
//!    what is lost may have had.
//! 8. What a newer build wrote is not damaged. If there is any of it, nothing is handed out.

mod gathering;
mod saving;

use crate::durable::database::Committed;
use crate::durable::groups::{self, Replay};
use crate::durable::unnamed;
use crate::inspect::numbers::LostWrites;
use crate::inspect::records;
use crate::inspect::remains::Remains;
use crate::inspect::report::{Cell, Report, Section, Step};
use crate::inspect::stored::{Listed, StoredDatabase};
use crate::remote::objects::{Objects, object_of};
use crate::terms::{Error, Result};
use bytes::Bytes;
use forebay_base::{ErrorKind, KeyOrder, SegmentId, SequenceNumber, Tag};
use forebay_env::HashMap;
use forebay_storage::{BlockCache, BlockObject, ObjectInfo, Recovery};
use forebay_table::{CachedTable, LogName, MergeOperators, RangeTombstone, TableProperties};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key that was saved, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SalvagedEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Until when the key has it, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// Whether the key may have been deleted or overwritten since: what would say so is lost.
    pub is_in_doubt: bool,
}

/// What can be saved of a database.
#[derive(Debug)]
pub struct Salvage {
    /// Where it is, and what objects it had when it was looked at.
    database: StoredDatabase,
    contents: Vec<ObjectInfo>,
    order: KeyOrder,
    bounds: Vec<Vec<u8>>,
    /// Name of the operator that makes values of operands, and the operators that are known.
    merge_operator: Option<String>,
    merge_operators: MergeOperators,
    leaves_out_doubt: bool,
    /// Whether logs have lost writes, of whichever keys.
    has_lost_writes: bool,
    parts: Vec<Part>,
    report: Report,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    objects: u64,
    tables: u64,
    searched: u64,
    logs: u64,
    log_records: u64,
    saved: u64,
    lost: u64,
    in_doubt: u64,
}

/// What was found of a shard. `gathering` finds it, `saving` tells what counts of it.
#[derive(Debug)]
struct Part {
    shard: u64,
    objects: Objects,
    /// The keys that it owns, where that is known.
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// The number up to which tables hold everything, as the register says.
    flushed: Option<SequenceNumber>,
    /// The last number that a write that logs have lost may have had.
    lost: SequenceNumber,
    found: Vec<Found>,
    /// Ranges that were deleted.
    deletions: Vec<RangeTombstone>,
    /// Tables of which something is missing, and nobody knows what.
    incomplete: Vec<Arc<TableProperties>>,
    /// Whether that may be entries, of whichever keys.
    lacks_entries: bool,
    /// The numbers of all records that were found by searching what tables name.
    searched: Vec<SequenceNumber>,
    open: HashMap<Arc<str>, Option<Arc<BlockObject>>>,
}

/// A version of a key.
#[derive(Debug)]
struct Found {
    key: Vec<u8>,
    tag: Tag,
    source: Source,
    place: FoundAt,
}

/// What led to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// An index, or what proves as much.
    Table,
    Log,
    /// A search of a segment, which holds replaced records beside others. If it `has_newest`, the newest record that is
    /// found there of each key was not replaced.
    Search {
        has_newest: bool,
    },
}

#[derive(Debug)]
enum FoundAt {
    /// A record in an object.
    Object { name: Arc<str>, offset: u64, length: u32 },
    /// A record of a log.
    Log(Bytes),
    /// A record of an object that is not there.
    Gone(SegmentId),
}

impl StoredDatabase {
    /// Finds out what is left of the database. Keys are held in memory, values are not.
    ///
    /// # Errors
    /// `Unsupported` when a newer build wrote some of it; `Busy` when something seems to be damaged and the owner
    /// continues; those of the storage when nothing can be listed. Damage is no error.
    pub fn salvage(&self, progress: &mut dyn FnMut(Step)) -> Result<Salvage> {
        let contents = self.contents()?;
        let mut report = Report::default();
        let listed = self.segments_in(&contents)?;
        let committed = self.committed(&mut report);
        report.check_known()?;
        let mut salvage = Salvage {
            database: self.clone(),
            contents,
            order: KeyOrder::Bytewise,
            bounds: Vec::new(),
            merge_operator: None,
            merge_operators: MergeOperators::default(),
            leaves_out_doubt: false,
            has_lost_writes: false,
            parts: Vec::new(),
            report,
            counts: Counts { objects: listed.len() as u64, ..Counts::default() },
        };
        let cache = Self::cache()?;
        let of_bytes = listed.iter().map(|object| object.bytes).sum();
        let mut step = Step { bytes: 0, of_bytes };
        let mut told = |bytes: u64| {
            step.bytes += bytes;
            progress(step);
        };
        match &committed {
            Some(committed) => salvage.of_versions(self, committed, &listed, &cache, &mut told)?,
            None => salvage.of_objects(self, &listed, &cache, &mut told)?,
        }
        salvage.take_logs(self, committed.as_ref(), &cache)?;
        for part in &mut salvage.parts {
            part.open_all(&mut salvage.report);
        }
        salvage.report.check_known()?;
        if committed.is_none() {
            salvage.guess_bounds();
        }
        salvage.check_quiet()?;
        Ok(salvage)
    }
}

impl Salvage {
    /// The order of the keys.
    #[must_use]
    pub const fn key_order(&self) -> KeyOrder {
        self.order
    }

    /// Keys that divide a new database as the old one was divided.
    #[must_use]
    pub fn bounds(&self) -> &[Vec<u8>] {
        &self.bounds
    }

    /// Name of the operator that makes values of operands, as far as it is known.
    #[must_use]
    pub fn merge_operator(&self) -> Option<&str> {
        self.merge_operator.as_deref()
    }

    /// Adds operators to the built-in ones.
    #[must_use]
    pub fn merging_with(self, merge_operators: MergeOperators) -> Self {
        Self { merge_operators, ..self }
    }

    /// Leaves out keys of which it is not known that they were not deleted or overwritten.
    #[must_use]
    pub fn without_doubt(self) -> Self {
        Self { leaves_out_doubt: true, ..self }
    }

    /// Hands out all keys that can be saved, shard by shard in key order. Returns what was found, lost and put aside.
    ///
    /// # Errors
    /// Those of `each`, and of the storage; `Busy` when something seems to be lost and the owner continues.
    pub fn save<E: From<Error>>(
        mut self,
        mut each: impl FnMut(SalvagedEntry<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Report, E> {
        let operator = self.merge_operator.as_ref().and_then(|name| self.merge_operators.get(name).ok());
        let leaves_out_doubt = self.leaves_out_doubt;
        let mut each = |entry: SalvagedEntry<'_>| {
            if entry.is_in_doubt && leaves_out_doubt { Ok(false) } else { each(entry).map(|()| true) }
        };
        for part in &mut self.parts {
            part.save((self.order, operator.as_deref()), &mut self.report, &mut self.counts, &mut each)?;
        }
        self.check_quiet()?;
        let columns = &[
            "objects",
            "tables",
            "searched_objects",
            "logs",
            "log_records",
            "shards",
            "keys_saved",
            "keys_lost",
            "keys_in_doubt",
        ];
        let mut section = Section::new("salvaged", columns);
        let Counts { objects, tables, searched, logs, log_records, saved, lost, in_doubt } = self.counts;
        let shards = self.parts.len() as u64;
        let is_unknown = self.has_lost_writes || self.parts.iter().any(|part| part.lacks_entries);
        let lost = if is_unknown { Cell::Unknown } else { lost.into() };
        let [objects, tables, searched, logs, log_records, shards, saved, in_doubt] =
            [objects, tables, searched, logs, log_records, shards, saved, in_doubt].map(Cell::from);
        section.rows.push(vec![objects, tables, searched, logs, log_records, shards, saved, lost, in_doubt]);
        self.report.sections.push(section);
        Ok(self.report)
    }

    /// Refuses to call anything damaged or lost that an owner may just have replaced.
    fn check_quiet(&self) -> Result<()> {
        if self.report.problems.is_empty() || self.database.contents()? == self.contents {
            return Ok(());
        }
        let message = "the database is being written to, and what its owner replaces cannot be told from what is damaged: stop the \
                       owner, or verify the database, and repair it again";
        Err(Error::new(ErrorKind::Busy, message))
    }

    fn part(&mut self, database: &StoredDatabase, shard: u64, cache: &Arc<BlockCache>) -> Result<&mut Part> {
        let at = match self.parts.iter().position(|part| part.shard == shard) {
            Some(at) => at,
            None => {
                self.parts.push(Part {
                    shard,
                    objects: database.objects(shard, cache)?,
                    lower: None,
                    upper: None,
                    flushed: None,
                    lost: SequenceNumber::default(),
                    found: Vec::new(),
                    deletions: Vec::new(),
                    incomplete: Vec::new(),
                    lacks_entries: false,
                    searched: Vec::new(),
                    open: HashMap::default(),
                });
                self.parts.len() - 1
            }
        };
        self.parts.get_mut(at).ok_or_else(|| Error::invalid("a part that was just made is not there"))
    }

    /// Takes the tables of versions. If the image of one cannot be read, its segments are searched.
    fn of_versions(
        &mut self,
        database: &StoredDatabase,
        committed: &Committed,
        listed: &[Listed],
        cache: &Arc<BlockCache>,
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let config = &committed.identity.config;
        self.order = config.key_order;
        self.merge_operator = Some(config.merge_operator.clone()).filter(|name| !name.is_empty());
        let recorded = committed.identity.config.bounds.iter().map(Vec::as_slice);
        let moved = committed.versions.iter().skip(1).map(forebay_table::Version::first_key);
        self.bounds = recorded.zip(moved).map(|(recorded, moved)| moved.unwrap_or(recorded).to_vec()).collect();
        let named = committed.objects();
        for object in listed.iter().filter(|object| !named.contains(object.name.as_str())) {
            self.report.note(object.name.as_str(), "put aside: no version names it");
        }
        for (version, shard) in committed.versions.iter().zip(0_u64..) {
            let (lower, upper) = (bound(&self.bounds, shard.checked_sub(1)), bound(&self.bounds, Some(shard)));
            let (report, counts) = (&mut Report::default(), &mut Counts::default());
            let part = self.part(database, shard, cache)?;
            (part.lower, part.upper, part.flushed) = (lower, upper, Some(version.last_sequence()));
            let names: HashMap<SegmentId, Arc<str>> = version
                .segments()
                .iter()
                .filter_map(|(id, entry)| Some((*id, Arc::from(object_of(&entry.info.placements)?))))
                .collect();
            let find = |id| names.get(&id).cloned();
            let mut damaged = Vec::new();
            for table in version.levels().iter().flatten() {
                let image = names.get(&table.image.segment).cloned();
                let remains = image.as_ref().and_then(|name| part.remains(name, report));
                told(table.image.length);
                let name = image.as_deref().unwrap_or_default();
                let whole = remains.as_ref().and_then(|remains| Some((table_of(remains, name, report)?, remains)));
                let taken = part.found.len();
                let indexed = whole.as_ref().map(|(cached, remains)| part.take_table(cached, remains, &find));
                if let Some(Ok(())) = indexed {
                    counts.tables += 1;
                    continue;
                }
                damaged.push((table, image, whole.map(|(cached, _)| cached), taken..part.found.len()));
            }
            // Only once it is known what all others have.
            for (table, image, cached, taken) in damaged {
                let (searched, found) = part.search_table(&table.properties, cached.as_ref(), taken, &find, report);
                counts.searched += searched;
                let name = image.as_deref().map_or_else(|| table.id.to_string(), str::to_owned);
                let detail = format!("the index of {} of shard {shard} cannot be read: {found}", table.id);
                report.problem(name, ErrorKind::Corrupt, detail);
            }
            self.report.problems.append(&mut report.problems);
            self.counts.tables += counts.tables;
            self.counts.searched += counts.searched;
        }
        Ok(())
    }

    /// Takes every object for what it looks like.
    fn of_objects(
        &mut self,
        database: &StoredDatabase,
        listed: &[Listed],
        cache: &Arc<BlockCache>,
        told: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let detail = "without the register, what a compaction had replaced may be among what was found, and what an owner wrote \
                      that was taken over: keys that were deleted may come back";
        self.report.note(database.register_name(), detail);
        let mut order = None;
        let shards: BTreeSet<u64> = listed.iter().map(|object| object.shard).collect();
        for shard in shards {
            // By segment, the epochs in which an object of it was written.
            let mut names: BTreeMap<SegmentId, Vec<(u64, Arc<str>)>> = BTreeMap::new();
            let of_shard = || listed.iter().filter(|object| object.shard == shard);
            for object in of_shard() {
                let number = object.number;
                let name = Arc::from(object.name.as_str());
                names.entry(SegmentId(number.number)).or_default().push((number.epoch, name));
            }
            let mut report = Report::default();
            let (mut tables, mut searched) = (0, 0);
            let (mut used, mut is_table) = (BTreeSet::new(), BTreeSet::new());
            let part = self.part(database, shard, cache)?;
            for object in of_shard() {
                told(object.bytes);
                if !part.ends_like_an_image(&Arc::from(object.name.as_str()), &mut report) {
                    continue;
                }
                is_table.insert(object.name.as_str());
                // An image names segments of its own epoch, or of earlier ones.
                let find = |id: SegmentId| {
                    let written = names.get(&id)?.iter().rev().find(|(epoch, _)| *epoch <= object.number.epoch);
                    written.map(|(_, name)| Arc::clone(name))
                };
                let name: Arc<str> = Arc::from(object.name.as_str());
                let remains = part.remains(&name, &mut report);
                let Some((cached, remains)) =
                    remains.and_then(|remains| Some((table_of(&remains, &name, &mut report)?, remains)))
                else {
                    part.lacks_entries = true;
                    let detail = "the image of a table, which cannot be read: what it deleted may come back";
                    report.problem(name.as_ref(), ErrorKind::Corrupt, detail);
                    continue;
                };
                let taken = part.found.len();
                match part.take_table(&cached, &remains, &find) {
                    Ok(()) => tables += 1,
                    Err(error) => {
                        let (properties, taken) = (cached.properties(), taken..part.found.len());
                        let (count, found) = part.search_table(properties, Some(&cached), taken, &find, &mut report);
                        searched += count;
                        report.problem(name.as_ref(), error.kind(), format!("{error}: {found}"));
                    }
                }
                order = order.or(Some(cached.properties().key_order));
                used.extend(cached.properties().segments.iter().filter_map(|used| find(used.id)));
            }
            for object in of_shard() {
                let name: Arc<str> = Arc::from(object.name.as_str());
                if used.contains(&name) || is_table.contains(object.name.as_str()) {
                    continue;
                }
                searched += 1;
                part.search(&name, &mut report);
                report.note(object.name.as_str(), "no image that can be read leads to it: it was searched for records");
            }
            self.report.problems.append(&mut report.problems);
            self.report.notes.append(&mut report.notes);
            self.counts.tables += tables;
            self.counts.searched += searched;
        }
        self.order = order.unwrap_or(KeyOrder::Bytewise);
        Ok(())
    }

    /// Takes the records of logs: those that the register names, or all.
    fn take_logs(
        &mut self,
        database: &StoredDatabase,
        committed: Option<&Committed>,
        cache: &Arc<BlockCache>,
    ) -> Result<()> {
        let mut found: BTreeSet<LogName> = database.place.stored_logs()?.into_iter().map(|log| log.name).collect();
        found.extend(committed.iter().flat_map(|committed| &committed.logs));
        let unnamed = if committed.is_some() { database.unnamed_logs(&mut self.report)? } else { Vec::new() };
        let flushed = committed.map(Committed::flushed);
        let mut lost = LostWrites::new(flushed.as_deref().unwrap_or_default());
        let mut replay = flushed.as_deref().map(Replay::new);
        for log in found {
            let name = database.place.log(log)?;
            let parts = database.place.storage.rescue_log(&name)?;
            let holds_frames = parts.iter().any(|part| !part.frames.is_empty() || part.damage.is_some());
            let is_named = |committed: &Committed| committed.logs.contains(&log) || unnamed.contains(&log);
            if !committed.map_or(holds_frames, is_named) {
                if holds_frames {
                    self.report.note(name.as_str(), "put aside: a log that no commit names");
                }
                continue;
            }
            let read = match (replay.take(), committed) {
                (Some(mut whole), Some(committed)) => {
                    let read = database.read_log(log, &mut whole).and_then(|()| {
                        let is_newest = committed.logs.last() == Some(&log);
                        if is_newest { unnamed::check_end(&database.place, committed, &whole) } else { Ok(()) }
                    });
                    read.map(|()| replay = Some(whole))
                }
                // After the first damage, the numbers do not continue from those before.
                _ => {
                    let opened = database.place.open_log(log, Recovery::Look);
                    opened.and_then(|reader| reader.frames().map(drop).map_err(Error::from))
                }
            };
            lost.take_log(&parts, read.is_ok());
            let damaged: Vec<_> =
                parts.iter().filter_map(|part| Some((part.object.as_str(), part.damage.as_ref()?))).collect();
            let is_damaged = read.is_err() || !damaged.is_empty();
            for (object, damage) in &damaged {
                let detail = match &read {
                    Err(_) => damage.to_string(),
                    Ok(()) => format!(
                        "bytes behind the last whole frame are no frame: a write that was torn, which nobody was told of, or \
                         a frame that is damaged ({damage})"
                    ),
                };
                self.report.problem(*object, damage.kind(), detail);
            }
            // No part says what is missing.
            if let (Err(error), true) = (&read, damaged.is_empty()) {
                self.report.problem(name.as_str(), error.kind(), error);
            }
            if !holds_frames {
                continue;
            }
            self.counts.logs += 1;
            let mut frames: Vec<_> = parts.into_iter().flat_map(|part| part.frames).collect();
            if !is_damaged {
                // A group that is not whole was never acknowledged.
                let whole = frames.iter().rposition(|frame| !groups::goes_on(frame.stream)).map_or(0, |last| last + 1);
                frames.truncate(whole);
            }
            for frame in frames {
                let shard = u64::from(groups::shard_of(frame.stream));
                let part = self.part(database, shard, cache)?;
                let mut records = 0;
                for (range, record) in records::find(&frame.payload) {
                    records += 1;
                    part.take(&record, Source::Log, FoundAt::Log(frame.payload.slice(range)));
                }
                self.counts.log_records += records;
            }
        }
        self.parts.sort_by_key(|part| part.shard);
        self.has_lost_writes = lost.is_any();
        if self.has_lost_writes {
            let detail = "logs have lost writes, and of which keys is not known: nor is how many keys are lost";
            self.report.problem(database.place.all_logs()?.as_str(), ErrorKind::Corrupt, detail);
        }
        self.parts.iter_mut().for_each(|part| part.lost = lost.last_of(part.shard));
        Ok(())
    }

    /// Divides a new database where the shards' first keys are.
    fn guess_bounds(&mut self) {
        let order = self.order;
        let first = |part: &Part| part.found.iter().map(|found| found.key.clone()).min_by(|a, b| order.compare(a, b));
        let bounds: Vec<Vec<u8>> = self.parts.iter().skip(1).filter_map(first).collect();
        if bounds.is_sorted_by(|a, b| order.compare(a, b).is_lt()) {
            self.bounds = bounds;
        }
    }
}

fn bound(bounds: &[Vec<u8>], at: Option<u64>) -> Option<Vec<u8>> {
    bounds.get(usize::try_from(at?).ok()?).cloned()
}

/// The table whose image the object `name` is, if it can be read. One of a newer build is a problem.
fn table_of(remains: &Remains, name: &str, report: &mut Report) -> Option<CachedTable> {
    let read = remains.table()?.inspect_err(|error| {
        if error.kind() == ErrorKind::Unsupported {
            report.problem(name, error.kind(), error);
        }
    });
    read.ok()
}
