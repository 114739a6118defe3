//! Verifies all of a database: register, logs, checkpoints, objects, tables. Or backups of one, which are checkpoints and what
//! they name.

use crate::durable::checkpoints;
use crate::durable::database::{CheckpointId, Committed, Tombstone, UNFINISHED};
use crate::durable::dropping;
use crate::durable::findings::{Damaged, Looked};
use crate::durable::groups::Replay;
use crate::durable::unnamed;
use crate::inspect::check::{self, Tally};
use crate::inspect::report::{Finding, Report, Section, Step};
use crate::inspect::source::{Live, Stored, at_node};
use crate::inspect::stored::{Listed, StoredDatabase};
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use forebay_base::ErrorKind;
use forebay_env::HashSet;
use forebay_storage::ObjectInfo;
use forebay_table::LogName;
use std::collections::BTreeMap;
use std::sync::Arc;

const CHECKED: &[&str] = &[
    "commits",
    "checkpoints",
    "logs",
    "log_groups",
    "log_bytes",
    "shards",
    "tables",
    "entries",
    "segments",
    "segment_bytes",
    "orphans",
];

/// How often all is read at most while something seems to be wrong and the owner continues.
const MAX_PASSES: usize = 5;

/// What was verified beside tables and segments.
#[derive(Debug, Default)]
struct Logs {
    logs: u64,
    groups: u64,
    bytes: u64,
}

/// What is to be verified.
#[derive(Debug, Default)]
struct Moments {
    /// What the commits say.
    current: Option<Committed>,
    /// The checkpoints that can be read.
    checkpoints: BTreeMap<CheckpointId, Committed>,
    /// Whether some cannot be read, and may name any object.
    lacks_checkpoints: bool,
    /// Whether these are backups of a database that lives elsewhere.
    are_backups: bool,
}

impl Moments {
    /// All of them, and what messages call their shards.
    fn all(&self) -> impl Iterator<Item = (String, &Committed)> {
        let checkpoints = self.checkpoints.iter();
        let checkpoints = checkpoints.map(|(id, committed)| (format!("checkpoint {:?}, ", id.name()), committed));
        self.current.iter().map(|committed| (String::new(), committed)).chain(checkpoints)
    }

    /// The objects that they name, with the bytes of the segment that each holds.
    fn segments(&self) -> BTreeMap<&str, u64> {
        self.all().flat_map(|(_, committed)| committed.segments()).collect()
    }
}

impl StoredDatabase {
    /// Verifies everything of the database in storage: that the commits continue one another, that the logs are whole,
    /// that checkpoints can be read, that every block of every object can be read, that indexes are in order, that
    /// every entry finds its record, and that versions keep their invariants. An object that several versions name is
    /// read once. If the place has backups, verifies the same of their checkpoints. [`Report::problems`] has what is
    /// wrong, and [`Report::notes`] the objects that nothing names.
    ///
    /// The owner may continue meanwhile. Something is wrong only if it is found again after whatever the owner
    /// replaced. So all is then read again, from the beginning, up to four times.
    ///
    /// # Errors
    /// `NotFound` when the database was dropped; those of the storage when nothing can be listed. Damage is no error.
    pub fn verify(&self, progress: &mut dyn FnMut(Step)) -> Result<Report> {
        self.check_not_dropped()?;
        let mut contents = self.contents()?;
        let mut report = self.verify_once(&contents, progress)?;
        for _ in 1..MAX_PASSES {
            if report.problems.is_empty() {
                break;
            }
            let now = self.contents()?;
            if now == contents {
                break;
            }
            contents = now;
            let mut again = self.verify_once(&contents, progress)?;
            let is_found_again = |problem: &Finding| report.problems.iter().any(|found| found.object == problem.object);
            again.problems.retain(is_found_again);
            report = again;
        }
        Ok(report)
    }

