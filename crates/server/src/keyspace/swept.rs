//! Where entries of expiring keys begin.
//!
//! The engine keeps deleted records for a while, and a scan passes over them one by one. A sweep deletes the first entries
//! of expiring keys, and each later sweep would pass all that were deleted before. So the server remembers a place in each
//! space before which there are no entries, and a sweep begins there.
//!
//! A run may add an entry before that place, because it began earlier than the sweep or because a client names a time that
//! has passed. Then the place goes back. A sweep does not see an entry that is written while it scans:
//!
//! ```text
//!   sweep    begin ─► scan ─► remove what has expired ─► end: the place is after what was passed, or at the first
//!                                                        entry that was added since `begin`
//!   others   write a batch ─► add its first entry
//! ```
//!
//! Invariant: who has written an entry before the place has not come to `add` yet. It holds because an entry that a scan
//! does not see is written after `begin`, so it is also added after `begin`.

use crate::keyspace::layout::{DATABASES, Space};
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};

/// See the module.
#[derive(Debug, Default)]
pub struct Swept(Mutex<[Place; DATABASES]>);

#[derive(Debug, Default)]
struct Place {
    /// The place before which there are no entries.
    begins: Bytes,
    /// The first entry that was added since the latest sweep began.
    added: Option<Bytes>,
}

impl Swept {
    /// Begins a sweep of a space, and returns where. There is one sweep at a time.
    #[must_use]
    pub fn begin(&self, space: Space) -> Bytes {
        self.with(space, |place| {
            place.added = None;
            place.begins.clone()
        })
    }

    /// Ends a sweep. It has passed all entries before this place and removed them, which is written.
    pub fn end(&self, space: Space, passed: Bytes) {
        self.with(space, |place| {
            place.begins = place.added.take().filter(|added| *added < passed).unwrap_or(passed);
        });
    }

    /// Notes that a run has added entries, of which this is the first. They are written.
    pub fn add(&self, space: Space, first: &Bytes) {
        self.with(space, |place| {
            if *first < place.begins {
                place.begins = first.clone();
            }
            if place.added.as_ref().is_none_or(|added| first < added) {
                place.added = Some(first.clone());
            }
        });
    }

    fn with<T: Default>(&self, space: Space, change: impl FnOnce(&mut Place) -> T) -> T {
        lock(&self.0).get_mut(usize::from(space)).map_or_else(T::default, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_begins_at_the_first_entry_that_may_be_there() {
        let swept = Swept::default();
        let at = |byte: u8| Bytes::copy_from_slice(&[byte]);
        assert_eq!(swept.begin(3), Bytes::new());
        swept.end(3, at(7));
        assert_eq!((swept.begin(3), swept.begin(4)), (at(7), Bytes::new()));
        // Entries that were added meanwhile.
        swept.add(3, &at(8));
        swept.add(3, &at(9));
        swept.end(3, at(10));
        assert_eq!(swept.begin(3), at(8));
        swept.add(3, &at(20));
        swept.end(3, at(10));
        // Entries before those that were passed, and later ones.
        swept.add(3, &at(5));
        swept.add(3, &at(6));
        assert_eq!(swept.begin(3), at(5));
        swept.end(3, at(11));
        assert_eq!(swept.begin(3), at(11));
        // A sweep that fails does not end.
        swept.add(3, &at(4));
        assert_eq!([swept.begin(3), swept.begin(3)], [at(4), at(4)]);
    }
}
