//! An index as bytes, to be searched where it was sent: a memory node that holds a memtable's
//! block may answer lookups from it (O3-LSM 4.4).
//!
//! ```text
//!  offset  size     field
//!  0       4        CRC32C of bytes 4 … end
//!  4       2        format version, 1
//!  6       1        key order (`KeyOrder`)
//!  7       1        levels in use, 1 … 13
//!  8       4        number of words, n, at least 16
//!  12      4        zero
//!  16      4 × n    the words, each as in `crate::index`; the head is at word 0
//! ```
//!
//! All integers are little-endian. Nothing follows the words. The checksum finds damage, not
//! malice: a search checks every offset and bounds its steps, and what it finds is only as good as
//! the record, which carries its own checksum.

use crate::cursor::Cursor;
use crate::error::{IndexError, MemtableError};
use crate::height::{MAX_HEIGHT, node_words};
use crate::index::{Index, Records};
use crate::search::{END, List, Words};
use forebay_base::record::ALIGNMENT;
use forebay_base::{DecodeError, InternalKey, KeyOrder, Reader, Record, SequenceNumber, Tag, Writer, checksum};

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const WORD_BYTES: usize = size_of::<u32>();

const _: () = assert!(node_words(MAX_HEIGHT) == 16 && MAX_HEIGHT == 13);

/// Encodes an index into which nobody inserts any more.
pub(crate) fn encode(index: &Index) -> Vec<u8> {
    let words = index.arena();
    let count = words.used();
    let mut out = Vec::with_capacity(HEADER_BYTES + count * WORD_BYTES);
    out.put_u32(0);
    out.put_u16(VERSION);
    out.put_u8(index.order() as u8);
    out.put_u8(words.height() as u8);
    out.put_u32(count as u32);
    out.put_u32(0);
    for at in 0..count {
        out.put_u32(words.word(at).unwrap_or(0));
    }
    let sum = checksum(&out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// An index that came from outside. Its bytes must not change while it is in use.
#[derive(Debug, Clone, Copy)]
pub struct IndexImage<'a> {
    words: &'a [u8],
    order: KeyOrder,
    height: usize,
}

impl<'a> IndexImage<'a> {
    /// Checks what [`Memtable::index_image`](crate::Memtable::index_image) wrote.
    ///
    /// # Errors
    /// [`MemtableError::Image`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MemtableError> {
        let image = Self::decode_unverified(bytes)?;
        let expected = Reader::new(bytes).u32()?;
        let found = checksum(bytes.get(4..).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "index image", expected, found }.into());
        }
        Ok(image)
    }

    fn decode_unverified(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let check =
            |what, found: u64, good: bool| if good { Ok(()) } else { Err(DecodeError::BadValue { what, found }) };
        let mut reader = Reader::new(bytes);
        reader.u32()?;
        let version = reader.u16()?;
        check("index image version", version.into(), version == VERSION)?;
        let number = reader.u8()?;
        let order = KeyOrder::from_number(number)
            .ok_or(DecodeError::BadValue { what: "index image key order", found: number.into() })?;
        let height = reader.u8()? as usize;
        check("index image levels", height as u64, (1..=MAX_HEIGHT).contains(&height))?;
        let count = reader.u32()? as usize;
        check("index image words", count as u64, count >= node_words(MAX_HEIGHT))?;
        let zero = reader.u32()?;
        check("index image padding", zero.into(), zero == 0)?;
        let words = reader.bytes(count.saturating_mul(WORD_BYTES))?;
        reader.finish()?;
        Ok(Self { words, order, height })
    }

    /// Order of the keys.
    #[must_use]
    pub const fn order(&self) -> KeyOrder {
        self.order
    }

    /// A cursor over the records of `block`, nowhere at first.
    #[must_use]
    pub const fn cursor(self, block: BlockBytes<'a>) -> Cursor<Self, BlockBytes<'a>> {
        Cursor::new(List { words: self, records: block, order: self.order })
    }

    /// The newest record of `key` in `block` that `snapshot` covers, of whatever kind, and its
    /// offset in bytes. The record's checksum is verified.
    ///
    /// # Errors
    /// [`IndexError`] when the image or the block is damaged.
    pub fn get(
        self,
        block: BlockBytes<'a>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<(u64, Record<'a>)>, IndexError> {
        let list = List { words: self, records: block, order: self.order };
        let node = list.seek(InternalKey { user_key: key, tag: Tag::seek(snapshot) })?;
        if node == END {
            return Ok(None);
        }
        let offset = list.record(node)? as u64 * ALIGNMENT as u64;
        let record = Record::decode(block.from(offset)).map_err(|_| IndexError::BadRecord { offset })?;
        Ok((record.key == key).then_some((offset, record)))
    }

    fn read(&self, at: usize) -> Option<u32> {
        let start = at.checked_mul(WORD_BYTES)?;
        self.words.get(start..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }
}

impl Words for IndexImage<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        self.read(at)
    }

    fn next(&self, at: usize) -> Option<u32> {
        self.read(at)
    }

    fn length(&self) -> usize {
        self.words.len() / WORD_BYTES
    }

    fn height(&self) -> usize {
        self.height
    }
}

