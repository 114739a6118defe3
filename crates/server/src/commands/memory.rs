//! `MEMORY`: how much a key takes.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::READONLY;
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::new(Family::Server, "memory", -2, 0, help)
    .doc("4.0.0", "A container for memory diagnostics commands.")
    .subcommands(&[
        Command::new(Family::Server, "memory|help", 2, 0, help).doc("4.0.0", "Returns help."),
        Command::new(Family::Server, "memory|usage", -3, READONLY, usage)
            .keys(2, 2, 1)
            .doc("4.0.0", "Estimates the memory that a key takes."),
    ])];

/// Bytes that a record of the engine takes beside key and value, about.
const RECORD_BYTES: u64 = 40;
/// Elements that are looked at, unless the client says otherwise.
const SAMPLES: u64 = 5;

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value.",
        "HELP",
        "    Print this help.",
    ];
    cx.out.array(LINES.len());
    LINES.iter().for_each(|line| cx.out.simple(line));
    Ok(())
}

fn usage(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(2);
    let mut samples = SAMPLES;
    let mut words = arguments.words(3);
    while !words.is_done() {
        let text = words.take_with_value("SAMPLES").ok_or(Failure::SYNTAX)?;
        let number = crate::commands::arguments::integer(text)?;
        let number = u64::try_from(number).map_err(|_| Failure::SYNTAX)?;
        samples = if number == 0 { u64::MAX } else { number };
    }
    let Some(header) = cx.header(key)? else {
        cx.out.null();
        return Ok(());
    };
    let mut bytes = RECORD_BYTES + (layout::HEADER_PREFIX_BYTES + key.len() + header.encode().len()) as u64;
    if header.expires_ms.is_some() {
        bytes += RECORD_BYTES + (layout::HEADER_PREFIX_BYTES + key.len()) as u64;
    }
    if let Content::Collection(kind, collection) = &header.content {
        let (count, records) = match kind {
            Kind::List => (collection.b.wrapping_sub(collection.a), 1),
            Kind::SortedSet => (collection.a, 2),
            _ => (collection.a, 1),
        };
        let range = layout::elements(cx.space(), collection.id);
        let (mut seen, mut sum) = (0, 0_u64);
        cx.keys.writes().scan(&range, Direction::Forward, |key, value| {
            seen += 1;
            sum += RECORD_BYTES + (key.len() + value.len()) as u64;
            Ok(seen < samples)
        })?;
        let average = sum.checked_div(seen).unwrap_or(0);
        bytes += if seen < count * records { average.saturating_mul(count * records) } else { sum };
    }
    cx.out.count(bytes);
    Ok(())
}
