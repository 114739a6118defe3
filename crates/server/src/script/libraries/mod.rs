//! Libraries for scripts that Lua does not have, or has in a form that cannot be ended.
//!
//! | module | library |
//! |---|---|
//! | `bits` | `bit`: operations on the bits of 32-bit numbers |
//! | `json`, `json_reader` | `cjson` |
//! | `packed` | `cmsgpack`, by `rmp` |
//! | `patterns` | `find`, `match`, `gmatch` and `gsub` of `string` |
//! | `structs` | `struct`: numbers and strings as bytes, in the layouts of C |
//! | `texts` | `rep` of `string`, `concat` of `table` |
//!
//! `given` is what the replacements of Lua's own functions have in common.

mod bits;
mod given;
mod json;
mod json_reader;
mod packed;
mod patterns;
mod structs;
mod texts;

use mlua::{Lua, Result, Table};

/// Adds the libraries to a table. `must_end` fails when a script must end.
///
/// # Errors
/// Those of Lua.
pub fn add(lua: &Lua, to: &Table, must_end: impl Fn() -> Result<()> + Clone + Send + 'static) -> Result<()> {
    to.set("bit", bits::library(lua)?)?;
    to.set("cjson", json::library(lua, must_end.clone())?)?;
    to.set("cmsgpack", packed::library(lua, must_end.clone())?)?;
    to.set("patterns", patterns::library(lua, must_end.clone())?)?;
    to.set("texts", texts::library(lua, must_end)?)?;
    to.set("struct", structs::library(lua)?)
}
