//! The commit register: everything acknowledged stays in the history under the returned number, and one of two writers
//! stops.

use super::{ObjectWorld, World};
use crate::{Finding, check};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{CommitKind, CommitRegister, Error, History, ObjectName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is known of the history, and the errors found.
#[derive(Debug, Default)]
struct Known {
    commits: BTreeMap<u64, Bytes>,
    finding: Option<Finding>,
}

impl Known {
    /// Adds a commit; two under one number are a finding.
    fn add(&mut self, number: u64, payload: &Bytes, how: &str) {
        let known = self.commits.entry(number).or_insert_with(|| payload.clone());
        if known != payload {
            self.finding.get_or_insert_with(|| format!("commit {number} is {payload:?} as {how}, and was {known:?}"));
        }
    }

    fn add_history(&mut self, history: &History) {
        for commit in &history.commits {
            self.add(commit.number, &commit.payload, "read");
        }
    }
}

type Shared = Arc<Mutex<Known>>;

/// A writer: claims, commits, takes snapshots and prunes. It reports each acknowledgement to `known`.
#[derive(Debug)]
struct Writer {
    id: u128,
    acts: Vec<u64>,
    acknowledged: Vec<u64>,
    errors: Vec<ErrorKind>,
}

fn prefix() -> ObjectName {
    ObjectName::new("commit").expect("it is a name")
}

impl Writer {
    fn new(id: u128, random: &mut Random) -> Self {
        Self { id, acts: (0..8).map(|_| random.below(6)).collect(), acknowledged: Vec::new(), errors: Vec::new() }
    }

    fn run<W: World>(&mut self, world: &W, known: &Shared) {
        let tell = |number: u64, payload: &Bytes| {
            // Read through a separate handle, so that only the writer counts the writer's steps.
            let history = History::read(&**world.handle().storage().objects(), &prefix());
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.add(number, payload, "acknowledged");
            match history {
                Ok(history) => known.add_history(&history),
                Err(error) => drop(known.finding.get_or_insert_with(|| format!("the history cannot be read: {error}"))),
            }
        };
        let first = Bytes::from(format!("claim of {}", self.id));
        let claimed = CommitRegister::claim(Arc::clone(world.storage().objects()), &prefix(), self.id, |history| {
            let kind = if history.last().is_none() { CommitKind::Snapshot } else { CommitKind::Edit };
            Ok((kind, first.clone()))
        });
        let mut register = match claimed {
            Ok((register, history)) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).add_history(&history);
                tell(register.last(), &first);
                self.acknowledged.push(register.last());
                register
            }
            Err(error) => return self.errors.push(error.kind()),
        };
        for (count, act) in self.acts.iter().enumerate() {
            let kind = match act {
                0 => {
                    self.errors.extend(register.prune().err().map(|error| error.kind()));
                    continue;
                }
                1 => CommitKind::Snapshot,
                _ => CommitKind::Edit,
            };
            let payload = Bytes::from(format!("{kind:?} {count} of {}", self.id));
            let before = register.last();
            let was_unsettled = register.is_unsettled();
            match register.commit(kind, payload.clone()) {
                Ok(number) => {
                    // An earlier failed commit was insisted on, and now also counts.
                    let expected = before + 1 + u64::from(was_unsettled);
                    if number != expected {
                        let text = format!("commit {number} was made where {expected} is next");
                        known.lock().unwrap_or_else(PoisonError::into_inner).finding.get_or_insert(text);
                    }
                    tell(number, &payload);
                    self.acknowledged.push(number);
                }
                Err(error) => self.errors.push(error.kind()),
            }
        }
    }
}

fn settle(known: &Shared) -> Result<(), Finding> {
    known.lock().unwrap_or_else(PoisonError::into_inner).finding.take().map_or(Ok(()), Err)
}

/// Runs a seed's writers with each kind of crash, fault and takeover at each step. Returns the number of runs.
///
/// # Errors
/// What is wrong, and where.
pub fn register<W: World>(seed: u64) -> Result<u64, Finding> {
    let at = |what: String, finding| format!("{} register, seed {seed}, {what}: {finding}", W::NAME);
    let steps = {
        let world = W::default();
        let known = Shared::default();
        let mut writer = Writer::new(1, &mut Random::seeded(seed));
        writer.run(&world, &known);
        settle(&known).map_err(|finding| at("without a fault".into(), finding))?;
        check(writer.errors.is_empty(), || at("without a fault".into(), format!("{:?}", writer.errors)))?;
        world.steps()
    };
    let mut runs = 0;
    for step in 0..steps {
        for what in 0..W::FAULTS + 2 {
            let outcome = match what.checked_sub(2) {
                None if what == 0 => ended::<W>(seed, step),
                None => overtaken::<W>(seed, step),
                Some(fault) => failed::<W>(seed, step, fault),
            };
            outcome.map_err(|finding| at(format!("case {what} at step {step}"), finding))?;
            runs += 1;
        }
    }
    Ok(runs)
}

