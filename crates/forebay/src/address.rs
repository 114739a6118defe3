//! Addresses of memory nodes, and the back end that each form chooses.

use crate::Error;
use forebay_fabric::admission::{Access, AccessOptions, Admission, Users};
use forebay_fabric::{Link, Listener, shm, tcp};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The address of a memory node.
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
    /// Over TCP.
    Tcp {
        /// Host and port.
        place: String,
        /// How this process proves who it is, and what proof it asks of the node. By default it proves nothing and asks
        /// for nothing.
        access: AccessOptions,
    },
}

impl NodeAddress {
    /// Parses the address of a node that other processes reach, so not `local`.
    ///
    /// # Errors
    /// `Invalid`, with what would be valid.
    pub fn between_processes(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Address(format!("{text:?} {why}: use shm:<path> or tcp://<host>:<port>"));
        match Self::parse(text) {
            Ok(Self::Local) => Err(wrong("cannot be reached by other processes")),
            parsed => parsed.map_err(wrong),
        }
    }

    /// Parses an address. The error says what is wrong with it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(path) = text.strip_prefix("shm:") {
            return if path.is_empty() { Err("has no path") } else { Ok(Self::SharedMemory(path.into())) };
        }
        let place = text.strip_prefix("tcp://").ok_or("is no address of a memory node")?;
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp { place: place.into(), access: AccessOptions::default() })
            }
            Some(_) => Err("needs a host and a port from 0 to 65535"),
            None => Err("has no port"),
        }
    }

    /// Returns the same address with these access options. Files are read when a link is opened, so a file that was
    /// replaced before then counts. Only TCP addresses have access options: for other nodes the system decides who may
    /// connect.
    #[must_use]
    pub fn with_access(self, access: AccessOptions) -> Self {
        match self {
            Self::Tcp { place, .. } => Self::Tcp { place, access },
            other => other,
        }
    }
}

impl FromStr for NodeAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Address(format!("{text:?} {why}: use local, shm:<path> or tcp://<host>:<port>"));
        Self::parse(text).map_err(wrong)
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::SharedMemory(path) => write!(f, "shm:{}", path.display()),
            Self::Tcp { place, .. } => write!(f, "tcp://{place}"),
        }
    }
}

/// Opens a link to a memory node of another process.
///
/// # Errors
/// `Unavailable` when no node serves there; `AccessDenied` when the node does not let this process in, or is not one
/// that this process trusts; `Invalid` for `local`, which is not another process, and for files of an
/// [`AccessOptions`] that do not hold what they should.
pub fn connect(address: &NodeAddress) -> Result<Arc<dyn Link>, Error> {
    Ok(match address {
        NodeAddress::Local => {
            return Err(Error::Address("a node in this process is not connected to: use Store::embedded".into()));
        }
        NodeAddress::SharedMemory(path) => shm::connect(path)?,
        NodeAddress::Tcp { place, access } => {
            tcp::connect(place, tcp::Options { access: Access::load(access)?, ..tcp::Options::default() })?
        }
    })
}

/// How a memory node listens.
#[derive(Debug, Clone, Default)]
pub struct ListenOptions {
    /// The node's number.
    pub node: u32,
    /// TCP: what is asked of those who connect, and how the node proves itself.
    pub admission: Option<Arc<Admission>>,
    /// TCP: listen beyond loopback, although connections are not encrypted or clients do not prove who they are.
    pub allow_remote: bool,
    /// Shared memory: whose processes may connect. By default those of the node's own user.
    pub users: Users,
}

/// Opens the listener of a memory node.
///
/// # Errors
/// `Invalid` for an address that cannot be listened on with these options; `Io` when the system refuses.
pub fn listen(address: &NodeAddress, options: ListenOptions) -> Result<Box<dyn Listener>, Error> {
    let ListenOptions { node, admission, allow_remote, users } = options;
    let wrong = |text: &str| Err(Error::Address(format!("{address}: {text}")));
    Ok(match address {
        NodeAddress::Local => {
            return Err(Error::Address("other processes cannot reach local: listen on shm:<path> or tcp://".into()));
        }
        NodeAddress::SharedMemory(_) if admission.is_some() => {
            return wrong("certificates and secrets are for tcp://; shm: lets in users and groups of the machine");
        }
        NodeAddress::Tcp { .. } if !users.is_empty() => {
            return wrong("users and groups are for shm:; tcp:// asks for certificates or secrets");
        }
        NodeAddress::SharedMemory(path) => Box::new(shm::listen_for(path, node, users)?),
        NodeAddress::Tcp { place, .. } => {
            let address = place
                .parse()
                .map_err(|_| Error::Address(format!("{place}: listen on an IP address and a port, as 127.0.0.1:0")))?;
            let options = tcp::Options { allow_remote, admission, ..tcp::Options::default() };
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
            assert!(error.contains("use local, shm:<path> or tcp://<host>:<port>"), "{error}");
            let error = NodeAddress::between_processes(text).unwrap_err().to_string();
            assert!(error.contains("use shm:<path> or tcp://<host>:<port>"), "{error}");
        }
        assert!(NodeAddress::between_processes("local").is_err());
        assert_eq!(NodeAddress::between_processes("shm:/x").unwrap().to_string(), "shm:/x");
        assert!(connect(&NodeAddress::Local).is_err());
        assert!(listen(&NodeAddress::Local, ListenOptions::default()).is_err());
    }

    #[test]
    fn each_back_end_has_its_own_way_of_asking() {
        let said = |address: &str, options: ListenOptions| {
            listen(&address.parse().unwrap(), options).map(|_| ()).unwrap_err().to_string()
        };
        let admission = Some(Arc::new(Admission::load(Default::default()).unwrap()));
        let users = Users { uids: vec![1], gids: vec![] };
        let asks = ListenOptions { admission, ..ListenOptions::default() };
        assert!(said("shm:/tmp/never-there", asks).contains("users and groups"));
        assert!(said("tcp://127.0.0.1:0", ListenOptions { users, ..ListenOptions::default() }).contains("secrets"));
    }

    #[test]
    fn only_tcp_has_access() {
        let access = AccessOptions { node_name: Some("node".into()), ..AccessOptions::default() };
        let with = |text: &str| text.parse::<NodeAddress>().unwrap().with_access(access.clone());
        assert!(matches!(with("tcp://h:1"), NodeAddress::Tcp { access: given, .. } if given == access));
        assert_eq!(with("local"), NodeAddress::Local);
        assert_eq!(with("shm:/x").to_string(), "shm:/x");
    }
}
