//! The handle of a link.

use super::link::{Shared, join};
use super::transport::TcpTransport;
use super::{CAPABILITIES, Options};
use crate::transport::{Link, Revocation};
use crate::{
    AccessKey, Backing, Capabilities, Counts, Endpoint, EndpointOptions, Error, NodeIdentity, Region, Rights, Traffic,
};
use std::net::ToSocketAddrs;
use std::sync::Arc;

/// Opens a link to the node at `address`: `tcp://host:port`, or `host:port`.
///
/// # Errors
/// [`Error::Invalid`] for an address of another form; [`Error::PeerLost`] when no node answers
/// there within [`Options::connect_timeout`]; [`Error::NotAdmitted`] when the node does not admit this process, or
/// is not one that this process trusts.
pub fn connect(address: &str, options: Options) -> Result<Arc<dyn Link>, Error> {
    let place = address.strip_prefix("tcp://").unwrap_or(address);
    let invalid = |cause: String| {
        Error::Invalid(format!("{address:?} is not the address of a TCP node, such as tcp://127.0.0.1:4000: {cause}"))
    };
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    let candidates = place.to_socket_addrs().map_err(|e| invalid(e.to_string()))?;
    let mut last = Err(invalid("the name has no address".into()));
    for candidate in candidates {
        last = join(candidate, host, options.clone());
        // A node that answers is the right one, even if it admits nobody.
        if matches!(last, Ok(_) | Err(Error::NotAdmitted { .. })) {
            break;
        }
    }
    last.map(|shared| Arc::new(TcpLink(shared)) as Arc<dyn Link>)
}

/// The link ends when this is dropped.
#[derive(Debug)]
struct TcpLink(Arc<Shared>);

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Link for TcpLink {
    fn node(&self) -> NodeIdentity {
        self.0.node
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error> {
        let (stream, input) = self.0.open()?;
        let counts = self.0.counts.register(options.traffic);
        let transport = TcpTransport::new(Arc::clone(&self.0), stream, input);
        Ok(Endpoint::new(Box::new(transport), CAPABILITIES, options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if !self.0.check() {
            return Err(self.0.ended());
        }
        self.0.exposed.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.0.exposed.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.0.counts.sum(traffic)
    }

    fn is_alive(&self) -> bool {
        self.0.check()
    }

    fn close(&self) {
        self.0.end();
    }
}
