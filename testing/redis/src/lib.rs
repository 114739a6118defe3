//! Sends random commands to a real Redis and to Forebay's server, whose replies must agree.
//!
//! Both servers run on loopback at free ports: Redis as a process of its own, Forebay in this one. Both get the same
//! pipelines, and every reply is compared. A family's commands are lines of text ([`families`]), completed with random
//! keys and values, some of them wrong. The line also says what may differ ([`agreement::Agreement`]).
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
