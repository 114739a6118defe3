//! Sends what a node says over a socket: at once, or when there is room. The caller never waits for
//! room.

use super::channel::Channel;
use super::events::Events;
use super::offered::open_file;
use crate::{Error, Region, Rights};
use forebay_env::sync::lock;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The sending side of a socket.
#[derive(Debug)]
pub(super) struct Outlet {
    channel: Arc<Channel>,
    unsaid: Mutex<Unsaid>,
    /// Most weight that may wait for room.
    limit: usize,
    events: Arc<Events>,
}

/// Frames that wait for room, in order.
#[derive(Debug, Default)]
struct Unsaid {
    frames: VecDeque<Said>,
    weight: usize,
}

#[derive(Debug)]
struct Said {
    packet: Vec<u8>,
    /// Memory whose file goes with the frame. The file is opened only then: descriptors are scarce.
    granted: Option<(Region, Rights)>,
    weight: usize,
}

impl Outlet {
    pub(super) fn new(channel: Arc<Channel>, limit: usize, events: Arc<Events>) -> Self {
        Self { channel, unsaid: Mutex::default(), limit, events }
    }

    /// Sends a frame, at once or when there is room. Frames of no weight are bounded otherwise.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Io`]; [`Error::Protocol`] when too much waits. Then the frame is
    /// never sent.
    pub(super) fn say(
        &self,
        parts: &[&[u8]],
        granted: Option<(OwnedFd, &Region, Rights)>,
        weight: usize,
    ) -> Result<(), Error> {
        let mut unsaid = lock(&self.unsaid);
        let file = granted.as_ref().map(|(file, ..)| file.as_fd());
        if unsaid.frames.is_empty() && self.channel.try_send(parts, file)? {
            return Ok(());
        }
        let all = unsaid.weight.saturating_add(weight);
        if weight > 0 && all > self.limit {
            return Err(Error::Protocol("a client does not take in what is said to it".into()));
        }
        unsaid.weight = all;
        let granted = granted.map(|(_, region, rights)| (region.clone(), rights));
        unsaid.frames.push_back(Said { packet: parts.concat(), granted, weight });
        if unsaid.frames.len() == 1 {
            // The socket thread sends the rest.
            self.events.wake_reader();
        }
        Ok(())
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Io`]. Then the rest is never sent.
    pub(super) fn say_on(&self) -> Result<(), Error> {
        let unsaid = &mut *lock(&self.unsaid);
        let said = self.say_some(unsaid);
        if said.is_err() {
            *unsaid = Unsaid::default();
        }
        said
    }

    fn say_some(&self, unsaid: &mut Unsaid) -> Result<(), Error> {
        while let Some(Said { packet, granted, weight }) = unsaid.frames.front() {
            let file = granted.as_ref().map(|(region, rights)| open_file(region, *rights)).transpose()?;
            if !self.channel.try_send(&[packet], file.as_ref().map(AsFd::as_fd))? {
                return Ok(());
            }
            unsaid.weight -= weight;
            unsaid.frames.pop_front();
        }
        Ok(())
    }

    /// Whether something waits for room.
    pub(super) fn has_unsaid(&self) -> bool {
        !lock(&self.unsaid).frames.is_empty()
    }

    /// Weight of what waits for room.
    pub(super) fn unsaid(&self) -> usize {
        lock(&self.unsaid).weight
    }

    /// Ends the sending direction. The other side may still send.
    pub(super) fn end_saying(&self) {
        self.channel.shutdown_sending();
        *lock(&self.unsaid) = Unsaid::default();
    }

    /// Ends the socket.
    pub(super) fn end(&self) {
        self.channel.shutdown();
        *lock(&self.unsaid) = Unsaid::default();
    }
}
