//! Operations on one key.
//!
//! A get reads the key's bucket. A write also reads it. If the key has a slot, the write swaps that
//! slot's value word, and the swap decides. Otherwise the write uses a slot that it reserved by
//! fetch-and-add before it read the bucket: it writes the key there, and swaps the slot's empty word for
//! the value. A reserved slot is used only when all earlier slots are used by others, or spent here. So a
//! key never has two slots, and its slot's value word alone determines its value.
//!
//! A failed swap returns what is there. If that is another value, the write starts again from that value.
//! If it is a frozen word, the leaf is being replaced. A call never swaps a word again after a successful
//! swap, so no operation is applied twice. A blind write that lost to another write may be ordered just
//! before that one, and need not start again: see [`TreeClient::change_slot`].

use crate::class::{Block, Class};
use crate::freeze::LeafBefore;
use crate::key::{Key, MAX_KEY_BYTES};
use crate::layout::{Bucket, Control, Found, block_image, block_length, bucket_offset_of, decode_block};
use crate::planted::{Bug, planted};
use crate::word::{Address, Child, Value, ValueWord};
use crate::{Error, TreeClient};
use forebay_fabric::Slot;

/// Most keys whose buckets are read in one batch.
const KEYS_AT_ONCE: usize = 1024;

/// Reserved slots from which on their number is lowered.
const MANY_RESERVED: usize = 1 << 20;

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change<'a> {
    Put(&'a [u8]),
    Insert(&'a [u8]),
    Update(&'a [u8]),
    Swap { expected: &'a [u8], new: &'a [u8] },
    Delete,
}

impl<'a> Change<'a> {
    /// The new value, if there is one.
    fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) | Self::Insert(value) | Self::Update(value) | Self::Swap { new: value, .. } => Some(value),
            Self::Delete => None,
        }
    }

    /// Whether it replaces any value.
    fn is_blind(self) -> bool {
        matches!(self, Self::Put(_) | Self::Update(_))
    }

    /// Whether it creates an absent key.
    fn creates(self) -> bool {
        matches!(self, Self::Put(_) | Self::Insert(_))
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// The key had a value, which was replaced or deleted.
    Replaced,
    /// The key had a value, which was replaced, and the new value was overwritten at once.
    Overwritten,
    /// The key had none, and has one now.
    Created,
    /// Nothing was done: the key had a value (insert), no value (update, delete), or another value
    /// (swap).
    Refused,
}

/// A new value: a word, or a block that is written in the same batch as the swap that publishes it.
struct Prepared {
    word: ValueWord,
    block: Option<(Block, Vec<u8>)>,
    written: bool,
    /// Whether a swap has published it, or may have.
    published: bool,
}

/// The result of a swap of a value word.
enum Swapped {
    Done,
    /// The word was this one instead.
    Other(ValueWord),
    /// The word was another one, and no value of the bucket has been swapped on condition of its old
    /// value.
    Overtaken(ValueWord),
}

/// A swap of a slot's value word, and the operations that go with it in one batch.
#[derive(Debug, Clone, Copy)]
struct Swap {
    slot: usize,
    old: ValueWord,
    new: ValueWord,
    /// The key word to write before the swap.
    key_word: Option<u64>,
    /// A reserved slot that is not needed, to be spent.
    spare: Option<usize>,
    /// Whether to read the bucket's control word after the swap.
    watch: bool,
}

impl Swap {
    const fn new(slot: usize, old: ValueWord, new: ValueWord) -> Self {
        Self { slot, old, new, key_word: None, spare: None, watch: false }
    }
}

/// A bucket that was read, with the reserved slot.
struct ReadBucket {
    leaf: Child,
    offset: usize,
    bytes: Slot,
    reserved: Option<usize>,
}

