//! `cmsgpack`: `pack` and `unpack`.
//!
//! A number without a fraction is an integer. A table whose keys are 1 and up without gaps is an array, any other table
//! is a map. Unpacked values go to Lua piece by piece, because a single byte may become a table there.

use crate::script::text::{Patience, TableText};
use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use rmp::{Marker, encode};

/// How deeply tables may be nested.
const MAX_DEPTH: usize = 100;
/// Most values that are unpacked at once.
const MAX_VALUES: usize = 7000;

/// Makes the library. `must_end` fails when a script must end.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua, must_end: impl Fn() -> Result<()> + Clone + Send + 'static) -> Result<Table> {
    let library = lua.create_table()?;
    let unpacked_must_end = must_end.clone();
    library.set(
        "pack",
        lua.create_function(move |lua, values: MultiValue| {
            let mut text = TableText::new(&must_end);
            for value in &values {
                pack(value, &mut text, 0)?;
            }
            lua.create_string(text.bytes())
        })?,
    )?;
    library.set(
        "unpack",
        lua.create_function(move |lua, bytes: mlua::LuaString| {
            let bytes = bytes.as_bytes();
            let mut unpacker = Unpacker { lua, rest: &bytes, patience: Patience::new(&unpacked_must_end) };
            let mut values = MultiValue::new();
            while !unpacker.rest.is_empty() {
                if values.len() >= MAX_VALUES {
                    return Err(Error::runtime("too many results to unpack"));
                }
                values.push_back(unpacker.value(MAX_DEPTH)?);
            }
            Ok(values)
        })?,
    )?;
    Ok(library)
}

fn pack(value: &Value, text: &mut TableText<'_>, depth: usize) -> Result<()> {
    let mut head = Vec::new();
    let out = &mut head;
    match value {
        Value::Boolean(is_so) => encode::write_bool(out, *is_so).map_err(Error::external)?,
        Value::Integer(number) => _ = encode::write_sint(out, *number).map_err(Error::external)?,
        Value::Number(number) => pack_number(*number, out)?,
        Value::String(string) => {
            let bytes = string.as_bytes();
            let length = u32::try_from(bytes.len()).map_err(Error::external)?;
            let is_text = std::str::from_utf8(&bytes).is_ok();
            let written = if is_text { encode::write_str_len(out, length) } else { encode::write_bin_len(out, length) };
            written.map_err(Error::external)?;
            text.add(out)?;
            return text.add(&bytes);
        }
        Value::Table(table) if depth < MAX_DEPTH => return pack_table(table, text, depth),
        _ => encode::write_nil(out).map_err(Error::external)?,
    }
    text.add(out)
}

/// Returns a number as an integer, if it is one.
fn integer(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i64)
}

fn pack_number(number: f64, out: &mut Vec<u8>) -> Result<()> {
    match integer(number) {
        Some(integer) => encode::write_sint(out, integer).map(|_| ()),
        None if f64::from(number as f32) == number => encode::write_f32(out, number as f32),
        None => encode::write_f64(out, number),
    }
    .map_err(Error::external)
}

fn pack_table(table: &Table, text: &mut TableText<'_>, depth: usize) -> Result<()> {
    text.begin_table()?;
    let (mut count, mut most, mut has_places) = (0_u32, 0, true);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) => Some(place),
            Value::Number(place) => integer(place),
            _ => None,
        };
        has_places &= place.is_some_and(|place| place > 0);
        most = most.max(place.unwrap_or(0));
        count += 1;
    }
    let mut head = Vec::new();
    if has_places && most == i64::from(count) {
        encode::write_array_len(&mut head, count).map_err(Error::external)?;
        text.add(&head)?;
        return (1..=count).try_for_each(|place| pack(&table.raw_get(place)?, text, depth + 1));
    }
    encode::write_map_len(&mut head, count).map_err(Error::external)?;
    text.add(&head)?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack(&key, text, depth + 1)?;
        pack(&value, text, depth + 1)?;
    }
    Ok(())
}

/// Reads values.
struct Unpacker<'b> {
    lua: &'b Lua,
    rest: &'b [u8],
    patience: Patience<'b>,
}

