//! The place of a shard's manifest, and the configuration of a store.
//!
//! A shard's manifest is a log of version edits ([`crate::version_edit`]) in one range of remote memory: first the
//! whole version, then the changes. The shard's *root* gives that range and how much of it is valid. The node that keeps the
//! root replaces it as a whole. So a log has no torn end: the bytes within the root's length must be right, and the bytes
//! after them do not count. The log has a *spare*, an equally long empty range. The next log is written there, however full
//! the memory is.
//!
//! The body of a root's frame:
//!
//! ```text
//!  offset  size  field
//!  0       4     memory node
//!  4       4     extent
//!  8       8     incarnation of the node
//!  16      8     offset of the log in the extent
//!  24      8     bytes that the log may take
//!  32      8     bytes of it that count
//!  40      8     edits in these bytes
//!  48      4     CRC32C of these bytes
//!  52      4     extent of the spare
//!  56      8     offset of the spare in that extent
//! ```
//!
//! The body of a store's configuration is a sequence of fields. Names and keys follow their length (varint):
//!
//! ```text
//!  1   name of the key order
//!  2   u64 number of shards
//!  3   name of the merge operator, absent for none
//!  4   first key of a shard after the first; repeated, ascending
//!  5   u64 number of the database, u32 place of this node, u32 number of nodes; absent when there is one
//!  6   u32 number of copies of each shard; absent when there is one. Then a register says which nodes hold them
//!  7   nothing: the database is not whole until its creator finishes it; absent when it is whole from the beginning
//! ```
//!
//! Purpose and golden test: `docs/formats/manifest.md`.

use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, HEADER_BYTES, Need, TRAILER_BYTES, for_each_field, put_field, read_text};
use crate::version_edit::{EditLog, VersionEdit, read_key_order_name};
use forebay_base::{DecodeError, KeyOrder, Reader, Writer, checksum};

const ROOT: FrameKind = FrameKind { what: "the root of a manifest", magic: *b"FBMR", version: 2 };
const CONFIG: FrameKind = FrameKind { what: "the configuration of a store", magic: *b"FBSC", version: 1 };
const LOG: &str = "a manifest";

/// The place of a manifest, and how much of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestRoot {
    /// The memory node.
    pub node: u32,
    /// The node's incarnation.
    pub incarnation: u64,
    /// The extent that holds the log.
    pub extent: u32,
    /// Bytes from the extent's start.
    pub offset: u64,
    /// Bytes that the log may take; the spare has the same length.
    pub capacity: u64,
    /// Bytes of the log that count.
    pub length: u64,
    /// Edits in these bytes.
    pub edits: u64,
    /// CRC32C of these bytes.
    pub checksum: u32,
    /// The extent that holds the spare.
    pub spare_extent: u32,
    /// Offset of the spare in bytes from that extent's start.
    pub spare_offset: u64,
}

impl ManifestRoot {
    /// The root's bytes.
    ///
    /// # Errors
    /// Never fails, because a root is short.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        ROOT.encode(&mut out, |body| {
            body.put_u32(self.node);
            body.put_u32(self.extent);
            body.put_u64(self.incarnation);
            for number in [self.offset, self.capacity, self.length, self.edits] {
                body.put_u64(number);
            }
            body.put_u32(self.checksum);
            body.put_u32(self.spare_extent);
            body.put_u64(self.spare_offset);
        })?;
        Ok(out)
    }

    /// Decodes a root.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(ROOT.decode(bytes)?);
        Self::decode_body(&mut reader).context(ROOT.what)
    }

    fn decode_body(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let (node, extent, incarnation) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let (offset, capacity, length, edits) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let (checksum, spare_extent, spare_offset) = (reader.u32()?, reader.u32()?, reader.u64()?);
        reader.finish()?;
        if length > capacity {
            return Err(DecodeError::BadValue { what: "length of a manifest", found: length });
        }
        Ok(Self { node, incarnation, extent, offset, capacity, length, edits, checksum, spare_extent, spare_offset })
    }

    /// The edits of the log `bytes`, which must be exactly the part that counts.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn edits(&self, bytes: &[u8]) -> Result<Vec<VersionEdit>> {
        let inconsistent = |detail| Error::Inconsistent { what: LOG, detail };
        if bytes.len() as u64 != self.length {
            return Err(inconsistent("it has another length than its root says"));
        }
        let found = checksum(bytes);
        if found != self.checksum {
            let cause = DecodeError::BadChecksum { what: LOG, expected: self.checksum, found };
            return Err(Error::Damaged { what: LOG, cause });
        }
        let mut log = EditLog::new(bytes);
        let edits: Vec<_> = log.by_ref().collect();
        if let Some(error) = log.end() {
            return Err(error.clone());
        }
        if edits.len() as u64 != self.edits {
            return Err(inconsistent("it has another number of edits than its root says"));
        }
        Ok(edits)
    }
}

