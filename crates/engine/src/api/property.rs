//! Properties: what a database reports about itself, by name, as in RocksDB (`docs/reference/properties.md`).

use crate::api::db::Db;
use crate::terms::Statistics;
use crate::work::shard::Shard;
use std::fmt::Write;
use std::sync::Arc;

/// The prefix of all names.
const PREFIX: &str = "forebay.";
/// The name of a level's property, without the level number.
const TABLES_AT_LEVEL: &str = "num-files-at-level";

/// How to compute the number of a property.
type Number = fn(&Db, &Statistics) -> u64;

/// Properties that are one number.
const NUMBERS: [(&str, Number); 22] = [
    ("num-shards", |db, _| db.shards().len() as u64),
    ("num-snapshots", |db, _| sum(db, |shard| shard.tree.snapshots() as u64)),
    ("num-immutable-mem-table", |db, _| sum(db, |shard| shard.tree.view.load().sealed.len() as u64)),
    ("mem-table-flush-pending", |db, _| {
        db.shards().iter().any(|shard| !shard.tree.view.load().sealed.is_empty()).into()
    }),
    ("num-running-flushes", |db, _| sum(db, |shard| shard.lock().is_flushing().into())),
    ("num-running-compactions", |db, _| sum(db, |shard| shard.lock().compactions() as u64)),
    ("background-errors", |db, _| sum(db, |shard| shard.lock().failure.is_some().into())),
    ("cur-size-active-mem-table", |db, _| sum(db, |shard| shard.tree.view.load().active.memtable.reserved_bytes())),
    ("cur-size-all-mem-tables", |_, statistics| statistics.memtable_bytes),
    ("estimate-num-keys", |_, statistics| statistics.levels.iter().map(|level| level.entries).sum()),
    ("estimate-live-data-size", |_, statistics| {
        statistics.live_bytes.saturating_sub(statistics.dead_bytes_undiscovered)
    }),
    ("live-sst-files-size", |_, statistics| statistics.named_bytes),
    ("total-sst-files-size", |_, statistics| statistics.remote_bytes),
    ("estimate-table-readers-mem", |_, statistics| statistics.cached_index_bytes),
    ("dead-bytes-known", |_, statistics| statistics.dead_bytes_known),
    ("dead-bytes-pinned", |_, statistics| statistics.dead_bytes_pinned),
    ("num-flushes", |_, statistics| statistics.flushes),
    ("num-compactions", |_, statistics| statistics.compactions),
    ("stall-micros", |_, statistics| statistics.stall_nanos / 1000),
    ("num-stalls", |_, statistics| statistics.stalls),
    ("num-bound-moves", |_, statistics| statistics.bound_moves),
    ("bound-moved-bytes", |_, statistics| statistics.bound_moved_bytes),
];

fn sum(db: &Db, of: impl Fn(&Arc<Shard>) -> u64) -> u64 {
    db.shards().iter().map(of).sum()
}

impl Db {
    /// A property by its name, such as `forebay.num-files-at-level0`; `None` for an unknown name.
    /// `docs/reference/properties.md` lists them all.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix(PREFIX)?;
        let statistics = self.statistics();
        if let Some((_, number)) = NUMBERS.iter().find(|(known, _)| *known == name) {
            return Some(number(self, &statistics).to_string());
        }
        if let Some(level) = name.strip_prefix(TABLES_AT_LEVEL) {
            let level: usize = level.parse().ok()?;
            let is_there = level < self.levels(&statistics);
            return is_there.then(|| statistics.levels.get(level).map_or(0, |level| level.tables).to_string());
        }
        (name == "levelstats").then(|| level_lines(&statistics))
    }

    /// All properties with their names.
    #[must_use]
    pub fn properties(&self) -> Vec<(String, String)> {
        let statistics = self.statistics();
        let numbers =
            NUMBERS.iter().map(|(name, number)| (format!("{PREFIX}{name}"), number(self, &statistics).to_string()));
        let levels = (0..self.levels(&statistics)).map(|level| {
            let tables = statistics.levels.get(level).map_or(0, |level| level.tables);
            (format!("{PREFIX}{TABLES_AT_LEVEL}{level}"), tables.to_string())
        });
        let lines = (format!("{PREFIX}levelstats"), level_lines(&statistics));
        numbers.chain(levels).chain(std::iter::once(lines)).collect()
    }

    fn levels(&self, statistics: &Statistics) -> usize {
        let of_options = self.shards().first().map_or(0, |shard| shard.tree.options.levels);
        statistics.levels.len().max(of_options)
    }
}

fn level_lines(statistics: &Statistics) -> String {
    let mut lines = String::from("level tables runs entries bytes\n");
    for (number, level) in statistics.levels.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{number} {} {} {} {}", level.tables, level.runs, level.entries, level.bytes);
    }
    lines
}
