//! The decoders of bytes from outside, as functions that take any bytes: for the fuzzers of `testing/hostile`, under the
//! feature `decoders`. Each function panics when what it decodes breaks a rule, and otherwise returns.

pub use crate::rpc::decode_any_reply as reply;
pub use crate::shm::decoders::frame as shm_frame;
pub use crate::tcp::decoders::{client as tcp_client, frames as tcp_frames, node as tcp_node};
