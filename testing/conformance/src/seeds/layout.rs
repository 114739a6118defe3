//! How a node's memory is divided in a run.

use forebay_env::Random;
use forebay_fabric::Region;
use std::ops::Range;

/// The byte that fills memory that nobody was granted.
const GUARD: u8 = 0xa5;

/// Ranges of a region, in bytes, with guards around each.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) length: u64,
    /// Words that all write and read.
    pub(super) data: Range<u64>,
    /// Words for atomics.
    pub(super) atomics: Range<u64>,
    /// Memory that each endpoint uses alone.
    pub(super) private: Range<u64>,
}

impl Layout {
    pub(super) fn random(random: &mut Random) -> Self {
        let mut at = 0;
        let mut range = |least: u64, more: u64| {
            let start = at + 8 * (1 + random.below(32));
            let end = start + 8 * (least + random.below(more));
            at = end;
            start..end
        };
        let (data, atomics, private) = (range(16, 240), range(2, 14), range(64, 192));
        let length = at + 8 * (1 + random.below(32));
        Self { length, data, atomics, private }
    }

    /// Puts guards where nobody is granted anything.
    pub(super) fn guard(&self, region: &Region) -> Result<(), String> {
        for range in self.guards() {
            let guards = vec![GUARD; (range.end - range.start) as usize];
            region.write(range.start, &guards).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Checks for overwritten guards.
    pub(super) fn check(&self, memory: &[u8]) -> Result<(), String> {
        for range in self.guards() {
            let guards = &memory[range.start as usize..range.end as usize];
            if let Some(at) = guards.iter().position(|byte| *byte != GUARD) {
                return Err(format!("byte {} was written and is in no grant", range.start + at as u64));
            }
        }
        Ok(())
    }

    fn guards(&self) -> [Range<u64>; 4] {
        [
            0..self.data.start,
            self.data.end..self.atomics.start,
            self.atomics.end..self.private.start,
            self.private.end..self.length,
        ]
    }
}