/// The configuration that all users of a store agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Order of the keys.
    pub key_order: KeyOrder,
    /// Number of shards.
    pub shards: u64,
    /// Name of the merge operator; empty for none.
    pub merge_operator: String,
    /// First keys of the shards after the first, ascending; fewer when shards own nothing.
    pub bounds: Vec<Vec<u8>>,
    /// The store's part in a database on several memory nodes; `None` when it is the only one.
    pub part: Option<StorePart>,
    /// Number of copies of each shard.
    pub copies: u32,
    /// Whether the database is still being created: it is complete once one of its stores says so or, in storage, a commit
    /// without this flag exists.
    pub to_finish: bool,
}

/// The place of a store among those of a database on several memory nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePart {
    /// A number shared by all stores of the database and by no others.
    pub database: u64,
    /// The place of this store's memory node, from 0. Shard `i` is at place `i` modulo the number of nodes.
    pub place: u32,
    /// Number of memory nodes, at least 2.
    pub nodes: u32,
}

impl StorePart {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let (database, place, nodes) = (reader.u64()?, reader.u32()?, reader.u32()?);
        if nodes < 2 || place >= nodes {
            return Err(DecodeError::BadValue { what: "place of a memory node", found: place.into() });
        }
        Ok(Self { database, place, nodes })
    }
}

