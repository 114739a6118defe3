//! A client is stopped before each verb of each operation, and after the last: enumerated, not sampled.
//!
//! For each situation of a leaf and each operation, a separate run counts the operation's verbs. Then the
//! operation is stopped before each verb in turn, in a tree that was prepared in the same way, and another client
//! continues with one of several scripts: at once, because nobody holds anything. Then the first client has died,
//! or continues with what it was about to do. An order must explain all that was seen, the tree must be whole, and
//! its contents are read. Each block of memory must be in one place: reachable, or free or retired in one of the
//! two processes. A client that continues loses nothing, and one that dies loses only what it held.
//!
//! Inner nodes split and merge in trees with *fillers*: keys above those that anybody uses, enough to bring a node
//! one step before that.

use crate::common::history::{Action, Event, History, Outcome};
use crate::common::{Nodes, small, word};
use forebay_base::ErrorKind;
use forebay_memory_client::MemoryClient;
use forebay_tree::{BlockName, Error, Range, Tree, TreeClient};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

type Sessions = Vec<Arc<MemoryClient>>;

/// The keys that are inserted, and then deleted, before the operation.
struct Situation {
    name: &'static str,
    inserted: std::ops::Range<u64>,
    deleted: std::ops::Range<u64>,
    /// The key that the operation is for.
    key: u64,
}

const SITUATIONS: [Situation; 9] = [
    Situation { name: "an empty tree", inserted: 0..0, deleted: 0..0, key: 3 },
    Situation { name: "a leaf with room", inserted: 0..3, deleted: 0..0, key: 1 },
    Situation { name: "a deleted key", inserted: 0..3, deleted: 1..2, key: 1 },
    Situation { name: "a leaf that grows", inserted: 0..5, deleted: 0..0, key: 5 },
    Situation { name: "a leaf that is split", inserted: 0..7, deleted: 0..0, key: 7 },
    Situation { name: "a full leaf beside others", inserted: 0..16, deleted: 0..0, key: 2 },
    Situation { name: "the last key of a leaf", inserted: 0..12, deleted: 7..12, key: 6 },
    Situation { name: "few keys", inserted: 0..16, deleted: 2..15, key: 1 },
    Situation { name: "a tree that was emptied", inserted: 0..16, deleted: 0..16, key: 4 },
];

impl Situation {
    fn prepare(&self, client: &mut TreeClient, history: &History) {
        let keys = keys();
        for number in self.inserted.clone() {
            history.run(client, &keys[number as usize], Action::Insert(word(number).to_vec())).unwrap();
        }
        for number in self.deleted.clone() {
            history.run(client, &keys[number as usize], Action::Delete).unwrap();
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Get,
    MultiGet,
    Put,
    PutBlock,
    Insert,
    Update,
    Swap,
    Delete,
    Scan,
    ScanBackward,
    /// The keys around the key are inserted: the leaf grows or is split in every position.
    InsertMany,
    /// The keys from the key on are deleted: leaves are merged.
    DeleteMany,
    /// Keys with long values are loaded, if the tree is empty.
    BulkLoad,
    /// Enough keys for two levels of inner nodes, with long keys and separators.
    BulkLoadMany,
    /// Blocks and nodes are displaced, retired, freed, and used again.
    Reclaim,
}

/// Situations in which an inner node is one step before its split, or its merge with a neighbour.
const INNER: [(Situation, Operation, Step); 2] = [
    (
        Situation { name: "a full inner node", inserted: 0..7, deleted: 0..0, key: 7 },
        Operation::InsertMany,
        Step::Split,
    ),
    (
        Situation { name: "a small inner node", inserted: 0..16, deleted: 0..0, key: 2 },
        Operation::DeleteMany,
        Step::Merge,
    ),
];

/// What happens to an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Split,
    Merge,
}

const OPERATIONS: [Operation; 14] = [
    Operation::Get,
    Operation::MultiGet,
    Operation::Put,
    Operation::PutBlock,
    Operation::Insert,
    Operation::Update,
    Operation::Swap,
    Operation::Delete,
    Operation::Scan,
    Operation::ScanBackward,
    Operation::InsertMany,
    Operation::DeleteMany,
    Operation::BulkLoad,
    Operation::Reclaim,
];

/// Keys above those that anybody uses, to fill inner nodes with leaves: how many are inserted, and how many of
/// them are then deleted.
#[derive(Debug, Clone, Copy, Default)]
struct Fillers {
    inserted: u64,
    deleted: u64,
}

impl Fillers {
    fn key(number: u64) -> [u8; 8] {
        word(1_000_000 + number)
    }

