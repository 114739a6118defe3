//! Every single bit of a small database in the memory of a node is flipped. With two copies, all reads are right and
//! the copy is whole again; with one, what is read is right, or an error.
//!
//! Each bit of all memory in use at the node is flipped: segments, images, log and manifest. By default some hundred
//! bits are tried, spread over all; with `FOREBAY_BITS=all`, every one (`cargo xtask bit-flips`).

use crate::common::copied::{options, register};
use crate::common::model::{Model, contents, scanned};
use crate::common::process::Process;
use crate::common::{Cluster, eventually};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options, Replication, Storage, WriteBatch};
use forebay_env::thread::set_turn;

/// Bits of each node that are tried, unless all are.
const SAMPLE: usize = 200;
/// Bits after each of which the database is opened again, which takes longer.
const SAMPLE_OPENED: usize = 30;
/// Memory is in use, or not, in units of this many bytes.
const LINE_BYTES: usize = 64;

fn key(number: u64) -> Vec<u8> {
    format!("k{number:03}").into_bytes()
}

/// One shard without background work.
fn quiet(register: &Storage, copies: usize) -> Options {
    let usual = options(register, copies);
    Options { background_threads: 0, settle_after: None, replication: Replication::BuildIndex, ..usual }
}

/// Tables that compactions made at the nodes, one that a flush left in the log, and records that no table has.
fn fill(db: &Db) -> Model {
    let mut model = Model::new();
    let mut put = |number: u64, value: &[u8]| {
        db.put(&key(number), value).unwrap();
        model.insert(key(number), value.to_vec());
    };
    (0..20).for_each(|number| put(number, &[number as u8; 30]));
    db.flush().unwrap();
    (10..25).for_each(|number| put(number, b"newer"));
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    (3..8).for_each(|number| put(number, b"newest"));
    db.delete(&key(0)).unwrap();
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"logged").put(&key(30), b"logged too");
    db.write(&batch).unwrap();
    model.remove(&key(0));
    model.insert(key(1), b"logged".to_vec());
    model.insert(key(30), b"logged too".to_vec());
    model
}

/// Checks all that the database shows, however it is read, and at whichever of two copies.
fn check(db: &Db, model: &Model) {
    for turn in 0..2 {
        set_turn(turn);
        check_here(db, model);
    }
}

fn check_here(db: &Db, model: &Model) {
    assert!(contents(db) == *model, "a scan");
    let keys: Vec<_> = (0..32).map(key).collect();
    let found = db.multi_get(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_ref(), model.get(key), "a read of several keys");
        assert_eq!(db.get(key).unwrap().as_ref(), model.get(key), "a read");
    }
}

/// The memory that is in use at a node: extent, first byte, bytes.
fn used(node: &Cluster) -> Vec<(u32, usize, Vec<u8>)> {
    let mut used = Vec::new();
    for extent in 0.. {
        let bytes = node.bytes_of(extent);
        if bytes.is_empty() {
            return used;
        }
        let lines = bytes.chunks(LINE_BYTES).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0));
        used.extend(lines.map(|(at, line)| (extent, at * LINE_BYTES, line.to_vec())));
    }
    used
}

/// Bits of a node to be flipped: extent, byte, mask.
fn bits(node: &Cluster, sample: usize) -> Vec<(u32, usize, u8)> {
    let of_line = |(extent, first, line): (u32, usize, Vec<u8>)| {
        (0..line.len() * 8).map(move |bit| (extent, first + bit / 8, 1 << (bit % 8)))
    };
    let all: Vec<_> = used(node).into_iter().flat_map(of_line).collect();
    let tries_all = std::env::var("FOREBAY_BITS").is_ok_and(|value| value == "all");
    let step = if tries_all { 1 } else { (all.len() / sample).max(1) | 1 };
    all.into_iter().step_by(step).collect()
}

fn start(nodes: usize) -> Vec<Cluster> {
    (0..nodes).map(|_| Cluster::start(16 << 20)).collect()
}

