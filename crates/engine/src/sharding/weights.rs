//! How the bytes of a shard are distributed over its keys, from local knowledge: no round trip.
//!
//! A table's sparse index gives the last key of each block, and each block stands for its share of the table's records.
//! So an answer is right to within one block of each table at both ends. Shadowed and deleted records count until a
//! compaction drops them.

use crate::terms::Result;
use crate::terms::bounds::before;
use crate::terms::routing::KeyRange;
use crate::tree::shared::Tree;
use crate::tree::table::Table;
use forebay_base::KeyOrder;
use std::sync::Arc;

/// Bytes of memtable records that one weight stands for.
const STEP_BYTES: u64 = 4 << 10;

/// Keys in order, each with the record bytes between the previous key and itself.
pub(crate) type Weights = Vec<(Vec<u8>, u64)>;

impl Tree {
    /// Bytes of records in a range.
    pub(crate) fn weight(&self, range: KeyRange<'_>) -> Result<u64> {
        let mut sum = 0;
        let mut add = |_: &[u8], bytes| sum += bytes;
        self.weigh_memtables(range, &mut add)?;
        self.weigh_tables(range, &mut add);
        Ok(sum)
    }

    /// Passes keys of a range to `sink`, table by table, each with the bytes that it stands for.
    pub(crate) fn weigh_tables(&self, range: KeyRange<'_>, sink: &mut impl FnMut(&[u8], u64)) {
        let view = Arc::clone(&self.view.load());
        view.version.levels().iter().flatten().for_each(|table| weigh(table, self.options.key_order, range, sink));
    }

    fn weigh_memtables(&self, range: KeyRange<'_>, sink: &mut impl FnMut(&[u8], u64)) -> Result<()> {
        let view = Arc::clone(&self.view.load());
        for buffer in view.buffers() {
            let mut cursor = buffer.memtable.cursor();
            match range.lower {
                Some(lower) => cursor.seek(before(lower))?,
                None => cursor.seek_to_first()?,
            }
            let mut bytes = 0;
            while let Some(found) = cursor.record()? {
                let key = found.record.key;
                if !range.contains(self.options.key_order, key) {
                    break;
                }
                bytes += found.record.length() as u64;
                if bytes >= STEP_BYTES {
                    sink(key, std::mem::take(&mut bytes));
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// The weights of a range, in key order; without those of memtables on request.
    pub(crate) fn weights(&self, range: KeyRange<'_>, memtables: bool) -> Result<Weights> {
        let mut weights = Vec::new();
        let mut add = |key: &[u8], bytes| weights.push((key.to_vec(), bytes));
        if memtables {
            self.weigh_memtables(range, &mut add)?;
        }
        self.weigh_tables(range, &mut add);
        weights.sort_by(|a, b| self.options.key_order.compare(&a.0, &b.0));
        Ok(weights)
    }

    /// Keys that divide a range into parts of about `most` bytes.
    pub(crate) fn cuts(&self, range: KeyRange<'_>, most: u64) -> Result<Vec<Vec<u8>>> {
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        for (key, weight) in self.weights(range, true)? {
            bytes += weight;
            if bytes >= most && cuts.last() != Some(&key) && range.lower != Some(&key) {
                cuts.push(key);
                bytes = 0;
            }
        }
        Ok(cuts)
    }

    /// Whether a table may hold keys in a range.
    pub(crate) fn tables_overlap(&self, range: KeyRange<'_>) -> bool {
        let view = self.view.load();
        view.version.levels().iter().flatten().any(|table| table.properties().overlaps(range.lower, range.upper))
    }

    /// The first and last key that the shard may hold in a range, limited to the range.
    pub(crate) fn reach(&self, range: KeyRange<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let order = self.options.key_order;
        let mut reach: Option<(Vec<u8>, Vec<u8>)> = None;
        let mut note = |first: &[u8], last: &[u8]| {
            let first = range.lower.filter(|lower| order.compare(first, lower).is_lt()).unwrap_or(first);
            let last = range.upper.filter(|upper| order.compare(last, upper).is_gt()).unwrap_or(last);
            let (from, to) = reach.get_or_insert_with(|| (first.to_vec(), last.to_vec()));
            if order.compare(first, from).is_lt() {
                *from = first.to_vec();
            }
            if order.compare(last, to).is_gt() {
                *to = last.to_vec();
            }
        };
        let view = Arc::clone(&self.view.load());
        for table in view.version.levels().iter().flatten() {
            let properties = table.properties();
            if properties.overlaps(range.lower, range.upper) {
                note(&properties.smallest.user_key, &properties.largest.user_key);
            }
        }
        for buffer in view.buffers() {
            let mut cursor = buffer.memtable.cursor();
            match range.lower {
                Some(lower) => cursor.seek(before(lower))?,
                None => cursor.seek_to_first()?,
            }
            let Some(first) = cursor.record()?.map(|found| found.record.key.to_vec()) else { continue };
            match range.upper {
                Some(upper) => cursor.seek_for_prev(before(upper))?,
                None => cursor.seek_to_last()?,
            }
            let Some(last) = cursor.record()?.map(|found| found.record.key.to_vec()) else { continue };
            if order.compare(&first, &last).is_le() {
                note(&first, &last);
            }
        }
        Ok(reach)
    }
}

fn weigh(table: &Table, order: KeyOrder, range: KeyRange<'_>, sink: &mut impl FnMut(&[u8], u64)) {
    let (bytes, sparse) = (table.properties().record_bytes, table.cached().sparse_index());
    let whole = sparse.blocks_bytes().max(1);
    let first = range.lower.map_or(0, |lower| sparse.seek(order, before(lower)));
    for block in first..sparse.block_count() {
        let (Some(last), Some(address)) = (sparse.last_key(block), sparse.block(block)) else { return };
        if !range.contains(order, last.user_key) {
            return;
        }
        let share = u128::from(bytes) * u128::from(address.length) / u128::from(whole);
        sink(last.user_key, u64::try_from(share).unwrap_or(bytes));
    }
}
