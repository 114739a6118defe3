//! Databases with several copies in memory, whose nodes and processes are lost.

use super::model::{Model, contents, write};
use super::process::Process;
use super::{Cluster, eventually, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Durability, Options, Replication, ShardBounds, Storage, StorageOptions};
use forebay_env::Random;
use forebay_memory_node::{Job, JobError, JobMemory, JobRunner};
use forebay_proto::job_kind;
use forebay_table::job::CompactionResult;
use std::sync::Arc;

pub fn register() -> Storage {
    Storage::open("memory:", StorageOptions::default()).unwrap()
}

pub fn options(register: &Storage, copies: usize) -> Options {
    Options {
        name: Some("db".to_owned()),
        durability: Durability::Memory { copies },
        register: Some(register.clone()),
        ..small_options()
    }
}

pub fn sharded(register: &Storage, copies: usize) -> Options {
    let bounds = ["00500", "01000", "01500"].map(|key| key.as_bytes().to_vec());
    Options { shards: 4, shard_bounds: ShardBounds::Given(bounds.to_vec()), ..options(register, copies) }
}

pub fn start(nodes: usize) -> Vec<Cluster> {
    (0..nodes).map(|_| Cluster::start(64 << 20)).collect()
}

/// Processes, one after the other, write, lose nodes and are killed, and find what was acknowledged. All on one thread
/// except the nodes.
pub fn torture(seed: u64) {
    let (mut nodes, register) = (start(3), register());
    let mut random = Random::seeded(seed);
    let mut model = Model::new();
    let options = || Options { background_threads: 0, ..sharded(&register, 2) };
    for round in 0..4 {
        let process = Process::start(&nodes);
        let db = process.open(options());
        assert!(contents(&db) == model, "seed {seed}, round {round}");
        // Each shard survives the loss of one node, if it is on two.
        eventually("all copies are there", || {
            db.run_background_step();
            db.missing_copies() == 0
        });
        let some = [10, 200, 700][random.below(3) as usize];
        write(&db, &mut model, &mut random, some);
        if random.one_in(1, 3) {
            db.flush().unwrap();
        }
        let lost = random.below(nodes.len() as u64) as usize;
        // The node can be lost to this process alone.
        let is_lost = random.one_in(1, 2);
        if is_lost {
            nodes.remove(lost).stop();
        } else {
            process.links[lost].close();
        }
        let some = [1, 10, 300][random.below(3) as usize];
        write(&db, &mut model, &mut random, some);
        if random.one_in(1, 2) {
            // Time for background work.
            eventually("the copies are made again", || {
                db.run_background_step();
                write(&db, &mut model, &mut random, 1);
                db.missing_copies() == 0
            });
        }
        assert!(contents(&db) == model, "seed {seed}, round {round}");
        process.kill(db);
        if is_lost {
            nodes.push(Cluster::start(64 << 20));
        }
        if random.one_in(1, 2) && !is_lost {
            // Another node that the next process does not reach.
            let other = nodes.remove(random.below(3) as usize);
            let process = Process::start(&nodes);
            match process.try_open(options()) {
                Ok(db) => {
                    assert!(contents(&db) == model, "seed {seed}, round {round}, one less");
                    process.kill(db);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
            nodes.push(other);
        }
    }
}

/// A copy that was left out is not opened.
pub fn left_out() {
    let (nodes, register) = (start(2), register());
    let mut model = Model::new();
    let process = Process::start(&nodes);
    let db = process.open(options(&register, 2));
    write(&db, &mut model, &mut Random::seeded(1), 100);
    // The first node works, but this process cannot reach it.
    process.links[0].close();
    write(&db, &mut model, &mut Random::seeded(2), 100);
    process.kill(db);
    let alone = Process::start(&nodes[..1]);
    let refused = alone.try_open(options(&register, 2)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let process = Process::start(&nodes);
    let db = process.open(options(&register, 2));
    assert!(contents(&db) == model);
}

/// A node that makes bytes of a job that differ from those of the others.
#[derive(Debug)]
struct MakesOthers(Arc<dyn JobRunner>);

impl JobRunner for MakesOthers {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let mut result = CompactionResult::decode(&self.0.run(job, memory)?).unwrap();
        if let Some(checksum) = result.checksums.first_mut() {
            *checksum ^= 1;
        }
        let mut bytes = Vec::new();
        result.encode(&mut bytes).unwrap();
        Ok(bytes)
    }
}

/// A member that makes different bytes of the same job is left out.
pub fn made_wrongly() {
    let register = register();
    let mut wrong = forebay_memory_node::Options::with_memory(64 << 20);
    let right = wrong.jobs.runner(job_kind::COMPACTION).unwrap();
    wrong.jobs = wrong.jobs.with(job_kind::COMPACTION, Arc::new(MakesOthers(right)));
    let nodes = [Cluster::start(64 << 20), Cluster::start_with(wrong)];
    let mut model = Model::new();
    let process = Process::start(&nodes);
    let built = Options { background_threads: 0, replication: Replication::BuildIndex, ..options(&register, 2) };
    let db = process.open(built);
    write(&db, &mut model, &mut Random::seeded(3), 1000);
    db.compact_range(None, None).unwrap();
    assert_eq!(db.missing_copies(), 1, "the node that made other bytes is left out");
    assert!(contents(&db) == model);
}

/// What only the log of a node held is on the node that replaced a lost one.
pub fn joined() {
    let (mut nodes, register) = (start(3), register());
    let mut model = Model::new();
    let options = || Options { background_threads: 0, write_buffer_bytes: 1 << 20, ..options(&register, 2) };
    let process = Process::start(&nodes);
    let db = process.open(options());
    write(&db, &mut model, &mut Random::seeded(7), 100);
    nodes.remove(0).stop();
    write(&db, &mut model, &mut Random::seeded(8), 1);
    eventually("another node has joined", || {
        db.run_background_step();
        db.missing_copies() == 0
    });
    process.kill(db);
    nodes.remove(0).stop();
    let process = Process::start(&nodes);
    assert!(contents(&process.open(options())) == model);
}
