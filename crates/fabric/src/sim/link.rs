//! Both ends of a link.

use super::flight::{Inbound, Lines};
use super::transport::SimTransport;
use super::{Inner, Time, Users};
use crate::admission::Origin;
use crate::counters::CountsRegistry;
use crate::transport::{Link, Peer, Revocation};
use crate::{
    AccessKey, Backing, Capabilities, Counts, Endpoint, EndpointId, EndpointOptions, Error, GrantTable, NodeIdentity,
    PeerId, Region, RemoteAddress, Rights, Traffic,
};
use std::sync::Arc;

/// A client's end of a link. The link ends when this is dropped.
#[derive(Debug)]
pub struct SimLink {
    network: Arc<Users>,
    /// Where the world keeps the link.
    place: usize,
    node: NodeIdentity,
    counts: Arc<CountsRegistry>,
}

impl SimLink {
    pub(super) fn new(network: Arc<Users>, place: usize, node: NodeIdentity, counts: Arc<CountsRegistry>) -> Self {
        Self { network, place, node, counts }
    }

    /// Stops everything on the link after `steps` more steps; 0 is at once.
    pub fn stop_after(&self, steps: u64) {
        let mut world = self.network.world();
        world.was_held = true;
        let link = &mut world.links[self.place];
        link.stop_at = Some(link.steps.saturating_add(steps));
    }

    /// Undoes [`SimLink::stop_after`]: operations in flight continue.
    pub fn resume(&self) {
        self.network.world().links[self.place].stop_at = None;
    }

    /// Steps that were made over the link.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.network.world().links[self.place].steps
    }

    /// Stops one endpoint; endpoints have numbers from 1 in the order of their opening.
    pub fn freeze(&self, endpoint: EndpointId) {
        self.network.world().set_frozen(self.place, endpoint, true);
    }

    /// Undoes [`SimLink::freeze`].
    pub fn thaw(&self, endpoint: EndpointId) {
        self.network.world().set_frozen(self.place, endpoint, false);
    }

    fn exposed(&self) -> Result<Arc<GrantTable>, Error> {
        let world = self.network.world();
        let link = &world.links[self.place];
        if link.alive { Ok(Arc::clone(&link.exposed)) } else { Err(world.lost(self.place)) }
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.close();
    }
}

impl Link for SimLink {
    fn node(&self) -> NodeIdentity {
        self.node
    }

    fn capabilities(&self) -> Capabilities {
        self.network.capabilities()
    }

    fn endpoint(&self, mut options: EndpointOptions) -> Result<Endpoint, Error> {
        let place = self.network.world().open(self.place)?;
        if self.network.options.time == Time::Virtual {
            options.clock = Arc::clone(&self.network.clock) as _;
        }
        let counts = self.counts.register(options.traffic);
        let transport = SimTransport::new(Arc::clone(&self.network), place);
        Ok(Endpoint::new(Box::new(transport), self.network.capabilities(), options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        self.exposed()?.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.exposed()?.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.counts.sum(traffic)
    }

    fn is_alive(&self) -> bool {
        self.network.world().links[self.place].alive
    }

    fn close(&self) {
        self.network.world().end_link(self.place, "the client closed the link");
        self.network.changed.notify_all();
    }
}

/// The node's end of a link.
#[derive(Debug)]
pub(super) struct SimPeer {
    pub(super) network: Arc<Inner>,
    pub(super) place: usize,
    pub(super) id: PeerId,
}

impl SimPeer {
    fn send_inbound(&self, endpoint: EndpointId, inbound: Inbound) -> Result<(), Error> {
        let mut world = self.network.world();
        world.inbound(self.place, endpoint, inbound)?;
        self.network.advance(&mut world);
        drop(world);
        self.network.changed.notify_all();
        Ok(())
    }

    /// The client's grants, if the link is alive.
    fn exposed(&self, endpoint: EndpointId) -> Result<Arc<GrantTable>, Error> {
        let world = self.network.world();
        if world.has_endpoint(self.place, endpoint) {
            Ok(Arc::clone(&world.links[self.place].exposed))
        } else {
            Err(world.lost(self.place))
        }
    }
}

impl Peer for SimPeer {
    fn id(&self) -> PeerId {
        self.id
    }

    fn origin(&self) -> Origin {
        Origin::here()
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        let mut world = self.network.world();
        if !world.links[self.place].alive {
            return Err(world.lost(self.place));
        }
        let key = world.links[self.place].offered.grant(region, offset, length, rights)?;
        world.granted(self.place, key);
        Ok(key)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        self.network.world().revoke(self.place, key)
    }

    fn read(&self, endpoint: EndpointId, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        let mut lines = None;
        loop {
            let exposed = self.exposed(endpoint)?;
            let mut world = self.network.world();
            if world.is_held(self.place, endpoint) {
                return Err(Error::lost("the client", "nothing of it advances"));
            }
            let held = exposed.hold();
            let (region, base) = held.check(from, into.len() as u64, Rights::READ)?;
            let line_bytes = self.network.options.line_bytes;
            let lines = lines.get_or_insert_with(|| Lines::new(base, into.len(), line_bytes));
            let Some((start, end)) = lines.take(&mut world.random) else { return Ok(()) };
            region.read(base + start as u64, into.get_mut(start..end).unwrap_or_default())?;
            if world.random.one_in(1, 4) {
                self.network.advance(&mut world);
            }
        }
    }

    fn write(
        &self,
        endpoint: EndpointId,
        to: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        self.exposed(endpoint)?.hold().check(to, bytes.len() as u64, Rights::WRITE)?;
        self.send_inbound(endpoint, Inbound { to: Some(to), bytes: bytes.to_vec(), immediate, lines: None })
    }

    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error> {
        let limit = self.network.capabilities().max_message_bytes;
        if bytes.len() > limit {
            return Err(Error::TooLarge { length: bytes.len() as u64, limit: limit as u64 });
        }
        self.send_inbound(endpoint, Inbound { to: None, bytes: bytes.to_vec(), immediate: None, lines: None })
    }

    fn is_alive(&self) -> bool {
        self.network.world().links[self.place].alive
    }

    fn close(&self) {
        self.network.world().end_link(self.place, "the node closed the link");
        self.network.changed.notify_all();
    }
}
