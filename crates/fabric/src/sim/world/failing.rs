//! How operations and endpoints fail.

use super::World;
use crate::Error;
use crate::sim::options::Order;
use crate::transport::Completion;
use std::collections::VecDeque;

impl World {
    /// Loses an operation: its endpoint breaks, or waits for ever.
    pub(super) fn lose(&mut self, at: usize, index: usize) {
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

    /// Fails an operation, and with it its endpoint. If the endpoint's other operations may
    /// `linger`, their effect on memory is unknown.
    pub(super) fn fail(&mut self, at: usize, index: usize, cause: Error, linger: bool) {
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
                // An operation that has taken effect may be reported; in total order, one before
                // the failed operation must be.
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

    /// Leaves a random part of what is in flight to land later, unreported.
    pub(super) fn linger(&mut self, at: usize) {
        let endpoint = &mut self.endpoints[at];
        endpoint.muted = true;
        if self.options.order == Order::None {
            let random = &mut self.random;
            let (mut any_lost, mut is_behind) = (false, false);
            endpoint.queue.retain(|flight| {
                // A fenced operation starts only when all before it are complete.
                is_behind |= flight.fenced && any_lost;
                let is_kept = !is_behind && random.one_in(1, 2);
                any_lost |= !is_kept && !flight.is_done();
                is_kept
            });
        } else {
            let kept = self.random.below(endpoint.queue.len() as u64 + 1) as usize;
            endpoint.queue.truncate(kept);
        }
        endpoint.queue.retain(|flight| flight.changes_memory() && !flight.is_done());
        endpoint.queue.iter_mut().for_each(|flight| flight.lost_after = None);
    }
}