impl TreeClient {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Replaces the content of `value` by the value of a key. False when the key has none.
    ///
    /// # Errors
    /// As [`TreeClient::get`].
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let key = checked(key)?;
        value.clear();
        self.reading(|client| client.look_up(&key, value))
    }

    /// Returns the values of several keys, whose buckets are read in one batch.
    ///
    /// # Errors
    /// As [`TreeClient::get`].
    pub fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.multi_get_within(keys, usize::MAX)
    }

    /// Returns the values of the first keys: of as many as have values of at most `budget_bytes` together, and at least
    /// of the first key. A value that is in its slot does not count. Of other values, some more are read only up to
    /// where they say how long they are.
    ///
    /// # Errors
    /// As [`TreeClient::get`].
    pub fn multi_get_within(&mut self, keys: &[&[u8]], budget_bytes: usize) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys = keys.iter().map(|key| checked(key)).collect::<Result<Vec<_>, _>>()?;
        let mut values = Vec::with_capacity(keys.len());
        let mut left = budget_bytes;
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let before = values.len();
            left = self.reading(|client| client.look_up_all(keys, left, &mut values))?;
            if values.len() - before < keys.len() {
                break;
            }
        }
        Ok(values)
    }

    /// Adds the values of the first keys, as many as the budget allows, but at least one if there was none. No key is
    /// answered behind a value that exceeds the budget. Returns what is left of the budget, if all keys were answered.
    fn look_up_all(
        &mut self,
        keys: &[Key<'_>],
        budget_bytes: usize,
        values: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<usize, Error> {
        let mut posted = Vec::with_capacity(keys.len());
        let known = self.tree().cache_read().leaves(keys);
        for (key, known) in keys.iter().zip(known) {
            let leaf = match known {
                Some(leaf) => leaf,
                None => self.leaf(key)?,
            };
            let (offset, length) = self.bucket_place(leaf, key);
            let from = self.tree().memory.resolve(leaf.address(), offset)?;
            posted.push((leaf, self.verbs.post_read(leaf.address().node(), from, length)?));
        }
        let first = values.len();
        let (mut blocks, mut apart) = (Vec::new(), Vec::new());
        for (index, (key, (leaf, posted))) in keys.iter().zip(posted).enumerate() {
            let bytes = self.verbs.bytes(posted)?;
            let found = if leaf.is_merging() { Found::Stale } else { find(&bytes, key, leaf, 0) };
            self.verbs.release(leaf.address().node(), bytes);
            let mut value = Vec::new();
            let is_there = match found {
                Found::Nowhere | Found::At(_, ValueWord::DEAD) => false,
                Found::At(_, word) if self.decode_small(word, &mut value) => true,
                Found::At(_, word) => {
                    blocks.push((index, block_of(word)?));
                    false
                }
                Found::Stale | Found::Frozen => {
                    apart.push(index);
                    false
                }
            };
            values.push(is_there.then_some(value));
        }
        let mut places: Vec<_> = blocks.iter().map(|&(_, at)| at).collect();
        let mut read = self.read_first(&places)?;
        let mut left = budget_bytes;
        for (number, (&(index, _), bytes)) in blocks.iter().zip(&read).enumerate() {
            let Some(rest) = left.checked_sub(block_length(bytes)?) else {
                let is_first = first + index == 0;
                values.truncate(first + index + usize::from(is_first));
                apart.retain(|&other| first + other < values.len());
                places.truncate(number + usize::from(is_first));
                read.truncate(places.len());
                break;
            };
            left = rest;
        }
        self.read_rest(&mut read, &places, block_length)?;
        for ((index, _), block) in blocks.into_iter().zip(read) {
            let (found, value) = decode_block(&block)?;
            let Some(key) = keys.get(index) else { continue };
            if key.is_long && found != key.bytes {
                // Another key has the same hash.
                apart.push(index);
            } else if let Some(place) = values.get_mut(first + index) {
                *place = Some(value.to_vec());
            }
        }
        apart.sort_unstable();
        for index in apart {
            let mut value = Vec::new();
            if let (Some(key), Some(place)) = (keys.get(index), values.get_mut(first + index))
                && self.look_up(key, &mut value)?
            {
                let rest = left.checked_sub(value.len());
                *place = Some(value);
                let Some(rest) = rest else {
                    values.truncate((first + index).max(1));
                    break;
                };
                left = rest;
            }
        }
        Ok(left)
    }

    /// Sets the value of a key. Returns whether the key had one.
    ///
    /// # Errors
    /// Of kind `Full` when there is no memory, `Invalid` for a key of more than 4 KiB, or a key and value of more than
    /// [`Tree::most_bytes`](crate::Tree::most_bytes).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.write(key, Change::Put(value))? != Written::Created)
    }

    /// Sets the value of a key that has none. Returns whether it had none.
    ///
    /// # Errors
    /// As [`TreeClient::put`].
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.write(key, Change::Insert(value))? == Written::Created)
    }

    /// Sets the value of a key that has one. Returns whether it had one.
    ///
    /// # Errors
    /// As [`TreeClient::put`].
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.write(key, Change::Update(value))? != Written::Refused)
    }

    /// Sets the value of a key whose value is `expected`. Returns whether it was.
    ///
    /// # Errors
    /// As [`TreeClient::put`].
    pub fn compare_and_set(&mut self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<bool, Error> {
        Ok(self.write(key, Change::Swap { expected, new })? == Written::Replaced)
    }

    /// Deletes a key. Returns whether it had a value.
    ///
    /// # Errors
    /// As [`TreeClient::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.write(key, Change::Delete)? == Written::Replaced)
    }

    /// Offset and length of a key's bucket.
    #[inline]
    fn bucket_place(&self, leaf: Child, key: &Key<'_>) -> (usize, usize) {
        let geometry = &self.tree().memory.cut.geometry;
        (bucket_offset_of(geometry, leaf, key.word), geometry.bucket_bytes())
    }

    /// Decodes a value that is within its word. False when it is not.
    #[inline]
    pub(crate) fn decode_small(&self, word: ValueWord, value: &mut Vec<u8>) -> bool {
        match word.value() {
            Some(Value::Full(word)) => value.extend_from_slice(&word.to_le_bytes()),
            Some(Value::Short(length, bytes)) => value.extend_from_slice(bytes.get(..length).unwrap_or_default()),
            _ => return false,
        }
        true
    }

    fn look_up(&mut self, key: &Key<'_>, value: &mut Vec<u8>) -> Result<bool, Error> {
        let mut attempt = 0;
        loop {
            let leaf = self.leaf(key)?;
            if leaf.is_merging() {
                self.settle(key.bytes, leaf, false)?;
                Self::again(&mut attempt)?;
                continue;
            }
            let read = self.read_bucket(leaf, key, false)?;
            let (found, record) = self.find_key(&read.bytes, leaf, key, true)?;
            self.verbs.release(leaf.address().node(), read.bytes);
            if let Found::Stale | Found::Frozen = found {
                match self.settle(key.bytes, leaf, attempt == 0) {
                    Err(error) if error.is_full() => return self.look_up_frozen(key, leaf, value)?.ok_or(error),
                    settled => settled?,
                }
            } else if let Some(is_there) = self.read_found(found, record, value)? {
                return Ok(is_there);
            }
            Self::again(&mut attempt)?;
        }
    }

    /// As [`TreeClient::look_up`], in a frozen leaf when there is no memory to replace it. `None` when the leaf no longer
    /// covers the key.
    fn look_up_frozen(&mut self, key: &Key<'_>, leaf: Child, value: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        let Some(LeafBefore { bytes, .. }) = self.leaf_before_freezing(key.bytes, leaf)? else { return Ok(None) };
        let (offset, length) = self.bucket_place(leaf, key);
        let (found, record) = self.find_key(bytes.get(offset..offset + length).unwrap_or_default(), leaf, key, true)?;
        self.read_found(found, record, value)
    }

    /// Reads the value for what was found in a bucket, and returns whether there is one. `None` when the bucket does not
    /// decide that.
    #[inline]
    fn read_found(
        &mut self,
        found: Found,
        record: Option<Vec<u8>>,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, Error> {
        let word = match found {
            Found::Nowhere | Found::At(_, ValueWord::DEAD) => return Ok(Some(false)),
            Found::At(_, word) => word,
            Found::Stale | Found::Frozen => return Ok(None),
        };
        if let Some(record) = record {
            value.extend_from_slice(decode_block(&record)?.1);
            return Ok(Some(true));
        }
        if !self.decode_small(word, value) {
            self.read_value(word, value)?;
        }
        Ok(Some(true))
    }

    /// Reads the value of a live word that does not hold it.
    fn read_value(&mut self, word: ValueWord, value: &mut Vec<u8>) -> Result<(), Error> {
        let read = self.read_blocks(&[block_of(word)?])?;
        let bytes = read.first().map_or(&[][..], Vec::as_slice);
        value.extend_from_slice(decode_block(bytes)?.1);
        Ok(())
    }

    /// Reads the bucket of a key; first reserves a slot in it if `reserve`.
    #[inline]
    fn read_bucket(&mut self, leaf: Child, key: &Key<'_>, reserve: bool) -> Result<ReadBucket, Error> {
        let (offset, length) = self.bucket_place(leaf, key);
        let node = leaf.address().node();
        let at = self.tree().memory.resolve(leaf.address(), offset)?;
        let added = if reserve {
            let posted = self.verbs.post_add(node, at, 1)?;
            self.verbs.then(node)?;
            Some(posted)
        } else {
            None
        };
        let posted = self.verbs.post_read(node, at, length)?;
        let reserved = match added {
            Some(added) => Some(Control(self.verbs.word(added)?).reserved()),
            None => None,
        };
        Ok(ReadBucket { leaf, offset, bytes: self.verbs.bytes(posted)?, reserved })
    }

    /// Finds a key in a bucket; reads the keys of records whose hashes agree. Reads `whole` records, and returns that
    /// of the key, where the value is wanted.
    #[inline]
    fn find_key(
        &mut self,
        bucket: &[u8],
        leaf: Child,
        key: &Key<'_>,
        whole: bool,
    ) -> Result<(Found, Option<Vec<u8>>), Error> {
        let mut from = 0;
        loop {
            let found = find(bucket, key, leaf, from);
            let Found::At(slot, word) = found else { return Ok((found, None)) };
            let Some(Value::Record(at)) = word.value() else { return Ok((found, None)) };
            if whole {
                let record = self.read_blocks(&[at])?.into_iter().next().unwrap_or_default();
                if decode_block(&record)?.0 == key.bytes {
                    return Ok((found, Some(record)));
                }
            } else if self.read_keys(&[(key.word, at)])?.iter().any(|found| found == key.bytes) {
                return Ok((found, None));
            }
            from = slot + 1;
        }
    }

    fn write(&mut self, key: &[u8], change: Change<'_>) -> Result<Written, Error> {
        let key = checked(key)?;
        let (mut prepared, mut done) = (None, None);
        let written = self.reading(|client| {
            let (written, leaf) = client.change(&key, change, &mut prepared)?;
            done = Some(written);
            if written == Written::Replaced && change == Change::Delete && client.bucket_emptied {
                match client.merge_if_small(key.bytes, leaf) {
                    Err(error) if error.is_full() => {}
                    merged => merged?,
                }
            }
            Ok(written)
        });
        if let (Change::Put(_), Ok(written)) = (change, &written) {
            self.absent = self.absent << 1 | u8::from(*written == Written::Created);
        }
        // Operations that are still under way may land in the block.
        if let Some(Prepared { block: Some((block, _)), published: false, .. }) = prepared
            && (written.is_ok() || !self.verbs.left_something())
        {
            self.give_back(block)?;
        }
        match (written, done) {
            // What failed came after the change.
            (Err(error), Some(done)) if error.says_undone() => Ok(done),
            (written, _) => written,
        }
    }

    /// Makes a change. Also returns the leaf of the key.
    fn change(
        &mut self,
        key: &Key<'_>,
        change: Change<'_>,
        prepared: &mut Option<Prepared>,
    ) -> Result<(Written, Child), Error> {
        // A put that is likely to insert reserves its slot at once, and saves a round trip.
        let mut reserve = matches!(change, Change::Insert(_)) || matches!(change, Change::Put(_)) && self.absent == !0;
        let mut attempt = 0;
        loop {
            let leaf = self.leaf(key)?;
            if leaf.is_merging() {
                self.settle(key.bytes, leaf, false)?;
                Self::again(&mut attempt)?;
                continue;
            }
            let mut read = self.read_bucket(leaf, key, reserve)?;
            if read.reserved.is_some_and(|reserved| reserved >= MANY_RESERVED) {
                self.lower_reserved(&read)?;
            }
            let (found, _) = self.find_key(&read.bytes, leaf, key, false)?;
            let done = match found {
                Found::Stale | Found::Frozen => {
                    self.settle(key.bytes, leaf, attempt == 0)?;
                    None
                }
                Found::At(slot, word) => self.change_slot(&read, slot, word, key, change, prepared)?,
                Found::Nowhere if !change.creates() => Some(Written::Refused),
                Found::Nowhere if read.reserved.is_none() => {
                    reserve = true;
                    None
                }
                Found::Nowhere => self.fill_slot(&mut read, key, change, prepared)?,
            };
            self.verbs.release(leaf.address().node(), read.bytes);
            if let Some(written) = done {
                return Ok((written, leaf));
            }
            Self::again(&mut attempt)?;
        }
    }

    /// Changes a slot that has the key. `None` means: start again.
    ///
    /// If another client swapped the word since it was read, a put or update of a key that had a value may
    /// be ordered just before the last such swap: the key had a value there, that swap did not depend on
    /// which value, and nobody saw the value in between. This does not hold for a swap on condition of the
    /// value. A client that makes such a swap marks the bucket first ([`TreeClient::mark_conditional`]). So
    /// a client that has lost lately reads the mark after its own swap.
    fn change_slot(
        &mut self,
        read: &ReadBucket,
        slot: usize,
        mut word: ValueWord,
        key: &Key<'_>,
        change: Change<'_>,
        prepared: &mut Option<Prepared>,
    ) -> Result<Option<Written>, Error> {
        let mut spare = read.reserved.filter(|&reserved| reserved < self.tree().memory.cut.geometry.slots);
        loop {
            let refused = match change {
                Change::Insert(_) => word.is_live(),
                Change::Update(_) | Change::Delete => !word.is_live(),
                Change::Put(_) => false,
                Change::Swap { expected, .. } => {
                    let mut value = Vec::new();
                    if word.is_live() && !self.decode_small(word, &mut value) {
                        self.read_value(word, &mut value)?;
                    }
                    !word.is_live() || value != expected
                }
            };
            let new = match change.value() {
                _ if refused => word,
                Some(value) => self.prepare(read.leaf, key, value, prepared)?.word,
                None if word.is_record() => ValueWord::SPENT,
                None => ValueWord::DEAD,
            };
            if !refused && matches!(change, Change::Swap { .. }) && !self.mark_conditional(read)? {
                return Ok(None);
            }
            let is_blind = change.is_blind() && word.is_live();
            let swap =
                Swap { slot, old: word, new, key_word: None, spare: spare.take(), watch: is_blind && self.lost != 0 };
            let swapped = self.swap(read, swap, prepared)?;
            if is_blind && new != word {
                self.lost = self.lost << 1 | u32::from(!matches!(swapped, Swapped::Done));
            }
            match swapped {
                _ if refused => return Ok(Some(Written::Refused)),
                Swapped::Overtaken(found) if !found.is_frozen() => return Ok(Some(Written::Overwritten)),
                Swapped::Done => {
                    if let Some(Value::Block(at) | Value::Record(at)) = word.value() {
                        self.displace(at);
                    }
                    let others = Bucket::new(&read.bytes).slots().enumerate();
                    self.bucket_emptied = others.filter(|(at, (_, value))| *at != slot && value.is_live()).count() == 0;
                    return Ok(Some(if word.is_live() { Written::Replaced } else { Written::Created }));
                }
                Swapped::Other(_) | Swapped::Overtaken(_)
                    if planted(Bug::LostTombstone) && change == Change::Delete =>
                {
                    return Ok(Some(Written::Replaced));
                }
                Swapped::Other(_) | Swapped::Overtaken(_)
                    if planted(Bug::LostUpdate) && matches!(change, Change::Put(_)) =>
                {
                    return Ok(Some(Written::Replaced));
                }
                Swapped::Other(found) | Swapped::Overtaken(found) => {
                    if found.is_frozen() || !found.is_live() && key.is_long {
                        return Ok(None);
                    }
                    word = found;
                }
            }
        }
    }

    /// Puts the key into the reserved slot. `None` means: start again.
    fn fill_slot(
        &mut self,
        read: &mut ReadBucket,
        key: &Key<'_>,
        change: Change<'_>,
        prepared: &mut Option<Prepared>,
    ) -> Result<Option<Written>, Error> {
        let slots = self.tree().memory.cut.geometry.slots;
        let (Some(slot), Some(value)) = (read.reserved, change.value()) else { return Ok(None) };
        let mut attempt = 0;
        loop {
            let pending: Vec<usize> = Bucket::new(&read.bytes)
                .slots()
                .take(slot.min(slots))
                .enumerate()
                .filter(|(_, (_, value))| *value == ValueWord::EMPTY)
                .map(|(slot, _)| slot)
                .collect();
            // A used slot without a key of this bucket was read before its key was written.
            let is_torn = Bucket::new(&read.bytes)
                .slots()
                .take(slot.min(slots))
                .any(|(word, value)| value.is_used() && read.leaf.bucket_of(word) != read.leaf.bucket_of(key.word));
            let is_settled = pending.is_empty() || planted(Bug::InsertPastPending);
            if is_settled && (!is_torn || planted(Bug::TrustTorn)) {
                break;
            }
            // The clients that reserved them may be about to use them, or may be gone.
            if attempt > 0 {
                for slot in pending {
                    self.swap(read, Swap::new(slot, ValueWord::EMPTY, ValueWord::SPENT), &mut None)?;
                }
            }
            Self::again(&mut attempt)?;
            let again = self.read_bucket(read.leaf, key, false)?;
            let before = std::mem::replace(&mut read.bytes, again.bytes);
            self.verbs.release(read.leaf.address().node(), before);
            match self.find_key(&read.bytes, read.leaf, key, false)?.0 {
                Found::Nowhere => {}
                Found::At(at, word) => return self.change_slot(read, at, word, key, change, prepared),
                Found::Stale | Found::Frozen => return Ok(None),
            }
        }
        if slot >= slots {
            self.replace_full(key.bytes, read.leaf)?;
            return Ok(None);
        }
        let word = self.prepare(read.leaf, key, value, prepared)?.word;
        let swap = Swap { key_word: Some(key.word), ..Swap::new(slot, ValueWord::EMPTY, word) };
        match self.swap(read, swap, prepared)? {
            Swapped::Done => Ok(Some(Written::Created)),
            Swapped::Other(_) | Swapped::Overtaken(_) => Ok(None),
        }
    }

    /// Lowers the number of reserved slots of a full bucket, where nobody has changed it since it was read. Each insert
    /// of a key that exists, or that finds no memory for another leaf, raises it. It must not reach the bits above.
    fn lower_reserved(&mut self, read: &ReadBucket) -> Result<(), Error> {
        let control = Bucket::new(&read.bytes).control();
        if control.generation() != read.leaf.generation() || control.reserved() < MANY_RESERVED {
            return Ok(());
        }
        let lowered = control.with_reserved(self.tree().memory.cut.geometry.slots);
        let at = self.tree().memory.resolve(read.leaf.address(), read.offset)?;
        self.compare_swap(read.leaf.address().node(), at, control.0, lowered.0).map(drop)
    }

    /// Makes the word of a new value. A value that does not fit into a word gets a block at the
    /// leaf's node.
    fn prepare<'p>(
        &mut self,
        leaf: Child,
        key: &Key<'_>,
        value: &[u8],
        prepared: &'p mut Option<Prepared>,
    ) -> Result<&'p Prepared, Error> {
        if prepared.is_none() {
            let small = if key.is_long { None } else { ValueWord::of(value) };
            let new = match small {
                Some(word) => Prepared { word, block: None, written: true, published: false },
                None => {
                    let image = self.value_image(key, value)?;
                    let block = self.allocate(leaf.address().node(), Class::of_block(image.len()))?;
                    let word = if key.is_long { ValueWord::record(block.at) } else { ValueWord::block(block.at) };
                    Prepared { word, block: Some((block, image)), written: false, published: false }
                }
            };
            *prepared = Some(new);
        }
        prepared.as_ref().ok_or(Error::Stopped)
    }

    /// The bytes of the block of a value, with its key if that is long.
    pub(crate) fn value_image(&self, key: &Key<'_>, value: &[u8]) -> Result<Vec<u8>, Error> {
        let key: &[u8] = if key.is_long { key.bytes } else { b"" };
        let (bytes, most) = ((key.len() + value.len()) as u64, self.tree().most_bytes());
        if bytes > most {
            return Err(Error::Invalid(format!("a key and its value of {bytes} bytes: at most {most}")));
        }
        Ok(block_image(key, value))
    }

    /// Marks a bucket before a swap on condition of the value. False when the leaf is gone.
    fn mark_conditional(&mut self, read: &ReadBucket) -> Result<bool, Error> {
        let mut control = Bucket::new(&read.bytes).control();
        let node = read.leaf.address().node();
        let at = self.tree().memory.resolve(read.leaf.address(), read.offset)?;
        while control.generation() == read.leaf.generation() {
            if control.is_conditional() {
                return Ok(true);
            }
            let found = Control(self.compare_swap(node, at, control.0, control.conditional().0)?);
            control = if found == control { control.conditional() } else { found };
        }
        Ok(false)
    }

    /// Swaps a slot's value word, after writing what must be there first: the new value's block and
    /// the key's word.
    fn swap(&mut self, read: &ReadBucket, swap: Swap, prepared: &mut Option<Prepared>) -> Result<Swapped, Error> {
        let Swap { slot, old, new, key_word, spare, watch } = swap;
        let (at, node) = (read.leaf.address(), read.leaf.address().node());
        let slot_at = |client: &Self, slot: usize, bytes: usize| {
            client.tree().memory.resolve(at, read.offset + 8 + 16 * slot + bytes)
        };
        let mut first = None;
        let mut writes = [None, None, None];
        if let Some(Prepared { word, block: Some((block, image)), written, .. }) = prepared
            && *word == new
            && !*written
        {
            let to = self.tree().memory.resolve(block.at, 0)?;
            let posted = self.verbs.post_write(block.at.node(), to, image)?;
            if block.at.node() == node {
                writes[0] = Some(posted);
            } else {
                self.verbs.done(posted)?;
            }
            *written = true;
        }
        if let Some(word) = key_word {
            let to = slot_at(self, slot, 0)?;
            if planted(Bug::ValueBeforeKey) {
                let at = slot_at(self, slot, 8)?;
                first = Some(self.verbs.post_swap(node, at, old.0, new.0)?);
            }
            writes[1] = Some(self.verbs.post_write(node, to, &word.to_le_bytes())?);
        }
        if let Some(spare) = spare {
            let at = slot_at(self, spare, 8)?;
            let posted = self.verbs.post_swap(node, at, ValueWord::EMPTY.0, ValueWord::SPENT.0)?;
            if old == new {
                self.verbs.word(posted)?;
            } else {
                writes[2] = Some(posted);
            }
        }
        if old == new {
            return Ok(Swapped::Done);
        }
        self.verbs.then(node)?;
        let swapped = match first {
            Some(swapped) => swapped,
            None => {
                let at = slot_at(self, slot, 8)?;
                self.verbs.post_swap(node, at, old.0, new.0)?
            }
        };
        let mut value = prepared.as_mut().filter(|prepared| prepared.word == new);
        if let Some(value) = &mut value {
            value.published = true;
        }
        let watched = if watch {
            self.verbs.then(node)?;
            let at = self.tree().memory.resolve(at, read.offset)?;
            Some(self.verbs.post_read(node, at, 8)?)
        } else {
            None
        };
        for posted in writes.into_iter().flatten() {
            self.verbs.finish(posted)?;
        }
        let found = ValueWord(self.verbs.word(swapped)?);
        if let Some(value) = value {
            value.published = found == old;
        }
        let mut is_unconditional = false;
        if let Some(watched) = watched {
            let bytes = self.verbs.bytes(watched)?;
            let control = Bucket::new(&bytes).control();
            is_unconditional = control.generation() == read.leaf.generation() && !control.is_conditional();
            self.verbs.release(node, bytes);
        }
        Ok(match found {
            found if found == old => Swapped::Done,
            found if is_unconditional => Swapped::Overtaken(found),
            found => Swapped::Other(found),
        })
    }
}

