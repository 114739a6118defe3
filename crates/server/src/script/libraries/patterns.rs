//! `find`, `match`, `gmatch` and `gsub` of `string`, which can be ended.
//!
//! Code that calls back into Lua is in `prelude.lua`, where an error stays unchanged.

use crate::script::libraries::given::{Given, Outcome, define, one_value, told};
use crate::script::matching::{Capture, Matches, Pattern};
use crate::script::text::Text;
use crate::text::shown::up_to_zero;
use memchr::memmem;
use mlua::{IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest valid pattern.
const MAX_PATTERN_BYTES: usize = 4096;
/// The bytes that make a text a pattern.
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// Makes the functions. `must_end` fails when a script must end.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua, must_end: impl Fn() -> Result<()> + Clone + Send + 'static) -> Result<Table> {
    let library = lua.create_table()?;
    define(lua, &library, "find", must_end.clone(), |given, ask| find(given, ask))?;
    define(lua, &library, "match", must_end.clone(), |given, ask| first(given, ask))?;
    define(lua, &library, "gmatch", must_end.clone(), |given, ask| all(given, ask).map(one_value))?;
    define(lua, &library, "gsub", must_end, |given, ask| replace(given, ask))?;
    Ok(library)
}

/// Reads a pattern, and whether it is anchored at the beginning.
fn pattern(bytes: &[u8]) -> Outcome<(Pattern, bool)> {
    match bytes {
        [b'^', rest @ ..] => Ok((unanchored(rest)?, true)),
        _ => Ok((unanchored(bytes)?, false)),
    }
}

fn unanchored(bytes: &[u8]) -> Outcome<Pattern> {
    if bytes.len() > MAX_PATTERN_BYTES {
        return Err("pattern too long".into());
    }
    Ok(Pattern::new(bytes))
}

fn find(given: &Given<'_>, ask: &impl Fn() -> Result<()>) -> Outcome<MultiValue> {
    let (text, looked_for) = (given.text(0)?, given.text(1)?);
    let (text, looked_for) = (text.as_bytes(), looked_for.as_bytes());
    let from = given.start(2, text.len())?;
    let has_special = up_to_zero(&looked_for).iter().any(|byte| SPECIAL.contains(byte));
    let is_plain = !matches!(given.at(3), Value::Nil | Value::Boolean(false));
    if is_plain || !has_special {
        let found = memmem::find(text.get(from..).unwrap_or_default(), &looked_for).map(|place| from + place);
        return Ok(match found {
            Some(place) => (place + 1, place + looked_for.len()).into_lua_multi(given.lua)?,
            None => one_value(Value::Nil),
        });
    }
    let (pattern, is_anchored) = pattern(&looked_for)?;
    let mut matches = Matches::new(&pattern, &text, ask);
    let found = if is_anchored { matches.at(from)? } else { matches.next_from(from)? };
    let Some(found) = found else { return Ok(one_value(Value::Nil)) };
    let mut values = (found.start + 1, found.end).into_lua_multi(given.lua)?;
    if matches.captures() > 0 {
        values.extend(captures(given.lua, &text, &matches, &found)?);
    }
    Ok(values)
}

fn first(given: &Given<'_>, ask: &impl Fn() -> Result<()>) -> Outcome<MultiValue> {
    let (text, looked_for) = (given.text(0)?, given.text(1)?);
    let (text, looked_for) = (text.as_bytes(), looked_for.as_bytes());
    let from = given.start(2, text.len())?;
    let (pattern, is_anchored) = pattern(&looked_for)?;
    let mut matches = Matches::new(&pattern, &text, ask);
    let found = if is_anchored { matches.at(from)? } else { matches.next_from(from)? };
    match found {
        Some(found) => captures(given.lua, &text, &matches, &found),
        None => Ok(one_value(Value::Nil)),
    }
}

/// Returns a function that gives the captures of one match after another, and then nothing.
fn all(given: &Given<'_>, ask: &(impl Fn() -> Result<()> + Clone + Send + 'static)) -> Outcome<Value> {
    let (text, looked_for) = (given.text(0)?, given.text(1)?);
    let (next, ask) = (AtomicUsize::new(0), ask.clone());
    let step = given.lua.create_function(move |lua, ()| {
        let step = || {
            let (text, pattern) = (text.as_bytes(), unanchored(&looked_for.as_bytes())?);
            let mut matches = Matches::new(&pattern, &text, &ask);
            let Some(found) = matches.next_from(next.load(Ordering::Relaxed))? else { return Ok(MultiValue::new()) };
            let after = if found.is_empty() { found.end + 1 } else { found.end };
            next.store(after, Ordering::Relaxed);
            captures(lua, &text, &matches, &found)
        };
        told(lua, step())
    })?;
    Ok(Value::Function(step))
}

