//! `cjson`: `encode`, `decode` and `null`.
//!
//! A table is an array if its keys are 1 and up, and not too few for the largest key. An empty table is an object.

use super::given::{Outcome, Problem, define, one_value};
use super::json_reader;
use crate::script::text::{Patience, TableText};
use crate::text::number::general_text;
use mlua::{Lua, Result, Table, Value};

/// How deeply tables may be nested.
const MAX_DEPTH: usize = 100;
/// Digits of a number.
const DIGITS: usize = 14;
/// An array with more places than the second number may have at most the first number times as many places as elements.
const SPARSE: (u64, u64) = (2, 10);

/// Makes the library. `must_end` fails when a script must end. The library's functions return as described in `given`.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua, must_end: impl Fn() -> Result<()> + Clone + Send + 'static) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("null", Value::NULL)?;
    define(lua, &library, "encode", must_end.clone(), |given, must_end| {
        let mut text = TableText::new(must_end);
        encode(&given.at(0), &mut text, 0)?;
        Ok(one_value(Value::String(given.lua.create_string(text.bytes())?)))
    })?;
    define(lua, &library, "decode", must_end, |given, must_end| {
        let text = given.text(0)?;
        json_reader::read(given.lua, &text.as_bytes(), &Patience::new(must_end)).map(one_value)
    })?;
    Ok(library)
}

fn refuse<T>(why: impl std::fmt::Display) -> Outcome<T> {
    Err(Problem::Raised(format!("Cannot serialise {why}")))
}

fn encode(value: &Value, text: &mut TableText<'_>, depth: usize) -> Outcome<()> {
    match value {
        Value::Nil => Ok(text.add(b"null")?),
        Value::LightUserData(pointer) if pointer.0.is_null() => Ok(text.add(b"null")?),
        Value::Boolean(is_so) => Ok(text.add(if *is_so { b"true" } else { b"false" })?),
        Value::Integer(number) => encode_number(*number as f64, text),
        Value::Number(number) => encode_number(*number, text),
        Value::String(string) => encode_string(&string.as_bytes(), text),
        Value::Table(_) if depth >= MAX_DEPTH => refuse(format_args!(", excessive depth ({})", depth + 1)),
        Value::Table(table) => {
            text.begin_table()?;
            match length(table)? {
                Some(length) => encode_array(table, length, text, depth),
                None => encode_object(table, text, depth),
            }
        }
        other => refuse(format_args!("{}: type not supported", other.type_name())),
    }
}

fn encode_array(table: &Table, length: u64, text: &mut TableText<'_>, depth: usize) -> Outcome<()> {
    text.add(b"[")?;
    for place in 1..=length {
        if place > 1 {
            text.add(b",")?;
        }
        encode(&table.raw_get(place)?, text, depth + 1)?;
    }
    Ok(text.add(b"]")?)
}

fn encode_object(table: &Table, text: &mut TableText<'_>, depth: usize) -> Outcome<()> {
    text.add(b"{")?;
    for (count, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if count > 0 {
            text.add(b",")?;
        }
        match &key {
            Value::String(string) => encode_string(&string.as_bytes(), text)?,
            Value::Integer(_) | Value::Number(_) => {
                text.add(b"\"")?;
                encode(&key, text, depth)?;
                text.add(b"\"")?;
            }
            _ => return refuse("table: table key must be a number or string"),
        }
        text.add(b":")?;
        encode(&value, text, depth + 1)?;
    }
    Ok(text.add(b"}")?)
}

fn encode_number(number: f64, text: &mut TableText<'_>) -> Outcome<()> {
    if !number.is_finite() {
        return refuse("number: must not be NaN or Inf");
    }
    Ok(text.add(general_text(number, DIGITS).as_bytes())?)
}

fn encode_string(bytes: &[u8], text: &mut TableText<'_>) -> Outcome<()> {
    let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | b'/' | 0..=31 | 127);
    text.add(b"\"")?;
    for part in bytes.split_inclusive(is_escaped) {
        let Some((&last, plain)) = part.split_last().filter(|(last, _)| is_escaped(last)) else {
            text.add(part)?;
            continue;
        };
        text.add(plain)?;
        match last {
            8 => text.add(b"\\b"),
            12 => text.add(b"\\f"),
            b'\n' => text.add(b"\\n"),
            b'\r' => text.add(b"\\r"),
            b'\t' => text.add(b"\\t"),
            0..=31 | 127 => text.add(format!("\\u{last:04x}").as_bytes()),
            _ => text.add(&[b'\\', last]),
        }?;
    }
    Ok(text.add(b"\"")?)
}

/// The length of a table that is an array; `None` if it is an object.
fn length(table: &Table) -> Outcome<Option<u64>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_text_and_back() {
        let lua = Lua::new();
        lua.globals().set("cjson", library(&lua, || Ok(())).unwrap()).unwrap();
        let raise = "for name, call in pairs({encode = cjson.encode, decode = cjson.decode}) do cjson[name] = function(...) \
                     local is_well, value = call(...) if is_well then return value end error(value, 0) end end";
        lua.load(raise).exec().unwrap();
        for (expression, expected) in [
            ("cjson.encode({1, 2.5, 'a/\"\\n', true, false, cjson.null})", r#"[1,2.5,"a\/\"\n",true,false,null]"#),
            ("cjson.encode('\\8\\12\\r\\t\\1\\127é')", r#""\b\f\r\t\u0001\u007fé""#),
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
