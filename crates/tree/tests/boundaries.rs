//! A client is stopped before each verb of each operation, and after the last: enumerated, not sampled.
//!
//! For each situation of a leaf and each operation, the operation's verbs are counted in a run of its own.
//! Then it is stopped before each of them in turn, in a tree that was prepared in the same way, and another
//! client goes on with one of several scripts: at once, because nobody holds anything. Then the first client
//! has died, or goes on with what it was about to do. An order must explain all that was seen, the tree must
//! be whole, and what is in it is read.

mod common;

use common::history::{Action, History};
use common::{Nodes, small, word};
use forebay_memory_client::MemoryClient;
use forebay_tree::{Error, Range, Tree, TreeClient};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

type Sessions = Vec<Arc<MemoryClient>>;

/// Keys, and which of them are inserted, and then deleted, before the operation.
struct Situation {
    name: &'static str,
    inserted: std::ops::Range<u64>,
    deleted: std::ops::Range<u64>,
    /// The key that the operation is for.
    key: u64,
}

const SITUATIONS: [Situation; 8] = [
    Situation { name: "an empty tree", inserted: 0..0, deleted: 0..0, key: 3 },
    Situation { name: "a leaf with room", inserted: 0..3, deleted: 0..0, key: 1 },
    Situation { name: "a deleted key", inserted: 0..3, deleted: 1..2, key: 1 },
    Situation { name: "a leaf that grows", inserted: 0..5, deleted: 0..0, key: 5 },
    Situation { name: "a leaf that is split", inserted: 0..7, deleted: 0..0, key: 7 },
    Situation { name: "a full leaf beside others", inserted: 0..16, deleted: 0..0, key: 2 },
    Situation { name: "the last key of a leaf", inserted: 0..12, deleted: 7..12, key: 6 },
    Situation { name: "few keys", inserted: 0..16, deleted: 2..15, key: 1 },
];

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
}

const OPERATIONS: [Operation; 12] = [
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
];

/// What the other client does meanwhile.
const SCRIPTS: u64 = 5;

/// Keys that anybody uses: with gaps, so that some can be inserted between others.
fn keys() -> Vec<Vec<u8>> {
    (0..24u64).map(|number| word(number * 5).to_vec()).collect()
}

fn perform(client: &mut TreeClient, history: &History, operation: Operation, key: u64) -> Result<(), Error> {
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
            let mut found = client.scan(Range { backward, ..Range::all() })?;
            if backward {
                found.reverse();
            }
            history.scanned(&keys, &found, begin);
            return Ok(());
        }
    };
    history.run(client, bytes, one)
}

fn read_all(client: &mut TreeClient, history: &History) {
    for key in keys() {
        history.run(client, &key, Action::Get).unwrap();
    }
    let begin = history.now();
    let found = client.scan(Range::all()).unwrap();
    history.scanned(&keys(), &found, begin);
}

fn script(client: &mut TreeClient, history: &History, script: u64, key: u64) {
    let keys = keys();
    let mut run = |number: u64, action| history.run(client, &keys[number as usize], action).unwrap();
    match script {
        0 => {}
        1 => (0..24).rev().for_each(|number| run(number, Action::Delete)),
        2 => (0..24).for_each(|number| run(number, Action::Insert(word(700 + number).to_vec()))),
        // What is above the key goes: the right neighbour becomes empty.
        3 => (key + 1..24).rev().for_each(|number| run(number, Action::Delete)),
        _ => {
            (key..24).for_each(|number| run(number, Action::Delete));
            (0..24).for_each(|number| run(number, Action::Put(word(600 + number).to_vec())));
        }
    }
    if script != 3 {
        read_all(client, history);
    }
}

