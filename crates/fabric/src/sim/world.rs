//! The state of the simulated network, and how it advances.
//!
//! Everything that is in flight waits in a queue of its endpoint. A *step* picks a random endpoint
//! that has something in flight and a random operation of it that may go on, and lands one line of
//! it, or lets its completion be seen. Nothing else changes memory. All randomness comes from one
//! generator, and all state is behind one lock: the same calls give the same steps.

use super::flight::{Flight, Inbound, State, Step};
use super::options::{Order, Plant, SimOptions};
use crate::counters::CountsRegistry;
use crate::transport::{Completion, Incoming, Operation, Outcome, Revocation, Work, WorkId};
use crate::{AccessKey, EndpointId, Error, GrantTable, NodeIdentity, PeerId, RevocationMode};
use forebay_env::Random;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Operations of an endpoint among which a step chooses.
const WINDOW: usize = 16;

/// What happened at a node; the listener makes events of it.
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
    /// Step from which on it stands still.
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
    /// Nobody hears of what its operations do: it is broken, stalled or dropped.
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

    /// This life of a node, if it goes on.
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

    /// Ends a link: nothing of it advances any more.
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
            // Of a broken endpoint all has been said.
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

    /// Takes back a grant of the node.
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

    pub(super) fn granted(&mut self, link: usize, key: AccessKey) {
        if self.options.plant == Some(Plant::StaleKeyHonoured) {
            self.links[link].granted.push(key);
        }
    }

    /// Lets clients agree to revocations, when nothing under the key is in progress.
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

    /// The owner has gone. What is in flight may land, or not.
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

    /// Where the node's writes and messages to an endpoint go.
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
        if let Some(place) = self.place_of(link, endpoint) {
            self.endpoints[place].frozen = frozen;
        }
    }

    fn activate(&mut self, at: usize) {
        if !std::mem::replace(&mut self.endpoints[at].in_active, true) {
            self.active.push(at);
        }
    }

    /// Takes in what a doorbell announces.
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

    pub(super) fn collect(&mut self, at: usize, ready: &mut VecDeque<Completion>) {
        ready.append(&mut self.endpoints[at].completed);
    }

    pub(super) fn has_news(&self, at: usize) -> bool {
        let endpoint = &self.endpoints[at];
        !endpoint.completed.is_empty() || !endpoint.arrived.is_empty() || !self.links[endpoint.link].alive
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

    // Steps.

    /// Tries `tries` steps; returns how many were made.
    pub(super) fn advance(&mut self, tries: u64) -> u64 {
        let before = self.steps;
        for _ in 0..tries {
            if self.active.is_empty() {
                break;
            }
            self.step();
        }
        if !self.revoking.is_empty() {
            self.agree();
        }
        self.steps - before
    }

    /// A random number of steps to try in one poll.
    pub(super) fn tries(&mut self) -> u64 {
        let mean = u64::from(self.options.steps_per_poll.max(1));
        // Large operations are not to take a thousand polls for each other's sake.
        let waiting = self.active.len() as u64;
        self.random.below(2 * mean * waiting.max(1)) + 1
    }

    /// Whether anything can advance.
    pub(super) fn can_advance(&self) -> bool {
        self.active.iter().any(|at| !self.stands_still(*at)) || !self.revoking.is_empty()
    }

    fn stands_still(&self, at: usize) -> bool {
        let endpoint = &self.endpoints[at];
        let link = &self.links[endpoint.link];
        endpoint.frozen
            || link.stop_at.is_some_and(|stop| link.steps >= stop)
            || self.nodes.get(&link.node.node).is_some_and(|node| node.cut_off && node.identity == link.node)
    }

    /// Whether nothing of a link's can advance because a test holds it.
    pub(super) fn is_held(&self, link: usize, endpoint: EndpointId) -> bool {
        self.place_of(link, endpoint).is_some_and(|place| self.stands_still(place))
    }

    fn step(&mut self) {
        let pick = self.random.below(self.active.len() as u64) as usize;
        let at = self.active[pick];
        let endpoint = &self.endpoints[at];
        if endpoint.queue.is_empty() && endpoint.inbound.is_empty() {
            self.endpoints[at].in_active = false;
            self.active.swap_remove(pick);
            return;
        }
        if self.stands_still(at) {
            return;
        }
        self.steps += 1;
        self.links[endpoint.link].steps += 1;
        let inward = !endpoint.inbound.is_empty() && (endpoint.queue.is_empty() || self.random.one_in(1, 2));
        if inward { self.step_inbound(at) } else { self.step_queue(at) }
    }

    fn step_inbound(&mut self, at: usize) {
        let endpoint = &mut self.endpoints[at];
        let Some(inbound) = endpoint.inbound.front_mut() else { return };
        let exposed = &self.links[endpoint.link].exposed;
        let landed = inbound.step(&exposed.hold(), &mut self.random, self.options.line_bytes);
        if landed == Ok(false) {
            return;
        }
        let Some(inbound) = endpoint.inbound.pop_front() else { return };
        match (landed, inbound.to, inbound.immediate) {
            // The client's side refused it: its endpoint has a protocol to complain about.
            (Err(_), ..) => {}
            (Ok(_), None, _) => endpoint.arrived.push_back(Incoming::Message(inbound.bytes)),
            (Ok(_), Some(_), Some(immediate)) => endpoint.arrived.push_back(Incoming::Immediate(immediate)),
            (Ok(_), Some(_), None) => {}
        }
    }

    fn step_queue(&mut self, at: usize) {
        let queue = &self.endpoints[at].queue;
        let mut index = self.random.below(queue.len().min(WINDOW) as u64) as usize;
        if !queue[index].is_done() && !may_go_on(queue, index, self.options.order) {
            let first = queue.iter().take(WINDOW).position(|flight| !flight.is_done()).unwrap_or(0);
            index = if may_go_on(queue, first, self.options.order) { first } else { 0 };
        }
        let flight = &queue[index];
        self.fingerprint = (self.fingerprint.rotate_left(5) ^ flight.id.0 ^ (at as u64) << 40 ^ (index as u64) << 56)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if flight.is_done() {
            // Completions come late.
            if self.endpoints[at].muted || self.random.one_in(1, 2) {
                self.complete(at, index);
            }
        } else if flight.is_message() {
            self.deliver(at, index);
        } else {
            self.step_flight(at, index);
        }
    }

    fn step_flight(&mut self, at: usize, index: usize) {
        let endpoint = &mut self.endpoints[at];
        let link = endpoint.link;
        let flight = &mut endpoint.queue[index];
        let starts = matches!(flight.state, State::Waiting);
        if starts && let Operation::Write { immediate: Some(_), .. } = &flight.operation {
            return self.fail(at, index, Error::Unsupported("an immediate to a node"), false);
        }
        if starts && !self.revoking.is_empty() {
            let key = flight.target().map(|(address, ..)| address.key);
            let letting_go = self.revoking.iter().any(|one| one.link == link && Some(one.key) == key);
            if letting_go && self.random.one_in(1, 2) {
                return self.fail(at, index, Error::AccessDenied, false);
            }
        }
        let SimOptions { line_bytes, plant, .. } = self.options;
        let offered = Arc::clone(&self.links[link].offered);
        let step = flight.step(&offered.hold(), &mut self.random, line_bytes, plant);
        match step {
            Ok(Step::Moved) => {
                let early = plant == Some(Plant::CompletionBeforeEffect) && starts;
                if early && !endpoint.muted && matches!(flight.operation, Operation::Write { .. }) {
                    self.complete_early(at, index);
                }
            }
            Ok(Step::Done) => {}
            Ok(Step::Lost) => self.lose(at, index),
            Err(Error::AccessDenied) if self.is_stale(at, index) => {
                self.endpoints[at].queue[index].state = State::Done(0)
            }
            Err(cause) => self.fail(at, index, cause, false),
        }
    }

    fn is_stale(&self, at: usize, index: usize) -> bool {
        let target = self.endpoints[at].queue[index].target();
        self.options.plant == Some(Plant::StaleKeyHonoured)
            && target.is_some_and(|(address, ..)| self.stale.contains(&address.key))
    }

    fn complete_early(&mut self, at: usize, index: usize) {
        let endpoint = &mut self.endpoints[at];
        let flight = &mut endpoint.queue[index];
        flight.told = true;
        endpoint.completed.push_back(Completion { id: flight.id, result: Ok(Outcome::Done(None)) });
    }

    fn complete(&mut self, at: usize, index: usize) {
        let endpoint = &mut self.endpoints[at];
        let Some(flight) = endpoint.queue.remove(index) else { return };
        if endpoint.muted {
            endpoint.unheard.push(flight.id);
        } else if !flight.told {
            endpoint.completed.push_back(Completion { id: flight.id, result: Ok(flight.into_outcome()) });
        }
    }

    fn deliver(&mut self, at: usize, index: usize) {
        let endpoint = &mut self.endpoints[at];
        let (link, id) = (endpoint.link, endpoint.id);
        let flight = &mut endpoint.queue[index];
        let Operation::Message(slot) = &flight.operation else { return };
        if flight.lost_after == Some(0) {
            return self.lose(at, index);
        }
        let bytes = slot.to_vec();
        flight.state = State::Done(0);
        let is_lost = flight.lost_after.is_some();
        let node = self.links[link].node;
        if let Some(node) = self.living(node) {
            node.happened.push_back(Happening::Message { link, endpoint: id, bytes });
        }
        if is_lost {
            self.lose(at, index);
        }
    }

    // Failing.

    /// An operation is heard of no more: its endpoint breaks, or waits for ever.
    fn lose(&mut self, at: usize, index: usize) {
        self.endpoints[at].queue[index].lost_after = None;
        if self.endpoints[at].muted {
            return;
        }
        if self.random.one_in(1, 4) {
            self.endpoints[at].muted = true;
        } else {
            let cause = self.broken(self.endpoints[at].link);
            self.fail(at, index, cause, true);
        }
    }

    /// An operation fails, and with it its endpoint. What others of the endpoint's operations
    /// still do to memory is anybody's guess if they may `linger`.
    fn fail(&mut self, at: usize, index: usize, cause: Error, linger: bool) {
        let total = self.options.order == Order::Total;
        let endpoint = &mut self.endpoints[at];
        if endpoint.muted {
            endpoint.queue.clear();
            return;
        }
        let mut kept = VecDeque::new();
        for (i, flight) in std::mem::take(&mut endpoint.queue).into_iter().enumerate() {
            let id = flight.id;
            let result = match i == index {
                true => Err(cause.clone()),
                // What has taken effect may be heard of; in total order, what went ahead must be.
                false if flight.is_done() && ((total && i < index) || self.random.one_in(1, 2)) => {
                    endpoint.completed.push_back(Completion { id, result: Ok(flight.into_outcome()) });
                    continue;
                }
                false => Err(Error::Flushed),
            };
            if !flight.told {
                endpoint.completed.push_back(Completion { id, result });
            }
            kept.push_back(flight);
        }
        endpoint.failed = Some(cause);
        endpoint.muted = true;
        if linger {
            endpoint.queue = kept;
            self.linger(at);
        }
    }

    /// Leaves a random part of what is in flight to land later, unheard of.
    fn linger(&mut self, at: usize) {
        let endpoint = &mut self.endpoints[at];
        endpoint.muted = true;
        if self.options.order == Order::None {
            let random = &mut self.random;
            endpoint.queue.retain(|_| random.one_in(1, 2));
        } else {
            let kept = self.random.below(endpoint.queue.len() as u64 + 1) as usize;
            endpoint.queue.truncate(kept);
        }
        endpoint.queue.retain(|flight| flight.changes_memory() && !flight.is_done());
        endpoint.queue.iter_mut().for_each(|flight| flight.lost_after = None);
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

/// Whether an operation may begin or go on, given those ahead of it.
fn may_go_on(queue: &VecDeque<Flight>, index: usize, order: Order) -> bool {
    let flight = &queue[index];
    if flight.is_moving() {
        return true;
    }
    if flight.fenced {
        return index == 0;
    }
    let mut ahead = queue.iter().take(index).filter(|earlier| !earlier.is_done());
    match order {
        Order::Total => ahead.next().is_none(),
        Order::Writes if flight.is_write_or_message() => !ahead.any(Flight::is_write_or_message),
        Order::Writes => ahead.next().is_none(),
        Order::None => !flight.is_message() || !ahead.any(Flight::is_message),
    }
}
