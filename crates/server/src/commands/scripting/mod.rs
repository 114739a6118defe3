//! Lua: scripts, and functions of libraries.
//!
//! | module | holds |
//! |---|---|
//! | `replies` | replies as values of Lua, and back |
//! | `calls` | what a script may call: `redis.call` and its like |
//! | `run` | what runs scripts and functions |
//! | `scripts` | `EVAL` and its like, `SCRIPT` |
//! | `functions` | `FCALL`, `FUNCTION` |
//!
//! A script runs in a thread of its own, while no other command touches a key, as one batch: others see all that it wrote
//! or nothing. So a script that is ended leaves nothing, and may be ended whatever it did. The same holds for functions.

mod calls;
pub mod functions;
mod replies;
mod run;
pub mod scripts;
