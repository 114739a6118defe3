//! Keys that are known to hold a string that does not expire.
//!
//! A command that overwrites or removes such a key need not read what was there. The key has no elements and no entry
//! among the keys that expire, and it counts as one key. So a `SET` of a key that was written lately costs no read.
//!
//! Known keys are kept as tags, in buckets as large as a cache line. The key's place in the order of hashes gives the
//! bucket. The tag is another hash, with a secret of the key's space that is drawn when the server starts. Of two keys
//! in a bucket, one is taken for the other about once in 2^64 times, which would make a count wrong by one. A space that
//! is cleared gets another secret, so no key of it is known any more.
//!
//! Invariant: a known key is such a key in the store. A caller of `has`, `learn` or `forget` has the key locked. A key
//! is forgotten before the batch that makes it something else is written, and learnt after the batch that makes it
//! plain. It may be forgotten at any time, for example when a bucket is full.

use crate::keyspace::layout::{DATABASES, Space};
use forebay_env::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Tags of a bucket.
const WAYS: usize = 8;
/// Number of buckets: with 64 bytes each, 16 MiB for two million keys.
const BUCKETS: usize = 1 << 18;
/// No tag.
const FREE: u64 = 0;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// The name of a key here: its bucket and its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    bucket: usize,
    word: u64,
}

/// See the module.
#[derive(Debug)]
pub struct PlainKeys {
    buckets: Box<[Bucket]>,
    secrets: [AtomicU64; DATABASES],
}

impl PlainKeys {
    /// Begins with no known key. `random` gives the secrets.
    #[must_use]
    pub fn new(random: &mut Random) -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            secrets: std::array::from_fn(|_| AtomicU64::new(random.word())),
        }
    }

    /// Returns the tag of a key of a space. `hash` is the key's hash in the order of headers.
    #[must_use]
    pub fn tag(&self, space: Space, hash: u64, key: &[u8]) -> Tag {
        let secret = self.secrets.get(usize::from(space)).map_or(0, |secret| secret.load(Ordering::Relaxed));
        Tag { bucket: hash as usize % BUCKETS, word: xxh3_64_with_seed(key, secret).max(FREE + 1) }
    }

    fn bucket(&self, tag: Tag) -> &[AtomicU64] {
        self.buckets.get(tag.bucket).map_or(&[], |bucket| &bucket.0)
    }

    /// Whether the key is known to be plain.
    #[must_use]
    pub fn has(&self, tag: Tag) -> bool {
        // Relaxed everywhere: the lock of a key orders what concerns it.
        self.bucket(tag).iter().any(|word| word.load(Ordering::Relaxed) == tag.word)
    }

    /// Records that the key is plain in the store.
    pub fn learn(&self, tag: Tag) {
        let bucket = self.bucket(tag);
        let mut free = None;
        for word in bucket {
            match word.load(Ordering::Relaxed) {
                known if known == tag.word => return,
                FREE => free = Some(word),
                _ => {}
            }
        }
        // Another key is forgotten for it.
        if let Some(word) = free.or_else(|| bucket.get((tag.word >> 32) as usize % WAYS)) {
            word.store(tag.word, Ordering::Relaxed);
        }
    }

    /// Forgets a key, which may become something else, or go.
    pub fn forget(&self, tag: Tag) {
        for word in self.bucket(tag) {
            // Another key may take its place meanwhile.
            let _ = word.compare_exchange(tag.word, FREE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Forgets all keys of a space. The caller has all keys locked.
    pub fn forget_space(&self, space: Space) {
        if let Some(secret) = self.secrets.get(usize::from(space)) {
            // An odd step: no former secret comes back before all 2^64 were used.
            secret.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_is_known_until_it_is_forgotten() {
        let known = PlainKeys::new(&mut Random::seeded(1));
        let (a, b) = (known.tag(0, 7, b"a"), known.tag(0, 7, b"b"));
        assert!(!known.has(a) && !known.has(b));
        known.learn(a);
        known.learn(a);
        assert!(known.has(a) && !known.has(b) && !known.has(known.tag(1, 7, b"a")));
        known.learn(b);
        known.forget(a);
        assert!(!known.has(a) && known.has(b));
        known.learn(a);
        known.forget_space(1);
        assert!(known.has(known.tag(0, 7, b"a")));
        known.forget_space(0);
        assert!(!known.has(known.tag(0, 7, b"a")) && !known.has(known.tag(0, 7, b"b")));
    }

    #[test]
    fn a_full_bucket_forgets() {
        let known = PlainKeys::new(&mut Random::seeded(1));
        let tags: Vec<_> = (0..100_u8).map(|key| known.tag(0, 7, &[key])).collect();
        for &tag in &tags {
            known.learn(tag);
            assert!(known.has(tag));
        }
        assert!((1..=WAYS).contains(&tags.iter().filter(|&&tag| known.has(tag)).count()));
    }
}
