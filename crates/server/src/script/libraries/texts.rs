//! `rep` of `string` and `concat` of `table`.
//!
//! Lua's own functions cannot be ended: an empty text may be repeated two billion times, and numbers become text
//! slowly.

use crate::script::libraries::given::{Given, Outcome, Problem, define, one_value, type_name};
use crate::script::text::{MAX_MEMORY_BYTES, Patience, Text, TooLong};
use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

/// Makes the functions. `must_end` fails when a script must end.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua, must_end: impl Fn() -> Result<()> + Clone + Send + 'static) -> Result<Table> {
    let library = lua.create_table()?;
    define(lua, &library, "rep", (), |given, ()| repeat(given))?;
    define(lua, &library, "concat", must_end, |given, ask| concatenate(given, ask))?;
    Ok(library)
}

/// An integer of 32 bits, as Lua uses here.
fn integer(given: &Given<'_>, place: usize) -> Outcome<Option<i32>> {
    Ok(given.integer(place)?.map(|number| number as i32))
}

fn repeat(given: &Given<'_>) -> Outcome<MultiValue> {
    let text = given.text(0)?;
    let count = integer(given, 1)?.ok_or_else(|| given.wrong_type(1, "number"))?;
    let (text, count) = (text.as_bytes(), usize::try_from(count).unwrap_or(0));
    let has_room = |length: &usize| *length <= MAX_MEMORY_BYTES.saturating_sub(given.lua.used_memory());
    text.len().checked_mul(count).filter(has_room).ok_or(TooLong)?;
    let count = if text.is_empty() { 0 } else { count };
    Ok(one_value(Value::String(given.lua.create_string(text.repeat(count))?)))
}

fn concatenate(given: &Given<'_>, ask: &impl Fn() -> Result<()>) -> Outcome<MultiValue> {
    let separator = match given.at(1) {
        Value::Nil => None,
        _ => Some(given.text(1)?),
    };
    let separator = separator.as_ref().map(LuaString::as_bytes);
    let list = given.table(0)?;
    let first = integer(given, 2)?.unwrap_or(1);
    let last = integer(given, 3)?.unwrap_or(list.raw_len() as i32);
    let (mut text, patience) = (Text::default(), Patience::new(ask));
    for place in first..=last {
        patience.count()?;
        if place > first {
            text.add(separator.as_deref().unwrap_or_default())?;
        }
        let value: Value = list.raw_get(place)?;
        let part = match &value {
            Value::String(part) => Some(part.clone()),
            Value::Integer(_) | Value::Number(_) => given.lua.coerce_string(value.clone())?,
            _ => None,
        };
        let wrong = || format!("invalid value ({}) at index {place} in table for 'concat'", type_name(&value));
        text.add(&part.ok_or_else(|| Problem::Raised(wrong()))?.as_bytes())?;
    }
    Ok(one_value(Value::String(given.lua.create_string(text.bytes())?)))
}
