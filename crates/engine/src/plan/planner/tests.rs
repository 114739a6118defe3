//! A planner is driven by events, and its commands are asserted: no thread, no clock, no memory node.

use super::*;
use crate::plan::ledger::{Granted, Pool};
use crate::plan::picker::Work;
use crate::plan::picker::tests::version;
use forebay_table::{TableProperties, VersionEdit};

/// A planner with a tree that only counts.
struct Play {
    planner: Planner,
    ledger: Ledger,
    holder: Holder,
    options: Options,
    version: Version,
    /// Bytes of sealed memtables, newest first.
    sealed: Vec<u64>,
    /// Bytes of these that the log has.
    logged: u64,
    written: u64,
    unrecorded: u64,
    /// The tables that range deletions hide.
    hidden: Vec<u64>,
    now: u64,
}

/// What an index takes at least.
const PAGE: u64 = 4096;

/// Level, id, smallest and largest key of a table.
type Given<'a> = (u8, u64, &'a str, &'a str);

impl Play {
    fn new(tables: &[Given<'_>]) -> Self {
        let options = Options {
            write_buffer_bytes: 1000,
            target_table_bytes: 2000,
            level0_compaction_trigger: 2,
            level0_slowdown_trigger: 3,
            level0_stop_trigger: 4,
            max_immutable_memtables: 3,
            level1_bytes: 1 << 20,
            levels: 3,
            ..Options::default()
        };
        let (planner, mut ledger) = (Planner::default(), Ledger::default());
        let holder = ledger.join(&[0]);
        let mut play = Self {
            planner,
            ledger,
            holder,
            options,
            version: version(&[], 10),
            sealed: Vec::new(),
            logged: 0,
            written: 0,
            unrecorded: 0,
            hidden: Vec::new(),
            now: 0,
        };
        play.tables(tables);
        play
    }

    /// The tree has these tables from now on, each with ten bytes of records.
    fn tables(&mut self, tables: &[Given<'_>]) {
        self.tables_with(tables, 10, true);
    }

    /// The same with this many bytes of records, in runs or not.
    fn tables_with(&mut self, tables: &[Given<'_>], bytes: u64, are_runs: bool) {
        let all: Vec<_> = tables.iter().map(|&(level, id, from, to)| (level, id, from, to, bytes, are_runs)).collect();
        self.version = version(&all, bytes);
    }

    /// The node grants `pages` pages of memory, beside a reserve of `reserve` pages.
    fn grant(&mut self, pages: u64, reserve: u64) {
        let granted = Granted {
            extent_bytes: PAGE,
            extents: pages + reserve,
            withheld: 0,
            step_bytes: 0,
            reserve_bytes: reserve * PAGE,
            owed_bytes: 0,
            leased_bytes: 0,
            is_shared: true,
            outputs_bytes: 0,
            pool: Pool::default(),
        };
        self.ledger.report(self.holder, 0, &granted, self.now);
    }

    fn with<R>(&mut self, decide: impl FnOnce(&mut Planner, &Scene<'_>, &mut Ledger) -> R) -> R {
        let is_hidden = |(_, table): &(u8, Arc<TableMetadata>)| self.hidden.contains(&table.id.0);
        let levels = || (0..).zip(self.version.levels());
        let tables = || levels().flat_map(|(level, tables)| tables.iter().map(move |table| (level, Arc::clone(table))));
        let scene = Scene {
            holder: self.holder,
            logged: self.logged,
            active: 0,
            written: self.written,
            unrecorded: self.unrecorded,
            near: Near::MemoryNode,
            options: &self.options,
            version: &self.version,
            crossings: &|_| 0,
            hidden: &|| tables().filter(is_hidden).collect(),
            sealed: &self.sealed,
            now: self.now,
        };
        decide(&mut self.planner, &scene, &mut self.ledger)
    }

    /// How many memtables the next flush takes.
    fn flush(&mut self) -> Option<usize> {
        self.with(|planner, scene, _| match planner.next_flush(scene, false)? {
            Command::Flush { memtables } => Some(memtables),
            Command::Compact(_) => panic!("not asked for"),
        })
    }

    fn compact(&mut self) -> Option<Compaction> {
        self.with(|planner, scene, ledger| match planner.next_compaction(scene, ledger)? {
            Command::Compact(compaction) => Some(compaction),
            Command::Flush { .. } => panic!("not asked for"),
        })
    }

    fn compacted(&mut self, compaction: Compaction, failed: Option<ErrorKind>) {
        if failed.is_none() {
            self.planner.committed(false);
        }
        self.ledger.end(self.holder, compaction.reservation, 0);
        self.planner.compacted(compaction, failed.map(error).as_ref(), self.options.key_order);
    }

    fn is_quiet(&mut self) -> bool {
        self.with(|planner, scene, _| planner.is_quiet(scene))
    }

    fn admit(&mut self, frees: bool) -> Admission {
        self.with(|planner, scene, ledger| planner.admit(scene, ledger, Need { bytes: 1, frees }))
    }
}

fn ids(compaction: &Compaction) -> Vec<u64> {
    compaction.pick.inputs.iter().map(|(_, table)| table.id.0).collect()
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "as told")
}

#[test]
fn hidden_tables_go_first_without_memory_and_a_busy_or_failed_one_waits() {
    let mut play =
        Play::new(&[(0, 9, "a", "z"), (1, 5, "a", "f"), (1, 6, "g", "m"), (2, 2, "a", "d"), (2, 3, "m", "z")]);
    assert!(play.is_quiet());
    play.hidden = vec![2, 3, 6];
    assert!(!play.is_quiet());
    let all = play.compact().unwrap();
    assert_eq!((ids(&all), &all.pick.work, all.reservation.bytes), (vec![6, 2, 3], &Work::Drop, 0));
    assert!(play.compact().is_none(), "it is under way");
    play.compacted(all, Some(ErrorKind::Full));
    assert!(play.compact().is_none(), "it failed");
    play.planner.committed(false);
    let again = play.compact().unwrap();
    assert_eq!(ids(&again), [6, 2, 3]);
    play.tables(&[(0, 9, "a", "z"), (1, 5, "a", "f")]);
    play.compacted(again, None);
    assert!(play.compact().is_none() && play.is_quiet());
}

#[test]
fn hidden_tables_go_although_their_merge_found_no_memory_and_are_merged_if_they_cannot_go() {
    let tables = [(0, 8, "a", "m"), (0, 9, "a", "m")];
    let mut play = Play::new(&tables);
    let merge = play.compact().unwrap();
    assert_eq!(ids(&merge), [9, 8]);
    play.compacted(merge, Some(ErrorKind::Full));
    assert!(play.compact().is_none(), "it failed");
    // A snapshot is dropped: that returns no memory.
    play.hidden = vec![8];
    let first = play.compact().unwrap();
    assert_eq!((ids(&first), &first.pick.work), (vec![8], &Work::Drop));
    let mut play = Play::new(&tables);
    play.hidden = vec![8];
    let first = play.compact().unwrap();
    assert_eq!((ids(&first), &first.pick.work), (vec![8], &Work::Drop));
    play.compacted(first, Some(ErrorKind::Full));
    assert_eq!(ids(&play.compact().unwrap()), [9, 8]);
}

#[test]
fn what_storage_lacks_holds_up_flushes_once_the_log_has_too_much() {
    let mut play = Play::new(&[]);
    play.options.storage_lag_memtables = 2;
    play.sealed = vec![1000, 1000, 1000];
    let refused = |play: &mut Play| {
        let admission =
            play.with(|planner, scene, ledger| planner.admit(scene, ledger, Need { bytes: 1, frees: false }));
        matches!(admission, Admission::Refuse(_))
    };
    play.unrecorded = 4001;
    assert_eq!(play.flush(), None);
    assert!(!refused(&mut play), "storage is only slow");
    let error = Error::new(ErrorKind::Io, "the disk is full");
    play.planner.not_recorded(error, play.now);
    assert!(refused(&mut play) && play.planner.storage_failure().is_some());
    assert!(!play.planner.may_record(play.now) && play.planner.may_record(play.now + STORAGE_PAUSE));
    play.unrecorded = 4000;
    assert!(!refused(&mut play), "the log may hold more");
    assert_eq!(play.flush(), Some(2));
    play.planner.flushed(false, play.now);
    play.planner.committed(true);
    assert!(play.planner.storage_failure().is_some(), "a commit in memory says nothing of storage");
    play.planner.recorded(true);
    assert!(play.planner.storage_failure().is_none() && play.planner.may_record(play.now));
}

#[test]
fn an_error_of_storage_is_told_while_what_it_refused_is_to_be_tried_again() {
    let refused = || Error::new(ErrorKind::Corrupt, "a block is damaged");
    let mut play = Play::new(&[]);
    play.sealed = vec![900];
    play.planner.storage_failed(refused(), play.now);
    assert!(play.compact().is_none() && play.flush().is_none());
    play.now += STORAGE_PAUSE;
    assert!(play.compact().is_none());
    assert!(play.planner.storage_failure().is_some(), "the flush is to be tried again");
    // It finds no memory, so whatever storage refused is not why it waits.
    play.planner.failed(error(ErrorKind::Full), true, play.now);
    assert!(play.planner.storage_failure().is_none());

    let mut play = Play::new(&[]);
    play.planner.storage_failed(refused(), play.now);
    assert!(play.compact().is_none());
    assert!(play.planner.storage_failure().is_some(), "it is not time yet");
    play.now += STORAGE_PAUSE;
    assert!(play.compact().is_none());
    assert!(play.planner.storage_failure().is_none(), "nothing is left to be tried again");
}

/// Full storage says nothing about memory: the same is tried again soon, and not only once memory comes back.
#[test]
fn what_full_storage_refused_is_tried_again_as_it_is() {
    for storage_from_level in [None, Some(1)] {
        let mut play = Play::new(&[(0, 4, "a", "c"), (0, 3, "a", "c"), (0, 2, "a", "c"), (0, 1, "a", "c")]);
        play.options.storage_from_level = storage_from_level;
        let refused = play.compact().unwrap();
        assert_eq!(ids(&refused), [4, 3, 2, 1]);
        let full = Error::from(forebay_storage::Error::new(ErrorKind::Full, "put", "an object", "as told"));
        play.ledger.end(play.holder, refused.reservation, 0);
        play.planner.compacted(refused, Some(&full), play.options.key_order);
        play.planner.storage_failed(full, play.now);
        assert!(play.compact().is_none());
        assert!(matches!(play.admit(false), Admission::Refuse(error) if error.is_of_storage()));
        play.now += STORAGE_PAUSE;
        assert_eq!(ids(&play.compact().unwrap()), [4, 3, 2, 1]);
    }
}

#[test]
fn memtables_are_flushed_one_flush_at_a_time_as_many_as_a_table_holds() {
    let mut play = Play::new(&[]);
    assert_eq!(play.flush(), None);
    play.sealed = vec![900, 900, 900];
    assert_eq!(play.flush(), Some(2), "the two oldest");
    assert_eq!(play.flush(), None, "one flush at a time");
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::Memtables)));
    play.planner.flushed(false, play.now);
    play.planner.committed(true);
    play.sealed = vec![900];
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
    assert_eq!(play.flush(), Some(1));
}