#[test]
fn a_flipped_bit_of_one_of_two_copies() {
    let (nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(quiet(&register, 2));
    let model = fill(&db);
    assert!(db.verify(&mut |_| ()).unwrap().problems.is_empty());
    let at_nodes: Vec<_> = nodes.iter().map(|node| bits(node, SAMPLE)).collect();
    let (mut tried, mut found) = (0_usize, 0_usize);
    // In turn, because threads of both turns read.
    while let Some(&(extent, byte, mask)) = at_nodes[tried % 2].get(tried) {
        let node = &nodes[tried % 2];
        let before = node.bytes_of(extent)[byte];
        let damaged = db.statistics().copies.damaged;
        node.rot(extent, byte, mask);
        check(&db, &model);
        // What a read has found is repaired by now or with the next steps. What nobody reads is repaired by a check of
        // everything.
        while db.run_background_step() {}
        let by_read = db.statistics().copies.damaged - damaged;
        let report = db.mend_copies(&mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        let now = node.bytes_of(extent)[byte];
        let copies = db.statistics().copies;
        assert_eq!(copies.damaged, copies.mended);
        tried += 1;
        found += usize::from(by_read > 0);
        if now != before {
            // Nobody reads the bit, because it is of something replaced; or it is of a manifest, which continues in
            // other memory.
            let is_manifest = report.notes.iter().any(|note| note.object.starts_with("manifest"));
            assert!(copies.damaged == damaged || is_manifest, "{extent}, {byte}, {mask}");
            node.rot(extent, byte, mask);
        }
        assert_eq!(db.missing_copies(), 0, "{extent}, {byte}, {mask}");
    }
    println!("{tried} bits: reads found {found}");
    assert!(found > tried / 10, "{found} of {tried}");
    check(&db, &model);
    process.kill(db);
}

#[test]
fn a_flipped_bit_of_one_of_two_copies_is_met_by_who_opens_the_database() {
    let (nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(quiet(&register, 2));
    let model = fill(&db);
    process.kill(db);
    // What is where changes each time that the database is opened.
    let tries_all = std::env::var("FOREBAY_BITS").is_ok_and(|value| value == "all");
    let tries = if tries_all { 4000 } else { SAMPLE_OPENED };
    for number in 0..tries {
        let node = &nodes[number % 2];
        let bits = bits(node, usize::MAX);
        let (extent, byte, mask) = bits[(number * 7919 + number / 7) % bits.len()];
        node.rot(extent, byte, mask);
        let process = Process::start(&nodes);
        let db = process.open(quiet(&register, 2));
        check(&db, &model);
        while db.run_background_step() {}
        eventually("all copies are there", || {
            db.run_background_step();
            db.missing_copies() == 0
        });
        db.mend_copies(&mut |_| ()).unwrap();
        let report = db.verify(&mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{extent}, {byte}, {mask}: {:?}", report.problems);
        process.kill(db);
    }
}

/// With one copy, nothing that is missing goes unnoticed, not even the end of the log. Accepting that gives what was
/// there before.
#[test]
fn a_flipped_bit_of_the_only_copy() {
    let only = || Options { register: None, ..quiet(&register(), 1) };
    let (mut wrong, mut refused, mut right, mut accepted) = (Vec::new(), 0, 0, 0);
    let build = || {
        let nodes = start(1);
        let process = Process::start(&nodes);
        let db = process.open(only());
        let model = fill(&db);
        process.kill(db);
        (nodes, model)
    };
    let (nodes, model) = build();
    let mut before = model.clone();
    before.insert(key(1), vec![1; 30]);
    before.remove(&key(30));
    for (extent, byte, mask) in bits(&nodes[0], SAMPLE_OPENED * 4) {
        let (nodes, _) = build();
        nodes[0].rot(extent, byte, mask);
        let read = |options| {
            let process = Process::start(&nodes);
            process.try_open(options).and_then(|db| {
                let read = scanned(&db).and_then(|found| {
                    let keys = (0..32).map(key);
                    let got =
                        keys.map(|key| Ok((db.get(&key)?, key))).collect::<Result<Vec<_>, forebay_engine::Error>>()?;
                    assert!(
                        got.iter().all(|(value, key)| value.as_ref() == found.get(key)),
                        "{extent}, {byte}, {mask}"
                    );
                    Ok(found)
                });
                process.kill(db);
                read
            })
        };
        match read(only()) {
            Ok(found) if found == model => right += 1,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                refused += 1;
                let accepting = Options { accept_damaged_log: true, ..only() };
                match read(accepting) {
                    Ok(found) if found == before => accepted += 1,
                    Err(error) if error.kind() == ErrorKind::Corrupt => {}
                    other => wrong.push(format!("{extent}, {byte}, {mask}, accepting: {other:?}")),
                }
            }
            other => wrong.push(format!("{extent}, {byte}, {mask}: {other:?}")),
        }
    }
    println!("{right} right, {refused} refused, {accepted} of them for the end of the log");
    assert!(wrong.is_empty(), "{} wrong, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert!(refused > accepted && accepted > 0);
}

#[test]
fn a_scrub_mends_what_nobody_reads() {
    let (nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(Options { scrub_bytes_per_second: u64::MAX, ..quiet(&register, 2) });
    let model = fill(&db);
    let at_both: Vec<_> = nodes.iter().map(|node| bits(node, 20)).collect();
    for (node, bits) in nodes.iter().zip(&at_both) {
        bits.iter().for_each(|&(extent, byte, mask)| node.rot(extent, byte, mask));
        let scrubs = db.statistics().copies.scrubs;
        eventually("all is looked at", || {
            db.run_background_step();
            db.statistics().copies.scrubs > scrubs + 1
        });
    }
    let copies = db.statistics().copies;
    assert!(copies.damaged > 10 && copies.damaged == copies.mended && copies.scrubbed_bytes > 0, "{copies:?}");
    assert_eq!(db.missing_copies(), 0);
    check(&db, &model);
    assert_eq!(db.statistics().copies.damaged, copies.damaged);
}
