//! What collections of all types have in common: reading and changing headers, random elements, scans.

use crate::commands::command::Context;
use crate::commands::scan::{ScanOptions, cursor_of};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::layout::{self, Range, Space};
use crate::keyspace::transaction::check_length;
use crate::keyspace::writes::{Direction, PORTION_BYTES, Writes};
use crate::protocol::reply::Reply;
use crate::records::store::Records;
use bytes::{Buf, Bytes};
use forebay_env::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A collection of up to this many elements is read as a whole to choose from it.
const FEW: u64 = 512;
/// The length of the first portion that is read, when not all elements may be wanted.
const FIRST_PORTION_BYTES: usize = 64 << 10;
/// A later portion has this many times the bytes of the one before.
const PORTION_GROWTH: usize = 4;
/// Number of elements at a random place of a larger collection among which one is chosen.
const CANDIDATES: usize = 16;
/// Random elements in succession that were all chosen before, after which no other element is left: at most a quarter of
/// the elements are chosen in this way, so most choices are new.
const MAX_VAIN: usize = 1000;
/// Most elements that a command chooses with repetition.
const MAX_REPEATED: u64 = 10_000_000;
/// Bytes of the shortest bulk string in a reply.
const LEAST_BULK_BYTES: usize = 6;

/// Refuses an element that is too long for a key of the engine.
pub(crate) fn check_element(store: &Records, element: &[u8]) -> Outcome {
    check_length(store, element, "a field or member")
}

/// The number of random elements that a command asks for; negative with repetition.
pub(crate) fn random_count(text: &[u8]) -> Outcome<i64> {
    let count = crate::commands::arguments::integer(text)?;
    if count < -i64::MAX {
        return Err(Failure::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(count)
}

/// A collection that a command changes.
#[derive(Debug)]
pub(crate) struct Open {
    kind: Kind,
    /// The collection as it was.
    former: Option<Collection>,
    /// The collection as it will be.
    pub(crate) now: Collection,
}

impl Open {
    /// Opens the collection of a key, or a new one.
    pub(crate) fn or_new(cx: &mut Context<'_, '_>, key: &[u8], kind: Kind) -> Outcome<Self> {
        match Self::existing(cx, key, kind)? {
            Some(open) => Ok(open),
            None => Self::fresh(cx, kind),
        }
    }

    /// Opens a new collection, which replaces what a key holds when it is saved.
    pub(crate) fn fresh(cx: &mut Context<'_, '_>, kind: Kind) -> Outcome<Self> {
        Ok(Self { kind, former: None, now: Collection { id: cx.keys.new_id()?, a: 0, b: 0 } })
    }

    /// A new collection whose elements are written, which replaces what a key holds when it is saved.
    pub(crate) const fn built(kind: Kind, now: Collection) -> Self {
        Self { kind, former: None, now }
    }

    /// Opens the collection of a key, if there is one.
    pub(crate) fn existing(cx: &mut Context<'_, '_>, key: &[u8], kind: Kind) -> Outcome<Option<Self>> {
        let former = cx.collection(key, kind)?;
        Ok(former.map(|now| Self { kind, former: Some(now), now }))
    }

    /// Writes the header if it changed. If `is_changed`, reports that the key changed.
    pub(crate) fn save(self, cx: &mut Context<'_, '_>, key: &[u8], is_changed: bool) -> Outcome {
        let space = cx.space();
        if self.former != Some(self.now) && (self.former.is_some() || !is_empty(self.kind, &self.now)) {
            cx.keys.set_collection(space, key, self.kind, self.now)
        } else {
            if is_changed {
                cx.keys.touch(space, key);
            }
            Ok(())
        }
    }
}

const fn is_empty(kind: Kind, collection: &Collection) -> bool {
    match kind {
        Kind::List => collection.a == collection.b,
        _ => collection.a == 0,
    }
}

/// A part of a collection whose elements are in the order of hashes: its range from a hash on, and what reads its keys.
#[derive(Clone, Copy)]
pub(crate) struct Hashed {
    /// The range from a hash on.
    pub(crate) from: fn(u8, u64, u64) -> Range,
    /// The hash in a key.
    pub(crate) hash: fn(&[u8]) -> u64,
    /// The element in a key.
    pub(crate) element: fn(&[u8]) -> &[u8],
    /// Whether entries have the values.
    has_values: bool,
}

impl Hashed {
    /// The same with or without values.
    pub(crate) const fn with_values(self, has_values: bool) -> Self {
        Self { has_values, ..self }
    }

    /// The element of a record, and its value if entries have the values.
    fn parts<'r>(&self, key: &'r [u8], value: &'r [u8]) -> (&'r [u8], &'r [u8]) {
        ((self.element)(key), if self.has_values { value } else { &[] })
    }

    fn entry(&self, key: &[u8], value: &[u8]) -> Entry {
        let (element, value) = self.parts(key, value);
        (Bytes::copy_from_slice(element), Bytes::copy_from_slice(value))
    }
}

/// Fields of hashes, and members of sets.
pub(crate) const HASHED: Hashed = Hashed {
    from: layout::elements_from,
    hash: layout::hashed_part_hash,
    element: layout::hashed_part,
    has_values: true,
};
/// Members of sorted sets.
pub(crate) const MEMBERS: Hashed =
    Hashed { from: layout::members_from, hash: layout::member_hash, element: layout::member_part, has_values: true };

/// An element with its value.
pub(crate) type Entry = (Bytes, Bytes);

/// Returns the least number of bytes of a reply with this entry.
fn length(entry: &Entry) -> usize {
    entry.0.len() + entry.1.len() + 1
}

/// Refuses to hold this many bytes.
pub(crate) type Check<'c> = &'c dyn Fn(usize) -> Outcome;

/// All elements with their values.
pub(crate) fn entries(cx: &Context<'_, '_>, id: u64, hashed: Hashed, check: Check<'_>) -> Outcome<Vec<Entry>> {
    let range = (hashed.from)(cx.space(), id, 0);
    let (mut entries, mut bytes) = (Vec::new(), 0);
    cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
        let entry = hashed.entry(key, value);
        bytes += length(&entry);
        check(bytes)?;
        entries.push(entry);
        Ok(true)
    })?;
    Ok(entries)
}