#[test]
fn compactions_share_no_table_and_a_busy_one_is_free_again_when_it_ended() {
    let mut play = Play::new(&[(0, 4, "a", "c"), (0, 3, "b", "d"), (1, 1, "a", "c"), (1, 2, "x", "z")]);
    let first = play.compact().unwrap();
    assert_eq!(ids(&first), [4, 3, 1]);
    assert!(play.compact().is_none(), "what is due is busy");
    assert_eq!(play.planner.compactions(), 1);
    play.compacted(first, Some(ErrorKind::Unavailable));
    assert_eq!(ids(&play.compact().unwrap()), [4, 3, 1]);
}

#[test]
fn level_zero_stops_writers_until_it_was_compacted() {
    let mut play = Play::new(&[(0, 4, "a", "c"), (0, 3, "a", "c"), (0, 2, "a", "c"), (0, 1, "a", "c")]);
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::Level0Stop)));
    let compaction = play.compact().unwrap();
    play.tables(&[(1, 5, "a", "c")]);
    play.compacted(compaction, None);
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
}

#[test]
fn what_was_asked_for_goes_down_to_the_last_level_and_a_failed_step_is_taken_again() {
    let mut play = Play::new(&[(0, 9, "a", "c"), (1, 2, "x", "z")]);
    assert!(play.compact().is_none(), "nothing is due");
    let number = play.planner.asked_to_compact(KeyRange { lower: None, upper: Some(b"d") }, 0).unwrap();
    assert_eq!(play.planner.asked_to_compact(KeyRange::default(), 0), None, "one at a time");
    let step = play.compact().unwrap();
    assert_eq!(ids(&step), [9]);
    assert!(play.planner.goes_on(number) && play.compact().is_none());
    play.compacted(step, Some(ErrorKind::Full));
    play.planner.failed(error(ErrorKind::Full), false, play.now);
    play.planner.committed(true);
    let again = play.compact().unwrap();
    assert_eq!(ids(&again), [9]);
    play.tables(&[(1, 10, "a", "c"), (1, 2, "x", "z")]);
    play.compacted(again, None);
    assert!(play.compact().is_none() && !play.planner.goes_on(number));
    assert!(play.is_quiet());
}

