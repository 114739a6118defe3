//! Reading and changing members of sorted sets.

use crate::commands::collections::{Open, check_element};
use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::{self, Range};
use crate::keyspace::transaction::Transaction;
use crate::keyspace::writes::{Direction, PORTION_BYTES};
use crate::protocol::reply::{Protocol, Reply};
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

/// Reads the scores of members together, so that later reads find them.
pub(crate) fn fetch<'m>(cx: &mut Context<'_, '_>, id: u64, members: impl Iterator<Item = &'m [u8]>) -> Outcome {
    let (layout, space) = (cx.keys.layout(), cx.space());
    cx.keys.writes().fetch(members.map(|member| layout.member(space, id, member)))
}

/// Gives a member a score; `former` is the score that it has.
pub(crate) fn put(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8], score: f64, former: Option<f64>) -> Outcome {
    check_element(&cx.shared.store, member)?;
    let (space, id) = (cx.space(), set.now.id);
    let key = cx.keys.layout().member(space, id, member);
    match former {
        Some(former) => take_from_order(cx, id, member, former),
        None => set.now.a += 1,
    }
    cx.keys.writes().put(key, Bytes::copy_from_slice(&layout::score_bytes(score)));
    let scored = layout::scored(space, id, score, member);
    cx.keys.fronts().widen((id, 0), &scored);
    cx.keys.writes().put(scored, Bytes::new());
    Ok(())
}

/// Removes a member that has this score.
pub(crate) fn take(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8], score: f64) {
    let (space, id) = (cx.space(), set.now.id);
    let key = cx.keys.layout().member(space, id, member);
    cx.keys.writes().delete(key);
    take_from_order(cx, id, member, score);
    set.now.a = set.now.a.saturating_sub(1);
}

/// Removes a member from the order of scores.
fn take_from_order(cx: &mut Context<'_, '_>, id: u64, member: &[u8], score: f64) {
    let space = cx.space();
    cx.keys.writes().delete(layout::scored(space, id, score, member));
    cx.keys.fronts().remember((id, 0), || layout::all_scored(space, id));
}

/// A function that gets members of a sorted set one by one, until it returns false.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&[u8], f64) -> Outcome<bool>;

/// Passes up to `most` members of a range of a set on in the order of scores, without the first `skip` ones.
pub(crate) fn each(
    keys: &Transaction<'_>,
    set: u64,
    range: &Range,
    direction: Direction,
    (mut skip, mut most): (u64, u64),
    visit: Visit<'_>,
) -> Outcome {
    if most == 0 {
        return Ok(());
    }
    keys.scan((set, 0), range, direction, |key, _| {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        most = most.saturating_sub(1);
        Ok(visit(layout::member_part(key), layout::scored_part(key))? && most > 0)
    })
}

/// The members that [`each`] passes on.
pub(crate) fn scan(
    keys: &Transaction<'_>,
    set: u64,
    range: &Range,
    direction: Direction,
    (skip, most): (u64, u64),
) -> Outcome<Vec<Scored>> {
    let mut found = Vec::new();
    each(keys, set, range, direction, (skip, most), &mut |member, score| {
        found.push((Bytes::copy_from_slice(member), score));
        Ok(true)
    })?;
    Ok(found)
}

/// Returns up to `most` members from an end of a range of a set, as many as a portion has room for. `range` then has
/// the rest.
pub(crate) fn portion(
    keys: &Transaction<'_>,
    set: u64,
    range: &mut Range,
    direction: Direction,
    most: u64,
) -> Outcome<Vec<Scored>> {
    let (mut found, mut bytes, mut last) = (Vec::new(), 0, None);
    keys.scan((set, 0), range, direction, |key, _| {
        let member = Bytes::copy_from_slice(layout::member_part(key));
        bytes += size_of::<Scored>() + member.len();
        found.push((member, layout::scored_part(key)));
        if bytes >= PORTION_BYTES || found.len() as u64 >= most {
            last = Some(Bytes::copy_from_slice(key));
        }
        Ok(last.is_none())
    })?;
    match (direction, last) {
        (_, None) => range.0.clone_from(&range.1),
        (Direction::Forward, Some(last)) => range.0 = layout::after(&last),
        (Direction::Backward, Some(last)) => range.1 = last,
    }
    Ok(found)
}

/// Number of members of a range of a set.
pub(crate) fn count(keys: &Transaction<'_>, set: u64, range: &Range) -> Outcome<u64> {
    let mut count = 0;
    keys.scan((set, 0), range, Direction::Forward, |_, _| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}

/// Replies with members, and with their scores if they are wanted: in RESP3 as pairs. Each member is dropped once it is
/// written.
pub(crate) fn reply(out: &mut Reply, members: Vec<Scored>, with_scores: bool) {
    out.array(replies(out, members.len(), with_scores));
    members.into_iter().for_each(|(member, score)| reply_one(out, &member, score, with_scores));
}

/// Returns how many elements of an array this many members are.
pub(crate) fn replies(out: &Reply, members: usize, with_scores: bool) -> usize {
    if with_scores && out.protocol() == Protocol::Two { members.saturating_mul(2) } else { members }
}

/// One of the replies of [`reply`].
pub(crate) fn reply_one(out: &mut Reply, member: &[u8], score: f64, with_scores: bool) {
    if with_scores && out.protocol() == Protocol::Three {
        out.array(2);
    }
    out.bulk(member);
    if with_scores {
        out.double(score);
    }
}
