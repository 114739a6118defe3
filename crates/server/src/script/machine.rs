//! The Lua machine, and the scripts that were loaded.
//!
//! There is one machine, as one script runs at a time. A script has no way to files, processes, time or other threads. What
//! it allocates is bounded, and a hook asks after every so many instructions whether it is to end.

use crate::script::libraries;
use crate::script::progress::Progress;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, LuaString, Result, StdLib, Table, Value, VmState};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most memory of a script, and of all that were loaded.
const MAX_MEMORY_BYTES: usize = 256 << 20;
/// Instructions after which a script asks whether it is to end.
const INSTRUCTIONS: u32 = 10_000;
/// All scripts are forgotten when their texts are longer than this.
const MAX_SCRIPTS_BYTES: usize = 32 << 20;
/// What scripts are called in errors.
const NAME: &str = "@user_script";

const PRELUDE: &str = include_str!("prelude.lua");

/// The digest of a script, which is its name.
pub type Digest = String;

/// The name of a script.
#[must_use]
pub fn name_of(text: &[u8]) -> Digest {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the first line of a script says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// It does not write.
    pub no_writes: bool,
    /// There is such a line, so that a script may write which does not say otherwise.
    pub are_given: bool,
}

/// A script that was loaded.
#[derive(Debug, Clone)]
pub struct Script {
    function: Function,
    /// What its first line says of it.
    pub flags: Flags,
}

/// What a script came to.
#[derive(Debug)]
pub enum End {
    /// It returned this.
    Returned(Value),
    /// It raised an error: its text, and where.
    Raised {
        /// The text, which begins with a code in capitals.
        text: Vec<u8>,
        /// The chunk and the line, if it was in a script.
        place: Option<(String, i64)>,
    },
}

/// The Lua machine. See the module.
#[derive(Debug)]
pub struct Machine {
    lua: Lua,
    environment: Function,
    run: Function,
    scripts: BTreeMap<Digest, Script>,
    scripts_bytes: usize,
}

impl Machine {
    /// A machine without scripts.
    ///
    /// # Errors
    /// Those of Lua, when there is no memory.
    pub fn new(progress: &Arc<Progress>) -> Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        lua.set_memory_limit(MAX_MEMORY_BYTES)?;
        let asked = Arc::clone(progress);
        let must_end = move || match asked.ending() {
            None => Ok(()),
            Some(ending) => Err(Error::runtime(ending.text())),
        };
        let hook = must_end.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| hook().map(|()| VmState::Continue))?;
        let must_end = lua.create_function(move |_, ()| must_end())?;
        let place = lua.create_function(|lua, ()| Ok(place(lua)))?;
        let text_of = lua.create_function(|lua, problem: Value| lua.create_string(shown(&problem)))?;
        let given = lua.create_table()?;
        let globals = lua.globals();
        for name in ["loadstring", "setfenv"] {
            given.set(name, globals.get::<Value>(name)?)?;
        }
        libraries::add(&lua, &given)?;
        let prelude = lua.load(PRELUDE).set_name("=redis");
        let (environment, run) = prelude.call((must_end, place, text_of, given))?;
        Ok(Self { lua, environment, run, scripts: BTreeMap::new(), scripts_bytes: 0 })
    }

    /// The machine's values.
    #[must_use]
    pub const fn lua(&self) -> &Lua {
        &self.lua
    }

    /// Loads a script, and returns its name.
    ///
    /// # Errors
    /// The text of the reply, when it is none.
    pub fn load(&mut self, text: &[u8]) -> std::result::Result<Digest, String> {
        let name = name_of(text);
        if self.scripts.contains_key(&name) {
            return Ok(name);
        }
        let (flags, body) = first_line(text)?;
        let function =
            self.lua.load(body).set_name(NAME).set_mode(mlua::chunk::ChunkMode::Text).into_function().map_err(
                |error| {
                    let why = match error {
                        Error::SyntaxError { message, .. } => message,
                        other => other.to_string(),
                    };
                    format!("ERR Error compiling script (new function): {why}")
                },
            )?;
        if self.scripts_bytes > MAX_SCRIPTS_BYTES {
            self.forget();
        }
        self.scripts_bytes += text.len();
        self.scripts.insert(name.clone(), Script { function, flags });
        Ok(name)
    }

    /// The script of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Script> {
        self.scripts.get(name).cloned()
    }

    /// Forgets all scripts.
    pub fn forget(&mut self) {
        self.scripts.clear();
        self.scripts_bytes = 0;
        // When there is no memory for this, the next allocation tries again.
        let _ = self.lua.gc_collect();
    }

    /// Runs a script, which sees this table as `redis`.
    ///
    /// # Errors
    /// Those of Lua outside of the script.
    pub fn run(&self, script: &Script, redis: Table, keys: &[&[u8]], arguments: &[&[u8]]) -> Result<End> {
        let table = |words: &[&[u8]]| -> Result<Table> {
            let strings = words.iter().map(|word| self.lua.create_string(word)).collect::<Result<Vec<_>>>()?;
            self.lua.create_sequence_from(strings)
        };
        let environment: Table = self.environment.call((redis, table(keys)?, table(arguments)?))?;
        script.function.set_environment(environment)?;
        let (is_well, value): (bool, Value) = self.run.call(script.function.clone())?;
        if self.lua.used_memory() > MAX_MEMORY_BYTES / 2 {
            // Lua does not collect when memory runs out, so the next script would fail at once.
            self.lua.gc_collect()?;
        }
        if is_well {
            return Ok(End::Returned(value));
        }
        Ok(raised(&value))
    }
}

