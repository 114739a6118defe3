//! The Lua machine, the scripts that were loaded, and the functions that libraries registered.
//!
//! There is one machine, because only one script runs at a time. A script has no access to files, processes, time or
//! other threads. Its memory is bounded, and a hook checks at intervals of instructions whether it must end.
//!
//! Lua has room for some 8,000 values that are held from outside. So things that may be numerous are in tables of Lua,
//! and only the tables are held: one for scripts, one for the functions of each library, two for the words of a
//! request.

use crate::script::first_line::{self, Flags, name_in};
use crate::script::functions::{Functions, Library, Registered};
use crate::script::libraries;
use crate::script::progress::Progress;
use crate::script::text::MAX_MEMORY_BYTES;
use crate::text::shown::up_to_zero;
use bytes::Bytes;
use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value, VmState,
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Instructions after which a script checks whether it must end. If it joins or compares long texts, these take some
/// tens of milliseconds.
const INSTRUCTIONS: u32 = 2000;
/// All scripts are forgotten when their texts have more bytes than this.
const MAX_SCRIPTS_BYTES: usize = 32 << 20;
/// Garbage is collected when the machine holds more bytes than this.
const MUCH_BYTES: usize = MAX_MEMORY_BYTES / 2;
/// What scripts and libraries are called in errors.
const SCRIPT: &str = "@user_script";
const LIBRARY: &str = "@user_function";

const PRELUDE: &str = include_str!("prelude.lua");

/// The digest of a script, which is its name.
pub type Digest = String;

/// The name of a script.
#[must_use]
pub fn name_of(text: &[u8]) -> Digest {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, text).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A script that was loaded.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its name.
    pub name: Digest,
    /// The flags in its first line, if it has one. The script may write unless they say otherwise.
    pub flags: Option<Flags>,
}

/// What runs: a script or a function.
#[derive(Debug, Clone)]
pub enum Callee {
    /// A script.
    Script(Script),
    /// A function of a library, and the table with the functions to call.
    Function(Registered, Table),
}

impl Callee {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Script(script) => &script.name,
            Self::Function(function, _) => &function.name,
        }
    }

    /// Returns its name in errors.
    #[must_use]
    pub const fn chunk(&self) -> &'static str {
        match self {
            Self::Script(_) => SCRIPT,
            Self::Function(..) => LIBRARY,
        }
    }

    /// Returns its flags, if it declares any.
    #[must_use]
    pub const fn flags(&self) -> Option<Flags> {
        match self {
            Self::Script(script) => script.flags,
            Self::Function(function, _) => Some(function.flags),
        }
    }
}

/// How a script ended.
#[derive(Debug)]
pub enum End {
    /// It returned this value.
    Returned(Value),
    /// It raised an error: its text, and where.
    Raised {
        /// The text, which begins with a code in capitals.
        text: Vec<u8>,
        /// The chunk and the line, if it was in a script.
        place: Option<(String, i64)>,
    },
}

/// What a machine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UseOfMemory {
    /// Bytes of the whole machine.
    pub machine_bytes: usize,
    /// Scripts.
    pub scripts: usize,
    /// Bytes of their texts.
    pub text_bytes: usize,
}

/// The Lua machine. See the module.
#[derive(Debug)]
pub struct Machine {
    lua: Lua,
    prelude: Prelude,
    scripts: BTreeMap<Digest, Script>,
    /// The functions to call, by the names of scripts.
    bodies: Table,
    /// The environment of scripts that do not run. It holds nothing.
    nothing: Table,
    scripts_bytes: usize,
    /// What the machine holds beside scripts, in bytes: what was left when they were forgotten last, or less.
    others_bytes: usize,
    /// All libraries; `None` until they are read from the store.
    pub functions: Option<Functions>,
}

