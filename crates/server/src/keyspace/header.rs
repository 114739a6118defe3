//! The header of a key: what it is, when it expires, and where its elements are.
//!
//! Described in `docs/formats/redis-keys.md`. Numbers are little-endian.
//!
//! ```text
//!   offset  size
//!   0       1     version (1)
//!   1       1     type: 1 string, 2 hash, 3 set, 4 list, 5 sorted set, 6 stream; with bit 7, an expiry follows
//!   2       8     expiry: milliseconds since 1970, if bit 7 of the type is set
//!   …             string: its bytes
//!                 others: id 8 │ a 8 │ b 8
//!                         hash, set, sorted set: a is the number of elements, b is zero
//!                         list: elements are at positions from a (included) to b (excluded), both signed
//!                 stream: id 8 │ entries 8 │ last 16 │ deleted 16 │ added 8
//!                         last: the latest id that was given away; deleted: the largest id of which the entry was
//!                         deleted, both as ms 8 │ sequence 8; added: how many entries were ever added
//! ```
//!
//! The engine's record carries the checksum. Invariant: a collection has at least one element, unless it is a stream.

use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::streams::StreamId;
use bytes::{Buf, BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;
const EXPIRES: u8 = 0x80;
/// The known types; later numbers are for future types.
const TYPES: [Kind; 6] = [Kind::String, Kind::Hash, Kind::Set, Kind::List, Kind::SortedSet, Kind::Stream];

/// The type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
    /// Members.
    Set,
    /// Elements in an order that clients choose.
    List,
    /// Members with scores.
    SortedSet,
    /// Entries in the order of their ids.
    Stream,
}

impl Kind {
    /// The name that `TYPE` gives.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::String => 1,
            Self::Hash => 2,
            Self::Set => 3,
            Self::List => 4,
            Self::SortedSet => 5,
            Self::Stream => 6,
        }
    }
}

/// Where the elements of a collection are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection {
    /// The id of this life of the collection.
    pub id: u64,
    /// See the module.
    pub a: u64,
    /// See the module.
    pub b: u64,
}

/// Where the entries of a stream are, and what is known about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The id of this life of the stream.
    pub id: u64,
    /// Number of entries.
    pub entries: u64,
    /// The latest id that was assigned.
    pub last: StreamId,
    /// The largest id of a deleted entry.
    pub deleted: StreamId,
    /// How many entries were ever added.
    pub added: u64,
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The bytes of a string.
    String(Bytes),
    /// A collection of this type.
    Collection(Kind, Collection),
    /// A stream.
    Stream(Stream),
}

const COLLECTION_BYTES: usize = 24;
const STREAM_BYTES: usize = 56;
/// Version, type, expiry, and what follows them in the longest header of a collection. With one byte more, a header
/// that is too long is still found to be damaged.
const OUTLINE_BYTES: usize = 10 + STREAM_BYTES + 1;

/// The header of a key. See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Milliseconds since 1970 after which the key is gone.
    pub expires_ms: Option<u64>,
    /// What the key holds.
    pub content: Content,
}

