//! What the server is doing: `SLOWLOG`, `LATENCY`, `MONITOR`.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, container, unknown_form};
use crate::keyspace::failure::{Failure, Outcome};
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
                .doc("2.8.13", "Returns a graph of an event's latencies, of which there are none."),
            Command::alone(FAMILY, "latency|help", 2, LOADING | STALE, latency_help).doc("2.8.13", "Returns help."),
            Command::alone(FAMILY, "latency|histogram", -2, CONTROL | NOSCRIPT, latency_histogram)
                .doc("7.0.0", "Returns distributions of latencies, of which there are none."),
            Command::alone(FAMILY, "latency|history", 3, CONTROL | NOSCRIPT, nothing)
                .doc("2.8.13", "Returns latencies of an event, of which there are none."),
            Command::alone(FAMILY, "latency|latest", 2, CONTROL | NOSCRIPT, nothing)
                .doc("2.8.13", "Returns the latest latencies, of which there are none."),
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

fn nothing(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.array(0);
    Ok(())
}

fn latency_histogram(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.map(0);
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
    cx.out.verbatim("No latencies of events are kept. SLOWLOG GET returns the commands that took long.\n");
    Ok(())
}

fn latency_graph(_: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let event = crate::text::shown::short(arguments.at(2), 128);
    Err(Failure::new(format!("ERR No samples available for event '{event}'")))
}

fn latency_reset(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.integer(0);
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