    /// The fillers that bring the inner node of a situation's keys right before a step.
    fn before(step: Step, situation: &Situation) -> Self {
        let nodes = Nodes::start(1, 1 << 30);
        let mut client = Tree::create(&nodes.sessions(), "fillers", small()).unwrap().client().unwrap();
        let history = History::default();
        situation.prepare(&mut client, &history);
        let mut fillers = Self::default();
        let mut inner_nodes = client.verify().unwrap().inner_nodes;
        while client.verify().unwrap().inner_nodes == inner_nodes {
            client.insert(&Self::key(fillers.inserted), b"filler").unwrap();
            fillers.inserted += 1;
        }
        if step == Step::Split {
            return Self { inserted: fillers.inserted - 1, ..fillers };
        }
        inner_nodes = client.verify().unwrap().inner_nodes;
        while client.verify().unwrap().inner_nodes == inner_nodes {
            client.delete(&Self::key(fillers.deleted)).unwrap();
            fillers.deleted += 1;
        }
        Self { deleted: fillers.deleted - 1, ..fillers }
    }

    fn prepare(self, client: &mut TreeClient) {
        (0..self.inserted).for_each(|number| assert!(client.insert(&Self::key(number), b"filler").unwrap()));
        (0..self.deleted).for_each(|number| assert!(client.delete(&Self::key(number)).unwrap()));
    }
}

/// Number of scripts that the other client may run meanwhile.
const SCRIPTS: u64 = 6;

/// Announces the progress of the sessions' reads. Twice, because the first time the sessions only hear of an
/// epoch.
fn renew(sessions: &[Sessions; 2]) {
    sessions.iter().flatten().chain(sessions.iter().flatten()).for_each(|session| session.renew().unwrap());
}

/// Retires and frees all that it can.
fn reclaim(client: &mut TreeClient, sessions: &[Sessions; 2]) -> Result<(), Error> {
    for _ in 0..3 {
        client.reclaim()?;
        renew(sessions);
    }
    client.reclaim()
}

/// Keys that are loaded in addition to those that anybody uses, so that the second inner node begins with a long
/// separator.
fn many() -> Vec<Vec<u8>> {
    let short = (0..420).map(|number| Fillers::key(number).to_vec());
    short.chain((0..40).map(|number| format!("z, a long key, number {number:03}").into_bytes())).collect()
}

/// Loads keys. Nothing was done if the tree was not empty.
fn load(client: &mut TreeClient, history: &History, more: &[Vec<u8>]) -> Result<(), Error> {
    let begin = history.now();
    let value =
        |index: usize| if index.is_multiple_of(3) { b"a value that is loaded".to_vec() } else { word(500).to_vec() };
    let own: Vec<_> = keys().into_iter().enumerate().map(|(index, key)| (key, value(index))).collect();
    let all = own.iter().cloned().chain(more.iter().map(|key| (key.clone(), word(501).to_vec())));
    let (outcome, end, result) = match client.bulk_load(all) {
        Ok(_) => (Outcome::Done(true), history.now(), Ok(())),
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(()),
        Err(error) => (Outcome::Unknown, u64::MAX, Err(error)),
    };
    for (key, value) in own {
        let action = Action::Insert(value);
        history.push(Event { key, action, outcome: outcome.clone(), begin, end });
    }
    result
}

/// Displaces blocks and nodes, frees them, and uses them again.
fn displace(client: &mut TreeClient, history: &History, sessions: &[Sessions; 2], key: u64) -> Result<(), Error> {
    let keys = keys();
    let run = |client: &mut TreeClient, number: u64, action| history.run(client, &keys[number as usize], action);
    let few = || (key..24).take(4);
    for value in [b"the first long value", b"another one that is "] {
        few().try_for_each(|number| run(client, number, Action::Put(value.to_vec())))?;
    }
    few().try_for_each(|number| run(client, number, Action::Delete))?;
    reclaim(client, sessions)?;
    few().try_for_each(|number| run(client, number, Action::Insert(b"a value in old memory".to_vec())))
}

/// Keys that anybody uses: with gaps, so that some can be inserted between others.
fn keys() -> Vec<Vec<u8>> {
    (0..24u64).map(|number| word(number * 5).to_vec()).collect()
}

fn perform(
    client: &mut TreeClient,
    history: &History,
    sessions: &[Sessions; 2],
    operation: Operation,
    key: u64,
) -> Result<(), Error> {
    let keys = keys();
    let bytes = &keys[key as usize];
    let value = word(900).to_vec();
    let one = match operation {
        Operation::Get => Action::Get,
        Operation::Put => Action::Put(value),
        Operation::PutBlock => Action::Put(b"a value that is long".to_vec()),
        Operation::Insert => Action::Insert(value),
        Operation::Update => Action::Update(value),
        Operation::Swap => Action::Swap(word(key).to_vec(), value),
        Operation::Delete => Action::Delete,
        Operation::InsertMany => {
            return (key..24).take(6).try_for_each(|key| {
                history.run(client, &keys[key as usize], Action::Insert(word(800 + key).to_vec()))
            });
        }
        Operation::DeleteMany => {
            return (key..24).take(6).try_for_each(|key| history.run(client, &keys[key as usize], Action::Delete));
        }
        Operation::BulkLoad => return load(client, history, &[]),
        Operation::BulkLoadMany => return load(client, history, &many()),
        Operation::Reclaim => return displace(client, history, sessions, key),
        Operation::MultiGet => {
            let begin = history.now();
            let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = client.multi_get(&wanted)?;
            let found = keys.iter().cloned().zip(found);
            history.scanned(&keys, &found.filter_map(|(key, value)| Some((key, value?))).collect::<Vec<_>>(), begin);
            return Ok(());
        }
        Operation::Scan | Operation::ScanBackward => {
            let begin = history.now();
            let backward = matches!(operation, Operation::ScanBackward);
            let mut found = client.scan(Range { backward, ..everybodys() })?;
            if backward {
                found.reverse();
            }
            history.scanned(&keys, &found, begin);
            return Ok(());
        }
    };
    history.run(client, bytes, one)
}

/// The keys that anybody uses, without the fillers.
fn everybodys() -> Range<'static> {
    const END: [u8; 8] = 1_000_000u64.to_be_bytes();
    Range { to: Bound::Excluded(&END), ..Range::all() }
}

