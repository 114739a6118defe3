//! The journal: where a batch of the shared tree is stored while it is applied.
//!
//! Described in `docs/formats/redis-journal.md`.
//!
//! A batch of several changes is first written as a *journal*: records of the tree that hold all of it. Then its
//! changes are made, one after another, and then the journal is ended. The process that opens the tree next makes again
//! the changes of each journal that its writer has not ended. So either all of a batch exists or nothing. Each writer
//! has a *slot* meanwhile, and a slot has at most one journal.
//!
//! ```text
//!   key      offset  size                            value
//!            0       4     01 "jrn"                  piece 0: the head; no bytes, or no head: there is no journal
//!            4       2     slot, big-endian          others:  a part of the changes
//!            6       2     piece, big-endian
//!
//!   head     offset  size
//!            0       1     version (1)
//!            1       4     CRC-32C of what follows, and of all pieces
//!            5       2     number of pieces beside the head
//!            7       8     bytes of the changes
//!            15      …     the changes (see `changes`), if there are no other pieces; what follows them means nothing
//! ```
//!
//! Numbers in values are little-endian. Keys have 8 bytes, which the tree holds without a block of memory of their own.
//!
//! *The reserve.* When the nodes are full, there is no room for a journal, but even a batch that makes room needs one.
//! So there are records that always exist, and whose values the tree also holds without a block: to change them takes
//! no memory. They are the journal of one short batch that only removes.
//!
//! ```text
//!   key      offset  size                            value
//!            0       4     01 "jrr"                  record 0: no bytes, or 01 while there is a journal
//!            4       4     number, big-endian        others:   5 bytes each of the head above, but its first byte, and of the changes
//! ```
//!
//! *All of a journal, or none of it.* Pieces are written first, and then the head with one write that takes effect or
//! does not. A head is also ended with one write, and then the pieces are removed.
//!
//! *Two journals that exist at the same time touch different keys.* The writer of a batch has locked the keys that the
//! batch changes, from before the head exists until after the head is ended. Elements under an id that no header names
//! belong to one writer alone. So the order in which journals are applied again does not matter, and nothing that was
//! written later is undone.

use crate::records::changes::damaged;
use bytes::{Buf, BufMut};
use crc_fast::{CrcAlgorithm, Digest};
use forebay::Error;

/// Bytes of a key.
pub const KEY_BYTES: usize = 8;
/// Bytes of a head before the changes.
pub const HEAD_BYTES: usize = 15;
const PREFIX: [u8; 4] = *b"\x01jrn";
const END: [u8; 4] = *b"\x01jro";
const RESERVE: [u8; 4] = *b"\x01jrr";
const RESERVE_END: [u8; 4] = *b"\x01jrs";
const VERSION: u8 = 1;
/// Records of the reserve beside its first one, and the bytes of each: as many as the tree holds without a block.
pub const RESERVE_RECORDS: u32 = 511;
const RESERVE_RECORD_BYTES: usize = 5;
/// The value of the first record while there is a journal.
pub const RESERVE_USED: &[u8] = &[1];

/// Number of a writer.
pub type Slot = u16;
/// The slot of the reserve.
pub const RESERVE_SLOT: Slot = Slot::MAX;

/// Returns the key of a piece; the head is piece 0.
#[must_use]
pub fn key(slot: Slot, piece: u16) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let mut rest = &mut key[..];
    rest.put_slice(&PREFIX);
    rest.put_u16(slot);
    rest.put_u16(piece);
    key
}

/// Returns the range of all keys of journals: the first key, and the first key after the range.
#[must_use]
pub const fn area() -> ([u8; 4], [u8; 4]) {
    (PREFIX, END)
}

/// The key of a record of the reserve.
#[must_use]
pub fn reserve_key(number: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let mut rest = &mut key[..];
    rest.put_slice(&RESERVE);
    rest.put_u32(number);
    key
}

/// Returns the key that says whether a slot has a journal: an empty value ends the journal.
#[must_use]
pub fn head_key(slot: Slot) -> [u8; KEY_BYTES] {
    if slot == RESERVE_SLOT { reserve_key(0) } else { key(slot, 0) }
}

/// Returns the range of all keys of the reserve, as [`area`].
#[must_use]
pub const fn reserve_area() -> ([u8; 4], [u8; 4]) {
    (RESERVE, RESERVE_END)
}

/// Returns the values of the reserve's records for these changes, beginning with the second record. `None` when they
/// are too long.
#[must_use]
pub fn reserved(changes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let head = Journal::of(changes, usize::MAX)?.head;
    let values: Vec<Vec<u8>> = head.get(1..)?.chunks(RESERVE_RECORD_BYTES).map(<[u8]>::to_vec).collect();
    (values.len() <= RESERVE_RECORDS as usize).then_some(values)
}

/// Returns the changes that the reserve's records hold, beginning with the second record.
///
/// # Errors
/// `Corrupt` when they are not what was written.
pub fn changes_of_reserve(records: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    changes(&[&[VERSION], &records.concat()[..]].concat(), &[])
}

/// The slot and the piece that a key names.
#[must_use]
pub fn named(key: &[u8]) -> Option<(Slot, u16)> {
    let mut rest = key.strip_prefix(&PREFIX)?;
    (rest.len() == 4).then(|| (rest.get_u16(), rest.get_u16()))
}

/// The journal of changes, in pieces of a bounded length.
#[derive(Debug)]
pub struct Journal<'a> {
    /// The head, which is written last.
    pub head: Vec<u8>,
    /// The pieces, which are written before it, the first piece first.
    pub pieces: Vec<&'a [u8]>,
    /// Number of pieces.
    pub count: u16,
}

