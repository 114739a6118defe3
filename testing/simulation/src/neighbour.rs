//! Another database of the node: a session that tells its share, takes memory that it may take, and gives it back when
//! asked, or does not. Now and then its process is killed.
//!
//! The neighbour acts while somebody waits, so between any two messages of the database under test. That database
//! borrows from it, lends to it, and must still work.

use crate::swarm::{Event, Swarm};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::Link;
use forebay_fabric::sim::SimNetwork;
use forebay_memory_client::{ClientOptions, Credit, Error, ExtentId, MemoryClient, Purpose};
use std::sync::Arc;
use std::time::Duration;

/// The node whose memory the neighbour takes.
const NODE: u32 = 1;
/// Maximum extents that the neighbour takes at a time.
const MOST_TAKEN: u64 = 4;

/// The neighbour's process.
struct Process {
    link: Arc<dyn Link>,
    client: Arc<MemoryClient>,
    leased: Vec<ExtentId>,
    share: u32,
    /// The process gives nothing back.
    is_stubborn: bool,
}

struct Inside {
    random: Random,
    process: Option<Process>,
    has_left: bool,
}

/// See the module.
pub(crate) struct Neighbour {
    network: SimNetwork,
    swarm: Swarm,
    call_timeout: Duration,
    /// Locked while the neighbour is on the stack.
    inside: Mutex<Inside>,
    /// The client that renews the neighbour's session.
    client: Mutex<Option<Arc<MemoryClient>>>,
}

impl Neighbour {
    /// Returns a neighbour whose calls may take up to `call_timeout`.
    pub(crate) fn new(network: SimNetwork, swarm: Swarm, random: Random, call_timeout: Duration) -> Self {
        let inside = Mutex::new(Inside { random, process: None, has_left: false });
        Self { network, swarm, call_timeout, inside, client: Mutex::default() }
    }

    /// Returns the neighbour's session, if it has one.
    pub(crate) fn client(&self) -> Option<Arc<MemoryClient>> {
        lock(&self.client).clone()
    }

    /// Makes the neighbour do something now and then, unless it is already doing something.
    pub(crate) fn act(&self) {
        let Ok(mut inside) = self.inside.try_lock() else { return };
        if inside.has_left || !self.swarm.happens(Event::NeighbourActs, &mut inside.random) {
            return;
        }
        let is_killed = self.swarm.happens(Event::NeighbourDies, &mut inside.random);
        let is_over = |process: &mut Process| is_killed || process.client.check().is_err();
        if let Some(process) = inside.process.take_if(is_over) {
            process.link.close();
        }
        let Inside { random, process, .. } = &mut *inside;
        if process.is_none() {
            *process = self.start(random).ok();
            *lock(&self.client) = process.as_ref().map(|process| Arc::clone(&process.client));
        } else if let Some(process) = process {
            // A failed act is tried again, or the session has ended.
            let _ = process.act(random);
        }
    }

    fn start(&self, random: &mut Random) -> Result<Process, Error> {
        let link: Arc<dyn Link> = self.network.connect(NODE)?;
        let (timeout, clock) = (self.call_timeout, self.network.clock());
        let options = ClientOptions { renew: false, clock, timeout, ..ClientOptions::default() };
        let client = MemoryClient::connect(Arc::clone(&link), "neighbour", options)?;
        let (share, is_stubborn) = (1 + random.below(3) as u32, random.one_in(1, 4));
        Ok(Process { link, client, leased: Vec::new(), share, is_stubborn })
    }

    /// Ends the neighbour for good.
    pub(crate) fn leave(&self) {
        let mut inside = lock(&self.inside);
        inside.has_left = true;
        lock(&self.client).take();
        if let Some(process) = inside.process.take() {
            process.link.close();
        }
    }
}

impl Process {
    fn act(&mut self, random: &mut Random) -> Result<(), Error> {
        let Credit { free_extents, headroom_extents, withheld_extents, owed_extents, .. } =
            self.client.credit("neighbour", self.share)?;
        if owed_extents > 0 && !self.is_stubborn {
            return self.give_back(owed_extents);
        }
        let most = u64::from(self.client.extents() / 2).saturating_sub(self.leased.len() as u64);
        let may_take = free_extents.saturating_sub(2 * headroom_extents + withheld_extents).min(most).min(MOST_TAKEN);
        if may_take > 0 && random.one_in(1, 2) {
            let leased = self.client.lease(1 + random.below(may_take) as u32, Purpose::Flush)?;
            self.leased.extend(leased);
        } else if !self.is_stubborn && random.one_in(1, 8) {
            return self.give_back(1 + random.below(MOST_TAKEN));
        }
        Ok(())
    }

    fn give_back(&mut self, extents: u64) -> Result<(), Error> {
        let from = self.leased.len().saturating_sub(extents as usize);
        let given = self.leased.split_off(from);
        let returned = self.client.return_extents(&given);
        if returned.is_err() {
            // Extents that the node still leases are returned another time. Others are refused then.
            self.leased.extend(given);
        }
        returned
    }
}
