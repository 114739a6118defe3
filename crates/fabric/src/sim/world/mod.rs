//! The state of the simulated network, and how it advances.
//!
//! Everything that is in flight waits in a queue of its endpoint. A *step* picks a random endpoint
//! that has something in flight and a random operation of that endpoint that may continue, and
//! lands one line of it, or makes its completion visible. Nothing else changes memory. All
//! randomness comes from one generator, and all state is behind one lock: the same calls give the
//! same steps.

mod failing;
mod stepping;

use super::flight::{Flight, Inbound};
use super::options::{Plant, SimOptions};
use crate::counters::CountsRegistry;
use crate::transport::{Completion, Incoming, Revocation, Work, WorkId};
use crate::{AccessKey, EndpointId, Error, GrantTable, NodeIdentity, PeerId, RevocationMode, WorkQueue};
use forebay_env::Random;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Operations of an endpoint among which a step chooses.
const WINDOW: usize = 16;

/// What happened at a node; the listener turns it into events.
#[derive(Debug)]
pub(super) enum Happening {
    Joined(usize),
    Message { link: usize, endpoint: EndpointId, bytes: Vec<u8> },
    Left { peer: PeerId, cause: Error },
}

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) identity: NodeIdentity,
    pub(super) alive: bool,
    /// Cut off by a partition: nothing to or from it advances.
    pub(super) cut_off: bool,
    pub(super) happened: VecDeque<Happening>,
    next_peer: u64,
}

#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) node: NodeIdentity,
    pub(super) id: PeerId,
    pub(super) alive: bool,
    /// Grants of the node to the client.
    pub(super) offered: Arc<GrantTable>,
    /// Grants of the client to the node.
    pub(super) exposed: Arc<GrantTable>,
    pub(super) counts: Arc<CountsRegistry>,
    /// Places of its endpoints in [`World::endpoints`].
    endpoints: Vec<usize>,
    next_endpoint: u32,
    /// Steps of its operations so far.
    pub(super) steps: u64,
    /// Step from which the link stands still.
    pub(super) stop_at: Option<u64>,
    /// Keys that the node granted: kept only for a planted bug.
    granted: Vec<AccessKey>,
}

#[derive(Debug)]
struct EndpointState {
    link: usize,
    id: EndpointId,
    queue: VecDeque<Flight>,
    inbound: VecDeque<Inbound>,
    completed: VecDeque<Completion>,
    arrived: VecDeque<Incoming>,
    failed: Option<Error>,
    /// Whether its operations report nothing: it is broken, stalled or dropped.
    muted: bool,
    /// Operations of a stalled endpoint that have taken effect.
    unheard: Vec<WorkId>,
    frozen: bool,
    in_active: bool,
}

/// A cooperative revocation that the client has not agreed to yet.
#[derive(Debug)]
struct Revoking {
    link: usize,
    key: AccessKey,
    revocation: Revocation,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) options: SimOptions,
    pub(super) random: Random,
    pub(super) nodes: BTreeMap<u32, NodeState>,
    pub(super) links: Vec<LinkState>,
    endpoints: Vec<EndpointState>,
    /// Endpoints with something in flight.
    active: Vec<usize>,
    revoking: Vec<Revoking>,
    /// Keys of earlier lives of nodes: kept only for a planted bug.
    stale: Vec<AccessKey>,
    pub(super) steps: u64,
    /// Number of waits since the last step.
    pub(super) idle_rounds: u32,
    /// Whether anything was ever told to stand still. Until then, nothing has to be checked for it.
    pub(super) was_held: bool,
    /// Hash of all steps so far.
    pub(super) fingerprint: u64,
}

impl World {
    pub(super) fn new(seed: u64, options: SimOptions) -> Self {
        Self {
            options,
            random: Random::seeded(seed),
            nodes: BTreeMap::new(),
            links: Vec::new(),
            endpoints: Vec::new(),
            active: Vec::new(),
            revoking: Vec::new(),
            stale: Vec::new(),
            steps: 0,
            idle_rounds: 0,
            was_held: false,
            fingerprint: seed,
        }
    }

    // Nodes and links.

    pub(super) fn start(&mut self, node: u32) -> Result<NodeIdentity, Error> {
        if self.nodes.get(&node).is_some_and(|state| state.alive) {
            return Err(Error::Invalid(format!("node {node} is running")));
        }
        let identity = NodeIdentity { node, incarnation: self.random.word() };
        let state = NodeState { identity, alive: true, cut_off: false, happened: VecDeque::new(), next_peer: 1 };
        self.nodes.insert(node, state);
        Ok(identity)
    }

    /// This life of a node, if it still runs.
    pub(super) fn living(&mut self, identity: NodeIdentity) -> Option<&mut NodeState> {
        self.nodes.get_mut(&identity.node).filter(|state| state.alive && state.identity == identity)
    }

    pub(super) fn crash(&mut self, identity: NodeIdentity) {
        let Some(node) = self.living(identity) else { return };
        node.alive = false;
        node.happened.clear();
        for link in 0..self.links.len() {
            if self.links[link].node == identity {
                self.end_link(link, "the node has crashed");
            }
        }
    }

