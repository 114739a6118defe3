//! Keys, types and expiries, as a run of commands sees and changes them.
//!
//! Everything else that is kept about a key follows from changes of its header, here: the entry by which an expired key
//! is found, the counts, and the removal of elements with their collection. So commands change only headers and
//! elements.
//!
//! A command that overwrites or removes a key needs its *outline*: all of the header except the bytes of a string. The
//! outline of a plain key is known without reading (see `plain`).

use crate::keyspace::building::NewElements;
use crate::keyspace::events::{Class, Event, Wanted};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::fronts::{OwnFronts, Part};
use crate::keyspace::header::{Collection, Content, Header, Kind, Stream};
use crate::keyspace::layout::{self, DATABASES, Layout, Range, Space};
use crate::keyspace::plain::Tag;
use crate::keyspace::spaces::{Deltas, Exchange, Spaces};
use crate::keyspace::writes::{Direction, Writes};
use crate::records::store::Records;
use bytes::Bytes;
use forebay_env::HashSet;
use std::collections::BTreeMap;

/// A collection of up to this many elements is removed element by element. A range deletion costs less to write, but
/// the engine ends a memtable at some number of them.
const FEW_ELEMENTS: u64 = 64;

/// Most bytes that a run may write and remember: all of it is one batch.
pub const MAX_WRITTEN_BYTES: usize = forebay::MAX_BATCH_BYTES as usize;

/// A key of a client, by the number of its database.
pub type Name = (usize, Bytes);

/// Where a key of a client is.
#[derive(Debug)]
struct Place {
    /// The engine's key of its header.
    header: Bytes,
    /// Its tag among plain keys.
    tag: Tag,
}

/// The change of a key.
#[derive(Debug)]
struct Touch {
    /// How many keys had changed before it.
    order: usize,
    /// Whether clients see it. They do not see that the remains of an expired key are removed.
    is_seen: bool,
}

/// What a run of commands does to the keys. See the module.
#[derive(Debug)]
pub struct Transaction<'s> {
    spaces: &'s Spaces,
    writes: Writes<'s>,
    /// The space of each database.
    databases: [Space; DATABASES],
    /// Whether the run exchanges databases.
    is_exchange: bool,
    changes_libraries: bool,
    now_ms: u64,
    deltas: Deltas,
    /// Keys that this run made plain.
    plain: HashSet<Tag>,
    fronts: OwnFronts<'s>,
    /// The first entry of an expiring key that this run adds to each space.
    expiries: BTreeMap<Space, Bytes>,
    /// Keys that have changed.
    touched: Option<BTreeMap<(Space, Bytes), Touch>>,
    changed_watched: Vec<Name>,
    expired: u64,
    /// How many keys were looked up and found, and how many not.
    looked_up: (u64, u64),
    is_of_all: bool,
    wanted: Wanted,
    events: Vec<Event>,
    events_bytes: usize,
    max_written_bytes: usize,
}

/// The header that a key will have.
#[derive(Debug)]
struct Now {
    id: Option<u64>,
    expires_ms: Option<u64>,
    bytes: Bytes,
}

/// Refuses a key, or an element, that is too long for a key of the engine.
///
/// # Errors
/// See above. The failure takes back all of the run: a command may have written before it comes to the key.
pub fn check_length(store: &Records, bytes: &[u8], what: &str) -> Outcome {
    let most = layout::max_key_bytes(store.max_key_bytes());
    if bytes.len() > most {
        return Err(Failure::of_batch(format!("ERR {what} is too long: at most {most} bytes")));
    }
    Ok(())
}

