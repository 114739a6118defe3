//! Reads of several keys from any shards.
//!
//! ```text
//!   memtables and probes of all keys       no round trip
//!   lookups where indexes are not held     one round of round trips, see `lookup`; may bring records
//!   post the first candidate of each       on one endpoint a memory node
//!   ring all doorbells, then wait for all  one round of round trips, whatever the number of keys
//!   again with what is left                keys whose candidate was another key's record
//! ```
//!
//! A call has a budget of bytes, and answers as many of the first keys as have values within it, but at least one
//! ([`Answers::cut`]). The length of a record is known before the record is read: from the memtable, or from the index.
//! So no record is read that does not fit (`docs/decisions/0091`). The length of a merged value is known once it is made.

use crate::read::found::Found;
use crate::read::get::{in_memtable, memtables_to_ask, post, verified};
use crate::read::probe::{Probe, Step};
use crate::remote::endpoints::Taken;
use crate::remote::segment::Remote;
use crate::remote::spot::Posted;
use crate::terms::time::ReadTime;
use crate::terms::{Error, Result};
use crate::tree::shared::{Tree, View};
use forebay_base::{ErrorKind, Record, SequenceNumber};
use forebay_memtable::{Guard, KeyHash, Memtable};
use std::sync::Arc;

/// A shard as a call sees it.
pub(crate) struct Source<'s> {
    tree: &'s Tree,
    view: Guard<'s, View>,
    number: SequenceNumber,
}

impl<'s> Source<'s> {
    /// Returns the tree as a source, as of `number` or now. To read several shards at one moment, see
    /// [`Cut::through`](crate::tree::cut::Cut::through).
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn of(tree: &'s Tree, number: Option<SequenceNumber>) -> Result<Self> {
        tree.check_open()?;
        let (view, present) = tree.present();
        Ok(Self { tree, view, number: number.unwrap_or(present) })
    }

    /// The merged value of a key.
    fn merged(&self, key: &[u8], time: ReadTime<'_>) -> Result<Option<Vec<u8>>> {
        self.tree.get_merged(&self.view, key, (self.number, time), |record| Some(record.value.to_vec()))
    }

    /// Returns when the value expires that the operands of a key apply to, as of a time.
    ///
    /// # Errors
    /// As for reads.
    pub(crate) fn base_expiry_ms(&self, key: &[u8], time: ReadTime<'_>) -> Result<Option<u64>> {
        let chain = self.tree.chain(&self.view, key, (self.number, time))?;
        Ok(chain.expiry_ms)
    }

    /// The view that the source reads.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }
}

/// The number of the memory node of a member.
fn node(at: &Remote) -> usize {
    at.memory_node().number()
}

/// A search for a key's record in the tables.
struct Search<'a> {
    /// Position of the key.
    key: usize,
    probe: Probe<'a>,
    next: Option<Step<'a>>,
    /// First the index of the source that holds the key; later the index of the line to its memory node.
    line: usize,
}

/// An endpoint to the memory node of a shard's member.
struct Line<'a> {
    tree: &'a Tree,
    at: &'a Remote,
    endpoint: Taken<'a>,
    reopens: u32,
    failure: Option<Error>,
}

/// What was found for the keys of a call that are answered: all keys at first, fewer when a budget is exceeded.
struct Answers<'t, T, F> {
    values: Vec<T>,
    /// For each key, the bytes of what was found, or else of the record that is read next. Zero while they are unknown.
    bytes: Vec<usize>,
    budget_bytes: usize,
    take: &'t F,
}

impl<'t, T, F: Fn(Found<'_>) -> T> Answers<'t, T, F> {
    fn new(keys: usize, budget_bytes: usize, take: &'t F) -> Self {
        let values = (0..keys).map(|_| take(Found::NOTHING)).collect();
        Self { values, bytes: vec![0; keys], budget_bytes, take }
    }

    /// Notes how many bytes a key takes.
    fn expect(&mut self, key: usize, bytes: usize) {
        if let Some(known) = self.bytes.get_mut(key) {
            *known = bytes;
        }
    }

    fn set(&mut self, key: usize, found: Found<'_>) {
        if let Some(value) = self.values.get_mut(key) {
            *value = (self.take)(found);
        }
    }

    /// Leaves out the first key that exceeds the budget and all keys behind it, but not the first key. Searches for
    /// keys that are left out end.
    fn cut(&mut self, searches: &mut Vec<Search<'_>>) {
        let mut left = Some(self.budget_bytes);
        let fits = |bytes: &&usize| {
            left = left.and_then(|left| left.checked_sub(**bytes));
            left.is_some()
        };
        let count = self.bytes.iter().take_while(fits).count().max(1);
        self.values.truncate(count);
        self.bytes.truncate(count);
        searches.retain(|search| search.key < count);
    }
}

