//! Reads JSON for `cjson.decode`, and what its C library also accepts: numbers as `strtod` reads them (`NaN`,
//! `-Infinity`, `0x1F`, `01`, `1.`, and `+5`), and any bytes in strings.

use super::given::{Outcome, Problem};
use crate::script::text::Patience;
use crate::text::hexadecimal::Hexadecimal;
use mlua::{Lua, Table, Value};

/// How deeply tables may be nested.
const MAX_DEPTH: usize = 100;

/// Returns the value of Lua that a text stands for.
///
/// # Errors
/// What is wrong with the text, and where; when the script must end.
pub(super) fn read(lua: &Lua, text: &[u8], patience: &Patience<'_>) -> Outcome<Value> {
    if matches!(text, [0, ..] | [_, 0, ..]) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut reader = Reader { lua, patience, text, at: 0 };
    let value = reader.value(0)?;
    match reader.token() {
        (_, Token::End) => Ok(value),
        other => unexpected("the end", &other),
    }
}

/// A piece of the text.
#[derive(Debug)]
enum Token {
    Begin(Container),
    End,
    EndOf(Container),
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    /// No token, and why.
    Wrong(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

impl Token {
    /// Returns what an error calls the token.
    const fn name(&self) -> &'static str {
        match self {
            Self::Begin(Container::Object) => "T_OBJ_BEGIN",
            Self::EndOf(Container::Object) => "T_OBJ_END",
            Self::Begin(Container::Array) => "T_ARR_BEGIN",
            Self::EndOf(Container::Array) => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(why) => why,
        }
    }
}

/// A token, and the place where it begins.
type Placed = (usize, Token);

fn unexpected<T>(expected: &str, (at, token): &Placed) -> Outcome<T> {
    Err(Problem::Raised(format!("Expected {expected} but found {} at character {}", token.name(), at + 1)))
}

struct Reader<'r> {
    lua: &'r Lua,
    patience: &'r Patience<'r>,
    text: &'r [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Outcome<Value> {
        let token = self.token();
        self.value_from(token, depth)
    }

    /// Reads the value that begins with a token, at this depth of tables.
    fn value_from(&mut self, token: Placed, depth: usize) -> Outcome<Value> {
        self.patience.count()?;
        match token {
            (_, Token::Begin(_)) if depth >= MAX_DEPTH => Err(Problem::Raised(format!(
                "Found too many nested data structures ({}) at character {}",
                depth + 1,
                self.at
            ))),
            (_, Token::Begin(Container::Array)) => self.array(depth + 1).map(Value::Table),
            (_, Token::Begin(Container::Object)) => self.object(depth + 1).map(Value::Table),
            (_, Token::Text(text)) => Ok(Value::String(self.lua.create_string(text)?)),
            (_, Token::Number(number)) => Ok(Value::Number(number)),
            (_, Token::Boolean(is_so)) => Ok(Value::Boolean(is_so)),
            (_, Token::Null) => Ok(Value::NULL),
            other => unexpected("value", &other),
        }
    }

    fn array(&mut self, depth: usize) -> Outcome<Table> {
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if matches!(token.1, Token::EndOf(Container::Array)) {
            return Ok(table);
        }
        for place in 1.. {
            table.raw_set(place, self.value_from(token, depth)?)?;
            match self.token() {
                (_, Token::EndOf(Container::Array)) => break,
                (_, Token::Comma) => token = self.token(),
                other => return unexpected("comma or array end", &other),
            }
        }
        Ok(table)
    }

    fn object(&mut self, depth: usize) -> Outcome<Table> {
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if matches!(token.1, Token::EndOf(Container::Object)) {
            return Ok(table);
        }
        loop {
            let (_, Token::Text(name)) = token else { return unexpected("object key string", &token) };
            let colon = self.token();
            if !matches!(colon.1, Token::Colon) {
                return unexpected("colon", &colon);
            }
            let value = self.value(depth)?;
            table.raw_set(self.lua.create_string(name)?, value)?;
            match self.token() {
                (_, Token::EndOf(Container::Object)) => return Ok(table),
                (_, Token::Comma) => token = self.token(),
                other => return unexpected("comma or object end", &other),
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&mut self) -> Placed {
        let spaces = self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.at += spaces;
        let at = self.at;
        let rest = self.rest();
        let (length, token) = match rest {
            [] | [0, ..] => (0, Token::End),
            [b'{', ..] => (1, Token::Begin(Container::Object)),
            [b'}', ..] => (1, Token::EndOf(Container::Object)),
            [b'[', ..] => (1, Token::Begin(Container::Array)),
            [b']', ..] => (1, Token::EndOf(Container::Array)),
            [b':', ..] => (1, Token::Colon),
            [b',', ..] => (1, Token::Comma),
            [b't', b'r', b'u', b'e', ..] => (4, Token::Boolean(true)),
            [b'f', b'a', b'l', b's', b'e', ..] => (5, Token::Boolean(false)),
            [b'n', b'u', b'l', b'l', ..] => (4, Token::Null),
            [b'"', ..] => {
                return match self.string() {
                    Ok(text) => (at, Token::Text(text)),
                    Err((at, why)) => (at, Token::Wrong(why)),
                };
            }
            [b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N', ..] => number(rest),
            _ => (0, Token::Wrong("invalid token")),
        };
        self.at += length;
        (at, token)
    }

    /// The text of a string, or what is wrong with it, and where.
    fn string(&mut self) -> std::result::Result<Vec<u8>, (usize, &'static str)> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = self.rest();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
            let (before, rest) = rest.split_at(plain);
            let at = self.at + plain;
            text.extend_from_slice(before);
            let length = match rest {
                [b'"', ..] => {
                    self.at = at + 1;
                    return Ok(text);
                }
                [b'\\', b'u', digits @ ..] => {
                    let (letter, length) = letter(digits).ok_or((at, "invalid unicode escape code"))?;
                    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                    2 + length
                }
                [b'\\', escaped, ..] => {
                    text.push(match escaped {
                        b'"' | b'\\' | b'/' => *escaped,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        _ => return Err((at, "invalid escape code")),
                    });
                    2
                }
                [b'\\'] => return Err((at, "invalid escape code")),
                _ => return Err((at, "unexpected end of string")),
            };
            self.at = at + length;
        }
    }
}

/// Returns the letter of four hexadecimal digits, or of a pair of such escapes, and how many bytes they take.
fn letter(digits: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = digits.get(from..from + 4)?.iter().map(|digit| char::from(*digit).to_digit(16));
        digits.into_iter().try_fold(0, |unit, digit| Some(unit * 16 + digit?))
    };
    let first = unit(0)?;
    if let Some(letter) = char::from_u32(first) {
        return Some((letter, 4));
    }
    let second = unit(6).filter(|_| digits.get(4..6) == Some(b"\\u"))?;
    let is_pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    let letter = is_pair.then(|| 0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff))?;
    Some((char::from_u32(letter)?, 10))
}

