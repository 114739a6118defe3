//! Sockets with bounded waits, and frames that come over them.

use crate::wire::HEADER_BYTES;
use std::io::{Error, ErrorKind, Read, Result};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client waits for what it asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects to a node.
///
/// # Errors
/// As for sockets.
pub fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address.trim_start_matches("tcp://"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(crate) fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Reads a frame: its kind, number and body.
///
/// # Errors
/// As for sockets.
pub fn read_frame(stream: &mut impl Read) -> Result<(u8, u64, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let [_, _, kind, _, a, b, c, d, number @ ..] = header;
    let mut body = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
    stream.read_exact(&mut body)?;
    Ok((kind, u64::from_le_bytes(number), body))
}
