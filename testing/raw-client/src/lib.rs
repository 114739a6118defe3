//! A client of a memory node that is written only from `docs/formats`: it uses no crate of Forebay. So an incomplete or
//! wrong page shows here, and what the client sends may be wrong in any way.
//!
//! | layer | page | module |
//! |---|---|---|
//! | sockets, TLS and proofs of secrets | `tcp-frame.md` | [`socket`], [`door`] |
//! | frames | `tcp-frame.md` | [`wire`] |
//! | envelopes of calls | `rpc-envelope.md` | [`wire`] |
//! | bodies of calls and replies | `node-messages.md` | [`body`], [`calls`] |
//! | arguments of jobs | `gather.md`, `search.md` | [`jobs`] |

#![forbid(unsafe_code)]

pub mod body;
pub mod calls;
mod checksum;
pub mod client;
pub mod door;
pub mod jobs;
pub mod socket;
pub mod wire;