    pub(super) fn join(&mut self, node: u32) -> Result<usize, Error> {
        let link = self.links.len();
        let state = self.nodes.get_mut(&node).filter(|state| state.alive && !state.cut_off);
        let state = state.ok_or_else(|| Error::lost(format!("node {node}"), "nobody answers"))?;
        let id = PeerId(state.next_peer);
        state.next_peer += 1;
        state.happened.push_back(Happening::Joined(link));
        self.links.push(LinkState {
            node: state.identity,
            id,
            alive: true,
            offered: Arc::default(),
            exposed: Arc::default(),
            counts: Arc::default(),
            endpoints: Vec::new(),
            next_endpoint: 1,
            steps: 0,
            stop_at: None,
            granted: Vec::new(),
        });
        Ok(link)
    }

    pub(super) fn lost(&self, link: usize) -> Error {
        Error::lost(self.links[link].node, "the link has ended")
    }

    /// Ends a link: nothing on it advances any more.
    pub(super) fn end_link(&mut self, link: usize, why: &str) {
        let state = &mut self.links[link];
        if !std::mem::replace(&mut state.alive, false) {
            return;
        }
        state.offered.revoke_all();
        state.exposed.revoke_all();
        let cause = Error::lost(state.node, why);
        let (identity, peer) = (state.node, state.id);
        self.stale.append(&mut state.granted);
        for at in &state.endpoints {
            let endpoint = &mut self.endpoints[*at];
            let flying = endpoint.queue.drain(..).filter(|flight| !flight.told).map(|flight| flight.id);
            let unheard = std::mem::take(&mut endpoint.unheard).into_iter().chain(flying);
            // A broken endpoint has reported everything.
            for id in unheard.filter(|_| endpoint.failed.is_none()) {
                endpoint.completed.push_back(Completion { id, result: Err(cause.clone()) });
            }
            endpoint.inbound.clear();
            endpoint.failed = Some(cause.clone());
        }
        self.revoking.retain(|revoking| {
            let over = revoking.link == link;
            if over {
                revoking.revocation.finish();
            }
            !over
        });
        if let Some(node) = self.living(identity) {
            node.happened.push_back(Happening::Left { peer, cause });
        }
    }

