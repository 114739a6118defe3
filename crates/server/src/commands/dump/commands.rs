//! `DUMP` and `RESTORE`.

use super::reader::Reader;
use super::{payload, streams, values};
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::streams::whole::WholeStream;
use crate::commands::whole::Whole;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Header};

const FAMILY: Family = Family::Generic;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "dump", 2, READONLY, dump).keys(1, 1, 1).doc("2.6.0", "Returns what a key holds, as bytes."),
    Command::new(FAMILY, "restore", -4, WRITE | DENYOOM, restore)
        .keys(1, 1, 1)
        .doc("2.6.0", "Gives a key what another one held."),
];

fn dump(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(header) = cx.header(arguments.at(1))? else {
        cx.out.null();
        return Ok(());
    };
    let dumped = dumped(cx, &header)?;
    cx.out.bulk(dumped);
    Ok(())
}

/// Returns what a key with this header holds, as bytes.
///
/// # Errors
/// Those of the database.
pub(crate) fn dumped(cx: &mut Context<'_, '_>, header: &Header) -> Outcome<Vec<u8>> {
    let value = match &header.content {
        Content::Stream(stream) => streams::write(&WholeStream::read(cx, stream)?),
        _ => {
            let cx = &*cx;
            let whole = Whole::read(cx, header, &|bytes| cx.make_room(bytes))?;
            whole.map(|whole| values::write(&whole)).unwrap_or_default()
        }
    };
    Ok(payload::seal(value))
}

/// What a dump holds.
enum Restored {
    Value(Whole),
    Stream(WholeStream),
}

impl Restored {
    fn elements(&self) -> u64 {
        match self {
            Self::Value(whole) => whole.elements(),
            Self::Stream(whole) => whole.elements(),
        }
    }
}

fn read(bytes: &[u8]) -> Outcome<Restored> {
    let value = payload::open(bytes).ok_or(Failure::text("ERR DUMP payload version or checksum are wrong"))?;
    let mut reader = Reader::new(value);
    Ok(match reader.byte()? {
        kind @ (15 | 19) => Restored::Stream(streams::read(kind, &mut reader)?),
        kind => Restored::Value(values::read(kind, &mut reader)?),
    })
}

fn restore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut words, mut replaces, mut is_absolute) = (arguments.words(4), false, false);
    let (mut has_idle, mut has_frequency) = (false, false);
    while !words.is_done() {
        if words.take("REPLACE") {
            replaces = true;
        } else if words.take("ABSTTL") {
            is_absolute = true;
        } else if !has_frequency && let Some(text) = words.take_with_value("IDLETIME") {
            has_idle = true;
            if integer(text)? < 0 {
                return Err(Failure::text("ERR Invalid IDLETIME value, must be >= 0"));
            }
        } else if !has_idle && let Some(text) = words.take_with_value("FREQ") {
            has_frequency = true;
            if !(0..=255).contains(&integer(text)?) {
                return Err(Failure::text("ERR Invalid FREQ value, must be >= 0 and <= 255"));
            }
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let key = arguments.at(1);
    if !replaces && cx.header(key)?.is_some() {
        return Err(Failure::text("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = u64::try_from(arguments.integer(2)?);
    let ttl_ms = ttl_ms.map_err(|_| Failure::text("ERR Invalid TTL value, must be >= 0"))?;
    let restored = read(arguments.at(3))?;
    // A large collection is written in parts, and a run whose steps are bounded writes one batch.
    cx.keys.reads().expect_steps(restored.elements())?;
    let now_ms = cx.keys.now_ms();
    let expires_ms = (ttl_ms > 0).then(|| if is_absolute { ttl_ms } else { ttl_ms.saturating_add(now_ms) });
    if expires_ms.is_some_and(|expires| expires < now_ms) {
        cx.delete(key)?;
        cx.out.ok();
        return Ok(());
    }
    cx.remove(key)?;
    match restored {
        Restored::Value(whole) => whole.write(cx, key)?,
        Restored::Stream(whole) => whole.write(cx, key)?,
    }
    if let Some(header) = cx.header(key)?.filter(|_| expires_ms.is_some()) {
        cx.set_header(key, &Header { expires_ms, ..header })?;
    }
    cx.notify(Class::GENERIC, "restore", key);
    cx.out.ok();
    Ok(())
}