impl Header {
    /// Number of elements; of a stream, its entries. A string has none.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        match &self.content {
            Content::String(_) => 0,
            Content::Collection(Kind::List, list) => list.b.wrapping_sub(list.a),
            Content::Collection(_, collection) => collection.a,
            Content::Stream(stream) => stream.entries,
        }
    }

    /// A string that does not expire.
    #[must_use]
    pub fn string(bytes: impl Into<Bytes>) -> Self {
        Self { expires_ms: None, content: Content::String(bytes.into()) }
    }

    /// The type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match &self.content {
            Content::String(_) => Kind::String,
            Content::Collection(kind, _) => *kind,
            Content::Stream(_) => Kind::Stream,
        }
    }

    /// The id, if there are elements.
    #[must_use]
    pub const fn id(&self) -> Option<u64> {
        match &self.content {
            Content::String(_) => None,
            Content::Collection(_, collection) => Some(collection.id),
            Content::Stream(stream) => Some(stream.id),
        }
    }

    /// Whether the key holds a string that does not expire (see `plain`).
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.content, Content::String(_)) && self.expires_ms.is_none()
    }

    /// Whether the key is gone at this time.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires| now_ms > expires)
    }

    /// The bytes of the header of a string.
    #[must_use]
    pub fn encode_string(expires_ms: Option<u64>, content: &[u8]) -> Bytes {
        let mut bytes = begin(Kind::String, expires_ms, content.len());
        bytes.put_slice(content);
        bytes.freeze()
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let begin = |rest| begin(self.kind(), self.expires_ms, rest);
        let mut bytes;
        match &self.content {
            Content::String(content) => return Self::encode_string(self.expires_ms, content),
            Content::Collection(_, collection) => {
                bytes = begin(COLLECTION_BYTES);
                bytes.put_u64_le(collection.id);
                bytes.put_u64_le(collection.a);
                bytes.put_u64_le(collection.b);
            }
            Content::Stream(stream) => {
                bytes = begin(STREAM_BYTES);
                bytes.put_u64_le(stream.id);
                bytes.put_u64_le(stream.entries);
                for id in [stream.last, stream.deleted] {
                    bytes.put_u64_le(id.ms);
                    bytes.put_u64_le(id.sequence);
                }
                bytes.put_u64_le(stream.added);
            }
        }
        bytes.freeze()
    }

    /// The string in the bytes of a header; `None` when it has expired.
    ///
    /// # Errors
    /// As [`Header::decode`]; when it is no string.
    pub fn string_in(bytes: &Bytes, now_ms: u64) -> Outcome<Option<&[u8]>> {
        const PLAIN: [u8; 2] = [VERSION, Kind::String.number()];
        if let Some(content) = bytes.strip_prefix(&PLAIN) {
            return Ok(Some(content));
        }
        let header = Self::decode(bytes.clone())?;
        match header.content {
            _ if header.is_expired(now_ms) => Ok(None),
            Content::String(content) => Ok(bytes.get(bytes.len() - content.len()..)),
            _ => Err(Failure::WRONG_TYPE),
        }
    }

    /// The header in these bytes, but of a string only the first bytes, for who does not want the string.
    ///
    /// # Errors
    /// As [`Header::decode`].
    pub fn outline(bytes: &[u8]) -> Result<Self, Failure> {
        Self::decode(Bytes::copy_from_slice(bytes.get(..OUTLINE_BYTES).unwrap_or(bytes)))
    }

    /// The header in these bytes. A string shares their memory.
    ///
    /// # Errors
    /// When a newer build wrote it, or another program, or it is damaged.
    pub fn decode(mut bytes: Bytes) -> Result<Self, Failure> {
        let damaged = || Failure::damaged("the header of a key is cut or has an unknown type");
        let (version, kind) = (bytes.try_get_u8(), bytes.try_get_u8());
        let (Ok(version), Ok(kind)) = (version, kind) else { return Err(damaged()) };
        if version != VERSION {
            return Err(Failure::damaged(
                "this build does not know the header of a key: a newer build wrote it, or another program did",
            ));
        }
        let expires_ms = match kind & EXPIRES {
            0 => None,
            _ => Some(bytes.try_get_u64_le().map_err(|_| damaged())?),
        };
        let kind = TYPES.into_iter().find(|known| known.number() == kind & !EXPIRES).ok_or_else(damaged)?;
        let expected = match kind {
            Kind::String => return Ok(Self { expires_ms, content: Content::String(bytes) }),
            Kind::Stream => STREAM_BYTES,
            _ => COLLECTION_BYTES,
        };
        if bytes.len() != expected {
            return Err(damaged());
        }
        let id = bytes.get_u64_le();
        let content = if kind == Kind::Stream {
            let entries = bytes.get_u64_le();
            let mut id_of = || StreamId { ms: bytes.get_u64_le(), sequence: bytes.get_u64_le() };
            let (last, deleted) = (id_of(), id_of());
            Content::Stream(Stream { id, entries, last, deleted, added: bytes.get_u64_le() })
        } else {
            Content::Collection(kind, Collection { id, a: bytes.get_u64_le(), b: bytes.get_u64_le() })
        };
        Ok(Self { expires_ms, content })
    }
}

