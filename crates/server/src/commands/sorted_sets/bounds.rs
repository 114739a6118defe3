//! Ranges of sorted sets: by rank, by score, by member.

use super::members::{self, Visit};
use crate::commands::arguments::integer;
use crate::commands::strings::clamp_list;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Collection;
use crate::keyspace::layout::{self, Range, Space};
use crate::keyspace::transaction::Transaction;
use crate::keyspace::writes::Direction;
use crate::text::number;
use bytes::Bytes;

/// Up to this many members are held, to be passed on in reverse order.
const FEW: u64 = 256;

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
        let score = number::double_of_c(text).ok_or(Failure::text("ERR min or max is not a float"))?;
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
    /// At this member, or next to it.
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
}

/// The members of a part of a sorted set that a command asks for.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// The part.
    pub part: Part,
    /// The order.
    pub direction: Direction,
    /// How many members of the part, in this order, are left out; none of ranks.
    pub skip: u64,
    /// How many of the others are chosen at most; all of ranks.
    pub most: u64,
}

impl Choice {
    /// All of a part.
    pub(super) const fn all(part: Part) -> Self {
        Self { part, direction: Direction::Forward, skip: 0, most: u64::MAX }
    }

    /// Passes the chosen members of a set to `visit`, in order, as they are read.
    pub(super) fn each(&self, keys: &Transaction<'_>, space: Space, set: &Collection, visit: Visit<'_>) -> Outcome {
        if self.most == 0 {
            return Ok(());
        }
        let (direction, bounds) = (self.direction, (self.skip, self.most));
        match &self.part {
            Part::Ranks(from, to) => by_rank(keys, space, set, (*from, *to), direction, visit),
            Part::Scores(from, to) => {
                members::each(keys, set.id, &scores(space, set, *from, *to), direction, bounds, visit)
            }
            Part::Members(from, to) => match same_score(keys, space, set)? {
                Some(score) => match lex_range(space, set, score, from, to) {
                    Some(range) => members::each(keys, set.id, &range, direction, bounds, visit),
                    None => Ok(()),
                },
                None => {
                    let (mut skip, mut most) = bounds;
                    let all = layout::all_scored(space, set.id);
                    members::each(keys, set.id, &all, direction, (0, u64::MAX), &mut |member, score| {
                        if !from.admits_above(member) || !to.admits_below(member) {
                            return Ok(true);
                        }
                        if skip > 0 {
                            skip -= 1;
                            return Ok(true);
                        }
                        most = most.saturating_sub(1);
                        Ok(visit(member, score)? && most > 0)
                    })
                }
            },
        }
    }

    /// How many members of a set are chosen.
    pub(super) fn count(&self, keys: &Transaction<'_>, space: Space, set: &Collection) -> Outcome<u64> {
        let mut count = 0;
        self.each(keys, space, set, &mut |_, _| {
            count += 1;
            Ok(true)
        })?;
        Ok(count)
    }
}

fn scores(space: Space, set: &Collection, from: ScoreBound, to: ScoreBound) -> Range {
    let (first, last) = layout::all_scored(space, set.id);
    let bound = |score, is_end| layout::scored_bound(space, set.id, score, is_end);
    // A range that leaves out nothing at an end begins there. So a scan learns where the members begin.
    let from = if from.score == f64::NEG_INFINITY && !from.is_open { first } else { bound(from.score, from.is_open) };
    let to = if to.score == f64::INFINITY && !to.is_open { last } else { bound(to.score, !to.is_open) };
    (from, to)
}

/// The score of all members, if they have the same.
fn same_score(keys: &Transaction<'_>, space: Space, set: &Collection) -> Outcome<Option<f64>> {
    let all = layout::all_scored(space, set.id);
    let first = members::scan(keys, set.id, &all, Direction::Forward, (0, 1))?;
    let last = members::scan(keys, set.id, &all, Direction::Backward, (0, 1))?;
    Ok(match (first.first(), last.first()) {
        (Some((_, first)), Some((_, last))) if first == last => Some(*first),
        _ => None,
    })
}

/// Returns the keys between two members of the same score; `None` when there can be none.
fn lex_range(space: Space, set: &Collection, score: f64, from: &LexBound, to: &LexBound) -> Option<Range> {
    let next = |member: &Bytes, is_after: bool| {
        let key = layout::scored(space, set.id, score, member);
        if is_after { layout::after(&key) } else { key }
    };
    let lower = match from {
        LexBound::Least => layout::scored_bound(space, set.id, score, false),
        LexBound::Most => return None,
        LexBound::At(member, is_open) => next(member, *is_open),
    };
    let upper = match to {
        LexBound::Least => return None,
        LexBound::Most => layout::scored_bound(space, set.id, score, true),
        LexBound::At(member, is_open) => next(member, !is_open),
    };
    Some((lower, upper))
}

/// Passes on members by their ranks, read from the nearer end. Members nearer to the other end come in the wrong order:
/// a few are held and reversed. If there are more, the first one is looked for, and reading starts there.
fn by_rank(
    keys: &Transaction<'_>,
    space: Space,
    set: &Collection,
    (from, to): (i64, i64),
    direction: Direction,
    visit: Visit<'_>,
) -> Outcome {
    let size = usize::try_from(set.a).unwrap_or(usize::MAX);
    let Some(part) = clamp_list(from, to, size) else { return Ok(()) };
    let (before, most, behind) = (part.start as u64, part.len() as u64, size.saturating_sub(part.end) as u64);
    keys.reads().expect_steps(most.saturating_add(before.min(behind)))?;
    let all = layout::all_scored(space, set.id);
    let back = match direction {
        Direction::Forward => Direction::Backward,
        Direction::Backward => Direction::Forward,
    };
    if before <= behind {
        return members::each(keys, set.id, &all, direction, (before, most), visit);
    }
    if most <= FEW {
        let found = members::scan(keys, set.id, &all, back, (behind, most))?;
        for (member, score) in found.iter().rev() {
            if !visit(member, *score)? {
                break;
            }
        }
        return Ok(());
    }
    let mut left = behind.saturating_add(most);
    if before <= left {
        return members::each(keys, set.id, &all, direction, (before, most), visit);
    }
    let mut first = Bytes::new();
    keys.scan((set.id, 0), &all, back, |key, _| {
        left = left.saturating_sub(1);
        if left == 0 {
            first = Bytes::copy_from_slice(key);
        }
        Ok(left > 0)
    })?;
    let rest = match direction {
        Direction::Forward => (first, all.1),
        Direction::Backward => (all.0, layout::after(&first)),
    };
    members::each(keys, set.id, &rest, direction, (0, most), visit)
}
