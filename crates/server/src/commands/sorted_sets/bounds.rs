//! Ranges of sorted sets: by rank, by score, by member.

use super::members::{self, Scored};
use crate::commands::arguments::integer;
use crate::commands::command::Context;
use crate::commands::strings::clamp_list;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Collection;
use crate::keyspace::layout::{self, Range};
use crate::keyspace::writes::Direction;
use crate::text::number;
use bytes::Bytes;

/// A bound of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreBound {
    score: f64,
    is_open: bool,
}

impl ScoreBound {
    pub(super) fn parse(text: &[u8]) -> Outcome<Self> {
        let (text, is_open) = match text.strip_prefix(b"(") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        // C's function reads nothing as zero.
        let score = if text.is_empty() { Some(0.0) } else { number::double(text) };
        let score = score.ok_or(Failure::text("ERR min or max is not a float"))?;
        Ok(Self { score, is_open })
    }
}

/// A bound of a range of members.
#[derive(Debug, Clone)]
pub(super) enum LexBound {
    /// Before all.
    Least,
    /// After all.
    Most,
    /// This member, or what is next to it.
    At(Bytes, bool),
}

impl LexBound {
    pub(super) fn parse(text: &[u8]) -> Outcome<Self> {
        match text {
            b"-" => Ok(Self::Least),
            b"+" => Ok(Self::Most),
            [b'(', member @ ..] => Ok(Self::At(Bytes::copy_from_slice(member), true)),
            [b'[', member @ ..] => Ok(Self::At(Bytes::copy_from_slice(member), false)),
            _ => Err(Failure::text("ERR min or max not valid string range item")),
        }
    }

    /// Whether a member is not before this, the lower bound.
    fn admits_above(&self, member: &[u8]) -> bool {
        match self {
            Self::Least => true,
            Self::Most => false,
            Self::At(bound, is_open) => member > &bound[..] || (!is_open && member == &bound[..]),
        }
    }

    /// Whether a member is not after this, the upper bound.
    fn admits_below(&self, member: &[u8]) -> bool {
        match self {
            Self::Least => false,
            Self::Most => true,
            Self::At(bound, is_open) => member < &bound[..] || (!is_open && member == &bound[..]),
        }
    }
}

/// A part of a sorted set.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Ranks in the direction of reading, from the first to the last, which count from the end when they are negative.
    Ranks(i64, i64),
    /// Scores.
    Scores(ScoreBound, ScoreBound),
    /// Members, where all have the same score.
    Members(LexBound, LexBound),
}

impl Part {
    pub(super) fn ranks(from: &[u8], to: &[u8]) -> Outcome<Self> {
        Ok(Self::Ranks(integer(from)?, integer(to)?))
    }

    pub(super) fn scores(from: &[u8], to: &[u8]) -> Outcome<Self> {
        Ok(Self::Scores(ScoreBound::parse(from)?, ScoreBound::parse(to)?))
    }

    pub(super) fn members(from: &[u8], to: &[u8]) -> Outcome<Self> {
        Ok(Self::Members(LexBound::parse(from)?, LexBound::parse(to)?))
    }

    /// The members of this part of a set, in the given direction, without the first `skip`, up to `most`.
    pub(super) fn read(
        &self,
        cx: &mut Context<'_, '_>,
        set: &Collection,
        direction: Direction,
        skip: u64,
        most: u64,
    ) -> Outcome<Vec<Scored>> {
        match self {
            Self::Ranks(from, to) => by_rank(cx, set, *from, *to, direction),
            Self::Scores(from, to) => {
                let range = scores(cx, set, *from, *to);
                members::scan(cx, &range, direction, skip, most)
            }
            Self::Members(from, to) => match same_score(cx, set)? {
                Some(score) => match lex_range(cx, set, score, from, to) {
                    Some(range) => members::scan(cx, &range, direction, skip, most),
                    None => Ok(Vec::new()),
                },
                None => {
                    let all = layout::all_scored(cx.space(), set.id);
                    let mut found = members::scan(cx, &all, direction, 0, u64::MAX)?;
                    found.retain(|(member, _)| from.admits_above(member) && to.admits_below(member));
                    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                    let most = usize::try_from(most).unwrap_or(usize::MAX);
                    Ok(found.into_iter().skip(skip).take(most).collect())
                }
            },
        }
    }

    /// Number of members.
    pub(super) fn count(&self, cx: &mut Context<'_, '_>, set: &Collection) -> Outcome<u64> {
        match self {
            Self::Scores(from, to) => {
                let range = scores(cx, set, *from, *to);
                members::count(cx, &range)
            }
            _ => Ok(self.read(cx, set, Direction::Forward, 0, u64::MAX)?.len() as u64),
        }
    }
}

fn scores(cx: &Context<'_, '_>, set: &Collection, from: ScoreBound, to: ScoreBound) -> Range {
    let bound = |score, is_end| layout::scored_bound(cx.space(), set.id, score, is_end);
    (bound(from.score, from.is_open), bound(to.score, !to.is_open))
}

/// The score of all members, if they have the same.
fn same_score(cx: &mut Context<'_, '_>, set: &Collection) -> Outcome<Option<f64>> {
    let all = layout::all_scored(cx.space(), set.id);
    let first = members::scan(cx, &all, Direction::Forward, 0, 1)?;
    let last = members::scan(cx, &all, Direction::Backward, 0, 1)?;
    Ok(match (first.first(), last.first()) {
        (Some((_, first)), Some((_, last))) if first == last => Some(*first),
        _ => None,
    })
}

/// The keys between two members of the same score; `None` when there can be none.
fn lex_range(cx: &Context<'_, '_>, set: &Collection, score: f64, from: &LexBound, to: &LexBound) -> Option<Range> {
    let (space, id) = (cx.space(), set.id);
    let next = |member: &Bytes, is_after: bool| {
        let key = layout::scored(space, id, score, member);
        if is_after { layout::after(&key) } else { key }
    };
    let lower = match from {
        LexBound::Least => layout::scored_bound(space, id, score, false),
        LexBound::Most => return None,
        LexBound::At(member, is_open) => next(member, *is_open),
    };
    let upper = match to {
        LexBound::Least => return None,
        LexBound::Most => layout::scored_bound(space, id, score, true),
        LexBound::At(member, is_open) => next(member, !is_open),
    };
    Some((lower, upper))
}

/// Members by their ranks, read from the nearer end.
fn by_rank(
    cx: &mut Context<'_, '_>,
    set: &Collection,
    from: i64,
    to: i64,
    direction: Direction,
) -> Outcome<Vec<Scored>> {
    let size = usize::try_from(set.a).unwrap_or(usize::MAX);
    let Some(part) = clamp_list(from, to, size) else { return Ok(Vec::new()) };
    let all = layout::all_scored(cx.space(), set.id);
    let (before, behind) = (part.start as u64, (size - part.end) as u64);
    let other = match direction {
        Direction::Forward => Direction::Backward,
        Direction::Backward => Direction::Forward,
    };
    let most = (part.end - part.start) as u64;
    if before <= behind {
        return members::scan(cx, &all, direction, before, most);
    }
    let mut found = members::scan(cx, &all, other, behind, most)?;
    found.reverse();
    Ok(found)
}
