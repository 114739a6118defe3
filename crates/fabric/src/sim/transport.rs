//! A client's endpoint.

use super::{Inner, Time};
use crate::Error;
use crate::transport::{Completion, Incoming, Transport, Work};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct SimTransport {
    network: Arc<Inner>,
    /// Where the world keeps the endpoint.
    place: usize,
    queue: Vec<Work>,
}

impl SimTransport {
    pub(super) fn new(network: Arc<Inner>, place: usize) -> Self {
        Self { network, place, queue: Vec::new() }
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        self.network.world().drop_endpoint(self.place);
    }
}

impl Transport for SimTransport {
    fn post(&mut self, work: Work) {
        self.queue.push(work);
    }

    fn flush(&mut self, ready: &mut VecDeque<Completion>) {
        let mut world = self.network.world();
        world.submit(self.place, self.queue.drain(..));
        self.network.advance(&mut world);
        world.collect(self.place, ready);
    }

    fn poll(&mut self, ready: &mut VecDeque<Completion>) {
        let mut world = self.network.world();
        self.network.advance(&mut world);
        world.collect(self.place, ready);
        drop(world);
        if ready.is_empty() {
            self.network.run_hook();
        }
    }

    fn block(&mut self, limit: Duration) {
        if self.network.options.time == Time::Virtual {
            self.network.run_hook();
        }
        let mut world = self.network.world();
        if self.network.advance(&mut world) > 0 || world.has_news(self.place) || world.can_advance() {
            return;
        }
        self.network.idle(world, limit);
    }

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        self.network.world().receive(self.place)
    }
}
