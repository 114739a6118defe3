//! One seed from the start to the end.

use crate::history::{Action, Answer, History, Value, perform};
use crate::stage::{Plan, Stage, repeated};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::sync::lock;
use forebay_tree::{Error, Range, TreeClient, TreeStatistics};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const CLIENTS: usize = 8;
const ROUNDS: u64 = 4;
/// Most operations of a client in a round.
const OPERATIONS: u64 = 12;

/// How often in a row readers are asked: memory is used again after two rounds.
const TIDIES: usize = 2;

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Operations on keys; a scan counts as one of each.
    pub operations: u64,
    /// Operations with an unknown outcome.
    pub lost: u64,
    /// Clients that were stopped between two verbs.
    pub stopped: u64,
    /// Leaves, inner nodes and keys at the end.
    pub leaves: u64,
    /// See `leaves`.
    pub inner_nodes: u64,
    /// See `leaves`.
    pub keys: u64,
    /// Steps of the network.
    pub steps: u64,
    /// A hash of the network's behaviour: equal for equal runs.
    pub fingerprint: u64,
}

impl Report {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.lost += other.lost;
        self.stopped += other.stopped;
        self.leaves += other.leaves;
        self.inner_nodes += other.inner_nodes;
        self.keys += other.keys;
        self.steps += other.steps;
        self.fingerprint ^= other.fingerprint;
    }
}

/// What the clients of a seed do.
struct Script {
    keys: Vec<Vec<u8>>,
    /// How many of a hundred clients are stopped somewhere.
    deaths: u64,
    hooked: bool,
    faults: bool,
}

impl Script {
    fn new(random: &mut Random, faults: bool) -> Self {
        let count = match random.below(8) {
            0 => 3,
            1 => 200,
            few => 4 + 4 * few,
        };
        let strings = [0, 0, 3, 10][random.below(4) as usize];
        let key = |number: u64| {
            if number % 10 < strings {
                format!("a key with a long name, number {number:04}").into_bytes()
            } else {
                (number * 7).to_be_bytes().to_vec()
            }
        };
        let mut keys: Vec<Vec<u8>> = (0..count).map(key).collect();
        keys.sort();
        Self { keys, deaths: random.below(3) * 5, hooked: random.one_in(1, 2), faults }
    }

    fn value(random: &mut Random) -> Vec<u8> {
        let number = random.below(1 << 20);
        match random.below(8) {
            0 => number.to_le_bytes()[..random.below(4) as usize].to_vec(),
            1 => format!("a value that is not short, number {number}").into_bytes(),
            2 => (0xfba5 << 48 | number).to_le_bytes().to_vec(),
            _ => (number % 16).to_le_bytes().to_vec(),
        }
    }

    fn action(random: &mut Random, mode: u64, seen: &Value) -> Action {
        let value = Self::value(random);
        match (mode, random.below(10)) {
            (0, 0..6) => Action::Insert(value),
            (1, 0..6) => Action::Delete,
            (_, 0..2) => Action::Put(value),
            (_, 2 | 3) => Action::Insert(value),
            (_, 4 | 5) => Action::Delete,
            (_, 6) => Action::Update(value),
            (_, 7) => Action::Swap(seen.clone().unwrap_or_default(), value),
            _ => Action::Get,
        }
    }
}

/// A round of operations.
struct Round<'a> {
    stage: &'a Stage,
    script: &'a Script,
    history: History,
    next_client: &'a AtomicU32,
    lost: AtomicU32,
    stopped: AtomicU32,
    failure: Mutex<Option<String>>,
    seed: u64,
}

impl Round<'_> {
    fn fail(&self, what: String) {
        lock(&self.failure).get_or_insert(what);
    }

    fn client(&self, thread: usize, random: &mut Random) -> Result<TreeClient, String> {
        let mut client = repeated(|| self.stage.tree(thread).client().map_err(|error| error.to_string()))?;
        let mut left = if random.below(100) < self.script.deaths { Some(random.below(150)) } else { None };
        if left.is_some() || self.script.hooked {
            let (turns, hooked) = (Arc::clone(&self.stage.turns), self.script.hooked);
            client.set_hook(Some(Box::new(move |_| {
                if hooked {
                    turns.pass();
                }
                left = left.map(|left| left.saturating_sub(1));
                left != Some(0)
            })));
        }
        Ok(client)
    }

    /// The work of a thread.
    fn work(&self, thread: usize) {
        let mut random = Random::seeded(self.seed ^ (thread as u64 + 1) << 32);
        let mode = random.below(4);
        let mut seen: Value = None;
        let operations = random.below(OPERATIONS) + 1;
        let mut life: Option<(u32, TreeClient)> = None;
        for _ in 0..operations {
            let (number, mut client) = match life.take() {
                Some(life) => life,
                None => match self.client(thread, &mut random) {
                    Ok(client) => (self.next_client.fetch_add(1, Ordering::SeqCst), client),
                    Err(why) => return self.fail(why),
                },
            };
            let result = match random.below(24) {
                0 => self.scan(number, &mut client, &mut random),
                1 | 2 => self.tidy(&mut client),
                _ => self.one(number, &mut client, &mut random, mode, &mut seen),
            };
            match result {
                Ok(()) => {
                    life = Some((number, client));
                    continue;
                }
                Err(Error::Stopped) => _ = self.stopped.fetch_add(1, Ordering::SeqCst),
                Err(error) if self.script.faults && matches!(error, Error::Fabric(_) | Error::Memory(_)) => {
                    self.lost.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => return self.fail(format!("an operation of client {number} failed: {error}")),
            }
            drop(client);
            // While its session lives, its operations under way keep memory from being used again.
            if random.one_in(3, 4)
                && let Err(why) = self.stage.restart(thread)
            {
                return self.fail(why);
            }
        }
    }

    fn one(
        &self,
        number: u32,
        client: &mut TreeClient,
        random: &mut Random,
        mode: u64,
        seen: &mut Value,
    ) -> Result<(), Error> {
        let key = random.below(self.script.keys.len() as u64) as usize;
        let action = Script::action(random, mode, seen);
        self.history.begin(number, key, action.clone());
        let answer = perform(client, &self.script.keys[key], &action)?;
        if let Answer::Value(value) = &answer {
            *seen = value.clone();
        }
        self.history.end(number, key, answer);
        Ok(())
    }

    /// A scan of everything, as a get of each key.
    fn scan(&self, number: u32, client: &mut TreeClient, random: &mut Random) -> Result<(), Error> {
        let keys = &self.script.keys;
        (0..keys.len()).for_each(|key| self.history.begin(number, key, Action::Get));
        let backward = random.one_in(1, 2);
        let mut found = client.scan(Range { backward, ..Range::all() })?;
        if backward {
            found.reverse();
        }
        if !found.is_sorted_by(|a, b| a.0 < b.0) || found.iter().any(|(key, _)| !keys.contains(key)) {
            self.fail(format!("a scan found {found:?}"));
        }
        let found: BTreeMap<_, _> = found.into_iter().collect();
        for (key, bytes) in keys.iter().enumerate() {
            self.history.end(number, key, Answer::Value(found.get(bytes).cloned()));
        }
        Ok(())
    }

    /// Announces the reads of all sessions, so that memory that nobody reads can be used again, now or after further
    /// calls.
    fn tidy(&self, client: &mut TreeClient) -> Result<(), Error> {
        for _ in 0..TIDIES {
            for session in self.stage.sessions() {
                session.renew()?;
            }
            client.reclaim()?;
        }
        Ok(())
    }
}

