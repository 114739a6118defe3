//! Addresses of memory nodes, and the back end that each form chooses.

use crate::Error;
use forebay_fabric::{Link, Listener, shm, tcp};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Where a memory node is.
///
/// ```text
///   local                in this process
///   shm:<path>           on this machine, over shared memory; the path is a Unix socket
///   tcp://<host>:<port>  anywhere
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAddress {
    /// In this process: [`Store::embedded`](crate::Store::embedded).
    Local,
    /// Over shared memory.
    SharedMemory(PathBuf),
    /// Over TCP: host and port.
    Tcp(String),
}

impl FromStr for NodeAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Address(format!("{text:?} {why}: use local, shm:<path> or tcp://<host>:<port>"));
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(path) = text.strip_prefix("shm:") {
            return if path.is_empty() { Err(wrong("has no path")) } else { Ok(Self::SharedMemory(path.into())) };
        }
        let Some(place) = text.strip_prefix("tcp://") else { return Err(wrong("is no address of a memory node")) };
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(place.into())),
            Some(_) => Err(wrong("needs a host and a port from 0 to 65535")),
            None => Err(wrong("has no port")),
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::SharedMemory(path) => write!(f, "shm:{}", path.display()),
            Self::Tcp(place) => write!(f, "tcp://{place}"),
        }
    }
}

/// Opens a link to a memory node of another process.
///
/// # Errors
/// `Unavailable` when nobody serves there; `Invalid` for `local`, which is no other process.
pub fn connect(address: &NodeAddress) -> Result<Arc<dyn Link>, Error> {
    Ok(match address {
        NodeAddress::Local => {
            return Err(Error::Address("a node in this process is not connected to: use Store::embedded".into()));
        }
        NodeAddress::SharedMemory(path) => shm::connect(path)?,
        NodeAddress::Tcp(place) => tcp::connect(place, tcp::Options::default())?,
    })
}

/// Opens the listener of a memory node with this number. TCP listens beyond loopback only if
/// `allow_remote`, because it is not encrypted.
///
/// # Errors
/// `Invalid` for an address that cannot be listened on, `Io` when the system refuses.
pub fn listen(address: &NodeAddress, node: u32, allow_remote: bool) -> Result<Box<dyn Listener>, Error> {
    Ok(match address {
        NodeAddress::Local => {
            return Err(Error::Address("other processes cannot reach local: listen on shm:<path> or tcp://".into()));
        }
        NodeAddress::SharedMemory(path) => Box::new(shm::listen(path, node)?),
        NodeAddress::Tcp(place) => {
            let address = place
                .parse()
                .map_err(|_| Error::Address(format!("{place}: listen on an IP address and a port, as 127.0.0.1:0")))?;
            let options = tcp::Options { allow_remote, ..tcp::Options::default() };
            Box::new(tcp::listen(address, node, options)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_refused() {
        for text in ["local", "shm:/tmp/node", "tcp://127.0.0.1:0", "tcp://[::1]:4000", "tcp://memory-1:4000"] {
            assert_eq!(text.parse::<NodeAddress>().unwrap().to_string(), text);
        }
        for text in
            ["", "shm:", "tcp://", "tcp://host", "tcp://host:x", "tcp://:1", "tcp://h:70000", "/tmp/x", "udp://h:1"]
        {
            let error = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(error.contains("tcp://<host>:<port>"), "{error}");
        }
        assert!(connect(&NodeAddress::Local).is_err());
        assert!(listen(&NodeAddress::Local, 1, false).is_err());
    }
}
