//! How operations in flight advance.

use super::Happening;
use super::{WINDOW, World};
use crate::sim::flight::{Flight, Pace, State, Step};
use crate::sim::options::{Order, Plant};
use crate::transport::{Completion, Incoming, Operation, Outcome};
use crate::{EndpointId, Error};
use std::collections::VecDeque;

impl World {
    /// Tries `tries` steps; returns how many were made.
    pub(in crate::sim) fn advance(&mut self, tries: u64) -> u64 {
        let before = self.steps;
        let mut left = tries;
        while left > 0 && !self.active.is_empty() {
            left -= self.step(left);
        }
        if !self.revoking.is_empty() {
            self.agree();
        }
        if self.steps > before {
            self.idle_rounds = 0;
        }
        self.steps - before
    }

    /// A random number of steps to try in one poll.
    pub(in crate::sim) fn tries(&mut self) -> u64 {
        let mean = u64::from(self.options.steps_per_poll.max(1));
        // Large operations must not take a thousand polls because of each other.
        let waiting = self.active.len() as u64;
        self.random.below(2 * mean * waiting.max(1)) + 1
    }

    /// Whether anything can advance.
    pub(in crate::sim) fn can_advance(&self) -> bool {
        self.active.iter().any(|at| !self.stands_still(*at)) || !self.revoking.is_empty()
    }

    fn stands_still(&self, at: usize) -> bool {
        if !self.was_held {
            return false;
        }
        let endpoint = &self.endpoints[at];
        let link = &self.links[endpoint.link];
        endpoint.frozen
            || link.stop_at.is_some_and(|stop| link.steps >= stop)
            || self.nodes.get(&link.node.node).is_some_and(|node| node.cut_off && node.identity == link.node)
    }

    /// Whether a test holds the link or the endpoint, so that nothing on it can advance.
    pub(in crate::sim) fn is_held(&self, link: usize, endpoint: EndpointId) -> bool {
        self.place_of(link, endpoint).is_some_and(|place| self.stands_still(place))
    }

    /// Makes a step, or where there is only one operation to choose from, up to `most` steps. Returns how
    /// many.
    fn step(&mut self, most: u64) -> u64 {
        let choices = self.active.len() as u64;
        let pick = if choices == 1 { 0 } else { self.random.below(choices) as usize };
        let at = self.active[pick];
        let endpoint = &self.endpoints[at];
        if endpoint.queue.is_empty() && endpoint.inbound.is_empty() {
            self.endpoints[at].in_active = false;
            self.active.swap_remove(pick);
            return 1;
        }
        if self.stands_still(at) {
            return 1;
        }
        let is_alone = choices == 1 && endpoint.queue.len() + endpoint.inbound.len() == 1;
        let link = endpoint.link;
        let most = if is_alone && self.links[link].stop_at.is_none() { most } else { 1 };
        let inward = !endpoint.inbound.is_empty() && (endpoint.queue.is_empty() || self.random.one_in(1, 2));
        let made = if inward { self.step_inbound(at, most) } else { self.step_queue(at, most) };
        self.steps += made;
        self.links[link].steps += made;
        made
    }

    fn step_inbound(&mut self, at: usize, most: u64) -> u64 {
        let endpoint = &mut self.endpoints[at];
        let Some(inbound) = endpoint.inbound.front_mut() else { return 1 };
        let exposed = &self.links[endpoint.link].exposed;
        let mut pace = Pace::new(&self.options, most);
        let landed = inbound.step(&exposed.hold(), &mut self.random, &mut pace);
        if landed == Ok(false) {
            return pace.made;
        }
        let Some(inbound) = endpoint.inbound.pop_front() else { return pace.made };
        match (landed, inbound.to, inbound.immediate) {
            // The client's side refused it: its endpoint reports a protocol error.
            (Err(_), ..) => {}
            (Ok(_), None, _) => endpoint.arrived.push_back(Incoming::Message(inbound.bytes)),
            (Ok(_), Some(_), Some(immediate)) => endpoint.arrived.push_back(Incoming::Immediate(immediate)),
            (Ok(_), Some(_), None) => {}
        }
        pace.made
    }

    fn step_queue(&mut self, at: usize, most: u64) -> u64 {
        let queue = &self.endpoints[at].queue;
        let choices = queue.len().min(WINDOW) as u64;
        let mut index = if choices == 1 { 0 } else { self.random.below(choices) as usize };
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
            return self.step_flight(at, index, most);
        }
        1
    }

    fn step_flight(&mut self, at: usize, index: usize, most: u64) -> u64 {
        let endpoint = &mut self.endpoints[at];
        let link = endpoint.link;
        let flight = &mut endpoint.queue[index];
        let starts = matches!(flight.state, State::Waiting);
        if starts && let Operation::Write { immediate: Some(_), .. } = &flight.operation {
            self.fail(at, index, Error::Unsupported("an immediate to a node"), false);
            return 1;
        }
        if starts && !self.revoking.is_empty() {
            let key = flight.target().map(|(address, ..)| address.key);
            let letting_go = self.revoking.iter().any(|one| one.link == link && Some(one.key) == key);
            if letting_go && self.random.one_in(1, 2) {
                self.fail(at, index, Error::AccessDenied, false);
                return 1;
            }
        }
        let plant = self.options.plant;
        let mut pace = Pace::new(&self.options, most);
        let step = flight.step(&self.links[link].offered.hold(), &mut self.random, &mut pace);
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
        pace.made
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
}

/// Whether an operation may begin or continue, given those ahead of it.
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
