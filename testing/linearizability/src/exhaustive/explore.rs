//! The search over all schedules, depth first.

use super::Coverage;
use super::actor::{Actor, Answers, Findings, Known, Next};
use super::link::Wanted;
use super::memory::{Verb, Words, mix};
use super::observer::{Observed, Observer};
use super::script::{Scenario, Step};
use crate::history::{Action, Answer, Event, Value, is_explained};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{HashMap, HashSet};
use forebay_tree::BlockName;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Number of ways to tear a read that others change, above which not all of them are tried.
const TEARS: usize = 64;

/// Most turns of a schedule: a client that needs more with so few switches makes no progress.
const LONGEST: usize = 500;

/// A client at a moment.
#[derive(Debug, Clone)]
struct Client {
    place: u32,
    next: Next,
    /// What the posted operations that took effect have found.
    found: Vec<Option<u32>>,
    /// For each read under way: words that others have changed since, and their earlier values.
    open: Vec<Option<Vec<(u32, u64)>>>,
    begun: usize,
    ended: usize,
    /// A hash of which steps of the others had ended when each of its own was begun.
    order: u64,
}

/// All clients at a moment.
#[derive(Debug, Clone)]
struct State {
    clients: Vec<Client>,
    /// The client that had the last turn.
    last: usize,
    /// How often a client that could continue may still have to wait for another.
    switches: usize,
}

/// A turn of a schedule.
#[derive(Debug, Clone)]
enum Turn {
    Begin(usize),
    Did(usize, Arc<[Wanted]>, usize, u32),
    Ended(usize, Answers),
}

/// See the module.
pub(crate) struct Explorer {
    pub(crate) memory: Arc<Mutex<Words>>,
    pub(crate) actors: Vec<Actor>,
    pub(crate) observer: Observer,
    pub(crate) is_ordered: bool,
    /// Whether all clients may die at any moment.
    pub(crate) deaths: bool,
    /// Most switches of a schedule away from a client that could continue its step.
    pub(crate) switches: usize,
    findings: Findings,
    /// The values of the keys in the beginning.
    before: Vec<Value>,
    /// The blocks that were nowhere in the beginning.
    lost: Vec<BlockName>,
    /// What each client had in the beginning, and after them the observer.
    stocks: Vec<Vec<BlockName>>,
    /// See [`Scenario::apart`].
    apart: bool,
    visited: HashMap<[u64; 2], f64>,
    path: Vec<Turn>,
    /// Hashes of histories, including the observer's, that an order explains.
    explained: HashSet<[u64; 2]>,
    pub(crate) coverage: Coverage,
}

impl Explorer {
    pub(crate) fn new(
        memory: Arc<Mutex<Words>>,
        actors: Vec<Actor>,
        mut stocks: Vec<Vec<BlockName>>,
        mut observer: Observer,
        scenario: &Scenario,
    ) -> Result<Self, String> {
        let first = observer.look(&memory)?;
        stocks.push(first.stock.clone());
        let there: HashSet<&BlockName> = first.there.iter().chain(stocks.iter().flatten()).collect();
        let lost = first.all.iter().filter(|block| !there.contains(block)).copied().collect();
        Ok(Self {
            memory,
            actors,
            observer,
            is_ordered: scenario.is_ordered,
            deaths: scenario.deaths,
            switches: scenario.switches,
            findings: Findings::default(),
            before: first.values.clone(),
            lost,
            stocks,
            apart: scenario.apart,
            visited: HashMap::default(),
            path: Vec::new(),
            explained: HashSet::default(),
            coverage: Coverage::default(),
        })
    }

