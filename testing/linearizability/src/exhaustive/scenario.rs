//! What is tried: trees, and scripts of clients.

use super::Coverage;
use super::actor::Actor;
use super::explore::Explorer;
use super::link::{EXTENT_BYTES, EXTENTS, Seat, SeatLink, TREES};
use super::memory::Words;
use super::observer::Observer;
use super::script::{Scenario, Step};
use crate::history::{Action, perform};
use forebay_env::sync::Mutex;
use forebay_fabric::inprocess::{Connector, listen};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{MemoryNode, Options};
use forebay_tree::{Tree, TreeOptions};
use std::sync::Arc;
use std::time::Duration;

/// What the readers answer: all have passed.
const PASSED: (u64, u64) = (1, u64::MAX);

/// Tries all schedules of a scenario.
///
/// # Errors
/// What is wrong, and the schedule that leads to it.
pub fn explore(scenario: &Scenario) -> Result<Coverage, String> {
    let memory = Arc::new(Mutex::new(Words::new(EXTENTS as usize * EXTENT_BYTES as usize / 8)));
    let (listener, connector) = listen(1).map_err(|error| error.to_string())?;
    let options = Options {
        extent_bytes: Some(EXTENT_BYTES),
        threads: 0,
        lease: Duration::from_secs(1_000_000),
        ..Options::with_memory(u64::from(EXTENTS) * EXTENT_BYTES)
    };
    let _node = MemoryNode::start(Box::new(listener), options).map_err(|error| error.to_string())?;
    let world = World { memory, connector, keys: scenario.keys.clone().into(), is_ordered: scenario.is_ordered };
    world.explore(scenario).map_err(|why| format!("{}: {why}", scenario.name))
}

struct World {
    memory: Arc<Mutex<Words>>,
    connector: Connector,
    keys: Arc<[Vec<u8>]>,
    is_ordered: bool,
}

impl World {
    fn session(&self) -> Result<(Arc<Seat>, Arc<MemoryClient>), String> {
        let seat = Seat::new(&self.memory, self.is_ordered);
        let inner = self.connector.connect().map_err(|error| error.to_string())?;
        let link = Arc::new(SeatLink { inner, seat: Arc::clone(&seat) });
        let options = ClientOptions { foreign_reads: true, renew: false, ..ClientOptions::default() };
        let session = MemoryClient::connect(link, "test", options).map_err(|error| error.to_string())?;
        seat.take(&session);
        Ok((seat, session))
    }

    fn options() -> TreeOptions {
        TreeOptions { slots: 2, most_buckets: 2, fill_percent: 50, timeout: TREES, ..TreeOptions::default() }
    }

    /// A process that has cached the tree, and has free blocks.
    fn process(&self) -> Result<(Arc<Seat>, Arc<Tree>), String> {
        let (seat, session) = self.session()?;
        let failed = |error: forebay_tree::Error| error.to_string();
        let tree = Tree::open(&[session], "tree", Self::options()).map_err(failed)?.with_readers(PASSED);
        let mut client = tree.client().map_err(failed)?;
        client.stock_up().map_err(failed)?;
        for key in self.keys.iter() {
            client.get(key).map_err(failed)?;
        }
        drop(client);
        Ok((seat, tree))
    }

    fn explore(&self, scenario: &Scenario) -> Result<Coverage, String> {
        let (_seat, session) = self.session()?;
        let failed = |error: forebay_tree::Error| error.to_string();
        let tree = Tree::create(&[session], "tree", Self::options()).map_err(failed)?.with_readers(PASSED);
        let mut builder = tree.client().map_err(failed)?;
        for step in &scenario.before {
            match step {
                Step::One(key, action) => drop(perform(&mut builder, &self.keys[*key], action).map_err(failed)?),
                &Step::Take(class) => builder.take_batch(class).map_err(failed)?,
                &Step::Give(class) => builder.give_batch(class).map_err(failed)?,
                Step::Round => builder.begin_round().map_err(failed)?,
                Step::Scan { .. } | Step::MultiGet => {}
            }
        }
        drop(builder);
        let (mut actors, mut stocks) = (Vec::new(), Vec::new());
        for script in &scenario.scripts {
            let (seat, tree) = self.process()?;
            stocks.push(tree.stock());
            actors.push(Actor::new(seat, tree, Arc::clone(&self.keys), script.clone()));
        }
        let (_seat, tree) = self.process()?;
        let observer = Observer::new(tree, Arc::clone(&self.keys));
        let memory = Arc::clone(&self.memory);
        let mut explorer = Explorer::new(memory, actors, stocks, observer, scenario)?;
        explorer.run()?;
        let memories = explorer.observer.memories() as u64;
        Ok(Coverage { memories, ..explorer.coverage })
    }
}