    /// Verifies what the commits and checkpoints name now. The objects were listed just before.
    fn verify_once(&self, contents: &[ObjectInfo], progress: &mut dyn FnMut(Step)) -> Result<Report> {
        let mut report = Report::default();
        let (listed, commits) = (self.segments_in(contents)?, self.place.commits()?);
        let commits = contents.iter().filter(|object| object.name.after(&commits).is_some()).count() as u64;
        let moments = self.moments(commits > 0, &mut report)?;
        let named = moments.segments();
        let is_unnamed = |object: &&Listed| !named.contains_key(object.name.as_str());
        let unnamed: Vec<_> = listed.iter().filter(is_unnamed).collect();
        let mut tally = Tally::default();
        let mut logs = Logs::default();
        let mut orphans = 0;
        let mut step = Step { bytes: 0, of_bytes: named.values().sum() };
        if moments.current.is_some() || moments.are_backups {
            orphans = note_orphans(&moments, &unnamed, &mut report);
        } else {
            step.of_bytes += unnamed.iter().map(|object| object.bytes).sum::<u64>();
            for object in unnamed {
                self.verify_object(object, &mut tally, &mut report)?;
                step.bytes += object.bytes;
                progress(step);
            }
        }
        if let Some(current) = &moments.current {
            orphans += self.note_orphan_logs(current, &mut report)?;
            self.verify_logs(current, &mut logs, &mut report)?;
        }
        let cache = Self::cache()?;
        let mut seen = HashSet::default();
        let mut told = |bytes: u64| {
            step.bytes += bytes;
            progress(step);
        };
        for (about, committed) in moments.all() {
            for (version, shard) in committed.versions.iter().zip(0..) {
                let (about, objects) = (format!("{about}shard {shard}"), self.objects(shard, &cache)?);
                let mut is_new = |name| seen.insert(name);
                let segments = Stored::new(version, &objects);
                add(&mut tally, check::shard(&about, version, &segments, &mut is_new, &mut report, &mut told));
            }
        }
        for left in self.place.storage.objects().unfinished()? {
            let detail = format!(
                "{} bytes of a write that was interrupted: whoever opens a database in this storage deletes them",
                left.bytes
            );
            report.note(left.path, detail);
        }
        let mut checked = Section::new("checked", CHECKED);
        let shards = moments.all().next().map_or(0, |(_, committed)| committed.versions.len() as u64);
        let checkpoints = moments.checkpoints.len() as u64;
        let Tally { tables, entries, segments, bytes } = tally;
        let Logs { logs, groups, bytes: log_bytes } = logs;
        let counts = [commits, checkpoints, logs, groups, log_bytes, shards, tables, entries, segments, bytes, orphans];
        checked.rows.push(counts.map(Into::into).to_vec());
        report.sections.push(checked);
        Ok(report)
    }

    /// Refuses a database that was dropped: what is left of it is not verified.
    fn check_not_dropped(&self) -> Result<()> {
        // Damage is reported later.
        let Ok(history) = self.place.history() else { return Ok(()) };
        let was_dropped = matches!(Tombstone::of(&history), Ok(Some(_)));
        if !was_dropped || !matches!(checkpoints::are_at(&self.place), Ok(false)) {
            return Ok(());
        }
        let name = &self.name;
        let message = match dropping::left(&self.place, &history)? {
            Some(_) => format!("the database {name:?} was dropped, but not all of it is deleted: drop it again"),
            None => format!("the database {name:?} was dropped"),
        };
        Err(Error::new(ErrorKind::NotFound, message))
    }

    /// Reads the commits, unless backups are here, and all checkpoints.
    fn moments(&self, has_commits: bool, report: &mut Report) -> Result<Moments> {
        let mut moments = Moments::default();
        let unfinished = self.place.unfinished()?;
        if self.place.is_there(&unfinished)? {
            report.problem(unfinished.as_str(), ErrorKind::Corrupt, UNFINISHED);
        }
        let mut backup_of = None;
        if !has_commits {
            match checkpoints::backed_up(&self.place) {
                Ok(found) => (moments.are_backups, backup_of) = (found.is_some(), found),
                Err(error) => {
                    moments.are_backups = true;
                    report.problem(self.place.backup()?.as_str(), error.kind(), error);
                }
            }
        }
        if !moments.are_backups {
            moments.current = self.committed(report);
            if moments.current.as_ref().is_some_and(|current| current.identity.config.to_finish) {
                report.problem(self.register_name(), ErrorKind::Corrupt, UNFINISHED);
            }
        }
        for id in checkpoints::ids(&self.place)? {
            match checkpoints::read(&self.place, &id) {
                Ok(found) => {
                    if backup_of.is_some_and(|database| database != found.identity.database) {
                        let detail = "it is of another database than the backups that are here";
                        report.problem(self.place.checkpoint(&id)?.as_str(), ErrorKind::Corrupt, detail);
                    }
                    moments.checkpoints.insert(id, found);
                }
                // The checkpoint was dropped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    moments.lacks_checkpoints = true;
                    report.problem(self.place.checkpoint(&id)?.as_str(), error.kind(), error);
                }
            }
        }
        Ok(moments)
    }

    /// Reads the logs that are needed.
    fn verify_logs(&self, committed: &Committed, found: &mut Logs, report: &mut Report) -> Result<()> {
        let mut replay = Replay::new(&committed.flushed());
        let mut are_whole = true;
        for name in &committed.logs {
            let log = self.place.log(*name)?;
            found.logs += 1;
            if let Err(error) = self.read_log(*name, &mut replay) {
                report.problem(log.as_str(), error.kind(), error);
                are_whole = false;
            }
        }
        let (newest, ends) = (committed.logs.last(), unnamed::check_end(&self.place, committed, &replay));
        if let (true, Some(newest), Err(error)) = (are_whole, newest, ends) {
            report.problem(self.place.log(*newest)?.as_str(), error.kind(), error);
            are_whole = false;
        }
        // A later log that does not go on from there may show that such an end was acknowledged.
        for cut in replay.cuts.iter().filter(|_| are_whole) {
            let detail =
                format!("its last {} bytes do not count, as they were never acknowledged: {}", cut.bytes, cut.cause);
            report.note(cut.object.as_str(), detail);
        }
        (found.groups, found.bytes) = (replay.groups, replay.bytes);
        Ok(())
    }

    /// Notes logs that no commit names. Returns how many.
    fn note_orphan_logs(&self, committed: &Committed, report: &mut Report) -> Result<u64> {
        let mut orphans = 0;
        let unnamed = self.unnamed_logs(report)?;
        let is_orphan = |name: &LogName| !committed.logs.contains(name) && !unnamed.contains(name);
        for name in self.place.stored_logs()?.into_iter().map(|log| log.name).filter(is_orphan) {
            let bytes = self.place.unsealed_bytes(name)?;
            if bytes > 0 {
                orphans += 1;
                report.note(
                    self.place.log(name)?.as_str(),
                    format!("a log of {bytes} bytes that no commit names: whoever opens the database deletes it"),
                );
            }
        }
        Ok(orphans)
    }

    /// Reads an object of which only the name is known.
    fn verify_object(&self, object: &Listed, tally: &mut Tally, report: &mut Report) -> Result<()> {
        let objects = self.objects(object.shard, &Self::cache()?)?;
        tally.segments += 1;
        let read = objects.open_unknown(object.name.as_str()).and_then(|opened| {
            let length = opened.directory().length();
            tally.bytes += length;
            objects.get(object.name.as_str(), length, |_, _| Ok(()))
        });
        if let Err(error) = read {
            report.problem(object.name.as_str(), error.kind(), error);
        }
        Ok(())
    }
}