/// The bytes of a block that came from outside. They must not change while they are in use.
#[derive(Debug, Clone, Copy)]
pub struct BlockBytes<'a>(pub &'a [u8]);

impl<'a> BlockBytes<'a> {
    fn from(self, offset: u64) -> &'a [u8] {
        usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default()
    }
}

impl Records for BlockBytes<'_> {
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError> {
        let offset = u64::from(record) * ALIGNMENT as u64;
        let (found, _) = Record::decode_unverified(self.from(offset)).map_err(|_| IndexError::BadRecord { offset })?;
        Ok(InternalKey { user_key: found.key, tag: found.tag })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One node, for the key "key" whose record is at the block's start.
    #[rustfmt::skip]
    const GOLDEN: [u8; 96] = [
        0, 0, 0, 0, 1, 0, 0, 1, 20, 0, 0, 0, 0, 0, 0, 0, // checksum, version, order, levels, words
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, // head: its link on level 0
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, b'y', b'e', b'k', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // prefix, record, link
    ];

    /// An image of one node, its header and links as given.
    fn image_of(words: &[u32], height: u8) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.put_u16(VERSION);
        out.put_u8(0);
        out.put_u8(height);
        out.put_u32(words.len() as u32);
        out.put_u32(0);
        words.iter().for_each(|word| out.put_u32(*word));
        let sum = checksum(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn one_record() -> (Index, Vec<u8>) {
        let mut block = Vec::new();
        let record = Record::put(SequenceNumber(1), b"key", b"value");
        record.encode(&mut block);
        let index = Index::new(KeyOrder::Bytewise, 64);
        let key = InternalKey { user_key: record.key, tag: record.tag };
        index.insert(BlockBytes(&block), key, 0, 1).unwrap();
        (index, block)
    }

    #[test]
    fn golden_bytes() {
        let mut golden = GOLDEN;
        let sum = checksum(&golden[4..]);
        golden[..4].copy_from_slice(&sum.to_le_bytes());
        let (index, block) = one_record();
        assert_eq!(encode(&index), golden);
        let image = IndexImage::decode(&golden).unwrap();
        let (offset, record) = image.get(BlockBytes(&block), b"key", SequenceNumber(1)).unwrap().unwrap();
        assert_eq!((offset, record.value), (0, &b"value"[..]));
        assert_eq!(image.get(BlockBytes(&block), b"key", SequenceNumber(0)), Ok(None));
        assert_eq!(image.get(BlockBytes(&block), b"kez", SequenceNumber(1)), Ok(None));
    }

    #[test]
    fn loops_and_wild_links_end_in_errors() {
        let (_, block) = one_record();
        let prefix = 0x6b65_7900;
        for level in 0..2 {
            let mut words = [0; 24];
            words[3 + level] = 16;
            words[16] = prefix;
            words[19 + level] = 16;
            let bytes = image_of(&words, 2);
            let image = IndexImage::decode(&bytes).unwrap();
            assert_eq!(image.get(BlockBytes(&block), b"kez", SequenceNumber(1)), Err(IndexError::Loop));
            let mut cursor = image.cursor(BlockBytes(&block));
            assert_eq!(cursor.seek_to_last(), Err(IndexError::Loop));
            if level == 0 {
                cursor.seek_to_first().unwrap();
                assert_eq!((0..100).find_map(|_| cursor.next().err()), Some(IndexError::Loop));
            }
            words[3 + level] = u32::MAX;
            let bytes = image_of(&words, 2);
            let image = IndexImage::decode(&bytes).unwrap();
            assert!(matches!(
                image.get(BlockBytes(&block), b"kez", SequenceNumber(1)),
                Err(IndexError::BadLink { node: u32::MAX, .. })
            ));
            words[3 + level] = 16;
            words[18] = 1 << 20;
            let bytes = image_of(&words, 2);
            let image = IndexImage::decode(&bytes).unwrap();
            assert_eq!(
                image.get(BlockBytes(&block), b"key", SequenceNumber(1)),
                Err(IndexError::BadRecord { offset: 8 << 20 })
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (index, _) = one_record();
        let good = encode(&index);
        for bit in (0..good.len() * 8).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexImage::decode(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = IndexImage::decode(&bytes);
        }

        /// Words that mostly point somewhere, over a block that holds records.
        #[test]
        fn any_words_are_searched_without_panic(
            words in prop::collection::vec(prop_oneof![0u32..64, any::<u32>(), Just(0x6b65_7900)], 16..64),
            height in 1u8..=13,
            key: Vec<u8>,
        ) {
            let (_, mut block) = one_record();
            Record::delete(SequenceNumber(2), b"key").encode(&mut block);
            let bytes = image_of(&words, height);
            let image = IndexImage::decode(&bytes).unwrap();
            for key in [&key[..], b"key"] {
                let _ = image.get(BlockBytes(&block), key, SequenceNumber::MAX);
            }
            let mut cursor = image.cursor(BlockBytes(&block));
            let _ = cursor.seek_for_prev(InternalKey { user_key: &key, tag: Tag::MAX });
            let _ = cursor.prev();
            let _ = cursor.seek_to_first();
            for _ in 0..200 {
                if cursor.next().is_err() {
                    break;
                }
            }
        }
    }
}
