//! Batches that cross shards are whole or not at all if the logs are in memory, whenever the process is killed.

use crate::common::crossed::{flushed_with_half_a_batch, killed_after_each_step, written_behind_half_a_batch};
use crate::common::{Cluster, small_options};
use forebay_engine::{Durability, Options, ShardBounds, WriteBatch, WriteOptions};

#[test]
fn a_batch_is_whole_whenever_the_process_is_killed() {
    killed_after_each_step(1);
}

#[test]
fn a_batch_is_whole_with_copies() {
    killed_after_each_step(2);
}

#[test]
fn what_follows_half_a_batch_is_not_acknowledged() {
    written_behind_half_a_batch();
}

#[test]
fn half_a_batch_does_not_reach_a_table() {
    flushed_with_half_a_batch();
}

#[test]
fn only_what_crosses_costs() {
    let node = Cluster::start(32 << 20);
    let options = Options {
        name: Some("db".to_owned()),
        shards: 2,
        shard_bounds: ShardBounds::Given(vec![b"m".to_vec()]),
        durability: Durability::Memory { copies: 1 },
        background_threads: 0,
        ..small_options()
    };
    let db = node.open(options);
    let counts = || {
        let log = db.statistics().log;
        (log.groups, log.records)
    };
    let counted = |work: &dyn Fn()| {
        let before = counts();
        work();
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    };
    let mut crossing = WriteBatch::new();
    crossing.put(b"a", b"1").put(b"z", b"1");
    let write = |batch: &WriteBatch| db.write(batch).unwrap();
    write(&crossing);
    // One shipment for each shard, and in each a mark.
    assert_eq!(counted(&|| write(&crossing)), (2, 4));
    // All is closed: a shard ships alone again.
    assert_eq!(counted(&|| db.put(b"a", b"2").unwrap()), (1, 1));
    // A write that is not to be durable has no mark, and is shipped with those that are.
    assert_eq!(
        counted(&|| db.write_with(&crossing, &WriteOptions { durability: Some(Durability::None) }).unwrap()),
        (0, 0)
    );
    assert_eq!(counted(&|| db.put(b"z", b"2").unwrap()), (1, 2));
    let mut conditional = WriteBatch::new();
    conditional.put(b"b", b"1").put(b"y", b"1").require_absent(b"b");
    assert_eq!(counted(&|| write(&conditional)), (2, 5));
    assert!(db.write(&conditional).is_err(), "it is there now");
}