/// Replies with elements as they are read, and stops when there is no more room for replies. The header says that there
/// are `count` elements.
pub(crate) fn reply_each(
    cx: &mut Context<'_, '_>,
    range: &Range,
    count: u64,
    reply: impl Fn(&mut Reply, &[u8], &[u8]),
) -> Outcome {
    cx.keys.reads().expect_steps(count)?;
    let (out, mut found) = (&mut *cx.out, 0);
    cx.keys.writes().scan(range, Direction::Forward, |key, value| {
        found += 1;
        reply(out, key, value);
        Ok(!out.is_full())
    })?;
    if found == count || out.is_full() { Ok(()) } else { Err(missing()) }
}

/// The header counts elements that are not there.
fn missing() -> Failure {
    Failure::damaged("a collection has not as many elements as it should")
}

/// Which elements of several collections a merge passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merged {
    /// Elements of any collection.
    Any,
    /// Elements of the first collection.
    First,
    /// Elements that all collections have.
    All,
}

/// A collection that is merged with others; `None` is an empty one.
pub(crate) type Input = Option<(u64, Hashed)>;

/// An element with its hash and its value.
type Placed = (u64, Bytes, Bytes);

/// The elements of a collection, which are read in portions.
pub(crate) struct Elements {
    /// The part that was not read yet, and what reads its keys.
    rest: Option<(Range, Hashed)>,
    portion: std::vec::IntoIter<Placed>,
    portion_bytes: usize,
    most_bytes: usize,
}

impl Elements {
    /// Reads all elements. The first portion is short, as not all may be wanted. No portion has many more bytes than
    /// `most_bytes`, unless a single element has.
    pub(crate) fn new(space: Space, input: Input, most_bytes: usize) -> Self {
        let rest = input.map(|(id, hashed)| ((hashed.from)(space, id, 0), hashed));
        let portion_bytes = most_bytes.min(FIRST_PORTION_BYTES);
        Self { rest, portion: Vec::new().into_iter(), portion_bytes, most_bytes }
    }

