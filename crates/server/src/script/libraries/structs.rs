//! `struct`: numbers and strings as bytes, in the layouts of C, with `pack`, `unpack` and `size`.
//!
//! A format has a letter for each value:
//!
//! | letter | what |
//! |---|---|
//! | `b`, `h`, `i`, `l` | an integer of 1, 2, 4, 8 bytes; `i` with a number: of this many, at most 32; in capitals without a sign |
//! | `T` | as `L` |
//! | `f`, `d` | a number with a fraction, of 4 and 8 bytes |
//! | `c` | a byte of a string; with a number: this many bytes; `c0`: all of it, and when it is read, as many as the number before says |
//! | `s` | a string, and a zero byte after it |
//! | `x` | a byte of padding |
//! | `<`, `>` | little-endian from here on, as at first; big-endian |
//! | `!` | each value from here on is aligned to its size, at most to 8 bytes; with a number: at most to this many |

use crate::text::shown::short;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

/// The largest integer, in bytes.
const MAX_INTEGER_BYTES: usize = 32;
/// The alignment of `!` without a number.
const MAX_ALIGNMENT: usize = 8;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// The library.
///
/// # Errors
/// Those of Lua.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    let pack = |lua: &Lua, values: MultiValue| {
        let bytes = pack(&Given::new(lua, values)).map_err(|problem| problem.raise(lua, "pack"))?;
        lua.create_string(bytes)
    };
    library.set("pack", lua.create_function(pack)?)?;
    let unpack = |lua: &Lua, values: MultiValue| {
        let values = unpack(&Given::new(lua, values)).map_err(|problem| problem.raise(lua, "unpack"))?;
        Ok(MultiValue::from_iter(values))
    };
    library.set("unpack", lua.create_function(unpack)?)?;
    let size =
        |lua: &Lua, values: MultiValue| size(&Given::new(lua, values)).map_err(|problem| problem.raise(lua, "size"));
    library.set("size", lua.create_function(size)?)?;
    Ok(library)
}

/// What is wrong with a call.
#[derive(Debug)]
enum Problem {
    /// The argument of this number is wrong.
    Argument(usize, String),
    /// The arguments are wrong together.
    Call(String),
    /// Lua failed.
    Lua(Error),
}

impl Problem {
    fn call(text: &str) -> Self {
        Self::Call(text.to_owned())
    }

    fn argument(number: usize, text: &str) -> Self {
        Self::Argument(number, text.to_owned())
    }

    fn option(letter: u8) -> Self {
        Self::Argument(1, format!("invalid format option '{}'", short(&[letter], 1)))
    }

    /// Returns an error of Lua, with the place of the call in front.
    fn raise(self, lua: &Lua, function: &str) -> Error {
        let text = match self {
            Self::Argument(number, text) => format!("bad argument #{number} to '{function}' ({text})"),
            Self::Call(text) => text,
            Self::Lua(error) => return error,
        };
        let place = lua.inspect_stack(1, |debug| {
            let source = debug.source().short_src.map(|source| source.into_owned());
            source.zip(debug.current_line()).map(|(source, line)| format!("{source}:{line}: "))
        });
        Error::runtime(place.flatten().unwrap_or_default() + &text)
    }
}

type Found<T> = std::result::Result<T, Problem>;

/// The arguments of a call, which are numbered from 1.
struct Given<'l> {
    lua: &'l Lua,
    values: Vec<Value>,
}

impl<'l> Given<'l> {
    fn new(lua: &'l Lua, values: MultiValue) -> Self {
        Self { lua, values: values.into_iter().collect() }
    }

    fn expected(&self, number: usize, what: &str, missing: &'static str) -> Problem {
        let found = self.values.get(number - 1).map_or(missing, Value::type_name);
        let found = if found == "integer" { "number" } else { found };
        Problem::Argument(number, format!("{what} expected, got {found}"))
    }

    fn value(&self, number: usize) -> Value {
        self.values.get(number - 1).cloned().unwrap_or(Value::Nil)
    }

    fn string(&self, number: usize, missing: &'static str) -> Found<LuaString> {
        let found = self.lua.coerce_string(self.value(number)).map_err(Problem::Lua)?;
        found.ok_or_else(|| self.expected(number, "string", missing))
    }

    fn number(&self, number: usize) -> Found<f64> {
        let found = self.lua.coerce_number(self.value(number)).map_err(Problem::Lua)?;
        found.ok_or_else(|| self.expected(number, "number", "nil"))
    }
}

/// A value of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Integer {
        is_signed: bool,
    },
    Single,
    Double,
    Bytes,
    Text,
    Padding,
    /// No value: it changes what follows.
    Nothing,
}