impl<'s> Transaction<'s> {
    /// Begins a run, all of which happens at one time. Wanted events are remembered. So are the keys that change, if
    /// somebody waits for changes.
    #[must_use]
    pub fn new(store: &'s Records, spaces: &'s Spaces, now_ms: u64, wanted: Wanted, is_awaited: bool) -> Self {
        let writes = Writes::new(store, spaces.layout().seed());
        let (deltas, plain, events) = (Deltas::default(), HashSet::default(), Vec::new());
        let touched = is_awaited.then(BTreeMap::new);
        let (expired, is_of_all, events_bytes) = (0, false, 0);
        let databases = spaces.databases();
        Self {
            spaces,
            writes,
            databases,
            is_exchange: false,
            changes_libraries: false,
            now_ms,
            deltas,
            plain,
            fronts: OwnFronts::new(spaces.fronts()),
            expiries: BTreeMap::new(),
            touched,
            changed_watched: Vec::new(),
            expired,
            looked_up: (0, 0),
            is_of_all,
            wanted,
            events,
            events_bytes,
            max_written_bytes: MAX_WRITTEN_BYTES,
        }
    }

    /// Returns the same run, which may write at most this many bytes.
    #[must_use]
    pub fn within(self, max_written_bytes: usize) -> Self {
        Self { max_written_bytes, ..self }
    }

    /// Records that something happened to a key.
    pub fn notify(&mut self, class: Class, name: &'static str, space: Space, key: &[u8]) {
        if self.wanted.has(class) {
            let database = self.database_of(space);
            self.events.push(Event { name, database, key: Bytes::copy_from_slice(key) });
            self.events_bytes += size_of::<Event>() + key.len();
        }
    }

