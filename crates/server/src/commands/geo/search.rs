//! Commands that search places around a centre.

use super::grid::Place;
use super::places::{place, place_of, reply_distance, reply_place, unit_m};
use super::shape::{Extent, Shape};
use crate::commands::arguments::{Arguments, Words, integer};
use crate::commands::collections::Check;
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::sorted_sets::ranges;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use crate::text::{number, shown};
use bytes::Bytes;

const FAMILY: Family = Family::Geo;
const STORES: u32 = WRITE | DENYOOM;
const STORE_WORDS: &[&str] = &["STORE", "STOREDIST"];

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "georadius", -6, STORES, georadius)
        .keys_after(STORE_WORDS, 6)
        .doc("3.2.0", "Searches around a point."),
    Command::new(FAMILY, "georadius_ro", -6, READONLY, georadius_ro)
        .keys(1, 1, 1)
        .doc("3.2.10", "Searches around a point."),
    Command::new(FAMILY, "georadiusbymember", -5, STORES, georadiusbymember)
        .keys_after(STORE_WORDS, 5)
        .doc("3.2.0", "Searches around a member."),
    Command::new(FAMILY, "georadiusbymember_ro", -5, READONLY, georadiusbymember_ro)
        .keys(1, 1, 1)
        .doc("3.2.10", "Searches around a member."),
    Command::new(FAMILY, "geosearch", -7, READONLY, geosearch)
        .keys(1, 1, 1)
        .doc("6.2.0", "Searches in a circle or a box."),
    Command::new(FAMILY, "geosearchstore", -8, STORES, geosearchstore)
        .keys(1, 2, 1)
        .doc("6.2.0", "Stores what is in a circle or a box."),
];

/// Where the results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target<'a> {
    /// To the client.
    Reply,
    /// To a sorted set of scores.
    Scores(&'a [u8]),
    /// To a sorted set of distances.
    Distances(&'a [u8]),
}

/// What a command asks for, without the shape.
struct Query<'a> {
    with_distance: bool,
    with_score: bool,
    with_place: bool,
    /// Whether any results will do, not only the nearest.
    any: bool,
    order: Option<Direction>,
    most: Option<usize>,
    target: Target<'a>,
    /// The event when results are stored.
    event: &'static str,
}

impl<'a> Query<'a> {
    const fn new(target: Target<'a>, event: &'static str) -> Self {
        let (with_distance, with_score, with_place, any) = (false, false, false, false);
        Self { with_distance, with_score, with_place, any, order: None, most: None, target, event }
    }

    /// Takes an option that all commands have. False when the next word is another one.
    fn take(&mut self, words: &mut Words<'a>) -> Outcome<bool> {
        match () {
            () if words.take("WITHDIST") => self.with_distance = true,
            () if words.take("WITHHASH") => self.with_score = true,
            () if words.take("WITHCOORD") => self.with_place = true,
            () if words.take("ANY") => self.any = true,
            () if words.take("ASC") => self.order = Some(Direction::Forward),
            () if words.take("DESC") => self.order = Some(Direction::Backward),
            () => {
                let Some(count) = words.take_with_value("COUNT") else { return Ok(false) };
                let count = integer(count)?;
                if count <= 0 {
                    return Err(Failure::text("ERR COUNT must be > 0"));
                }
                self.most = Some(usize::try_from(count).unwrap_or(usize::MAX));
            }
        }
        Ok(true)
    }