/// A table may stay unfinished whatever is done, because a snapshot needs what has expired there.
#[test]
fn a_step_that_takes_all_the_memory_there_is_is_taken_once() {
    let mut play = Play::new(&[]);
    play.tables_with(&[(1, 1, "a", "c"), (1, 2, "x", "z")], 10, false);
    play.grant(0, 0);
    let number = play.planner.asked_to_compact(KeyRange::default(), 0).unwrap();
    let first = play.compact().unwrap();
    assert_eq!(ids(&first), [1]);
    play.tables_with(&[(1, 3, "a", "c"), (1, 2, "x", "z")], 10, false);
    play.compacted(first, None);
    let second = play.compact().unwrap();
    assert_eq!(ids(&second), [2]);
    // One that fails is taken again.
    play.compacted(second, Some(ErrorKind::Unavailable));
    let again = play.compact().unwrap();
    assert_eq!(ids(&again), [2]);
    play.tables_with(&[(1, 3, "a", "c"), (1, 4, "x", "z")], 10, false);
    play.compacted(again, None);
    assert!(play.compact().is_none() && !play.planner.goes_on(number));
}

#[test]
fn what_may_pass_is_tried_again_a_few_times_and_then_it_has_failed() {
    let mut play = Play::new(&[]);
    play.sealed = vec![900];
    for _ in 0..MAX_RETRIES {
        assert_eq!(play.flush(), Some(1));
        play.planner.flushed(false, play.now);
        play.planner.failed(error(ErrorKind::Unavailable), true, play.now);
        assert_eq!(play.flush(), None, "not at once");
        play.now += RETRY_PAUSE;
    }
    assert_eq!(play.flush(), Some(1));
    play.planner.flushed(false, play.now);
    play.planner.failed(error(ErrorKind::Unavailable), true, play.now);
    assert!(play.planner.failure.is_some() && play.flush().is_none());
    play.planner.failed(error(ErrorKind::Corrupt), false, play.now);
    assert_eq!(play.planner.failure.as_ref().map(Error::kind), Some(ErrorKind::Unavailable), "the first one stays");
}

