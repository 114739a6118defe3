//! What all connections of a server share. This module knows no command.
//!
//! | module | holds |
//! |---|---|
//! | `channels` | who has subscribed to what |
//! | `waiting` | who waits in commands that block |
//! | `monitors`, `slow_log` | who is shown all commands; which commands took long |
//! | `mailbox` | how threads tell each other about connections |
//! | `clients` | who is connected |
//! | `config` | parameters that `CONFIG` shows and changes |
//! | `counters`, `command_counters`, `durations` | what `INFO` counts, also of each command; how long commands took together |
//! | `latencies` | events that took long |
//! | `watches` | keys that transactions depend on |
//! | `tracking` | keys that clients cache, and whose changes they are told |
//! | `jobs` | requests that other threads carry out |
//! | `scripts` | the machine of scripts, and the jobs for it |
//! | `session` | what one connection has said about itself |
//! | `shared` | all of it together with the store |

pub mod channels;
pub mod clients;
pub mod command_counters;
pub mod config;
pub mod counter;
pub mod counters;
pub mod durations;
pub mod jobs;
pub mod latencies;
pub mod mailbox;
pub mod monitors;
pub mod pause;
pub mod scripts;
pub mod session;
pub mod shared;
pub mod slow_log;
pub mod tracking;
pub mod waiting;
pub mod watches;
