//! The entries of the segment map: the contents of a segment and the places of its copies.
//!
//! ```text
//!  varint   length of the segment in bytes
//!  u8       kind: 1 memtable block, 2 run, 3 table image
//!  u8       flags, zero
//!  u16      format version of the records in it; zero for a table image
//!  varint   number of placements; each after its length (varint):
//!           u8 1 (memory)   u32 node, u64 incarnation, u32 extent, u64 offset in the extent
//!           u8 2 (storage)  object's name after its length (varint), UTF-8
//! ```
//!
//! Purpose and golden test: `docs/formats/version-edit.md`.

use crate::frame::{read_count, read_text};
use forebay_base::{DecodeError, Reader, Writer};

/// The contents of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SegmentKind {
    /// A memtable's key-value block, or a part of it: records in order of writing.
    MemtableBlock = 1,
    /// Records in key order, of a flush or of a compaction.
    Run = 2,
    /// A table's image.
    TableImage = 3,
}

impl SegmentKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::MemtableBlock,
            2 => Self::Run,
            3 => Self::TableImage,
            _ => return None,
        })
    }
}

/// The place of one copy of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Placement {
    /// On a memory node.
    Memory {
        /// The node.
        node: u32,
        /// The node's incarnation: memory of an earlier one is gone.
        incarnation: u64,
        /// The extent.
        extent: u32,
        /// Bytes from the extent's start.
        offset: u64,
    },
    /// In storage.
    Storage {
        /// The object's name.
        object: String,
    },
}

const MEMORY: u8 = 1;
const STORAGE: u8 = 2;

/// A segment of the segment map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentInfo {
    /// Length in bytes.
    pub length: u64,
    /// The contents of the segment.
    pub kind: SegmentKind,
    /// Format version of its records ([`RECORD_FORMAT`]); zero for a table's image.
    pub record_format: u16,
    /// Its copies; the first one is read.
    pub placements: Vec<Placement>,
}

/// Format version of the records that this build writes (see `forebay_base::record`).
pub const RECORD_FORMAT: u16 = 1;

impl Placement {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Memory { node, incarnation, extent, offset } => {
                out.put_u8(MEMORY);
                out.put_u32(*node);
                out.put_u64(*incarnation);
                out.put_u32(*extent);
                out.put_u64(*offset);
            }
            Self::Storage { object } => {
                out.put_u8(STORAGE);
                out.put_prefixed(object.as_bytes());
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let placement = match reader.u8()? {
            MEMORY => Self::Memory {
                node: reader.u32()?,
                incarnation: reader.u64()?,
                extent: reader.u32()?,
                offset: reader.u64()?,
            },
            STORAGE => Self::Storage { object: read_text(reader, "name of an object")? },
            found => return Err(DecodeError::BadValue { what: "kind of a placement", found: found.into() }),
        };
        reader.finish()?;
        Ok(placement)
    }
}

impl SegmentInfo {
    /// A segment of this kind, written by this build.
    #[must_use]
    pub const fn new(kind: SegmentKind, length: u64, placements: Vec<Placement>) -> Self {
        let record_format = match kind {
            SegmentKind::TableImage => 0,
            SegmentKind::MemtableBlock | SegmentKind::Run => RECORD_FORMAT,
        };
        Self { length, kind, record_format, placements }
    }

    /// Appends the entry to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.length);
        out.put_u8(self.kind as u8);
        out.put_u8(0);
        out.put_u16(self.record_format);
        out.put_varint(self.placements.len() as u64);
        for placement in &self.placements {
            let mut bytes = Vec::new();
            placement.encode(&mut bytes);
            out.put_prefixed(&bytes);
        }
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = reader.varint64()?;
        let number = reader.u8()?;
        let kind = SegmentKind::from_number(number)
            .ok_or(DecodeError::BadValue { what: "kind of a segment", found: number.into() })?;
        match reader.u8()? {
            0 => {}
            found => return Err(DecodeError::BadValue { what: "flags of a segment", found: found.into() }),
        }
        let record_format = reader.u16()?;
        if record_format > RECORD_FORMAT {
            let (feature, number) = ("format version of records", record_format.into());
            return Err(DecodeError::Unknown { what: "a segment", feature, number });
        }
        let count = read_count(reader, 2)?;
        let placements =
            (0..count).map(|_| Placement::decode(&mut Reader::new(reader.prefixed()?))).collect::<Result<_, _>>()?;
        Ok(Self { length, kind, record_format, placements })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version_edit::VersionEdit;
    use forebay_base::{ErrorKind, SegmentId};
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let memory = Placement::Memory { node: 1, incarnation: 2, extent: 3, offset: 0x100 };
        let storage = Placement::Storage { object: "a/b".to_owned() };
        let info = SegmentInfo::new(SegmentKind::Run, 300, vec![memory, storage]);
        let mut out = Vec::new();
        info.encode(&mut out);
        assert_eq!(
            out,
            [
                0xac, 2, 2, 0, 1, 0, 2, 25, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
                5, 2, 3, b'a', b'/', b'b'
            ]
        );
        assert_eq!(SegmentInfo::decode(&mut Reader::new(&out)), Ok(info));
    }

    /// The bytes that name them are sound: a newer build wrote them.
    #[test]
    fn records_of_a_newer_build_are_no_damage() {
        let newer =
            SegmentInfo { record_format: RECORD_FORMAT + 1, ..SegmentInfo::new(SegmentKind::Run, 8, Vec::new()) };
        let edit = VersionEdit { added_segments: vec![(SegmentId(1), newer)], ..VersionEdit::default() };
        let mut out = Vec::new();
        edit.encode(&mut out).unwrap();
        assert_eq!(VersionEdit::decode(&out).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(0u8..30, 0..60)) {
            let _ = SegmentInfo::decode(&mut Reader::new(&bytes));
        }
    }
}
