//! What the server is doing: `SLOWLOG`, `LATENCY`, `MONITOR`.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, container, unknown_form};
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::latencies::{Sample, Series};
use std::collections::VecDeque;
use std::sync::Arc;

const FAMILY: Family = Family::Server;
const CONTROL: u32 = ADMIN | LOADING | STALE;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(FAMILY, "latency", -2, 0, container)
        .doc("2.8.13", "A container for latency diagnostics commands.")
        .subcommands(&[
            Command::alone(FAMILY, "latency|doctor", 2, CONTROL | NOSCRIPT, latency_doctor)
                .doc("2.8.13", "Says where latencies are to be seen."),
            Command::alone(FAMILY, "latency|graph", 3, CONTROL | NOSCRIPT, latency_graph)
                .doc("2.8.13", "Returns a graph of an event's latencies."),
            Command::alone(FAMILY, "latency|help", 2, LOADING | STALE, latency_help).doc("2.8.13", "Returns help."),
            Command::alone(FAMILY, "latency|histogram", -2, CONTROL | NOSCRIPT, latency_histogram)
                .doc("7.0.0", "Returns how long commands took: how many up to each power of two."),
            Command::alone(FAMILY, "latency|history", 3, CONTROL | NOSCRIPT, latency_history)
                .doc("2.8.13", "Returns latencies of an event."),
            Command::alone(FAMILY, "latency|latest", 2, CONTROL | NOSCRIPT, latency_latest)
                .doc("2.8.13", "Returns the latest latency of each event."),
            Command::alone(FAMILY, "latency|reset", -2, CONTROL | NOSCRIPT, latency_reset)
                .doc("2.8.13", "Forgets latencies."),
        ]),
    Command::alone(FAMILY, "monitor", 1, CONTROL | NOSCRIPT, monitor).doc("1.0.0", "Shows all commands as they come."),
    Command::alone(FAMILY, "slowlog", -2, 0, container)
        .doc("2.2.12", "A container for slow log commands.")
        .subcommands(&[
            Command::alone(FAMILY, "slowlog|get", -2, CONTROL, slow_get).doc("2.2.12", "Returns slow commands."),
            Command::alone(FAMILY, "slowlog|help", 2, LOADING | STALE, slow_help).doc("6.2.0", "Returns help."),
            Command::alone(FAMILY, "slowlog|len", 2, CONTROL, slow_len).doc("2.2.12", "Counts slow commands."),
            Command::alone(FAMILY, "slowlog|reset", 2, CONTROL, slow_reset).doc("2.2.12", "Forgets slow commands."),
        ]),
];

fn latency_history(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let samples = series(cx, arguments.at(2)).map_or_else(VecDeque::new, |series| series.samples);
    cx.out.array(samples.len());
    for Sample { at_s, took_ms } in samples {
        cx.out.array(2);
        cx.out.count(at_s);
        cx.out.count(took_ms);
    }
    Ok(())
}

fn latency_latest(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let all = cx.shared.latencies.all();
    cx.out.array(all.len());
    for (kind, series) in all {
        let Sample { at_s, took_ms } = series.samples.back().copied().unwrap_or(Sample { at_s: 0, took_ms: 0 });
        cx.out.array(4);
        cx.out.bulk(kind);
        [at_s, took_ms, series.longest_ms].into_iter().for_each(|number| cx.out.count(number));
    }
    Ok(())
}

/// Returns the samples of events of this kind.
fn series(cx: &Context<'_, '_>, kind: &[u8]) -> Option<Series> {
    let all = cx.shared.latencies.all();
    all.into_iter().find(|(name, _)| name.as_bytes() == kind).map(|(_, series)| series)
}