/// Returns the beginning of a header, with room for `rest` bytes after it.
fn begin(kind: Kind, expires_ms: Option<u64>, rest: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(10 + rest);
    bytes.put_u8(VERSION);
    match expires_ms {
        Some(expires) => {
            bytes.put_u8(kind.number() | EXPIRES);
            bytes.put_u64_le(expires);
        }
        None => bytes.put_u8(kind.number()),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_string_is_found_in_its_header() {
        let expiring = Header { expires_ms: Some(5), ..Header::string("ab") }.encode();
        assert_eq!(Header::string_in(&Header::string("ab").encode(), 9), Ok(Some(&b"ab"[..])));
        assert_eq!(Header::string_in(&expiring, 5), Ok(Some(&b"ab"[..])));
        assert_eq!(Header::string_in(&expiring, 6), Ok(None));
        let hash = Content::Collection(Kind::Hash, Collection { id: 7, a: 2, b: 0 });
        let hash = Header { expires_ms: Some(5), content: hash }.encode();
        assert_eq!(Header::string_in(&hash, 5), Err(Failure::WRONG_TYPE));
        assert_eq!(Header::string_in(&hash, 6), Ok(None));
        assert!(Header::string_in(&Bytes::from_static(&[1]), 0).is_err());
    }

    #[test]
    fn an_outline_is_all_but_a_long_string() {
        let long = Header { expires_ms: Some(5), ..Header::string(vec![b'x'; 1 << 20]) };
        let outline = Header::outline(&long.encode()).unwrap();
        assert_eq!((outline.expires_ms, outline.kind()), (Some(5), Kind::String));
        assert!(matches!(outline.content, Content::String(bytes) if bytes.len() < 100));
        let id = StreamId { ms: 1, sequence: 2 };
        let stream = Content::Stream(Stream { id: 7, entries: 2, last: id, deleted: id, added: 6 });
        let collection = Content::Collection(Kind::Set, Collection { id: 7, a: 2, b: 0 });
        for content in [stream, collection, Header::string("ab").content] {
            for expires_ms in [None, Some(5)] {
                let header = Header { expires_ms, content: content.clone() };
                let bytes = header.encode();
                assert_eq!(Header::outline(&bytes).unwrap(), header);
                let is_string = header.kind() == Kind::String;
                assert_eq!(Header::outline(&[&bytes[..], b"x"].concat()).is_ok(), is_string, "{header:?}");
            }
        }
    }

    #[test]
    fn a_header_of_another_program_is_not_called_a_newer_one() {
        let failure = Header::decode(Bytes::from_static(b"000000000001")).unwrap_err();
        assert!(format!("{failure:?}").contains("or another program did"), "{failure:?}");
    }

    #[test]
    fn golden_bytes_of_headers() {
        let collection = Collection { id: 7, a: 2, b: 0 };
        let list = Collection { id: 7, a: -1_i64 as u64, b: 2 };
        let id = |ms, sequence| StreamId { ms, sequence };
        let stream = Stream { id: 7, entries: 2, last: id(3, 4), deleted: id(1, 5), added: 6 };
        for (header, expected) in [
            (Header::string("ab"), "01016162"),
            (Header { expires_ms: Some(0x0102), ..Header::string("ab") }, "018102010000000000006162"),
            (
                Header { expires_ms: None, content: Content::Collection(Kind::Hash, collection) },
                "0102070000000000000002000000000000000000000000000000",
            ),
            (
                Header { expires_ms: None, content: Content::Collection(Kind::List, list) },
                "01040700000000000000ffffffffffffffff0200000000000000",
            ),
            (
                Header { expires_ms: None, content: Content::Stream(stream) },
                "0106070000000000000002000000000000000300000000000000040000000000000001000000000000000500000000000000\
                 0600000000000000",
            ),
        ] {
            let bytes = header.encode();
            assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
            assert_eq!(Header::decode(bytes).unwrap(), header);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = Bytes::from(bytes);
            if let Ok(header) = Header::decode(bytes.clone()) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn likely_bytes_give_a_header_or_an_error(
            kind: u8, expires in any::<bool>(), rest in prop::collection::vec(any::<u8>(), 20..68)
        ) {
            let kind = (kind % 8) | if expires { EXPIRES } else { 0 };
            let bytes = Bytes::from([&[VERSION, kind][..], &rest].concat());
            if let Ok(header) = Header::decode(bytes.clone()) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
