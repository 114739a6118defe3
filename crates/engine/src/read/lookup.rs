//! Point lookups in tables whose point index is not held (see `index_cache`).
//!
//! The sparse index says which index block holds a key's entries. The blocks of all levels that may hold the key are
//! read with one doorbell, so a lookup costs one extra round trip, however many levels there are. Blocks carry
//! checksums and whole keys, so their answers are verified and exact. An answer from a single bucket of the point index
//! would be neither.
//!
//! Two ways cost less. The address of a record that was looked up before may be known (see `tree::learnt`), or the
//! memory node may search the blocks (see `delegated`).

use crate::read::delegated;
use crate::read::probe::{Answer, Probe};
use crate::remote::endpoints::Taken;
use crate::remote::segment::Remote;
use crate::remote::spot::Posted;
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use crate::tree::table::Table;
use forebay_base::{InternalKey, Tag};
use forebay_fabric::Slot;
use forebay_table::{BlockIterator, CachedTable, Candidate};
use std::sync::Arc;

/// Bytes per read when an index is loaded.
const LOAD_BYTES: u64 = 256 << 10;

/// Continues the probes that wait for a point index, at the node of a member. Probes whose addresses were learnt
/// continue at once. The others continue when the memory node has answered, or when the blocks are read. This costs one
/// round trip, and another one for what the memory node cannot reach.
///
/// # Errors
/// Errors of the fabric; `Corrupt`.
pub(crate) fn look_up(tree: &Tree, at: &Remote, endpoint: &mut Taken<'_>, probes: &mut [&mut Probe<'_>]) -> Result<()> {
    probes.iter_mut().for_each(|probe| probe.look_up_learnt());
    loop {
        let searched = delegated::look_up(tree, at, probes);
        let mut tables = searched.tables.iter();
        tables.try_for_each(|(at, table)| load_if_due(at, endpoint, table, searched.bytes_each))?;
        if !searched.is_answered {
            return read_blocks(endpoint, probes);
        }
    }
}

/// Reads the blocks that `probes` wait for, if any, and continues the probes. This costs one round trip.
fn read_blocks(endpoint: &mut Taken<'_>, probes: &mut [&mut Probe<'_>]) -> Result<()> {
    let mut asked = Vec::new();
    for probe in probes.iter_mut().filter(|probe| probe.waits()) {
        let target = InternalKey { user_key: probe.user_key(), tag: Tag::seek(probe.number()) };
        let mut reads = Vec::new();
        for table in probe.without_index() {
            let sparse = table.cached().sparse_index();
            let block = sparse.block(sparse.seek(table.properties().key_order, target));
            let posted = match block {
                Some(block) => {
                    let spot = table.image().spot_at(probe.at().member(), block.offset)?;
                    Some(spot.post_read(endpoint, block.length as usize)?)
                }
                // All entries sort before the key.
                None => None,
            };
            reads.push((table, posted));
        }
        asked.push((probe, target, reads));
    }
    // The wait for the first one reads it here.
    let posted = asked.iter_mut().flat_map(|(_, _, reads)| reads).filter_map(|(_, posted)| posted.as_mut());
    posted.skip(1).for_each(Posted::begin);
    for (probe, target, reads) in asked {
        let mut found = Vec::with_capacity(reads.len());
        for (table, posted) in reads {
            let candidate = match posted {
                Some(posted) => {
                    let slot = posted.wait(endpoint)?;
                    let candidate = entry_of(table, target, &slot)?;
                    let bytes = slot.len() as u64;
                    endpoint.release(slot);
                    load_if_due(probe.at(), endpoint, table, bytes)?;
                    candidate
                }
                None => None,
            };
            found.push((table.id(), candidate.map_or(Answer::Absent, Answer::At)));
        }
        probe.look_up(found);
    }
    Ok(())
}

/// Returns the place, from an index block, of the newest record of the target's key that the target covers.
fn entry_of(table: &Table, target: InternalKey<'_>, block: &Slot) -> Result<Option<Candidate>> {
    let properties = table.properties();
    let mut entries = BlockIterator::new(&block[..])?;
    entries.seek(properties.key_order, target)?;
    let Some(entry) = entries.entry().filter(|entry| entry.key.user_key == target.user_key) else { return Ok(None) };
    let (_, address) = properties.locate(&entry)?;
    Ok(Some(Candidate { address, read_length: entry.length }))
}

/// Loads a table's point index once misses have cost enough.
fn load_if_due(at: &Remote, endpoint: &mut Taken<'_>, table: &Arc<Table>, missed_bytes: u64) -> Result<()> {
    let Some(held) = table.held() else { return Ok(()) };
    if !held.missed(missed_bytes) {
        return Ok(());
    }
    let loaded = load(at, endpoint, table);
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
fn load(at: &Remote, endpoint: &mut Taken<'_>, table: &Table) -> Result<CachedTable> {
    let (image, range) = (table.image().read_at(at.member())?, table.tail());
    let mut tail = Vec::with_capacity(range.end.saturating_sub(range.start) as usize);
    let mut posted = Vec::new();
    let mut next = range.start;
    while next < range.end {
        let bytes = LOAD_BYTES.min(range.end - next);
        posted.push(image.own_spot(next).post_read(endpoint, bytes as usize)?);
        next += bytes;
    }
    posted.iter_mut().skip(1).for_each(Posted::begin);
    for posted in posted {
        let slot = posted.wait(endpoint)?;
        tail.extend_from_slice(&slot);
        endpoint.release(slot);
    }
    let cached = CachedTable::parse(&tail)?;
    if cached.properties() != table.cached().properties() {
        return Err(Error::corrupt(format!("the image of table {} is another table's", table.id().0)));
    }
    Ok(cached)
}
