//! Arguments of a copy: segments of memory to be copied into storage unchanged (O3-LSM 4.3).
//!
//! A flush writes to memory. Where the database is on storage, its version counts only once storage has a copy of each new
//! segment. A process that reaches both can make the copies. Then their bytes do not pass through the compute node. A
//! copy's name follows from its segment's number, so there is no result.
//!
//! ```text
//!  frame "FBkj" (see `frame`), fields:
//!  1  1 or +  segment      varint id, segment (see `segments`)
//! ```
//!
//! Purpose and golden test: `docs/formats/compaction-job.md`.

use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field};
use crate::segments::SegmentInfo;
use crate::version_edit::{decode_segment, encode_segment};
use forebay_base::SegmentId;
use std::collections::BTreeMap;

const FRAME: FrameKind = FrameKind { what: "a copy's arguments", magic: *b"FBkj", version: 1 };

/// The arguments of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyJob {
    /// The segments.
    pub segments: BTreeMap<SegmentId, SegmentInfo>,
}

impl CopyJob {
    /// Appends the arguments to `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are larger than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        FRAME.encode(out, |body| {
            for (id, info) in &self.segments {
                put_field(body, 1, Need::Mandatory, |out| encode_segment(out, *id, info));
            }
        })
    }

    /// Decodes arguments. A caller that takes them from another process first checks that the segments exist with the
    /// stated lengths.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut segments = BTreeMap::new();
        for_each_field(FRAME.decode(bytes)?, FRAME.what, |number, value| {
            if number != 1 {
                return Ok(false);
            }
            let (id, info) = decode_segment(value).context(FRAME.what)?;
            match segments.insert(id, info) {
                None => Ok(true),
                Some(_) => Err(Error::Inconsistent { what: FRAME.what, detail: "a segment is named twice" }),
            }
        })?;
        match segments.is_empty() {
            false => Ok(Self { segments }),
            true => Err(Error::Inconsistent { what: FRAME.what, detail: "no segment is named" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{Placement, SegmentKind};
    use proptest::prelude::*;

    fn job() -> CopyJob {
        let placement = Placement::Memory { node: 1, incarnation: 2, extent: 3, offset: 4 };
        let info = SegmentInfo::new(SegmentKind::MemtableBlock, 500, vec![placement]);
        CopyJob { segments: BTreeMap::from([(SegmentId(7), info)]) }
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut framed = Vec::new();
        FRAME.encode(&mut framed, |out| out.extend_from_slice(body)).unwrap();
        framed
    }

    #[test]
    fn golden_copy() {
        let mut bytes = Vec::new();
        job().encode(&mut bytes).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "46426b6a0100000024000000022207f40301000100011901010000000200000000000000030000000400000000000000a07cbc99"
        );
        assert_eq!(CopyJob::decode(&bytes), Ok(job()));
    }

    #[test]
    fn a_copy_of_nothing_is_refused_and_one_of_a_segment_twice() {
        let inconsistent = |body: &[u8]| matches!(CopyJob::decode(&framed(body)), Err(Error::Inconsistent { .. }));
        let mut bytes = Vec::new();
        job().encode(&mut bytes).unwrap();
        let body = FRAME.decode(&bytes).unwrap();
        assert!(inconsistent(&[]) && inconsistent(&[body, body].concat()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = CopyJob::decode(&bytes);
            if let Ok(job) = CopyJob::decode(&framed(&bytes)) {
                let mut again = Vec::new();
                job.encode(&mut again).unwrap();
                prop_assert_eq!(CopyJob::decode(&again).unwrap(), job);
            }
        }
    }
}
