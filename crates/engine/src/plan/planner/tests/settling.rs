//! A shard at rest settles, and nothing else suffers from it.

use super::*;
use crate::terms::options::CompactionStyle;

const AFTER: u64 = 500_000_000;
const TABLES: [Given<'static>; 2] = [(1, 1, "a", "c"), (1, 2, "x", "z")];

/// Bytes of a table, which has one record: not a large one.
const BYTES: u64 = 900;

/// Two tables of the last level without any record in a run, and memory for about this many memtables.
fn scattered(memtables: u64) -> Play {
    let mut play = Play::new(&[]);
    play.options.unclustered_percent = 100;
    play.options.settle_after = Some(Duration::from_nanos(AFTER));
    play.tables_with(&TABLES, BYTES, false);
    play.grant(memtables.div_ceil(4), 0);
    play
}

/// The same, after it has rested, with the step that it begins with.
fn settling() -> (Play, Compaction) {
    let mut play = scattered(40);
    assert!(play.compact().is_none());
    play.now += AFTER;
    let step = play.compact().unwrap();
    (play, step)
}

#[test]
fn a_shard_at_rest_settles_table_by_table() {
    let mut play = scattered(40);
    for _ in 0..2 {
        assert!(play.compact().is_none() && !play.is_quiet(), "it has not rested for long enough");
        play.now += AFTER - 1;
    }
    play.now -= AFTER - 2;
    let steps = [play.compact().unwrap(), play.compact().unwrap()];
    assert_eq!(steps.each_ref().map(ids), [[1], [2]]);
    assert!(play.compact().is_none() && !play.is_quiet());
    play.tables_with(&TABLES, BYTES, true);
    for step in steps {
        assert!(step.settles());
        play.compacted(step, None);
    }
    assert!(play.compact().is_none() && play.is_quiet());
}

#[test]
fn it_ends_when_a_memtable_is_sealed_or_flushed() {
    let events: [fn(&mut Play); 2] = [
        |play| _ = play.with(|planner, scene, ledger| planner.sealed(scene, ledger, Need::NOTHING)),
        |play| play.planner.committed(true),
    ];
    for event in events {
        let (mut play, step) = settling();
        event(&mut play);
        assert!(play.compact().is_none());
        play.compacted(step, None);
        play.now += AFTER - 1;
        assert!(play.compact().is_none(), "it rests again only now");
        play.now += AFTER;
        assert_eq!(ids(&play.compact().unwrap()), [1]);
    }
}

#[test]
fn it_waits_for_writers_and_not_for_a_trickle() {
    let written_at_rest = scattered(40).options.write_buffer_bytes as u64 / 64;
    let settles = |written: u64, looks: u64| {
        let mut play = scattered(40);
        assert!(play.compact().is_none());
        (0..looks).any(|_| {
            (play.now, play.written) = (play.now + AFTER * 4 / looks, play.written + written * 4 / looks);
            play.compact().is_some()
        })
    };
    for looks in [4, 16, 64] {
        assert!(settles(written_at_rest, looks), "{looks}");
        assert!(!settles(2 * written_at_rest, looks), "{looks}");
    }
    // Writers that come back stop it, and it begins again.
    let (mut play, step) = settling();
    play.written += 2 * written_at_rest;
    assert!(play.compact().is_none());
    play.compacted(step, None);
    play.now += AFTER - 1;
    assert!(play.compact().is_none() && !play.is_quiet());
    play.now += 1;
    assert_eq!(ids(&play.compact().unwrap()), [1]);
}

#[test]
fn a_shard_that_need_not_or_cannot_settle_is_quiet() {
    let changes: [fn(&mut Options); 5] = [
        |options| options.settle_after = None,
        |options| options.bulk_load = true,
        |options| options.compaction_style = CompactionStyle::Unclustered,
        |options| options.compaction_style = CompactionStyle::Classic,
        |options| options.storage_from_level = Some(1),
    ];
    for change in changes {
        let mut play = scattered(40);
        change(&mut play.options);
        // With levels in storage another compaction is due, which moves what is there out of memory.
        let is_due = play.options.storage_from_level.is_some();
        assert_eq!(play.is_quiet(), !is_due);
        play.now += AFTER;
        assert!(play.compact().is_none_or(|compaction| is_due && !compaction.settles()));
    }
    let mut short = scattered(8);
    assert!(short.compact().is_none() && short.is_quiet(), "there is no memory for records twice");
    short.now += AFTER;
    assert!(short.compact().is_none());
    let mut in_order = scattered(40);
    in_order.tables_with(&TABLES, BYTES, true);
    assert!(in_order.is_quiet());
}

#[test]
fn what_somebody_asks_for_goes_before() {
    let (mut play, step) = settling();
    let number = play.planner.asked_to_compact(KeyRange::default(), 0).unwrap();
    assert!(play.compact().is_none(), "the first table is busy");
    play.compacted(step, None);
    let asked = play.compact().unwrap();
    assert_eq!((ids(&asked), asked.settles()), (vec![1], false));
    assert!(play.planner.goes_on(number));
}

#[test]
fn a_step_that_finds_no_memory_is_not_tried_again_before_a_flush() {
    let (mut play, step) = settling();
    play.compacted(step, Some(ErrorKind::Full));
    play.now += AFTER;
    assert!(play.compact().is_none() && play.is_quiet());
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
    play.planner.committed(true);
    assert!(play.compact().is_none());
    play.now += AFTER;
    assert!(play.compact().is_some_and(|step| step.settles()));
}
