//! Shows parts of a database in storage, damaged or not.

use crate::durable::groups;
use crate::inspect::records;
use crate::inspect::remains::Remains;
use crate::inspect::report::{Cell, Report, Section};
use crate::inspect::rows::{push_limited, show_contents, show_image, show_properties, show_versions, yes_or_no};
use crate::inspect::stored::StoredDatabase;
use crate::remote::objects::object_of;
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_storage::{Commit, CommitKind, ObjectName, Recovery};
use forebay_table::{DatabaseCommit, LogName};

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// The commits, or the manifests in memory, and what they say: versions, tables, segments.
    Manifest,
    /// The frames of a log, by epoch and serial number; without these, of all logs. In memory, the parts of all logs,
    /// which have no numbers.
    Log(Option<(u64, u64)>),
    /// The index of a table of a shard.
    Table {
        /// The shard.
        shard: u64,
        /// The table's number.
        table: u64,
    },
    /// What is in the object of a segment, by its name; in memory, in a segment, by SHARD/SEGMENT.
    Segment(String),
}

const DATABASE: &[&str] = &["name", "number", "epoch", "last_commit", "shards", "key_order", "memory_store"];
const COMMITS: &[&str] = &["number", "kind", "epoch", "claim", "bytes", "edits", "state"];
const LOGS: &[&str] = &["log", "bytes", "needed"];
const OBJECTS: &[&str] = &["shard", "epoch", "number", "bytes"];
const PARTS: &[&str] = &["log", "object", "position", "bytes", "frames", "state"];
const FRAMES: &[&str] = &["log", "position", "group", "shard", "goes_on", "bytes", "records", "first", "last"];
const OBJECT: &[&str] = &["object", "holds", "bytes", "object_bytes", "blocks", "block_bytes", "bad_blocks"];

impl StoredDatabase {
    /// Shows a part of the database. Long lists end after `limit` rows, which is noted.
    ///
    /// # Errors
    /// `NotFound` for a table or an object that is not there; those of the storage. Damage is not an error but a
    /// problem of the report.
    pub fn show(&self, shown: &Shown, limit: usize) -> Result<Report> {
        let mut report = Report::default();
        match shown {
            Shown::Manifest => self.show_manifest(&mut report)?,
            Shown::Log(log) => self.show_logs(*log, limit, &mut report)?,
            Shown::Table { shard, table } => self.show_table(*shard, *table, limit, &mut report)?,
            Shown::Segment(object) => self.show_segment(object, limit, &mut report)?,
        }
        Ok(report)
    }

    fn show_manifest(&self, report: &mut Report) -> Result<()> {
        let committed = self.committed(report);
        let commits = self.show_commits()?;
        if let Some(committed) = &committed {
            let mut database = Section::new("database", DATABASE);
            let config = &committed.identity.config;
            let last = commits.rows.last();
            let of_last = |column: usize| last.and_then(|row| row.get(column)).cloned().unwrap_or(Cell::Nothing);
            database.rows.push(vec![
                self.name.as_str().into(),
                format!("{:#034x}", committed.identity.database).into(),
                of_last(2),
                of_last(0),
                config.shards.into(),
                config.key_order.name().into(),
                committed.memory_store.as_str().into(),
            ]);
            report.sections.push(database);
        }
        report.sections.push(commits);
        let mut logs = Section::new("logs", LOGS);
        for log in self.place.stored_logs()? {
            let is_needed = committed.as_ref().map(|committed| yes_or_no(committed.logs.contains(&log.name)));
            logs.rows.push(vec![log_name(log.name).into(), log.bytes.into(), is_needed.into()]);
        }
        report.sections.push(logs);
        match committed {
            Some(committed) => show_versions((0..).zip(&committed.versions), report),
            None => {
                let mut objects = Section::new("objects", OBJECTS);
                for object in self.segments_in(&self.contents()?)? {
                    let numbers = [object.shard, object.number.epoch, object.number.number, object.bytes];
                    objects.rows.push(numbers.map(Into::into).to_vec());
                }
                report.sections.push(objects);
            }
        }
        Ok(())
    }

    /// Each commit on its own, even if others are missing or damaged.
    fn show_commits(&self) -> Result<Section> {
        let mut section = Section::new("commits", COMMITS);
        let (objects, prefix) = (self.place.storage.objects(), self.place.commits()?);
        for object in objects.list(Some(&prefix))? {
            let Some(number) = object.name.number_after(&prefix) else { continue };
            let read = objects.get(&object.name).map_err(Error::from).and_then(|bytes| {
                let commit = Commit::decode(&bytes).map_err(|cause| Error::corrupt(cause.to_string()))?;
                let said = DatabaseCommit::decode(&commit.payload)?;
                Ok((commit, said))
            });
            let row = match read {
                Ok((commit, said)) => {
                    let kind = if commit.kind() == CommitKind::Snapshot { "snapshot" } else { "edit" };
                    let (claim, edits) = (yes_or_no(commit.is_claim), said.edits.len());
                    vec![
                        number.into(),
                        kind.into(),
                        commit.epoch.into(),
                        claim.into(),
                        object.size_bytes.into(),
                        edits.into(),
                        "whole".into(),
                    ]
                }
                Err(error) => {
                    let nothing = Cell::Nothing;
                    vec![
                        number.into(),
                        nothing.clone(),
                        nothing.clone(),
                        nothing.clone(),
                        object.size_bytes.into(),
                        nothing,
                        error.to_string().into(),
                    ]
                }
            };
            section.rows.push(row);
        }
        Ok(section)
    }