    /// The next element, in the order of hashes.
    pub(crate) fn next(&mut self, writes: &Writes<'_>) -> Outcome<Option<Placed>> {
        if let Some(next) = self.portion.next() {
            return Ok(Some(next));
        }
        let Some((range, hashed)) = self.rest.take() else { return Ok(None) };
        let (mut portion, mut bytes, mut last) = (Vec::new(), 0, None);
        writes.scan(&range, Direction::Forward, |key, value| {
            let element = Bytes::copy_from_slice((hashed.element)(key));
            bytes += size_of::<Placed>() + element.len() + value.len();
            portion.push(((hashed.hash)(key), element, Bytes::copy_from_slice(value)));
            if bytes >= self.portion_bytes {
                last = Some(layout::after(key));
            }
            Ok(last.is_none())
        })?;
        self.portion_bytes = self.portion_bytes.saturating_mul(PORTION_GROWTH).min(self.most_bytes);
        self.rest = last.map(|last| ((last, range.1), hashed));
        self.portion = portion.into_iter();
        Ok(self.portion.next())
    }
}

/// The function that [`merge`] calls with elements until it returns false. It gets an element, and the places of the
/// collections that have it, in ascending order, with its value there.
pub(crate) type VisitMerged<'v> = &'v mut dyn FnMut(&mut Context<'_, '_>, &[u8], &[(usize, Bytes)]) -> Outcome<bool>;

/// Returns each collection once, in the order of their first places, with all places at which it is named.
fn by_collection(inputs: &[Input]) -> Vec<(Input, Vec<usize>)> {
    let mut collections: Vec<(Input, Vec<usize>)> = Vec::new();
    let mut numbers = BTreeMap::new();
    for (place, input) in inputs.iter().enumerate() {
        let number = *numbers.entry(input.map(|(id, _)| id)).or_insert(collections.len());
        match collections.get_mut(number) {
            Some((_, places)) => places.push(place),
            None => collections.push((*input, vec![place])),
        }
    }
    collections
}

/// Reads collections once and together, in the order of hashes, which is the same in all of them, and passes elements
/// on as they come. It holds a portion of each collection: a few megabytes together, or one element of each. A
/// collection that is named several times is read once.
pub(crate) fn merge(cx: &mut Context<'_, '_>, inputs: &[Input], which: Merged, visit: VisitMerged<'_>) -> Outcome {
    let collections = by_collection(inputs);
    let (space, most_bytes) = (cx.space(), PORTION_BYTES / collections.len().max(1));
    let mut elements: Vec<Elements> =
        collections.iter().map(|(input, _)| Elements::new(space, *input, most_bytes)).collect();
    let mut heads = BinaryHeap::new();
    // The collections that have the first element, and their places with its values. At the beginning, all collections
    // are asked for their next element.
    let mut asked: Vec<usize> = (0..collections.len()).collect();
    let mut found: Vec<(usize, Bytes)> = Vec::new();
    loop {
        for number in asked.drain(..) {
            let next = elements.get_mut(number).map_or(Ok(None), |elements| elements.next(cx.keys.reads()))?;
            match next {
                Some((hash, element, value)) => heads.push(Reverse((hash, element, number, value))),
                // The first collection has the first place.
                None if which == Merged::All || (which == Merged::First && number == 0) => return Ok(()),
                None => {}
            }
        }
        let Some(Reverse((hash, element, number, value))) = heads.pop() else { return Ok(()) };
        found.clear();
        let mut find = |number: usize, value: &Bytes| {
            asked.push(number);
            let places = collections.get(number).map_or(&[][..], |(_, places)| places);
            found.extend(places.iter().map(|place| (*place, value.clone())));
        };
        find(number, &value);
        while let Some(Reverse(head)) = heads.peek()
            && (head.0, &head.1) == (hash, &element)
        {
            find(head.2, &head.3);
            heads.pop();
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        let is_chosen = match which {
            Merged::Any => true,
            Merged::First => found.first().is_some_and(|(place, _)| *place == 0),
            Merged::All => found.len() == inputs.len(),
        };
        if is_chosen && !visit(cx, &element, &found)? {
            return Ok(());
        }
    }
}

/// One step of a scan: the elements that are wanted, and the cursor of the next step. Elements that share a cursor are
/// in one step.
pub(crate) fn scan_step(
    cx: &Context<'_, '_>,
    id: u64,
    hashed: Hashed,
    options: &ScanOptions<'_>,
) -> Outcome<(u64, Vec<Entry>)> {
    let range = (hashed.from)(cx.space(), id, options.from);
    let (mut found, mut bytes, mut seen, mut last, mut next) = (Vec::new(), 0, 0, 0, 0);
    cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
        let cursor = cursor_of((hashed.hash)(key));
        if seen >= options.count && cursor != last {
            next = cursor;
            return Ok(false);
        }
        (seen, last) = (seen + 1, cursor);
        if options.wants((hashed.element)(key)) {
            let entry = hashed.entry(key, value);
            bytes += length(&entry);
            cx.make_room(bytes)?;
            found.push(entry);
        }
        Ok(true)
    })?;
    Ok((next, found))
}

