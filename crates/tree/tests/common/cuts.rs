//! A client is stopped, or held up, before each of its verbs, and others continue.
//!
//! For each seed a tree is prepared, and then one operation of client A is cut at each of its verbs in
//! turn: client B runs a whole script there. Either A never continues (it died), or it continues
//! afterwards (it was revived). Every event is checked against an order that explains it, and the tree
//! is verified.

use super::history::{Action, History};
use super::{small, word};
use forebay_env::Random;
use forebay_memory_client::MemoryClient;
use forebay_tree::{Error, Range, Tree, TreeClient};
use std::sync::{Arc, Mutex};

fn keys() -> Vec<Vec<u8>> {
    let short = (0..24u64).map(|number| word(number * 5).to_vec());
    short.chain((0..4).map(|number| format!("a long key, number {number}").into_bytes())).collect()
}

fn value(random: &mut Random) -> Vec<u8> {
    let number = random.below(4);
    if random.one_in(1, 6) { format!("value {number}, long").into_bytes() } else { word(number).to_vec() }
}

fn action(random: &mut Random) -> Action {
    match random.below(9) {
        0 => Action::Get,
        1 | 2 => Action::Put(value(random)),
        3 | 4 => Action::Insert(value(random)),
        5 => Action::Update(value(random)),
        6 => Action::Swap(value(random), value(random)),
        _ => Action::Delete,
    }
}

/// Runs a script of random actions.
fn script(client: &mut TreeClient, history: &History, random: &mut Random, keys: &[Vec<u8>], length: u64) {
    // A script inserts, deletes, or does anything, so that leaves grow, shrink, and change.
    let mode = random.below(4);
    for _ in 0..length {
        let key = &keys[random.below(keys.len() as u64) as usize];
        let action = match mode {
            0 => Action::Insert(value(random)),
            1 => Action::Delete,
            _ => action(random),
        };
        history.run(client, key, action).unwrap();
    }
    let begin = history.now();
    let found = client.scan(Range::all()).unwrap();
    history.scanned(keys, &found, begin);
}

/// One run: A's operation is cut at a verb. Returns whether it had that many verbs.
fn run(tree: &[Arc<Tree>; 2], seed: u64, cut: u64, revive: bool) -> Result<bool, String> {
    let mut random = Random::seeded(seed);
    let keys = keys();
    let history = History::default();
    let mut a = tree[0].client().unwrap();
    let mut b = tree[1].client().unwrap();
    let begun = random.below(60);
    script(&mut b, &history, &mut random, &keys, begun);
    // A's cache may be out of date.
    script(&mut a, &history, &mut random, &keys, 3);
    let between = random.below(30);
    script(&mut b, &history, &mut random, &keys, between);
    let key = keys[random.below(keys.len() as u64) as usize].clone();
    let action = action(&mut random);
    let is_scan = random.one_in(1, 8);
    let b = Arc::new(Mutex::new(b));
    let reached = Arc::new(Mutex::new(false));
    let (inner_b, inner_reached, inner_history, inner_keys) =
        (b.clone(), reached.clone(), history.clone(), keys.clone());
    let mut inner_random = Random::seeded(seed ^ 0xabc);
    let mut verbs = 0;
    a.set_hook(Some(Box::new(move |_| {
        verbs += 1;
        if verbs == cut + 1 {
            *inner_reached.lock().unwrap() = true;
            let length = inner_random.below(40);
            let mut b = inner_b.lock().unwrap();
            script(&mut b, &inner_history, &mut inner_random, &inner_keys, length);
            // Memory that is free is used again.
            b.reclaim().unwrap();
            b.reclaim().unwrap();
            script(&mut b, &inner_history, &mut inner_random, &inner_keys, length);
            return revive;
        }
        true
    })));
    if is_scan {
        let begin = history.now();
        let backward = random.one_in(1, 2);
        let scanned = a.scan(Range { backward, ..Range::all() }).map(|mut found| {
            if backward {
                found.reverse();
            }
            found
        });
        match scanned {
            Ok(found) => history.scanned(&keys, &found, begin),
            Err(Error::Stopped) => {}
            Err(error) => return Err(format!("a scan failed: {error}")),
        }
    } else {
        match history.run(&mut a, &key, action) {
            Ok(()) | Err(Error::Stopped) => {}
            Err(error) => return Err(format!("an operation failed: {error}")),
        }
    }
    let mut b = b.lock().unwrap();
    script(&mut b, &history, &mut random, &keys, 20);
    b.verify().map_err(|error| format!("the tree is broken: {error}"))?;
    if let Some(unexplained) = history.unexplained() {
        return Err(unexplained);
    }
    let reached = *reached.lock().unwrap();
    Ok(reached)
}

/// All cuts of a seed. Returns how many verbs were cut.
pub fn all_cuts(connect: &dyn Fn() -> Vec<Arc<MemoryClient>>, seed: u64) -> Result<u64, String> {
    let mut cuts = 0;
    let mut sessions = [connect(), connect()];
    for revive in [false, true] {
        for cut in 0.. {
            if !revive {
                // What A left behind prevents reuse of memory while its session lives.
                sessions[0] = connect();
            }
            let tree = Tree::create(&sessions[0], "cut", small()).unwrap();
            let other = Tree::open(&sessions[1], "cut", small()).unwrap();
            let trees = [tree, other];
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&trees, seed, cut, revive)));
            let [tree, _] = trees;
            tree.drop_tree().unwrap();
            // Its memory is free once both sessions have announced that they no longer read it.
            sessions.iter().for_each(|session| session[0].renew().unwrap());
            let reached = match result {
                Ok(result) => result.map_err(|what| format!("seed {seed}, cut {cut}, revive {revive}: {what}"))?,
                Err(_) => return Err(format!("seed {seed}, cut {cut}, revive {revive}: a panic")),
            };
            if !reached {
                break;
            }
            cuts += 1;
        }
    }
    Ok(cuts)
}