    /// Returns the bytes that the run holds until it ends: what it writes, and what happened to keys.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.writes.written_bytes() + self.events_bytes
    }

    /// Fails when a run holds more than one batch may.
    ///
    /// # Errors
    /// See above; the failure takes back all of the run.
    pub fn check_size(&self) -> Outcome {
        self.make_room(0)
    }

    /// The same if this many bytes were added: a command holds them to write at least as many.
    ///
    /// # Errors
    /// See above; the failure takes back all of the run.
    pub fn make_room(&self, bytes: usize) -> Outcome {
        if self.held_bytes().saturating_add(bytes) > self.max_written_bytes {
            return Err(Failure::too_much_written());
        }
        Ok(())
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

    /// The space of each database, as this run sees it.
    #[must_use]
    pub const fn databases(&self) -> &[Space; DATABASES] {
        &self.databases
    }

    /// The space of a database, as this run sees it.
    #[must_use]
    pub fn space_of(&self, database: usize) -> Space {
        self.databases.get(database).copied().unwrap_or(0)
    }

    /// The database whose space this is.
    fn database_of(&self, space: Space) -> usize {
        self.databases.iter().position(|&other| other == space).unwrap_or(usize::from(space))
    }

    /// Exchanges two databases. The caller holds the lock of all keys.
    pub fn swap(&mut self, a: usize, b: usize) {
        if a < DATABASES && b < DATABASES {
            self.databases.swap(a, b);
            self.is_exchange = true;
        }
        self.touch_all();
    }

    /// Records that the run changes libraries of functions, in the machine as well.
    pub const fn change_libraries(&mut self) {
        self.changes_libraries = true;
    }

    /// Whether it does.
    #[must_use]
    pub const fn changes_libraries(&self) -> bool {
        self.changes_libraries
    }

    /// The engine's keys and values.
    pub const fn writes(&mut self) -> &mut Writes<'s> {
        &mut self.writes
    }

    /// The same, to read them.
    #[must_use]
    pub const fn reads(&self) -> &Writes<'s> {
        &self.writes
    }

    /// Returns the changed keys, in the order of their first changes, if somebody waits for changes.
    #[must_use]
    pub fn touched(&self) -> Vec<Name> {
        self.names(false)
    }

    /// Returns the keys that have changed for clients that watch them, in the same order. A key that had expired and was
    /// removed is not among them: its watchers know when it expires, or began after that.
    #[must_use]
    pub fn seen(&self) -> Vec<Name> {
        self.names(true)
    }

    fn names(&self, only_seen: bool) -> Vec<Name> {
        let touched = self.touched.iter().flatten();
        let mut touched: Vec<_> = touched.filter(|(_, touch)| touch.is_seen || !only_seen).collect();
        touched.sort_unstable_by_key(|(_, touch)| touch.order);
        touched.into_iter().map(|((space, key), _)| (self.database_of(*space), key.clone())).collect()
    }

    /// Records that these watched keys change because their databases are exchanged or emptied.
    pub fn change_watched(&mut self, names: Vec<Name>) {
        self.changed_watched.extend(names);
    }

    /// Returns the keys that changed in this way.
    #[must_use]
    pub fn changed_watched(&self) -> &[Name] {
        &self.changed_watched
    }

    /// Whether keys changed without being named: databases were exchanged or emptied.
    #[must_use]
    pub const fn is_of_all(&self) -> bool {
        self.is_of_all
    }

    /// Records that keys change without being named.
    pub const fn touch_all(&mut self) {
        self.is_of_all = true;
    }

    /// Counts the lookup of a key.
    pub const fn count_look_up(&mut self, is_found: bool) {
        let count = if is_found { &mut self.looked_up.0 } else { &mut self.looked_up.1 };
        *count += 1;
    }

    /// Returns how many keys were looked up and found, and how many not.
    #[must_use]
    pub const fn looked_up(&self) -> (u64, u64) {
        self.looked_up
    }

    /// Returns how many keys were found expired and removed.
    #[must_use]
    pub const fn expired(&self) -> u64 {
        self.expired
    }

    /// Has the run remember the keys that change from here on, because somebody has begun to wait for changes.
    pub fn remember_changes(&mut self) {
        self.touched.get_or_insert_with(BTreeMap::new);
    }

    /// Records that a key has changed. Changes of headers do this themselves.
    pub fn touch(&mut self, space: Space, key: &[u8]) {
        self.touch_as(space, key, true);
    }

    fn touch_as(&mut self, space: Space, key: &[u8], is_seen: bool) {
        if let Some(touched) = &mut self.touched {
            let order = touched.len();
            let new = Touch { order, is_seen };
            touched.entry((space, Bytes::copy_from_slice(key))).or_insert(new).is_seen |= is_seen;
        }
    }

    /// Reads the headers of keys together. Each key comes with its place in the order of hashes, and whether its
    /// outline is enough.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch<'k>(&mut self, space: Space, keys: impl Iterator<Item = (u64, &'k [u8], bool)>) -> Outcome {
        self.writes.expect(keys.size_hint().0);
        let plain = self.spaces.plain();
        let missing = keys.filter(|(hash, key, is_outline)| !is_outline || !plain.has(plain.tag(space, *hash, key)));
        self.writes.fetch(missing.map(|(hash, key, _)| layout::header_at(space, hash, key)))
    }

    fn place(&self, space: Space, key: &[u8]) -> Place {
        let hash = self.layout().hash(key);
        Place { header: layout::header_at(space, hash, key), tag: self.spaces.plain().tag(space, hash, key) }
    }

    /// Returns the header of a key, even if the key has expired. The header of a string may be without the bytes.
    fn stored(&mut self, place: &Place) -> Outcome<Option<Header>> {
        if !self.writes.is_known(&place.header) && self.spaces.plain().has(place.tag) {
            return Ok(Some(Header::string(Bytes::new())));
        }
        self.writes.get(&place.header)?.map(Header::decode).transpose()
    }

    /// The header of a key.
    ///
    /// # Errors
    /// Those of the database; when it is damaged.
    pub fn header(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        let header = self.writes.get(&self.layout().header(space, key))?.map(Header::decode).transpose()?;
        Ok(header.filter(|header| !header.is_expired(self.now_ms)))
    }

    /// Returns which of these keys exist.
    ///
    /// # Errors
    /// As [`Transaction::header`].
    pub fn are_there<'k>(&self, keys: impl Iterator<Item = (Space, &'k [u8])>) -> Outcome<Vec<bool>> {
        let places: Vec<Bytes> = keys.map(|(space, key)| self.layout().header(space, key)).collect();
        let mut are_there = Vec::with_capacity(places.len());
        self.writes.read_many(&places, |stored| {
            let header = stored.map(Header::decode).transpose()?;
            are_there.push(header.is_some_and(|header| !header.is_expired(self.now_ms)));
            Ok(())
        })?;
        Ok(are_there)
    }

    /// Returns the outline of a key: its header, perhaps without the bytes if it is a string.
    ///
    /// # Errors
    /// As [`Transaction::header`].
    pub fn outline(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        let place = self.place(space, key);
        Ok(self.stored(&place)?.filter(|header| !header.is_expired(self.now_ms)))
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

    /// Returns the string of a key, without copying it, after the record that it is in.
    ///
    /// # Errors
    /// As [`Transaction::header`]; when it is no string.
    pub fn peek_string(&mut self, space: Space, key: &[u8]) -> Outcome<Option<(&Bytes, &[u8])>> {
        let place = self.layout().header(space, key);
        let now_ms = self.now_ms;
        let Some(record) = self.writes.peek(&place)? else { return Ok(None) };
        Ok(Header::string_in(record, now_ms)?.map(|string| (record, string)))
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

    /// Where collections begin and end, as this run knows.
    #[must_use]
    pub const fn fronts(&self) -> &OwnFronts<'s> {
        &self.fronts
    }

    /// Passes the elements of a part in a range to `visit`, as [`Writes::scan`] does. What is known to have no
    /// elements is not passed.
    ///
    /// # Errors
    /// Those of the database and of `visit`.
    pub fn scan(
        &self,
        part: Part,
        range: &Range,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> Outcome<bool>,
    ) -> Outcome {
        self.fronts.scan(&self.writes, part, range, direction, visit)
    }

    /// An id for a new collection.
    ///
    /// # Errors
    /// Those of the database.
    pub fn new_id(&mut self) -> Outcome<u64> {
        self.spaces.new_id(self.writes.store())
    }

    /// Begins the elements of a new collection with this id.
    #[must_use]
    pub fn new_elements(&self, space: Space, id: u64) -> NewElements<'s> {
        let most_bytes = self.max_written_bytes.saturating_sub(self.held_bytes());
        // The batch of the run first removes all of a space that the run has emptied, also what was written before it.
        let is_emptied = self.writes.is_known(&layout::elements(space, id).0);
        let batches = !self.writes.is_bounded() && !is_emptied;
        NewElements::new(self.writes.store(), space, id, batches, most_bytes)
    }

    /// Makes a collection with these elements part of this run, which sets the collection's header next.
    pub fn adopt(&mut self, elements: NewElements<'s>) {
        self.writes.adopt(elements);
    }

    /// Changes or adds a key. Elements of a collection that it replaces are removed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_header(&mut self, space: Space, key: &[u8], header: &Header) -> Outcome {
        let now = Now { id: header.id(), expires_ms: header.expires_ms, bytes: header.encode() };
        self.replace(space, key, now)
    }

    /// Gives a key a string. Elements of a collection that it replaces are removed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_string(&mut self, space: Space, key: &[u8], bytes: &[u8], expires_ms: Option<u64>) -> Outcome {
        self.replace(space, key, Now { id: None, expires_ms, bytes: Header::encode_string(expires_ms, bytes) })
    }

    fn replace(&mut self, space: Space, key: &[u8], now: Now) -> Outcome {
        check_length(self.writes.store(), key, "the key")?;
        let place = self.place(space, key);
        let former = self.stored(&place)?;
        if let Some(former) = &former
            && former.id() != now.id
        {
            self.remove_elements(space, former)?;
        }
        self.change(space, key, place, former.as_ref(), Some(now));
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
            let place = self.place(space, key);
            let former = self.stored(&place)?;
            self.change(space, key, place, former.as_ref(), None);
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

    /// Changes what a key holds. An expiry stays, unless it belongs to another collection.
    fn set_content(&mut self, space: Space, key: &[u8], content: Content) -> Outcome {
        let mut header = Header { expires_ms: None, content };
        let former = self.header(space, key)?.filter(|former| former.id() == header.id());
        header.expires_ms = former.and_then(|former| former.expires_ms);
        self.set_header(space, key, &header)
    }

    /// Removes a key with all its elements. Returns false when it did not exist.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove(&mut self, space: Space, key: &[u8]) -> Outcome<bool> {
        let place = self.place(space, key);
        let Some(former) = self.stored(&place)? else { return Ok(false) };
        self.remove_elements(space, &former)?;
        self.change(space, key, place, Some(&former), None);
        Ok(!former.is_expired(self.now_ms))
    }

    /// Removes a key and keeps the elements, for another key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn detach(&mut self, space: Space, key: &[u8]) -> Outcome<Option<Header>> {
        let Some(former) = self.header(space, key)? else { return Ok(None) };
        self.change(space, key, self.place(space, key), Some(&former), None);
        Ok(Some(former))
    }

    /// Removes a key if it has expired.
    ///
    /// # Errors
    /// Those of the database.
    pub fn expire(&mut self, space: Space, key: &[u8]) -> Outcome<bool> {
        let place = self.place(space, key);
        let Some(former) = self.stored(&place)?.filter(|header| header.is_expired(self.now_ms)) else {
            return Ok(false);
        };
        self.remove_elements(space, &former)?;
        self.change(space, key, place, Some(&former), None);
        Ok(true)
    }

    fn change(&mut self, space: Space, key: &[u8], place: Place, former: Option<&Header>, now: Option<Now>) {
        let (was, is) = (former.and_then(|header| header.expires_ms), now.as_ref().and_then(|now| now.expires_ms));
        let is_there = now.is_some();
        let Place { header, tag } = place;
        let is_plain = now.as_ref().is_some_and(|now| now.id.is_none() && now.expires_ms.is_none());
        match now {
            Some(now) => self.writes.put(header, now.bytes),
            None if former.is_none() => return,
            None => self.writes.delete(header),
        }
        let plain = self.spaces.plain();
        if is_plain && !plain.has(tag) {
            self.plain.insert(tag);
        }
        if !is_plain && former.is_some_and(Header::is_plain) {
            plain.forget(tag);
            self.plain.remove(&tag);
        }
        if was != is {
            if let Some(was) = was {
                self.writes.delete(layout::expiry(space, was, key));
            }
            if let Some(is) = is {
                let entry = layout::expiry(space, is, key);
                let first = self.expiries.entry(space).or_insert_with(|| entry.clone());
                if entry < *first {
                    *first = entry.clone();
                }
                self.writes.put(entry, Bytes::new());
            }
        }
        if let Some(delta) = self.deltas.get_mut(usize::from(space)) {
            if former.is_some() {
                delta.remove(was);
            }
            if is_there {
                delta.add(is);
            }
        }
        let has_expired = former.is_some_and(|header| header.is_expired(self.now_ms));
        if has_expired {
            self.expired += 1;
            self.notify(Class::EXPIRED, "expired", space, key);
        }
        if is_there && (former.is_none() || has_expired) {
            self.notify(Class::NEW, "new", space, key);
        }
        self.touch_as(space, key, is_there || !has_expired);
    }

    fn remove_elements(&mut self, space: Space, header: &Header) -> Outcome {
        self.writes.take_removal(header.elements())?;
        let (id, count) = match &header.content {
            Content::String(_) => return Ok(()),
            Content::Collection(Kind::List, list) => (list.id, list.b.wrapping_sub(list.a)),
            Content::Collection(_, collection) => (collection.id, collection.a),
            // The groups of a stream also have elements.
            Content::Stream(stream) => return self.remove_range(layout::elements(space, stream.id)),
        };
        let range = layout::elements(space, id);
        if count > FEW_ELEMENTS || !self.writes.store().likes_single_deletions() {
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
        if !self.writes.store().likes_single_deletions() {
            self.writes.delete_range(range);
            return Ok(());
        }
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
        self.spaces.plain().forget_space(space);
        for range in layout::space(space) {
            self.writes.delete_range(range);
        }
        if let Some(delta) = self.deltas.get_mut(usize::from(space)) {
            *delta = self.spaces.counts(space).negated();
        }
    }

    /// Number of keys of a space, as this run sees it.
    #[must_use]
    pub fn size(&self, space: Space) -> i64 {
        let own = self.deltas.get(usize::from(space)).map_or(0, |delta| delta.keys);
        self.spaces.counts(space).keys + own
    }

    /// Writes everything as one batch. Returns why the batch is not durable, if it is not; it counts all the same.
    ///
    /// # Errors
    /// Those of the database. Nothing was written then.
    pub fn commit(&mut self) -> Outcome<Option<Failure>> {
        // A run that has locked nothing does not know of an exchange by another.
        let exchange = self.is_exchange.then(|| self.spaces.exchange(self.databases));
        if let Some((key, record)) = exchange.as_ref().map(Exchange::entry) {
            self.writes.put(key, record);
        }
        let doubt = self.writes.commit()?;
        exchange.into_iter().for_each(Exchange::end);
        self.plain.drain().for_each(|tag| self.spaces.plain().learn(tag));
        let expiries = std::mem::take(&mut self.expiries);
        expiries.iter().for_each(|(space, first)| self.spaces.swept().add(*space, first));
        self.fronts.end();
        self.spaces.add(&std::mem::take(&mut self.deltas));
        Ok(doubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::spaces::Counts;
    use crate::records::testing::{on_each_engine, on_lsm};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        String(u8, Option<u64>),
        Hash(u8),
        Remove(u8),
        Expire(u8),
        Clear,
        Commit,
        Abandon,
        Wait,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0u8..3;
        prop_oneof![
            4 => (key(), prop::option::of(0..4_u64)).prop_map(|(key, lasts)| Step::String(key, lasts)),
            2 => key().prop_map(Step::Hash),
            2 => key().prop_map(Step::Remove),
            1 => key().prop_map(Step::Expire),
            1 => Just(Step::Clear),
            4 => Just(Step::Commit),
            1 => Just(Step::Abandon),
            1 => Just(Step::Wait),
        ]
    }

    /// What the keys hold: the time at which each one expires, and the id of its elements.
    type Model = BTreeMap<u8, (Option<u64>, Option<u64>)>;

    fn keys_of(store: &Records, range: &Range) -> Vec<Bytes> {
        let mut keys = Vec::new();
        let mut note = |key: &[u8], _: &[u8]| {
            keys.push(Bytes::copy_from_slice(key));
            Ok(true)
        };
        Writes::new(store, 0).scan(range, Direction::Forward, &mut note).unwrap();
        keys
    }

    /// Checks that the store and the counts are what follows from the model.
    fn check(store: &Records, spaces: &Spaces, model: &Model) {
        let [headers, expiries, elements] = layout::space(0);
        let mut found = Model::new();
        for place in keys_of(store, &headers) {
            let header = Header::decode(store.get(&place).unwrap().unwrap().into()).unwrap();
            found.insert(layout::client_key(&place)[0], (header.expires_ms, header.id()));
        }
        assert_eq!(&found, model);
        let mut expected: Vec<_> = model
            .iter()
            .filter_map(|(key, (expires, _))| expires.map(|expires| layout::expiry(0, expires, &[*key])))
            .collect();
        expected.sort();
        assert_eq!(keys_of(store, &expiries), expected);
        let ids = model.values().filter_map(|(_, id)| *id);
        let mut expected: Vec<_> = ids.map(|id| spaces.layout().hashed_element(0, id, b"field")).collect();
        expected.sort();
        assert_eq!(keys_of(store, &elements), expected);
        let mut counts = Counts::default();
        model.values().for_each(|(expires, _)| counts.add(*expires));
        assert_eq!(spaces.counts(0), counts);
    }

    /// The record of the store has the databases and the ids, and both change.
    #[test]
    fn an_exchange_is_written_with_what_is_known_then() {
        let store = on_lsm(64 << 20);
        let spaces = Spaces::open(&store).unwrap();
        let mut keys = Transaction::new(&store, &spaces, 0, Wanted::default(), false);
        keys.swap(0, 3);
        // Ids are reserved meanwhile.
        let last = (0..=1 << 20).map(|_| keys.new_id().unwrap()).last().unwrap();
        assert_eq!((keys.space_of(0), spaces.databases()[0]), (3, 0));
        keys.commit().unwrap();
        let again = Spaces::open(&store).unwrap();
        assert_eq!(
            (spaces.databases()[..4].to_vec(), again.databases()[..4].to_vec()),
            (vec![3, 1, 2, 0], vec![3, 1, 2, 0])
        );
        assert!(again.new_id(&store).unwrap() > last);
    }

    #[test]
    fn a_run_that_exchanges_nothing_takes_back_no_exchange() {
        let store = on_lsm(64 << 20);
        let spaces = Spaces::open(&store).unwrap();
        let begin = || Transaction::new(&store, &spaces, 0, Wanted::default(), false);
        let (mut earlier, mut keys) = (begin(), begin());
        keys.swap(0, 3);
        keys.commit().unwrap();
        earlier.commit().unwrap();
        assert_eq!((spaces.databases()[0], Spaces::open(&store).unwrap().databases()[0]), (3, 3));
    }

    fn check_steps(store: &Records, steps: Vec<Step>) {
        let spaces = Spaces::open(store).unwrap();
        let mut now_ms = 10;
        let begin = |now_ms| Transaction::new(store, &spaces, now_ms, Wanted::default(), false);
        let (mut keys, mut model, mut kept) = (begin(now_ms), Model::new(), Model::new());
        for step in steps {
            match step {
                Step::String(key, lasts) => {
                    let expires = lasts.map(|lasts| now_ms + lasts);
                    keys.set_string(0, &[key], b"value", expires).unwrap();
                    model.insert(key, (expires, None));
                }
                Step::Hash(key) => {
                    let id = keys.new_id().unwrap();
                    let element = keys.layout().hashed_element(0, id, b"field");
                    keys.writes().put(element, Bytes::new());
                    let content = Content::Collection(Kind::Hash, Collection { id, a: 1, b: 0 });
                    keys.set_header(0, &[key], &Header { expires_ms: None, content }).unwrap();
                    model.insert(key, (None, Some(id)));
                }
                Step::Remove(key) => {
                    let former = model.remove(&key);
                    let was_there = former.is_some_and(|(expires, _)| expires.is_none_or(|at| at >= now_ms));
                    assert_eq!(keys.remove(0, &[key]).unwrap(), was_there);
                }
                Step::Expire(key) => {
                    let is_over = model.get(&key).is_some_and(|(at, _)| at.is_some_and(|at| at < now_ms));
                    assert_eq!(keys.expire(0, &[key]).unwrap(), is_over);
                    if is_over {
                        model.remove(&key);
                    }
                }
                Step::Clear => {
                    keys.clear(0);
                    model.clear();
                }
                Step::Commit => {
                    keys.commit().unwrap();
                    kept = model.clone();
                }
                Step::Abandon => {}
                Step::Wait => now_ms += 3,
            }
            if matches!(step, Step::Commit | Step::Abandon | Step::Wait) {
                model = kept.clone();
                check(store, &spaces, &model);
                keys = begin(now_ms);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_follows_from_headers_does_whether_they_are_read_or_known(steps in prop::collection::vec(step(), 1..60)) {
            on_each_engine(64 << 20).iter().for_each(|store| check_steps(store, steps.clone()));
        }
    }
}