impl StoreConfig {
    /// The configuration's bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it reaches 4 GiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        CONFIG.encode(&mut out, |body| {
            put_field(body, 1, Need::Mandatory, |out| out.put_prefixed(self.key_order.name().as_bytes()));
            put_field(body, 2, Need::Mandatory, |out| out.put_u64(self.shards));
            if !self.merge_operator.is_empty() {
                put_field(body, 3, Need::Mandatory, |out| out.put_prefixed(self.merge_operator.as_bytes()));
            }
            for bound in &self.bounds {
                put_field(body, 4, Need::Mandatory, |out| out.put_prefixed(bound));
            }
            if let Some(StorePart { database, place, nodes }) = self.part {
                put_field(body, 5, Need::Mandatory, |out| {
                    out.put_u64(database);
                    out.put_u32(place);
                    out.put_u32(nodes);
                });
            }
            if self.copies != 1 {
                put_field(body, 6, Need::Mandatory, |out| out.put_u32(self.copies));
            }
            if self.to_finish {
                put_field(body, 7, Need::Mandatory, |_| {});
            }
        })?;
        Ok(out)
    }

    /// Whether `bytes` may be a configuration, perhaps a damaged one. Those of shared trees and of their owners, which are
    /// no databases, are too short.
    #[must_use]
    pub const fn may_be(bytes: &[u8]) -> bool {
        bytes.len() >= HEADER_BYTES + TRAILER_BYTES
    }

    /// Decodes a configuration.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut config = Self {
            key_order: KeyOrder::Bytewise,
            shards: 0,
            merge_operator: String::new(),
            bounds: Vec::new(),
            part: None,
            copies: 1,
            to_finish: false,
        };
        for_each_field(CONFIG.decode(bytes)?, CONFIG.what, |number, value| {
            config.decode_field(number, value).context(CONFIG.what)
        })?;
        Ok(config)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> std::result::Result<bool, DecodeError> {
        match number {
            1 => self.key_order = read_key_order_name(value)?,
            2 => self.shards = value.u64()?,
            3 => self.merge_operator = read_text(value, "name of the merge operator")?,
            4 => self.bounds.push(value.prefixed()?.to_vec()),
            5 => self.part = Some(StorePart::decode(value)?),
            6 => self.copies = value.u32()?,
            7 => self.to_finish = true,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn root() -> ManifestRoot {
        ManifestRoot {
            node: 1,
            incarnation: 2,
            extent: 3,
            offset: 0x1000,
            capacity: 0x2000,
            length: 0x40,
            edits: 5,
            checksum: 0x0102_0304,
            spare_extent: 6,
            spare_offset: 0x3000,
        }
    }

    fn config() -> StoreConfig {
        let (bounds, merge_operator) = (vec![b"m".to_vec()], String::new());
        StoreConfig {
            key_order: KeyOrder::Bytewise,
            shards: 2,
            merge_operator,
            bounds,
            part: None,
            copies: 1,
            to_finish: false,
        }
    }

    #[test]
    fn a_store_of_something_else_is_told_apart() {
        assert!(StoreConfig::may_be(&config().encode().unwrap()));
        assert!(!StoreConfig::may_be(b"owner\x01") && !StoreConfig::may_be(&[0; 12]) && !StoreConfig::may_be(b""));
    }

    #[test]
    fn golden_bytes() {
        let bytes = root().encode().unwrap();
        assert_eq!(
            hex(&bytes),
            "46424d52020000004000000001000000030000000200000000000000001000000000000000200000000000004000000000000000\
             0500000000000000040302010600000000300000000000004b496904"
        );
        assert_eq!(ManifestRoot::decode(&bytes), Ok(root()));
        let bytes = config().encode().unwrap();
        assert_eq!(hex(&bytes), "4642534301000000190000000209086279746577697365040802000000000000000802016dc2258803");
        assert_eq!(StoreConfig::decode(&bytes), Ok(config()));
        let part = StorePart { database: 0x0102_0304_0506_0708, place: 1, nodes: 2 };
        let config = StoreConfig { part: Some(part), ..config() };
        let bytes = config.encode().unwrap();
        assert_eq!(
            hex(&bytes),
            "46425343010000002b0000000209086279746577697365040802000000000000000802016d0a1008070605040302010100000002\
             0000006fa6eba1"
        );
        assert_eq!(StoreConfig::decode(&bytes), Ok(config.clone()));
        let copied = StoreConfig { copies: 3, part: None, ..config.clone() };
        let bytes = copied.encode().unwrap();
        assert_eq!(
            hex(&bytes),
            "46425343010000001f0000000209086279746577697365040802000000000000000802016d0c0403000000be529f87"
        );
        assert_eq!(StoreConfig::decode(&bytes), Ok(copied));
        let to_finish = StoreConfig { to_finish: true, part: None, ..config };
        let bytes = to_finish.encode().unwrap();
        assert_eq!(
            hex(&bytes),
            "46425343010000001b0000000209086279746577697365040802000000000000000802016d0e001bb129c2"
        );
        assert_eq!(StoreConfig::decode(&bytes), Ok(to_finish));
    }

    #[test]
    fn places_of_nodes_are_checked() {
        for (place, nodes) in [(0, 0), (0, 1), (2, 2)] {
            let part = StorePart { database: 1, place, nodes };
            let bytes = StoreConfig { part: Some(part), ..config() }.encode().unwrap();
            assert!(StoreConfig::decode(&bytes).is_err(), "{part:?}");
        }
    }

    #[test]
    fn any_changed_bit_is_found() {
        let (root, config) = (root().encode().unwrap(), config().encode().unwrap());
        for bit in 0..root.len() * 8 {
            let mut bytes = root.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ManifestRoot::decode(&bytes).is_err(), "bit {bit}");
        }
        for bit in 0..config.len() * 8 {
            let mut bytes = config.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(StoreConfig::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_log_is_all_that_its_root_says() {
        let mut log = Vec::new();
        for table in 1..4 {
            VersionEdit { next_table: Some(table), ..VersionEdit::default() }.encode(&mut log).unwrap();
        }
        let root = ManifestRoot { length: log.len() as u64, edits: 3, checksum: checksum(&log), ..root() };
        assert_eq!(root.edits(&log).unwrap().len(), 3);
        assert!(root.edits(&log[1..]).is_err());
        assert!(ManifestRoot { edits: 2, ..root }.edits(&log).is_err());
        for bit in 0..log.len() * 8 {
            let mut bytes = log.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(root.edits(&bytes).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = ManifestRoot::decode(&bytes);
            let _ = StoreConfig::decode(&bytes);
            let root = ManifestRoot { length: bytes.len() as u64, checksum: checksum(&bytes), ..root() };
            let _ = root.edits(&bytes);
            let mut body = Vec::new();
            CONFIG.encode(&mut body, |out| out.extend_from_slice(&bytes)).unwrap();
            let _ = StoreConfig::decode(&body);
            body.clear();
            ROOT.encode(&mut body, |out| out.extend_from_slice(&bytes)).unwrap();
            let _ = ManifestRoot::decode(&body);
        }
    }
}
