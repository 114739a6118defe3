//! All that a key holds, as one value in memory, to sort it or to move it to another server.

use crate::commands::building::Building;
use crate::commands::collections::{self, Check, HASHED};
use crate::commands::command::Context;
use crate::commands::lists;
use crate::commands::sorted_sets::{self, members};
use crate::keyspace::failure::Outcome;
use crate::keyspace::header::{Content, Header, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use bytes::Bytes;

/// All that a key holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Whole {
    /// A string.
    String(Bytes),
    /// Elements in their order.
    List(Vec<Bytes>),
    /// Members in any order.
    Set(Vec<Bytes>),
    /// Fields and values in any order.
    Hash(Vec<(Bytes, Bytes)>),
    /// Members with their scores, in the order of scores.
    SortedSet(Vec<(Bytes, f64)>),
}

impl Whole {
    /// Reads what a key with this header holds; `None` for a stream. Fails when `check` does, which is asked about the
    /// bytes that are held.
    pub(crate) fn read(cx: &Context<'_, '_>, header: &Header, check: Check<'_>) -> Outcome<Option<Self>> {
        cx.keys.reads().expect_steps(header.elements())?;
        Ok(Some(match &header.content {
            Content::String(bytes) => Self::String(bytes.clone()),
            Content::Collection(Kind::List, list) => Self::List(lists::elements(cx, list, check)?),
            Content::Collection(Kind::SortedSet, set) => {
                let all = layout::all_scored(cx.space(), set.id);
                let (mut scored, mut bytes) = (Vec::new(), 0);
                members::each(cx.keys, set.id, &all, Direction::Forward, (0, u64::MAX), &mut |member, score| {
                    bytes += member.len() + 1;
                    check(bytes)?;
                    scored.push((Bytes::copy_from_slice(member), score));
                    Ok(true)
                })?;
                Self::SortedSet(scored)
            }
            Content::Collection(Kind::Hash, hash) => Self::Hash(collections::entries(cx, hash.id, HASHED, check)?),
            Content::Collection(_, set) => {
                let entries = collections::entries(cx, set.id, HASHED, check)?;
                Self::Set(entries.into_iter().map(|(member, _)| member).collect())
            }
            Content::Stream(_) => return Ok(None),
        }))
    }

    /// Number of its elements. A string has none.
    pub(crate) const fn elements(&self) -> u64 {
        let count = match self {
            Self::String(_) => 0,
            Self::List(elements) | Self::Set(elements) => elements.len(),
            Self::Hash(pairs) => pairs.len(),
            Self::SortedSet(scored) => scored.len(),
        };
        count as u64
    }

    /// Replaces what a key holds. The key does not expire then. A collection must have elements, and they must all
    /// differ, except in a list.
    pub(crate) fn write(self, cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome {
        match self {
            Self::String(bytes) => cx.set_header(key, &Header::string(bytes)),
            Self::List(elements) => {
                let mut list = Building::new(cx, Kind::List)?;
                elements.into_iter().try_for_each(|element| list.push(element))?;
                list.save(cx, key)
            }
            Self::Set(elements) => {
                let mut set = Building::new(cx, Kind::Set)?;
                elements.into_iter().try_for_each(|member| set.add(&member, Bytes::new()))?;
                set.save(cx, key)
            }
            Self::Hash(pairs) => {
                let mut hash = Building::new(cx, Kind::Hash)?;
                pairs.into_iter().try_for_each(|(field, value)| hash.add(&field, value))?;
                hash.save(cx, key)
            }
            Self::SortedSet(scored) => sorted_sets::ranges::of_members(cx, scored)?.save(cx, key),
        }
    }
}