/// Returns a random element: one of several that follow a random hash, so that an element after a long gap is not much
/// likelier.
fn probe(cx: &Context<'_, '_>, id: u64, hashed: Hashed) -> Outcome<Option<Entry>> {
    let mut found: Vec<Entry> = Vec::new();
    for from in [cx.shared.random(), 0] {
        let range = (hashed.from)(cx.space(), id, from);
        cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
            found.push(hashed.entry(key, value));
            Ok(found.len() < CANDIDATES)
        })?;
        if found.len() >= CANDIDATES {
            break;
        }
    }
    let chosen = usize::try_from(cx.shared.random_below(found.len() as u64)).unwrap_or(0);
    Ok(if chosen < found.len() { Some(found.swap_remove(chosen)) } else { None })
}

/// Replies with as many random elements as `count` says, each of which is this many replies. They are all different, or
/// all elements if there are not more; if the count is negative, some may be the same.
pub(crate) fn random(
    cx: &mut Context<'_, '_>,
    collection: Collection,
    hashed: Hashed,
    count: i64,
    replies: usize,
    reply: impl Fn(&mut Reply, &[u8], &[u8]),
) -> Outcome {
    let (Collection { id, a: size, .. }, choices) = (collection, count.unsigned_abs());
    let chosen = if count < 0 { choices } else { choices.min(size) };
    cx.out.array(usize::try_from(chosen).unwrap_or(usize::MAX).saturating_mul(replies));
    if count < 0 {
        return repeated(cx, id, size, hashed, choices, reply);
    }
    each_distinct(cx, id, size, hashed, choices, |out, element, value| {
        reply(out, element, value);
        Ok(!out.is_full())
    })
}

/// Returns `count` random elements that are all different, or all elements if there are not more, for a reply.
pub(crate) fn distinct(
    cx: &mut Context<'_, '_>,
    id: u64,
    size: u64,
    hashed: Hashed,
    count: u64,
) -> Outcome<Vec<Entry>> {
    let (mut chosen, mut bytes, room): (Vec<Entry>, usize, usize) = (Vec::new(), 0, cx.out.room());
    each_distinct(cx, id, size, hashed, count, |_, element, value| {
        let entry = (Bytes::copy_from_slice(element), Bytes::copy_from_slice(value));
        bytes += length(&entry);
        if bytes > room {
            return Err(Failure::REPLY_TOO_LONG);
        }
        chosen.push(entry);
        Ok(true)
    })?;
    Ok(chosen)
}

