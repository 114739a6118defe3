//! Point lookups in tables whose point index is not held (see `index_cache`).
//!
//! The sparse index says which index block holds a key's entries. The blocks of all levels that may
//! hold the key are read with one doorbell, so a lookup costs one round trip more, however many
//! levels there are. Blocks carry checksums and whole keys: what they say is verified and exact, which a
//! bucket of the point index, read by itself, would not be.

use crate::endpoints::Taken;
use crate::probe::Probe;
use crate::read::received;
use crate::table::Table;
use crate::{Error, Result};
use forebay_base::{InternalKey, Tag};
use forebay_fabric::Slot;
use forebay_table::{BlockIterator, CachedTable, Candidate};
use std::sync::Arc;

/// Bytes of one read when an index is loaded.
const LOAD_BYTES: u64 = 256 << 10;

/// Reads what those of `probes` wait for that do, and lets them go on. One round trip.
///
/// # Errors
/// Those of the fabric; `Corrupt`.
pub(crate) fn look_up(endpoint: &mut Taken<'_>, probes: &mut [&mut Probe<'_>]) -> Result<()> {
    let mut asked = Vec::new();
    for probe in probes.iter_mut().filter(|probe| probe.waits()) {
        let target = InternalKey { user_key: probe.user_key(), tag: Tag::seek(probe.number()) };
        let mut reads = Vec::new();
        for table in probe.without_index() {
            let sparse = table.cached().sparse_index();
            let block = sparse.block(sparse.seek(table.properties().key_order, target));
            let posted = match block {
                Some(block) => {
                    let slot = endpoint.slot(block.length as usize)?;
                    Some(endpoint.post_read(table.image().at(block.offset), slot)?)
                }
                // All entries sort before the key.
                None => None,
            };
            reads.push((table, posted));
        }
        asked.push((probe, target, reads));
    }
    for (probe, target, reads) in asked {
        let mut found = Vec::with_capacity(reads.len());
        for (table, posted) in reads {
            let candidate = match posted {
                Some(id) => {
                    let slot = received(endpoint.wait_for(id)?)?;
                    let candidate = entry_of(table, target, &slot)?;
                    let bytes = slot.len() as u64;
                    endpoint.release(slot);
                    load_if_due(endpoint, table, bytes)?;
                    candidate
                }
                None => None,
            };
            found.push((table.id(), candidate));
        }
        probe.look_up(found);
    }
    Ok(())
}

/// Where the newest record of the target's key is that the target covers, by an index block.
fn entry_of(table: &Table, target: InternalKey<'_>, block: &Slot) -> Result<Option<Candidate>> {
    let properties = table.properties();
    let mut entries = BlockIterator::new(&block[..])?;
    entries.seek(properties.key_order, target)?;
    let Some(entry) = entries.entry().filter(|entry| entry.key.user_key == target.user_key) else { return Ok(None) };
    let (_, address) = properties.locate(&entry)?;
    Ok(Some(Candidate { address, read_length: entry.length }))
}

/// Loads a table's point index, if misses have cost enough.
fn load_if_due(endpoint: &mut Taken<'_>, table: &Arc<Table>, missed_bytes: u64) -> Result<()> {
    let Some(held) = table.held() else { return Ok(()) };
    if !held.missed(missed_bytes) {
        return Ok(());
    }
    let loaded = load(endpoint, table);
    match loaded {
        Ok(mut cached) => {
            held.loaded(cached.take_point_index());
            Ok(())
        }
        Err(error) => {
            held.loaded(None);
            Err(error)
        }
    }
}

/// Reads a table's tail again.
fn load(endpoint: &mut Taken<'_>, table: &Table) -> Result<CachedTable> {
    let range = table.tail();
    let mut tail = Vec::with_capacity(range.end.saturating_sub(range.start) as usize);
    let mut posted = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let bytes = LOAD_BYTES.min(range.end - at);
        let slot = endpoint.slot(bytes as usize)?;
        posted.push(endpoint.post_read(table.image().at(at), slot)?);
        at += bytes;
    }
    for id in posted {
        let slot = received(endpoint.wait_for(id)?)?;
        tail.extend_from_slice(&slot);
        endpoint.release(slot);
    }
    let cached = CachedTable::parse(&tail)?;
    if cached.properties() != table.cached().properties() {
        return Err(Error::corrupt(format!("the image of table {} is another table's", table.id().0)));
    }
    Ok(cached)
}
