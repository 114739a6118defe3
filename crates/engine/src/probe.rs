//! Where a key's records may be: the point lookup's walk over tables.

use crate::table::Table;
use crate::version::LiveVersion;
use forebay_base::SequenceNumber;
use forebay_table::{Candidate, key_hash};
use std::sync::Arc;

/// Candidates for a key, newest first: tables of level 0 from the newest to the oldest, then one
/// table of each further level. Costs no fabric operation: the point indexes are cached.
///
/// Where a range deletion of a table hides the key, the walk ends with this table: all that follows
/// is older.
pub(crate) struct Probe<'v> {
    version: &'v LiveVersion,
    user_key: &'v [u8],
    hash: u64,
    number: SequenceNumber,
    level: usize,
    /// Tables of level 0 looked at so far.
    position: usize,
    current: Option<(&'v Arc<Table>, forebay_table::point_index::Candidates<'v>)>,
    /// Number of the newest range deletion over the key, once the walk has come to it.
    hidden: Option<SequenceNumber>,
}

impl<'v> Probe<'v> {
    pub(crate) fn new(version: &'v LiveVersion, user_key: &'v [u8], number: SequenceNumber) -> Self {
        let hash = key_hash(user_key);
        Self { version, user_key, hash, number, level: 0, position: 0, current: None, hidden: None }
    }

    /// Number of the range deletion that hides the key's older records, if the current candidate's
    /// table has one.
    #[inline]
    pub(crate) fn hidden(&self) -> Option<SequenceNumber> {
        self.hidden
    }

    fn next_table(&mut self) -> Option<&'v Arc<Table>> {
        let levels = self.version.levels();
        if self.level == 0 {
            let level0 = levels.first().map_or(&[][..], Vec::as_slice);
            while let Some(table) = level0.get(self.position) {
                self.position += 1;
                if table.properties().may_contain(self.user_key) {
                    return Some(table);
                }
            }
            self.level = 1;
        }
        while self.level < levels.len() {
            let found = self.version.find(self.level, self.user_key);
            self.level += 1;
            if let Some(table) = found
                && table.properties().may_contain(self.user_key)
            {
                return Some(table);
            }
        }
        None
    }
}

impl<'v> Iterator for Probe<'v> {
    type Item = (&'v Arc<Table>, Candidate);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((table, candidates)) = &mut self.current
                && let Some(candidate) = candidates.next()
            {
                return Some((table, candidate));
            }
            if self.hidden.is_some() {
                return None;
            }
            let table = self.next_table()?;
            if self.version.has_range_deletions() {
                self.hidden = table.range_deletions().newest_over(self.user_key, self.number);
            }
            self.current = Some((table, table.cached().candidates(self.hash)));
        }
    }
}
