//! Replies as values of Lua, and back.
//!
//! | reply | Lua |
//! |---|---|
//! | integer, bulk string, array | number, string, table |
//! | status, error | table with `ok`, with `err` |
//! | null (RESP2) | false |
//! | null, boolean (RESP3) | nil, boolean |
//! | double, map, set, verbatim string (RESP3) | table with `double`, `map`, `set`, `verbatim_string` |

use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::{Protocol, Reply};
use crate::text::number;
use crate::text::shown::up_to_zero;
use mlua::{Error, Lua, Result, Table, Value};

/// The first number beyond 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
/// How deep replies may be within each other.
const MAX_DEPTH: usize = 100;

/// A reply, which the server has written, as a value of Lua.
///
/// # Errors
/// Those of Lua.
pub(super) fn read(lua: &Lua, bytes: &[u8]) -> Result<Value> {
    Reader { lua, rest: bytes }.value()
}

struct Reader<'r> {
    lua: &'r Lua,
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    fn broken() -> Error {
        Error::runtime("a reply is broken")
    }

    fn line(&mut self) -> Result<(u8, &'r [u8])> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(Self::broken)?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).unwrap_or_default();
        line.split_first().map(|(sign, rest)| (*sign, rest)).ok_or_else(Self::broken)
    }

    fn bulk(&mut self, length: usize) -> Result<&'r [u8]> {
        let bytes = self.rest.get(..length).ok_or_else(Self::broken)?;
        self.rest = self.rest.get(length + 2..).ok_or_else(Self::broken)?;
        Ok(bytes)
    }

    fn single(&self, name: &str, value: impl mlua::IntoLua) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn string(&self, bytes: &[u8]) -> Result<Value> {
        self.lua.create_string(bytes).map(Value::String)
    }

    fn value(&mut self) -> Result<Value> {
        let (sign, line) = self.line()?;
        let length = number::integer(line);
        match (sign, length) {
            (b'+', _) => self.single("ok", self.string(line)?),
            (b'-', _) => self.single("err", self.string(line)?),
            (b':', Some(number)) => Ok(Value::Number(number as f64)),
            (b'$' | b'*', Some(-1)) => Ok(Value::Boolean(false)),
            (b'_', _) => Ok(Value::Nil),
            (b'#', _) => Ok(Value::Boolean(line == b"t")),
            (b',', _) => self.single("double", number::double(line).unwrap_or(f64::NAN)),
            (b'$', Some(length)) => {
                let bytes = self.bulk(usize::try_from(length).map_err(|_| Self::broken())?)?;
                self.string(bytes)
            }
            (b'=', Some(length)) => {
                let bytes = self.bulk(usize::try_from(length).map_err(|_| Self::broken())?)?;
                let (format, text) = bytes.split_at_checked(4).ok_or_else(Self::broken)?;
                let table = self.lua.create_table()?;
                table.raw_set("format", self.string(format.get(..3).unwrap_or_default())?)?;
                table.raw_set("string", self.string(text)?)?;
                self.single("verbatim_string", table)
            }
            (b'*' | b'>', Some(length)) => self.many(length).map(Value::Table),
            (b'~', Some(length)) => {
                let table = self.lua.create_table()?;
                for _ in 0..length {
                    table.raw_set(self.value()?, true)?;
                }
                self.single("set", table)
            }
            (b'%', Some(length)) => {
                let table = self.lua.create_table()?;
                for _ in 0..length {
                    let (key, value) = (self.value()?, self.value()?);
                    table.raw_set(key, value)?;
                }
                self.single("map", table)
            }
            _ => Err(Self::broken()),
        }
    }

    fn many(&mut self, length: i64) -> Result<Table> {
        let table = self.lua.create_table()?;
        for place in 1..=length {
            table.raw_set(place, self.value()?)?;
        }
        Ok(table)
    }
}

/// Writes a value of Lua as a reply. A script that chose RESP3 has booleans, which other scripts do not.
///
/// # Errors
/// When tables are within each other without an end.
pub(super) fn write(value: &Value, chosen: Protocol, out: &mut Reply) -> Outcome {
    within(value, chosen, out, 0)
}

fn within(value: &Value, chosen: Protocol, out: &mut Reply, depth: usize) -> Outcome {
    match value {
        Value::String(text) => out.bulk(&*text.as_bytes()),
        Value::Integer(number) => out.integer(*number),
        // As the processor turns them into integers, without a fraction.
        Value::Number(number) if (-TWO_TO_63..TWO_TO_63).contains(number) => out.integer(*number as i64),
        Value::Number(_) => out.integer(i64::MIN),
        Value::Boolean(is_so) if chosen == Protocol::Three => out.boolean(*is_so),
        Value::Boolean(true) => out.integer(1),
        Value::Table(_) if depth >= MAX_DEPTH => return Err(Failure::text("ERR reached lua stack limit")),
        Value::Table(table) => return table_within(table, chosen, out, depth),
        _ => out.null(),
    }
    Ok(())
}

fn field(table: &Table, name: &str) -> Value {
    table.raw_get(name).unwrap_or(Value::Nil)
}

fn table_within(table: &Table, chosen: Protocol, out: &mut Reply, depth: usize) -> Outcome {
    if let Value::String(text) = field(table, "err") {
        out.error(&String::from_utf8_lossy(up_to_zero(&text.as_bytes())));
        return Ok(());
    }
    if let Value::String(text) = field(table, "ok") {
        out.simple(&String::from_utf8_lossy(up_to_zero(&text.as_bytes())).replace(['\r', '\n'], " "));
        return Ok(());
    }
    match field(table, "double") {
        Value::Number(number) => {
            out.double(number);
            return Ok(());
        }
        Value::Integer(number) => {
            out.double(number as f64);
            return Ok(());
        }
        _ => {}
    }
    let broken = |error: mlua::Error| Failure::new(format!("ERR Lua: {error}"));
    if let Value::Table(map) = field(table, "map") {
        let pairs: Vec<(Value, Value)> = map.pairs().collect::<Result<_>>().map_err(broken)?;
        out.map(pairs.len());
        for (key, value) in &pairs {
            within(key, chosen, out, depth + 1)?;
            within(value, chosen, out, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = field(table, "set") {
        let pairs: Vec<(Value, Value)> = set.pairs().collect::<Result<_>>().map_err(broken)?;
        out.set(pairs.len());
        return pairs.iter().try_for_each(|(member, _)| within(member, chosen, out, depth + 1));
    }
    if let Value::Table(text) = field(table, "verbatim_string")
        && let Value::String(text) = field(&text, "string")
    {
        out.verbatim(&text.to_string_lossy());
        return Ok(());
    }
    let mut values = Vec::new();
    loop {
        match table.raw_get::<Value>(values.len() as i64 + 1).map_err(broken)? {
            Value::Nil => break,
            value => values.push(value),
        }
    }
    out.array(values.len());
    values.iter().try_for_each(|value| within(value, chosen, out, depth + 1))
}