/// A number, as `strtod` reads it, and its length.
fn number(text: &[u8]) -> (usize, Token) {
    let (is_negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let begins_with = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let found = match unsigned {
        _ if begins_with(b"infinity") => Some((8, f64::INFINITY)),
        _ if begins_with(b"inf") => Some((3, f64::INFINITY)),
        _ if begins_with(b"nan") => Some((3 + payload(unsigned.get(3..).unwrap_or_default()), f64::NAN)),
        [b'0', b'x' | b'X', rest @ ..] => {
            hexadecimal(rest).map(|(length, number)| (2 + length, number)).or(Some((1, 0.0)))
        }
        _ => decimal(unsigned),
    };
    match found {
        Some((length, number)) => {
            (text.len() - unsigned.len() + length, Token::Number(if is_negative { -number } else { number }))
        }
        // A text that begins with a letter might have been another word.
        None if matches!(text, [b'-' | b'+', ..]) => (0, Token::Wrong("invalid number")),
        None => (0, Token::Wrong("invalid token")),
    }
}

/// The length of what may follow `NAN`: letters and digits between parentheses, which mean nothing here.
fn payload(text: &[u8]) -> usize {
    let Some(inner) = text.strip_prefix(b"(") else { return 0 };
    let length = inner.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if inner.get(length) == Some(&b')') { length + 2 } else { 0 }
}

/// The length of digits, perhaps with a point and more of them; `None` when there is no digit.
fn mantissa(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<usize> {
    let whole = text.iter().take_while(|byte| is_digit(byte)).count();
    let fraction = match text.get(whole..) {
        Some([b'.', rest @ ..]) => Some(rest.iter().take_while(|byte| is_digit(byte)).count()),
        _ => None,
    };
    let has_digits = whole + fraction.unwrap_or(0) > 0;
    has_digits.then(|| whole + fraction.map_or(0, |length| 1 + length))
}

/// The length of an exponent: one of these letters, perhaps a sign, and digits. Zero without an exponent.
fn exponent(text: &[u8], letters: [u8; 2]) -> usize {
    let signs = match text {
        [letter, b'+' | b'-', ..] if letters.contains(letter) => 2,
        [letter, ..] if letters.contains(letter) => 1,
        _ => return 0,
    };
    let digits = text.iter().skip(signs).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { 0 } else { signs + digits }
}

fn decimal(text: &[u8]) -> Option<(usize, f64)> {
    let length = mantissa(text, u8::is_ascii_digit)?;
    let length = length + exponent(text.get(length..)?, *b"eE");
    let number = std::str::from_utf8(text.get(..length)?).ok()?.parse().ok()?;
    Some((length, number))
}

/// What follows `0x`.
fn hexadecimal(text: &[u8]) -> Option<(usize, f64)> {
    let length = mantissa(text, u8::is_ascii_hexdigit)?;
    let length = length + exponent(text.get(length..)?, *b"pP");
    let number = Hexadecimal::behind_prefix(text.get(..length)?)?;
    Some((length, number.nearest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a text, or what is wrong with it.
    fn said(text: &[u8]) -> String {
        let lua = Lua::new();
        let must_end = || Ok(());
        match read(&lua, text, &Patience::new(&must_end)) {
            Ok(value) => {
                let shown = lua.load("local v = ... return type(v) == 'table' and 'table' or tostring(v)");
                shown.call::<mlua::LuaString>(value).unwrap().to_string_lossy()
            }
            Err(Problem::Raised(why)) => why,
            Err(Problem::Failed(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn numbers_are_those_that_c_reads() {
        for (text, number) in [
            ("NaN", "nan"),
            ("-NaN", "-nan"),
            ("nan(1_a)", "nan"),
            ("Infinity", "inf"),
            ("-Infinity", "-inf"),
            ("INF", "inf"),
            ("0x10", "16"),
            ("-0X1f", "-31"),
            ("0x1.8p1", "3"),
            ("0x.8", "0.5"),
            ("0x1p-1", "0.5"),
            ("0x1p99999999999999999999", "inf"),
            ("0x1p-99999999999999999999", "0"),
            ("01", "1"),
            ("00", "0"),
            ("1.", "1"),
            ("1.e5", "100000"),
            ("+5", "5"),
            ("1e400", "inf"),
            ("1e-400", "0"),
            ("-0.5E+1", "-5"),
        ] {
            assert_eq!(said(text.as_bytes()), number, "{text}");
        }
        let exact = |text: &[u8]| match number(text) {
            (length, Token::Number(number)) if length == text.len() => number,
            other => panic!("{other:?}"),
        };
        // A half is rounded to even, and more than a half is rounded up.
        assert_eq!(exact(b"0x20000000000001"), 9_007_199_254_740_992.0);
        assert_eq!(exact(b"0x200000000000010000000000000000001"), 2_f64.powi(129) + 2_f64.powi(77));
        assert_eq!(exact(b"0x1.fffffffffffff"), 2.0 - f64::EPSILON);
    }

    #[test]
    fn what_is_wrong_is_said_as_by_the_c_library() {
        for (text, why) in [
            ("", "value but found T_END at character 1"),
            ("[", "value but found T_END at character 2"),
            ("[1 2]", "comma or array end but found T_NUMBER at character 4"),
            ("[1,]", "value but found T_ARR_END at character 4"),
            ("[1,\0]", "value but found T_END at character 4"),
            ("[1", "comma or array end but found T_END at character 3"),
            ("{", "object key string but found T_END at character 2"),
            ("{\"a\" 1}", "colon but found T_NUMBER at character 6"),
            ("{\"a\":1]", "comma or object end but found T_ARR_END at character 7"),
            ("{\"a\":1,}", "object key string but found T_OBJ_END at character 8"),
            ("\"abc", "value but found unexpected end of string at character 5"),
            ("\"\\x\"", "value but found invalid escape code at character 2"),
            ("\"\\", "value but found invalid escape code at character 2"),
            ("\"\\u12\"", "value but found invalid unicode escape code at character 2"),
            ("\"\\ud800\\u0041\"", "value but found invalid unicode escape code at character 2"),
            ("\"\\udc00\"", "value but found invalid unicode escape code at character 2"),
            ("1 1", "the end but found T_NUMBER at character 3"),
            ("truex", "the end but found invalid token at character 5"),
            ("tru", "value but found invalid token at character 1"),
            ("nil", "value but found invalid token at character 1"),
            (".5", "value but found invalid token at character 1"),
            ("-", "value but found invalid number at character 1"),
            ("-.", "value but found invalid number at character 1"),
            ("1e", "the end but found invalid token at character 2"),
            ("0x", "the end but found invalid token at character 2"),
            ("[nano]", "comma or array end but found invalid token at character 5"),
        ] {
            assert_eq!(said(text.as_bytes()), format!("Expected {why}"), "{text}");
        }
        assert_eq!(said(b"[\0]"), "JSON parser does not support UTF-16 or UTF-32");
        let deep = [vec![b'['; 100], vec![b']'; 100]].concat();
        assert_eq!(said(&deep), "table");
        let why = "Found too many nested data structures (101) at character 101";
        assert_eq!(said(&[b"[", &deep[..], b"]"].concat()), why);
    }

    #[test]
    fn strings_hold_any_bytes() {
        assert_eq!(said(b"\"\\u00e9\\u20AC\\ud83d\\ude00\\\"\\/\\\\\""), "é€😀\"/\\");
        let lua = Lua::new();
        let must_end = || Ok(());
        let value = read(&lua, b"\"a\t\x01\xff\\u0000\"", &Patience::new(&must_end)).ok().unwrap();
        assert_eq!(value.as_string().unwrap().as_bytes()[..], *b"a\t\x01\xff\0");
    }
}
