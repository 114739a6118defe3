//! Libraries of scripts that Lua does not have.
//!
//! | module | library |
//! |---|---|
//! | `bits` | `bit`: operations on the bits of 32-bit numbers |
//! | `json` | `cjson`, by `serde_json` |
//! | `packed` | `cmsgpack`, by `rmpv` |
//! | `structs` | `struct`: numbers and strings as bytes, in the layouts of C |

mod bits;
mod json;
mod packed;
mod structs;

use mlua::{Lua, Result, Table};

/// Adds the libraries to a table.
///
/// # Errors
/// Those of Lua.
pub fn add(lua: &Lua, to: &Table) -> Result<()> {
    to.set("bit", bits::library(lua)?)?;
    to.set("cjson", json::library(lua)?)?;
    to.set("cmsgpack", packed::library(lua)?)?;
    to.set("struct", structs::library(lua)?)
}