/// Returns the text with its matches replaced, and how many were replaced. If the replacement is not text, returns a
/// function instead. It gives the text before the next match, the match, and its captures; after the last match, the
/// rest.
fn replace(given: &Given<'_>, ask: &(impl Fn() -> Result<()> + Clone + Send + 'static)) -> Outcome<MultiValue> {
    let (text, looked_for) = (given.text(0)?, given.text(1)?);
    // Lua has 32 bits for the count.
    let most = given.integer(3)?.map_or(usize::MAX, |most| usize::try_from(most as i32).unwrap_or(0));
    match given.at(2) {
        value @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => {
            let replacement = given.lua.coerce_string(value)?;
            let replacement = replacement.as_ref().map(LuaString::as_bytes);
            let replacement = replacement.as_deref().unwrap_or_default();
            let (replaced, count) = replace_by_text(&text.as_bytes(), &looked_for.as_bytes(), replacement, most, ask)?;
            Ok((given.lua.create_string(replaced.bytes())?, count).into_lua_multi(given.lua)?)
        }
        Value::Function(_) => Ok(one_value(replace_by_calls(given.lua, text, looked_for, most, true, ask)?)),
        Value::Table(_) => Ok(one_value(replace_by_calls(given.lua, text, looked_for, most, false, ask)?)),
        _ => Err(given.wrong(2, "string/function/table expected")),
    }
}

/// How far the matches of a text were replaced.
struct Replaced {
    /// Where the unprocessed text begins.
    kept_from: usize,
    /// Where the next match may begin; `None` when there may be none.
    next: Option<usize>,
    count: usize,
}

impl Replaced {
    const BEGIN: Self = Self { kept_from: 0, next: Some(0), count: 0 };

    /// Finds the next match, and the unchanged text before it.
    fn step<A: FnMut() -> Result<()>>(
        &mut self,
        matches: &mut Matches<'_, A>,
        is_anchored: bool,
        most: usize,
    ) -> Outcome<Option<(Range<usize>, Range<usize>)>> {
        let Some(from) = self.next.filter(|_| self.count < most) else { return Ok(None) };
        let found = if is_anchored { matches.at(from)? } else { matches.next_from(from)? };
        let Some(found) = found else { return Ok(None) };
        let kept = self.kept_from..found.start;
        self.count += 1;
        self.kept_from = found.end;
        // After an empty match one byte is kept.
        let next = if found.is_empty() { found.end + 1 } else { found.end };
        self.next = (!is_anchored).then_some(next);
        Ok(Some((kept, found)))
    }
}

fn replace_by_text(
    text: &[u8],
    looked_for: &[u8],
    replacement: &[u8],
    most: usize,
    ask: &impl Fn() -> Result<()>,
) -> Outcome<(Text, usize)> {
    let (pattern, is_anchored) = pattern(looked_for)?;
    let mut matches = Matches::new(&pattern, text, ask);
    let (mut replaced, mut out) = (Replaced::BEGIN, Text::default());
    let bytes = |range: Range<usize>| text.get(range).unwrap_or_default();
    while let Some((kept, found)) = replaced.step(&mut matches, is_anchored, most)? {
        out.add(bytes(kept))?;
        let mut rest = replacement;
        while let Some(place) = memchr::memchr(b'%', rest) {
            let (before, escape) = rest.split_at(place);
            out.add(before)?;
            // After the last byte, Lua sees a zero.
            let letter = escape.get(1).copied().unwrap_or(0);
            rest = escape.get(2..).unwrap_or_default();
            match letter {
                b'0' => out.add(bytes(found.clone()))?,
                b'1'..=b'9' => match matches.capture(usize::from(letter - b'1'), &found)? {
                    Capture::Bytes(range) => out.add(bytes(range))?,
                    Capture::Place(place) => out.add((place + 1).to_string().as_bytes())?,
                },
                _ => out.add(&[letter])?,
            }
        }
        out.add(rest)?;
    }
    out.add(bytes(replaced.kept_from..text.len()))?;
    Ok((out, replaced.count))
}

/// See [`replace`]. All captures are passed on, or only the first.
fn replace_by_calls(
    lua: &Lua,
    text: LuaString,
    looked_for: LuaString,
    most: usize,
    passes_all: bool,
    ask: &(impl Fn() -> Result<()> + Clone + Send + 'static),
) -> Outcome<Value> {
    let (ask, mut replaced) = (ask.clone(), Replaced::BEGIN);
    let step = lua.create_function_mut(move |lua, ()| {
        let mut step = || {
            let (text, looked_for) = (text.as_bytes(), looked_for.as_bytes());
            let (pattern, is_anchored) = pattern(&looked_for)?;
            let mut matches = Matches::new(&pattern, &text, &ask);
            let bytes = |range: Range<usize>| lua.create_string(text.get(range).unwrap_or_default());
            let Some((kept, found)) = replaced.step(&mut matches, is_anchored, most)? else {
                return Ok(one_value(bytes(replaced.kept_from..text.len())?.into_lua(lua)?));
            };
            let mut values = (bytes(kept)?, bytes(found.clone())?).into_lua_multi(lua)?;
            if passes_all {
                values.extend(captures(lua, &text, &matches, &found)?);
            } else {
                values.push_back(captured(lua, &text, matches.capture(0, &found)?)?);
            }
            Ok(values)
        };
        told(lua, step())
    })?;
    Ok(Value::Function(step))
}

/// The captures of a match; the whole match when its pattern has none.
fn captures<A: FnMut() -> Result<()>>(
    lua: &Lua,
    text: &[u8],
    matches: &Matches<'_, A>,
    found: &Range<usize>,
) -> Outcome<MultiValue> {
    let places = 0..matches.captures().max(1);
    places.map(|place| Ok(captured(lua, text, matches.capture(place, found)?)?)).collect()
}

fn captured(lua: &Lua, text: &[u8], capture: Capture) -> Result<Value> {
    match capture {
        Capture::Bytes(range) => lua.create_string(text.get(range).unwrap_or_default()).map(Value::String),
        Capture::Place(place) => (place + 1).into_lua(lua),
    }
}