/// A tree, and the key that the clients' steps are for. A leaf holds two keys, or three if hashes are lucky.
struct Situation {
    name: &'static str,
    /// Keys that were put, in this order, and then deleted.
    put: &'static [usize],
    deleted: &'static [usize],
    key: usize,
}

const SITUATIONS: [Situation; 9] = [
    Situation { name: "an empty leaf", put: &[], deleted: &[], key: 0 },
    Situation { name: "a leaf that has the key", put: &[0, 1], deleted: &[], key: 0 },
    Situation { name: "a leaf where the key was deleted", put: &[0, 1], deleted: &[0], key: 0 },
    Situation { name: "a leaf with a free slot", put: &[0, 1], deleted: &[], key: 2 },
    Situation { name: "a full leaf", put: &[0, 1, 2], deleted: &[], key: 3 },
    Situation { name: "a full leaf of deleted keys", put: &[0, 1, 2], deleted: &[0, 2], key: 3 },
    Situation { name: "the right one of two leaves", put: &[0, 1, 2, 3], deleted: &[], key: 3 },
    Situation { name: "the last key of the left leaf", put: &[0, 1, 2, 3], deleted: &[], key: 0 },
    Situation { name: "the last key of the right leaf", put: &[0, 1, 2, 3], deleted: &[1, 2], key: 3 },
];

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn put(key: usize, number: u64) -> Step {
    Step::One(key, Action::Put(value(number)))
}

fn insert(key: usize, number: u64) -> Step {
    Step::One(key, Action::Insert(value(number)))
}

fn swap(key: usize, number: u64) -> Step {
    Step::One(key, Action::Swap(value(100), value(number)))
}

fn delete(key: usize) -> Step {
    Step::One(key, Action::Delete)
}

fn get(key: usize) -> Step {
    Step::One(key, Action::Get)
}

fn text(script: &[Step]) -> String {
    let step = |step: &Step| match step {
        Step::One(key, action) => {
            let action = match action {
                Action::Get => "get",
                Action::Put(_) => "put",
                Action::Insert(_) => "insert",
                Action::Update(_) => "update",
                Action::Swap(..) => "swap",
                Action::Delete => "delete",
            };
            format!("{action} {key}")
        }
        Step::Scan { backward: false } => "scan".into(),
        Step::Scan { backward: true } => "scan backward".into(),
        Step::MultiGet => "get all".into(),
        Step::Take(_) => "take".into(),
        Step::Give(_) => "give".into(),
        Step::Round => "round".into(),
    };
    script.iter().map(step).collect::<Vec<_>>().join(", ")
}

const SCAN: Step = Step::Scan { backward: false };
const SCAN_BACKWARD: Step = Step::Scan { backward: true };

/// The writes that a client may make to a key.
fn writes(key: usize, number: u64) -> Vec<Step> {
    let update = Step::One(key, Action::Update(value(number)));
    vec![put(key, number), insert(key, number), update, swap(key, number), delete(key)]
}

/// The reads that a client may make.
fn reads(key: usize) -> Vec<Step> {
    vec![get(key), SCAN, SCAN_BACKWARD, Step::MultiGet]
}

impl Situation {
    fn scenario(&self, scripts: Vec<Vec<Step>>) -> Scenario {
        let deletes = self.deleted.iter().map(|&key| delete(key));
        Scenario {
            name: format!(
                "{}: {}",
                self.name,
                scripts.iter().map(|script| text(script)).collect::<Vec<_>>().join(" | ")
            ),
            keys: (0..8u64).map(|number| (number * 5).to_be_bytes().to_vec()).collect(),
            before: self.put.iter().map(|&key| put(key, 100)).chain(deletes).collect(),
            scripts,
            is_ordered: true,
            deaths: true,
            switches: 0,
            apart: false,
        }
    }