/// Reads a format from the front.
struct Format<'f> {
    rest: &'f [u8],
    is_big: bool,
    alignment: usize,
    /// Whether unknown letters are skipped.
    is_lenient: bool,
}

/// A value of a format, its size in bytes, and how many bytes to skip before it.
struct Field {
    item: Item,
    size: usize,
    padding: usize,
}

impl<'f> Format<'f> {
    const fn new(text: &'f [u8]) -> Self {
        Self { rest: text, is_big: false, alignment: 1, is_lenient: false }
    }

    /// Reads the number that follows, if there is one.
    fn number(&mut self, otherwise: usize) -> Found<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(otherwise);
        }
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<i32>().ok());
        number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| Problem::call("integral size overflow"))
    }

    /// Returns the next field, which comes after this many bytes.
    fn next(&mut self, at: usize) -> Found<Option<Field>> {
        let Some((&letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let integer = Item::Integer { is_signed: letter.is_ascii_lowercase() };
        let (item, size) = match letter {
            b'b' | b'B' => (integer, 1),
            b'h' | b'H' => (integer, 2),
            b'l' | b'L' | b'T' => (integer, 8),
            b'i' | b'I' => (integer, self.number(4)?),
            b'f' => (Item::Single, 4),
            b'd' => (Item::Double, 8),
            b'x' => (Item::Padding, 1),
            b's' => (Item::Text, 0),
            b'c' => (Item::Bytes, self.number(1)?),
            _ => {
                self.control(letter)?;
                (Item::Nothing, 0)
            }
        };
        if matches!(item, Item::Integer { .. }) && size > MAX_INTEGER_BYTES {
            let text = format!("integral size {size} is larger than limit of {MAX_INTEGER_BYTES}");
            return Err(Problem::Call(text));
        }
        let alignment = if size == 0 || item == Item::Bytes { 1 } else { size.min(self.alignment) };
        // As in the C library, which aligns sizes that are no power of two in its own way.
        let padding = alignment.wrapping_sub(at & (alignment - 1)) & (alignment - 1);
        Ok(Some(Field { item, size, padding }))
    }

    fn control(&mut self, letter: u8) -> Found<()> {
        match letter {
            b' ' => {}
            b'<' => self.is_big = false,
            b'>' => self.is_big = true,
            b'!' => {
                self.alignment = self.number(MAX_ALIGNMENT)?;
                if !self.alignment.is_power_of_two() {
                    return Err(Problem::Call(format!("alignment {} is not a power of 2", self.alignment)));
                }
            }
            _ if self.is_lenient && letter.is_ascii_alphanumeric() => {}
            _ => return Err(Problem::option(letter)),
        }
        Ok(())
    }

    /// Converts bytes between little-endian order and the order of the format, in either direction.
    fn ordered<'b>(&self, bytes: &'b mut [u8]) -> &'b mut [u8] {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

/// The integer of a number, modulo 2^64.
fn word_of(number: f64) -> u64 {
    if number.is_nan() {
        1 << 63
    } else if number < 0.0 {
        number as i64 as u64
    } else if number < TWO_TO_64 {
        number as u64
    } else {
        0
    }
}

fn pack(given: &Given<'_>) -> Found<Vec<u8>> {
    let format = given.string(1, "no value")?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let (mut bytes, mut argument) = (Vec::new(), 1);
    while let Some(Field { item, size, padding }) = format.next(bytes.len())? {
        bytes.resize(bytes.len() + padding, 0);
        argument += usize::from(!matches!(item, Item::Padding | Item::Nothing));
        match item {
            Item::Integer { .. } => {
                let mut all = [0; MAX_INTEGER_BYTES];
                for (to, from) in all.iter_mut().zip(word_of(given.number(argument)?).to_le_bytes()) {
                    *to = from;
                }
                bytes.extend_from_slice(format.ordered(all.get_mut(..size).unwrap_or_default()));
            }
            Item::Single => {
                bytes.extend_from_slice(format.ordered(&mut (given.number(argument)? as f32).to_le_bytes()))
            }
            Item::Double => bytes.extend_from_slice(format.ordered(&mut given.number(argument)?.to_le_bytes())),
            Item::Bytes | Item::Text => {
                let text = given.string(argument, "nil")?;
                let text = text.as_bytes();
                let wanted = if size == 0 { text.len() } else { size };
                let part = text.get(..wanted).ok_or_else(|| Problem::argument(argument + 1, "string too short"))?;
                bytes.extend_from_slice(part);
                bytes.extend((item == Item::Text).then_some(0));
            }
            Item::Padding => bytes.push(0),
            Item::Nothing => {}
        }
    }
    Ok(bytes)
}

fn unpack(given: &Given<'_>) -> Found<Vec<Value>> {
    let (format, data) = (given.string(1, "no value")?, given.string(2, "no value")?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let mut format = Format::new(&format);
    let from = if given.value(3).is_nil() { 1.0 } else { given.number(3)? };
    if from > -1.0 && from < 1.0 {
        return Err(Problem::argument(3, "offset must be 1 or greater"));
    }
    let too_short = || Problem::argument(2, "data string too short");
    // A negative place is far beyond the end.
    let mut at = if from < 0.0 { usize::MAX } else { (from as usize).saturating_sub(1) };
    let mut values: Vec<Value> = Vec::new();
    while let Some(Field { item, size, padding }) = format.next(at)? {
        at = at.checked_add(padding).ok_or_else(too_short)?;
        let rest = data.get(at..).filter(|rest| rest.len() >= size).ok_or_else(too_short)?;
        let mut field = rest.get(..size).unwrap_or_default().to_vec();
        let mut taken = size;
        let number = match item {
            Item::Integer { is_signed } => Some(integer(format.ordered(&mut field), is_signed)),
            Item::Single => format.ordered(&mut field).first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes))),
            Item::Double => format.ordered(&mut field).first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
            _ => None,
        };
        values.extend(number.map(Value::Number));
        let text = match item {
            Item::Bytes if size == 0 => {
                let before = values.pop().and_then(|value| given.lua.coerce_number(value).ok().flatten());
                let count = before.ok_or_else(|| Problem::call("format 'c0' needs a previous size"))?;
                taken = if count < 0.0 { usize::MAX } else { count as usize };
                Some(rest.get(..taken).ok_or_else(too_short)?)
            }
            Item::Bytes => rest.get(..size),
            Item::Text => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| Problem::call("unfinished string in data"))?;
                taken = end + 1;
                rest.get(..end)
            }
            _ => None,
        };
        if let Some(text) = text {
            values.push(Value::String(given.lua.create_string(text).map_err(Problem::Lua)?));
        }
        at += taken;
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(values)
}

