//! A client's endpoint.

use super::{Time, Users};
use crate::transport::{Incoming, Transport};
use crate::{AccessKey, Error, WorkQueue};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct SimTransport {
    network: Arc<Users>,
    /// Where the world keeps the endpoint.
    place: usize,
    /// Arrivals that nobody took when the endpoint last blocked. A caller that waits for a completion leaves them,
    /// so the next time they are no news.
    left: usize,
}

impl SimTransport {
    pub(super) fn new(network: Arc<Users>, place: usize) -> Self {
        Self { network, place, left: 0 }
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        self.network.world().drop_endpoint(self.place);
    }
}

impl Transport for SimTransport {
    fn flush(&mut self, queue: &mut WorkQueue) {
        let mut world = self.network.world();
        world.submit(self.place, std::iter::from_fn(|| queue.take_away()));
        self.network.advance(&mut world);
        world.collect(self.place, queue);
    }

    fn confirm(&mut self, key: &AccessKey) -> Result<(), Error> {
        self.network.world().confirm(self.place, key)
    }

    fn poll(&mut self, queue: &mut WorkQueue) {
        let mut world = self.network.world();
        self.network.advance(&mut world);
        world.collect(self.place, queue);
        drop(world);
        if queue.first_ended().is_none() {
            self.network.run_hook();
        }
    }

    fn block(&mut self, limit: Duration) {
        if self.network.options.time == Time::Virtual {
            self.network.run_hook();
        }
        let mut world = self.network.world();
        let has_advanced = self.network.advance(&mut world) > 0;
        let left = std::mem::replace(&mut self.left, world.arrivals(self.place));
        if has_advanced || world.has_news(self.place, left) || world.can_advance() {
            return;
        }
        self.network.idle(world, limit);
    }

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        self.left = 0;
        self.network.world().receive(self.place)
    }
}