/// One run: the client is stopped before a verb, if it has so many. Returns how many verbs it was about to
/// do.
fn run(
    name: &str,
    [own, others]: [&Sessions; 2],
    situation: &Situation,
    operation: Operation,
    script_number: u64,
    cut: Option<u64>,
    revive: bool,
) -> Result<u64, String> {
    let tree = Tree::create(own, name, small()).unwrap();
    let other = Tree::open(others, name, small()).unwrap();
    let history = History::default();
    let (mut a, mut b) = (tree.client().unwrap(), other.client().unwrap());
    let keys = keys();
    for number in situation.inserted.clone() {
        history.run(&mut b, &keys[number as usize], Action::Insert(word(number).to_vec())).unwrap();
    }
    for number in situation.deleted.clone() {
        history.run(&mut b, &keys[number as usize], Action::Delete).unwrap();
    }
    // Both remember where things are.
    read_all(&mut a, &history);
    read_all(&mut b, &history);
    let b = Arc::new(Mutex::new(b));
    let verbs = Arc::new(AtomicU64::new(0));
    let (inner_b, inner_verbs, inner_history, key) = (b.clone(), verbs.clone(), history.clone(), situation.key);
    a.set_hook(Some(Box::new(move |_| {
        let verb = inner_verbs.fetch_add(1, Ordering::SeqCst);
        if Some(verb) != cut {
            return true;
        }
        script(&mut inner_b.lock().unwrap(), &inner_history, script_number, key);
        revive
    })));
    let result = perform(&mut a, &history, operation, key);
    let verbs = verbs.load(Ordering::SeqCst);
    let mut b = b.lock().unwrap();
    if cut.is_some_and(|cut| cut >= verbs) {
        script(&mut b, &history, script_number, key);
    }
    let broken = |error: Error| format!("the tree is broken: {error}");
    match result {
        Ok(()) | Err(Error::Stopped) => {}
        Err(error) => return Err(format!("it failed: {error}")),
    }
    let found = b.verify().map_err(broken)?.keys;
    read_all(&mut b, &history);
    let there = b.count().map_err(broken)?;
    if found != there {
        return Err(format!("{found} keys are verified and {there} are found"));
    }
    history.unexplained().map_or(Ok(verbs), Err)
}

/// All boundaries of all operations in all situations. Returns how many there are.
fn all_boundaries() -> Result<u64, String> {
    let (mut boundaries, mut expected) = (0, 0);
    for situation in &SITUATIONS {
        for operation in OPERATIONS {
            // Trees are not dropped: there is memory for all of an operation, and none waits for another's.
            let nodes = Nodes::start(1, 1 << 30);
            let mut sessions = [nodes.sessions(), nodes.sessions()];
            let said = |why: String| format!("{}, {operation:?}: {why}", situation.name);
            let verbs =
                run("uncut", [&sessions[0], &sessions[1]], situation, operation, 0, None, true).map_err(said)?;
            expected += verbs + 1;
            for cut in 0..=verbs {
                boundaries += 1;
                // At each boundary the client dies once and is revived once, the scripts taking turns.
                for (script, revive) in [(cut % SCRIPTS, false), ((cut + 3) % SCRIPTS, true)] {
                    if !revive {
                        // What a dead client left under way ends with its session.
                        sessions[0] = nodes.sessions();
                    }
                    let own = [&sessions[0], &sessions[1]];
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        run(&format!("cut-{cut}-{revive}"), own, situation, operation, script, Some(cut), revive)
                    }));
                    let place = format!("before verb {cut} of {verbs}, script {script}, revived {revive}");
                    result.unwrap_or_else(|_| Err("a panic".into())).map_err(|why| said(format!("{place}: {why}")))?;
                }
            }
        }
    }
    assert_eq!(boundaries, expected, "a boundary was left out");
    Ok(boundaries)
}

#[test]
fn a_client_is_stopped_at_every_boundary_of_verbs() {
    match all_boundaries() {
        Ok(boundaries) => println!("{boundaries} boundaries"),
        Err(why) => panic!("{why}"),
    }
}
