//! Replies as values of Lua, and back.
//!
//! | reply | Lua |
//! |---|---|
//! | integer, bulk string, array | number, string, table |
//! | status, error | table with `ok`, with `err` |
//! | null (RESP2) | false |
//! | null, boolean (RESP3) | nil, boolean |
//! | double, map, set, verbatim string, big number (RESP3) | table with `double`, `map`, `set`, `verbatim_string`, `big_number` |

use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::{Protocol, Reply};
use crate::script::text::{MAX_MEMORY_BYTES, Patience};
use crate::text::number;
use crate::text::shown::up_to_zero;
use mlua::{Error, Lua, Result, Table, Value};

/// The first number beyond 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
/// How deeply replies may be nested.
const MAX_DEPTH: usize = 100;

/// Reads a reply, which the server has written, as a value of Lua.
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

/// Writes a value of Lua as a reply. A script that chose RESP3 has booleans, which other scripts do not. `goes_on` is
/// called now and then to decide whether to continue.
///
/// # Errors
/// When the reply would be longer than the memory of a script, or tables are nested without end; those of `goes_on`.
pub(super) fn write(value: &Value, chosen: Protocol, out: &mut Reply, goes_on: &dyn Fn() -> Outcome) -> Outcome {
    let from = out.len();
    Writer { chosen, out, from, tables: Patience::new(goes_on) }.value(value, 0)
}

struct Writer<'w> {
    chosen: Protocol,
    out: &'w mut Reply,
    /// Where the reply begins.
    from: usize,
    tables: Patience<'w, Failure>,
}

impl Writer<'_> {
    /// Fails when there is no room for this many more bytes.
    fn make_room(&self, bytes: usize) -> Outcome {
        if bytes > MAX_MEMORY_BYTES.saturating_sub(self.out.len() - self.from) {
            return Err(Failure::text("ERR the reply of the script is too long: at most 256 MiB"));
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Outcome {
        match value {
            Value::String(text) => {
                self.make_room(text.as_bytes().len())?;
                self.out.bulk(&*text.as_bytes());
            }
            Value::Integer(number) => self.out.integer(*number),
            // Converts as the processor does, without the fraction.
            Value::Number(number) if (-TWO_TO_63..TWO_TO_63).contains(number) => self.out.integer(*number as i64),
            Value::Number(_) => self.out.integer(i64::MIN),
            Value::Boolean(is_so) if self.chosen == Protocol::Three => self.out.boolean(*is_so),
            Value::Boolean(true) => self.out.integer(1),
            Value::Table(_) if depth >= MAX_DEPTH => return Err(Failure::text("ERR reached lua stack limit")),
            Value::Table(table) => return self.table(table, depth + 1),
            _ => self.out.null(),
        }
        self.make_room(0)
    }

    fn table(&mut self, table: &Table, depth: usize) -> Outcome {
        self.make_room(1)?;
        self.tables.count()?;
        for (name, is_error) in [("err", true), ("ok", false)] {
            let Value::String(text) = field(table, name) else { continue };
            self.make_room(text.as_bytes().len())?;
            let text = String::from_utf8_lossy(up_to_zero(&text.as_bytes())).into_owned();
            if is_error {
                self.out.error(&text);
            } else {
                self.out.simple(&text.replace(['\r', '\n'], " "));
            }
            return Ok(());
        }
        match field(table, "double") {
            Value::Number(number) => {
                self.out.double(number);
                return Ok(());
            }
            Value::Integer(number) => {
                self.out.double(number as f64);
                return Ok(());
            }
            _ => {}
        }
        if let Value::String(number) = field(table, "big_number") {
            self.make_room(number.as_bytes().len())?;
            let in_a_line = |byte: &u8| if b"\r\n".contains(byte) { b' ' } else { *byte };
            self.out.big_number(&number.as_bytes().iter().map(in_a_line).collect::<Vec<_>>());
            return Ok(());
        }
        if let Value::Table(text) = field(table, "verbatim_string")
            && let (Value::String(format), Value::String(text)) = (field(&text, "format"), field(&text, "string"))
        {
            self.make_room(text.as_bytes().len())?;
            // Three letters of the format count.
            let mut letters = *b"   ";
            letters.iter_mut().zip(&*format.as_bytes()).for_each(|(letter, given)| *letter = *given);
            self.out.verbatim_as(letters, &text.as_bytes());
            return Ok(());
        }
        let broken = |error: Error| Failure::new(format!("ERR Lua: {error}"));
        if let Value::Table(map) = field(table, "map") {
            self.out.map(map.pairs::<Value, Value>().count());
            for pair in map.pairs() {
                let (key, value) = pair.map_err(broken)?;
                self.value(&key, depth)?;
                self.value(&value, depth)?;
            }
            return Ok(());
        }
        if let Value::Table(set) = field(table, "set") {
            self.out.set(set.pairs::<Value, Value>().count());
            for pair in set.pairs::<Value, Value>() {
                self.value(&pair.map_err(broken)?.0, depth)?;
            }
            return Ok(());
        }
        let at = |place: usize| table.raw_get::<Value>(place).map_err(broken);
        let mut count = 0;
        while !at(count + 1)?.is_nil() {
            count += 1;
        }
        self.out.array(count);
        (1..=count).try_for_each(|place| self.value(&at(place)?, depth))
    }
}

fn field(table: &Table, name: &str) -> Value {
    table.raw_get(name).unwrap_or(Value::Nil)
}
