//! Lines of a block trace.

use super::request::{BLOCK_BYTES, MAX_REQUEST_BYTES, Request};

/// The first line of the form.
pub(super) const HEADER: &str = "version,time,op,size,lbn";

/// Parses a line. An error says what would be valid.
pub(super) fn parse(line: &str) -> Result<Request, String> {
    let mut fields = line.split(',').map(str::trim);
    let (Some(_version), Some(_time), Some(op), Some(size), Some(lbn), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(format!("expected five fields, {HEADER}"));
    };
    let size = size.parse::<u64>().map_err(|_| format!("the size `{size}` is not a number of bytes"))?;
    if size == 0 || !size.is_multiple_of(BLOCK_BYTES) || size > MAX_REQUEST_BYTES {
        return Err(format!("the size {size} is not a multiple of {BLOCK_BYTES} bytes up to {MAX_REQUEST_BYTES}"));
    }
    let count = size / BLOCK_BYTES;
    let first = lbn.parse::<u64>().map_err(|_| format!("the block `{lbn}` is not a number"))?;
    if first.checked_add(count).is_none() {
        return Err(format!("{count} blocks from {first} are beyond the last number"));
    }
    match op {
        "28" => Ok(Request::ReadBlocks { first, count }),
        "2a" | "2A" => Ok(Request::WriteBlocks { first, count }),
        _ => Err(format!("the operation `{op}` is neither 28 (read) nor 2a (write)")),
    }
}
