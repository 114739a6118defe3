//! Removes keys that have expired.
//!
//! An expired key is gone for all commands at once. Its remains are removed here, by the entries of expiring keys,
//! which are in the order of their times. A sweep does not pass again what earlier ones have removed
//! (`keyspace::swept`).

use crate::execute::Executor;
use crate::keyspace::failure::Outcome;
use crate::keyspace::layout::{self, DATABASES};
use crate::keyspace::writes::{Direction, Writes};
use bytes::Bytes;

/// How many keys of each database are removed at a time.
const AT_A_TIME: usize = 256;
/// Most keys of a database that are looked at for that.
const MAX_LOOKS: usize = 16 * AT_A_TIME;

/// Removes some expired keys of each database, and serves clients that wait for one of them. Returns true when there may
/// be more.
///
/// # Errors
/// Those of the database.
pub fn remove_some(executor: &Executor<'_>) -> Outcome<bool> {
    let mut may_have_more = false;
    for space in 0..DATABASES as u8 {
        if executor.shared.spaces.counts(space).expiring > 0 {
            may_have_more |= remove(executor, space)? == AT_A_TIME;
        }
    }
    Ok(may_have_more)
}

fn remove(executor: &Executor<'_>, space: u8) -> Outcome<usize> {
    let shared = executor.shared;
    let now_ms = shared.time.now_ms();
    let (keyed, swept) = (shared.spaces.layout(), shared.spaces.swept());
    let (from, to) = layout::expiries_before(space, now_ms);
    let range = (from.max(swept.begin(space)), to);
    let (mut found, mut looks): (Vec<Bytes>, usize) = (Vec::new(), 0);
    // The first entry that stays, and where the next sweep goes on if this one looks no further.
    let (mut kept, mut next) = (None, None);
    Writes::new(&shared.store, 0).scan(&range, Direction::Forward, |entry, _| {
        let key = layout::client_key(entry);
        looks += 1;
        // A job may have reserved keys for long. They stay, and others do not.
        if !shared.locks.keeps(keyed.hash(key)) {
            found.push(Bytes::copy_from_slice(key));
        } else if kept.is_none() {
            kept = Some(Bytes::copy_from_slice(entry));
        }
        let goes_on = found.len() < AT_A_TIME && looks < MAX_LOOKS;
        if !goes_on {
            next = Some(layout::after(entry));
        }
        Ok(goes_on)
    })?;
    let passed = kept.or(next).unwrap_or(range.1);
    if found.is_empty() {
        swept.end(space, passed);
        return Ok(0);
    }
    // While another thread has locked everything, or has just reserved one of these, they stay until the next sweep.
    let Ok(locked) = shared.locks.try_lock(found.iter().map(|key| keyed.hash(key)), true) else { return Ok(0) };
    let mut keys = shared.transaction(now_ms);
    keys.fetch(space, found.iter().map(|key| (keyed.hash(key), &key[..], false)))?;
    for key in &found {
        // The key may have changed before it was locked.
        keys.expire(space, key)?;
    }
    let doubt = executor.finish(None, None, &mut keys)?;
    swept.end(space, passed);
    drop(locked);
    executor.serve_waiters(&keys);
    doubt.map_or(Ok(found.len()), Err)
}
