//! `CLIENT`: who is connected, and what a connection says about itself.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, unknown_form};
use crate::commands::connection::check_name;
use crate::commands::tracking;
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::clients::Client;
use crate::state::session::Replies;
use crate::state::waiting::{Early, NoClaim};
use crate::text::number;
use bytes::Bytes;
use std::sync::Arc;

const SEEN: u32 = NOSCRIPT | LOADING | STALE;
const FAMILY: Family = Family::Connection;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::alone(FAMILY, "client", -2, 0, help)
    .doc("2.4.0", "A container for client connection commands.")
    .subcommands(&[
        Command::alone(FAMILY, "client|caching", 3, SEEN, tracking::caching)
            .doc("6.0.0", "Says whether the keys that the next command reads are tracked."),
        Command::alone(FAMILY, "client|getname", 2, SEEN, get_name).doc("2.6.9", "Returns the name of the connection."),
        Command::alone(FAMILY, "client|getredir", 2, SEEN, tracking::get_redirection)
            .doc("6.0.0", "Returns the client that gets the connection's invalidations."),
        Command::alone(FAMILY, "client|help", 2, LOADING | STALE, help).doc("5.0.0", "Returns help."),
        Command::alone(FAMILY, "client|id", 2, SEEN, id).doc("5.0.0", "Returns the number of the client."),
        Command::alone(FAMILY, "client|info", 2, SEEN, info)
            .doc("6.2.0", "Returns what is known about the connection."),
        Command::alone(FAMILY, "client|kill", -3, ADMIN | SEEN, kill).doc("2.4.0", "Ends connections."),
        Command::alone(FAMILY, "client|list", -2, ADMIN | SEEN, list).doc("2.4.0", "Lists connections."),
        Command::alone(FAMILY, "client|no-evict", 3, ADMIN | SEEN, no_evict)
            .doc("7.0.0", "Keeps the connection when memory is short."),
        Command::alone(FAMILY, "client|pause", -3, ADMIN | SEEN, pause)
            .doc("2.9.50", "Makes commands wait for some time."),
        Command::alone(FAMILY, "client|reply", 3, SEEN, reply).doc("3.2.0", "Says which replies the connection wants."),
        Command::alone(FAMILY, "client|setname", 3, SEEN, set_name).doc("2.6.9", "Names the connection."),
        Command::alone(FAMILY, "client|tracking", -3, SEEN, tracking::tracking)
            .doc("6.0.0", "Has the connection be told when keys change that it has read, or that have its prefixes."),
        Command::alone(FAMILY, "client|trackinginfo", 2, SEEN, tracking::info)
            .doc("6.2.0", "Returns how the connection tracks keys."),
        Command::alone(FAMILY, "client|unblock", -3, ADMIN | SEEN, unblock)
            .doc("5.0.0", "Lets a client go on that waits in a command."),
        Command::alone(FAMILY, "client|unpause", 2, ADMIN | SEEN, unpause)
            .doc("6.2.0", "Lets commands go on that wait."),
    ])];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CACHING (YES|NO), GETNAME, GETREDIR, ID, INFO, KILL <option> ..., LIST [options ...], NO-EVICT (ON|OFF), PAUSE <timeout> [WRITE|ALL], REPLY (ON|OFF|SKIP), SETNAME <name>, TRACKING (ON|OFF) [options ...], TRACKINGINFO, UNPAUSE",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn get_name(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let name = cx.session.client.described().name;
    cx.out.bulk_or_null((!name.is_empty()).then_some(name));
    Ok(())
}

fn set_name(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let name = arguments.at(2);
    check_name(name)?;
    cx.session.client.describe(|described| described.name = Bytes::copy_from_slice(name));
    cx.out.ok();
    Ok(())
}

fn id(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.count(cx.session.client.id);
    Ok(())
}

fn line(cx: &Context<'_, '_>, client: &Client) -> String {
    let mut line = client.line(cx.keys.now_ms());
    line.push('\n');
    line
}

fn info(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let line = line(cx, &cx.session.client);
    cx.out.verbatim(&line);
    Ok(())
}

fn list(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut clients = cx.shared.clients.all();
    let mut words = arguments.words(2);
    if arguments.len() == 4 && words.take("TYPE") {
        let kind = kind_of(arguments.at(3))?;
        words.skip(1);
        clients.retain(|client| client.kind() == kind);
    } else if words.left() > 1 && words.take("ID") {
        let mut wanted = Vec::new();
        while let Some(id) = words.word() {
            let id = number::integer(id).ok_or(Failure::text("ERR Invalid client ID"))?;
            wanted.extend(u64::try_from(id));
        }
        clients.retain(|client| wanted.contains(&client.id));
    }
    if !words.is_done() {
        return Err(Failure::SYNTAX);
    }
    let lines: String = clients.iter().map(|client| line(cx, client)).collect();
    cx.out.verbatim(&lines);
    Ok(())
}

