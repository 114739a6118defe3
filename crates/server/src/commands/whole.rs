//! All that a key holds, as one value in memory: for sorting, and for carrying it to another server.

use crate::commands::collections::{self, HASHED, Open};
use crate::commands::command::Context;
use crate::commands::lists::{self, End};
use crate::commands::sorted_sets::{self, members};
use crate::commands::{hashes, sets};
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
    /// What a key holds that has this header; `None` for a stream.
    pub(crate) fn read(cx: &mut Context<'_, '_>, header: &Header) -> Outcome<Option<Self>> {
        Ok(Some(match &header.content {
            Content::String(bytes) => Self::String(bytes.clone()),
            Content::Collection(Kind::List, list) => Self::List(lists::elements(cx, list)?),
            Content::Collection(Kind::SortedSet, set) => {
                let all = layout::all_scored(cx.space(), set.id);
                Self::SortedSet(members::scan(cx.keys.writes(), &all, Direction::Forward, (0, u64::MAX))?)
            }
            Content::Collection(Kind::Hash, hash) => Self::Hash(collections::entries(cx, hash.id, HASHED)?),
            Content::Collection(_, set) => {
                let entries = collections::entries(cx, set.id, HASHED)?;
                Self::Set(entries.into_iter().map(|(member, _)| member).collect())
            }
            Content::Stream(_) => return Ok(None),
        }))
    }

    /// Replaces what a key holds, which does not expire then. A collection has elements.
    pub(crate) fn write(self, cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome {
        match self {
            Self::String(bytes) => cx.set_header(key, &Header::string(bytes)),
            Self::List(elements) => {
                let mut list = Open::fresh(cx, Kind::List)?;
                elements.into_iter().for_each(|element| lists::push(cx, &mut list, End::Right, element));
                list.save(cx, key, true)
            }
            Self::Set(elements) => {
                let mut set = Open::fresh(cx, Kind::Set)?;
                for member in elements {
                    sets::add(cx, &mut set, &member)?;
                }
                set.save(cx, key, true)
            }
            Self::Hash(pairs) => {
                let mut hash = Open::fresh(cx, Kind::Hash)?;
                for (field, value) in pairs {
                    hashes::put(cx, &mut hash, &field, value)?;
                }
                hash.save(cx, key, true)
            }
            Self::SortedSet(scored) => sorted_sets::ranges::of_members(cx, scored)?.save(cx, key, true),
        }
    }
}
