//! `cmsgpack`: `pack` and `unpack`.
//!
//! A number without a fraction is an integer. A table whose keys are 1 and up without gaps is an array, any other is a map.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use rmpv::Value as Packed;

/// How deep tables may be within each other.
const MAX_DEPTH: usize = 100;

/// The library.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set(
        "pack",
        lua.create_function(|lua, values: MultiValue| {
            let mut bytes = Vec::new();
            for value in &values {
                rmpv::encode::write_value(&mut bytes, &packed(value, 0)?).map_err(Error::external)?;
            }
            lua.create_string(bytes)
        })?,
    )?;
    library.set(
        "unpack",
        lua.create_function(|lua, bytes: mlua::LuaString| {
            let bytes = bytes.as_bytes();
            let mut rest = &bytes[..];
            let mut values = MultiValue::new();
            while !rest.is_empty() {
                let value = rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH);
                values.push_back(unpacked(lua, value.map_err(|_| Error::runtime("Bad data format in input."))?)?);
            }
            Ok(values)
        })?,
    )?;
    Ok(library)
}

fn packed(value: &Value, depth: usize) -> Result<Packed> {
    Ok(match value {
        Value::Boolean(is_so) => Packed::Boolean(*is_so),
        Value::Integer(number) => Packed::from(*number),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => Packed::from(*number as i64),
        Value::Number(number) if f64::from(*number as f32) == *number => Packed::F32(*number as f32),
        Value::Number(number) => Packed::F64(*number),
        Value::String(text) => match text.to_str() {
            Ok(text) => Packed::from(&*text),
            Err(_) => Packed::Binary(text.as_bytes().to_vec()),
        },
        Value::Table(table) if depth < MAX_DEPTH => packed_table(table, depth)?,
        _ => Packed::Nil,
    })
}

fn packed_table(table: &Table, depth: usize) -> Result<Packed> {
    let mut pairs = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pairs.push((packed(&key, depth + 1)?, packed(&value, depth + 1)?));
    }
    let mut places: Vec<Option<u64>> = pairs.iter().map(|(key, _)| key.as_u64()).collect();
    places.sort_unstable();
    let is_array = places.iter().zip(1..).all(|(place, expected)| *place == Some(expected));
    if !is_array || pairs.is_empty() {
        return Ok(if pairs.is_empty() { Packed::Array(Vec::new()) } else { Packed::Map(pairs) });
    }
    pairs.sort_by_key(|(key, _)| key.as_u64());
    Ok(Packed::Array(pairs.into_iter().map(|(_, value)| value).collect()))
}

fn unpacked(lua: &Lua, value: Packed) -> Result<Value> {
    Ok(match value {
        Packed::Nil | Packed::Ext(..) => Value::Nil,
        Packed::Boolean(is_so) => Value::Boolean(is_so),
        Packed::Integer(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Packed::F32(number) => Value::Number(f64::from(number)),
        Packed::F64(number) => Value::Number(number),
        Packed::String(text) => Value::String(lua.create_string(text.as_bytes())?),
        Packed::Binary(bytes) => Value::String(lua.create_string(bytes)?),
        Packed::Array(values) => {
            let table = lua.create_table_with_capacity(values.len().min(1024), 0)?;
            for (place, value) in (1..).zip(values) {
                table.raw_set(place, unpacked(lua, value)?)?;
            }
            Value::Table(table)
        }
        Packed::Map(pairs) => {
            let table = lua.create_table()?;
            for (key, value) in pairs {
                let key = unpacked(lua, key)?;
                if key.is_nil() || matches!(key, Value::Number(number) if number.is_nan()) {
                    return Err(Error::runtime("Bad data format in input."));
                }
                table.raw_set(key, unpacked(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_bytes_and_back() {
        let lua = Lua::new();
        lua.globals().set("cmsgpack", library(&lua).unwrap()).unwrap();
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
        ] {
            let found: String = lua.load(format!("return tostring(({expression}))")).eval().unwrap();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
