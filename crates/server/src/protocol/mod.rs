//! The Redis protocol (RESP2 and RESP3): requests in, replies out. This module knows no command.

pub mod reply;
pub mod request;