fn raised(value: &Value) -> End {
    let Value::Table(table) = value else { return End::Raised { text: shown(value), place: None } };
    let text = table.raw_get::<LuaString>("err").map(|text| text.as_bytes().to_vec()).unwrap_or_default();
    let place = table.raw_get::<String>("source").ok().zip(table.raw_get::<i64>("line").ok());
    End::Raised { text, place }
}

/// An error that a script catches as a table with this text, which begins with a code in capitals.
#[derive(Debug)]
pub struct Raised(pub Vec<u8>);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// The text of an error.
fn shown(value: &Value) -> Vec<u8> {
    match value {
        Value::Error(error) => text_of(error),
        Value::String(text) => [b"ERR ", &*text.as_bytes()].concat(),
        other => format!("ERR {}", other.type_name()).into_bytes(),
    }
}

fn text_of(error: &Error) -> Vec<u8> {
    match error {
        Error::CallbackError { cause, .. } => text_of(cause),
        Error::ExternalError(inner) => match inner.downcast_ref::<Raised>() {
            Some(raised) => raised.0.clone(),
            None => format!("ERR {inner}").into_bytes(),
        },
        Error::RuntimeError(text) => format!("ERR {text}").into_bytes(),
        other => format!("ERR {other}").into_bytes(),
    }
}

/// The chunk and the line of the script that is being carried out.
fn place(lua: &Lua) -> (Option<String>, Option<i64>) {
    for level in 0..16 {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source().source.map(|source| source.into_owned())?;
            let is_script = source.starts_with('@');
            is_script.then(|| (source, debug.current_line().and_then(|line| i64::try_from(line).ok())))
        });
        match found {
            None => break,
            Some(None) => {}
            Some(Some((source, line))) => return (Some(source), line),
        }
    }
    (None, None)
}

/// What the first line says, if it begins with `#!`, and the rest with lines of the same numbers.
fn first_line(text: &[u8]) -> std::result::Result<(Flags, &[u8]), String> {
    if !text.starts_with(b"#!") {
        return Ok((Flags::default(), text));
    }
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    let mut flags = Flags { are_given: true, ..Flags::default() };
    for word in words {
        let Some(named) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for flag in named.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => flags.no_writes = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => return Err(format!("ERR Unexpected flag in script shebang: {other}")),
            }
        }
    }
    Ok((flags, rest))
}