/// Functions of `prelude.lua`.
#[derive(Debug)]
struct Prelude {
    /// Makes the environment of a script.
    environment: Function,
    /// Makes the environment of a library.
    library: Function,
    /// Runs a function.
    run: Function,
    /// Runs a function of a library, or the library itself while it is loaded.
    run_in_library: Function,
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
            Some(text) => Err(Error::runtime(text)),
        };
        let (hook, ask) = (must_end.clone(), must_end.clone());
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| hook().map(|()| VmState::Continue))?;
        let must_end = lua.create_function(move |_, ()| must_end())?;
        let place = lua.create_function(|lua, ()| Ok(place(lua)))?;
        let text_of = lua.create_function(|lua, problem: Value| lua.create_string(shown(&problem)))?;
        let given = lua.create_table()?;
        let globals = lua.globals();
        for name in ["load", "setfenv"] {
            given.set(name, globals.get::<Value>(name)?)?;
        }
        given.set("is_of_c", lua.create_function(|_, function: Function| Ok(function.info().what == "C"))?)?;
        libraries::add(&lua, &given, ask)?;
        let prelude = lua.load(PRELUDE).set_name("=redis");
        let (environment, library, run, run_in_library) = prelude.call((must_end, place, text_of, given))?;
        let prelude = Prelude { environment, library, run, run_in_library };
        let (scripts, bodies, nothing) = (BTreeMap::new(), lua.create_table()?, lua.create_table()?);
        Ok(Self { lua, prelude, scripts, bodies, nothing, scripts_bytes: 0, others_bytes: 0, functions: None })
    }

    /// The machine's values.
    #[must_use]
    pub const fn lua(&self) -> &Lua {
        &self.lua
    }

    /// What it holds.
    #[must_use]
    pub fn use_of_memory(&self) -> UseOfMemory {
        let (machine_bytes, scripts, text_bytes) = (self.lua.used_memory(), self.scripts.len(), self.scripts_bytes);
        UseOfMemory { machine_bytes, scripts, text_bytes }
    }

    /// Loads a script, and returns its name.
    ///
    /// # Errors
    /// The text of the reply, when it is not valid.
    pub fn load(&mut self, text: &[u8]) -> std::result::Result<Digest, String> {
        let name = name_of(text);
        if self.scripts.contains_key(&name) {
            return Ok(name);
        }
        let (flags, body) = first_line::of_script(text)?;
        self.make_room().map_err(|error| format!("ERR Lua: {error}"))?;
        let function =
            self.compile(body, SCRIPT).map_err(|why| format!("ERR Error compiling script (new function): {why}"))?;
        self.bodies.raw_set(name.as_str(), function).map_err(|error| format!("ERR Lua: {error}"))?;
        self.scripts_bytes += text.len();
        self.scripts.insert(name.clone(), Script { name: name.clone(), flags });
        Ok(name)
    }

    /// Forgets all scripts when they take much. What becomes of a text may be many times as long.
    fn make_room(&mut self) -> Result<()> {
        self.collect_much()?;
        let used_bytes = self.lua.used_memory();
        // Libraries stay when scripts are forgotten, so scripts may have half of what these leave.
        self.others_bytes = self.others_bytes.min(used_bytes);
        if self.scripts_bytes > MAX_SCRIPTS_BYTES || used_bytes > self.others_bytes.midpoint(MAX_MEMORY_BYTES) {
            self.forget();
        }
        Ok(())
    }

    /// Collects garbage when much is held. Lua does not when memory runs out, so what comes next would fail at once.
    ///
    /// # Errors
    /// Those of Lua, when there is no memory for that.
    pub fn collect_much(&self) -> Result<()> {
        if self.lua.used_memory() > MUCH_BYTES {
            self.lua.gc_collect()?;
        }
        Ok(())
    }

    fn compile(&self, text: &[u8], name: &str) -> std::result::Result<Function, String> {
        let chunk = self.lua.load(text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
        chunk.into_function().map_err(|error| match error {
            Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
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
        // If memory is short for this, the next allocation tries again.
        let _ = self.bodies.clear().and_then(|()| self.lua.gc_collect());
        self.others_bytes = self.lua.used_memory();
    }

    /// Loads a library. It sees this table as `redis`, with the function that registers functions.
    ///
    /// # Errors
    /// The text of the reply, when it is not valid.
    pub fn load_library(&self, text: &[u8], redis: &Table) -> std::result::Result<Library, String> {
        let (name, body) = first_line::of_library(text)?;
        let chunk = self.compile(body, LIBRARY).map_err(|why| format!("ERR Error compiling function: {why}"))?;
        let functions = RefCell::new(BTreeMap::new());
        let callbacks = self.lua.create_table().map_err(|error| format!("ERR Lua: {error}"))?;
        let end = self.lua.scope(|scope| {
            let register = scope.create_function(|lua, values: MultiValue| {
                let (registered, callback) = registered(lua, &values)?;
                let mut functions = functions.borrow_mut();
                if functions.contains_key(&registered.name) {
                    return Err(Error::runtime("Function already exists in the library"));
                }
                callbacks.raw_set(registered.name.as_str(), callback)?;
                functions.insert(registered.name.clone(), registered);
                Ok(())
            })?;
            redis.set("register_function", register)?;
            chunk.set_environment(self.prelude.library.call(())?)?;
            let (is_well, value): (bool, Value) = self.prelude.run_in_library.call((redis, true, &chunk))?;
            Ok(if is_well { End::Returned(value) } else { raised(&value) })
        });
        match end.map_err(|error| format!("ERR Lua: {error}"))? {
            End::Raised { text, .. } => {
                Err(format!("ERR Error registering functions: {}", String::from_utf8_lossy(&text)))
            }
            End::Returned(_) if functions.borrow().is_empty() => Err("ERR No functions registered".into()),
            End::Returned(_) => {
                Ok(Library { name, text: Bytes::copy_from_slice(text), functions: functions.into_inner(), callbacks })
            }
        }
    }

    /// Runs a script or a function. It sees this table as `redis`.
    ///
    /// # Errors
    /// Errors of Lua outside of the script.
    pub fn run(&self, callee: &Callee, redis: Table, keys: &[&[u8]], arguments: &[&[u8]]) -> Result<End> {
        let table = |words: &[&[u8]]| -> Result<Table> {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            words.iter().try_for_each(|word| table.raw_push(self.lua.create_string(word)?))?;
            Ok(table)
        };
        let (keys, arguments) = (table(keys)?, table(arguments)?);
        let end: Result<(bool, Value)> = match callee {
            Callee::Script(script) => {
                let body: Function = self.bodies.raw_get(script.name.as_str())?;
                body.set_environment(self.prelude.environment.call((redis, keys, arguments))?)?;
                let ended = self.prelude.run.call(&body);
                // Its environment has its keys, its arguments and functions of its own, and would stay with the script.
                body.set_environment(self.nothing.clone())?;
                ended
            }
            Callee::Function(function, callbacks) => {
                let callback: Function = callbacks.raw_get(function.name.as_str())?;
                self.prelude.run_in_library.call((redis, false, callback, keys, arguments))
            }
        };
        self.collect_much()?;
        // If memory ran out where no error can be caught, this script ends as a failure of Lua.
        let (is_well, value) = end?;
        Ok(if is_well { End::Returned(value) } else { raised(&value) })
    }
}

/// Returns what a library registers, and the function to call. The library gives a name and a function, or a table with
/// them and more.
fn registered(lua: &Lua, values: &MultiValue) -> Result<(Registered, Function)> {
    let wrong = |text: &str| Err(Error::runtime(text));
    let string = |value: &Value| lua.coerce_string(value.clone()).map(|text| text.map(|text| text.as_bytes().to_vec()));
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, Flags::default());
    match values.iter().collect::<Vec<_>>()[..] {
        [given, function] => {
            name = string(given)?;
            if name.is_none() {
                return wrong("first argument to redis.register_function must be a string");
            }
            let Value::Function(function) = function else {
                return wrong("second argument to redis.register_function must be a function");
            };
            callback = Some(function.clone());
        }
        [Value::Table(named)] => {
            for pair in named.pairs::<Value, Value>() {
                let (key, value) = pair?;
                let key = key.as_string().map(|key| key.as_bytes().to_vec()).unwrap_or_default();
                match &key[..] {
                    b"function_name" => {
                        name = string(&value)?;
                        if name.is_none() {
                            return wrong("function_name argument given to redis.register_function must be a string");
                        }
                    }
                    b"description" => {
                        description = string(&value)?;
                        if description.is_none() {
                            return wrong("description argument given to redis.register_function must be a string");
                        }
                    }
                    b"callback" => {
                        let Value::Function(function) = value else {
                            return wrong("callback argument given to redis.register_function must be a function");
                        };
                        callback = Some(function);
                    }
                    b"flags" => {
                        let Value::Table(given) = value else {
                            return wrong(
                                "flags argument to redis.register_function must be a table representing function flags",
                            );
                        };
                        for flag in given.sequence_values::<Value>() {
                            let flag = string(&flag?)?.unwrap_or_default();
                            flags = flags.with(&flag).ok_or_else(|| Error::runtime("unknown flag given"))?;
                        }
                    }
                    _ => return wrong("unknown argument given to redis.register_function"),
                }
            }
        }
        [_] => {
            return wrong(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing \
                 named arguments).",
            );
        }
        _ => return wrong("wrong number of arguments to redis.register_function"),
    }
    let Some(name) = name else { return wrong("redis.register_function must get a function name argument") };
    let Some(callback) = callback else { return wrong("redis.register_function must get a callback argument") };
    let name = name_in(&name).map_err(|why| Error::runtime(why.trim_start_matches("ERR ")))?;
    Ok((Registered { name, description, flags }, callback))
}

