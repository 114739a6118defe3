//! The node's side.

use super::Inner;
use super::link::SimPeer;
use super::world::{Happening, World};
use crate::transport::{Event, Listener, Peer, Place};
use crate::{Backing, Capabilities, Error, NodeIdentity, Region};
use std::sync::Arc;
use std::time::Duration;

/// A node of the simulated network. It crashes when this is dropped.
#[derive(Debug)]
pub struct SimListener {
    network: Arc<Inner>,
    identity: NodeIdentity,
}

impl SimListener {
    pub(super) fn new(network: Arc<Inner>, identity: NodeIdentity) -> Self {
        Self { network, identity }
    }

    fn pop(&self, world: &mut World) -> Result<Option<Event>, Error> {
        let node = world.living(self.identity).ok_or_else(|| Error::io("serving", "the node has crashed"))?;
        let happened = node.happened.pop_front();
        let peer = |world: &World, link: usize| -> Arc<dyn Peer> {
            Arc::new(SimPeer { network: Arc::clone(&self.network), place: link, id: world.links[link].id })
        };
        Ok(happened.map(|happening| match happening {
            Happening::Joined(link) => Event::Joined(peer(world, link)),
            Happening::Message { link, endpoint, bytes } => {
                Event::Message { peer: peer(world, link), endpoint, bytes, place: Place::default() }
            }
            Happening::Left { peer, cause } => Event::Left { peer, cause },
        }))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.network.world().crash(self.identity);
        self.network.changed.notify_all();
    }
}

impl Listener for SimListener {
    fn address(&self) -> String {
        format!("sim:{}", self.identity.node)
    }

    fn identity(&self) -> NodeIdentity {
        self.identity
    }

    fn capabilities(&self) -> Capabilities {
        self.network.capabilities()
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        let mut world = self.network.world();
        if let Some(event) = self.pop(&mut world)? {
            return Ok(Some(event));
        }
        self.network.advance(&mut world);
        if let Some(event) = self.pop(&mut world)? {
            return Ok(Some(event));
        }
        if limit.is_zero() {
            return Ok(None);
        }
        self.network.idle(world, limit);
        self.pop(&mut self.network.world())
    }
}