/// Two tables of level 1 over two of level 2. Each pair takes a page for an index.
const TWO_PAIRS: [Given<'static>; 4] = [(1, 4, "a", "c"), (1, 3, "x", "z"), (2, 2, "a", "c"), (2, 1, "x", "z")];

fn two_pairs(pages: u64, reserve: u64) -> Play {
    let mut play = Play::new(&TWO_PAIRS);
    play.options.level1_bytes = 1;
    play.grant(pages, reserve);
    play
}

#[test]
fn a_compaction_begins_when_the_ledger_holds_what_it_may_write() {
    let mut play = two_pairs(1, 1);
    let first = play.compact().unwrap();
    assert!(first.reservation.bytes > PAGE && first.reservation.bytes <= 2 * PAGE, "{first:?}");
    assert!(play.compact().is_none(), "there is no memory for the other one");
    play.compacted(first, Some(ErrorKind::Unavailable));
    let first = play.compact().unwrap();
    play.tables(&[(2, 5, "a", "c"), (1, 3, "x", "z"), (2, 1, "x", "z")]);
    play.compacted(first, None);
    assert_eq!(ids(&play.compact().unwrap()), [3, 1], "what the first one had reserved is there again");
}

#[test]
fn what_found_less_than_was_reserved_is_left_alone_until_something_succeeds() {
    let mut play = two_pairs(8, 0);
    let first = play.compact().unwrap();
    let chosen = ids(&first)[0];
    play.compacted(first, Some(ErrorKind::Full));
    let second = play.compact().unwrap();
    assert_ne!(ids(&second)[0], chosen);
    play.compacted(second, Some(ErrorKind::Full));
    assert!(play.compact().is_none());
    play.planner.committed(true);
    assert!(play.compact().is_some());
}

/// A table above two of the last level.
const THREE: [Given<'static>; 3] = [(1, 3, "a", "z"), (2, 1, "a", "c"), (2, 2, "x", "z")];

/// The same, in a node whose only room is this many pages for compactions.
fn three(reserve: u64) -> Play {
    let mut play = Play::new(&[]);
    play.options.level1_bytes = 1;
    play.tables(&THREE);
    play.grant(0, reserve);
    play
}

/// The memory node refused the compaction, and here there is no memory for it.
#[test]
fn what_had_nothing_reserved_tells_nothing_of_what_there_is() {
    let mut play = three(4);
    let mut first = play.compact().unwrap();
    play.grant(0, 0);
    assert!(!play.ledger.bring_here(play.holder, &mut first.reservation));
    play.compacted(first, Some(ErrorKind::Full));
    assert!(play.compact().is_none(), "it is left alone");
    play.grant(0, 4);
    assert_eq!(ids(&play.compact().unwrap()), [3, 1, 2], "there is memory for all of it");
}

/// In a soak a compaction found no memory. From then on nothing as small was worth its while, and puts were refused
/// with a quarter of the node dead.
#[test]
fn how_little_was_found_is_forgotten_when_nothing_is_due_that_takes_so_little() {
    let mut play = three(4);
    let first = play.compact().unwrap();
    assert_eq!(ids(&first), [3, 1, 2]);
    play.compacted(first, Some(ErrorKind::Full));
    // Moving what lives in one of these segments takes a page for each table, and gives back one. Moving both gives
    // back two.
    play.version = sharing(&version(&[(2, 1, "a", "c", 800, true), (2, 2, "d", "f", 800, true)], PAGE));
    let second = play.compact().unwrap();
    let Work::Merge { vacated, .. } = &second.pick.work else { panic!("{second:?}") };
    assert_eq!(vacated.len(), 2);
}

/// The same version, in which each table of level 2 also has as much in the segments of the others.
fn sharing(version: &Version) -> Version {
    let mut edit = VersionEdit { next_table: Some(200), ..VersionEdit::default() };
    let tables = version.level(2);
    let segments: Vec<_> = tables.iter().flat_map(|table| table.properties.segments.iter().cloned()).collect();
    for table in tables {
        let mut shared = table.as_ref().clone();
        edit.removed_tables.push((2, shared.id));
        shared.id = TableId(shared.id.0 + 100);
        let live = segments.iter().map(|used| used.live_bytes).sum();
        shared.properties =
            TableProperties { segments: segments.clone(), record_bytes: live, ..table.properties.as_ref().clone() }
                .into();
        edit.added_tables.push((2, shared));
    }
    version.apply(&edit).unwrap()
}

#[test]
fn what_does_not_fit_is_tried_alone_with_all_that_there_is() {
    let mut play = two_pairs(1, 0);
    let only = play.compact().unwrap();
    assert_eq!(only.reservation.bytes, PAGE);
    assert!(play.compact().is_none());
    play.compacted(only, Some(ErrorKind::Full));
    assert!(play.compact().is_some(), "the other one");
}

#[test]
fn puts_wait_for_what_is_under_way_and_are_refused_when_nothing_is() {
    let mut play = two_pairs(0, 2);
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::MemoryFull)));
    let step = play.compact().unwrap();
    play.now += 100 * PATIENCE_NANOS;
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::MemoryFull)), "it may return something");
    play.tables(&[]);
    play.compacted(step, None);
    for _ in 0..2 {
        assert!(play.compact().is_none());
        assert!(matches!(play.admit(true), Admission::Install { is_reserve: true }), "deletions wait for nobody");
        assert!(matches!(play.admit(false), Admission::Wait(StallCause::MemoryFull)), "a reader may let go");
        play.now += PATIENCE_NANOS - 1;
    }
    play.now += 1;
    assert!(matches!(play.admit(false), Admission::Refuse(error) if error.kind() == ErrorKind::Full));
    assert!(matches!(play.admit(true), Admission::Install { is_reserve: true }));
    play.grant(2, 2);
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
}

