//! Keys, types and expiries, as a run of commands sees and changes them.
//!
//! Everything that is kept about a key beside its header follows from changes of the header, here: the entry by which
//! an expired key is found, the counts, and that elements end with their collection. So commands change headers and
//! elements and nothing else.

use crate::keyspace::events::{Class, Event, Wanted};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Content, Header, Kind, Stream};
use crate::keyspace::layout::{self, Layout, Range, Space};
use crate::keyspace::spaces::{Deltas, Spaces};
use crate::keyspace::writes::{Direction, Writes};
use bytes::Bytes;
use forebay::Store;
use std::collections::BTreeSet;

/// A collection of up to this many elements is removed element by element. A range deletion costs less to write, but
/// the engine ends a memtable at some number of them.
const FEW_ELEMENTS: u64 = 64;

/// A key of a client, by the number of its database.
pub type Name = (usize, Bytes);

/// What a run of commands does to the keys. See the module.
#[derive(Debug)]
pub struct Transaction<'s> {
    spaces: &'s Spaces,
    writes: Writes<'s>,
    now_ms: u64,
    deltas: Deltas,
    touched: BTreeSet<(Space, Bytes)>,
    expired: u64,
    is_of_all: bool,
    wanted: Wanted,
    events: Vec<Event>,
}

impl<'s> Transaction<'s> {
    /// Nothing done yet. All of the run happens at one time. Events that are wanted are remembered.
    #[must_use]
    pub fn new(store: &'s Store, spaces: &'s Spaces, now_ms: u64, wanted: Wanted) -> Self {
        let (writes, deltas, touched, events) = (Writes::new(store), Deltas::default(), BTreeSet::new(), Vec::new());
        Self { spaces, writes, now_ms, deltas, touched, expired: 0, is_of_all: false, wanted, events }
    }

    /// Something happened to a key.
    pub fn notify(&mut self, class: Class, name: &'static str, space: Space, key: &[u8]) {
        if self.wanted.has(class) {
            self.events.push(Event { name, space, key: Bytes::copy_from_slice(key) });
        }
    }

