//! Writing a dump.

use crate::binary;
use crate::entry::{Entry, Format};
use crate::error::{Error, Result};
use crate::{json, tsv};
use forebay::{Db, DbIterator, EngineError, IterOptions, KeyOrder, Keyspace, KeyspaceIterator};
use forebay_base::MAX_KEY_BYTES;
use std::io::Write;

/// Which keys to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// The first key, in the database's order.
    pub from: Option<Vec<u8>>,
    /// The first key after the range, in the database's order.
    pub to: Option<Vec<u8>>,
    /// Only keys with this prefix.
    pub prefix: Option<Vec<u8>>,
}

impl Range {
    /// Whether the range has all keys.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.prefix.is_none()
    }

    /// Checks that the range does not end before it starts.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self, order: KeyOrder) -> Result<()> {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) if order.compare(from, to).is_gt() => {
                Err(Error::invalid(format!("the range ends before it starts in the {} order", order.name())))
            }
            _ => Ok(()),
        }
    }

    fn options(&self) -> IterOptions<'_> {
        IterOptions {
            lower: self.from.as_deref(),
            upper: self.to.as_deref(),
            prefix: self.prefix.as_deref(),
            snapshot: None,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dumped {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub entry_bytes: u64,
    /// Bytes of the dump.
    pub bytes: u64,
}

/// Bytes that are collected before they are written.
const PIECE_BYTES: usize = 64 << 10;

/// Writes the keys of a database, or of a keyspace of it, as of now. Calls `progress` from time to time.
///
/// # Errors
/// `Invalid` when the range ends before it starts, or for a value that operands have made longer than 64 MiB, which could not
/// be loaded: the message names its key; those of reads and of the output.
pub fn write(
    db: &Db,
    keyspace: Option<&Keyspace>,
    range: &Range,
    format: Format,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Dumped),
) -> Result<Dumped> {
    let order = db.key_order();
    range.check(order)?;
    let mut cursor = match keyspace {
        Some(keyspace) => Cursor::Keyspace(keyspace.iter_with(&range.options())?),
        None => Cursor::Database(db.iter_with(&range.options())?),
    };
    let mut piece = Vec::new();
    let mut dumped = Dumped::default();
    let mut binary = match format {
        Format::Binary => Some(binary::Writer::begin(order, db.merge_operator(), &mut piece)?),
        Format::Tsv | Format::Json => None,
    };
    cursor.seek_to_first()?;
    while let Some(entry) = cursor.entry() {
        // Merge operands can make a value too long to load.
        entry.check(MAX_KEY_BYTES)?;
        dumped.keys += 1;
        dumped.entry_bytes += (entry.key.len() + entry.value.len()) as u64;
        match (&mut binary, format) {
            (Some(writer), _) => writer.push(&entry, &mut piece)?,
            (None, Format::Json) => json::encode(&entry, &mut piece)?,
            (None, _) => tsv::encode(&entry, &mut piece),
        }
        if piece.len() >= PIECE_BYTES {
            ship(&mut piece, out, &mut dumped)?;
            progress(dumped);
        }
        cursor.next()?;
    }
    if let Some(writer) = binary {
        writer.finish(&mut piece)?;
    }
    ship(&mut piece, out, &mut dumped)?;
    progress(dumped);
    Ok(dumped)
}

fn ship(piece: &mut Vec<u8>, out: &mut dyn Write, dumped: &mut Dumped) -> Result<()> {
    out.write_all(piece).map_err(|cause| Error::io("writing the dump", &cause))?;
    dumped.bytes += piece.len() as u64;
    piece.clear();
    Ok(())
}

enum Cursor {
    Database(DbIterator),
    Keyspace(KeyspaceIterator),
}

impl Cursor {
    fn seek_to_first(&mut self) -> std::result::Result<(), EngineError> {
        match self {
            Self::Database(cursor) => cursor.seek_to_first(),
            Self::Keyspace(cursor) => cursor.seek_to_first(),
        }
    }

    fn next(&mut self) -> std::result::Result<(), EngineError> {
        match self {
            Self::Database(cursor) => cursor.next(),
            Self::Keyspace(cursor) => cursor.next(),
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let (is_valid, key, value, expiry_ms) = match self {
            Self::Database(cursor) => (cursor.valid(), cursor.key(), cursor.value(), cursor.expiry_ms()),
            Self::Keyspace(cursor) => (cursor.valid(), cursor.key(), cursor.value(), cursor.expiry_ms()),
        };
        is_valid.then(|| Entry { key: key.into(), value: value.into(), expiry_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::{ErrorKind, Options, Store};

    /// Whatever is written can be loaded.
    #[test]
    fn a_value_that_cannot_be_loaded_is_refused_by_its_key() {
        let options = Options { merge_operator: Some("append".to_owned()), ..Options::default() };
        let store = Store::embedded(512 << 20, Options { write_buffer_bytes: 8 << 20, ..options }).unwrap();
        let operand = vec![b'.'; 1 << 20];
        (0..65).for_each(|_| store.merge(b"long\xff", &operand).unwrap());
        for format in [Format::Tsv, Format::Json, Format::Binary] {
            let refused =
                write(&store, None, &Range::default(), format, &mut std::io::sink(), &mut |_| ()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains("long\\xff"), "{refused}");
        }
    }
}