/// The integer of little-endian bytes.
fn integer(bytes: &[u8], is_signed: bool) -> f64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    let word = u64::from_le_bytes(word);
    if !is_signed {
        return word as f64;
    }
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    ((word << unused) as i64 >> unused) as f64
}

fn size(given: &Given<'_>) -> Found<usize> {
    let format = given.string(1, "no value")?;
    let format = format.as_bytes();
    let mut format = Format { is_lenient: true, ..Format::new(&format) };
    let mut bytes: usize = 0;
    while let Some(Field { item, size, padding }) = format.next(bytes)? {
        match item {
            Item::Text => return Err(Problem::argument(1, "option 's' has no fixed size")),
            Item::Bytes if size == 0 => return Err(Problem::argument(1, "option 'c0' has no fixed size")),
            _ => bytes = bytes.saturating_add(padding).saturating_add(size),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_bytes_and_back() {
        let lua = Lua::new();
        lua.globals().set("struct", library(&lua).unwrap()).unwrap();
        let hex = "gsub('.', function(c) return ('%02x'):format(c:byte()) end)";
        for (expression, expected) in [
            (format!("struct.pack('<i2>i2', -2, -3):{hex}"), "fefffffd"),
            (format!("struct.pack('>!8bdhs', 1, 2.5, 5, 'xy'):{hex}"), "010000000000000040040000000000000005787900"),
            (format!("struct.pack('i3 c2 x c0', 70000, 'abc', 'de'):{hex}"), "7011016162006465"),
            (format!("struct.pack('>f', 0.5):{hex}"), "3f000000"),
            ("struct.size('!8bdhc3')".into(), "21"),
            ("struct.size('b!2i')".into(), "6"),
            ("table.concat({struct.unpack('<bc0 h s', '\\3abc\\255\\255de\\0')}, ' ')".into(), "abc -1 de 10"),
            ("table.concat({struct.unpack('>I2', 'xx\\1\\2', 3)}, ' ')".into(), "258 5"),
            (
                "tostring((select(2, pcall(struct.unpack, 'i', 'abc')))):match('%((.-)%)')".into(),
                "data string too short",
            ),
            (
                "tostring((select(2, pcall(struct.pack, 'i33', 1)))):match('integral .- of %d+')".into(),
                "integral size 33 is larger than limit of 32",
            ),
            ("tostring((select(2, pcall(struct.pack, 'q', 1)))):match('%((.-)%)')".into(), "invalid format option 'q'"),
        ] {
            let found: String = lua.load(format!("return tostring(({expression}))")).eval().unwrap();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
