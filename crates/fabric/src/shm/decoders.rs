//! A frame of this back end, for fuzzers.

use super::frame::Frame;

/// Decodes a packet that should be a frame.
///
/// # Panics
/// When a decoded frame does not encode to the same bytes.
pub fn frame(packet: &[u8]) {
    if let Ok(frame) = Frame::decode(packet) {
        assert_eq!(frame.encode(), packet, "{frame:?}");
    }
}
