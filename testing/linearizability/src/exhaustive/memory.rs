//! The memory that the clients share: words, with a hash of all of them, and a log to undo changes.

/// See the module.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<u64>,
    hash: [u64; 2],
    /// Changed words, and their earlier values.
    log: Vec<(u32, u64)>,
}

/// A one-sided operation, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Read { at: u32, words: u32 },
    Write { at: u32, bytes: Vec<u8> },
    Swap { at: u32, expected: u64, new: u64 },
    Add { at: u32, delta: u64 },
}

/// Mixes two words well.
pub(crate) const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Words {
    pub(crate) fn new(words: usize) -> Self {
        Self { words: vec![0; words], hash: [0; 2], log: Vec::new() }
    }

    /// A hash: equal for equal contents, otherwise different.
    pub(crate) fn hash(&self) -> [u64; 2] {
        self.hash
    }

    pub(crate) fn read(&self, at: u32, words: u32) -> &[u64] {
        &self.words[at as usize..(at + words) as usize]
    }

    fn set(&mut self, at: u32, word: u64) {
        let place = &mut self.words[at as usize];
        let old = std::mem::replace(place, word);
        if old != word {
            for (salt, hash) in [1, 2].into_iter().zip(&mut self.hash) {
                let at = u64::from(at) << 2 | salt;
                *hash ^= mix(at, old) ^ mix(at, word);
            }
            self.log.push((at, old));
        }
    }

    /// Carries out an operation other than a read. Returns the earlier word of an atomic operation.
    pub(crate) fn apply(&mut self, verb: &Verb) -> u64 {
        match verb {
            Verb::Read { .. } => 0,
            Verb::Write { at, bytes } => {
                for (at, piece) in (*at..).zip(bytes.chunks(8)) {
                    let mut word = self.words[at as usize].to_le_bytes();
                    word[..piece.len()].copy_from_slice(piece);
                    self.set(at, u64::from_le_bytes(word));
                }
                0
            }
            &Verb::Swap { at, expected, new } => {
                let found = self.words[at as usize];
                if found == expected {
                    self.set(at, new);
                }
                found
            }
            &Verb::Add { at, delta } => {
                let found = self.words[at as usize];
                self.set(at, found.wrapping_add(delta));
                found
            }
        }
    }

    /// Carries out any operation. Returns what it found.
    pub(crate) fn perform(&mut self, verb: &Verb) -> Vec<u64> {
        match *verb {
            Verb::Read { at, words } => self.read(at, words).to_vec(),
            _ => vec![self.apply(verb)],
        }
    }

    /// A moment to go back to.
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    /// The words that changed since a moment, and their earlier values.
    pub(crate) fn changes(&self, mark: usize) -> &[(u32, u64)] {
        &self.log[mark..]
    }

    /// Goes back to a moment.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.log.len() > mark {
            if let Some((at, word)) = self.log.pop() {
                self.set(at, word);
                self.log.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_undone() {
        let mut words = Words::new(8);
        words.apply(&Verb::Write { at: 1, bytes: vec![7; 12] });
        let (mark, hash) = (words.mark(), words.hash());
        assert_eq!(words.read(1, 2), [0x0707_0707_0707_0707, 0x0707_0707]);
        assert_eq!(words.apply(&Verb::Swap { at: 2, expected: 5, new: 6 }), 0x0707_0707);
        assert_eq!(words.hash(), hash);
        assert_eq!(words.apply(&Verb::Swap { at: 2, expected: 0x0707_0707, new: 6 }), 0x0707_0707);
        assert_eq!(words.apply(&Verb::Add { at: 2, delta: 3 }), 6);
        assert_eq!((words.read(2, 1), words.changes(mark).len()), (&[9][..], 2));
        assert_ne!(words.hash(), hash);
        words.undo(mark);
        assert_eq!((words.read(2, 1), words.hash()), (&[0x0707_0707][..], hash));
    }
}
