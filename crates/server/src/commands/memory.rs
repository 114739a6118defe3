//! `MEMORY`: how much a key takes.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{LOADING, READONLY, STALE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use std::fmt::Write;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::new(Family::Server, "memory", -2, 0, help)
    .doc("4.0.0", "A container for memory diagnostics commands.")
    .subcommands(&[
        Command::alone(Family::Server, "memory|doctor", 2, 0, doctor)
            .doc("4.0.0", "Says what is wrong with the memory."),
        Command::new(Family::Server, "memory|help", 2, LOADING | STALE, help).doc("4.0.0", "Returns help."),
        Command::alone(Family::Server, "memory|malloc-stats", 2, 0, allocator)
            .doc("4.0.0", "Says that the allocator has no statistics."),
        Command::alone(Family::Server, "memory|purge", 2, 0, purge)
            .doc("4.0.0", "Gives memory back that is kept, of which there is none."),
        Command::alone(Family::Server, "memory|stats", 2, 0, statistics)
            .doc("4.0.0", "Returns what memory is used for."),
        Command::new(Family::Server, "memory|usage", -3, READONLY, usage)
            .keys(2, 2, 1)
            .doc("4.0.0", "Estimates the memory that a key takes."),
    ])];

/// About how many bytes a record of the engine takes beside key and value.
const RECORD_BYTES: u64 = 40;
/// Elements that are looked at, unless the client says otherwise.
const SAMPLES: u64 = 5;

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Attempt to purge dirty pages for reclamation by the allocator.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value.",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn doctor(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let figures = cx.shared.store.figures();
    let mut text = String::new();
    if figures.stalls > 0 {
        let _ = writeln!(
            text,
            "Writers have waited {} times for flushes and compactions: more memory or background threads help.",
            figures.stalls
        );
    }
    if figures.dead_bytes > figures.live_bytes {
        let _ = writeln!(
            text,
            "{} bytes of {} are of values that were replaced or removed: compactions do not keep up.",
            figures.dead_bytes, figures.remote_bytes
        );
    }
    if text.is_empty() {
        text.push_str("Nothing is wrong with the memory, as far as is known.\n");
    }
    cx.out.verbatim(&text);
    Ok(())
}

fn allocator(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.bulk("Stats not supported for the current allocator");
    Ok(())
}

fn purge(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.ok();
    Ok(())
}

/// Replies with the figures of Redis's list that exist here; those of the dataset are for what memory nodes hold.
fn statistics(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let figures = cx.shared.store.figures();
    let (used_bytes, peak_bytes) = cx.shared.memory();
    let keys: i64 = cx.keys.databases().iter().map(|space| cx.keys.size(*space)).sum();
    let keys = u64::try_from(keys).unwrap_or(0);
    let overhead = figures.local_bytes;
    let counts = [
        ("peak.allocated", peak_bytes),
        ("total.allocated", used_bytes),
        ("startup.allocated", cx.shared.started_bytes),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", cx.shared.clients.held_bytes() as u64),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", cx.shared.scripts.use_of_memory().text_bytes as u64),
        ("overhead.total", overhead),
        ("keys.count", keys),
        ("keys.bytes-per-key", figures.live_bytes.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", figures.live_bytes),
    ];
    let percentages =
        [("dataset.percentage", figures.live_bytes, used_bytes), ("peak.percentage", used_bytes, peak_bytes)];
    cx.out.map(counts.len() + percentages.len());
    for (name, count) in counts {
        cx.out.bulk(name);
        cx.out.count(count);
    }
    for (name, part, whole) in percentages {
        cx.out.bulk(name);
        cx.out.double(if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 });
    }
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
    let counted = match &header.content {
        Content::String(_) => None,
        Content::Collection(Kind::List, list) => Some((list.id, list.b.wrapping_sub(list.a), 1)),
        Content::Collection(Kind::SortedSet, set) => Some((set.id, set.a, 2)),
        Content::Collection(_, collection) => Some((collection.id, collection.a, 1)),
        Content::Stream(stream) => Some((stream.id, stream.entries, 1)),
    };
    if let Some((id, count, records)) = counted {
        let range = layout::elements(cx.space(), id);
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
