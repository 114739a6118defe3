//! Logs that hold writes but that no commit names, because the commits that named them are missing.
//!
//! ```text
//!  a log is created ─► a commit names it ─► records are appended ─► tables hold them ─► a commit names it no more ─► it is deleted
//!                      └────────────────── the commits from here on are lost ──────────────────┘
//! ```
//!
//! A log that no commit names is garbage if nothing was appended to it, or if tables hold all of it. But the newest
//! commits may also be missing. No later commit shows that they are, and writes that were acknowledged since then are
//! only in such a log. Two things tell it from garbage. It comes after all logs that commits name, as epochs and serial
//! numbers go up. And it continues with writes that neither tables nor these logs have, in whole groups: a torn end was
//! never acknowledged.

use crate::durable::database::{Committed, Place};
use crate::durable::groups::Replay;
use crate::terms::{Error, Result};
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_storage::{History, Recovery};
use forebay_table::LogName;

/// Reads a log as an owner who takes over would, but seals nothing.
///
/// # Errors
/// `Corrupt`, naming the place, when something that was durable is damaged or missing; those of the storage.
pub(crate) fn read_log(place: &Place, log: LogName, replay: &mut Replay) -> Result<()> {
    let reader = place.open_log(log, Recovery::Look)?;
    let add = |segment| replay.add_segment(reader.object(segment), reader.segment(segment)?);
    let added = (0..reader.segments()).try_for_each(add);
    replay.end_log(reader.cut());
    added
}

/// Checks the end of the newest log that the commits name, after all of these logs were read (see [`Replay::check_end`]).
///
/// # Errors
/// `Corrupt`, naming the log, when its end was durable and is damaged.
pub(crate) fn check_end(place: &Place, committed: &Committed, replay: &Replay) -> Result<()> {
    let Some(newest) = committed.logs.last() else { return Ok(()) };
    let log = place.log(*newest)?;
    let checked = replay.check_end(newest.epoch, &committed.versions);
    checked.map_err(|error| error.during(&format!("reading {log}")))
}

/// A log that no commit names.
pub(crate) struct Unnamed {
    pub(crate) log: LogName,
    /// The damage, if there is any: then it is unknown what the log holds. Otherwise the log holds writes.
    damage: Option<Error>,
}

/// Returns, in order, the logs that hold writes, or may, and that none of these commits names. `committed` is what the
/// commits say.
///
/// # Errors
/// Those of the storage.
pub(crate) fn logs(place: &Place, history: &History, committed: &Committed) -> Result<Vec<Unnamed>> {
    let Some(first) = history.commits.first() else { return Ok(Vec::new()) };
    let named = committed.logs.iter().max();
    // Logs of a database that was dropped here have lower epochs.
    let is_behind = |log: &LogName| log.epoch >= first.epoch && named.is_none_or(|named| log > named);
    let behind = place.unneeded_logs(is_behind)?;
    if behind.is_empty() {
        return Ok(Vec::new());
    }
    let mut replay = Replay::new(&committed.flushed());
    for log in &committed.logs {
        // Opening the database reports what is wrong with this log.
        if damage_of(read_log(place, *log, &mut replay))?.is_some() {
            return Ok(Vec::new());
        }
    }
    let mut holding = Vec::new();
    for log in behind {
        let before = lasts(&replay);
        // If the log does not continue from there, even more is missing.
        let damage = damage_of(read_log(place, log, &mut replay))?;
        let has_gap = damage.is_some() && has_frames(place, log)?;
        if has_gap || lasts(&replay) != before {
            holding.push(Unnamed { log, damage });
        }
    }
    Ok(holding)
}

/// Refuses a database some of whose commits are missing. `history` is what was read of them, and `committed` what they
/// say.
///
/// # Errors
/// `Corrupt`, naming the log, and what is damaged of it; those of the storage.
pub(crate) fn check(place: &Place, history: &History, committed: &Committed) -> Result<()> {
    let logs = logs(place, history, committed)?;
    let Some(unnamed) = logs.first() else { return Ok(()) };
    let newest = |history: &History| history.commits.last().map(|commit| commit.number);
    // A live owner may have named the log meanwhile.
    if newest(&place.history()?) != newest(history) {
        return Ok(());
    }
    Err(Error::corrupt(unnamed.describe(place)?))
}

impl Unnamed {
    /// Says what is wrong with the log.
    ///
    /// # Errors
    /// None for a log that was listed.
    pub(crate) fn describe(&self, place: &Place) -> Result<String> {
        let (log, commits) = (place.log(self.log)?, place.commits()?);
        Ok(match &self.damage {
            None => {
                format!("{log} holds writes, and the commit that named it is missing in {commits}, perhaps with others")
            }
            Some(damage) => format!(
                "{log} is not named by any commit, and is damaged, so it may hold writes of which the commits are missing in {commits}: {damage}"
            ),
        })
    }
}

fn lasts(replay: &Replay) -> Vec<SequenceNumber> {
    replay.shards.iter().map(|shard| shard.last).collect()
}

/// Returns why a log cannot be read: it is damaged, or was deleted meanwhile.
fn damage_of(read: Result<()>) -> Result<Option<Error>> {
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => Ok(Some(error)),
        read => read.map(|()| None),
    }
}

fn has_frames(place: &Place, log: LogName) -> Result<bool> {
    match place.storage.rescue_log(&place.log(log)?) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        parts => Ok(parts?.iter().any(|part| !part.frames.is_empty())),
    }
}
