//! Connections: many on few threads.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | one connection: bytes in, bytes out |
//! | `event_loop` | a thread, and the connections that it serves |
//! | `expiry` | what removes keys that have expired |

pub mod connection;
pub mod event_loop;
pub mod expiry;