/// Returns the values of the first of `keys`: as many as take at most `budget_bytes`, and at least one. They are as of
/// a time that is not before the sources' views. The key at position `i` comes from the source `source_of(i)`.
///
/// # Errors
/// See [`crate::Db::get`].
pub(crate) fn values(
    sources: &[Source<'_>],
    keys: &[&[u8]],
    source_of: impl Fn(usize) -> usize,
    budget_bytes: usize,
    time: ReadTime<'_>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let take = |found: Found<'_>| (found.merges(), found.with_value(time).map(|record| record.value.to_vec()));
    let found = fetch(sources, keys, &source_of, budget_bytes, &take)?;
    let mut values = Vec::with_capacity(found.len());
    let mut left = Some(budget_bytes);
    for (at, (merges, value)) in found.into_iter().enumerate() {
        // The first value alone may exceed the budget.
        if left.is_none() {
            break;
        }
        let value = match (keys.get(at), sources.get(source_of(at))) {
            (Some(key), Some(source)) if merges => source.merged(key, time)?,
            _ => value,
        };
        // The length of a merged value was not known before.
        left = left.and_then(|left| left.checked_sub(value.as_ref().map_or(0, Vec::len)));
        if left.is_none() && at > 0 {
            break;
        }
        values.push(value);
    }
    Ok(values)
}

/// Applies `take` to what is found for each of the first of `keys`, and returns the results. How many keys these are
/// depends on the budget, see [`values`]. The key at position `i` comes from the source `source_of(i)`.
///
/// # Errors
/// See [`crate::Db::get`].
pub(crate) fn fetch<T>(
    sources: &[Source<'_>],
    keys: &[&[u8]],
    source_of: impl Fn(usize) -> usize,
    budget_bytes: usize,
    take: &impl Fn(Found<'_>) -> T,
) -> Result<Vec<T>> {
    if let [source] = sources {
        return fetch_from(source, keys, budget_bytes, take);
    }
    loop {
        let are_several = sources.iter().any(|source| source.tree.remote.are_several());
        let several = sources.iter().filter(|_| are_several);
        let members: Vec<_> = several.map(|source| source.tree.remote.reader()).collect();
        match try_fetch(sources, &members, keys, &source_of, budget_bytes, take) {
            // It is unknown which source has a damaged or missing copy, so each source is read on its own.
            Err(error) if are_several && (error.kind() == ErrorKind::Corrupt || error.is_not_held()) => break,
            // Try again: other members are read now.
            Err(error) if moved(sources, &members, &error) => {}
            result => return result.map_err(|error| sources.iter().fold(error, judged)),
        }
    }
    let mut found: Vec<_> = keys.iter().map(|_| None).collect();
    let mut answered = keys.len();
    for (number, source) in sources.iter().enumerate() {
        let own = keys.iter().enumerate().filter(|(at, _)| source_of(*at) == number);
        let (places, own): (Vec<_>, Vec<&[u8]>) = own.unzip();
        let values = fetch_from(source, &own, budget_bytes / sources.len(), take)?;
        answered = places.get(values.len()).map_or(answered, |&left_out| answered.min(left_out));
        for (at, value) in places.into_iter().zip(values) {
            if let Some(place) = found.get_mut(at) {
                *place = Some(value);
            }
        }
    }
    found.truncate(answered);
    Ok(found.into_iter().map(|found| found.unwrap_or_else(|| take(Found::NOTHING))).collect())
}

/// Does the same for keys that all come from one source.
fn fetch_from<T>(
    source: &Source<'_>,
    keys: &[&[u8]],
    budget_bytes: usize,
    take: &impl Fn(Found<'_>) -> T,
) -> Result<Vec<T>> {
    let read = |at| try_fetch(std::slice::from_ref(source), &[at], keys, &|_| 0, budget_bytes, take);
    source.tree.wherever(read)
}

/// Returns what the failure of a call means for `source`, one of the call's sources.
fn judged(error: Error, source: &Source<'_>) -> Error {
    match error.kind() {
        _ if source.tree.is_closed() => source.tree.why_closed(),
        // The shard that the record was read for is one of them.
        ErrorKind::Corrupt | ErrorKind::NotFound => source.tree.judged(error),
        _ => error,
    }
}

/// Whether one of the sources is no longer read at its member: it already was not, or is not now because of the
/// failure. It is unknown which source failed, so only a member whose link is gone is held to have failed.
#[cold]
fn moved(sources: &[Source<'_>], members: &[&Arc<Remote>], error: &Error) -> bool {
    let mut moved = false;
    for (source, at) in sources.iter().zip(members) {
        let remote = &source.tree.remote;
        let is_lost = !at.memory_node().link().is_alive();
        moved |= (is_lost || !remote.reads_at(at.member())) && remote.reads_again(error, at.member());
    }
    moved
}

/// Reads each source at its member in `members`; if none is given, at the source's only member.
fn try_fetch<T>(
    sources: &[Source<'_>],
    members: &[&Arc<Remote>],
    keys: &[&[u8]],
    source_of: &impl Fn(usize) -> usize,
    budget_bytes: usize,
    take: &impl Fn(Found<'_>) -> T,
) -> Result<Vec<T>> {
    let mut answers = Answers::new(keys.len(), budget_bytes, take);
    let mut searches = Vec::with_capacity(keys.len());
    let found = search_memtables(sources, keys, source_of)?;
    for (key, found) in found.iter().enumerate() {
        answers.expect(key, found.and_then(|found| found.record).map_or(0, |record| record.value.len()));
    }
    answers.cut(&mut searches);
    for (number, (&key, found)) in keys.iter().zip(found).enumerate().take(answers.values.len()) {
        let line = source_of(number);
        let Some(source) = sources.get(line) else { continue };
        if let Some(found) = found {
            answers.set(number, found);
            continue;
        }
        let at = members.get(line).copied().unwrap_or_else(|| source.tree.remote.pinned());
        let mut probe = Probe::new(at, &source.tree.learnt, &source.view.version, key, source.number);
        probe.approach();
        searches.push(Search { key: number, probe, next: None, line });
    }
    // Loads of different searches overlap, while the loads of one search wait for each other.
    searches.retain(|search| search.probe.approach_entries());
    searches.retain_mut(|search| search.goes_on(&mut answers));
    answers.cut(&mut searches);
    let mut lines = open_lines(sources, &mut searches)?;
    while !searches.is_empty() {
        look_up(&mut lines, &mut searches, &mut answers)?;
        round(&mut lines, &mut searches, &mut answers)?;
    }
    drop(lines);
    sources.iter().try_for_each(|source| source.tree.check_open())?;
    // Records may have come with answers of a memory node.
    answers.cut(&mut searches);
    Ok(answers.values)
}

/// A key that is looked for in memtables.
struct Wanted<'s, 'f> {
    found: &'f mut Option<Found<'s>>,
    source: &'s Source<'s>,
    key: &'s [u8],
    hash: KeyHash,
}

/// Returns what the memtables know of each key; `None` for keys that they know nothing of.
///
/// Goes from memtable to memtable, newest first, with the keys that are left. In each memtable, what the searches read
/// is prefetched for all keys before the first search runs.
fn search_memtables<'s>(
    sources: &'s [Source<'_>],
    keys: &[&'s [u8]],
    source_of: &impl Fn(usize) -> usize,
) -> Result<Vec<Option<Found<'s>>>> {
    let mut all = vec![None; keys.len()];
    let wanted = |(at, (found, &key))| {
        sources.get(source_of(at)).map(|source| Wanted { found, source, key, hash: KeyHash::of(key) })
    };
    let mut left: Vec<_> = all.iter_mut().zip(keys).enumerate().filter_map(wanted).collect();
    for age in 0..memtables_to_ask() {
        left.retain(|wanted| wanted.found.is_none() && wanted.source.view.buffer(age).is_some());
        if left.is_empty() {
            break;
        }
        for approach in [Memtable::approach, Memtable::approach_newest, Memtable::approach_record] {
            for Wanted { source, hash, .. } in &left {
                source.view.buffer(age).into_iter().for_each(|buffer| approach(&buffer.memtable, *hash));
            }
        }
        for Wanted { found, source, key, hash } in &mut left {
            if let Some(buffer) = source.view.buffer(age) {
                **found = in_memtable(buffer, key, *hash, source.number)?;
            }
        }
    }
    Ok(all)
}

/// Opens a line to each memory node that is needed, always in the same order, so a thread that waits for an endpoint of
/// one node holds none of a later node.
fn open_lines<'a>(sources: &'a [Source<'_>], searches: &mut [Search<'a>]) -> Result<Vec<Line<'a>>> {
    let mut needed: Vec<(&'a Tree, &'a Remote)> = Vec::new();
    for search in &*searches {
        let at = search.probe.at();
        if let Some(source) = sources.get(search.line)
            && needed.iter().all(|(_, other)| node(other) != node(at))
        {
            needed.push((source.tree, at));
        }
    }
    needed.sort_by_key(|(_, at)| node(at));
    for search in searches {
        let number = node(search.probe.at());
        search.line = needed.iter().position(|(_, at)| node(at) == number).unwrap_or(0);
    }
    let open = |(tree, at): (&'a Tree, &'a Remote)| {
        Ok(Line { tree, at, endpoint: at.foreground().take()?, reopens: 0, failure: None })
    };
    needed.into_iter().map(open).collect()
}

impl Search<'_> {
    /// Goes to the next step. Returns whether there is one.
    fn goes_on<T, F: Fn(Found<'_>) -> T>(&mut self, answers: &mut Answers<'_, T, F>) -> bool {
        self.next = self.probe.next();
        let bytes = match self.next {
            Some(Step::Record(_, candidate)) => candidate.read_length as usize,
            _ => 0,
        };
        answers.expect(self.key, bytes);
        if self.next.is_none() && self.probe.hidden().is_some() {
            answers.set(self.key, Found { record: None, hidden: self.probe.hidden() });
        }
        self.next.is_some()
    }

    /// Takes the record that came with an answer, if there is one. Returns whether there is none, so that the search
    /// continues.
    fn take_delivered<T, F: Fn(Found<'_>) -> T>(&mut self, answers: &mut Answers<'_, T, F>) -> Result<bool> {
        let Some(bytes) = self.probe.take_delivered() else { return Ok(true) };
        answers.expect(self.key, bytes.len());
        answers.set(self.key, Found { record: Some(Record::decode(&bytes)?), hidden: self.probe.hidden() });
        Ok(false)
    }
}

/// Looks up entries whose point index is not held, until no search waits for one.
fn look_up<T, F: Fn(Found<'_>) -> T>(
    lines: &mut [Line<'_>],
    searches: &mut Vec<Search<'_>>,
    answers: &mut Answers<'_, T, F>,
) -> Result<()> {
    while searches.iter().any(|search| matches!(search.next, Some(Step::Index))) {
        for (at, line) in lines.iter_mut().enumerate() {
            let of_line = searches.iter_mut().filter(|search| search.line == at);
            let mut waiting: Vec<_> = of_line.map(|search| &mut search.probe).filter(|probe| probe.waits()).collect();
            line.tree.look_up(line.at, &mut line.endpoint, &mut waiting)?;
        }
        searches.retain_mut(|search| !matches!(search.next, Some(Step::Index)) || search.goes_on(answers));
    }
    let mut failure = None;
    searches.retain_mut(|search| match search.take_delivered(answers) {
        Ok(goes_on) => goes_on,
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Reads the next candidate of each search, as far as the budget goes, and keeps the searches that continue.
fn round<T, F: Fn(Found<'_>) -> T>(
    lines: &mut [Line<'_>],
    searches: &mut Vec<Search<'_>>,
    answers: &mut Answers<'_, T, F>,
) -> Result<()> {
    answers.cut(searches);
    let mut posted = Vec::with_capacity(searches.len());
    for search in &*searches {
        if let Some(Step::Record(table, candidate)) = search.next {
            posted.push(post(search.probe.at(), &mut line(lines, search)?.endpoint, table, candidate)?);
        }
    }
    lines.iter_mut().for_each(|line| line.endpoint.flush());
    // The first that is waited for is read here.
    posted.iter_mut().skip(1).for_each(Posted::begin);
    let mut posted = posted.into_iter();
    let mut failure = None;
    searches.retain_mut(|search| match finish(lines, search, &mut posted, answers) {
        Ok(goes_on) => goes_on,
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    for line in lines {
        if let Some(failure) = line.failure.take() {
            line.tree.reopen(line.at, &mut line.endpoint, &mut line.reopens, failure)?;
        }
    }
    Ok(())
}

/// Takes the record that was read for a search. Returns whether the search continues.
fn finish<T, F: Fn(Found<'_>) -> T>(
    lines: &mut [Line<'_>],
    search: &mut Search<'_>,
    posted: &mut impl Iterator<Item = Posted>,
    answers: &mut Answers<'_, T, F>,
) -> Result<bool> {
    let Some(Step::Record(table, candidate)) = search.next else { return Ok(true) };
    let Some(posted) = posted.next() else { return Ok(true) };
    let line = line(lines, search)?;
    // What comes after a failure on a line is read again later: if the node hangs, each wait would take as long as the
    // first.
    if line.failure.is_some() {
        return Ok(true);
    }
    let slot = match posted.wait(&mut line.endpoint) {
        Ok(slot) => slot,
        Err(error) => {
            line.failure.get_or_insert(error);
            return Ok(true);
        }
    };
    let record = verified(&slot, table, candidate)?;
    let found = search.probe.accepts(table, candidate, &record);
    if found {
        answers.set(search.key, Found { record: Some(record), hidden: search.probe.hidden() });
    }
    line.endpoint.release(slot);
    Ok(!found && search.goes_on(answers))
}

fn line<'l, 'a>(lines: &'l mut [Line<'a>], search: &Search<'_>) -> Result<&'l mut Line<'a>> {
    lines.get_mut(search.line).ok_or_else(|| Error::invalid("a search without a line to its memory node"))
}