    /// Tries all schedules.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let client =
            Client { place: 0, next: Next::Begin, found: Vec::new(), open: Vec::new(), begun: 0, ended: 0, order: 0 };
        let state = State { clients: vec![client; self.actors.len()], last: 0, switches: self.switches };
        self.coverage.schedules = self.visit(&state)?;
        self.coverage.states = self.visited.len() as u64;
        self.coverage.places = self.actors.iter().map(|actor| actor.places() as u64).sum();
        Ok(())
    }

    /// Visits a state, unless it was visited. Returns how many schedules continue from it.
    fn visit(&mut self, state: &State) -> Result<f64, String> {
        let key = self.key(state);
        if let Some(&schedules) = self.visited.get(&key) {
            return Ok(schedules);
        }
        self.coverage.longest = self.coverage.longest.max(self.path.len() as u64);
        if self.path.len() > LONGEST {
            return Err(self.report("no end"));
        }
        self.check(&state.clients).map_err(|why| self.report(&why))?;
        let mut schedules = 0.0;
        let could_go_on = matches!(state.clients[state.last].next, Next::Posted(_));
        for (number, client) in state.clients.iter().enumerate() {
            let is_switch = could_go_on && number != state.last;
            let mut next = State { last: number, ..state.clone() };
            match (state.switches.checked_sub(usize::from(is_switch)), &client.next) {
                (_, Next::Ended(_)) => {}
                (None, _) => self.coverage.cut += 1,
                (Some(switches), Next::Begin) => {
                    next.switches = switches;
                    schedules += self.begin(next)?;
                }
                (Some(switches), Next::Posted(posted)) => {
                    next.switches = switches;
                    for index in 0..posted.len() {
                        if self.may(client, posted, index) {
                            schedules += self.let_do(&next, posted, index)?;
                        }
                    }
                }
            }
        }
        let schedules = if schedules == 0.0 { 1.0 } else { schedules };
        self.visited.insert(key, schedules);
        Ok(schedules)
    }

    /// Whether a posted operation may take effect now.
    fn may(&self, client: &Client, posted: &[Wanted], index: usize) -> bool {
        let is_next = || client.found[..index].iter().all(Option::is_some);
        client.found[index].is_none() && (!self.is_ordered && !posted[index].is_fenced || is_next())
    }

    /// Lets the client whose turn it is begin its next step.
    fn begin(&mut self, mut state: State) -> Result<f64, String> {
        let number = state.last;
        for other in 0..state.clients.len() {
            let ended = state.clients[other].ended as u64;
            let client = &mut state.clients[number];
            client.order = mix(client.order, ended << 8 | other as u64);
        }
        let client = &mut state.clients[number];
        client.begun += 1;
        let place = self.actors[number].begin(client.place);
        self.path.push(Turn::Begin(number));
        let schedules = self.arrive(state, place);
        self.path.pop();
        schedules
    }

    /// Lets a posted operation of the client whose turn it is take effect.
    fn let_do(&mut self, state: &State, posted: &Arc<[Wanted]>, index: usize) -> Result<f64, String> {
        let verb = &posted[index].verb;
        if let &Verb::Read { at, words } = verb {
            let changes = state.clients[state.last].open[index].clone().unwrap_or_default();
            let mut schedules = 0.0;
            for seen in self.tears(at, words, &changes) {
                schedules += self.found(state.clone(), posted, index, &seen)?;
            }
            return Ok(schedules);
        }
        let mark = lock(&self.memory).mark();
        let found = lock(&self.memory).apply(verb);
        let changes = lock(&self.memory).changes(mark).to_vec();
        let mut state = state.clone();
        for client in &mut state.clients {
            let Next::Posted(posted) = &client.next else { continue };
            for (wanted, open) in posted.iter().zip(&mut client.open) {
                let (Some(open), &Verb::Read { at, words }) = (open, &wanted.verb) else { continue };
                open.extend(changes.iter().filter(|(word, _)| (at..at + words).contains(word)));
            }
        }
        let schedules = self.found(state, posted, index, &[found]);
        lock(&self.memory).undo(mark);
        schedules
    }

    /// What a read may have found: each word had the value at some moment while the read was under way.
    fn tears(&mut self, at: u32, words: u32, changes: &[(u32, u64)]) -> Vec<Vec<u64>> {
        let now = lock(&self.memory).read(at, words).to_vec();
        let mut seen: Vec<(usize, Vec<u64>)> = Vec::new();
        for &(word, old) in changes {
            let place = (word - at) as usize;
            let values = match seen.iter().position(|(other, _)| *other == place) {
                Some(index) => &mut seen[index].1,
                None => {
                    seen.push((place, vec![now[place]]));
                    let last = seen.len() - 1;
                    &mut seen[last].1
                }
            };
            if !values.contains(&old) {
                values.push(old);
            }
        }
        let product = seen.iter().try_fold(1usize, |product, (_, values)| product.checked_mul(values.len()));
        let mut found = vec![now.clone()];
        if product.is_some_and(|product| product <= TEARS) {
            for (place, values) in &seen {
                let with = |words: &Vec<u64>, &value: &u64| {
                    let mut words = words.clone();
                    words[*place] = value;
                    words
                };
                found = found.iter().flat_map(|words| values.iter().map(move |value| with(words, value))).collect();
            }
            return found;
        }
        self.coverage.simplified += 1;
        // All words as of one moment; or the first values up to some word and the present ones after it; or
        // the other way round.
        let mut then = now.clone();
        for &(word, old) in changes.iter().rev() {
            then[(word - at) as usize] = old;
            found.push(then.clone());
        }
        for cut in seen.iter().map(|(place, _)| *place) {
            found.push(then[..cut].iter().chain(&now[cut..]).copied().collect());
            found.push(now[..cut].iter().chain(&then[cut..]).copied().collect());
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Records what a posted operation of the client whose turn it is has found.
    fn found(&mut self, mut state: State, posted: &Arc<[Wanted]>, index: usize, words: &[u64]) -> Result<f64, String> {
        let number = state.last;
        let client = &mut state.clients[number];
        let finding = self.findings.number(words);
        client.found[index] = Some(finding);
        client.open[index] = None;
        self.path.push(Turn::Did(number, Arc::clone(posted), index, finding));
        let all: Option<Vec<u32>> = client.found.iter().copied().collect();
        let schedules = match all {
            Some(all) => {
                let place = self.actors[number].find(client.place, all);
                self.arrive(state, place)
            }
            None => {
                self.open_reads(client);
                self.visit(&state)
            }
        };
        self.path.pop();
        schedules
    }

    /// Moves the client whose turn it is to a place.
    fn arrive(&mut self, mut state: State, place: u32) -> Result<f64, String> {
        let number = state.last;
        let known = self.actors[number].known(place, &self.findings);
        let Known { next, ended, answers } = known.map_err(|why| self.report(&why))?;
        let client = &mut state.clients[number];
        let has_ended = ended > client.ended;
        (client.place, client.ended) = (place, ended);
        let posted = if let Next::Posted(posted) = &next { posted.len() } else { 0 };
        (client.found, client.open) = (vec![None; posted], vec![None; posted]);
        client.next = next;
        self.open_reads(client);
        if has_ended {
            self.path.push(Turn::Ended(number, answers));
        }
        let schedules = self.visit(&state);
        if has_ended {
            self.path.pop();
        }
        schedules
    }

    /// Starts reads as soon as they may begin.
    fn open_reads(&self, client: &mut Client) {
        let Next::Posted(posted) = &client.next else { return };
        for index in 0..posted.len() {
            if matches!(posted[index].verb, Verb::Read { .. })
                && client.open[index].is_none()
                && self.may(client, posted, index)
            {
                client.open[index] = Some(Vec::new());
            }
        }
    }

    /// Returns what distinguishes a state from others: the memory, what each client has found, what its reads may
    /// find, and which steps had ended before which others began.
    fn key(&self, state: &State) -> [u64; 2] {
        let memory = lock(&self.memory);
        let mut key = memory.hash();
        let mut add = |word: u64| {
            key = [mix(key[0], word), mix(key[1] ^ 0x5555, word)];
        };
        add((state.last << 32 | state.switches) as u64);
        for client in &state.clients {
            add(u64::from(client.place));
            add(client.order);
            for (found, open) in client.found.iter().zip(&client.open) {
                add(found.map_or(u64::MAX, u64::from));
                let Some(open) = open else { continue };
                let mut seen: Vec<_> = open.iter().filter(|(at, old)| memory.read(*at, 1)[0] != *old).collect();
                seen.sort_unstable();
                seen.dedup();
                add(seen.len() as u64);
                for &&(at, old) in &seen {
                    add(u64::from(at));
                    add(old);
                }
            }
        }
        key
    }

    /// Checks a state in which all clients have ended or died.
    fn check(&mut self, clients: &[Client]) -> Result<(), String> {
        let stocks: Option<Vec<Arc<[BlockName]>>> = clients
            .iter()
            .map(|client| if let Next::Ended(stock) = &client.next { Some(Arc::clone(stock)) } else { None })
            .collect();
        if stocks.is_none() && !self.deaths {
            return Ok(());
        }
        let observed = self.observer.look(&self.memory)?;
        self.coverage.checks += 1;
        let seen = self.seen(&observed);
        if !self.explained.contains(&seen) {
            self.explain(clients, &observed)?;
            self.explained.insert(seen);
        }
        if let Some(stocks) = stocks {
            self.coverage.ends += 1;
            self.account(&stocks, &observed)?;
        }
        Ok(())
    }

    /// A hash of what the clients, and then the observer, have seen.
    fn seen(&self, observed: &Observed) -> [u64; 2] {
        let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
        for (salt, hasher) in hashers.iter_mut().enumerate() {
            salt.hash(hasher);
            observed.values.hash(hasher);
            for turn in &self.path {
                match turn {
                    Turn::Begin(number) => number.hash(hasher),
                    Turn::Ended(number, answers) => (number, answers).hash(hasher),
                    Turn::Did(..) => {}
                }
            }
        }
        hashers.map(|hasher| hasher.finish())
    }

    /// Whether an order explains what the clients, and then the observer, have seen.
    fn explain(&self, clients: &[Client], observed: &Observed) -> Result<(), String> {
        let keys = self.before.len();
        let mut events: Vec<Vec<Event>> = vec![Vec::new(); keys];
        let mut begun = vec![0; clients.len()];
        for turn in &self.path {
            match turn {
                &Turn::Begin(number) => {
                    let step = self.actors[number].script.get(begun[number]);
                    begun[number] += 1;
                    match step {
                        Some(Step::One(key, action)) => {
                            events[*key].push(Event::Begin(number as u32, action.clone()));
                        }
                        Some(step) if step.reads_all() => {
                            events.iter_mut().for_each(|key| key.push(Event::Begin(number as u32, Action::Get)));
                        }
                        _ => {}
                    }
                }
                Turn::Ended(number, answers) => {
                    for (key, answer) in answers.iter() {
                        events[*key].push(Event::End(*number as u32, answer.clone()));
                    }
                }
                Turn::Did(..) => {}
            }
        }
        let number = clients.len() as u32;
        for (key, mut events) in events.into_iter().enumerate() {
            let value = &observed.values[key];
            if events.is_empty() && *value == self.before[key] {
                continue;
            }
            events.push(Event::Begin(number, Action::Get));
            events.push(Event::End(number, Answer::Value(value.clone())));
            if !is_explained(self.before[key].clone(), &events)? {
                let was = &self.before[key];
                return Err(format!("no order explains the events of key {key}, which was {was:?}: {events:?}"));
            }
        }
        Ok(())
    }

    /// Checks that each block is in exactly one place and, if required, that nobody has a block that
    /// another client began with.
    fn account(&self, stocks: &[Arc<[BlockName]>], observed: &Observed) -> Result<(), String> {
        let stocks = || stocks.iter().map(|stock| &**stock).chain([&observed.stock[..]]);
        let mut there: Vec<BlockName> = stocks().flatten().chain(&observed.there).chain(&self.lost).copied().collect();
        there.sort_unstable();
        if there != observed.all {
            let lost: Vec<_> = observed.all.iter().filter(|block| there.binary_search(block).is_err()).collect();
            let double: Vec<_> = there.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
            return Err(format!("blocks (class, address) that are lost: {lost:x?}; in two places: {double:x?}"));
        }
        for (number, stock) in stocks().enumerate().filter(|_| self.apart) {
            let others = self.stocks.iter().enumerate().filter(|(other, _)| *other != number);
            if let Some(block) = others.flat_map(|(_, stock)| stock).find(|block| stock.contains(block)) {
                return Err(format!("block {block:x?} was taken from another client before all readers passed"));
            }
        }
        Ok(())
    }

    /// A failure, and the schedule that leads to it.
    fn report(&self, why: &str) -> String {
        let mut text = format!("{why}\n");
        let name = |number: usize| (b'A' + number as u8) as char;
        for turn in &self.path {
            text += &match turn {
                Turn::Begin(number) => format!("  {} begins\n", name(*number)),
                Turn::Ended(number, answers) => format!("  {} ended a step: {answers:?}\n", name(*number)),
                Turn::Did(number, posted, index, finding) => {
                    let found = self.findings.words(*finding);
                    format!("  {} {:x?} -> {:x?}\n", name(*number), posted[*index].verb, &found[..found.len().min(20)])
                }
            };
        }
        text
    }
}
