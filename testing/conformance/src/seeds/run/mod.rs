//! One run: what is done, and what is checked when.

mod checking;
mod completing;
mod posting;

use super::atomics::{AtomicWord, Change};
use super::clients::{Client, Grant, Kind, Pending, Slot};
use super::layout::Layout;
use super::words::{Look, Ordering, Words};
use super::{Moment, Origin, SeedOptions, SeedReport};
use forebay_env::Random;
use forebay_fabric::sim::{Order, SimListener, SimNetwork, SimOptions};
use forebay_fabric::{
    AccessKey, Completion, Counts, Endpoint, Error, Event, Link, Listener, Outcome, Peer, Region, RemoteAddress,
    Rights, Traffic, WorkId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const NODE: u32 = 1;
const CLIENTS: usize = 2;
const ENDPOINTS: usize = 3;
/// Most operations that an endpoint has in flight.
const DEPTH: usize = 12;
/// Most words that an operation covers.
const MAX_WORDS: u64 = 24;
/// Rotating and multiplying by an odd number keeps different values different in both halves.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Atomics with an unknown end after which everything is brought to rest.
const MAX_LOST_ATOMICS: u32 = 24;

type Checked = Result<(), String>;

/// The value that write `number` gives to its `i`th word.
fn value_of(number: u64, i: usize) -> u64 {
    (number << 8 | i as u64).wrapping_add(1).wrapping_mul(SPREAD)
}

fn text(error: Error) -> String {
    format!("an unexpected error: {error}")
}

pub(super) struct Run {
    network: SimNetwork,
    listener: SimListener,
    region: Region,
    layout: Layout,
    clients: Vec<Client>,
    random: Random,
    now: Moment,
    ordering: Ordering,
    words: Words,
    atomics: Vec<AtomicWord>,
    /// Memory that each endpoint uses alone, by place; and writes to it that may have landed.
    private: Vec<u8>,
    private_lost: Vec<(usize, Vec<u8>)>,
    /// For each endpoint, the last message that arrived, and the last that was certainly sent.
    arrived: BTreeMap<u32, u64>,
    sent: BTreeMap<u32, u64>,
    joined: Option<Arc<dyn Peer>>,
    /// Grants that were revoked.
    revoked: BTreeSet<u32>,
    /// Keys of earlier lives.
    stale: Vec<AccessKey>,
    /// Memory of the previous life, as it was when that life ended.
    dead: Option<(Region, Vec<u8>)>,
    next_grant: u32,
    next_endpoint: u32,
    last_value: u64,
    /// Atomics since the last rest that may or may not have been applied.
    lost_atomics: u32,
    goal: u64,
    report: SeedReport,
}

impl Run {
    pub(super) fn new(seed: u64, options: &SeedOptions, simulation: SimOptions) -> Result<Self, String> {
        let network = SimNetwork::new(seed, simulation);
        let mut random = Random::seeded(seed ^ SPREAD);
        let layout = Layout::random(&mut random);
        let listener = network.listen(NODE).map_err(text)?;
        let region = listener.allocate(layout.length as usize).map_err(text)?;
        let ordering = Ordering {
            sees_own_past: simulation.order != Order::None,
            blind_to_own_future: simulation.order == Order::Total,
        };
        let mut run = Self {
            network,
            listener,
            region,
            words: Words::new(0, ordering),
            layout,
            clients: Vec::new(),
            random,
            now: 0,
            ordering,
            atomics: Vec::new(),
            private: Vec::new(),
            private_lost: Vec::new(),
            arrived: BTreeMap::new(),
            sent: BTreeMap::new(),
            joined: None,
            revoked: BTreeSet::new(),
            stale: Vec::new(),
            dead: None,
            next_grant: 0,
            next_endpoint: 0,
            last_value: 0,
            lost_atomics: 0,
            goal: options.operations,
            report: SeedReport::default(),
        };
        run.begin_life()?;
        Ok(run)
    }

    pub(super) fn finish(mut self) -> Result<SeedReport, String> {
        while self.report.operations < self.goal {
            self.turn().map_err(|why| format!("after {} operations: {why}", self.report.operations))?;
        }
        self.rest().map_err(|why| format!("at the end: {why}"))?;
        self.report.steps = self.network.steps();
        self.report.fingerprint = self.network.fingerprint();
        Ok(self.report)
    }

    fn turn(&mut self) -> Checked {
        // The more lost atomics there are, the less a chain proves, and the longer the search for it takes.
        if self.lost_atomics > MAX_LOST_ATOMICS {
            return self.rest();
        }
        let client = self.random.below(CLIENTS as u64) as usize;
        let slot = self.random.below(ENDPOINTS as u64) as usize;
        match self.random.below(2000) {
            0..4 => self.rest(),
            4..8 => self.revoke(client),
            8..10 => self.drop_endpoint(client, slot),
            10 => self.crash(),
            11..100 => self.use_private(client, slot),
            100..300 => self.collect(client, slot, false),
            _ => self.post(client, slot),
        }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    // Lives of the node.

    fn begin_life(&mut self) -> Checked {
        self.layout.guard(&self.region)?;
        let words = |range: &Range<u64>| ((range.end - range.start) / 8) as usize;
        self.words = Words::new(words(&self.layout.data), self.ordering);
        self.atomics = (0..words(&self.layout.atomics)).map(|_| AtomicWord::default()).collect();
        self.private = vec![0; words(&self.layout.private) * 8];
        self.private_lost.clear();
        self.lost_atomics = 0;
        self.arrived.clear();
        self.sent.clear();
        self.clients.clear();
        (0..CLIENTS).try_for_each(|place| self.connect(place))
    }

    /// Opens a link, in place of the one at `place` if there is one.
    fn connect(&mut self, place: usize) -> Checked {
        let link = self.network.connect(NODE).map_err(text)?;
        self.pump()?;
        let peer = self.joined.take().ok_or("a link was opened and the node did not see it")?;
        let [data, atomics, private] =
            Client::grants(&*peer, &self.region, &self.layout, &mut self.next_grant).map_err(text)?;
        let mut client = Client {
            link,
            peer,
            data,
            atomics,
            private,
            revoked: None,
            slots: Vec::new(),
            expected: Default::default(),
        };
        for _ in 0..ENDPOINTS {
            self.next_endpoint += 1;
            client.slots.push(Slot::open(&client.link, self.next_endpoint).map_err(text)?);
        }
        match self.clients.get_mut(place) {
            Some(old) => *old = client,
            None => self.clients.push(client),
        }
        Ok(())
    }

    fn crash(&mut self) -> Checked {
        self.network.crash(NODE);
        self.restart()
    }

    /// Restarts the node after a crash: it comes back empty, with another incarnation.
    fn restart(&mut self) -> Checked {
        let before = self.listener.identity();
        self.dead = Some((self.region.clone(), self.memory()?));
        for place in 0..self.clients.len() {
            for slot in 0..ENDPOINTS {
                self.drain(place, slot)?;
            }
            let client = &self.clients[place];
            self.stale.extend([client.data.key, client.atomics.key, client.private.key]);
        }
        self.layout = Layout::random(&mut self.random);
        self.listener = self.network.listen(NODE).map_err(text)?;
        if self.listener.identity().incarnation == before.incarnation {
            return Err("a node came back with its old incarnation".into());
        }
        self.region = self.listener.allocate(self.layout.length as usize).map_err(text)?;
        self.report.restarts += 1;
        self.begin_life()
    }

    // Faults.

    /// Opens an endpoint in place of a broken one, and whatever else is needed for that.
    fn replace(&mut self, client: usize, slot: usize) -> Checked {
        self.drain(client, slot)?;
        if self.network.running(NODE) != Some(self.listener.identity()) {
            return self.restart();
        }
        if !self.clients[client].link.is_alive() {
            for slot in 0..ENDPOINTS {
                self.drain(client, slot)?;
            }
            self.check_counts(client)?;
            return self.connect(client);
        }
        self.reopen(client, slot)
    }

    fn reopen(&mut self, client: usize, slot: usize) -> Checked {
        self.next_endpoint += 1;
        let client = &mut self.clients[client];
        client.slots[slot] = Slot::open(&client.link, self.next_endpoint).map_err(text)?;
        Ok(())
    }

    /// Drops an endpoint with all that it has in flight.
    fn drop_endpoint(&mut self, client: usize, slot: usize) -> Checked {
        if !self.clients[client].link.is_alive() {
            return self.replace(client, slot);
        }
        self.abandon(client, slot);
        self.reopen(client, slot)
    }

    /// Revokes a client's grant, and makes sure that from then on nothing lands under it.
    fn revoke(&mut self, client: usize) -> Checked {
        let grant = self.clients[client].data;
        self.revoked.insert(grant.number);
        let Ok(revocation) = self.clients[client].peer.revoke(grant.key) else { return Ok(()) };
        while !revocation.is_complete() {
            let slot = self.random.below(ENDPOINTS as u64) as usize;
            self.collect(client, slot, false)?;
        }
        let at = self.tick();
        self.words.revoked(grant.number, at);
        let memory = self.memory()?;
        for (word, value) in words_of(in_range(&memory, &self.layout.data)).enumerate() {
            self.words.seen(word, value, Look { from: at, to: at, origin: None })?;
        }
        self.report.revocations += 1;
        let client = &mut self.clients[client];
        client.revoked = Some(grant.key);
        if client.link.is_alive() {
            let Range { start, end } = self.layout.data;
            let key = client.peer.grant(&self.region, start, end - start, Rights::ALL).map_err(text)?;
            self.next_grant += 1;
            client.data = Grant { key, number: self.next_grant };
        }
        Ok(())
    }
}

const MESSAGE_BYTES: usize = 24;

fn message(origin: Origin) -> Vec<u8> {
    let words = [u64::from(origin.endpoint), origin.sequence, value_of(origin.sequence, 0)];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn read_all(region: &Region) -> Result<Vec<u8>, String> {
    let mut memory = vec![0; region.length() as usize];
    region.read(0, &mut memory).map_err(text)?;
    Ok(memory)
}

fn in_range<'a>(memory: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &memory[range.start as usize..range.end as usize]
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn count_write(expected: &mut Counts, length: usize) {
    expected.writes += 1;
    expected.bytes_written += length as u64;
}

fn post_read(
    endpoint: &mut Endpoint,
    expected: &mut Counts,
    from: RemoteAddress,
    length: usize,
) -> Result<WorkId, Error> {
    expected.reads += 1;
    expected.bytes_read += length as u64;
    let into = endpoint.slot(length)?;
    endpoint.post_read(from, into)
}
