//! Commands about the connection itself, except `CLIENT`.

use crate::acl::users::DEFAULT;
use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ALLOW_BUSY, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, Flow, Run};
use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::Protocol;
use crate::text::number;
use bytes::Bytes;
use std::sync::Arc;

/// The version of Redis whose commands these are.
pub const REDIS_VERSION: &str = "7.0.15";

const EARLY: u32 = NOSCRIPT | LOADING | STALE | FAST;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(Family::Connection, "auth", -2, EARLY | NO_AUTH | ALLOW_BUSY, auth)
        .doc("1.0.0", "Authenticates the connection."),
    Command::new(Family::Connection, "echo", 2, LOADING | STALE | FAST, echo).doc("1.0.0", "Returns the given string."),
    Command::alone(Family::Connection, "hello", -1, EARLY | NO_AUTH | ALLOW_BUSY, hello)
        .doc("6.0.0", "Handshakes with the server: version of the protocol, authentication, name."),
    Command::new(Family::Connection, "ping", -1, FAST, ping).doc("1.0.0", "Returns PONG or the given string."),
    Command::with(Family::Connection, "quit", -1, EARLY | NO_AUTH | ALLOW_BUSY, Run::Flow(Flow::Quit))
        .doc("1.0.0", "Closes the connection."),
    Command::with(Family::Connection, "reset", 1, EARLY | NO_AUTH | ALLOW_BUSY, Run::Flow(Flow::Reset))
        .doc("6.2.0", "Resets the connection."),
    Command::alone(Family::Connection, "select", 2, LOADING | STALE | FAST, select)
        .doc("1.0.0", "Changes the database of the connection."),
];

fn ping(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_subscriber = cx.out.protocol() == Protocol::Two && !cx.session.subscriptions.is_empty();
    match arguments.len() {
        1 | 2 if is_subscriber => {
            cx.out.array(2);
            cx.out.bulk("pong");
            cx.out.bulk(arguments.at(1));
        }
        1 => cx.out.simple("PONG"),
        2 => cx.out.bulk(arguments.at(1)),
        _ => return Err(Failure::text("ERR wrong number of arguments for 'ping' command")),
    }
    Ok(())
}

fn echo(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    cx.out.bulk(arguments.at(1));
    Ok(())
}

fn select(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let database = cx.database(arguments.at(1))?;
    cx.session.database = database;
    // What a script selects ends with the script.
    if !cx.session.is_in_script {
        cx.session.client.describe(|described| described.database = database);
    }
    cx.out.ok();
    Ok(())
}

fn auth(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (user, password) = match arguments.len() {
        2 if cx.shared.users.default().rules().has_no_password => {
            return Err(Failure::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => (DEFAULT, arguments.at(1)),
        3 => (arguments.at(1), arguments.at(2)),
        _ => return Err(Failure::SYNTAX),
    };
    authenticate(cx, user, password, arguments.at(0))?;
    cx.out.ok();
    Ok(())
}

fn authenticate(cx: &mut Context<'_, '_>, name: &[u8], password: &[u8], command: &[u8]) -> Outcome {
    let Some(user) = cx.shared.users.authenticate(name, password) else {
        let name = Bytes::copy_from_slice(name);
        let context = if cx.session.is_in_transaction { "multi" } else { "toplevel" };
        cx.shared.deny(cx.shared.denial(&cx.session.client, "auth", context, command, name));
        return Err(Failure::text("WRONGPASS invalid username-password pair or user is disabled."));
    };
    cx.session.log_in(Some(Arc::clone(&user)));
    // Who deletes a user then ends its connections, and may have looked for them before this was one.
    if !cx.shared.users.has(&user) {
        cx.session.is_closing = true;
    }
    Ok(())
}

fn hello(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut words = arguments.words(1);
    let protocol = match words.word() {
        None => None,
        Some(version) => match number::integer(version) {
            None => return Err(Failure::text("ERR Protocol version is not an integer or out of range")),
            Some(2) => Some(Protocol::Two),
            Some(3) => Some(Protocol::Three),
            Some(_) => return Err(Failure::text("NOPROTO unsupported protocol version")),
        },
    };
    // Each option takes effect before the next one is read, as in Redis.
    while !words.is_done() {
        let place = words.place();
        if let Some([user, password]) = words.take_with_values("AUTH") {
            authenticate(cx, user, password, b"HELLO")?;
        } else if let Some(name) = words.take_with_value("SETNAME") {
            check_name(name)?;
            cx.session.client.describe(|described| described.name = Bytes::copy_from_slice(name));
        } else {
            let option = crate::text::shown::short(arguments.at(place), 128);
            return Err(Failure::new(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if cx.session.user.is_none() {
        return Err(Failure::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time",
        ));
    }
    if let Some(protocol) = protocol {
        cx.out.set_protocol(protocol);
    }
    let version = if cx.out.protocol() == Protocol::Three { 3 } else { 2 };
    cx.session.client.describe(|described| described.protocol = version);
    cx.out.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        cx.out.bulk(name);
        cx.out.bulk(value);
    }
    cx.out.bulk("proto");
    cx.out.integer(i64::from(version));
    cx.out.bulk("id");
    cx.out.count(cx.session.client.id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        cx.out.bulk(name);
        cx.out.bulk(value);
    }
    cx.out.bulk("modules");
    cx.out.array(0);
    Ok(())
}

/// Checks a client's name, which appears in lines of text.
pub(crate) fn check_name(name: &[u8]) -> Outcome {
    if name.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Ok(());
    }
    Err(Failure::text("ERR Client names cannot contain spaces, newlines or special characters."))
}
