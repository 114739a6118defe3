//! Commands about the server: parameters, figures, whole databases.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ADMIN, ALLOW_BUSY, FAST, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE, WRITE};
use crate::commands::command::{Command, Context, Family, Run, container};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::DATABASES;
use crate::keyspace::transaction::Name;
use crate::state::config::{NO_TLS_TO_OTHERS, TLS_CLUSTER};
use crate::state::watches::Doomed;

const FAMILY: Family = Family::Server;
/// How many watched keys are looked for together.
const LOOKED_FOR: usize = 256;
const CONTROL: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(FAMILY, "config", -2, 0, container)
        .doc("2.0.0", "A container for server configuration commands.")
        .subcommands(&[
            Command::alone(FAMILY, "config|get", -3, CONTROL, config_get).doc("2.0.0", "Returns parameters."),
            Command::alone(FAMILY, "config|help", 2, LOADING | STALE, config_help).doc("5.0.0", "Returns help."),
            Command::alone(FAMILY, "config|resetstat", 2, CONTROL, config_reset).doc("2.0.0", "Resets counts."),
            Command::alone(FAMILY, "config|rewrite", 2, CONTROL, config_rewrite)
                .doc("2.8.0", "Has the configuration file say what was changed."),
            Command::alone(FAMILY, "config|set", -4, CONTROL, config_set).doc("2.0.0", "Changes parameters."),
        ]),
    Command::new(FAMILY, "dbsize", 1, READONLY | FAST, dbsize).doc("1.0.0", "Returns the number of keys."),
    Command::with(FAMILY, "flushall", -1, WRITE, Run::Exclusive(flushall))
        .doc("1.0.0", "Removes all keys of all databases."),
    Command::with(FAMILY, "flushdb", -1, WRITE, Run::Exclusive(flushdb))
        .doc("1.0.0", "Removes all keys of the database."),
    Command::alone(FAMILY, "role", 1, NOSCRIPT | LOADING | STALE | FAST, role).doc("2.8.12", "Returns the role."),
    Command::alone(FAMILY, "shutdown", -1, CONTROL | ALLOW_BUSY | NO_MULTI, shutdown).doc("1.0.0", "Ends the server."),
    Command::with(FAMILY, "swapdb", 3, WRITE | FAST, Run::Exclusive(swapdb)).doc("4.0.0", "Exchanges two databases."),
    Command::new(FAMILY, "time", 1, LOADING | STALE | FAST, time).doc("2.6.0", "Returns the server's time."),
];

fn config_help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET <pattern> ..., RESETSTAT, REWRITE, SET <name> <value> ...",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn config_get(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut found = Vec::new();
    for pattern in arguments.from(2) {
        found.extend(cx.shared.config.matching(pattern));
    }
    found.sort_unstable();
    found.dedup();
    cx.out.map(found.len());
    for (name, value) in found {
        cx.out.bulk(name);
        cx.out.bulk(value);
    }
    Ok(())
}

fn config_set(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (pairs, rest) = arguments.from(2).as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::SYNTAX);
    }
    let changes: Vec<(&[u8], &[u8])> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    let wants_tls = |(name, value): &(&[u8], &[u8])| {
        name.eq_ignore_ascii_case(TLS_CLUSTER.as_bytes()) && value.eq_ignore_ascii_case(b"yes")
    };
    if changes.iter().any(wants_tls) && cx.shared.tls_to_others().is_none() {
        let about = format!("CONFIG SET failed (possibly related to argument '{TLS_CLUSTER}')");
        return Err(Failure::new(format!("ERR {about} - {NO_TLS_TO_OTHERS}")));
    }
    cx.shared.config.set(&changes).map_err(|why| Failure::new(format!("ERR {why}")))?;
    for (_, password) in changes.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"requirepass")) {
        cx.shared.users.set_default_password(password);
    }
    cx.out.ok();
    Ok(())
}

fn config_rewrite(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.shared.config.rewrite().map_err(|why| Failure::new(format!("ERR {why}")))?;
    cx.out.ok();
    Ok(())
}

fn config_reset(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.shared.counts.reset();
    cx.out.ok();
    Ok(())
}

fn dbsize(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let size = cx.keys.size(cx.space());
    cx.out.integer(size);
    Ok(())
}

fn check_flush(arguments: Arguments<'_>) -> Outcome {
    match arguments.len() {
        1 => Ok(()),
        2 if arguments.is(1, "SYNC") || arguments.is(1, "ASYNC") => Ok(()),
        _ => Err(Failure::SYNTAX),
    }
}