fn read_all(client: &mut TreeClient, history: &History) {
    for key in keys() {
        history.run(client, &key, Action::Get).unwrap();
    }
    let begin = history.now();
    let found = client.scan(everybodys()).unwrap();
    history.scanned(&keys(), &found, begin);
}

fn script(client: &mut TreeClient, history: &History, sessions: &[Sessions; 2], script: u64, key: u64) {
    let keys = keys();
    let mut run = |number: u64, action| history.run(client, &keys[number as usize], action).unwrap();
    match script {
        0 => {}
        1 => (0..24).rev().for_each(|number| run(number, Action::Delete)),
        2 => (0..24).for_each(|number| run(number, Action::Insert(word(700 + number).to_vec()))),
        // Everything above the key is deleted: the right neighbour becomes empty.
        3 => (key + 1..24).rev().for_each(|number| run(number, Action::Delete)),
        // Memory that nobody reads is used again.
        4 => {
            displace(client, history, sessions, 0).unwrap();
            displace(client, history, sessions, key).unwrap();
        }
        _ => {
            (key..24).for_each(|number| run(number, Action::Delete));
            (0..24).for_each(|number| run(number, Action::Put(word(600 + number).to_vec())));
        }
    }
    if script != 3 {
        read_all(client, history);
    }
}