    /// Each write of a key beside each other one, and beside each read.
    fn pairs(&self) -> Vec<Scenario> {
        let mut pairs = Vec::new();
        for (index, first) in writes(self.key, 1).into_iter().enumerate() {
            for second in writes(self.key, 2).into_iter().skip(index).chain(reads(self.key)) {
                pairs.push(self.scenario(vec![vec![first.clone()], vec![second]]));
            }
        }
        pairs
    }
}

const TWO_LEAVES: Situation = Situation { name: "two leaves", put: &[0, 1, 2, 3, 4], deleted: &[], key: 0 };

/// Steps for different keys that meet in the structure of the tree.
fn structure() -> Vec<Scenario> {
    let full = &SITUATIONS[4];
    let steps = [
        // Neighbours that are split and merged at once.
        (&TWO_LEAVES, delete(0), put(5, 1)),
        (&TWO_LEAVES, delete(0), put(3, 1)),
        (&SITUATIONS[8], delete(3), put(4, 1)),
        (full, put(3, 1), put(4, 2)),
        (full, put(3, 1), delete(0)),
        (full, put(3, 1), swap(1, 2)),
        (full, put(3, 1), put(0, 2)),
    ];
    steps.into_iter().map(|(situation, a, b)| situation.scenario(vec![vec![a], vec![b]])).collect()
}

/// Scripts of several steps, and several clients.
fn longer() -> Vec<Scenario> {
    let [empty, there, ..] = &SITUATIONS;
    vec![
        empty.scenario(vec![vec![put(0, 1), get(0)], vec![delete(0), get(0)]]),
        there.scenario(vec![vec![put(0, 1), get(0)], vec![delete(0), insert(0, 2)]]),
        there.scenario(vec![vec![put(0, 1), put(0, 3)], vec![swap(0, 2), put(0, 4)]]),
        empty.scenario(vec![vec![insert(0, 1)], vec![insert(0, 2)], vec![get(0)]]),
        there.scenario(vec![vec![put(0, 1)], vec![swap(0, 2)], vec![delete(0)]]),
        there.scenario(vec![vec![put(0, 1)], vec![put(0, 2)], vec![get(0), get(0)]]),
    ]
}

/// Inner nodes: five are a batch, and 22 a chunk.
const CLASS: u64 = 32;
const TAKE: Step = Step::Take(CLASS);
const GIVE: Step = Step::Give(CLASS);

/// A name, what was done before, and what each client does.
type Stacks<'a> = (&'static str, &'a [Step], Vec<Vec<Step>>);