impl<'b> Unpacker<'b> {
    fn broken() -> Error {
        Error::runtime("Bad data format in input.")
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(Self::broken)?;
        self.rest = rest;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Self::broken())
    }

    /// Reads a length of this many bytes.
    fn length(&mut self, bytes: usize) -> Result<usize> {
        Ok(self.take(bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    /// Reads a value in which others are nested less deeply than this.
    fn value(&mut self, depth: usize) -> Result<Value> {
        let depth = depth.checked_sub(1).ok_or_else(Self::broken)?;
        self.patience.count()?;
        let [marker] = self.bytes()?;
        Ok(match Marker::from_u8(marker) {
            Marker::Null | Marker::Reserved => Value::Nil,
            Marker::False => Value::Boolean(false),
            Marker::True => Value::Boolean(true),
            Marker::FixPos(number) => Value::Number(f64::from(number)),
            Marker::FixNeg(number) => Value::Number(f64::from(number)),
            Marker::U8 => Value::Number(f64::from(u8::from_be_bytes(self.bytes()?))),
            Marker::U16 => Value::Number(f64::from(u16::from_be_bytes(self.bytes()?))),
            Marker::U32 => Value::Number(f64::from(u32::from_be_bytes(self.bytes()?))),
            Marker::U64 => Value::Number(u64::from_be_bytes(self.bytes()?) as f64),
            Marker::I8 => Value::Number(f64::from(i8::from_be_bytes(self.bytes()?))),
            Marker::I16 => Value::Number(f64::from(i16::from_be_bytes(self.bytes()?))),
            Marker::I32 => Value::Number(f64::from(i32::from_be_bytes(self.bytes()?))),
            Marker::I64 => Value::Number(i64::from_be_bytes(self.bytes()?) as f64),
            Marker::F32 => Value::Number(f64::from(f32::from_be_bytes(self.bytes()?))),
            Marker::F64 => Value::Number(f64::from_be_bytes(self.bytes()?)),
            Marker::FixStr(length) => self.string(usize::from(length))?,
            Marker::Str8 | Marker::Bin8 => self.long_string(1)?,
            Marker::Str16 | Marker::Bin16 => self.long_string(2)?,
            Marker::Str32 | Marker::Bin32 => self.long_string(4)?,
            Marker::FixArray(length) => self.array(usize::from(length), depth)?,
            Marker::Array16 => self.long_array(2, depth)?,
            Marker::Array32 => self.long_array(4, depth)?,
            Marker::FixMap(length) => self.map(usize::from(length), depth)?,
            Marker::Map16 => self.long_map(2, depth)?,
            Marker::Map32 => self.long_map(4, depth)?,
            Marker::FixExt1 => self.skip(1)?,
            Marker::FixExt2 => self.skip(2)?,
            Marker::FixExt4 => self.skip(4)?,
            Marker::FixExt8 => self.skip(8)?,
            Marker::FixExt16 => self.skip(16)?,
            Marker::Ext8 => self.long_skip(1)?,
            Marker::Ext16 => self.long_skip(2)?,
            Marker::Ext32 => self.long_skip(4)?,
        })
    }

    fn string(&mut self, length: usize) -> Result<Value> {
        self.lua.create_string(self.take(length)?).map(Value::String)
    }

    fn long_string(&mut self, bytes: usize) -> Result<Value> {
        let length = self.length(bytes)?;
        self.string(length)
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for place in 1..=length {
            table.raw_set(place, self.value(depth)?)?;
        }
        Ok(Value::Table(table))
    }

    fn long_array(&mut self, bytes: usize, depth: usize) -> Result<Value> {
        let length = self.length(bytes)?;
        self.array(length, depth)
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value(depth)?, self.value(depth)?);
            if key.is_nil() || matches!(key, Value::Number(number) if number.is_nan()) {
                return Err(Self::broken());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn long_map(&mut self, bytes: usize, depth: usize) -> Result<Value> {
        let length = self.length(bytes)?;
        self.map(length, depth)
    }

    /// Skips an extension, which has a type and this many bytes.
    fn skip(&mut self, length: usize) -> Result<Value> {
        self.take(length + 1)?;
        Ok(Value::Nil)
    }

    fn long_skip(&mut self, bytes: usize) -> Result<Value> {
        let length = self.length(bytes)?;
        self.skip(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_bytes_and_back() {
        let lua = Lua::new();
        lua.globals().set("cmsgpack", library(&lua, || Ok(())).unwrap()).unwrap();
        for (expression, expected) in [
            (
                "cmsgpack.pack(1, -1, 300, 'ab', true):gsub('.', function(c) return ('%02x'):format(c:byte()) end)",
                "01ffcd012ca26162c3",
            ),
            (
                "cmsgpack.pack({1, 2}, {a = 1}, {}):gsub('.', function(c) return ('%02x'):format(c:byte()) end)",
                "92010281a1610190",
            ),
            ("cmsgpack.unpack(cmsgpack.pack({1, {x = 'y'}, 1.5}))[2].x", "y"),
            ("select('#', cmsgpack.unpack(cmsgpack.pack(1, 2, 3)))", "3"),
            ("pcall(cmsgpack.unpack, '\\146\\1')", "false"),
            (
                "cmsgpack.pack({7, [3] = 8}, 1.5, 0.1, -200, ('x'):rep(40), '\\255', 2^40, 0/0 ~= 0/0) \
                 == '\\130\\1\\7\\3\\8\\202\\63\\192\\0\\0\\203\\63\\185\\153\\153\\153\\153\\153\\154\\209\\255\\56\\217\\40' \
                 .. ('x'):rep(40) .. '\\196\\1\\255\\207\\0\\0\\1\\0\\0\\0\\0\\0\\195'",
                "true",
            ),
            ("pcall(cmsgpack.unpack, '\\221\\255\\255\\255\\255' .. ('\\192'):rep(9))", "false"),
            ("pcall(cmsgpack.unpack, ('\\192'):rep(7001))", "false"),
            ("pcall(cmsgpack.unpack, ('\\145'):rep(100) .. '\\192')", "false"),
            ("type(cmsgpack.unpack(('\\145'):rep(99) .. '\\192'))", "table"),
            ("select('#', cmsgpack.unpack('\\212\\1\\2\\199\\1\\5\\9\\7'))", "3"),
        ] {
            let found: String = lua.load(format!("return tostring(({expression}))")).eval().unwrap();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