/// The result of a run.
struct Run {
    /// Verbs that the client was about to do.
    verbs: u64,
    /// Inner nodes that were added.
    grown: i64,
    /// Blocks that a client lost when it died.
    lost: usize,
}

/// The blocks that are nowhere. Each block must be reachable, shared, or held by a living process, and none in two
/// places.
fn nowhere(client: &mut TreeClient, living: &[&Arc<Tree>]) -> Result<Vec<BlockName>, Error> {
    client.reclaim()?;
    let mut there: Vec<BlockName> = client.reachable()?;
    living.iter().for_each(|tree| there.extend(tree.stock()));
    there.extend(client.shared_blocks()?);
    there.sort_unstable();
    let mut all = client.all_blocks()?;
    assert!(there.is_sorted_by(|a, b| a < b), "a block is in two places");
    assert!(there.iter().all(|block| all.binary_search(block).is_ok()), "a block of no chunk");
    all.retain(|block| there.binary_search(block).is_err());
    Ok(all)
}

/// Most blocks of nodes that a client has not retired yet.
const UNREACHABLE: usize = 32;

/// Checks that a process that died lost no more than two batches of a class, what its client had not retired yet, and
/// one chunk that it had just taken.
fn check_lost(tree: &Tree, lost: &[BlockName]) -> Result<(), String> {
    let mut chunks = 0;
    for of_class in lost.chunk_by(|a, b| a.0 == b.0) {
        let (in_batch, in_chunk) = tree.class_sizes(of_class[0].0).expect("a class");
        let most = 2 * in_batch + UNREACHABLE;
        chunks += usize::from(of_class.len() > most);
        if chunks > 1 || of_class.len() > most + in_chunk {
            return Err(format!("it lost {} blocks of class {}", of_class.len(), of_class[0].0));
        }
    }
    Ok(())
}

/// One run: the client is stopped before a verb, if it has that many verbs.
fn run(
    name: &str,
    sessions: &[Sessions; 2],
    (situation, fillers): (&Situation, Fillers),
    operation: Operation,
    script_number: u64,
    cut: Option<u64>,
    revive: bool,
) -> Result<Run, String> {
    let tree = Tree::create(&sessions[0], name, small()).unwrap();
    let other = Tree::open(&sessions[1], name, small()).unwrap();
    let history = History::default();
    let (mut a, mut b) = (tree.client().unwrap(), other.client().unwrap());
    situation.prepare(&mut b, &history);
    fillers.prepare(&mut b);
    let inner_nodes = b.verify().unwrap().inner_nodes;
    // Both clients have caches.
    read_all(&mut a, &history);
    read_all(&mut b, &history);
    let b = Arc::new(Mutex::new(b));
    let verbs = Arc::new(AtomicU64::new(0));
    let (inner_b, inner_verbs, inner_history, key) = (b.clone(), verbs.clone(), history.clone(), situation.key);
    let inner_sessions = sessions.clone();
    a.set_hook(Some(Box::new(move |_| {
        let verb = inner_verbs.fetch_add(1, Ordering::SeqCst);
        if Some(verb) != cut {
            return true;
        }
        script(&mut inner_b.lock().unwrap(), &inner_history, &inner_sessions, script_number, key);
        revive
    })));
    let result = perform(&mut a, &history, sessions, operation, key);
    let verbs = verbs.load(Ordering::SeqCst);
    let mut b = b.lock().unwrap();
    if cut.is_some_and(|cut| cut >= verbs) {
        script(&mut b, &history, sessions, script_number, key);
    }
    let broken = |error: Error| format!("the tree is broken: {error}");
    match &result {
        Ok(()) | Err(Error::Stopped) => {}
        Err(error) => return Err(format!("it failed: {error}")),
    }
    let verified = b.verify().map_err(broken)?;
    let (found, grown) = (verified.keys, verified.inner_nodes as i64 - inner_nodes as i64);
    read_all(&mut b, &history);
    let there = b.count().map_err(broken)?;
    if found != there {
        return Err(format!("{found} keys are verified and {there} are found"));
    }
    // A client that lives retires what it has displaced, and hands it over; a dead one cannot.
    if result.is_ok() {
        a.set_hook(None);
    }
    drop(a);
    let living = if result.is_ok() { &[&tree, &other][..] } else { &[&other] };
    let lost = nowhere(&mut b, living).map_err(broken)?;
    if result.is_ok() && !lost.is_empty() {
        return Err(format!("blocks are lost: {lost:?}"));
    }
    // Blocks written for an incomplete load are nowhere.
    if !matches!(operation, Operation::BulkLoad | Operation::BulkLoadMany) {
        check_lost(&tree, &lost)?;
    }
    history.unexplained().map_or(Ok(Run { verbs, grown, lost: lost.len() }), Err)
}

