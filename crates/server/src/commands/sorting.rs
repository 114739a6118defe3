//! `SORT`: elements in the order of their numbers, or of their bytes, or of what other keys hold.
//!
//! A pattern has a star, which an element replaces: `weight_*` is a string, `object_*->name` a field of a hash. Which
//! keys a pattern reads is not known in advance. So no other command changes keys meanwhile, and only a user who may
//! read all keys may use patterns.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{DENYOOM, MOVABLEKEYS, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family, Run};
use crate::commands::hashes;
use crate::commands::permission;
use crate::commands::whole::Whole;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Kind;
use crate::text::number;
use bytes::Bytes;
use std::cmp::Ordering;

const FAMILY: Family = Family::Generic;
/// For how many elements the keys of a pattern are read together.
const FOLLOWED: usize = 256;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::with(FAMILY, "sort", -2, WRITE | DENYOOM, Run::Steady(sort))
        .keys_after(&["STORE"], 2)
        .doc("1.0.0", "Sorts elements, and returns or stores them."),
    Command::with(FAMILY, "sort_ro", -2, READONLY | MOVABLEKEYS, Run::Steady(sort_ro))
        .keys(1, 1, 1)
        .doc("7.0.0", "Sorts elements and returns them."),
];

/// What a client asks for.
#[derive(Default)]
struct Query<'a> {
    /// The pattern whose values give the order.
    by: Option<&'a [u8]>,
    /// Whether the elements keep their order: a pattern without a star gives each of them the same place, and counts
    /// whatever other patterns there are.
    is_unsorted: bool,
    /// The patterns whose values are returned instead of elements.
    gets: Vec<&'a [u8]>,
    descends: bool,
    is_of_bytes: bool,
    limit: Option<(i64, i64)>,
    target: Option<&'a [u8]>,
}

/// Returns what these arguments ask for. A user who may not read all keys is refused patterns.
fn query<'a>(arguments: Arguments<'a>, may_store: bool, reads_all_keys: bool) -> Outcome<Query<'a>> {
    let (mut words, mut query) = (arguments.words(2), Query::default());
    while !words.is_done() {
        if words.take("ASC") {
            query.descends = false;
        } else if words.take("DESC") {
            query.descends = true;
        } else if words.take("ALPHA") {
            query.is_of_bytes = true;
        } else if let Some([skip, most]) = words.take_with_values("LIMIT") {
            query.limit = Some((integer(skip)?, integer(most)?));
        } else if let Some(pattern) = words.take_with_value("BY") {
            let has_star = pattern.contains(&b'*');
            if !reads_all_keys && has_star {
                return Err(Failure::text("ERR BY option of SORT denied due to insufficient ACL permissions."));
            }
            query.by = Some(pattern);
            query.is_unsorted |= !has_star;
        } else if let Some(pattern) = words.take_with_value("GET") {
            if !reads_all_keys {
                return Err(Failure::text("ERR GET option of SORT denied due to insufficient ACL permissions."));
            }
            query.gets.push(pattern);
        } else if may_store && let Some(key) = words.take_with_value("STORE") {
            query.target = Some(key);
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok(query)
}

/// Returns the key that a pattern leads to, and the field if it leads to a hash. `None` for a pattern without a star.
fn place(pattern: &[u8], element: &[u8]) -> Option<(Bytes, Option<Bytes>)> {
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let (before, behind) = (pattern.get(..star)?, pattern.get(star + 1..)?);
    let arrow = behind.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < behind.len());
    let rest = behind.get(..arrow.unwrap_or(behind.len()))?;
    let field = arrow.and_then(|at| behind.get(at + 2..)).map(Bytes::copy_from_slice);
    Some((Bytes::from([before, element, rest].concat()), field))
}

/// A function that gets what a pattern leads to for an element.
type Visit<'v> = &'v mut dyn FnMut(&Context<'_, '_>, Option<Bytes>) -> Outcome;

/// Passes on what a pattern leads to, for each of these elements, as it is read.
fn follow(cx: &mut Context<'_, '_>, pattern: &[u8], elements: &[Bytes], visit: Visit<'_>) -> Outcome {
    let (space, layout) = (cx.space(), cx.keys.layout());
    for elements in elements.chunks(FOLLOWED) {
        let places: Vec<_> = elements.iter().map(|element| place(pattern, element)).collect();
        cx.keys.fetch(space, places.iter().flatten().map(|(key, _)| (layout.hash(key), &key[..], false)))?;
        for (element, place) in elements.iter().zip(&places) {
            let found = match place {
                None => (pattern == b"#").then(|| element.clone()),
                Some((key, field)) => {
                    let kind = cx.header(key)?.map(|header| header.kind());
                    match (kind, field) {
                        (Some(Kind::String), None) => cx.string(key)?,
                        (Some(Kind::Hash), Some(field)) => hashes::get(cx, key, field)?,
                        _ => None,
                    }
                }
            };
            visit(cx, found)?;
        }
    }
    Ok(())
}

/// Returns what a pattern leads to, for each of these elements, as far as there is room for it beside the bytes that
/// are held already. Equal elements lead to the same value many times, so it may be more than all keys hold.
fn followed(
    cx: &mut Context<'_, '_>,
    pattern: &[u8],
    elements: &[Bytes],
    held_bytes: &mut usize,
) -> Outcome<Vec<Option<Bytes>>> {
    let mut found = Vec::with_capacity(elements.len());
    follow(cx, pattern, elements, &mut |cx, value| {
        *held_bytes += size_of_val(&value) + value.as_ref().map_or(0, Bytes::len);
        found.push(value);
        cx.make_room(*held_bytes)
    })?;
    Ok(found)
}

