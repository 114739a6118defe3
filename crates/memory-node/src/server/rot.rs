//! Damages and reads memory, to test the code that reads it. An ordinary build has none of this.

use super::{Handle, MemoryNode};
use crate::Error;
use crate::core::Core;
use forebay_proto::ExtentId;

impl Handle {
    /// Flips the bits `mask` of the byte at `offset` of an extent, as failing memory does.
    ///
    /// # Errors
    /// [`Error::Fabric`] when there is no such byte.
    pub fn rot(&self, extent: ExtentId, offset: u64, mask: u8) -> Result<(), Error> {
        rot(&self.core, extent, offset, mask)
    }

    /// Returns the bytes of an extent, no matter who uses it; empty when there is no such extent.
    #[must_use]
    pub fn bytes_of(&self, extent: ExtentId) -> Vec<u8> {
        bytes_of(&self.core, extent)
    }
}

impl MemoryNode {
    /// As [`Handle::rot`].
    ///
    /// # Errors
    /// As [`Handle::rot`].
    pub fn rot(&self, extent: ExtentId, offset: u64, mask: u8) -> Result<(), Error> {
        rot(&self.core, extent, offset, mask)
    }

    /// As [`Handle::bytes_of`].
    #[must_use]
    pub fn bytes_of(&self, extent: ExtentId) -> Vec<u8> {
        bytes_of(&self.core, extent)
    }
}

fn rot(core: &Core, extent: ExtentId, offset: u64, mask: u8) -> Result<(), Error> {
    let missing = || forebay_fabric::Error::Invalid(format!("{extent} has no memory"));
    let flip = || {
        let region = core.region(extent).ok_or_else(missing)?;
        let mut byte = [0];
        region.read(offset, &mut byte)?;
        region.write(offset, &byte.map(|bits| bits ^ mask))
    };
    flip().map_err(|cause| Error::Fabric { what: "flipping bits", cause })
}

fn bytes_of(core: &Core, extent: ExtentId) -> Vec<u8> {
    let mut bytes = vec![0; core.extent_bytes() as usize];
    match core.region(extent).map(|region| region.read(0, &mut bytes)) {
        Some(Ok(())) => bytes,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{MemoryNode, Options};
    use forebay_proto::ExtentId;

    #[test]
    fn bits_flip_and_flip_back_and_only_where_there_is_memory() {
        let (listener, _connector) = forebay_fabric::inprocess::listen(1).unwrap();
        let node = MemoryNode::start(Box::new(listener), Options::with_memory(16 << 20)).unwrap();
        let extent = ExtentId(0);
        let zeroed = node.bytes_of(extent);
        assert!(!zeroed.is_empty());
        node.rot(extent, 9, 0b101).unwrap();
        let mut flipped = zeroed.clone();
        flipped[9] ^= 0b101;
        assert_eq!(node.bytes_of(extent), flipped);
        node.rot(extent, 9, 0b101).unwrap();
        assert_eq!(node.bytes_of(extent), zeroed);
        assert!(node.rot(extent, zeroed.len() as u64, 1).is_err());
        assert!(node.rot(ExtentId(u32::MAX), 0, 1).is_err());
        assert!(node.bytes_of(ExtentId(u32::MAX)).is_empty());
    }
}
