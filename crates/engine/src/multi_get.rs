//! Reads of several keys, of any shards.
//!
//! ```text
//!   memtables and probes of all keys       no round trip
//!   lookups where indexes are not held     one round of round trips, see `lookup`
//!   post the first candidate of each       on one endpoint a memory node
//!   ring all doorbells, then wait for all  one round of round trips, whatever the number of keys
//!   again with what is left                keys whose candidate was another key's record
//! ```

use crate::endpoints::Taken;
use crate::probe::{Probe, Step};
use crate::read::{in_memtables, is_visible, post, received, value_of, verified};
use crate::shard::{Shard, View};
use crate::{Error, Result};
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_fabric::WorkId;
use forebay_memtable::Guard;

/// A shard as a call sees it.
pub(crate) struct Source<'s> {
    shard: &'s Shard,
    view: Guard<'s, View>,
    number: SequenceNumber,
}

impl<'s> Source<'s> {
    /// The shard, as of `number` or now. Of several shards, now is to be one moment: see
    /// [`Cut::through`](crate::cut::Cut::through).
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn of(shard: &'s Shard, number: Option<SequenceNumber>) -> Result<Self> {
        shard.check_open()?;
        let (view, present) = shard.present();
        Ok(Self { shard, view, number: number.unwrap_or(present) })
    }

    /// Which memory node it is on.
    fn node(&self) -> usize {
        self.shard.remote.memory_node().number()
    }
}

/// A key whose record is looked for in the tables.
struct Search<'a> {
    key: &'a [u8],
    value: &'a mut Option<Vec<u8>>,
    number: SequenceNumber,
    probe: Probe<'a>,
    next: Option<Step<'a>>,
    /// Which source has it; then, which of the lines to the memory nodes leads there.
    line: usize,
}

/// An endpoint to a memory node.
struct Line<'a> {
    shard: &'a Shard,
    endpoint: Taken<'a>,
    reopens: u32,
    failure: Option<Error>,
}

/// The values of `keys`, the one at place `i` from the source `source_of(i)`.
///
/// # Errors
/// See [`crate::Db::get`].
pub(crate) fn fetch(
    sources: &[Source<'_>],
    keys: &[&[u8]],
    source_of: impl Fn(usize) -> usize,
) -> Result<Vec<Option<Vec<u8>>>> {
    let judged = |error: Error, source: &Source<'_>| match error.kind() {
        // The shard that it was read for is one of them.
        ErrorKind::Corrupt => source.shard.judged(error),
        _ => error,
    };
    try_fetch(sources, keys, source_of).map_err(|error| sources.iter().fold(error, judged))
}

fn try_fetch(
    sources: &[Source<'_>],
    keys: &[&[u8]],
    source_of: impl Fn(usize) -> usize,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    let mut searches = Vec::with_capacity(keys.len());
    for ((at, &key), value) in keys.iter().enumerate().zip(&mut values) {
        let line = source_of(at);
        let Some(source) = sources.get(line) else { continue };
        if let Some(found) = in_memtables(&source.view, key, source.number)? {
            *value = found.map(<[u8]>::to_vec);
            continue;
        }
        let mut probe = source.view.version.probe(key, source.number);
        probe.approach();
        searches.push(Search { key, value, number: source.number, probe, next: None, line });
    }
    // The loads of all go on at the same time, while those of one wait for each other.
    searches.retain(|search| search.probe.approach_entries());
    searches.retain_mut(Search::goes_on);
    let mut lines = open_lines(sources, &mut searches)?;
    while !searches.is_empty() {
        look_up(&mut lines, &mut searches)?;
        round(&mut lines, &mut searches)?;
    }
    drop(lines);
    sources.iter().try_for_each(|source| source.shard.check_open())?;
    Ok(values)
}

/// Opens a line to each memory node that is needed, always in the same order: whoever waits for an
/// endpoint of one node holds none of a later one.
fn open_lines<'a>(sources: &'a [Source<'_>], searches: &mut [Search<'_>]) -> Result<Vec<Line<'a>>> {
    let mut needed: Vec<&'a Source<'_>> = Vec::new();
    for search in &*searches {
        if let Some(source) = sources.get(search.line)
            && needed.iter().all(|other| other.node() != source.node())
        {
            needed.push(source);
        }
    }
    needed.sort_by_key(|source| source.node());
    for search in searches {
        let node = sources.get(search.line).map(Source::node);
        search.line = needed.iter().position(|source| Some(source.node()) == node).unwrap_or(0);
    }
    let open = |source: &&'a Source<'_>| {
        let endpoint = source.shard.remote.foreground().take()?;
        Ok(Line { shard: source.shard, endpoint, reopens: 0, failure: None })
    };
    needed.iter().map(open).collect()
}

impl Search<'_> {
    /// Goes to the next step. Whether there is one.
    fn goes_on(&mut self) -> bool {
        self.next = self.probe.next();
        self.next.is_some()
    }
}

/// Looks up what searches have come to that is in no index that is held, until none has.
fn look_up(lines: &mut [Line<'_>], searches: &mut Vec<Search<'_>>) -> Result<()> {
    while searches.iter().any(|search| matches!(search.next, Some(Step::Index))) {
        for (at, line) in lines.iter_mut().enumerate() {
            let of_line = searches.iter_mut().filter(|search| search.line == at);
            let mut waiting: Vec<_> = of_line.map(|search| &mut search.probe).filter(|probe| probe.waits()).collect();
            line.shard.look_up(&mut line.endpoint, &mut waiting)?;
        }
        searches.retain_mut(|search| !matches!(search.next, Some(Step::Index)) || search.goes_on());
    }
    Ok(())
}

/// Reads the next candidate of each search; keeps the searches that go on.
fn round(lines: &mut [Line<'_>], searches: &mut Vec<Search<'_>>) -> Result<()> {
    let mut posted = Vec::with_capacity(searches.len());
    for search in &*searches {
        if let Some(Step::Record(table, candidate)) = search.next {
            posted.push(post(&mut line(lines, search)?.endpoint, table, candidate)?);
        }
    }
    lines.iter_mut().for_each(|line| line.endpoint.flush());
    let mut posted = posted.into_iter();
    let mut failure = None;
    searches.retain_mut(|search| match finish(lines, search, &mut posted) {
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
            line.shard.reopen(&mut line.endpoint, &mut line.reopens, failure)?;
        }
    }
    Ok(())
}

/// Takes in the record that was read for a search. Whether the search goes on.
fn finish(lines: &mut [Line<'_>], search: &mut Search<'_>, posted: &mut impl Iterator<Item = WorkId>) -> Result<bool> {
    let Some(Step::Record(table, candidate)) = search.next else { return Ok(true) };
    let Some(id) = posted.next() else { return Ok(true) };
    let line = line(lines, search)?;
    let slot = match line.endpoint.wait_for(id) {
        Ok(outcome) => received(outcome)?,
        Err(error) => {
            line.failure.get_or_insert(error.into());
            return Ok(true);
        }
    };
    let record = verified(&slot, table, candidate)?;
    let found = is_visible(&record, search.key, search.number);
    if found {
        *search.value = value_of(record, search.probe.hidden()).map(<[u8]>::to_vec);
    }
    line.endpoint.release(slot);
    Ok(!found && search.goes_on())
}

fn line<'l, 'a>(lines: &'l mut [Line<'a>], search: &Search<'_>) -> Result<&'l mut Line<'a>> {
    lines.get_mut(search.line).ok_or_else(|| Error::invalid("a search without a line to its memory node"))
}
