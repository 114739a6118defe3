//! Which entries are too many or too old.
//!
//! Redis keeps entries in nodes of a hundred. There, a trim that need not be exact removes whole nodes from the
//! beginning. Here, it removes whole hundreds, or everything.

use super::entries;
use super::ids;
use crate::commands::arguments::{Words, integer};
use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::StreamId;
use crate::keyspace::writes::Direction;

/// Entries of a node of Redis.
pub(super) const NODE_ENTRIES: u64 = 100;
/// Most entries that an inexact trim removes, unless the client says otherwise.
const MOST_ROUGHLY: u64 = 100 * NODE_ENTRIES;

/// What stays.
#[derive(Debug, Clone, Copy)]
enum Keep {
    /// The latest entries.
    Latest(u64),
    /// Entries from an id on.
    From(StreamId),
}

/// A trim as a client asks for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trim {
    keep: Keep,
    is_exact: bool,
    most: u64,
}

/// The options of a trim.
#[derive(Debug, Default)]
pub(super) struct Options {
    keep: Option<(Keep, bool)>,
    limit: Option<u64>,
}

impl Options {
    /// Takes an option. Returns false when the next word is something else.
    pub(super) fn take(&mut self, words: &mut Words<'_>) -> Outcome<bool> {
        if words.left() > 1 && words.take("MAXLEN") {
            let (text, is_exact) = self.bound(words)?;
            let length = u64::try_from(integer(text)?);
            let length = length.map_err(|_| Failure::text("ERR The MAXLEN argument must be >= 0."))?;
            self.keep = Some((Keep::Latest(length), is_exact));
        } else if words.left() > 1 && words.take("MINID") {
            let (text, is_exact) = self.bound(words)?;
            self.keep = Some((Keep::From(ids::exact(text, 0)?), is_exact));
        } else if let Some(text) = words.take_with_value("LIMIT") {
            let limit = u64::try_from(integer(text)?);
            self.limit = Some(limit.map_err(|_| Failure::text("ERR The LIMIT argument must be >= 0."))?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the bound after the option's name, and whether it is exact.
    fn bound<'a>(&self, words: &mut Words<'a>) -> Outcome<(&'a [u8], bool)> {
        if self.keep.is_some() {
            return Err(Failure::text(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let has_sign = words.left() > 1;
        let is_rough = has_sign && words.take("~");
        if has_sign && !is_rough {
            words.take("=");
        }
        Ok((words.word().unwrap_or_default(), !is_rough))
    }

    /// The trim, if one is asked for.
    pub(super) fn trim(&self) -> Outcome<Option<Trim>> {
        let Some((keep, is_exact)) = self.keep else {
            return match self.limit {
                None | Some(0) => Ok(None),
                Some(_) => {
                    Err(Failure::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"))
                }
            };
        };
        if self.limit.is_some() && is_exact {
            return Err(Failure::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        // A limit of zero means no limit.
        let most = self.limit.unwrap_or(if is_exact { 0 } else { MOST_ROUGHLY });
        Ok(Some(Trim { keep, is_exact, most: if most == 0 { u64::MAX } else { most } }))
    }
}

impl Trim {
    /// Trims a stream, and returns how many entries were removed.
    pub(super) fn apply(self, cx: &mut Context<'_, '_>, stream: &mut Stream) -> Outcome<u64> {
        let (surplus, to) = match self.keep {
            Keep::Latest(length) => (stream.entries.saturating_sub(length), Some(StreamId::MOST)),
            Keep::From(id) => (stream.entries, id.previous()),
        };
        let most = match (self.keep, surplus.min(self.most)) {
            // What comes after the last full hundred stays, and need not be read.
            (Keep::Latest(_), most) if !self.is_exact && most < stream.entries => most - most % NODE_ENTRIES,
            (_, most) => most,
        };
        let Some(to) = to.filter(|_| most > 0) else { return Ok(0) };
        let (mut few, mut seen, all) = (Vec::new(), 0_u64, stream.entries);
        let (mut removed, mut last) = (0, StreamId::LEAST);
        entries::each(cx, stream, (StreamId::LEAST, to), Direction::Forward, |id, _| {
            seen += 1;
            if few.len() < entries::FEW {
                few.push(id);
            }
            // A hundred that is not full is only removed with all others.
            if self.is_exact || seen.is_multiple_of(NODE_ENTRIES) || seen == all {
                (removed, last) = (seen, id);
            }
            Ok(seen < most)
        })?;
        cx.keys.reads().take_removal(removed)?;
        entries::delete_first(cx, stream, &few, last, removed);
        if let Some(front) = last.next().filter(|_| removed > 0) {
            let range = entries::keys(cx, stream).entries(front, StreamId::MOST);
            cx.keys.fronts().set((stream.id, 0), range);
        }
        Ok(removed)
    }
}
