//! What a script may call: `redis.call` and its like.

use crate::commands::arguments::Arguments;
use crate::commands::command::{Context, Run, flags};
use crate::commands::scripting::replies;
use crate::commands::{monitored, permission};
use crate::keyspace::failure::Failure;
use crate::protocol::reply::{Protocol, Reply};
use crate::script::machine::{Raised, name_of};
use crate::script::text::MAX_MEMORY_BYTES;
use crate::state::session::Session;
use crate::text::number::double_text;
use crate::text::shown::up_to_zero;
use mlua::{BorrowedBytes, Error, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};
use std::ops::Deref;
use std::sync::Arc;

/// Levels of `redis.log`, by their numbers.
const LEVELS: [&str; 4] = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];

/// Carries out what a script calls, with the locked keys of the command that runs the script.
#[derive(Debug)]
pub(super) struct Caller<'c, 'a, 's> {
    cx: &'c mut Context<'a, 's>,
    session: Session,
    protocol: Protocol,
    is_read_only: bool,
    fatal: Option<Failure>,
}

impl<'c, 'a, 's> Caller<'c, 'a, 's> {
    /// Makes a caller for a script that this command's connection runs.
    pub(super) fn new(cx: &'c mut Context<'a, 's>, is_read_only: bool) -> Self {
        // What a script selects or says of itself ends with the script.
        let mut session = Session::new(Arc::clone(&cx.session.client), cx.session.user.clone());
        session.database = cx.session.database;
        session.tracked = cx.session.tracked;
        session.is_in_script = true;
        Self { cx, session, protocol: Protocol::Two, is_read_only, fatal: None }
    }

    /// Returns the protocol that the script chose, and why the store failed, if it did.
    pub(super) fn finish(self) -> (Protocol, Option<Failure>) {
        (self.protocol, self.fatal)
    }

    /// `redis.setresp`.
    pub(super) fn set_protocol(&mut self, version: Option<i64>) -> Result<()> {
        self.protocol = match version {
            Some(2) => Protocol::Two,
            Some(3) => Protocol::Three,
            Some(_) => return Err(Error::runtime("RESP version must be 2 or 3.")),
            None => return Err(Error::runtime("redis.setresp() requires one argument.")),
        };
        Ok(())
    }

    /// Whether the user may call this.
    pub(super) fn may_call(&self, values: &MultiValue) -> Result<bool> {
        let words = words(values).map_err(|why| Error::runtime(why.trim_start_matches("ERR ")))?;
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let arguments = Arguments::new(&words);
        let Some(command) = self.cx.registry.look_up(arguments) else {
            return Err(Error::runtime("Invalid command passed to redis.acl_check_cmd()"));
        };
        let user = self.session.user.as_ref();
        Ok(user.is_none_or(|user| permission::check(&self.cx.shared.users, user, command, arguments).is_ok()))
    }

    /// `redis.call`: the reply, or an error with the reply's text.
    pub(super) fn call(&mut self, lua: &Lua, values: &MultiValue) -> Result<Value> {
        let reply = self.reply(values)?;
        match reply.bytes().strip_prefix(b"-") {
            Some(text) => Err(Error::external(Raised(text.strip_suffix(b"\r\n").unwrap_or(text).to_vec()))),
            None => replies::read(lua, reply.bytes()),
        }
    }

    /// `redis.pcall`: the reply, even if it is an error.
    pub(super) fn call_protected(&mut self, lua: &Lua, values: &MultiValue) -> Result<Value> {
        let reply = self.reply(values)?;
        replies::read(lua, reply.bytes())
    }

    fn reply(&mut self, values: &MultiValue) -> Result<Reply> {
        let mut out = Reply::new(self.protocol);
        out.begin(self.cx.shared.max_reply_bytes);
        match self.carry_out(values, &mut out) {
            Ok(()) => {}
            Err(failure) if failure.is_of_store() => {
                let why = Error::runtime(failure.message());
                self.fatal = Some(failure);
                return Err(why);
            }
            Err(failure) => {
                out.truncate(0);
                out.error(failure.message());
            }
        }
        Ok(out)
    }