/// On a busy machine a flush took longer than a writer's patience.
#[test]
fn puts_wait_for_a_flush_that_is_due_or_under_way() {
    let mut play = two_pairs(0, 2);
    play.tables(&[]);
    play.sealed = vec![10; play.options.max_immutable_memtables];
    assert!(play.compact().is_none());
    play.now += 100 * PATIENCE_NANOS;
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::Memtables)), "it is due");
    assert_eq!(play.flush(), Some(1));
    play.now += 100 * PATIENCE_NANOS;
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::Memtables)), "it is under way");
    play.planner.flushed(true, play.now);
    assert!(matches!(play.admit(false), Admission::Refuse(error) if error.kind() == ErrorKind::Full));
}

/// On a busy machine flushes of deletions took all that a compaction needed, and nothing was freed any more.
#[test]
fn deletions_wait_for_those_before_them_as_long_as_these_can_go_down() {
    let above = [(0, 3, "a", "c"), (1, 2, "a", "c"), (2, 1, "a", "c")];
    let mut play = Play::new(&above);
    let waits = |play: &mut Play| matches!(play.admit(true), Admission::Wait(StallCause::MemoryFull));
    let installs = |play: &mut Play| matches!(play.admit(true), Admission::Install { is_reserve: true });
    play.grant(0, 2);
    assert!(waits(&mut play), "a compaction is due");
    for _ in 0..2 {
        let step = play.compact().unwrap();
        assert!(waits(&mut play), "it is under way");
        play.compacted(step, Some(ErrorKind::Full));
    }
    assert!(play.compact().is_none());
    assert!(installs(&mut play), "it cannot go down");
    play.sealed = vec![10];
    assert!(waits(&mut play), "what was sealed is to be flushed first");
    play.now += PATIENCE_NANOS;
    assert!(waits(&mut play), "however long nothing else is to be done");
    play.planner.flushed(true, play.now);
    assert!(installs(&mut play), "it cannot be flushed");
    play.sealed.clear();
    play.grant(0, 3);
    assert!(waits(&mut play), "it may go down after all");
    for left in [&above[1..], &above[2..]] {
        let step = play.compact().unwrap();
        assert!(waits(&mut play), "it is not in the last level");
        play.tables(left);
        play.compacted(step, None);
    }
    assert!(installs(&mut play), "it has gone down");
}