fn weight(text: &[u8]) -> Outcome<f64> {
    number::double_of_c_in_range(text).ok_or(Failure::text("ERR One or more scores can't be converted into double"))
}

/// Sorts elements.
fn order(cx: &mut Context<'_, '_>, elements: Vec<Bytes>, query: &Query<'_>) -> Outcome<Vec<Bytes>> {
    let turned = |order: Ordering| if query.descends { order.reverse() } else { order };
    if query.is_of_bytes {
        let values = match query.by {
            Some(pattern) => followed(cx, pattern, &elements, &mut 0)?,
            None => elements.iter().cloned().map(Some).collect(),
        };
        let mut pairs: Vec<(Option<Bytes>, Bytes)> = values.into_iter().zip(elements).collect();
        pairs.sort_by(|a, b| turned(a.0.cmp(&b.0)));
        return Ok(pairs.into_iter().map(|(_, element)| element).collect());
    }
    let weights = match query.by {
        Some(pattern) => {
            let mut weights = Vec::with_capacity(elements.len());
            follow(cx, pattern, &elements, &mut |_, value| {
                weights.push(value.map_or(Ok(0.0), |value| weight(&value))?);
                Ok(())
            })?;
            weights
        }
        None => elements.iter().map(|element| weight(element)).collect::<Outcome<Vec<f64>>>()?,
    };
    let mut pairs: Vec<(f64, Bytes)> = weights.into_iter().zip(elements).collect();
    let by_weight = |a: &(f64, Bytes), b: &(f64, Bytes)| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    pairs.sort_by(|a, b| turned(by_weight(a, b).then_with(|| a.1.cmp(&b.1))));
    Ok(pairs.into_iter().map(|(_, element)| element).collect())
}

fn sort_with(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, may_store: bool) -> Outcome {
    let command = cx.registry.resolve(arguments)?;
    let reads_all_keys = |user| permission::reads_all_keys(&cx.shared.users, user, command, arguments);
    let reads_all_keys = cx.session.user.as_deref().is_none_or(reads_all_keys);
    let mut query = query(arguments, may_store, reads_all_keys)?;
    // Without these options, the elements are the reply.
    let are_replied = query.target.is_none() && query.limit.is_none() && query.gets.is_empty();
    let whole = match cx.header(arguments.at(1))? {
        Some(header) => {
            let cx = &*cx;
            Whole::read(cx, &header, &|bytes| if are_replied { cx.make_room(bytes) } else { Ok(()) })?
        }
        None => Some(Whole::List(Vec::new())),
    };
    let mut elements = match whole {
        Some(Whole::List(elements)) => elements,
        Some(Whole::SortedSet(scored)) => scored.into_iter().map(|(member, _)| member).collect(),
        Some(Whole::Set(members)) => {
            if query.is_unsorted && (query.target.is_some() || cx.session.is_in_script) {
                // Members of a set have no order of their own that could be stored, or that a script could rely on.
                (query.is_unsorted, query.is_of_bytes, query.by) = (false, true, None);
            }
            members
        }
        _ => return Err(Failure::WRONG_TYPE),
    };
    if !query.is_unsorted {
        elements = order(cx, elements, &query)?;
    } else if query.descends {
        elements.reverse();
    }
    if let Some((skip, most)) = query.limit {
        let skip = usize::try_from(skip.max(0)).unwrap_or(usize::MAX).min(elements.len());
        elements.drain(..skip);
        elements.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    let results: Vec<Option<Bytes>> = if query.gets.is_empty() {
        elements.into_iter().map(Some).collect()
    } else {
        let (mut columns, mut held_bytes) = (Vec::new(), 0);
        for pattern in &query.gets {
            columns.push(followed(cx, pattern, &elements, &mut held_bytes)?);
        }
        let row = |at: usize| columns.iter().map(move |column| column.get(at).cloned().flatten());
        (0..elements.len()).flat_map(row).collect()
    };
    match query.target {
        Some(key) => {
            let count = results.len();
            if results.is_empty() {
                cx.delete(key)?;
            } else {
                Whole::List(results.into_iter().map(Option::unwrap_or_default).collect()).write(cx, key)?;
                cx.notify(Class::LIST, "sortstore", key);
            }
            cx.out.count(count);
        }
        None => {
            cx.out.array(results.len());
            results.iter().for_each(|result| cx.out.bulk_or_null(result.as_ref()));
        }
    }
    Ok(())
}

fn sort(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    sort_with(cx, arguments, true)
}

fn sort_ro(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    sort_with(cx, arguments, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_as_c_reads_them() {
        for (text, expected) in [("", Some(0.0)), (" 1.5", Some(1.5)), ("2\0x", Some(2.0)), ("x", None), ("nan", None)]
        {
            assert_eq!(weight(text.as_bytes()).ok(), expected, "{text}");
        }
    }

    #[test]
    fn patterns_lead_to_keys_and_fields() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (pattern, expected) in [
            ("w_*", Some((bytes("w_x"), None))),
            ("*", Some((bytes("x"), None))),
            ("o_*->f", Some((bytes("o_x"), Some(bytes("f"))))),
            ("o_*_y->f*", Some((bytes("o_x_y"), Some(bytes("f*"))))),
            ("o_*->", Some((bytes("o_x->"), None))),
            ("o->f", None),
        ] {
            assert_eq!(place(pattern.as_bytes(), b"x"), expected, "{pattern}");
        }
    }
}