/// Boundaries of verbs, and the most blocks that a client lost when it died at one.
type Found = (u64, usize);

/// All boundaries of an operation in a situation. Returns how many there are.
fn boundaries(prepared: (&Situation, Fillers), operation: Operation, step: Option<Step>) -> Result<Found, String> {
    // Trees are not dropped: there is memory for all runs of an operation, and none waits for
    // another's memory.
    let nodes = Nodes::start(1, 4 << 30);
    let mut sessions = [nodes.sessions(), nodes.sessions()];
    let said = |why: String| format!("{}, {operation:?}: {why}", prepared.0.name);
    let uncut = run("uncut", &sessions, prepared, operation, 0, None, true).map_err(said)?;
    let as_meant = match step {
        Some(Step::Split) => uncut.grown > 0,
        Some(Step::Merge) => uncut.grown < 0,
        None => true,
    };
    assert!(as_meant, "{}: {} inner nodes more", prepared.0.name, uncut.grown);
    let (verbs, mut lost) = (uncut.verbs, 0);
    for cut in 0..=verbs {
        // At each boundary the client dies once and is revived once; the scripts take turns.
        for (script, revive) in [(cut % SCRIPTS, false), ((cut + 3) % SCRIPTS, true)] {
            if !revive {
                // Operations that a dead client left under way end with its session.
                sessions[0] = nodes.sessions();
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run(&format!("cut-{cut}-{revive}"), &sessions, prepared, operation, script, Some(cut), revive)
            }));
            let place = format!("before verb {cut} of {verbs}, script {script}, revived {revive}");
            let run = result.unwrap_or_else(|_| Err("a panic".into()));
            lost = lost.max(run.map_err(|why| said(format!("{place}: {why}")))?.lost);
        }
    }
    Ok((verbs + 1, lost))
}

#[test]
fn a_client_is_stopped_at_every_boundary_of_verbs() {
    let (mut sum, mut most) = (0, 0);
    for situation in &SITUATIONS {
        for operation in OPERATIONS {
            let fillers = Fillers::default();
            let (found, lost) = boundaries((situation, fillers), operation, None).unwrap_or_else(|why| panic!("{why}"));
            (sum, most) = (sum + found, most.max(lost));
        }
    }
    println!("{sum} boundaries, at most {most} blocks lost by one that died");
}

#[test]
fn a_client_is_stopped_at_every_boundary_of_a_large_load() {
    let empty = (&SITUATIONS[0], Fillers::default());
    let (found, lost) =
        boundaries(empty, Operation::BulkLoadMany, Some(Step::Split)).unwrap_or_else(|why| panic!("{why}"));
    println!("{found} boundaries, at most {lost} blocks lost by one that died");
}

#[test]
fn a_client_is_stopped_at_every_boundary_where_inner_nodes_change() {
    let mut sum = 0;
    for (situation, operation, step) in &INNER {
        let fillers = Fillers::before(*step, situation);
        let (found, lost) =
            boundaries((situation, fillers), *operation, Some(*step)).unwrap_or_else(|why| panic!("{why}"));
        println!("{}: {fillers:?}, {found} boundaries, at most {lost} blocks lost", situation.name);
        sum += found;
    }
    println!("{sum} boundaries");
}