    /// What happened to keys, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The engine's keys.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.spaces.layout()
    }

    /// What the store knows of itself.
    #[must_use]
    pub const fn spaces(&self) -> &'s Spaces {
        self.spaces
    }

    /// The engine's keys and values.
    pub const fn writes(&mut self) -> &mut Writes<'s> {
        &mut self.writes
    }

    /// The keys that were changed.
    #[must_use]
    pub fn touched(&self) -> Vec<Name> {
        self.touched.iter().map(|(space, key)| (self.spaces.database_of(*space), key.clone())).collect()
    }

    /// Whether keys changed without being named: databases were exchanged.
    #[must_use]
    pub const fn is_of_all(&self) -> bool {
        self.is_of_all
    }

    /// Keys change without being named.
    pub const fn touch_all(&mut self) {
        self.is_of_all = true;
    }

    /// How many keys were found to have expired and removed.
    #[must_use]
    pub const fn expired(&self) -> u64 {
        self.expired
    }

    /// A key has changed. Changes of headers say so themselves.
    pub fn touch(&mut self, space: Space, key: &[u8]) {
        self.touched.insert((space, Bytes::copy_from_slice(key)));
    }

    /// Reads the headers of keys together.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch<'k>(&mut self, keys: impl Iterator<Item = (Space, &'k [u8])>) -> Outcome {
        let layout = self.layout();
        self.writes.fetch(keys.map(|(space, key)| layout.header(space, key)))
    }

    /// The header of a key, also when it has expired.
    fn stored(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        let bytes = self.writes.get(&self.layout().header(space, key))?;
        bytes.map(Header::decode).transpose()
    }

    /// The header of a key.
    ///
    /// # Errors
    /// Those of the database; when it is damaged.
    pub fn header(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        Ok(self.stored(space, key)?.filter(|header| !header.is_expired(self.now_ms)))
    }

    /// The string of a key.
    ///
    /// # Errors
    /// As [`Transaction::header`]; when it is no string.
    pub fn string(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Bytes>> {
        match self.header(space, key)?.map(|header| header.content) {
            None => Ok(None),
            Some(Content::String(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Failure::WRONG_TYPE),
        }
    }

    /// The stream of a key.
    ///
    /// # Errors
    /// As [`Transaction::header`]; when it is no stream.
    pub fn stream(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Stream>> {
        match self.header(space, key)?.map(|header| header.content) {
            None => Ok(None),
            Some(Content::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Failure::WRONG_TYPE),
        }
    }

    /// The collection of a key.
    ///
    /// # Errors
    /// As [`Transaction::header`]; when it is of another type.
    pub fn collection(&mut self, space: Space, key: &[u8], kind: Kind) -> Outcome<Option<Collection>> {
        match self.header(space, key)?.map(|header| header.content) {
            None => Ok(None),
            Some(Content::Collection(found, collection)) if found == kind => Ok(Some(collection)),
            Some(_) => Err(Failure::WRONG_TYPE),
        }
    }

    /// An id for a new collection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn new_id(&mut self) -> Outcome<u64> {
        self.spaces.new_id(self.writes.store())
    }

    /// Changes or adds a key. Elements of a collection that it replaces are removed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_header(&mut self, space: Space, key: &[u8], header: &Header) -> Outcome {
        if key.len() > layout::MAX_KEY_BYTES {
            return Err(Failure::text("ERR the key is too long: at most 65472 bytes"));
        }
        let former = self.stored(space, key)?;
        if let Some(former) = &former
            && former.id() != header.id()
        {
            self.remove_elements(space, former)?;
        }
        self.change(space, key, former.as_ref(), Some(header));
        Ok(())
    }

    /// Changes a collection of a key, or adds one. An expiry stays. A collection without elements is removed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_collection(&mut self, space: Space, key: &[u8], kind: Kind, collection: Collection) -> Outcome {
        let is_empty = match kind {
            Kind::List => collection.a == collection.b,
            _ => collection.a == 0,
        };
        if is_empty {
            let former = self.stored(space, key)?;
            self.change(space, key, former.as_ref(), None);
            self.notify(Class::GENERIC, "del", space, key);
            return Ok(());
        }
        self.set_content(space, key, Content::Collection(kind, collection))
    }

    /// Changes a stream of a key, or adds one. An expiry stays.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_stream(&mut self, space: Space, key: &[u8], stream: Stream) -> Outcome {
        self.set_content(space, key, Content::Stream(stream))
    }

    /// Changes what a key holds. An expiry stays, unless it is that of another collection.
    fn set_content(&mut self, space: Space, key: &[u8], content: Content) -> Outcome {
        let mut header = Header { expires_ms: None, content };
        let former = self.header(space, key)?.filter(|former| former.id() == header.id());
        header.expires_ms = former.and_then(|former| former.expires_ms);
        self.set_header(space, key, &header)
    }

    /// Removes a key with all its elements. False when it was not there.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove(&mut self, space: Space, key: &[u8]) -> Outcome<bool> {
        let Some(former) = self.stored(space, key)? else { return Ok(false) };
        self.remove_elements(space, &former)?;
        self.change(space, key, Some(&former), None);
        Ok(!former.is_expired(self.now_ms))
    }

    /// Removes a key and keeps the elements, for another key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn detach(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        let Some(former) = self.header(space, key)? else { return Ok(None) };
        self.change(space, key, Some(&former), None);
        Ok(Some(former))
    }

    /// Removes a key if it has expired.
    ///
    /// # Errors
    /// Those of the database.
    pub fn expire(&mut self, space: Space, key: &[u8]) -> Outcome<bool> {
        let Some(former) = self.stored(space, key)?.filter(|header| header.is_expired(self.now_ms)) else {
            return Ok(false);
        };
        self.remove_elements(space, &former)?;
        self.change(space, key, Some(&former), None);
        Ok(true)
    }

    fn change(&mut self, space: Space, key: &[u8], former: Option<&Header>, now: Option<&Header>) {
        let place = self.layout().header(space, key);
        match now {
            Some(header) => self.writes.put(place, header.encode()),
            None if former.is_none() => return,
            None => self.writes.delete(place),
        }
        let (was, is) = (former.and_then(|header| header.expires_ms), now.and_then(|header| header.expires_ms));
        if was != is {
            if let Some(was) = was {
                self.writes.delete(layout::expiry(space, was, key));
            }
            if let Some(is) = is {
                self.writes.put(layout::expiry(space, is, key), Bytes::new());
            }
        }
        if let Some((keys, expiring)) = self.deltas.get_mut(usize::from(space)) {
            *keys += i64::from(now.is_some()) - i64::from(former.is_some());
            *expiring += i64::from(is.is_some()) - i64::from(was.is_some());
        }
        let has_expired = former.is_some_and(|header| header.is_expired(self.now_ms));
        if has_expired {
            self.expired += 1;
            self.notify(Class::EXPIRED, "expired", space, key);
        }
        if now.is_some() && (former.is_none() || has_expired) {
            self.notify(Class::NEW, "new", space, key);
        }
        self.touch(space, key);
    }

    fn remove_elements(&mut self, space: Space, header: &Header) -> Outcome {
        let (id, count) = match &header.content {
            Content::String(_) => return Ok(()),
            Content::Collection(Kind::List, list) => (list.id, list.b.wrapping_sub(list.a)),
            Content::Collection(_, collection) => (collection.id, collection.a),
            // Its groups have elements, too.
            Content::Stream(stream) => return self.remove_range(layout::elements(space, stream.id)),
        };
        let range = layout::elements(space, id);
        if count > FEW_ELEMENTS {
            self.writes.delete_range(range);
            return Ok(());
        }
        for key in self.keys(&range, usize::MAX)? {
            self.writes.delete(key);
        }
        Ok(())
    }

    /// Removes all elements of a range.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove_range(&mut self, range: Range) -> Outcome {
        let most = FEW_ELEMENTS as usize;
        let keys = self.keys(&range, most + 1)?;
        if keys.len() > most {
            self.writes.delete_range(range);
        } else {
            keys.into_iter().for_each(|key| self.writes.delete(key));
        }
        Ok(())
    }

    /// The engine's keys of a range, up to `most`.
    fn keys(&self, range: &Range, most: usize) -> Outcome<Vec<Bytes>> {
        let mut keys = Vec::new();
        self.writes.scan(range, Direction::Forward, |key, _| {
            keys.push(Bytes::copy_from_slice(key));
            Ok(keys.len() < most)
        })?;
        Ok(keys)
    }

    /// Removes all keys of a space. The caller holds the lock of all keys.
    pub fn clear(&mut self, space: Space) {
        for range in layout::space(space) {
            self.writes.delete_range(range);
        }
        if let Some(delta) = self.deltas.get_mut(usize::from(space)) {
            let (keys, expiring) = self.spaces.counts(space);
            *delta = (-keys, -expiring);
        }
    }

    /// Number of keys of a space, as this run sees it.
    #[must_use]
    pub fn size(&self, space: Space) -> i64 {
        let own = self.deltas.get(usize::from(space)).map_or(0, |delta| delta.0);
        self.spaces.counts(space).0 + own
    }

    /// Writes everything as one batch.
    ///
    /// # Errors
    /// Those of the database.
    pub fn commit(&mut self) -> Outcome {
        self.writes.commit()?;
        self.spaces.add(&std::mem::take(&mut self.deltas));
        Ok(())
    }
}