/// Finds a key in the bytes of its bucket.
#[inline]
fn find(bytes: &[u8], key: &Key<'_>, leaf: Child, from: usize) -> Found {
    Bucket::new(bytes).find(key, leaf.generation(), from)
}

/// The address in a live word that does not hold its value.
fn block_of(word: ValueWord) -> Result<Address, Error> {
    match word.value() {
        Some(Value::Block(at) | Value::Record(at)) => Ok(at),
        _ => Err(Error::corrupt(format!("the value word {:016x}", word.0))),
    }
}

fn checked(key: &[u8]) -> Result<Key<'_>, Error> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::Invalid(format!("a key of {} bytes: at most {MAX_KEY_BYTES}", key.len())));
    }
    Ok(Key::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree;
    use forebay_base::ErrorKind;

    /// The parent of the leaf is damaged: the leaf is reached through the cache, and cannot be merged.
    #[test]
    fn a_key_is_deleted_although_its_leaf_cannot_be_merged() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        client.put(b"the key!", b"value").unwrap();
        let (root, _) = client.root(true).unwrap();
        let no_parent = tree.memory.resolve(root.address(), 0).unwrap();
        client.write_words(0, no_parent, &[0]).unwrap();
        let no_root = tree.memory.superblock(0, crate::memory::ROOT_OFFSET).unwrap();
        client.write_words(0, no_root, &[0]).unwrap();
        assert_eq!(client.delete(b"the key!"), Ok(true));
        // What fails before a change is told.
        assert!(client.delete(b"the key!").is_err_and(|error| error.kind() == ErrorKind::Corrupt));
    }

    #[test]
    fn a_value_word_that_nobody_writes_is_damage() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        let key = Key::new(b"the key!");
        client.put(key.bytes, b"value").unwrap();
        let leaf = client.leaf(&key).unwrap();
        let read = client.read_bucket(leaf, &key, false).unwrap();
        let Found::At(slot, word) = find(&read.bytes, &key, leaf, 0) else { panic!("the key is not there") };
        client.verbs.release(0, read.bytes);
        let at = tree.memory.resolve(leaf.address(), read.offset + 16 + 16 * slot).unwrap();
        client.write_words(0, at, &[word.0 | 7 << 44]).unwrap();
        let is_damage = |error: Error| error.kind() == ErrorKind::Corrupt;
        assert!(client.get(key.bytes).is_err_and(is_damage));
        assert!(client.multi_get(&[key.bytes]).is_err_and(is_damage));
        assert!(client.compare_and_set(key.bytes, b"value", b"other").is_err_and(is_damage));
        assert!(client.scan(crate::Range::all()).is_err_and(is_damage));
        client.put(key.bytes, b"again").unwrap();
        assert_eq!(client.get(key.bytes).unwrap().as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn a_bucket_that_is_full_for_long_keeps_its_generation() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        let key = Key::new(b"the key!");
        let leaf = client.leaf(&key).unwrap();
        let (offset, _) = client.bucket_place(leaf, &key);
        let at = tree.memory.resolve(leaf.address(), offset).unwrap();
        // As many inserts have been refused.
        client.write_words(0, at, &[Control::new(leaf.generation(), (1 << 31) - 10).0]).unwrap();
        for _ in 0..20 {
            let read = client.read_bucket(leaf, &key, true).unwrap();
            assert_eq!(Bucket::new(&read.bytes).control().generation(), leaf.generation());
            client.lower_reserved(&read).unwrap();
            client.verbs.release(0, read.bytes);
        }
        let control = Control(client.read_word(0, at).unwrap());
        assert!(control.generation() == leaf.generation() && control.reserved() < 100, "{control:?}");
        assert!(!control.is_conditional());
        // The leaf is full.
        client.write_words(0, at, &[Control::new(leaf.generation(), MANY_RESERVED).0]).unwrap();
        assert!(client.insert(key.bytes, b"value").unwrap());
        assert!(Control(client.read_word(0, at).unwrap()).reserved() < 100);
        assert_eq!(client.get(key.bytes).unwrap().as_deref(), Some(&b"value"[..]));
        // The key exists.
        let leaf = client.leaf(&key).unwrap();
        let (offset, _) = client.bucket_place(leaf, &key);
        let at = tree.memory.resolve(leaf.address(), offset).unwrap();
        client.write_words(0, at, &[Control::new(leaf.generation(), MANY_RESERVED).0]).unwrap();
        assert!(!client.insert(key.bytes, b"another").unwrap());
        assert!(Control(client.read_word(0, at).unwrap()).reserved() < 100);
    }
}
