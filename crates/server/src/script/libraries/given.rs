//! The arguments and results of functions that replace Lua's.
//!
//! Such a function returns true and its results, or false and the text of an error, which `prelude.lua` raises where the
//! function was called.

use crate::script::matching::Stop;
use crate::script::text::TooLong;
use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

/// The first number beyond 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Why a function failed.
pub(super) enum Problem {
    /// The text of an error for the caller.
    Raised(String),
    /// The whole script must end, or Lua failed.
    Failed(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self::Raised(text.to_owned())
    }
}

impl From<Stop<Error>> for Problem {
    fn from(stop: Stop<Error>) -> Self {
        match stop {
            Stop::Wrong(text) => text.into(),
            Stop::Ended(error) => Self::Failed(error),
        }
    }
}

impl From<TooLong> for Problem {
    fn from(_: TooLong) -> Self {
        TooLong::TEXT.into()
    }
}

/// The result of a function.
pub(super) type Outcome<T> = std::result::Result<T, Problem>;

/// Adds a function of this name to a library.
///
/// # Errors
/// Those of Lua.
pub(super) fn define<F: Send + 'static>(
    lua: &Lua,
    library: &Table,
    name: &'static str,
    must_end: F,
    body: impl Fn(&Given<'_>, &F) -> Outcome<MultiValue> + Send + 'static,
) -> Result<()> {
    let function = lua.create_function(move |lua, values: MultiValue| {
        let outcome = body(&Given { lua, name, values }, &must_end);
        told(lua, outcome)
    })?;
    library.set(name, function)
}

/// What a function returns.
pub(super) fn told(lua: &Lua, outcome: Outcome<MultiValue>) -> Result<MultiValue> {
    match outcome {
        Ok(mut values) => {
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(Problem::Raised(text)) => (false, text).into_lua_multi(lua),
        Err(Problem::Failed(error)) => Err(error),
    }
}

pub(super) fn one_value(value: Value) -> MultiValue {
    MultiValue::from_iter([value])
}

/// The arguments of a function of this name.
pub(super) struct Given<'l> {
    pub(super) lua: &'l Lua,
    name: &'static str,
    values: MultiValue,
}

impl Given<'_> {
    pub(super) fn at(&self, place: usize) -> Value {
        self.values.get(place).cloned().unwrap_or(Value::Nil)
    }

    pub(super) fn text(&self, place: usize) -> Outcome<LuaString> {
        let text = self.lua.coerce_string(self.at(place))?;
        text.ok_or_else(|| self.wrong_type(place, "string"))
    }

    /// Returns the integer at a place, if there is an argument.
    pub(super) fn integer(&self, place: usize) -> Outcome<Option<i64>> {
        match self.at(place) {
            Value::Nil => Ok(None),
            value => {
                let number = self.lua.coerce_number(value)?.ok_or_else(|| self.wrong_type(place, "number"))?;
                // Converts as the processor does.
                let is_one = (-TWO_TO_63..TWO_TO_63).contains(&number);
                Ok(Some(if is_one { number as i64 } else { i64::MIN }))
            }
        }
    }

    pub(super) fn table(&self, place: usize) -> Outcome<Table> {
        self.at(place).as_table().cloned().ok_or_else(|| self.wrong_type(place, "table"))
    }

    pub(super) fn wrong_type(&self, place: usize, expected: &str) -> Problem {
        let actual = self.values.get(place).map_or("no value", type_name);
        self.wrong(place, &format!("{expected} expected, got {actual}"))
    }

    /// Returns the error as Lua words it. Lua does not count the text whose method this is.
    pub(super) fn wrong(&self, place: usize, why: &str) -> Problem {
        let is_method = self.lua.inspect_stack(1, |caller| caller.names().name_what == Some("method"));
        let (name, is_method) = (self.name, is_method == Some(true));
        Problem::Raised(match (place, is_method) {
            (0, true) => format!("calling '{name}' on bad self ({why})"),
            (_, true) => format!("bad argument #{place} to '{name}' ({why})"),
            (_, false) => format!("bad argument #{} to '{name}' ({why})", place + 1),
        })
    }

    /// Returns where to begin, counted from zero, in a text of this length.
    pub(super) fn start(&self, place: usize, length: usize) -> Outcome<usize> {
        let start = self.integer(place)?.unwrap_or(1);
        let start = if start < 0 { start.saturating_add(length as i64 + 1) } else { start };
        Ok(usize::try_from(start - 1).unwrap_or(0).min(length))
    }
}

/// The name of a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        value => value.type_name(),
    }
}