/// Reads a seed's register from a service that, at a step and some steps after it, says that what is asked for does not
/// exist. All commits are read, or the error says that the storage contradicts itself. Returns the number of runs.
///
/// # Errors
/// What is wrong, and where.
pub fn not_found_commits(seed: u64) -> Result<u64, Finding> {
    let world = ObjectWorld::default();
    Writer::new(1, &mut Random::seeded(seed)).run(&world, &Shared::default());
    let read = |world: &ObjectWorld| History::read(&**world.storage().objects(), &prefix());
    let whole = read(&world.handle()).map_err(|error| error.to_string())?;
    let mut runs = 0;
    for answers in 1..=6 {
        for step in 0.. {
            let at = |finding| format!("seed {seed}, {answers} times not found at step {step}: {finding}");
            let handle = world.handle();
            handle.find_nothing(step..step + answers);
            match read(&handle) {
                Ok(history) => check(history == whole, || at("other commits".to_owned()))?,
                Err(error) => check(error.kind() == ErrorKind::Unavailable, || at(error.to_string()))?,
            }
            runs += 1;
            if handle.steps() <= step {
                break;
            }
        }
    }
    Ok(runs)
}

/// Lets another writer take over after whatever happened: everything acknowledged is in the history.
fn succeed<W: World>(world: &W, known: &Shared, random: &mut Random) -> Result<(), Finding> {
    let mut next = Writer::new(9, random);
    next.run(&world.handle(), known);
    settle(known)?;
    check(next.errors.is_empty(), || format!("the next writer failed: {:?}", next.errors))?;
    check(!next.acknowledged.is_empty(), || "the next writer did nothing".to_owned())
}

/// The process ends at a step, and power is lost.
fn ended<W: World>(seed: u64, step: u64) -> Result<(), Finding> {
    let mut random = Random::seeded(seed);
    let (world, known) = (W::default(), Shared::default());
    world.end_at(step);
    Writer::new(1, &mut random).run(&world, &known);
    settle(&known)?;
    world.lose_power(&mut random);
    let history = History::read(&**world.handle().storage().objects(), &prefix());
    let history = history.map_err(|error: Error| format!("the history cannot be read: {error}"))?;
    let last_known = known.lock().unwrap_or_else(PoisonError::into_inner).commits.keys().last().copied();
    check(history.last().map(|commit| commit.number) >= last_known, || {
        format!("the history ends before commit {last_known:?}, which was acknowledged")
    })?;
    known.lock().unwrap_or_else(PoisonError::into_inner).add_history(&history);
    settle(&known)?;
    succeed(&world, &known, &mut random)
}

/// An operation fails, and the writer continues as far as it can. Nobody takes over, so nobody is fenced.
fn failed<W: World>(seed: u64, step: u64, fault: usize) -> Result<(), Finding> {
    let mut random = Random::seeded(seed);
    let (world, known) = (W::default(), Shared::default());
    world.fail_at(step, fault);
    let mut writer = Writer::new(1, &mut random);
    writer.run(&world, &known);
    settle(&known)?;
    check(!writer.errors.contains(&ErrorKind::Fenced), || "fenced, and nobody took over".to_owned())?;
    succeed(&world, &known, &mut random)
}

/// The writer is stopped at a step, another one takes over and does all its work, and the first one continues.
fn overtaken<W: World>(seed: u64, step: u64) -> Result<(), Finding> {
    let mut random = Random::seeded(seed);
    let (world, known) = (W::default(), Shared::default());
    let mut first = Writer::new(1, &mut random);
    let second = Arc::new(Mutex::new(Writer::new(2, &mut random)));
    let (other, others_known, slot) = (world.handle(), Arc::clone(&known), Arc::clone(&second));
    world.interrupt_at(step, move || slot.lock().unwrap_or_else(PoisonError::into_inner).run(&other, &others_known));
    first.run(&world, &known);
    settle(&known)?;
    let second = second.lock().unwrap_or_else(PoisonError::into_inner);
    check(second.errors.is_empty(), || format!("the second writer failed: {:?}", second.errors))?;
    // A claim that lost the race is made again, and fences the second writer, which has ended.
    let is_fenced = first.errors.last() == Some(&ErrorKind::Fenced);
    let is_behind = first.acknowledged.last() >= second.acknowledged.last();
    let is_over = first.acts.iter().all(|act| *act == 0) || second.acknowledged.is_empty();
    // The first writer may have made its last commits before it was stopped.
    let was_done = first.errors.is_empty() && first.acknowledged.last() < second.acknowledged.first();
    check(is_fenced || is_behind || is_over || was_done, || {
        format!("the first writer went on: {:?} {:?}", first.acknowledged, first.errors)
    })?;
    succeed(&world, &known, &mut random)
}