    /// Revokes a grant of the node.
    pub(super) fn revoke(&mut self, link: usize, key: AccessKey) -> Result<Revocation, Error> {
        if self.options.revocation == RevocationMode::Cooperative {
            let known = self.links[link].offered.hold().knows(&key);
            if !known || self.revoking.iter().any(|revoking| revoking.link == link && revoking.key == key) {
                return Err(Error::AccessDenied);
            }
            let revocation = Revocation::pending();
            self.revoking.push(Revoking { link, key, revocation: revocation.clone() });
            return Ok(revocation);
        }
        if self.links[link].offered.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    /// Checks that the node has not begun to revoke this grant of an endpoint's link.
    pub(super) fn confirm(&self, place: usize, key: &AccessKey) -> Result<(), Error> {
        let link = self.endpoints[place].link;
        if !self.links[link].alive {
            return Err(self.lost(link));
        }
        let is_revoking = self.revoking.iter().any(|revoking| revoking.link == link && revoking.key == *key);
        if is_revoking || !self.links[link].offered.hold().knows(key) { Err(Error::AccessDenied) } else { Ok(()) }
    }

    pub(super) fn granted(&mut self, link: usize, key: AccessKey) {
        if self.options.plant == Some(Plant::StaleKeyHonoured) {
            self.links[link].granted.push(key);
        }
    }

    /// Lets clients agree to revocations once nothing under the key is in progress.
    fn agree(&mut self) {
        let mut at = 0;
        while at < self.revoking.len() {
            let Revoking { link, key, .. } = self.revoking[at];
            let uses =
                |flight: &Flight| flight.is_moving() && flight.target().is_some_and(|(address, ..)| address.key == key);
            let places = &self.links[link].endpoints;
            let in_use = places.iter().any(|place| self.endpoints[*place].queue.iter().any(uses));
            if in_use || self.random.one_in(1, 2) {
                at += 1;
                continue;
            }
            self.links[link].offered.revoke(key);
            self.revoking.swap_remove(at).revocation.finish();
        }
    }

    // Endpoints.

    pub(super) fn open(&mut self, link: usize) -> Result<usize, Error> {
        if !self.links[link].alive {
            return Err(self.lost(link));
        }
        let at = self.endpoints.len();
        let state = &mut self.links[link];
        state.endpoints.push(at);
        let id = EndpointId(state.next_endpoint);
        state.next_endpoint += 1;
        self.endpoints.push(EndpointState {
            link,
            id,
            queue: VecDeque::new(),
            inbound: VecDeque::new(),
            completed: VecDeque::new(),
            arrived: VecDeque::new(),
            failed: None,
            muted: false,
            unheard: Vec::new(),
            frozen: false,
            in_active: false,
        });
        Ok(at)
    }

    /// Handles the drop of an endpoint by its owner. Operations in flight may land, or not.
    pub(super) fn drop_endpoint(&mut self, at: usize) {
        self.linger(at);
        let endpoint = &mut self.endpoints[at];
        endpoint.failed = Some(Error::Flushed);
        endpoint.inbound.clear();
        endpoint.completed.clear();
        endpoint.arrived.clear();
        let link = endpoint.link;
        self.links[link].endpoints.retain(|place| *place != at);
    }

    fn place_of(&self, link: usize, endpoint: EndpointId) -> Option<usize> {
        let places = self.links.get(link)?.endpoints.iter();
        places.copied().find(|place| self.endpoints.get(*place).is_some_and(|state| state.id == endpoint))
    }

    /// Queues a write or a message of the node to an endpoint.
    pub(super) fn inbound(&mut self, link: usize, endpoint: EndpointId, inbound: Inbound) -> Result<(), Error> {
        let place = self.place_of(link, endpoint).filter(|_| self.links[link].alive);
        let place = place.ok_or_else(|| self.lost(link))?;
        self.endpoints[place].inbound.push_back(inbound);
        self.activate(place);
        Ok(())
    }

    pub(super) fn has_endpoint(&self, link: usize, endpoint: EndpointId) -> bool {
        self.links[link].alive && self.place_of(link, endpoint).is_some()
    }

    pub(super) fn set_frozen(&mut self, link: usize, endpoint: EndpointId, frozen: bool) {
        self.was_held = true;
        if let Some(place) = self.place_of(link, endpoint) {
            self.endpoints[place].frozen = frozen;
        }
    }

    fn activate(&mut self, at: usize) {
        if !std::mem::replace(&mut self.endpoints[at].in_active, true) {
            self.active.push(at);
        }
    }

    /// Accepts what a doorbell announces.
    pub(super) fn submit(&mut self, at: usize, works: impl Iterator<Item = Work>) {
        for work in works {
            let mut flight = Flight::new(work);
            let endpoint = &mut self.endpoints[at];
            if let Some(cause) = &endpoint.failed {
                let cause = if let Error::PeerLost { .. } = cause { cause.clone() } else { Error::Flushed };
                endpoint.completed.push_back(Completion { id: flight.id, result: Err(cause) });
                continue;
            }
            let link = endpoint.link;
            match self.draw_fault() {
                Fault::None => {}
                Fault::LoseCompletion => {
                    let lines = flight.lines_at_most(self.options.line_bytes);
                    flight.lost_after = Some(self.random.below(u64::from(lines)) as u32);
                }
                Fault::BreakEndpoint => {
                    self.endpoints[at].queue.push_back(flight);
                    let last = self.endpoints[at].queue.len() - 1;
                    let cause = self.broken(link);
                    self.fail(at, last, cause, true);
                    continue;
                }
                Fault::CloseLink => self.end_link(link, "the network closed the connection"),
                Fault::CrashNode => self.crash(self.links[link].node),
            }
            let endpoint = &mut self.endpoints[at];
            match &endpoint.failed {
                Some(cause) => {
                    let result = Err(cause.clone());
                    endpoint.completed.push_back(Completion { id: flight.id, result });
                }
                None => endpoint.queue.push_back(flight),
            }
        }
        self.activate(at);
    }

    fn broken(&self, link: usize) -> Error {
        Error::lost(self.links[link].node, "the connection of this endpoint broke")
    }

    pub(super) fn collect(&mut self, at: usize, queue: &mut WorkQueue) {
        self.endpoints[at].completed.drain(..).for_each(|completion| queue.conclude(completion));
    }

    /// Whether there is something for an endpoint, apart from `left` arrivals that it did not take.
    pub(super) fn has_news(&self, at: usize, left: usize) -> bool {
        let endpoint = &self.endpoints[at];
        !endpoint.completed.is_empty() || endpoint.arrived.len() > left || !self.links[endpoint.link].alive
    }

    pub(super) fn arrivals(&self, at: usize) -> usize {
        self.endpoints[at].arrived.len()
    }

    pub(super) fn receive(&mut self, at: usize) -> Result<Option<Incoming>, Error> {
        let endpoint = &mut self.endpoints[at];
        let link = endpoint.link;
        match endpoint.arrived.pop_front() {
            None if !self.links[link].alive => Err(self.lost(link)),
            arrived => Ok(arrived),
        }
    }

    fn draw_fault(&mut self) -> Fault {
        let faults = self.options.faults;
        let kinds = [
            (faults.lose_completion, Fault::LoseCompletion),
            (faults.break_endpoint, Fault::BreakEndpoint),
            (faults.close_link, Fault::CloseLink),
            (faults.crash_node, Fault::CrashNode),
        ];
        let mut draw = self.random.below(1_000_000) as u32;
        for (share, fault) in kinds {
            if draw < share {
                return fault;
            }
            draw -= share;
        }
        Fault::None
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    LoseCompletion,
    BreakEndpoint,
    CloseLink,
    CrashNode,
}
