//! One run: what is done, and what is checked when.

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
/// Operations that an endpoint has in flight at most.
const DEPTH: usize = 12;
/// Words that an operation covers at most.
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
    /// Memory that each endpoint has for itself, by place; and writes to it that may have landed.
    private: Vec<u8>,
    private_lost: Vec<(usize, Vec<u8>)>,
    /// Messages that arrived, and that were sent for certain: last of each endpoint.
    arrived: BTreeMap<u32, u64>,
    sent: BTreeMap<u32, u64>,
    joined: Option<Arc<dyn Peer>>,
    /// Grants that were revoked.
    revoked: BTreeSet<u32>,
    /// Keys of earlier lives.
    stale: Vec<AccessKey>,
    /// Memory of the life before, as it was when it ended.
    dead: Option<(Region, Vec<u8>)>,
    next_grant: u32,
    next_endpoint: u32,
    last_value: u64,
    /// Atomics since the last rest of which it is not known whether they were applied.
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
        // The more there are, the less they say, and the longer a chain is searched for.
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

    /// The node has crashed: it comes back empty, under another incarnation.
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

    // Posting.

    fn choose(&mut self) -> Kind {
        let count = 1 + self.random.below(MAX_WORDS.min(self.words.count() as u64)) as usize;
        let first = self.random.below((self.words.count() - count) as u64 + 1) as usize;
        let word = self.random.below(self.atomics.len() as u64) as usize;
        match self.random.below(1000) {
            0..400 => {
                self.last_value += 1;
                Kind::Write { first, count, number: self.last_value }
            }
            400..700 => Kind::Read { first, count },
            700..800 => Kind::Atomic { word, change: Change::Add(self.random.word()) },
            800..860 => {
                let (expected, new) = (self.atomics[word].last_seen(), self.random.word());
                Kind::Atomic { word, change: Change::Swap { expected, new } }
            }
            860..920 => Kind::ReadAtomic { word },
            920..998 => Kind::Message,
            _ => Kind::Refused,
        }
    }

    fn post(&mut self, client: usize, slot: usize) -> Checked {
        if self.clients[client].slots[slot].pending.len() >= DEPTH {
            self.collect(client, slot, true)?;
        }
        if self.clients[client].slots[slot].broken {
            return self.replace(client, slot);
        }
        let kind = self.choose();
        let posted = self.tick();
        let oldest = self.oldest(posted);
        let refused = self.clients[client].refused(&self.layout, &self.stale, &mut self.random);
        self.report.operations += 1;
        let Client { data, atomics, expected, slots, .. } = &mut self.clients[client];
        let Slot { endpoint, serial, sequence, pending, .. } = &mut slots[slot];
        *sequence += 1;
        let origin = Origin { endpoint: *serial, sequence: *sequence };
        let mut grant = data.number;
        if self.random.one_in(1, 16) {
            endpoint.fence();
        }
        let id = match kind {
            Kind::Write { first, count, number } => {
                let mut from = endpoint.slot(8 * count).map_err(text)?;
                for (i, word) in from.chunks_exact_mut(8).enumerate() {
                    let value = value_of(number, i);
                    word.copy_from_slice(&value.to_le_bytes());
                    self.words.posted(first + i, value, origin, grant, posted, oldest);
                }
                count_write(expected, 8 * count);
                endpoint.post_write(data.key.at(8 * first as u64), from)
            }
            Kind::Refused => {
                let mut from = endpoint.slot(32).map_err(text)?;
                from.fill(0xee);
                count_write(expected, 32);
                endpoint.post_write(refused, from)
            }
            Kind::Read { first, count } => post_read(endpoint, expected, data.key.at(8 * first as u64), 8 * count),
            Kind::ReadAtomic { word } => {
                grant = atomics.number;
                post_read(endpoint, expected, atomics.key.at(8 * word as u64), 8)
            }
            Kind::Atomic { word, change } => {
                grant = atomics.number;
                expected.atomics += 1;
                expected.bytes_read += 8;
                expected.bytes_written += 8;
                let at = atomics.key.at(8 * word as u64);
                match change {
                    Change::Add(delta) => endpoint.post_fetch_add(at, delta),
                    Change::Swap { expected, new } => endpoint.post_compare_swap(at, expected, new),
                }
            }
            Kind::Message => {
                expected.messages += 1;
                expected.bytes_written += MESSAGE_BYTES as u64;
                endpoint.post_message(&message(origin))
            }
        };
        pending.push_back(Pending { id: id.map_err(text)?, kind, origin, grant, posted });
        if self.random.one_in(1, 3) {
            endpoint.flush();
        }
        Ok(())
    }

    /// When the oldest operation in flight was posted.
    fn oldest(&self, now: Moment) -> Moment {
        let slots = self.clients.iter().flat_map(|client| &client.slots);
        slots.filter_map(|slot| slot.pending.front()).map(|pending| pending.posted).min().unwrap_or(now)
    }

    /// One operation on memory that the endpoint has for itself, and its end.
    fn use_private(&mut self, client: usize, slot: usize) -> Checked {
        if self.clients[client].slots[slot].broken {
            return self.replace(client, slot);
        }
        let room = self.private.len() / (CLIENTS * ENDPOINTS);
        let start = room * (client * ENDPOINTS + slot);
        let length = self.random.below(room as u64 + 1) as usize;
        let offset = start + self.random.below((room - length) as u64 + 1) as usize;
        self.report.operations += 1;
        let Client { private, expected, slots, .. } = &mut self.clients[client];
        let Slot { endpoint, broken, ignored, .. } = &mut slots[slot];
        let at = private.key.at(offset as u64);
        let range = offset..offset + length;
        if self.random.one_in(1, 2) {
            let mut from = endpoint.slot(length).map_err(text)?;
            self.random.fill(&mut from);
            let bytes = from.to_vec();
            count_write(expected, length);
            let id = endpoint.post_write(at, from).map_err(text)?;
            match endpoint.wait_for(id) {
                Ok(_) => self.private[range].copy_from_slice(&bytes),
                Err(_) => {
                    (*broken, *ignored) = (true, Some(id));
                    self.private_lost.push((offset, bytes));
                }
            }
            return Ok(());
        }
        let id = post_read(endpoint, expected, at, length).map_err(text)?;
        match endpoint.wait_for(id) {
            Ok(Outcome::Read(into)) => {
                let sure =
                    self.private_lost.iter().all(|(lost, bytes)| lost + bytes.len() <= offset || range.end <= *lost);
                if sure && into[..] != self.private[range] {
                    return Err(format!("{length} private bytes at {offset} are not what was written last"));
                }
                endpoint.release(into);
            }
            Ok(other) => return Err(format!("a read ended with {other:?}")),
            Err(_) => (*broken, *ignored) = (true, Some(id)),
        }
        Ok(())
    }

    // Completions.

    /// Takes completions that are there; `wait`s for one.
    fn collect(&mut self, client: usize, slot: usize, wait: bool) -> Checked {
        let endpoint = &mut self.clients[client].slots[slot].endpoint;
        endpoint.flush();
        let first = if wait && endpoint.outstanding() > 0 { Some(endpoint.wait()) } else { None };
        match first {
            Some(Ok(completion)) => self.complete(client, slot, completion)?,
            Some(Err(_)) => self.clients[client].slots[slot].broken = true,
            None => {}
        }
        while let Some(completion) = self.clients[client].slots[slot].endpoint.poll() {
            self.complete(client, slot, completion)?;
        }
        Ok(())
    }

    fn complete(&mut self, client: usize, slot: usize, completion: Completion) -> Checked {
        let to = self.tick();
        let slot = &mut self.clients[client].slots[slot];
        let Some(pending) = slot.take_pending(completion.id) else {
            let expected = slot.ignored == Some(completion.id);
            return if expected { Ok(()) } else { Err(format!("{completion:?} is of nothing that was in flight")) };
        };
        let look = Look { from: pending.posted, to, origin: Some(pending.origin) };
        match (pending.kind, completion.result) {
            (Kind::Refused, Err(Error::OutOfBounds { .. } | Error::AccessDenied)) => slot.broken = true,
            (Kind::Refused, Ok(_)) => return Err(format!("an operation that must be refused succeeded: {pending:?}")),
            (_, Err(cause)) => {
                slot.broken = true;
                let may_be_denied = self.revoked.contains(&pending.grant);
                match cause {
                    Error::Flushed | Error::PeerLost { .. } => {}
                    Error::AccessDenied if may_be_denied => {}
                    cause => return Err(format!("{pending:?} ended with: {cause}")),
                }
                self.lose(pending);
            }
            (Kind::Write { first, count, number }, Ok(Outcome::Done(from))) => {
                if let Some(from) = from {
                    slot.endpoint.release(from);
                }
                (0..count).for_each(|i| self.words.completed(first + i, value_of(number, i), to));
            }
            (Kind::Read { first, .. }, Ok(Outcome::Read(into))) => {
                for (i, word) in words_of(&into).enumerate() {
                    self.words.seen(first + i, word, look)?;
                }
                slot.endpoint.release(into);
            }
            (Kind::ReadAtomic { word }, Ok(Outcome::Read(into))) => {
                words_of(&into).for_each(|value| self.atomics[word].seen(value, look));
                slot.endpoint.release(into);
            }
            (Kind::Atomic { word, change }, Ok(Outcome::Word(before))) => {
                self.atomics[word].completed(change, before, look);
            }
            (Kind::Message, Ok(Outcome::Done(from))) => {
                self.sent.insert(pending.origin.endpoint, pending.origin.sequence);
                if let Some(from) = from {
                    slot.endpoint.release(from);
                }
            }
            (_, Ok(outcome)) => return Err(format!("{pending:?} ended with {outcome:?}")),
        }
        Ok(())
    }

    /// An operation ended without saying whether it took effect.
    fn lose(&mut self, pending: Pending) {
        self.report.failed += 1;
        if let Kind::Atomic { word, change } = pending.kind {
            self.lost_atomics += 1;
            self.atomics[word].lost(change, pending.posted);
        }
    }

    /// Waits for all that an endpoint has in flight, and gives up what does not end.
    fn drain(&mut self, client: usize, slot: usize) -> Checked {
        loop {
            let endpoint = &mut self.clients[client].slots[slot].endpoint;
            if endpoint.outstanding() == 0 {
                break;
            }
            match endpoint.wait() {
                Ok(completion) => self.complete(client, slot, completion)?,
                Err(_) => break,
            }
        }
        self.abandon(client, slot);
        Ok(())
    }

    /// Nothing more will be heard of what the endpoint has in flight.
    fn abandon(&mut self, client: usize, slot: usize) {
        let slot = &mut self.clients[client].slots[slot];
        let pending = std::mem::take(&mut slot.pending);
        slot.broken |= !pending.is_empty();
        pending.into_iter().for_each(|pending| self.lose(pending));
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

    // Checks.

    /// Takes what happened at the node.
    fn pump(&mut self) -> Checked {
        // A node that has crashed tells nothing.
        while let Ok(Some(event)) = self.listener.next(Duration::ZERO) {
            match event {
                Event::Joined(peer) => self.joined = Some(peer),
                Event::Left { .. } => {}
                Event::Message { bytes, .. } => {
                    let words: Vec<u64> = words_of(&bytes).collect();
                    let &[endpoint, sequence, ..] = &words[..] else { return Err("a message was cut".into()) };
                    let origin = Origin { endpoint: endpoint as u32, sequence };
                    let last = self.arrived.insert(origin.endpoint, sequence);
                    if bytes != message(origin) || last.is_some_and(|last| last >= sequence) {
                        return Err(format!("message {origin:?} came after {last:?}, or changed"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets everything come to rest, and checks everything.
    fn rest(&mut self) -> Checked {
        for client in 0..CLIENTS {
            for slot in 0..ENDPOINTS {
                self.drain(client, slot)?;
                if self.clients[client].slots[slot].broken {
                    let lives = self.report.restarts;
                    self.replace(client, slot)?;
                    if self.report.restarts > lives {
                        return Ok(());
                    }
                }
            }
        }
        self.network.settle();
        self.pump()?;
        if self.network.running(NODE) != Some(self.listener.identity()) {
            return self.restart();
        }
        for (endpoint, sequence) in std::mem::take(&mut self.sent) {
            let arrived = self.arrived.get(&endpoint).copied().unwrap_or(0);
            if arrived < sequence {
                return Err(format!(
                    "message {sequence} of endpoint {endpoint} was sent, the last that came is {arrived}"
                ));
            }
        }
        self.check_memory()?;
        (0..CLIENTS).try_for_each(|client| self.check_counts(client))
    }

    fn check_memory(&mut self) -> Checked {
        let at = self.tick();
        let memory = self.memory()?;
        self.layout.check(&memory)?;
        for (word, value) in words_of(in_range(&memory, &self.layout.data)).enumerate() {
            self.words.settled(word, value, at)?;
        }
        for (word, value) in words_of(in_range(&memory, &self.layout.atomics)).enumerate() {
            self.atomics[word].settled(value, self.ordering).map_err(|why| format!("atomic {word}: {why}"))?;
        }
        for (at, found) in in_range(&memory, &self.layout.private).iter().enumerate() {
            let lost =
                |(start, bytes): &(usize, Vec<u8>)| at.checked_sub(*start).and_then(|i| bytes.get(i)) == Some(found);
            if self.private[at] != *found && !self.private_lost.iter().any(lost) {
                return Err(format!("private byte {at} is {found:02x} and nobody wrote that"));
            }
            self.private[at] = *found;
        }
        self.private_lost.clear();
        self.lost_atomics = 0;
        if let Some((region, before)) = self.dead.take()
            && read_all(&region)? != before
        {
            return Err("the memory of a node that has crashed changed".into());
        }
        Ok(())
    }

    fn check_counts(&self, client: usize) -> Checked {
        let Client { link, expected, .. } = &self.clients[client];
        let mut counts = link.counts(Traffic::Foreground);
        // How often was waited is for the conformance suite.
        (counts.round_trips, counts.doorbells) = (0, 0);
        if counts == *expected { Ok(()) } else { Err(format!("counted {counts:?}, posted {expected:?}")) }
    }

    fn memory(&self) -> Result<Vec<u8>, String> {
        read_all(&self.region)
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
