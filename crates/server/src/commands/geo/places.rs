//! Commands about places.

use super::grid::Place;
use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::sorted_sets::{basic, members};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::text::{decimal, number};

const FAMILY: Family = Family::Geo;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "geoadd", -5, WRITE | DENYOOM, geoadd)
        .keys(1, 1, 1)
        .doc("3.2.0", "Adds places, or changes where they are."),
    Command::new(FAMILY, "geodist", -4, READONLY, geodist)
        .keys(1, 1, 1)
        .doc("3.2.0", "Returns the distance between two places."),
    Command::new(FAMILY, "geohash", -2, READONLY, geohash).keys(1, 1, 1).doc("3.2.0", "Returns places as letters."),
    Command::new(FAMILY, "geopos", -2, READONLY, geopos)
        .keys(1, 1, 1)
        .doc("3.2.0", "Returns longitudes and latitudes of places."),
];

/// A longitude and a latitude.
pub(super) fn place(longitude: &[u8], latitude: &[u8]) -> Outcome<Place> {
    let degrees = |text| number::double(text).ok_or(Failure::NOT_FLOAT);
    let place = Place { longitude: degrees(longitude)?, latitude: degrees(latitude)? };
    if place.is_valid() {
        return Ok(place);
    }
    let Place { longitude, latitude } = place;
    Err(Failure::new(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// The metres of a unit.
pub(super) fn unit_m(text: &[u8]) -> Outcome<f64> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = units.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes()));
    let unit = unit.ok_or(Failure::text("ERR unsupported unit provided. please use M, KM, FT, MI"))?;
    Ok(unit.1)
}

/// Where a member is.
pub(super) fn place_of(cx: &mut Context<'_, '_>, set: &Collection, member: &[u8]) -> Outcome<Option<Place>> {
    Ok(members::score(cx, set.id, member)?.map(Place::of_score))
}

/// Replies with a distance in metres, in a unit.
pub(super) fn reply_distance(cx: &mut Context<'_, '_>, distance_m: f64, unit_m: f64) {
    cx.out.bulk(format!("{:.4}", distance_m / unit_m));
}

/// Replies with a longitude and a latitude.
pub(super) fn reply_place(cx: &mut Context<'_, '_>, place: Place) {
    cx.out.array(2);
    cx.out.double_as(&decimal::plain(place.longitude));
    cx.out.double_as(&decimal::plain(place.latitude));
}

fn geoadd(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut words, mut options) = (arguments.words(2), basic::Options::default());
    loop {
        match () {
            () if words.take("NX") => options.only_new = true,
            () if words.take("XX") => options.only_known = true,
            () if words.take("CH") => options.counts_changes = true,
            () => break,
        }
    }
    let (places, rest) = words.rest().as_chunks::<3>();
    if !rest.is_empty() || places.is_empty() || (options.only_new && options.only_known) {
        return Err(Failure::SYNTAX);
    }
    let mut scored = Vec::with_capacity(places.len());
    for [longitude, latitude, member] in places {
        scored.push((*member, place(longitude, latitude)?.score()));
    }
    basic::add_all(cx, arguments.at(1), &scored, &options)
}

fn geodist(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let unit_m = match arguments.len() {
        4 => 1.0,
        5 => unit_m(arguments.at(4))?,
        _ => return Err(Failure::SYNTAX),
    };
    let mut places = [None; 2];
    if let Some(set) = cx.collection(arguments.at(1), Kind::SortedSet)? {
        for (place, member) in places.iter_mut().zip(arguments.range(2, 4)) {
            *place = place_of(cx, &set, member)?;
        }
    }
    match places {
        [Some(from), Some(to)] => reply_distance(cx, from.distance_m(to), unit_m),
        _ => cx.out.null(),
    }
    Ok(())
}

/// Replies with something about each member that exists.
fn each(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    reply: impl Fn(&mut Context<'_, '_>, Option<Place>),
) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::SortedSet)?;
    if let Some(set) = set {
        members::fetch(cx, set.id, arguments.from(2).iter().copied())?;
    }
    cx.out.array(arguments.len() - 2);
    for member in arguments.from(2) {
        let place = match &set {
            Some(set) => place_of(cx, set, member)?,
            None => None,
        };
        reply(cx, place);
    }
    Ok(())
}

fn geohash(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    each(cx, arguments, |cx, place| cx.out.bulk_or_null(place.map(Place::letters)))
}

fn geopos(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    each(cx, arguments, |cx, place| match place {
        Some(place) => reply_place(cx, place),
        None => cx.out.null_array(),
    })
}
