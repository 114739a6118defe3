//! Random commands to a real Redis and to Forebay's server, whose replies must agree.
//!
//! Both servers run on loopback at free ports: Redis as a process of its own, Forebay in this one. They are sent the
//! same pipelines, and every reply is compared. A family's commands are lines of text ([`families`]), which random
//! keys and values complete, some of them wrong. What may differ is said beside the command ([`agreement::Agreement`]).
//!
//! `cargo xtask redis-differential` sends a million commands of each family; tests send some thousands.

#![forbid(unsafe_code)]

pub mod agreement;
pub mod client;
pub mod families;
pub mod real;
pub mod run;
mod scripts;
pub mod template;
