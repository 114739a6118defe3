//! The Redis protocol over Forebay.
//!
//! ```no_run
//! use forebay::{Options, Store};
//! use forebay_server::{Server, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::embedded(1 << 30, Options::default())?;
//! let server = Server::start(store, ServerOptions::default())?;
//! println!("redis://{}", server.address());
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!   server ──► network ──► dialogue ──► execute ──► commands ──► keyspace ──► records ──► the engine
//!                 │             │            │           │
//!                 └─────────────┴────────────┴───────────┴──► state, script, acl, protocol, stream, text
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `text` | numbers, patterns, and bytes made safe to show |
//! | `file` | files that are replaced while they are in use |
//! | `stream` | bytes of a connection, in plain or within TLS |
//! | `protocol` | requests and replies |
//! | `records` | ordered keys with their values, on either engine |
//! | `keyspace` | keys, types and expiries over them; locks |
//! | `script` | Lua, without the functions that it may call |
//! | `acl` | users, and what they may do |
//! | `state` | what connections share |
//! | `commands` | what commands do, by family |
//! | `execute` | runs of commands, transactions |
//! | `dialogue` | one client's requests and replies |
//! | `network` | connections and threads |
//! | `local` | a server without sockets and threads, for tests |
//! | `observer` | what the operator of a server sees |
//!
//! `docs/decisions/0039` gives the reasons, `docs/formats/redis-keys.md` describes the keys, and
//! `docs/reference/redis.md` lists commands and known differences from Redis.

#![forbid(unsafe_code)]

pub mod acl;
pub mod commands;
mod dialogue;
mod execute;
mod file;
pub mod keyspace;
pub mod local;
mod network;
mod observer;
pub mod protocol;
pub mod records;
pub mod script;
mod server;
pub mod state;
mod stream;
pub mod text;

pub use file::replace_file;
pub use keyspace::layout::shard_bounds;
pub use keyspace::spaces::is_served;
pub use observer::{Figures, Observer, SlowCommand};
pub use records::store::Records;
pub use records::tree::{TreeFigures, TreeRecords};
pub use server::{Error, Kept, Server, ServerOptions, TlsOptions};
pub use state::config::ConfigFile;
pub use state::durations::Durations;
