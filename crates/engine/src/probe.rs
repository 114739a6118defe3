//! Where a key's records may be: the point lookup's walk over tables.

use crate::table::Table;
use crate::version::LiveVersion;
use forebay_table::{Candidate, key_hash};
use std::sync::Arc;

/// Candidates for a key, newest first: tables of level 0 from the newest to the oldest, then one
/// table of each further level. Costs no fabric operation: the point indexes are cached.
pub(crate) struct Probe<'v> {
    version: &'v LiveVersion,
    user_key: &'v [u8],
    hash: u64,
    level: usize,
    /// Tables of level 0 looked at so far.
    position: usize,
    current: Option<(&'v Arc<Table>, forebay_table::point_index::Candidates<'v>)>,
}

impl<'v> Probe<'v> {
    pub(crate) fn new(version: &'v LiveVersion, user_key: &'v [u8]) -> Self {
        Self { version, user_key, hash: key_hash(user_key), level: 0, position: 0, current: None }
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
            let table = self.next_table()?;
            self.current = Some((table, table.cached().candidates(self.hash)));
        }
    }
}
