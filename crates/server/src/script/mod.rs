//! Lua scripts, without the functions that they may call: the sandbox, the libraries, what was loaded.
//!
//! | module | holds |
//! |---|---|
//! | `prelude.lua` | the part of the sandbox that is written in Lua |
//! | `first_line` | the first line of a script or a library |
//! | `functions` | libraries, and what they registered |
//! | `progress` | the running script, for threads that wait for it or end it |
//! | `machine` | the Lua machine, the scripts that were loaded, how libraries are loaded |
//! | `libraries` | `bit`, `cjson`, `cmsgpack`, `struct`, and functions of `string` that match patterns |
//! | `matching` | patterns of Lua |
//! | `text` | texts that are made for a script outside of Lua |

pub mod first_line;
pub mod functions;
pub mod libraries;
pub mod machine;
pub mod matching;
pub mod progress;
pub mod text;
