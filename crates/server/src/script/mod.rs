//! Lua scripts without what they may call: the sandbox, the libraries, what was loaded.
//!
//! | module | holds |
//! |---|---|
//! | `prelude.lua` | what of the sandbox is written in Lua |
//! | `progress` | the script that runs, for those who wait for it or end it |
//! | `machine` | the Lua machine, and the scripts that were loaded |
//! | `libraries` | `bit`, `cjson`, `cmsgpack` |

pub mod libraries;
pub mod machine;
pub mod progress;