/// Reports the change of all watched keys in these databases, whose keys are all about to go.
fn change_watched(cx: &mut Context<'_, '_>, databases: &[usize]) -> Outcome {
    if cx.shared.watches.is_empty() {
        return Ok(());
    }
    let watches = &cx.shared.watches;
    let mut names = watches.names().into_iter().filter(|(database, _)| databases.contains(database));
    let mut doomed = Doomed::default();
    loop {
        // A client may watch many keys. Once one of them breaks the client's mark, the others need not be looked for.
        let some: Vec<Name> = names.by_ref().filter(|name| watches.is_whole(name, &doomed)).take(LOOKED_FOR).collect();
        if some.is_empty() {
            return Ok(());
        }
        // An exchange changes keys that are in either database.
        let exchanged = if databases.len() == 2 { databases } else { &[] };
        let mut places = Vec::new();
        for (number, (own, key)) in some.iter().enumerate() {
            let databases = if exchanged.is_empty() { std::slice::from_ref(own) } else { exchanged };
            places.extend(databases.iter().map(|database| (number, (cx.space_of(*database), &key[..]))));
        }
        let are_there = cx.keys.are_there(places.iter().map(|(_, place)| *place))?;
        let there = places.iter().zip(are_there).filter(|(_, is_there)| *is_there);
        let changed: Vec<Name> = there.filter_map(|((number, _), _)| some.get(*number).cloned()).collect();
        changed.iter().for_each(|name| watches.doom(name, &mut doomed));
        cx.keys.change_watched(changed);
    }
}

fn flushdb(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    check_flush(arguments)?;
    let space = cx.space();
    let database = cx.session.database;
    change_watched(cx, &[database])?;
    cx.keys.clear(space);
    cx.keys.touch_all();
    cx.out.ok();
    Ok(())
}

fn flushall(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    check_flush(arguments)?;
    let all: Vec<usize> = (0..DATABASES).collect();
    change_watched(cx, &all)?;
    for space in *cx.keys.databases() {
        cx.keys.clear(space);
    }
    cx.keys.touch_all();
    cx.out.ok();
    Ok(())
}

fn swapdb(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let number = |place: usize, name: &str| {
        let number = arguments.integer(place).ok().filter(|number| i32::try_from(*number).is_ok());
        number.ok_or_else(|| Failure::new(format!("ERR invalid {name} DB index")))
    };
    let (a, b) = (number(1, "first")?, number(2, "second")?);
    let database = |number: i64| usize::try_from(number).ok().filter(|&number| number < DATABASES);
    let (Some(a), Some(b)) = (database(a), database(b)) else {
        return Err(Failure::text("ERR DB index is out of range"));
    };
    if a != b {
        change_watched(cx, &[a, b])?;
        cx.keys.swap(a, b);
    }
    cx.out.ok();
    Ok(())
}

fn time(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let now_ms = cx.keys.now_ms();
    // The clock counts milliseconds.
    let parts = [now_ms / 1000, now_ms % 1000 * 1000];
    cx.out.array(2);
    parts.into_iter().for_each(|part| cx.out.bulk(part.to_string()));
    Ok(())
}

/// Ends the server. There is nothing to save, so nothing is lost with or without saving. But only `NOSAVE` may end a
/// busy script.
fn shutdown(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let known = ["NOSAVE", "SAVE", "NOW", "FORCE", "ABORT"];
    if !(1..arguments.len()).all(|place| known.iter().any(|word| arguments.is(place, word))) {
        return Err(Failure::SYNTAX);
    }
    let is_said = |word| (1..arguments.len()).any(|place| arguments.is(place, word));
    if (is_said("NOSAVE") && is_said("SAVE"))
        || (is_said("ABORT") && !arguments.from(1).iter().all(|word| word.eq_ignore_ascii_case(b"ABORT")))
    {
        return Err(Failure::SYNTAX);
    }
    if is_said("ABORT") {
        return Err(Failure::text("ERR No shutdown in progress."));
    }
    if let Some(busy) = cx.shared.scripts.progress.busy().filter(|_| !is_said("NOSAVE")) {
        return Err(Failure::text(busy.busy()));
    }
    tracing::info!(client = cx.session.client.id, "a client asked the server to stop");
    cx.session.is_closing = true;
    cx.shared.stop();
    Ok(())
}

fn role(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.array(3);
    cx.out.bulk("master");
    cx.out.integer(0);
    cx.out.array(0);
    Ok(())
}