fn latency_histogram(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_asked = |name: &str| {
        let of = |word: &[u8]| {
            let is_container = || word.len() < name.len() && name.as_bytes().get(word.len()) == Some(&b'|');
            let begins = name.as_bytes().get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
            begins && (word.len() == name.len() || is_container())
        };
        arguments.len() == 2 || arguments.from(2).iter().any(|word| of(word))
    };
    let all = cx.registry.counted(cx.shared).into_iter().filter(|(name, _)| is_asked(name));
    let called: Vec<_> =
        all.map(|(name, counted)| (name, counted.up_to())).filter(|(_, up_to)| !up_to.is_empty()).collect();
    cx.out.map(called.len());
    for (name, up_to) in called {
        cx.out.bulk(name);
        cx.out.map(2);
        cx.out.bulk("calls");
        cx.out.count(up_to.last().map_or(0, |(_, calls)| *calls));
        cx.out.bulk("histogram_usec");
        cx.out.map(up_to.len());
        for (bound, calls) in up_to {
            cx.out.count(bound / 1000);
            cx.out.count(calls);
        }
    }
    Ok(())
}

fn latency_help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DOCTOR, GRAPH <event>, HISTOGRAM [<name> ...], HISTORY <event>, LATEST, RESET [<event> ...]",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn latency_doctor(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    use std::fmt::Write;
    let mut text = String::new();
    if cx.shared.config.latency_ms() == 0 {
        text.push_str("Nothing is watched: CONFIG SET latency-monitor-threshold MILLISECONDS says from when on events are noted.\n");
    }
    for (kind, Series { samples, longest_ms }) in cx.shared.latencies.all() {
        let sum: u64 = samples.iter().map(|sample| sample.took_ms).sum();
        let mean = sum.checked_div(samples.len() as u64).unwrap_or(0);
        let _ = writeln!(
            text,
            "{kind}: {} seconds with such events, {mean} ms in the mean, {longest_ms} ms at most.",
            samples.len()
        );
    }
    text.push_str("SLOWLOG GET returns the commands that took long, LATENCY HISTOGRAM how long each command takes, and the page for operators \
                   says whether writers are stalled.\n");
    cx.out.verbatim(&text);
    Ok(())
}

/// Draws a column for each sample: its duration relative to the longest, in quarters.
fn latency_graph(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(Series { samples, longest_ms }) = series(cx, arguments.at(2)) else {
        let event = crate::text::shown::short(arguments.at(2), 128);
        return Err(Failure::new(format!("ERR No samples available for event '{event}'")));
    };
    let least = samples.iter().map(|sample| sample.took_ms).min().unwrap_or(0);
    let kind = String::from_utf8_lossy(arguments.at(2));
    let mut text = format!("{kind} - high {longest_ms} ms, low {least} ms (all time high {longest_ms} ms)\n");
    text.push_str(&"-".repeat(80));
    text.push('\n');
    for height in (0..4u64).rev() {
        let drawn = |sample: &Sample| sample.took_ms.saturating_mul(4) > height.saturating_mul(longest_ms);
        text.extend(samples.iter().map(|sample| if drawn(sample) { '#' } else { ' ' }));
        text.push('\n');
    }
    cx.out.verbatim(&text);
    Ok(())
}

fn latency_reset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let kinds = arguments.from(2);
    let count = cx.shared.latencies.reset((!kinds.is_empty()).then_some(kinds));
    cx.out.count(count);
    Ok(())
}

fn monitor(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    if cx.session.is_in_transaction {
        return Err(Failure::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    cx.shared.monitors.add(Arc::clone(&cx.session.client));
    cx.session.client.describe(|described| described.is_monitor = true);
    cx.out.ok();
    Ok(())
}

fn slow_get(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = match arguments.len() {
        2 => 10,
        3 => {
            let count = integer(arguments.at(2)).ok().filter(|&count| count >= -1);
            count.ok_or(Failure::text("ERR count should be greater than or equal to -1"))?
        }
        _ => return Err(unknown_form(arguments)),
    };
    let entries = cx.shared.slow_log.latest(usize::try_from(count).unwrap_or(usize::MAX));
    cx.out.array(entries.len());
    for entry in entries {
        cx.out.array(6);
        cx.out.integer(entry.id);
        cx.out.count(entry.at_s);
        cx.out.count(entry.took_us);
        cx.out.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| cx.out.bulk(argument));
        cx.out.bulk(entry.address);
        cx.out.bulk(entry.name);
    }
    Ok(())
}

fn slow_len(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let length = cx.shared.slow_log.len();
    cx.out.count(length);
    Ok(())
}

fn slow_reset(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.shared.slow_log.clear();
    cx.out.ok();
    Ok(())
}

fn slow_help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET [<count>], LEN, RESET",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}
