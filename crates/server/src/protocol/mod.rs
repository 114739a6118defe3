//! The Redis protocol (RESP2 and RESP3): requests in, replies out. Knows no command.

pub mod reply;
pub mod request;
