//! The handle of a link.

use super::capabilities::CAPABILITIES;
use super::frame::Frame;
use super::link::{self, PATIENCE, Shared};
use super::offered::file_for;
use super::transport::ShmTransport;
use crate::transport::{Link, Revocation};
use crate::{
    AccessKey, Backing, Capabilities, Counts, Endpoint, EndpointOptions, Error, NodeIdentity, Region, Rights, Traffic,
};
use rustix::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Opens a link.
pub(super) fn open(path: &Path) -> Result<Arc<dyn Link>, Error> {
    Ok(Arc::new(ShmLink(link::open(path)?)))
}

/// The handle; the link ends when it is dropped.
#[derive(Debug)]
struct ShmLink(Arc<Shared>);

impl Drop for ShmLink {
    fn drop(&mut self) {
        self.0.end("this process dropped the link");
    }
}

impl Link for ShmLink {
    fn node(&self) -> NodeIdentity {
        self.0.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error> {
        // A node that refuses does not know the link: it is another life of the node.
        let attached = self.0.attach().map_err(|cause| if self.0.is_alive() { cause } else { self.0.lost() })?;
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        let counts = self.0.counts.register(options.traffic);
        let transport = ShmTransport::new(Arc::clone(&self.0), attached);
        Ok(Endpoint::new(Box::new(transport), CAPABILITIES, options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Shareable)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        let file = file_for(region, offset, length, rights)?;
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        let key = self.0.offered.ask()?;
        let frame = Frame::Grant { key, rights, offset, length }.encode();
        if let Err(cause) = self.0.control.send(&[&frame], Some(file.as_fd()), PATIENCE) {
            self.0.offered.forget(key);
            return Err(if self.0.is_alive() { cause } else { self.0.lost() });
        }
        match self.0.offered.wait_answer(key, PATIENCE) {
            Some(answer) => answer.map(|()| key),
            None => {
                self.0.end("the node did not answer a grant");
                Err(self.0.lost())
            }
        }
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        let revocation = self.0.offered.withdraw(key)?;
        if let Err(cause) = self.0.control.send(&[&Frame::Revoke { key }.encode()], None, PATIENCE) {
            self.0.end(cause.to_string());
        }
        Ok(revocation)
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.0.counts.sum(traffic)
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn close(&self) {
        self.0.end("this process closed the link");
    }
}