    fn carry_out(&mut self, values: &MultiValue, out: &mut Reply) -> std::result::Result<(), Failure> {
        if let Some(failure) = &self.fatal {
            return Err(failure.clone());
        }
        let words = words(values).map_err(Failure::text)?;
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let arguments = Arguments::new(&words);
        let command = self.cx.registry.resolve(arguments).map_err(|_| match self.cx.registry.look_up(arguments) {
            Some(_) => Failure::text("ERR Wrong number of args calling Redis command from script"),
            None => Failure::text("ERR Unknown Redis command called from script"),
        })?;
        if command.has(flags::NOSCRIPT) {
            return Err(Failure::text("ERR This Redis command is not allowed from script"));
        }
        let (Run::Together(handler) | Run::Alone(handler) | Run::Exclusive(handler) | Run::Steady(handler)) =
            command.run
        else {
            return Err(Failure::text("ERR This Redis command is not allowed from script"));
        };
        if let Some(user) = &self.session.user {
            permission::check(&self.cx.shared.users, user, command, arguments).map_err(|refusal| {
                let (shared, name) = (self.cx.shared, user.name().clone());
                shared.deny(shared.denial(&self.session.client, refusal.reason, "lua", refusal.object, name));
                refusal.failure_in_script()
            })?;
        }
        // A message also counts as a write: replicas would get it.
        if command.has(flags::WRITE | flags::MAY_REPLICATE) && self.is_read_only {
            return Err(Failure::text("ERR Write commands are not allowed from read-only scripts."));
        }
        monitored::show(self.cx.shared, &self.session, command, arguments, self.cx.keys.now_ms());
        let mut context = Context {
            shared: self.cx.shared,
            registry: self.cx.registry,
            counters: self.cx.counters,
            session: &mut self.session,
            keys: &mut *self.cx.keys,
            out,
            wait: None,
        };
        let begun = context.shared.clock.now();
        let outcome = handler(&mut context, arguments);
        let took = context.shared.clock.now().saturating_sub(begun);
        command.track(context.shared, context.session, arguments);
        command.count(context.shared, context.counters, None, took, outcome.is_err(), context.keys.now_ms());
        let has_lost = context.out.is_full();
        self.cx.keys.check_size()?;
        if has_lost && outcome.is_ok() { Err(Failure::REPLY_TOO_LONG) } else { outcome }
    }
}

/// A word of a call. Texts stay in Lua.
enum Word {
    Text(BorrowedBytes),
    Number(String),
}

impl Deref for Word {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

/// Returns the words of a call. One text may be used for many words, so they may be longer than what Lua holds.
fn words(values: &MultiValue) -> std::result::Result<Vec<Word>, &'static str> {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let word = |value: &Value| match value {
        Value::String(text) => Ok(Word::Text(text.as_bytes())),
        Value::Integer(number) => Ok(Word::Number(number.to_string())),
        Value::Number(number) => Ok(Word::Number(double_text(*number))),
        _ => Err("ERR Lua redis lib command arguments must be strings or integers"),
    };
    let words: Vec<Word> = values.iter().map(word).collect::<std::result::Result<_, _>>()?;
    if words.iter().map(|word| word.len()).sum::<usize>() > MAX_MEMORY_BYTES {
        return Err("ERR the arguments of a call are too long: at most 256 MiB");
    }
    Ok(words)
}

