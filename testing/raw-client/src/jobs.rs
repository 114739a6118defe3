//! Kinds of jobs, and arguments of some: of a gather as in `docs/formats/gather.md`, of a search as in
//! `docs/formats/search.md`.

use crate::body::Range;

/// Copies the arguments into an output, and replies with its range and the arguments.
pub const ECHO: u16 = 1;
/// Copies ranges into the result.
pub const GATHER: u16 = 3;
/// Looks for keys.
pub const SEARCH: u16 = 17;

/// The arguments of a gather.
#[must_use]
pub fn gather(ranges: &[Range]) -> Vec<u8> {
    let mut arguments = vec![1];
    for Range { extent, offset, length } in ranges {
        arguments.extend_from_slice(&extent.to_le_bytes());
        arguments.extend_from_slice(&offset.to_le_bytes());
        arguments.extend_from_slice(&length.to_le_bytes());
    }
    arguments
}

/// A number in the shortest LEB128.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The arguments of a search for `key` in one block of `length` bytes: the first block of a table without segments, whose
/// image is at the start of an extent.
#[must_use]
pub fn search(extent: u32, key: &[u8], length: u32) -> Vec<u8> {
    const ANY_LENGTH: u64 = u32::MAX as u64;
    /// The largest sequence number, of 56 bits.
    const NEWEST: u64 = (1 << 56) - 1;
    // Version, and keys in the order of their bytes.
    let mut arguments = vec![1, 0];
    let put =
        |arguments: &mut Vec<u8>, numbers: &[u64]| numbers.iter().for_each(|number| put_varint(arguments, *number));
    // One table: its extent and offset, and no segments. One key.
    put(&mut arguments, &[ANY_LENGTH, 1, extent.into(), 0, 0, 1, key.len() as u64]);
    arguments.extend_from_slice(key);
    // One block, of that table.
    put(&mut arguments, &[NEWEST, 1, 0, 0, length.into()]);
    arguments
}
