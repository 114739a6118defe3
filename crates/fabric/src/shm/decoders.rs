//! A frame of this back end, for fuzzers.

use super::frame::Frame;

/// A packet that should be a frame.
///
/// # Panics
/// When a frame that was decoded is not encoded as it was.
pub fn frame(packet: &[u8]) {
    if let Ok(frame) = Frame::decode(packet) {
        assert_eq!(frame.encode(), packet, "{frame:?}");
    }
}