fn kind_of(text: &[u8]) -> Outcome<&'static str> {
    let known = ["normal", "pubsub", "master", "replica"];
    let text = if text.eq_ignore_ascii_case(b"slave") { b"replica" } else { text };
    let kind = known.into_iter().find(|kind| text.eq_ignore_ascii_case(kind.as_bytes()));
    kind.ok_or_else(|| Failure::new(format!("ERR Unknown client type '{}'", crate::text::shown::short(text, 128))))
}

fn kill(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() == 3 {
        let address = arguments.at(2);
        let found = cx.shared.clients.all().into_iter().find(|client| client.address.to_string().as_bytes() == address);
        let client = found.ok_or(Failure::text("ERR No such client"))?;
        end(cx, &client);
        cx.out.ok();
        return Ok(());
    }
    let mut clients = cx.shared.clients.all();
    let (mut words, mut skips_me) = (arguments.words(2), true);
    while !words.is_done() {
        if let Some(id) = words.take_with_value("ID") {
            let id = number::integer(id).filter(|&id| id > 0).map(i64::unsigned_abs);
            let id = id.ok_or(Failure::text("ERR client-id should be greater than 0"))?;
            clients.retain(|client| client.id == id);
        } else if let Some(kind) = words.take_with_value("TYPE") {
            let kind = kind_of(kind)?;
            clients.retain(|client| client.kind() == kind);
        } else if let Some(address) = words.take_with_value("ADDR") {
            clients.retain(|client| client.address.to_string().as_bytes() == address);
        } else if let Some(address) = words.take_with_value("LADDR") {
            clients.retain(|client| client.local.to_string().as_bytes() == address);
        } else if let Some(user) = words.take_with_value("USER") {
            if cx.shared.users.find(user).is_none() {
                let user = crate::text::shown::short(user, 128);
                return Err(Failure::new(format!("ERR No such user '{user}'")));
            }
            clients.retain(|client| client.described().user == user);
        } else if let Some(answer) = words.take_with_value("SKIPME") {
            skips_me = match answer {
                _ if answer.eq_ignore_ascii_case(b"yes") => true,
                _ if answer.eq_ignore_ascii_case(b"no") => false,
                _ => return Err(Failure::SYNTAX),
            };
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    clients.retain(|client| !skips_me || client.id != cx.session.client.id);
    clients.iter().for_each(|client| end(cx, client));
    cx.out.count(clients.len());
    Ok(())
}

fn end(cx: &mut Context<'_, '_>, client: &Arc<Client>) {
    if client.id == cx.session.client.id {
        cx.session.is_closing = true;
    } else {
        cx.shared.end(client);
    }
}

fn no_evict(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_on = match () {
        () if arguments.is(2, "ON") => true,
        () if arguments.is(2, "OFF") => false,
        () => return Err(Failure::SYNTAX),
    };
    cx.session.client.describe(|described| described.is_kept = is_on);
    cx.out.ok();
    Ok(())
}

fn unblock(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let early = match arguments.len() {
        3 => Early::TimeOut,
        4 if arguments.is(3, "TIMEOUT") => Early::TimeOut,
        4 if arguments.is(3, "ERROR") => Early::Error,
        5.. => return Err(unknown_form(arguments)),
        _ => return Err(Failure::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = arguments.integer(2)?;
    let waiter = u64::try_from(id).ok().and_then(|id| cx.shared.waiting.of_client(id));
    let is_unblocked = waiter.is_some_and(|waiter| {
        waiter.ask(early);
        // A thread that carries the command out now looks at this when it is done.
        cx.shared.end_early(&waiter, cx.counters) != Err(NoClaim::Ended)
    });
    cx.out.integer(i64::from(is_unblocked));
    Ok(())
}

fn pause(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_of_all = match arguments.len() {
        3 => true,
        4 if arguments.is(3, "ALL") => true,
        4 if arguments.is(3, "WRITE") => false,
        4 => return Err(Failure::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(Failure::SYNTAX),
    };
    let timeout_ms = number::integer(arguments.at(2));
    let timeout_ms = timeout_ms.ok_or(Failure::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Failure::text("ERR timeout is negative"))?;
    let now = cx.shared.clock.now();
    cx.shared.pause.begin(now, now.saturating_add(timeout_ms.saturating_mul(1_000_000)), is_of_all);
    cx.out.ok();
    Ok(())
}

fn unpause(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.shared.pause.end();
    cx.out.ok();
    Ok(())
}

fn reply(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    match () {
        () if arguments.is(2, "ON") => {
            cx.session.replies = Replies::On;
            cx.out.ok();
        }
        () if arguments.is(2, "OFF") => cx.session.replies = Replies::Off,
        () if arguments.is(2, "SKIP") => {
            if cx.session.replies != Replies::Off {
                cx.session.replies = Replies::SkipNext;
            }
        }
        () => return Err(Failure::SYNTAX),
    }
    Ok(())
}