/// Notes objects that nothing names. Returns how many.
fn note_orphans(moments: &Moments, unnamed: &[&Listed], report: &mut Report) -> u64 {
    let what = match (moments.lacks_checkpoints, moments.are_backups) {
        (true, _) => "that nothing names, unless a checkpoint does that cannot be read",
        (false, true) => {
            "that no checkpoint here names: backups of a clone may need them, or a copy that was interrupted left \
             them, and the next one goes on with them"
        }
        (false, false) => "that no version names: whoever opens the database deletes them",
    };
    for object in unnamed {
        report.note(object.name.as_str(), format!("{} bytes {what}", object.bytes));
    }
    unnamed.len() as u64
}

/// Verifies the tables and segments of open shards, wherever they are: if there are several copies in memory, each of
/// them.
pub(crate) fn verify_open(trees: &[Arc<Tree>], progress: &mut dyn FnMut(Step)) -> Report {
    let mut report = Report::default();
    let views: Vec<_> = trees.iter().map(|tree| (tree, tree.view.load())).collect();
    let copies: Vec<Vec<_>> = trees.iter().map(|tree| tree.remote.active().cloned().collect()).collect();
    let bytes = views.iter().zip(&copies).map(|((_, view), copies)| view.version.segment_bytes() * copies.len() as u64);
    let mut step = Step { bytes: 0, of_bytes: bytes.sum() };
    let mut tally = Tally::default();
    for (((_, view), copies), shard) in views.iter().zip(&copies).zip(0_u64..) {
        for remote in copies {
            let segments = Live { version: &view.version, remote, is_told: copies.len() > 1 };
            let mut told = |bytes: u64| {
                step.bytes += bytes;
                progress(step);
            };
            let (about, version) = (format!("shard {shard}"), &view.version.version);
            add(&mut tally, check::shard(&about, version, &segments, &mut |_| true, &mut report, &mut told));
        }
    }
    let mut checked = Section::new("checked", &["shards", "copies", "tables", "entries", "segments", "segment_bytes"]);
    let Tally { tables, entries, segments, bytes } = tally;
    let copies = copies.iter().map(|copies| copies.len() as u64).sum();
    checked.rows.push([trees.len() as u64, copies, tables, entries, segments, bytes].map(Into::into).to_vec());
    report.sections.push(checked);
    report
}

/// Adds the damage that was found in a shard's copies. What is reported already is not reported again.
pub(crate) fn add_damage(report: &mut Report, shard: u64, looked: Looked) {
    for Damaged { what, node, is_mended, detail } in looked.damaged {
        let object = at_node(&what, node);
        if is_mended {
            report.note(object, format!("shard {shard}: {detail}; it is written anew from another copy"));
        } else if report.problems.iter().all(|problem| problem.object != object) {
            report.problem(object, ErrorKind::Corrupt, format!("shard {shard}: {detail}"));
        }
    }
}

fn add(tally: &mut Tally, found: Tally) {
    tally.tables += found.tables;
    tally.entries += found.entries;
    tally.segments += found.segments;
    tally.bytes += found.bytes;
}
