//! The two ways in which the other members of a shard get what compactions make, and what each sends (Tebis 5).

use crate::common::Cluster;
use crate::common::copied::{made_wrongly, options, register};
use crate::common::model::{Model, contents, key};
use crate::common::process::Process;
use forebay_engine::{Db, Options, Replication, Statistics, Storage};
use forebay_memory_node::Options as NodeOptions;

const COPIES: usize = 2;
const KEYS: u64 = 1500;

/// Nodes that all differ in threads and memory.
fn unlike() -> Vec<Cluster> {
    let of = |threads: usize, mebibytes: usize| {
        Cluster::start_with(NodeOptions { threads, ..NodeOptions::with_memory((mebibytes as u64) << 20) })
    };
    vec![of(1, 192), of(3, 160)]
}

fn replicated(register: &Storage, replication: Replication) -> Options {
    Options {
        background_threads: 0,
        write_buffer_bytes: 4 << 20,
        target_table_bytes: 4 << 20,
        level1_bytes: 1 << 30,
        replication,
        ..options(register, COPIES)
    }
}

/// Loads records such that no table has them in key order, all of them in level 0.
fn load(db: &Db, value_bytes: u64) -> Model {
    let mut model = Model::new();
    for at in 0..KEYS {
        let number = at * 7919 % KEYS;
        let value: Vec<u8> = (0..value_bytes).map(|byte| (byte * number) as u8).collect();
        db.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    }
    db.flush().unwrap();
    model
}

/// What a full compaction counts.
struct Compacted {
    before: Statistics,
    after: Statistics,
}

impl Compacted {
    fn of(db: &Db) -> Self {
        let before = db.statistics();
        db.compact_range(None, None).unwrap();
        Self { before, after: db.statistics() }
    }

    fn count(&self, field: fn(&Statistics) -> u64) -> u64 {
        field(&self.after) - field(&self.before)
    }

    fn sent(&self) -> u64 {
        self.count(|all| all.replicated_bytes)
    }

    fn built(&self) -> u64 {
        self.count(|all| all.rebuilt_bytes)
    }

    fn made(&self) -> u64 {
        self.count(|all| all.compaction_bytes_written)
    }

    /// Bytes that the compute node read and wrote for the compaction.
    fn on_the_link(&self) -> u64 {
        self.count(|all| all.background.bytes_read + all.background.bytes_written)
    }
}

#[test]
fn members_that_build_send_each_other_nothing() {
    for replication in [Replication::SendIndex, Replication::BuildIndex, Replication::Automatic] {
        let (nodes, register) = (unlike(), register());
        let process = Process::start(&nodes);
        let db = process.open(replicated(&register, replication));
        let model = load(&db, 16 << 10);
        let compacted = Compacted::of(&db);
        let (sent, built, made) = (compacted.sent(), compacted.built(), compacted.made());
        assert_eq!(compacted.count(|all| all.refused_compactions), 0);
        assert!(made >= KEYS * (16 << 10), "{made} bytes of records that were gathered");
        match replication {
            Replication::SendIndex => {
                assert!(built == 0 && sent == made, "{sent} bytes sent of {made}");
                // Read at one member, written at the other.
                assert!(compacted.on_the_link() >= 2 * made);
            }
            // Large records: the members gather them. An index without records is cheaper to send.
            Replication::BuildIndex | Replication::Automatic => {
                let most_sent = if replication == Replication::Automatic { made / 100 } else { 0 };
                assert!(sent <= most_sent && sent + built == made, "{built} bytes built of {made}, {sent} sent");
                assert!(compacted.on_the_link() < made / 20, "{} bytes", compacted.on_the_link());
            }
        }
        assert_eq!(db.missing_copies(), 0, "all members made the same bytes");
        assert!(contents(&db) == model);
        process.kill(db);
        // The member that did not serve has everything.
        let process = Process::start(&nodes[1..]);
        assert!(contents(&process.open(replicated(&register, replication))) == model);
    }
}

#[test]
fn an_index_alone_is_sent() {
    let (nodes, register) = (unlike(), register());
    let process = Process::start(&nodes);
    let db = process.open(replicated(&register, Replication::Automatic));
    load(&db, 10);
    let compacted = Compacted::of(&db);
    assert!(compacted.built() == 0 && compacted.sent() > 0);
}

#[test]
fn what_a_member_does_not_run_is_sent() {
    let register = register();
    let idle = Cluster::start_with(NodeOptions { threads: 0, ..NodeOptions::with_memory(192 << 20) });
    let nodes = vec![Cluster::start(192 << 20), idle];
    let process = Process::start(&nodes);
    let db = process.open(replicated(&register, Replication::BuildIndex));
    let model = load(&db, 1000);
    let compacted = Compacted::of(&db);
    assert!(compacted.built() == 0 && compacted.sent() == compacted.made());
    assert_eq!(db.missing_copies(), 0);
    assert!(contents(&db) == model);
}

#[test]
fn a_member_that_makes_other_bytes_is_left_out() {
    made_wrongly();
}
