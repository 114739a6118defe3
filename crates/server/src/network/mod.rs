//! Connections: many on few threads.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | one connection: bytes in, bytes out |
//! | `event_loop` | a thread, and the connections that it serves |
//! | `expiry` | removes expired keys |
//! | `farewell` | a client that is refused within TLS |
//! | `refusals` | lines of the log about refused clients |

pub mod connection;
pub mod event_loop;
pub mod expiry;
pub mod farewell;
pub mod refusals;