/// Steps that meet in the stacks of free blocks and in the chunks that are being divided. What a client hands over
/// is not taken in the same scenario: that would need two more rounds.
fn stacks() -> Vec<Scenario> {
    // Rounds begin until the last one knows its readers' epoch, so that the next begins at once.
    let empty: &[Step] = &[Step::Round];
    let one: &[Step] = &[TAKE, GIVE, Step::Round, Step::Round, Step::Round];
    let three: &[Step] = &[TAKE, TAKE, TAKE, GIVE, GIVE, GIVE, Step::Round, Step::Round, Step::Round];
    let scripts: Vec<Stacks<'_>> = vec![
        ("the end of a chunk", empty, vec![vec![TAKE], vec![TAKE]]),
        ("the end of a chunk", empty, vec![vec![TAKE, TAKE], vec![TAKE, TAKE]]),
        ("the end of a chunk", empty, vec![vec![TAKE], vec![TAKE], vec![TAKE]]),
        ("a stack of one", one, vec![vec![TAKE], vec![TAKE]]),
        ("a stack of three", three, vec![vec![TAKE, TAKE], vec![TAKE, TAKE]]),
        ("a stack of three", three, vec![vec![TAKE], vec![TAKE], vec![TAKE]]),
        ("a stack of three", three, vec![vec![GIVE], vec![GIVE]]),
        ("a stack of three", three, vec![vec![GIVE], vec![GIVE], vec![TAKE]]),
        ("a stack of three", three, vec![vec![TAKE], vec![GIVE, GIVE]]),
        ("a stack of three", three, vec![vec![TAKE, GIVE], vec![TAKE, GIVE]]),
        ("a stack of three", three, vec![vec![TAKE], vec![Step::Round, GIVE]]),
        ("a stack of three", three, vec![vec![GIVE], vec![Step::Round, GIVE]]),
        ("a stack of three", three, vec![vec![TAKE], vec![GIVE], vec![Step::Round]]),
        // A list that was popped must not be used for another one while somebody may still swap it.
        ("a stack of three", three, vec![vec![TAKE], vec![TAKE, TAKE, Step::Round, GIVE, GIVE]]),
        ("a stack of three", three, vec![vec![TAKE, TAKE], vec![TAKE, Step::Round, GIVE]]),
    ];
    let scenario = |(name, before, scripts): Stacks<'_>| {
        let situation = Situation { name, put: &[], deleted: &[], key: 0 };
        Scenario { before: before.to_vec(), apart: true, ..situation.scenario(scripts) }
    };
    let all: Vec<Scenario> = scripts.into_iter().map(scenario).collect();
    let unordered = all.iter().filter(|scenario| scenario.scripts.len() == 2).cloned();
    unordered.map(Scenario::without_order).chain(all.clone()).collect()
}

impl Scenario {
    /// The same scenario with keys that do not fit into a word.
    fn with_long_keys(self) -> Self {
        let keys = (0..self.keys.len()).map(|number| format!("a long key, number {number}").into_bytes());
        Self { name: format!("long keys, {}", self.name), keys: keys.collect(), ..self }
    }

    /// The same scenario with values that do not fit into a word.
    fn with_long_values(self) -> Self {
        let long = |value: Vec<u8>| [&value[..], b", a long one"].concat();
        let step = |step| match step {
            Step::One(key, action) => {
                let action = match action {
                    Action::Put(new) => Action::Put(long(new)),
                    Action::Insert(new) => Action::Insert(long(new)),
                    Action::Update(new) => Action::Update(long(new)),
                    Action::Swap(old, new) => Action::Swap(long(old), long(new)),
                    Action::Get | Action::Delete => action,
                };
                Step::One(key, action)
            }
            other => other,
        };
        let steps = |steps: Vec<Step>| steps.into_iter().map(step).collect();
        Self {
            name: format!("long values, {}", self.name),
            before: steps(self.before),
            scripts: self.scripts.into_iter().map(steps).collect(),
            ..self
        }
    }

    /// The same scenario on a back end that declares no order.
    fn without_order(self) -> Self {
        Self { name: format!("without order, {}", self.name), is_ordered: false, ..self }
    }
}

/// Long keys, long values, and batches without an order.
fn variants() -> Vec<Scenario> {
    let pairs = |situations: &'static [Situation]| situations.iter().flat_map(Situation::pairs);
    let long_keys = pairs(&SITUATIONS[..2]).chain(pairs(&SITUATIONS[4..5])).chain(structure());
    let long_values = pairs(&SITUATIONS[..3]).chain(structure());
    // Reads of all keys may take effect in too many orders.
    let is_short = |scenario: &Scenario| !scenario.scripts.contains(&vec![Step::MultiGet]);
    let without_order = pairs(&SITUATIONS[..3]).filter(is_short);
    long_keys
        .map(Scenario::with_long_keys)
        .chain(long_values.map(Scenario::with_long_values))
        .chain(without_order.map(Scenario::without_order))
        .collect()
}

/// All scenarios, in which a client that could continue its step has to wait for another at most `switches`
/// times.
#[must_use]
pub fn all(switches: usize) -> Vec<Scenario> {
    let scenarios = SITUATIONS
        .iter()
        .flat_map(Situation::pairs)
        .chain(structure())
        .chain(longer())
        .chain(stacks())
        .chain(variants());
    scenarios.map(|scenario| Scenario { switches, ..scenario }).collect()
}
