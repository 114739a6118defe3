//! Verifies all of a database: register, logs, objects, tables.

use crate::durable::checkpoints;
use crate::durable::database::Committed;
use crate::durable::groups::Replay;
use crate::inspect::check::{self, Tally};
use crate::inspect::report::{Report, Section, Step};
use crate::inspect::source::{Live, Stored};
use crate::inspect::stored::{Listed, StoredDatabase};
use crate::terms::Result;
use crate::tree::shared::Tree;
use std::sync::Arc;

const CHECKED: &[&str] = &[
    "commits",
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

/// What was verified beside tables and segments.
#[derive(Debug, Default)]
struct Logs {
    logs: u64,
    groups: u64,
    bytes: u64,
}

impl StoredDatabase {
    /// Verifies everything of the database that lies in storage: that the commits continue one another, that the logs are whole,
    /// that every block of every object can be read, that indexes are in order, that every entry finds its record, and that
    /// versions keep their invariants. What is wrong is in [`Report::problems`]; objects that nothing names are in
    /// [`Report::notes`].
    ///
    /// # Errors
    /// Those of the storage when nothing can be listed. Damage is no error.
    pub fn verify(&self, progress: &mut dyn FnMut(Step)) -> Result<Report> {
        let mut report = Report::default();
        let listed = self.listed()?;
        let commits = self.place.storage.objects().list(Some(&self.place.commits()?))?.len() as u64;
        let mut step = Step { bytes: 0, of_bytes: 0 };
        let mut tally = Tally::default();
        let mut logs = Logs::default();
        let mut orphans = 0;
        let committed = self.committed(&mut report);
        if let Some(committed) = &committed {
            let segments = committed.versions.iter().flat_map(|version| version.segments().values());
            step.of_bytes = segments.map(|entry| entry.info.length).sum();
            let mut told = |bytes: u64| {
                step.bytes += bytes;
                progress(step);
            };
            self.verify_logs(committed, &mut logs, &mut report)?;
            let cache = Self::cache()?;
            for (version, shard) in committed.versions.iter().zip(0..) {
                let objects = self.objects(shard, &cache)?;
                let found = check::shard(shard, version, &Stored::new(version, &objects), &mut report, &mut told);
                add(&mut tally, found);
            }
            orphans = self.note_orphans(committed, &listed, &mut report)?;
        } else {
            step.of_bytes = listed.iter().map(|object| object.bytes).sum();
            for object in &listed {
                self.verify_object(object, &mut tally, &mut report)?;
                step.bytes += object.bytes;
                progress(step);
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
        let shards = committed.map_or(0, |committed| committed.versions.len() as u64);
        let Tally { tables, entries, segments, bytes } = tally;
        let counts = [commits, logs.logs, logs.groups, logs.bytes, shards, tables, entries, segments, bytes, orphans];
        checked.rows.push(counts.map(Into::into).to_vec());
        report.sections.push(checked);
        Ok(report)
    }

    /// Reads the logs that are needed.
    fn verify_logs(&self, committed: &Committed, found: &mut Logs, report: &mut Report) -> Result<()> {
        let mut replay = Replay::new(&committed.flushed());
        for name in &committed.logs {
            let log = self.place.log(*name)?;
            found.logs += 1;
            match self.read_log(*name, &mut replay) {
                Ok(None) => {}
                Ok(Some(cut)) => {
                    let detail = format!(
                        "its last {} bytes do not count, as they were never acknowledged: {}",
                        cut.bytes, cut.cause
                    );
                    report.note(cut.object, detail);
                }
                Err(error) => report.problem(log.as_str(), error.kind(), error),
            }
        }
        (found.groups, found.bytes) = (replay.groups, replay.bytes);
        Ok(())
    }

    /// Notes objects and logs that nothing names; how many.
    fn note_orphans(&self, committed: &Committed, listed: &[Listed], report: &mut Report) -> Result<u64> {
        let mut named = committed.objects();
        for checkpoint in checkpoints::list(&self.place)? {
            named.extend(checkpoints::read(&self.place, &checkpoint)?.objects());
        }
        let mut orphans = 0;
        for object in listed.iter().filter(|object| !named.contains(object.name.as_str())) {
            orphans += 1;
            let detail =
                format!("{} bytes that no version names: whoever opens the database deletes them", object.bytes);
            report.note(object.name.as_str(), detail);
        }
        for (name, _) in self.place.stored_logs()?.into_iter().filter(|(name, _)| !committed.logs.contains(name)) {
            let log = self.place.log(name)?;
            // A seal stays for ever.
            let bytes: u64 =
                self.place.storage.rescue_log(&log)?.iter().filter(|part| !part.is_seal).map(|part| part.bytes).sum();
            if bytes > 0 {
                orphans += 1;
                report.note(
                    log.as_str(),
                    format!("a log of {bytes} bytes that no commit names: whoever opens the database deletes it"),
                );
            }
        }
        Ok(orphans)
    }

    /// Reads an object of which nothing is known but its name.
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

/// Verifies the tables and segments of open shards, wherever they lie.
pub(crate) fn verify_open(trees: &[Arc<Tree>], progress: &mut dyn FnMut(Step)) -> Report {
    let mut report = Report::default();
    let views: Vec<_> = trees.iter().map(|tree| (tree, tree.view.load())).collect();
    let of_bytes = views.iter().map(|(_, view)| view.version.segment_bytes()).sum();
    let mut step = Step { bytes: 0, of_bytes };
    let mut tally = Tally::default();
    for ((tree, view), shard) in views.iter().zip(0..) {
        let segments = Live { version: &view.version, remote: &tree.remote };
        let mut told = |bytes: u64| {
            step.bytes += bytes;
            progress(step);
        };
        add(&mut tally, check::shard(shard, &view.version.version, &segments, &mut report, &mut told));
    }
    let mut checked = Section::new("checked", &["shards", "tables", "entries", "segments", "segment_bytes"]);
    let Tally { tables, entries, segments, bytes } = tally;
    checked.rows.push([trees.len() as u64, tables, entries, segments, bytes].map(Into::into).to_vec());
    report.sections.push(checked);
    report
}

fn add(tally: &mut Tally, found: Tally) {
    tally.tables += found.tables;
    tally.entries += found.entries;
    tally.segments += found.segments;
    tally.bytes += found.bytes;
}
