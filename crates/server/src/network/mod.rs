//! Connections: many on few threads.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | one connection: bytes in, bytes out |
//! | `stream` | those bytes as they are, or within TLS |
//! | `event_loop` | a thread, and the connections that it serves |
//! | `expiry` | what removes keys that have expired |
//! | `farewell` | a client that is turned away within TLS |
//! | `refusals` | lines of the log about clients that are turned away |

pub mod connection;
pub mod event_loop;
pub mod expiry;
pub mod farewell;
pub mod refusals;
pub mod stream;
