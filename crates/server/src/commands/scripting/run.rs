//! What runs scripts and functions.

use crate::commands::arguments::Arguments;
use crate::commands::command::Context;
use crate::commands::scripting::calls::{self, Caller};
use crate::commands::scripting::replies;
use crate::keyspace::failure::{Failure, Outcome};
use crate::script::machine::{Callee, End, Machine};
use crate::script::progress::{Begun, Kind, Running};
use bytes::Bytes;
use forebay_env::Nanos;
use forebay_env::sync::MutexGuard;
use mlua::MultiValue;
use std::cell::RefCell;

/// The failure when Lua itself failed, and not a script.
pub(super) fn of_machine(error: &mlua::Error) -> Failure {
    Failure::new(format!("ERR Lua: {error}"))
}

/// Runs something with the machine. The keys are locked, so nobody else has the machine for long.
pub(super) fn with_machine<T>(
    cx: &mut Context<'_, '_>,
    act: impl FnOnce(&mut Context<'_, '_>, &mut Machine) -> Outcome<T>,
) -> Outcome<T> {
    let held = cx.shared.scripts.machine();
    with_held(cx, held, act)
}

/// Runs something with the machine, which is held.
pub(super) fn with_held<T>(
    cx: &mut Context<'_, '_>,
    mut held: MutexGuard<'_, Option<Machine>>,
    act: impl FnOnce(&mut Context<'_, '_>, &mut Machine) -> Outcome<T>,
) -> Outcome<T> {
    let machine = match &mut *held {
        Some(machine) => machine,
        none => none.insert(Machine::new(&cx.shared.scripts.progress).map_err(|error| of_machine(&error))?),
    };
    act(cx, machine)
}

/// The keys and the arguments of a request, whose number is at place 2.
pub(super) type Parts<'a> = (&'a [&'a [u8]], &'a [&'a [u8]]);

/// Splits a request that has this number of keys.
pub(super) fn parts(arguments: Arguments<'_>, count: i64) -> Outcome<Parts<'_>> {
    if count > arguments.len() as i64 - 3 {
        return Err(Failure::text("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Failure::text("ERR Number of keys can't be negative"))?;
    Ok((arguments.range(3, 3 + count), arguments.from(3 + count)))
}

/// Records that a script or a function begins to run. Without a threshold, which is zero then, it is never busy.
pub(super) fn begin<'s>(
    cx: &Context<'_, 's>,
    arguments: Arguments<'_>,
    kind: Kind,
    name: &str,
    ends_when_busy: bool,
) -> Begun<'s> {
    let began_at = cx.shared.clock.now();
    let patience_ms = u64::try_from(cx.shared.config.number("busy-reply-threshold")).unwrap_or(0);
    let busy_at = match patience_ms {
        0 => Nanos::MAX,
        _ => began_at.saturating_add(patience_ms.saturating_mul(1_000_000)),
    };
    let request = arguments.from(0).iter().map(|word| Bytes::copy_from_slice(word)).collect();
    let name = name.to_owned();
    cx.shared.scripts.progress.begin(Running { kind, name, request, began_at, busy_at, ends_when_busy })
}

/// Ends what is running, if it is of one of these kinds.
pub(super) fn kill(cx: &mut Context<'_, '_>, kinds: &[Kind]) -> Outcome {
    cx.shared.scripts.progress.kill(kinds).map_err(|other| match other {
        None => Failure::text("NOTBUSY No scripts in execution right now."),
        Some(other) => Failure::text(other.busy()),
    })?;
    cx.out.ok();
    Ok(())
}

/// Runs a script or a function for a request.
pub(super) fn carry_out(
    cx: &mut Context<'_, '_>,
    machine: &Machine,
    callee: &Callee,
    arguments: Arguments<'_>,
    parts: Parts<'_>,
    is_read_only: bool,
) -> Outcome {
    let no_writes = callee.flags().is_some_and(|flags| flags.no_writes());
    if is_read_only && callee.flags().is_some() && !no_writes {
        return Err(Failure::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    let shared = cx.shared;
    let (name, chunk) = (callee.name(), callee.chunk());
    let kind = match callee {
        Callee::Script(_) => Kind::Script,
        Callee::Function(..) => Kind::Function,
    };
    let _running = begin(cx, arguments, kind, name, cx.session.is_in_transaction);
    let caller = RefCell::new(Caller::new(cx, is_read_only || no_writes));
    let end = machine.lua().scope(|scope| {
        let call = scope.create_function(|lua, words: MultiValue| caller.borrow_mut().call(lua, &words))?;
        let protected =
            scope.create_function(|lua, words: MultiValue| caller.borrow_mut().call_protected(lua, &words))?;
        let set_protocol =
            scope.create_function(|_, version: Option<i64>| caller.borrow_mut().set_protocol(version))?;
        let may_call = scope.create_function(|_, words: MultiValue| caller.borrow().may_call(&words))?;
        let redis = calls::table(machine.lua())?;
        redis.set("call", call)?;
        redis.set("pcall", protected)?;
        redis.set("setresp", set_protocol)?;
        redis.set("acl_check_cmd", may_call)?;
        machine.run(callee, redis, parts.0, parts.1)
    });
    let (protocol, fatal) = caller.into_inner().finish();
    if let Some(failure) = fatal {
        return Err(failure);
    }
    let goes_on = || match shared.scripts.progress.ending() {
        Some(why) => Err(Failure::of_run(format!("ERR {why} script: {name}, on {chunk}"))),
        None => Ok(()),
    };
    goes_on()?;
    match end.map_err(|error| of_machine(&error))? {
        End::Returned(value) => replies::write(&value, protocol, cx.out, &goes_on),
        End::Raised { text, place } => {
            let place = place.map(|(source, line)| format!(", on {source}:{line}.")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            Err(Failure::new(format!("{text} script: {name}{place}")))
        }
    }
}
