//! Clients of a run: links, endpoints, and what they have in flight.

use super::atomics::Change;
use super::layout::Layout;
use super::{Moment, Origin};
use forebay_env::Random;
use forebay_fabric::sim::SimLink;
use forebay_fabric::{
    AccessKey, Counts, Endpoint, EndpointOptions, Error, Link, Peer, Region, RemoteAddress, Rights, WorkId,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// A grant, numbered among all that were ever made in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) key: AccessKey,
    pub(super) number: u32,
}

/// What an operation in flight is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Writes words whose values derive from the operation's number.
    Write { first: usize, count: usize, number: u64 },
    /// Reads words.
    Read { first: usize, count: usize },
    /// Changes an atomic word.
    Atomic { word: usize, change: Change },
    /// Reads an atomic word.
    ReadAtomic { word: usize },
    /// Sends a message.
    Message,
    /// Is refused by the target.
    Refused,
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) id: WorkId,
    pub(super) kind: Kind,
    pub(super) origin: Origin,
    pub(super) grant: u32,
    pub(super) posted: Moment,
}

/// An endpoint and what it has in flight.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) endpoint: Endpoint,
    pub(super) serial: u32,
    pub(super) sequence: u64,
    pub(super) pending: VecDeque<Pending>,
    /// An operation that was waited for but did not end.
    pub(super) ignored: Option<WorkId>,
    /// Whether an operation failed: then the endpoint has to be replaced.
    pub(super) broken: bool,
}

impl Slot {
    pub(super) fn open(link: &SimLink, serial: u32) -> Result<Self, Error> {
        let endpoint = link.endpoint(EndpointOptions::default())?;
        Ok(Self { endpoint, serial, sequence: 0, pending: VecDeque::new(), ignored: None, broken: false })
    }

    /// Takes the record of an operation that completed.
    pub(super) fn take_pending(&mut self, id: WorkId) -> Option<Pending> {
        let index = self.pending.iter().position(|pending| pending.id == id)?;
        self.pending.remove(index)
    }
}

/// A link with its endpoints and grants.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) link: Arc<SimLink>,
    pub(super) peer: Arc<dyn Peer>,
    pub(super) data: Grant,
    pub(super) atomics: Grant,
    pub(super) private: Grant,
    /// A revoked key, if there is one.
    pub(super) revoked: Option<AccessKey>,
    pub(super) slots: Vec<Slot>,
    /// What the link's counts must be.
    pub(super) expected: Counts,
}

impl Client {
    /// Grants all that a client uses.
    pub(super) fn grants(
        peer: &dyn Peer,
        region: &Region,
        layout: &Layout,
        next: &mut u32,
    ) -> Result<[Grant; 3], Error> {
        let mut grant = |range: &std::ops::Range<u64>, rights| {
            *next += 1;
            let key = peer.grant(region, range.start, range.end - range.start, rights)?;
            Ok::<_, Error>(Grant { key, number: *next })
        };
        Ok([
            grant(&layout.data, Rights::ALL)?,
            grant(&layout.atomics, Rights::READ.and(Rights::ATOMIC))?,
            grant(&layout.private, Rights::READ.and(Rights::WRITE))?,
        ])
    }

    /// An address that the target refuses.
    pub(super) fn refused(&self, layout: &Layout, stale: &[AccessKey], random: &mut Random) -> RemoteAddress {
        let key = self.data.key;
        let length = layout.data.end - layout.data.start;
        let revoked = self.revoked.map(|key| key.at(0));
        let stale = stale.get(random.below(stale.len() as u64) as usize).map(|key| key.at(0));
        match random.below(6) {
            0 | 1 if revoked.is_some() => revoked.unwrap_or(key.at(length)),
            2 | 3 if stale.is_some() => stale.unwrap_or(key.at(length)),
            0 => AccessKey::new(key.index, key.secret() ^ 1 << random.below(128)).at(0),
            1 => AccessKey::new(key.index + 1000, key.secret()).at(0),
            2 => key.at(u64::MAX - random.below(16) * 8),
            3 => key.at(length - 8 * random.below(4)),
            4 => self.atomics.key.at(0),
            _ => self.private.key.at(layout.private.end - layout.private.start),
        }
    }
}