impl<'a> Journal<'a> {
    /// Returns the journal of these changes, in pieces of at most `piece_bytes`. `None` when there are too many
    /// changes.
    #[must_use]
    pub fn of(changes: &'a [u8], piece_bytes: usize) -> Option<Self> {
        let is_short = HEAD_BYTES + changes.len() <= piece_bytes;
        let pieces: Vec<_> = if is_short { Vec::new() } else { changes.chunks(piece_bytes.max(1)).collect() };
        let count = u16::try_from(pieces.len()).ok()?;
        let mut sizes = Vec::with_capacity(HEAD_BYTES);
        sizes.put_u16_le(count);
        sizes.put_u64_le(changes.len() as u64);
        let mut head = Vec::with_capacity(HEAD_BYTES + if is_short { changes.len() } else { 0 });
        head.put_u8(VERSION);
        head.put_u32_le(checksum(&sizes, changes));
        head.put_slice(&sizes);
        if is_short {
            head.put_slice(changes);
        }
        Some(Self { head, pieces, count })
    }
}

/// Returns the changes of a journal with this head and these pieces, the first piece first.
///
/// # Errors
/// `Corrupt` when they are not what was written.
pub fn changes(head: &[u8], pieces: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let wrong = || damaged("a journal");
    let (mut fixed, rest) = head.split_at_checked(HEAD_BYTES).ok_or_else(wrong)?;
    let (version, expected, sizes) = (fixed.get_u8(), fixed.get_u32_le(), fixed);
    let (count, length) = (fixed.get_u16_le(), fixed.get_u64_le());
    let pieces = pieces.get(..usize::from(count)).ok_or_else(wrong)?;
    let changes = match pieces {
        [] => usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(wrong)?.to_vec(),
        pieces => pieces.concat(),
    };
    if version != VERSION || changes.len() as u64 != length || checksum(sizes, &changes) != expected {
        return Err(wrong());
    }
    Ok(changes)
}

fn checksum(sizes: &[u8], changes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(sizes);
    digest.update(changes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes_of_a_journal() {
        assert_eq!(hex(&key(3, 0x0102)), "016a726e00030102");
        assert_eq!(
            (named(&key(3, 0x0102)), named(b"\x01jrn"), named(b"\x01jro\0\0\0\0")),
            (Some((3, 0x0102)), None, None)
        );
        let (from, to) = area();
        assert!(from[..] < key(0, 0)[..] && key(u16::MAX, u16::MAX)[..] < to[..]);
        let short = Journal::of(b"changes", 64).unwrap();
        assert_eq!(hex(&short.head), "01a46c714a000007000000000000006368616e676573");
        assert!(short.pieces.is_empty());
        let long = Journal::of(b"changes", 3).unwrap();
        assert_eq!(hex(&long.head), "0145085caa03000700000000000000");
        assert_eq!(long.pieces, [&b"cha"[..], b"nge", b"s"]);
        assert!(Journal::of(&[0; 1 << 16], 1).is_none());
    }

    #[test]
    fn golden_bytes_of_the_reserve() {
        assert_eq!(
            (hex(&reserve_key(0x0102)), hex(&head_key(RESERVE_SLOT))),
            ("016a727200000102".into(), "016a727200000000".into())
        );
        assert_eq!(head_key(3), key(3, 0));
        let values = reserved(b"changes").unwrap();
        let head = Journal::of(b"changes", 64).unwrap().head;
        assert_eq!(
            (values.concat(), values.iter().map(Vec::len).collect::<Vec<_>>()),
            (head[1..].to_vec(), vec![5, 5, 5, 5, 1])
        );
        // Remains of an earlier journal follow.
        let stale = [values.clone(), vec![vec![9; 5]; 3]].concat();
        assert_eq!(changes_of_reserve(&stale).unwrap(), b"changes");
        assert!(changes_of_reserve(&values[..4]).is_err() && changes_of_reserve(&[]).is_err());
        let most = RESERVE_RECORDS as usize * 5 - (HEAD_BYTES - 1);
        assert!(reserved(&vec![0; most]).is_some() && reserved(&vec![0; most + 1]).is_none());
    }

    #[test]
    fn a_journal_that_is_not_what_was_written_is_refused() {
        for piece_bytes in [64, 3] {
            let Journal { head, pieces, .. } = Journal::of(b"changes", piece_bytes).unwrap();
            let pieces: Vec<Vec<u8>> = pieces.into_iter().map(<[u8]>::to_vec).collect();
            assert_eq!(changes(&head, &pieces).unwrap(), b"changes");
            if pieces.is_empty() {
                assert_eq!(changes(&[&head[..], &[0; 9]].concat(), &[]).unwrap(), b"changes");
            }
            for at in 0..head.len() {
                let mut rotten = head.clone();
                rotten[at] ^= 4;
                assert!(changes(&rotten, &pieces).is_err(), "{at}");
                assert!(changes(&head[..at], &pieces).is_err(), "{at}");
            }
            for piece in 0..pieces.len() {
                assert!(changes(&head, &pieces[..piece]).is_err());
                let mut rotten = pieces.clone();
                rotten[piece][0] ^= 4;
                assert!(changes(&head, &rotten).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(head: Vec<u8>, pieces: Vec<Vec<u8>>) {
            prop_assert!(changes(&head, &pieces).is_err() && changes_of_reserve(&pieces).is_err());
        }
    }
}
