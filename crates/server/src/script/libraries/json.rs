//! `cjson`: `encode`, `decode` and `null`.
//!
//! A table is an array if its keys are 1 and up, and not too few for the largest; an empty one is an object. Text that is
//! decoded must be UTF-8.

use crate::text::number::general_text;
use mlua::{Error, Lua, Result, Table, Value};

/// How deep tables may be within each other.
const MAX_DEPTH: usize = 100;
/// Digits of a number.
const DIGITS: usize = 14;
/// An array may have this many times fewer elements than places, if it has more places than the next number says.
const SPARSE: (u64, u64) = (2, 10);

/// The library.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("null", Value::NULL)?;
    library.set(
        "encode",
        lua.create_function(|lua, value: Value| {
            let mut text = Vec::new();
            encode(&value, &mut text, 0)?;
            lua.create_string(text)
        })?,
    )?;
    library.set(
        "decode",
        lua.create_function(|lua, text: mlua::LuaString| {
            let parsed =
                serde_json::from_slice(&text.as_bytes()).map_err(|error| Error::runtime(format!("JSON: {error}")))?;
            decode(lua, &parsed)
        })?,
    )?;
    Ok(library)
}

fn refuse<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::runtime(format!("Cannot serialise {why}")))
}

fn encode(value: &Value, text: &mut Vec<u8>, depth: usize) -> Result<()> {
    match value {
        Value::Nil => text.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => text.extend_from_slice(b"null"),
        Value::Boolean(is_so) => text.extend_from_slice(if *is_so { b"true" } else { b"false" }),
        Value::Integer(number) => encode_number(*number as f64, text)?,
        Value::Number(number) => encode_number(*number, text)?,
        Value::String(string) => encode_string(&string.as_bytes(), text),
        Value::Table(_) if depth >= MAX_DEPTH => return refuse(format_args!(", excessive depth ({})", depth + 1)),
        Value::Table(table) => match length(table)? {
            Some(length) => {
                text.push(b'[');
                for place in 1..=length {
                    if place > 1 {
                        text.push(b',');
                    }
                    encode(&table.raw_get(place)?, text, depth + 1)?;
                }
                text.push(b']');
            }
            None => encode_object(table, text, depth)?,
        },
        other => return refuse(format_args!("{}: type not supported", other.type_name())),
    }
    Ok(())
}

fn encode_object(table: &Table, text: &mut Vec<u8>, depth: usize) -> Result<()> {
    text.push(b'{');
    for (count, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if count > 0 {
            text.push(b',');
        }
        match &key {
            Value::String(string) => encode_string(&string.as_bytes(), text),
            Value::Integer(_) | Value::Number(_) => {
                text.push(b'"');
                encode(&key, text, depth)?;
                text.push(b'"');
            }
            _ => return refuse("table: table key must be a number or string"),
        }
        text.push(b':');
        encode(&value, text, depth + 1)?;
    }
    text.push(b'}');
    Ok(())
}

fn encode_number(number: f64, text: &mut Vec<u8>) -> Result<()> {
    if !number.is_finite() {
        return refuse("number: must not be NaN or Inf");
    }
    text.extend_from_slice(general_text(number, DIGITS).as_bytes());
    Ok(())
}

fn encode_string(bytes: &[u8], text: &mut Vec<u8>) {
    text.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | b'/' => text.extend([b'\\', byte]),
            8 => text.extend_from_slice(b"\\b"),
            12 => text.extend_from_slice(b"\\f"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            0..=31 | 127 => text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => text.push(byte),
        }
    }
    text.push(b'"');
}

/// The length of a table that is an array; `None` if it is an object.
fn length(table: &Table) -> Result<Option<u64>> {
    let (mut most, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) => u64::try_from(place).ok(),
            Value::Number(place) if place.fract() == 0.0 && (1.0..9e15).contains(&place) => Some(place as u64),
            _ => None,
        };
        let Some(place) = place.filter(|&place| place > 0) else { return Ok(None) };
        most = most.max(place);
        count += 1;
    }
    if most > SPARSE.1 && most > count * SPARSE.0 {
        return refuse("table: excessively sparse array");
    }
    Ok((most > 0).then_some(most))
}

fn decode(lua: &Lua, value: &serde_json::Value) -> Result<Value> {
    Ok(match value {
        serde_json::Value::Null => Value::NULL,
        serde_json::Value::Bool(is_so) => Value::Boolean(*is_so),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for (place, value) in (1..).zip(values) {
                table.raw_set(place, decode(lua, value)?)?;
            }
            Value::Table(table)
        }
        serde_json::Value::Object(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (name, value) in pairs {
                table.raw_set(lua.create_string(name)?, decode(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_text_and_back() {
        let lua = Lua::new();
        lua.globals().set("cjson", library(&lua).unwrap()).unwrap();
        for (expression, expected) in [
            ("cjson.encode({1, 2.5, 'a/\"\\n', true, false, cjson.null})", r#"[1,2.5,"a\/\"\n",true,false,null]"#),
            ("cjson.encode({})", "{}"),
            ("cjson.encode({a = {b = {}}})", r#"{"a":{"b":{}}}"#),
            ("cjson.encode({[1] = 1, [3] = 3})", "[1,null,3]"),
            ("cjson.encode(0.1)", "0.1"),
            ("cjson.encode(1e15)", "1e+15"),
            ("cjson.encode(12345678901234)", "12345678901234"),
            ("cjson.decode('[1, {\"a\": [null, \"x\"]}]')[2].a[2]", "x"),
            ("cjson.decode('[null]')[1] == cjson.null", "true"),
            ("cjson.decode('-1.5e3')", "-1500"),
            (
                "select(2, pcall(cjson.encode, {[100] = 1})):match('excessively sparse array')",
                "excessively sparse array",
            ),
            ("select(2, pcall(cjson.encode, 1/0)):match('must not be NaN or Inf')", "must not be NaN or Inf"),
            ("select(2, pcall(cjson.encode, print)):match('type not supported')", "type not supported"),
            ("pcall(cjson.decode, '[')", "false"),
        ] {
            let expression =
                expression.replace("select(2, pcall(", "tostring(select(2, pcall(").replace(")):match", "))):match");
            let found: String = lua.load(format!("return tostring(({expression}))")).eval().unwrap();
            assert_eq!(found, expected, "{expression}");
        }
        let nested = "local t = {} t.t = t return pcall(cjson.encode, t)";
        assert!(!lua.load(nested).eval::<bool>().unwrap());
    }
}
