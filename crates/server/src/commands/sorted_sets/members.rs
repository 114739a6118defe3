//! Reading and changing members of sorted sets.

use crate::commands::collections::{Open, check_element};
use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::{self, Range};
use crate::keyspace::writes::Direction;
use crate::protocol::reply::Protocol;
use bytes::Bytes;

/// A member with its score.
pub(crate) type Scored = (Bytes, f64);

/// The score of a member.
pub(crate) fn score(cx: &mut Context<'_, '_>, id: u64, member: &[u8]) -> Outcome<Option<f64>> {
    let key = cx.keys.layout().member(cx.space(), id, member);
    let value = cx.keys.writes().get(&key)?;
    let damaged = || Failure::damaged("the score of a member is damaged");
    value.map(|value| layout::score_of(&value).ok_or_else(damaged)).transpose()
}

/// Reads the scores of members together, which later reads will find.
pub(crate) fn fetch<'m>(cx: &mut Context<'_, '_>, id: u64, members: impl Iterator<Item = &'m [u8]>) -> Outcome {
    let (layout, space) = (cx.keys.layout(), cx.space());
    cx.keys.writes().fetch(members.map(|member| layout.member(space, id, member)))
}

/// Gives a member a score; `former` is the one that it has.
pub(crate) fn put(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8], score: f64, former: Option<f64>) -> Outcome {
    check_element(member)?;
    let (space, id) = (cx.space(), set.now.id);
    let key = cx.keys.layout().member(space, id, member);
    match former {
        Some(former) => cx.keys.writes().delete(layout::scored(space, id, former, member)),
        None => set.now.a += 1,
    }
    cx.keys.writes().put(key, Bytes::copy_from_slice(&layout::score_bytes(score)));
    cx.keys.writes().put(layout::scored(space, id, score, member), Bytes::new());
    Ok(())
}

/// Removes a member that has this score.
pub(crate) fn take(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8], score: f64) {
    let (space, id) = (cx.space(), set.now.id);
    let key = cx.keys.layout().member(space, id, member);
    cx.keys.writes().delete(key);
    cx.keys.writes().delete(layout::scored(space, id, score, member));
    set.now.a = set.now.a.saturating_sub(1);
}

/// The members of a range in the order of scores, without the first `skip` ones, up to `most`.
pub(crate) fn scan(
    cx: &mut Context<'_, '_>,
    range: &Range,
    direction: Direction,
    mut skip: u64,
    most: u64,
) -> Outcome<Vec<Scored>> {
    let mut found = Vec::new();
    if most == 0 {
        return Ok(found);
    }
    cx.keys.writes().scan(range, direction, |key, _| {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        found.push((Bytes::copy_from_slice(layout::member_part(key)), layout::scored_part(key)));
        Ok((found.len() as u64) < most)
    })?;
    Ok(found)
}

/// Number of members of a range.
pub(crate) fn count(cx: &mut Context<'_, '_>, range: &Range) -> Outcome<u64> {
    let mut count = 0;
    cx.keys.writes().scan(range, Direction::Forward, |_, _| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}

/// Replies with members, and with their scores if they are wanted: in RESP3 as pairs.
pub(crate) fn reply(cx: &mut Context<'_, '_>, members: &[Scored], with_scores: bool) {
    let nested = with_scores && cx.out.protocol() == Protocol::Three;
    cx.out.array(members.len() * if with_scores && !nested { 2 } else { 1 });
    for (member, score) in members {
        if nested {
            cx.out.array(2);
        }
        cx.out.bulk(member);
        if with_scores {
            cx.out.double(*score);
        }
    }
}