/// Found by simulation seed 1800: it waited for ever.
#[test]
fn a_batch_longer_than_what_is_left_is_refused_and_shorter_ones_are_not() {
    let mut play = Play::new(&[]);
    play.options.write_buffer_bytes = PAGE as usize;
    play.grant(4, 1);
    let long = Need { bytes: 5 * PAGE, frees: false };
    let admit = |play: &mut Play| play.with(|planner, scene, ledger| planner.admit(scene, ledger, long));
    assert!(matches!(admit(&mut play), Admission::Wait(StallCause::MemoryFull)));
    assert!(play.compact().is_none());
    assert!(matches!(admit(&mut play), Admission::Wait(StallCause::MemoryFull)));
    play.now += PATIENCE_NANOS;
    assert!(matches!(admit(&mut play), Admission::Refuse(error) if error.kind() == ErrorKind::Full));
    // As the writer does when it leaves.
    play.ledger.waits_no_more(play.holder);
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
}

#[test]
fn what_the_log_has_is_not_reserved_again() {
    let mut play = Play::new(&[]);
    play.options.write_buffer_bytes = PAGE as usize;
    play.sealed = vec![8 * PAGE];
    play.grant(8, 0);
    assert!(matches!(play.admit(false), Admission::Wait(StallCause::MemoryFull)));
    play.logged = 8 * PAGE;
    assert!(matches!(play.admit(false), Admission::Install { is_reserve: false }));
}

#[test]
fn small_records_need_more_for_their_index() {
    let mut play = Play::new(&[]);
    play.options.write_buffer_bytes = PAGE as usize;
    for (index, is_admitted) in [(0, true), (500 * PAGE, false)] {
        play.with(|planner, scene, ledger| {
            let took = Took { records: 100 * PAGE, index, memory: 100 * PAGE + index };
            planner.wrote(scene.holder, ledger, took);
        });
        play.grant(4, 0);
        assert_eq!(matches!(play.admit(false), Admission::Install { .. }), is_admitted);
    }
}

mod progress;
mod settling;

#[test]
fn a_memtable_for_a_long_write_has_room_for_others_that_come_first() {
    let capacity = |bytes, usual| Need { bytes, frees: false }.capacity(usual);
    assert_eq!((capacity(0, 1000), capacity(500, 1000)), (1000, 1000));
    assert_eq!((capacity(501, 1000), capacity(4000, 1000)), (1001, 4500));
    assert_eq!(capacity(MAX_CAPACITY_BYTES - 8, 1000), MAX_CAPACITY_BYTES);
    assert_eq!(capacity(MAX_CAPACITY_BYTES + 8, 1000), MAX_CAPACITY_BYTES + 8, "a memtable for one write");
}