/// The part of `redis` that needs no connection.
pub(super) fn table(lua: &Lua) -> Result<Table> {
    let table = table_for_libraries(lua)?;
    table.set(
        "sha1hex",
        lua.create_function(|lua, values: Variadic<Value>| match &values[..] {
            // A value that is not text counts as an empty text.
            [value] => match lua.coerce_string(value.clone())? {
                Some(text) => Ok(name_of(&text.as_bytes())),
                None => Ok(name_of(b"")),
            },
            _ => Err(Error::runtime("wrong number of arguments")),
        })?,
    )?;
    table.set(
        "error_reply",
        lua.create_function(|lua, values: MultiValue| {
            let text = only_text(&values).map_or_else(|| NO_TEXT.to_vec(), |text| error_text(&text.as_bytes()));
            let reply = lua.create_table()?;
            reply.set("err", lua.create_string(text)?)?;
            Ok(reply)
        })?,
    )?;
    table.set(
        "status_reply",
        lua.create_function(|lua, values: MultiValue| {
            let reply = lua.create_table()?;
            match only_text(&values) {
                Some(text) => reply.set("ok", text)?,
                None => reply.set("err", lua.create_string(NO_TEXT)?)?,
            }
            Ok(reply)
        })?,
    )?;
    table.set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    table.set("set_repl", lua.create_function(|lua, flags: MultiValue| set_replication(lua, &flags))?)?;
    table.set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    table.set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    for (name, number) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        table.set(name, number)?;
    }
    Ok(table)
}

/// The part of `redis` that a library sees while it is loaded.
pub(super) fn table_for_libraries(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("log", lua.create_function(|_, words: MultiValue| log(&words))?)?;
    for (number, level) in (0..).zip(LEVELS) {
        table.set(level, number)?;
    }
    table.set("REDIS_VERSION", crate::commands::connection::REDIS_VERSION)?;
    table.set("REDIS_VERSION_NUM", 0x0007_000f)?;
    Ok(table)
}

/// `redis.set_repl`: nothing is replicated, so it only checks that the flags are valid.
fn set_replication(lua: &Lua, flags: &MultiValue) -> Result<()> {
    let [flags] = flags.iter().collect::<Vec<_>>()[..] else {
        return Err(Error::runtime("redis.set_repl() requires two arguments."));
    };
    // A value that is not a number counts as zero.
    let flags = lua.coerce_number(flags.clone())?.unwrap_or(0.0) as i64;
    if !(0..=3).contains(&flags) {
        return Err(Error::runtime("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."));
    }
    Ok(())
}

/// The error of a function that replies with a text, when it is given something else.
const NO_TEXT: &[u8] = b"ERR wrong number or type of arguments";

/// Returns the text, if it is the only value.
fn only_text(values: &MultiValue) -> Option<&LuaString> {
    match values.front() {
        Some(Value::String(text)) if values.len() == 1 => Some(text),
        _ => None,
    }
}

/// Returns the text of an error, with a code in front.
fn error_text(text: &[u8]) -> Vec<u8> {
    let text = up_to_zero(text.strip_prefix(b"-").unwrap_or(text));
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

fn log(words: &MultiValue) -> Result<()> {
    if words.len() < 2 {
        return Err(Error::runtime("redis.log() requires two arguments or more."));
    }
    let level = words
        .front()
        .and_then(|level| level.as_f64().or_else(|| level.as_integer().map(|level| level as f64)))
        .ok_or_else(|| Error::runtime("First argument must be a number (log level)."))?;
    let text: Vec<u8> = words
        .iter()
        .skip(1)
        .filter_map(|word| match word {
            Value::String(text) => Some(text.as_bytes().to_vec()),
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Number(number) => Some(double_text(*number).into_bytes()),
            _ => None,
        })
        .collect::<Vec<_>>()
        .join(&b' ');
    let text = crate::text::shown::quoted(&text);
    match level as i64 {
        0 => tracing::debug!(%text, "a script says"),
        1 | 2 => tracing::info!(%text, "a script says"),
        3 => tracing::warn!(%text, "a script says"),
        _ => return Err(Error::runtime("Invalid debug level.")),
    }
    Ok(())
}