    fn show_logs(&self, wanted: Option<(u64, u64)>, limit: usize, report: &mut Report) -> Result<()> {
        let wanted = wanted.map(|(epoch, serial)| LogName { epoch, serial });
        let mut parts = Section::new("segments", PARTS);
        let mut frames = Section::new("frames", FRAMES);
        let logs: Vec<_> = self.place.stored_logs()?.into_iter().map(|log| log.name).collect();
        let logs: Vec<_> = logs.into_iter().filter(|log| wanted.is_none_or(|wanted| wanted == *log)).collect();
        if let (true, Some(wanted)) = (logs.is_empty(), wanted) {
            let message = format!("{} has no log {}: forebay inspect log lists them", self.name, log_name(wanted));
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        for log in logs {
            let found = self.place.storage.rescue_log(&self.place.log(log)?)?;
            // Only the whole log says whether what is damaged was durable.
            let has_damage = found.iter().any(|part| part.damage.is_some());
            let is_whole = has_damage && self.place.open_log(log, Recovery::Look).is_ok_and(|log| log.frames().is_ok());
            for part in found {
                let state = match (&part.damage, part.is_seal) {
                    (_, true) => "seal",
                    (None, false) => "whole",
                    (Some(error), false) if error.kind() == ErrorKind::Unsupported => "of a version that is not known",
                    (Some(_), false) if is_whole => "torn at its end, which was never acknowledged",
                    (Some(_), false) => "damaged",
                };
                if let Some(error) = part.damage.as_ref().filter(|_| !is_whole) {
                    report.note(part.object.as_str(), error);
                }
                parts.rows.push(vec![
                    log_name(log).into(),
                    part.object.as_str().into(),
                    part.start.into(),
                    part.bytes.into(),
                    part.frames.len().into(),
                    state.into(),
                ]);
                for frame in &part.frames {
                    let numbers = records::find(&frame.payload).map(|(_, record)| record.tag.sequence().0);
                    let (mut first, mut last, mut count) = (None, None, 0u64);
                    for number in numbers {
                        first = first.or(Some(number));
                        last = Some(number);
                        count += 1;
                    }
                    frames.rows.push(vec![
                        log_name(log).into(),
                        frame.position.into(),
                        groups::group_of(frame.mark).into(),
                        u64::from(groups::shard_of(frame.stream)).into(),
                        yes_or_no(groups::goes_on(frame.stream)).into(),
                        frame.payload.len().into(),
                        count.into(),
                        first.into(),
                        last.into(),
                    ]);
                }
            }
        }
        report.sections.push(parts);
        push_limited(frames, limit, report);
        Ok(())
    }

    fn show_table(&self, shard: u64, number: u64, limit: usize, report: &mut Report) -> Result<()> {
        let committed = self.committed(report);
        let version = committed.as_ref().and_then(|committed| committed.versions.get(usize::try_from(shard).ok()?));
        let table = version.and_then(|version| version.levels().iter().flatten().find(|table| table.id.0 == number));
        let (Some(version), Some(table)) = (version, table) else {
            if let Some(problem) = report.problems.first() {
                return Err(Error::new(problem.kind, problem.detail.clone()));
            }
            let message =
                format!("shard {shard} of {} has no table {number}: forebay inspect manifest lists them", self.name);
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        show_properties(&table.properties, report);
        let info = version.segment(table.image.segment);
        let object = info.and_then(|info| object_of(&info.placements));
        let object = object.ok_or_else(|| Error::corrupt(format!("{} has no image in storage", table.id)))?;
        let Some(remains) = self.remains_of(shard, object, report)? else { return Ok(()) };
        show_image(&remains, limit, object, report);
        Ok(())
    }

    /// Reads an object; `None` when it cannot be opened, which is a problem.
    fn remains_of(&self, shard: u64, object: &str, report: &mut Report) -> Result<Option<Remains>> {
        let objects = self.objects(shard, &Self::cache()?)?;
        let opened = match objects.open_unknown(object) {
            Ok(opened) => opened,
            Err(error) => {
                report.problem(object, error.kind(), error);
                return Ok(None);
            }
        };
        let remains = Remains::read(&opened);
        let directory = opened.directory();
        let holds = if matches!(remains.table(), Some(Ok(_))) { "image of a table" } else { "records" };
        let mut about = Section::new("object", OBJECT);
        about.rows.push(vec![
            object.into(),
            holds.into(),
            directory.length().into(),
            directory.object_bytes().into(),
            u64::from(directory.blocks()).into(),
            u64::from(directory.block_bytes()).into(),
            remains.holes.len().into(),
        ]);
        report.sections.push(about);
        for (hole, error) in &remains.holes {
            report.problem(object, error.kind(), format!("bytes from {}: {error}", hole.start));
        }
        Ok(Some(remains))
    }

    fn show_segment(&self, object: &str, limit: usize, report: &mut Report) -> Result<()> {
        let name = ObjectName::new(object)?;
        if self.place.storage.objects().size(&name).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let message = format!("there is no object {object}: forebay inspect manifest lists them");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let Some(remains) = self.remains_of(0, object, report)? else { return Ok(()) };
        show_contents(&remains, limit, object, report);
        Ok(())
    }
}

fn log_name(log: LogName) -> String {
    format!("{}/{}", log.epoch, log.serial)
}
