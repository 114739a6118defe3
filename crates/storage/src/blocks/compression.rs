//! How blocks are compressed.

use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Levels of Zstandard.
const LEVELS: RangeInclusive<u8> = 1..=22;
/// The level that Zstandard's authors made the default.
const DEFAULT_LEVEL: u8 = 3;

/// How the blocks of an object are compressed. A block that does not shrink by an eighth is stored uncompressed: it would
/// cost time at each read for little gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast to read, shrinks less.
    #[default]
    Lz4,
    /// Zstandard: shrinks more, slower to read.
    Zstd {
        /// From 1, the fastest, to 22.
        level: u8,
    },
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd { level } => write!(f, "zstd={level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = text.split_once('=').map_or((text, None), |(name, level)| (name, Some(level)));
        let level = level.map_or(Some(DEFAULT_LEVEL), |level| level.parse().ok());
        match (name, level) {
            ("none", _) if text == name => Ok(Self::None),
            ("lz4", _) if text == name => Ok(Self::Lz4),
            ("zstd", Some(level)) if LEVELS.contains(&level) => Ok(Self::Zstd { level }),
            _ => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> Error {
    let detail = "compression is none, lz4, zstd, or zstd=LEVEL with a level from 1 to 22";
    Error::new(ErrorKind::Invalid, "compress", text, detail)
}

/// How a block's payload is encoded. The numbers are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Codec {
    Stored = 0,
    Lz4 = 1,
    Zstd = 2,
}

impl Codec {
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Stored,
            1 => Self::Lz4,
            2 => Self::Zstd,
            _ => return None,
        })
    }
}

/// Compresses one block after another.
pub(super) struct Compressor {
    method: Method,
    buffer: Vec<u8>,
}

enum Method {
    None,
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// # Errors
    /// `Invalid` for a level that does not exist.
    pub fn new(compression: Compression) -> Result<Self> {
        let method = match compression {
            Compression::None => Method::None,
            Compression::Lz4 => Method::Lz4,
            Compression::Zstd { level } if LEVELS.contains(&level) => {
                let made = zstd::bulk::Compressor::new(level.into());
                Method::Zstd(made.map_err(|error| Error::io("compress", "a block", &error))?)
            }
            Compression::Zstd { .. } => return Err(unknown(&compression.to_string())),
        };
        Ok(Self { method, buffer: Vec::new() })
    }

    /// The stored form of `bytes`: compressed, or unchanged.
    pub fn compress<'a>(&'a mut self, bytes: &'a [u8]) -> (Codec, &'a [u8]) {
        let most = bytes.len() - bytes.len() / 8;
        let (codec, length) = match &mut self.method {
            Method::None => (Codec::Stored, None),
            Method::Lz4 => {
                self.buffer.resize(lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
                (Codec::Lz4, lz4_flex::block::compress_into(bytes, &mut self.buffer).ok())
            }
            Method::Zstd(compressor) => {
                self.buffer.resize(zstd::zstd_safe::compress_bound(bytes.len()), 0);
                (Codec::Zstd, compressor.compress_to_buffer(bytes, &mut self.buffer[..]).ok())
            }
        };
        match length.filter(|length| *length < most).and_then(|length| self.buffer.get(..length)) {
            Some(compressed) => (codec, compressed),
            None => (Codec::Stored, bytes),
        }
    }
}

thread_local! {
    /// Kept, because making one takes longer than decompressing a block.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The bytes that `payload` decodes to, if there are exactly `length`.
pub(super) fn decompress(codec: Codec, payload: &[u8], length: usize) -> Option<Cow<'_, [u8]>> {
    match codec {
        Codec::Stored => (payload.len() == length).then_some(Cow::Borrowed(payload)),
        Codec::Lz4 => filled(length, |out| lz4_flex::block::decompress_into(payload, out).ok()),
        Codec::Zstd => filled(length, |out| {
            ZSTD.with_borrow_mut(|held| {
                if held.is_none() {
                    *held = zstd::bulk::Decompressor::new().ok();
                }
                held.as_mut()?.decompress_to_buffer(payload, out).ok()
            })
        }),
    }
}

/// `length` bytes, if `fill` fills all of them.
fn filled<'a>(length: usize, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Cow<'a, [u8]>> {
    let mut out = vec![0; length];
    (fill(&mut out) == Some(length)).then_some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 19 }] {
            assert_eq!(compression.to_string().parse::<Compression>().unwrap(), compression);
        }
        assert_eq!("zstd".parse::<Compression>().unwrap(), Compression::Zstd { level: 3 });
        for bad in ["", "LZ4", "lz4=1", "none=0", "zstd=", "zstd=0", "zstd=23", "zstd=x", "gzip"] {
            assert_eq!(bad.parse::<Compression>().unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        assert_eq!(Compressor::new(Compression::Zstd { level: 0 }).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