    fn check_target(&self, what: &str) -> Outcome {
        if self.target != Target::Reply && (self.with_distance || self.with_score || self.with_place) {
            return Err(Failure::new(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        Ok(())
    }

    fn check_any(&self) -> Outcome {
        if self.any && self.most.is_none() {
            return Err(Failure::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

/// A length and the metres of its unit.
fn length(text: &[u8], unit: &[u8]) -> Outcome<(f64, f64)> {
    let length = number::double(text).ok_or(Failure::text("ERR need numeric radius"))?;
    if length < 0.0 {
        return Err(Failure::text("ERR radius cannot be negative"));
    }
    Ok((length, unit_m(unit)?))
}

fn sides(width: &[u8], height: &[u8], unit: &[u8]) -> Outcome<(Extent, f64)> {
    let width = number::double(width).ok_or(Failure::text("ERR need numeric width"))?;
    let height = number::double(height).ok_or(Failure::text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Failure::text("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box(width, height), unit_m(unit)?))
}

/// Returns the centre: the place of a member, which must exist.
fn centre(cx: &mut Context<'_, '_>, set: &Collection, member: &[u8]) -> Outcome<Place> {
    let place = place_of(cx, set, member)?;
    place.ok_or(Failure::text("ERR could not decode requested zset member"))
}

/// A place that was found.
struct Found {
    member: Bytes,
    score: f64,
    place: Place,
    distance_m: f64,
}

/// Returns the places within a shape, cell by cell, up to `most`. Fails when `check` does, which is asked about the
/// bytes of the members that are held.
fn find(cx: &Context<'_, '_>, set: &Collection, shape: &Shape, most: usize, check: Check<'_>) -> Outcome<Vec<Found>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for cell in shape.cells() {
        let bound = |score| layout::scored_bound(cx.space(), set.id, score, false);
        let range = (bound(cell.first_score()), bound(cell.end_score()));
        cx.keys.reads().scan(&range, Direction::Forward, |key, _| {
            let score = layout::scored_part(key);
            let place = Place::of_score(score);
            if let Some(distance_m) = shape.distance_m(place) {
                let member = Bytes::copy_from_slice(layout::member_part(key));
                bytes += member.len() + 1;
                check(bytes)?;
                found.push(Found { member, score, place, distance_m });
            }
            Ok(found.len() < most)
        })?;
        if found.len() >= most {
            break;
        }
    }
    Ok(found)
}

fn answer(cx: &mut Context<'_, '_>, set: Option<Collection>, shape: Option<&Shape>, query: &Query<'_>) -> Outcome {
    let most = query.most.unwrap_or(usize::MAX);
    // If all that is found is replied, it is refused as soon as the reply would be too long.
    let are_replied = query.target == Target::Reply && (query.any || query.most.is_none());
    let mut found = match (&set, shape) {
        (Some(set), Some(shape)) => {
            let (cx, most) = (&*cx, if query.any { most } else { usize::MAX });
            find(cx, set, shape, most, &|bytes| if are_replied { cx.make_room(bytes) } else { Ok(()) })?
        }
        _ => Vec::new(),
    };
    // A limited number of results means the nearest ones.
    let order = query.order.or((query.most.is_some() && !query.any).then_some(Direction::Forward));
    match order {
        Some(Direction::Forward) => found.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m)),
        Some(Direction::Backward) => found.sort_by(|a, b| b.distance_m.total_cmp(&a.distance_m)),
        None => {}
    }
    found.truncate(most);
    let unit_m = shape.map_or(1.0, |shape| shape.unit_m);
    match query.target {
        Target::Reply => reply(cx, &found, query, unit_m),
        Target::Scores(key) => store(cx, key, found, query.event, |found| found.score)?,
        Target::Distances(key) => store(cx, key, found, query.event, |found| found.distance_m / unit_m)?,
    }
    Ok(())
}

fn reply(cx: &mut Context<'_, '_>, found: &[Found], query: &Query<'_>, unit_m: f64) {
    let more = [query.with_distance, query.with_score, query.with_place].into_iter().filter(|with| *with).count();
    cx.out.array(found.len());
    for found in found {
        if more > 0 {
            cx.out.array(1 + more);
        }
        cx.out.bulk(&found.member);
        if query.with_distance {
            reply_distance(cx, found.distance_m, unit_m);
        }
        if query.with_score {
            cx.out.integer(found.score as i64);
        }
        if query.with_place {
            reply_place(cx, found.place);
        }
    }
}

fn store(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    found: Vec<Found>,
    event: &'static str,
    score: impl Fn(&Found) -> f64,
) -> Outcome {
    let scored: Vec<_> = found.into_iter().map(|found| (found.member.clone(), score(&found))).collect();
    cx.out.count(scored.len());
    ranges::store(cx, key, scored, event)
}

/// `GEORADIUS` and its like: the centre is at a place, then come radius, unit, and options.
fn radius(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, is_member: bool, stores: bool) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::SortedSet)?;
    let at = if is_member { 3 } else { 4 };
    let centre = match (is_member, &set) {
        (false, _) => Some(place(arguments.at(2), arguments.at(3))?),
        (true, Some(set)) => Some(centre(cx, set, arguments.at(2))?),
        (true, None) => None,
    };
    let mut shape = None;
    if let Some(centre) = centre {
        let (radius, unit_m) = length(arguments.at(at), arguments.at(at + 1))?;
        shape = Some(Shape { centre, extent: Extent::Circle(radius), unit_m });
    }
    let (mut query, mut words) = (Query::new(Target::Reply, "georadiusstore"), arguments.words(at + 2));
    while !words.is_done() {
        if query.take(&mut words)? {
            continue;
        }
        if let Some(key) = words.take_with_value("STORE").filter(|_| stores) {
            query.target = Target::Scores(key);
        } else if let Some(key) = words.take_with_value("STOREDIST").filter(|_| stores) {
            query.target = Target::Distances(key);
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    query.check_target("STORE option in GEORADIUS")?;
    query.check_any()?;
    answer(cx, set, shape.as_ref(), &query)
}

fn georadius(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    radius(cx, arguments, false, true)
}

fn georadius_ro(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    radius(cx, arguments, false, false)
}

fn georadiusbymember(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    radius(cx, arguments, true, true)
}

fn georadiusbymember_ro(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    radius(cx, arguments, true, false)
}

/// The centre of a search.
#[derive(Clone, Copy)]
enum Centre {
    /// Where a member is; `None` when the set does not exist.
    Member(Option<Place>),
    /// A point.
    Point(Place),
}

/// `GEOSEARCH` and `GEOSEARCHSTORE`: centre and extent are options.
fn search(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, stores: bool) -> Outcome {
    let source = if stores { 2 } else { 1 };
    let set = cx.collection(arguments.at(source), Kind::SortedSet)?;
    let mut query = Query::new(if stores { Target::Scores(arguments.at(1)) } else { Target::Reply }, "geosearchstore");
    let (mut from, mut by) = (None, None);
    let mut words = arguments.words(source + 1);
    while !words.is_done() {
        if query.take(&mut words)? {
            continue;
        }
        if !matches!(from, Some(Centre::Point(_)))
            && let Some([member]) = words.take_with_values("FROMMEMBER")
        {
            let place = set.as_ref().map(|set| centre(cx, set, member)).transpose()?;
            from = Some(Centre::Member(place));
        } else if !matches!(from, Some(Centre::Member(_)))
            && let Some([longitude, latitude]) = words.take_with_values("FROMLONLAT")
        {
            from = Some(Centre::Point(place(longitude, latitude)?));
        } else if !matches!(by, Some((Extent::Box(..), _)))
            && let Some([radius, unit]) = words.take_with_values("BYRADIUS")
        {
            let (radius, unit_m) = length(radius, unit)?;
            by = Some((Extent::Circle(radius), unit_m));
        } else if !matches!(by, Some((Extent::Circle(_), _)))
            && let Some([width, height, unit]) = words.take_with_values("BYBOX")
        {
            by = Some(sides(width, height, unit)?);
        } else if stores && words.take("STOREDIST") {
            query.target = Target::Distances(arguments.at(1));
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    query.check_target("GEOSEARCHSTORE")?;
    let missing = |what: &str| {
        let name = shown::short(arguments.at(0), 128);
        Failure::new(format!("ERR exactly one of {what} can be specified for {name}"))
    };
    let from = from.ok_or_else(|| missing("FROMMEMBER or FROMLONLAT"))?;
    let (extent, unit_m) = by.ok_or_else(|| missing("BYRADIUS and BYBOX"))?;
    query.check_any()?;
    let centre = match from {
        Centre::Member(place) => place,
        Centre::Point(place) => Some(place),
    };
    let shape = centre.map(|centre| Shape { centre, extent, unit_m });
    answer(cx, set, shape.as_ref(), &query)
}

fn geosearch(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    search(cx, arguments, false)
}

fn geosearchstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    search(cx, arguments, true)
}
