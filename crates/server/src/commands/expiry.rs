//! When keys expire.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::expire_time::{self, EX, EXAT, PX, PXAT, Unit};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Header;

const FAMILY: Family = Family::Generic;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "expire", -3, WRITE | FAST, expire)
        .keys(1, 1, 1)
        .doc("1.0.0", "Makes a key expire after seconds."),
    Command::new(FAMILY, "expireat", -3, WRITE | FAST, expireat)
        .keys(1, 1, 1)
        .doc("1.2.0", "Makes a key expire at a time, in seconds."),
    Command::new(FAMILY, "expiretime", 2, READONLY | FAST, expiretime)
        .keys(1, 1, 1)
        .doc("7.0.0", "Returns when a key expires, in seconds."),
    Command::new(FAMILY, "persist", 2, WRITE | FAST, persist).keys(1, 1, 1).doc("2.2.0", "Makes a key stay."),
    Command::new(FAMILY, "pexpire", -3, WRITE | FAST, pexpire)
        .keys(1, 1, 1)
        .doc("2.6.0", "Makes a key expire after milliseconds."),
    Command::new(FAMILY, "pexpireat", -3, WRITE | FAST, pexpireat)
        .keys(1, 1, 1)
        .doc("2.6.0", "Makes a key expire at a time, in milliseconds."),
    Command::new(FAMILY, "pexpiretime", 2, READONLY | FAST, pexpiretime)
        .keys(1, 1, 1)
        .doc("7.0.0", "Returns when a key expires, in milliseconds."),
    Command::new(FAMILY, "pttl", 2, READONLY | FAST, pttl)
        .keys(1, 1, 1)
        .doc("2.6.0", "Returns how long a key stays, in milliseconds."),
    Command::new(FAMILY, "ttl", 2, READONLY | FAST, ttl)
        .keys(1, 1, 1)
        .doc("1.0.0", "Returns how long a key stays, in seconds."),
];

/// Conditions of the commands that make keys expire.
#[derive(Default)]
struct Conditions {
    if_stays: bool,
    if_expires: bool,
    if_later: bool,
    if_sooner: bool,
}

fn conditions(arguments: Arguments<'_>) -> Outcome<Conditions> {
    let mut conditions = Conditions::default();
    let mut words = arguments.words(3);
    while !words.is_done() {
        match () {
            () if words.take("NX") => conditions.if_stays = true,
            () if words.take("XX") => conditions.if_expires = true,
            () if words.take("GT") => conditions.if_later = true,
            () if words.take("LT") => conditions.if_sooner = true,
            () => {
                let option = crate::text::shown::short(words.word().unwrap_or_default(), 128);
                return Err(Failure::new(format!("ERR Unsupported option {option}")));
            }
        }
    }
    if conditions.if_stays && (conditions.if_expires || conditions.if_later || conditions.if_sooner) {
        return Err(Failure::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if conditions.if_later && conditions.if_sooner {
        return Err(Failure::text("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

fn change(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, unit: Unit, command: &str) -> Outcome {
    let key = arguments.at(1);
    let conditions = conditions(arguments)?;
    let moment_ms = expire_time::moment(cx, arguments.at(2), unit, command)?;
    let Some(header) = cx.header(key)? else {
        cx.out.integer(0);
        return Ok(());
    };
    // A key without an expiry counts as later than any other.
    let holds = match header.expires_ms.map(|expires| i64::try_from(expires).unwrap_or(i64::MAX)) {
        None => !conditions.if_expires && !conditions.if_later,
        Some(expires) => {
            !conditions.if_stays
                && (!conditions.if_later || moment_ms > expires)
                && (!conditions.if_sooner || moment_ms < expires)
        }
    };
    if holds {
        if u64::try_from(moment_ms).is_ok_and(|moment_ms| moment_ms > cx.keys.now_ms()) {
            let expires_ms = Some(expire_time::stored(moment_ms));
            cx.set_header(key, &Header { expires_ms, ..header })?;
            cx.notify(Class::GENERIC, "expire", key);
        } else {
            cx.remove(key)?;
            cx.notify(Class::GENERIC, "del", key);
        }
    }
    cx.out.integer(i64::from(holds));
    Ok(())
}

fn expire(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    change(cx, arguments, EX, "expire")
}

fn expireat(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    change(cx, arguments, EXAT, "expireat")
}

fn pexpire(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    change(cx, arguments, PX, "pexpire")
}

fn pexpireat(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    change(cx, arguments, PXAT, "pexpireat")
}

fn persist(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let header = cx.header(arguments.at(1))?.filter(|header| header.expires_ms.is_some());
    cx.out.integer(i64::from(header.is_some()));
    if let Some(header) = header {
        cx.set_header(arguments.at(1), &Header { expires_ms: None, ..header })?;
        cx.notify(Class::GENERIC, "persist", arguments.at(1));
    }
    Ok(())
}

/// Replies with what `show` makes of a key's expiry time; -1 when the key does not expire, -2 when it does not exist.
fn tell(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, show: fn(u64, u64) -> u64) -> Outcome {
    let now_ms = cx.keys.now_ms();
    let header = cx.header(arguments.at(1))?;
    match header.map(|header| header.expires_ms) {
        None => cx.out.integer(-2),
        Some(None) => cx.out.integer(-1),
        Some(Some(expires)) => cx.out.count(show(expires, now_ms)),
    }
    Ok(())
}

fn ttl(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    tell(cx, arguments, |expires, now| (expires.saturating_sub(now) + 500) / 1000)
}

fn pttl(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    tell(cx, arguments, u64::saturating_sub)
}

fn expiretime(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    tell(cx, arguments, |expires, _| (expires + 500) / 1000)
}

fn pexpiretime(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    tell(cx, arguments, |expires, _| expires)
}
