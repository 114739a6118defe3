//! The simulated back end: seeded, adversarial, and as weak as the contract allows.
//!
//! It does to remote memory what a network may do but tests seldom see. Operations in flight are broken into
//! lines that land one by one, in any order, between those of other endpoints. Completions come late and in
//! any order. Endpoints break and stall, links end, nodes crash. If a completion is lost, none, some or all
//! of the operation's effect happens, perhaps after the client has reconnected. Nothing holds beyond the
//! contract in the crate's documentation.
//!
//! # Repeatability
//!
//! Everything depends on one seed. In one thread, with [`Time::Virtual`], the same calls give the same
//! behaviour ([`SimNetwork::fingerprint`]), provided that secrets are also the same. A torn message looks
//! whole when its missing bytes equal those that were there before, so what arrives depends on the secrets
//! of keys in it. Several threads may use the network; then the behaviour depends on how they interleave.
//!
//! # Progress
//!
//! Nothing happens by itself: each doorbell, poll and wait advances everything in flight by a random number
//! of steps. A memory node on the caller's own thread is served through [`SimNetwork::set_progress_hook`]: a
//! poll that finds nothing calls the hook. The network's handles, links and clients' endpoints keep the hook
//! alive. What the hook itself holds of a node's side does not.
//!
//! # Stopping a client
//!
//! [`SimLink::stop_after`] stops a client's operations after some number of steps, for tests that stop a
//! client before and after each verb; [`SimLink::resume`] wakes the client up.

mod flight;
mod inner;
mod link;
mod listener;
mod options;
mod transport;
mod world;

pub use link::SimLink;
pub use listener::SimListener;
pub use options::{Faults, Order, Plant, SimOptions, Time};

use crate::{Error, NodeIdentity};
use forebay_env::Clock;
use forebay_env::sync::lock;
use inner::{Inner, Users};
use std::sync::{Arc, Condvar, Mutex};
use world::World;

/// A simulated network of nodes. Clones share the same network.
#[derive(Debug, Clone)]
pub struct SimNetwork(Arc<Users>);

impl SimNetwork {
    /// The network of this seed.
    #[must_use]
    pub fn new(seed: u64, options: SimOptions) -> Self {
        Self(Arc::new(Users(Arc::new(Inner {
            world: Mutex::new(World::new(seed, options)),
            changed: Condvar::new(),
            clock: Arc::default(),
            hook: Mutex::new(None),
            options,
        }))))
    }

    /// Starts a node, or starts it again after a crash: with empty memory and a new incarnation.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is running.
    pub fn listen(&self, node: u32) -> Result<SimListener, Error> {
        let identity = self.0.world().start(node)?;
        Ok(SimListener::new(Arc::clone(&**self.0), identity))
    }

    /// Opens a link to a node.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nobody answers.
    pub fn connect(&self, node: u32) -> Result<Arc<SimLink>, Error> {
        let mut world = self.0.world();
        let link = world.join(node)?;
        let (node, counts) = (world.links[link].node, Arc::clone(&world.links[link].counts));
        drop(world);
        self.0.changed.notify_all();
        Ok(Arc::new(SimLink::new(Arc::clone(&self.0), link, node, counts)))
    }

    /// Crashes a node: its links end, its keys with them. Does nothing when it is not running.
    pub fn crash(&self, node: u32) {
        let mut world = self.0.world();
        if let Some(identity) = world.nodes.get(&node).map(|state| state.identity) {
            world.crash(identity);
        }
        drop(world);
        self.0.changed.notify_all();
    }

    /// The life of a node that runs now, if any.
    #[must_use]
    pub fn running(&self, node: u32) -> Option<NodeIdentity> {
        self.0.world().nodes.get(&node).filter(|state| state.alive).map(|state| state.identity)
    }

    /// Cuts a node off: nothing to or from it advances until [`SimNetwork::heal`].
    pub fn partition(&self, node: u32) {
        self.set_cut_off(node, true);
    }

    /// Ends a partition: operations in flight continue.
    pub fn heal(&self, node: u32) {
        self.set_cut_off(node, false);
    }

    fn set_cut_off(&self, node: u32, cut_off: bool) {
        let mut world = self.0.world();
        world.was_held = true;
        if let Some(state) = world.nodes.get_mut(&node) {
            state.cut_off = cut_off;
        }
    }

    /// Calls `hook` whenever somebody polls or waits in vain, also from code that the hook calls. The hook is
    /// dropped with the last handle, link and client's endpoint of the network. A hook that itself holds one
    /// of these must be removed with [`SimNetwork::clear_progress_hook`].
    pub fn set_progress_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let before = lock(&self.0.hook).replace(Arc::new(hook));
        drop(before);
    }

    /// Removes the hook, and drops what it holds.
    pub fn clear_progress_hook(&self) {
        let before = lock(&self.0.hook).take();
        drop(before);
    }

    /// Advances until nothing more can advance. By then, lingering operations of broken endpoints have
    /// landed.
    pub fn settle(&self) {
        let mut world = self.0.world();
        while world.can_advance() {
            world.advance(1024);
        }
    }

    /// The network's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock) as Arc<dyn Clock>
    }

    /// Steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.world().steps
    }

    /// A hash of every step made so far.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.0.world().fingerprint
    }
}
