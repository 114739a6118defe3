//! Bytes of the simulated storage that rot, or that one read returns wrongly.

/// Plans that one read of a handle returns a flipped bit.
#[derive(Debug, Default)]
pub(crate) struct RottenRead {
    /// How many reads come before it, and which of its bits is flipped, modulo their number.
    planned: Option<(u64, u64)>,
    done: Vec<String>,
}

impl RottenRead {
    pub(crate) const fn plan(&mut self, reads: u64, bit: u64) {
        self.planned = Some((reads, bit));
    }

    pub(crate) const fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// The names of the objects or files that were read with a flipped bit.
    pub(crate) fn done(&self) -> Vec<String> {
        self.done.clone()
    }

    /// Passes the bytes of a read, and flips the planned bit if this is the planned read.
    pub(crate) fn pass(&mut self, name: &str, bytes: &mut [u8]) {
        let bits = bytes.len() as u64 * 8;
        match self.planned.filter(|_| bits > 0) {
            Some((0, bit)) => {
                let bit = bit % bits;
                bytes.get_mut((bit / 8) as usize).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
                self.planned = None;
                self.done.push(name.to_owned());
            }
            Some((reads, bit)) => self.planned = Some((reads - 1, bit)),
            None => {}
        }
    }
}

/// Replaces the bytes `from` at `offset` by `to`, if they are there. Returns whether they were. Both have the same
/// length.
pub(crate) fn replace(bytes: &mut [u8], offset: usize, from: &[u8], to: &[u8]) -> bool {
    let found = bytes.get_mut(offset..offset.saturating_add(from.len())).filter(|found| *found == from);
    found.map(|found| found.copy_from_slice(to)).is_some()
}