/// Passes the elements of [`distinct`] to `visit`, with the place for replies, until it returns false.
fn each_distinct(
    cx: &mut Context<'_, '_>,
    id: u64,
    size: u64,
    hashed: Hashed,
    count: u64,
    mut visit: impl FnMut(&mut Reply, &[u8], &[u8]) -> Outcome<bool>,
) -> Outcome {
    let mut wanted = count.min(size);
    if wanted == 0 {
        return Ok(());
    }
    let mut goes_on = true;
    if size <= FEW || wanted > size / 4 {
        let mut random = Random::seeded(cx.shared.random());
        let (range, mut left, out) = ((hashed.from)(cx.space(), id, 0), size, &mut *cx.out);
        cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
            // Each of the elements that are left is as likely as any other to be among those that are wanted.
            if random.below(left) < wanted {
                let (element, value) = hashed.parts(key, value);
                wanted -= 1;
                goes_on = visit(out, element, value)? && wanted > 0;
            }
            left = left.saturating_sub(1);
            Ok(goes_on)
        })?;
    } else {
        let (mut seen, mut vain) = (BTreeSet::new(), 0);
        while goes_on && vain < MAX_VAIN {
            let Some((element, value)) = probe(cx, id, hashed)? else { break };
            vain += 1;
            if !seen.contains(&element) {
                vain = 0;
                wanted -= 1;
                goes_on = visit(cx.out, &element, &value)? && wanted > 0;
                seen.insert(element);
            }
        }
    }
    if goes_on { Err(missing()) } else { Ok(()) }
}

/// Elements with their values, one behind another: little memory beside their bytes.
#[derive(Debug, Default)]
struct Held(Vec<u8>);

impl Held {
    /// Adds an element, and returns its place.
    fn add(&mut self, element: &[u8], value: &[u8]) -> u64 {
        let place = self.0.len() as u64;
        for part in [element, value] {
            self.0.extend_from_slice(&(part.len() as u32).to_le_bytes());
            self.0.extend_from_slice(part);
        }
        place
    }

    /// The element at a place, and its value.
    fn at(&self, place: u64) -> (&[u8], &[u8]) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let mut rest = self.0.get(place..).unwrap_or_default();
        let mut next = || {
            let length = rest.try_get_u32_le().unwrap_or(0) as usize;
            let (part, others) = rest.split_at_checked(length).unwrap_or_default();
            rest = others;
            part
        };
        (next(), next())
    }
}

/// Replies with `count` random elements, some of which may be the same. The caller has written the head of their array.
/// Beside the reply, it holds a number for each choice, and once each element that is chosen.
fn repeated(
    cx: &mut Context<'_, '_>,
    id: u64,
    size: u64,
    hashed: Hashed,
    count: u64,
    reply: impl Fn(&mut Reply, &[u8], &[u8]),
) -> Outcome {
    if count > MAX_REPEATED {
        return Err(Failure::text("ERR value is out of range"));
    }
    cx.keys.reads().expect_steps(count)?;
    cx.make_room(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(LEAST_BULK_BYTES))?;
    if size > FEW && count <= size / 4 {
        for _ in 0..count {
            let (element, value) = probe(cx, id, hashed)?.ok_or_else(missing)?;
            reply(cx.out, &element, &value);
            if cx.out.is_full() {
                break;
            }
        }
        return Ok(());
    }
    // Each choice is the number of an element. The elements are read once, in order, and then each choice is a place.
    let mut random = Random::seeded(cx.shared.random());
    let mut choices: Vec<u64> = (0..count).map(|_| random.below(size)).collect();
    choices.sort_unstable();
    let (range, mut held, mut bytes, mut number) = ((hashed.from)(cx.space(), id, 0), Held::default(), 0, 0);
    let mut left = choices.iter_mut().peekable();
    cx.keys.reads().scan(&range, Direction::Forward, |key, value| {
        let (element, value) = hashed.parts(key, value);
        let mut place = None;
        while let Some(choice) = left.next_if(|choice| **choice == number) {
            bytes += element.len() + value.len() + 1;
            cx.make_room(bytes)?;
            *choice = *place.get_or_insert_with(|| held.add(element, value));
        }
        number += 1;
        Ok(left.peek().is_some())
    })?;
    if left.peek().is_some() {
        return Err(missing());
    }
    random.shuffle(&mut choices);
    for place in choices {
        let (element, value) = held.at(place);
        reply(cx.out, element, value);
        if cx.out.is_full() {
            break;
        }
    }
    Ok(())
}
