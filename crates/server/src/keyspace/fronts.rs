//! Where trimmed streams begin.
//!
//! The engine keeps deleted records for a while, and a scan passes over them one by one. A stream that is kept short has
//! ever more of them before its first entry, and each new entry would have all of them passed. So the server remembers
//! an id before which a stream has no entries.
//!
//! Invariant: there is no entry before that id in the store. A caller has the stream's key locked. The id is learnt after
//! the batch that trims the stream is written. New entries come behind all that were ever added, unless `XSETID` sets the
//! latest id back, so that has the id forgotten. It may be forgotten at any time.

use crate::keyspace::streams::StreamId;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;

/// Most streams that are remembered: a few megabytes.
const MOST: usize = 1 << 16;

/// See the module. Streams are named by the ids of their lives.
#[derive(Debug, Default)]
pub struct Fronts(Mutex<BTreeMap<u64, StreamId>>);

impl Fronts {
    /// Returns an id before which a stream has no entries.
    #[must_use]
    pub fn of(&self, stream: u64) -> StreamId {
        lock(&self.0).get(&stream).copied().unwrap_or(StreamId::LEAST)
    }

    /// Notes that a stream has no entries before this id. Of too many streams, the oldest is forgotten.
    pub fn learn(&self, stream: u64, front: StreamId) {
        let mut fronts = lock(&self.0);
        fronts.insert(stream, front);
        if fronts.len() > MOST {
            fronts.pop_first();
        }
    }

    /// Forgets a stream.
    pub fn forget(&self, stream: u64) {
        lock(&self.0).remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_streams_are_forgotten() {
        let (fronts, id) = (Fronts::default(), StreamId { ms: 7, sequence: 0 });
        (0..=MOST as u64).for_each(|stream| fronts.learn(stream, id));
        assert_eq!([fronts.of(0), fronts.of(1), fronts.of(MOST as u64)], [StreamId::LEAST, id, id]);
        fronts.forget(1);
        assert_eq!(fronts.of(1), StreamId::LEAST);
    }
}