/// Runs a seed.
///
/// # Errors
/// What is wrong.
pub fn run_seed(seed: u64) -> Result<Report, String> {
    let mut random = Random::seeded(seed);
    let plan = Plan::new(&mut random, CLIENTS);
    let script = Script::new(&mut random, plan.has_faults());
    let stage = Stage::new(seed, &plan, CLIENTS)?;
    let next_client = AtomicU32::new(1);
    let mut report = Report::default();
    let mut before = prepare(&stage, &script, &mut random)?;
    for round in 0..ROUNDS {
        let round = Round {
            stage: &stage,
            script: &script,
            history: History::default(),
            next_client: &next_client,
            lost: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            failure: Mutex::new(None),
            seed: seed.wrapping_mul(1000) + round,
        };
        if stage.turns.run(|thread| round.work(thread)).contains(&None) {
            return Err("a client panicked".into());
        }
        if let Some(failure) = lock(&round.failure).take() {
            return Err(format!("{failure}\n{:#?}\n{plan:?}", round.history));
        }
        // What was lost on its way lands now, or never.
        stage.network.settle();
        let statistics = look(&stage, &round, &mut before)?;
        report.operations += round.history.operations();
        report.lost += u64::from(round.lost.into_inner());
        report.stopped += u64::from(round.stopped.into_inner());
        (report.leaves, report.inner_nodes, report.keys) = (statistics.leaves, statistics.inner_nodes, statistics.keys);
    }
    report.steps = stage.network.steps();
    report.fingerprint = stage.network.fingerprint();
    Ok(report)
}

/// Puts some of the keys into the tree.
fn prepare(stage: &Stage, script: &Script, random: &mut Random) -> Result<Vec<Value>, String> {
    let share = random.below(3);
    let mut values = Vec::new();
    for key in &script.keys {
        let value = random.one_in(share, 2).then(|| Script::value(random));
        if let Some(value) = &value {
            again(stage, "a put at the beginning", |client| client.put(key, value))?;
        }
        values.push(value);
    }
    Ok(values)
}

/// Retries, with another client, what the network loses.
fn again<T>(
    stage: &Stage,
    what: &str,
    mut operation: impl FnMut(&mut TreeClient) -> Result<T, Error>,
) -> Result<T, String> {
    repeated(|| {
        let mut client = stage.observer().client().map_err(|error| error.to_string())?;
        operation(&mut client).map_err(|error| format!("{what}: {error}"))
    })
}

/// Verifies the tree, reads it, and checks the round's history.
fn look(stage: &Stage, round: &Round<'_>, before: &mut Vec<Value>) -> Result<TreeStatistics, String> {
    let statistics = again(stage, "verify", |client| match client.verify() {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Err(error)),
        other => other.map(Ok),
    })?
    .map_err(|error| format!("the tree is broken: {error}"))?;
    let number = round.next_client.fetch_add(1, Ordering::SeqCst);
    let mut after = Vec::new();
    for (key, bytes) in round.script.keys.iter().enumerate() {
        let value = again(stage, "a get at the end", |client| client.get(bytes))?;
        round.history.begin(number, key, Action::Get);
        round.history.end(number, key, Answer::Value(value.clone()));
        after.push(value);
    }
    let keys = after.iter().flatten().count() as u64;
    if keys != statistics.keys {
        return Err(format!("{keys} keys are found, and {} are there", statistics.keys));
    }
    let mut backward =
        again(stage, "a scan at the end", |client| client.scan(Range { backward: true, ..Range::all() }))?;
    backward.reverse();
    let forward = again(stage, "a scan at the end", |client| client.scan(Range::all()))?;
    let pairs = round.script.keys.iter().zip(&after);
    let expected: Vec<_> = pairs.filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
    if forward != expected || backward != expected {
        return Err(format!("scans found {forward:?} and {backward:?}, and gets {expected:?}"));
    }
    round.history.check(before)?;
    *before = after;
    Ok(statistics)
}