fn raised(value: &Value) -> End {
    let Value::Table(table) = value else {
        return End::Raised { text: up_to_zero(&shown(value)).to_vec(), place: None };
    };
    let text = table.raw_get::<LuaString>("err").map(|text| up_to_zero(&text.as_bytes()).to_vec()).unwrap_or_default();
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

/// Returns the chunk and the line of the running script.
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::ManualClock;
    use mlua::IntoLuaMulti;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Calls of functions that match patterns, in all forms. Each gives what it returns or raises, as text.
    const CALLS: &str = r##"
        local text, pattern, replacement, number = ...
        local all = {}
        local function note(...)
            local line = {}
            for place = 1, select("#", ...) do
                local value = select(place, ...)
                line[place] = type(value) .. " " .. tostring(value)
            end
            all[#all + 1] = table.concat(line, ", ")
        end
        local function call(name, ...) note(name, pcall(string[name], ...)) end
        call("find", text, pattern)
        call("find", text, pattern, number)
        call("find", text, pattern, number, true)
        call("match", text, pattern)
        call("match", text, pattern, number)
        call("gsub", text, pattern, replacement)
        call("gsub", text, pattern, replacement, number)
        call("gsub", text, pattern, { a = "x", b = false, ab = 7, [1] = "one" })
        call("gsub", text, pattern, { a = {} })
        call("gsub", text, pattern, function(...) note("called", ...) return (select(2, ...)) end)
        call("gsub", text, pattern, function(first) if first == "a" then error({}) end end)
        note(pcall(function() local found = string.find(text, pattern) return found end))
        note(pcall(function()
            for a, b, c in text:gmatch(pattern) do note("found", a, b, c) end
        end))
        note(pcall(function()
            local found = text:gsub(pattern, replacement)
            return found
        end))
        return (table.concat(all, "\n"):gsub("table: 0x%x+", "table"))
    "##;

    /// The same for functions that make lists and texts.
    const LIST_CALLS: &str = r##"
        local numbers, texts, separator, first, last = ...
        local all = {}
        local function note(...)
            local line = {}
            for place = 1, select("#", ...) do
                local value = select(place, ...)
                line[place] = type(value) .. " " .. tostring(value)
            end
            all[#all + 1] = table.concat(line, ", ")
        end
        local function copy(list)
            local made = {}
            for place, value in ipairs(list) do made[place] = value end
            return made
        end
        local function call(list, name, ...)
            note(name, pcall(table[name], list, ...))
            for key, value in pairs(list) do note(key, value) end
        end
        note(pcall(string.rep, separator, first))
        note(pcall(string.rep, separator, separator))
        local mixed = copy(numbers)
        for place, text in ipairs(texts) do mixed[#mixed + 1] = text end
        for _, list in ipairs({ numbers, texts, mixed }) do
            call(list, "concat")
            call(list, "concat", separator)
            call(list, "concat", separator, first)
            call(list, "concat", separator, first, last)
            call(copy(list), "insert", separator)
            call(copy(list), "insert", first, separator)
            call(copy(list), "insert", last, separator)
            call(copy(list), "insert", separator, first)
            call(copy(list), "sort")
            call(copy(list), "sort", function(a, b) return tostring(a) > tostring(b) end)
            call(copy(list), "sort", function(a, b) return #tostring(a) < #tostring(b) end)
            call(copy(list), "sort", function(a, b) return tostring(a) <= tostring(b) end)
            call(copy(list), "sort", function(a, b) return a > b end)
            call(copy(list), "sort", function() return true end)
            call(copy(list), "sort", rawequal)
            call(list, "foreach", function(...) note("each", ...) end)
            call(list, "foreachi", function(place, value) note(place, value) if value == separator then return last end end)
        end
        -- What was called by `pcall` has no name.
        return (table.concat(all, "\n"):gsub("table: 0x%x+", "table"):gsub("to '[%a?]+'", ""))
    "##;

    /// Machines with the functions that scripts see, and with those of Lua.
    fn machines() -> (Machine, Lua) {
        let machine = Machine::new(&Arc::new(Progress::new(Arc::new(ManualClock::new())))).unwrap();
        (machine, Lua::new_with(StdLib::TABLE | StdLib::STRING, LuaOptions::new()).unwrap())
    }

    fn texts(parts: &'static [&'static [u8]], most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(parts), 0..most).prop_map(|parts| parts.concat())
    }

    /// Compares the results of these calls in both machines.
    fn compare(calls: &'static str, arguments: impl Fn(&Lua) -> MultiValue) -> std::result::Result<(), TestCaseError> {
        type Callers = BTreeMap<&'static str, [(Lua, Function); 2]>;
        thread_local! {
            static CALLERS: RefCell<(Option<(Machine, Lua)>, Callers)> = RefCell::default();
        }
        CALLERS.with_borrow_mut(|(made, callers)| {
            let (machine, lua) = made.get_or_insert_with(machines);
            let load = |lua: &Lua| (lua.clone(), lua.load(calls).set_name("@calls").into_function().unwrap());
            let callers = callers.entry(calls).or_insert_with(|| [load(machine.lua()), load(lua)]);
            let [here, there] = callers.each_ref().map(|(lua, caller)| {
                let said: LuaString = caller.call(arguments(lua)).unwrap();
                String::from_utf8_lossy(&said.as_bytes()).into_owned()
            });
            prop_assert_eq!(here, there);
            Ok(())
        })
    }

    fn subject() -> impl Strategy<Value = Vec<u8>> {
        texts(
            &[b"a", b"a", b"b", b"ab", b"(", b")", b"]", b"%", b"-", b"^", b" ", b"1", b"\0", b"\xe9", b"\x0b", b"A"],
            12,
        )
    }

    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let parts: &[&[u8]] = &[
            b"a", b"a", b"b", b".", b".", b"*", b"+", b"-", b"?", b"(", b")", b"()", b"(a", b"(.-)", b"%1", b"%2",
            b"%0", b"^", b"$", b"%a", b"%A", b"%c", b"%d", b"%l", b"%p", b"%s", b"%S", b"%u", b"%w", b"%W", b"%x",
            b"%z", b"%q", b"%", b"%%", b"%b", b"%b()", b"%bab", b"%f", b"%f[%w]", b"%f[^a]", b"[", b"]", b"[]]", b"[^",
            b"[a-b]", b"[a-%%]", b"[%a-]", b"[^%s]", b"[%]]", b"\0", b"\xe9",
        ];
        texts(parts, 9)
    }

    fn replacement() -> impl Strategy<Value = Vec<u8>> {
        texts(&[b"x", b"%0", b"%1", b"%2", b"%9", b"%%", b"%", b"\0", b"7"], 4)
    }

    /// Runs as many cases as `PROPTEST_CASES` says, if it is set.
    fn config(cases: u32) -> ProptestConfig {
        let usual = ProptestConfig::default();
        if std::env::var_os("PROPTEST_CASES").is_some() { usual } else { ProptestConfig::with_cases(cases) }
    }

    proptest! {
        #![proptest_config(config(4000))]
        #[test]
        fn patterns_match_as_those_of_lua(
            text in subject(), pattern in pattern(), replacement in replacement(), number in -4_i64..6,
        ) {
            compare(CALLS, |lua| {
                let texts = [&text, &pattern, &replacement].map(|bytes| lua.create_string(bytes).unwrap());
                let [text, pattern, replacement] = texts;
                (text, pattern, replacement, number).into_lua_multi(lua).unwrap()
            })?;
        }
    }

    proptest! {
        #![proptest_config(config(50))]
        #[test]
        fn lists_become_as_those_of_lua(
            numbers in prop::collection::vec(prop_oneof![(-5_i32..5).prop_map(f64::from), any::<f64>()], 0..30),
            texts in prop::collection::vec("[a-c\\x00]{0,4}", 0..30),
            separator in "[a-c0-9]{0,3}", first in -3_i64..8, last in -3_i64..40,
        ) {
            compare(LIST_CALLS, |lua| {
                let numbers = lua.create_sequence_from(numbers.clone()).unwrap();
                let texts = lua.create_sequence_from(texts.clone()).unwrap();
                (numbers, texts, separator.clone(), first, last).into_lua_multi(lua).unwrap()
            })?;
        }
    }

    #[test]
    fn what_is_no_text_is_refused_as_by_lua() {
        let (machine, lua) = machines();
        for call in [
            "string.find()",
            "string.find('a')",
            "string.find(nil, 'a')",
            "string.find({}, 'a')",
            "string.find('a', 'a', {})",
            "string.find('a', 'a', 'x')",
            "string.find('a', 'a', '1')",
            "string.find(12, 2)",
            "string.find('abc', '', 10)",
            "string.find('abc', '', -10)",
            "string.find('abc', 'b', 0/0)",
            "string.find('abc', 'b', 1e300)",
            "string.find('abc', 'b', nil, 1)",
            "string.find('a.b', '.b', 1, nil)",
            "('a'):find()",
            "('a'):find('a', {})",
            "('a'):gsub()",
            "('a'):gsub('a')",
            "('a'):gsub('a', nil)",
            "('a'):gsub('a', true)",
            "('a'):gsub('a', 'b', {})",
            "('a'):gsub('a', nil, {})",
            "('aaa'):gsub('a', 1.5)",
            "('aaa'):gsub('a', 'b', 2^32 + 1)",
            "('aaa'):gsub('a', 'b', -1)",
            "('aaa'):gsub('a', 'b', 1.9)",
            "('aaa'):gsub('a', string.upper)",
            "('aaa'):gsub('a', {a = true})",
            "('aaa'):gsub('a', setmetatable({}, {__index = function(_, key) return key .. 1 end}))",
            "('aaa'):gsub('a', function() error('x', 2) end)",
            "('aaa'):gsub('a', function() error('x', 0) end)",
            "string.gmatch('a')",
            "('a'):gmatch()",
            "('a'):gmatch('^a')()",
            "('a'):gmatch('a', 'more')()",
            "('a'):match('a', 1, 'more')",
            "string.gfind('ab', '.')()",
            "(string.rep('x', 3000)):gsub('', '-')",
            "(string.rep('x', 3000)):gsub('x', function() return 'ab' end)",
            "(string.rep('x', 3000)):gsub('', function() return 'ab' end)",
            "(string.rep('xy', 3000)):gsub('x', {x = 'ab'}, 1500)",
            "string.rep()",
            "string.rep('a')",
            "string.rep({}, 1)",
            "string.rep('a', 'x')",
            "string.rep(1.5, '2')",
            "string.rep('a', 2^32 + 1)",
            "string.rep('a', -1)",
            "('a'):rep()",
            "('a'):rep({})",
            "table.concat()",
            "table.concat('a')",
            "table.concat({}, {})",
            "table.concat({}, ',', 'x')",
            "table.concat({}, ',', 1, {})",
            "table.concat({1, 2.5, 'a'}, 7)",
            "table.concat({1, {}, 'a'})",
            "table.concat({1, 2}, ',', 0)",
            "table.concat({1, 2}, ',', 1, 3)",
            "table.concat({1, 2}, ',', 2^32 + 1)",
            "table.concat({[2^31 - 1] = 'a'}, ',', 2^31 - 1, 2^31 - 1)",
            "table.insert()",
            "table.insert('a', 1)",
            "table.insert({})",
            "table.insert({}, 1, 2, 3)",
            "table.insert({}, 'a', 1)",
            "table.insert({}, nil, 1)",
            "table.insert({}, nil)",
            "table.sort()",
            "table.sort('a')",
            "table.sort({}, 1)",
            "table.sort({}, nil)",
            "table.sort({1, 'a'})",
            "table.sort({{}, {}})",
            "table.sort({1, 2, 3, 4, 5}, function() return true end)",
            "table.sort({1, 2, 3}, function() error(7) end)",
            "table.sort({1, 2, 3}, function() error('x') end)",
            "table.sort({1, 2, 3}, function() error('x', 2) end)",
            "table.sort({1, 2, 3}, function(a) return a.b.c end)",
            "table.sort({1, 2, 3}, rawequal)",
            "table.foreach()",
            "table.foreach({})",
            "table.foreach({}, 1)",
            "table.foreach({1}, function() error('x', 2) end)",
            "table.foreachi(1)",
            "table.foreachi({}, nil)",
            "table.foreachi({4, 5}, function(place, value) return value end)",
        ] {
            let chunk = format!(
                "local function all(...)
                     local line = {{}}
                     for place = 1, select('#', ...) do line[place] = tostring((select(place, ...))) end
                     return table.concat(line, ', ')
                 end
                 return all(pcall(function() local a, b, c, d = {call} return a, b, c, d end))"
            );
            let said = |lua: &Lua| lua.load(&chunk).set_name("@calls").eval::<String>().unwrap();
            assert_eq!(said(machine.lua()), said(&lua), "{call}");
        }
    }

    /// Runs a script with these arguments.
    fn run(machine: &mut Machine, text: &str, arguments: &[&[u8]]) -> End {
        let name = machine.load(text.as_bytes()).unwrap();
        let script = Callee::Script(machine.find(&name).unwrap());
        machine.run(&script, machine.lua().create_table().unwrap(), &[], arguments).unwrap()
    }

    #[test]
    fn a_script_that_has_ended_holds_no_arguments() {
        let (mut machine, _) = machines();
        let argument = vec![b'x'; 32 << 20];
        for number in 0..16 {
            let end = run(&mut machine, &format!("return {number}"), &[&argument[..]]);
            assert!(matches!(end, End::Returned(_)), "{number}: {end:?}");
        }
        machine.lua().gc_collect().unwrap();
        assert!(machine.use_of_memory().machine_bytes < argument.len());
    }

    /// Each of these functions takes ten times the bytes of its text.
    #[test]
    fn scripts_that_take_more_than_their_texts_are_forgotten_in_time() {
        let (mut machine, _) = machines();
        let functions = "function()end,".repeat(2000);
        let mut most = 0;
        for number in 0..1100 {
            machine.load(format!("return {{{functions}{number}}}").as_bytes()).unwrap();
            most = most.max(machine.use_of_memory().scripts);
        }
        let UseOfMemory { scripts, text_bytes, .. } = machine.use_of_memory();
        assert!(scripts < most && text_bytes < MAX_SCRIPTS_BYTES, "{scripts} of {most}, {text_bytes}");
        assert!(matches!(run(&mut machine, "return 1", &[]), End::Returned(_)));
    }

    #[test]
    fn scripts_are_not_forgotten_because_libraries_take_much() {
        let (mut machine, _) = machines();
        let redis = machine.lua().create_table().unwrap();
        let text = "#!lua name=large\nlocal x = ('x'):rep(2^27) redis.register_function('f', function() return x end)";
        let library = machine.load_library(text.as_bytes(), &redis).unwrap();
        let names = [1, 2, 3].map(|number| machine.load(format!("return {number}").as_bytes()).unwrap());
        assert!(machine.use_of_memory().machine_bytes > MUCH_BYTES);
        assert!(names.iter().all(|name| machine.find(name).is_some()));
        assert!(library.functions.contains_key("f"));
    }

    /// Runs a script that calls `kill` and continues, and returns whether it got to `reached`.
    fn reaches(text: &str) -> bool {
        let progress = Arc::new(Progress::new(Arc::new(ManualClock::new())));
        let mut machine = Machine::new(&progress).unwrap();
        let redis = machine.lua().create_table().unwrap();
        let is_reached = Arc::new(AtomicBool::new(false));
        let reached = Arc::clone(&is_reached);
        let kill = move |_: &Lua, ()| {
            progress.stop();
            Ok(())
        };
        redis.set("kill", machine.lua().create_function(kill).unwrap()).unwrap();
        let reached = move |_: &Lua, ()| {
            reached.store(true, Ordering::Relaxed);
            Ok(())
        };
        redis.set("reached", machine.lua().create_function(reached).unwrap()).unwrap();
        redis.set("nothing", machine.lua().create_function(|_, _: MultiValue| Ok(())).unwrap()).unwrap();
        let name = machine.load(format!("{text} redis.reached()").as_bytes()).unwrap();
        let script = Callee::Script(machine.find(&name).unwrap());
        machine.run(&script, redis, &[], &[]).unwrap();
        is_reached.load(Ordering::Relaxed)
    }

    #[test]
    fn one_call_that_takes_long_can_be_ended() {
        let list = "local list = {} for place = 1, 5000 do list[place] = place * 7 % 5000 end redis.kill()";
        assert!(reaches(list));
        for call in [
            "table.sort(list)",
            "table.sort(list, rawequal)",
            "table.sort(list, function(a, b) return a > b end)",
            "table.concat(list)",
            "table.insert(list, -1e9, 1)",
            "table.foreach(list, redis.nothing)",
            "table.foreachi(list, redis.nothing)",
            "loadstring('return ' .. string.rep('1 + ', 1e5) .. '1')",
            "loadstring('--' .. string.rep('a', 1e5))",
            "collectgarbage()",
            "collectgarbage('step', 1e9)",
        ] {
            assert!(!reaches(&format!("{list} {call}")), "{call}");
        }
    }

    /// Lua's own function would count to two billion, or use up the memory first.
    #[test]
    fn a_text_is_repeated_when_there_is_room() {
        let (machine, _) = machines();
        let eval = |text: &str| machine.lua().load(text).eval::<String>().unwrap();
        assert_eq!(eval("return ('').rep('', 2^31 - 1)"), "");
        let before = machine.lua().used_memory();
        assert!(eval("return tostring(select(2, pcall(string.rep, 'abc', 2^31 - 1)))").ends_with("not enough memory"));
        assert!(machine.lua().used_memory() < before + 10_000);
        assert_eq!(eval("return tostring(#('ab'):rep(1000001))"), "2000002");
    }

    #[test]
    fn what_is_loaded_in_pieces_is_whole() {
        let progress = Arc::new(Progress::new(Arc::new(ManualClock::new())));
        let mut machine = Machine::new(&progress).unwrap();
        let mut said = |text: &str| {
            let name = machine.load(text.as_bytes()).unwrap();
            let script = Callee::Script(machine.find(&name).unwrap());
            let end = machine.run(&script, machine.lua().create_table().unwrap(), &[], &[]).unwrap();
            let End::Returned(Value::String(text)) = end else { panic!("{text}: {end:?}") };
            text.to_string_lossy()
        };
        assert_eq!(said("return loadstring('return ' .. string.rep('1+', 100000) .. [['1']])() .. ''"), "100001");
        assert_eq!(said("return select(2, loadstring('x = '))"), "[string \"x = \"]:1: unexpected symbol near '<eof>'");
        assert_eq!(said("return select(2, loadstring('x = ', '=a'))"), "a:1: unexpected symbol near '<eof>'");
        assert_eq!(said("return type(loadstring(''))"), "function");
        assert_eq!(
            said("return type(collectgarbage('step')) .. collectgarbage() .. type(collectgarbage('count'))"),
            "boolean0number"
        );
        let weak = "local weak = setmetatable({ {} }, { __mode = 'v' }) collectgarbage() return tostring(weak[1])";
        assert_eq!(said(weak), "nil");
    }
}
