//! Flushes and compactions against a model: random writes, snapshots, deletions of keys and ranges, with records left
//! in place or gathered into runs.

use crate::store::{Store, job_of};
use forebay_base::record::pad;
use forebay_base::{ErrorKind, InternalKey, KeyOrder, Kind, MAX_VALUE_BYTES, Record, SegmentId, SequenceNumber, Tag};
use forebay_env::Random;
use forebay_table::job::{
    Clustering, CompactionJob, CompactionResult, Held, JobLimits, Residents, SizeClasses, join_results, run_compaction,
    run_compaction_with, split_compaction,
};
use forebay_table::{CachedTable, Error, MergeOperator, MergeOperators, SegmentKind, TableOptions};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

/// Writes, flushes and compacts at random, and compares every read at every snapshot after each step.
fn run(seed: u64, order: KeyOrder, clustering: Clustering) {
    let mut random = Random::seeded(seed);
    let mut store = Store::new(order);
    for _ in 0..6 {
        for _ in 0..=random.below(3) {
            store.write_memtable(&mut random, 60);
            if random.one_in(1, 2) {
                store.take_snapshot();
            }
        }
        if random.one_in(1, 3) {
            store.drop_snapshot(&mut random);
        }
        store.check(seed);
        let to_bottom = random.one_in(1, 2);
        store.longest_piece = if random.one_in(1, 3) { random.below(2_000) } else { u64::MAX };
        store.compact(clustering, to_bottom, &mut random);
        store.check(seed);
    }
    store.compact(clustering, true, &mut random);
    store.check(seed);
}

/// Tables of 200 bytes and more, and records that are longer than half of such a table.
#[test]
fn a_long_record_may_end_a_table_early() {
    run(14_460_302_854_509_068_273, KeyOrder::Bytewise, Clustering::Gather(Residents::Keep));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn compactions_keep_what_is_seen(seed: u64, reverse: bool, policy in 0usize..3) {
        let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
        let policies =
            [Clustering::None, Clustering::Gather(Residents::Keep), Clustering::Gather(Residents::Rewrite)];
        run(seed, order, policies[policy]);
    }

    /// A wrong index block with a right checksum gives an error or a wrong table, but no panic.
    #[test]
    fn any_index_block_is_merged_without_panic(
        changes in prop::collection::vec((0usize..300, any::<u8>()), 1..6),
        gather: bool,
    ) {
        let mut store = Store::filled(4, 40);
        let clustering = if gather { Clustering::Gather(Residents::Rewrite) } else { Clustering::None };
        let job = job_of(&store, clustering);
        store.change_first_block(job.inputs[0].table.image, &changes);
        if let Err(error) = run_compaction(&job, &mut store) {
            let expected = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            prop_assert!(expected.contains(&error.kind()), "{}", error);
        }
    }

    #[test]
    fn any_arguments_decode_without_panic(changes in prop::collection::vec((0usize..4_000, any::<u8>()), 1..5)) {
        let store = Store::filled(3, 20);
        let mut bytes = Vec::new();
        job_of(&store, Clustering::None).encode(&mut bytes).unwrap();
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] ^= byte;
        }
        let end = bytes.len() - 4;
        let crc = forebay_base::checksum(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        let _ = CompactionJob::decode(&bytes);
        let _ = CompactionResult::decode(&bytes);
    }
}

#[test]
fn arguments_and_results_round_trip() {
    let mut store = Store::filled(11, 50);
    let mut job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    job.lower = Some(b"a".to_vec());
    job.expire_before_ms = 77;
    let mut bytes = Vec::new();
    job.encode(&mut bytes).unwrap();
    assert_eq!(CompactionJob::decode(&bytes), Ok(job.clone()));
    let result = run_compaction(&job, &mut store).unwrap();
    let mut bytes = Vec::new();
    result.encode(&mut bytes).unwrap();
    assert_eq!(CompactionResult::decode(&bytes), Ok(result));
    for cut in 0..bytes.len() {
        assert!(CompactionResult::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// No run is longer than a sixteenth of a table or the longest piece of memory. Tables have several runs instead.
#[test]
fn where_memory_is_cut_up_runs_are_short() {
    for gather in [false, true] {
        let mut store = Store::filled(5, 4_000);
        let mut job = job_of(&store, if gather { Clustering::Gather(Residents::Rewrite) } else { Clustering::None });
        job.limits.table_bytes = 100_000;
        job.vacated = job.segments.keys().copied().collect();
        store.longest_piece = 80_000;
        let result = run_compaction(&job, &mut store).unwrap();
        let mut records = 0;
        for table in &result.tables {
            let runs = &table.properties.segments;
            assert_eq!(runs.len() == 1, table.properties.record_bytes <= 20_000, "{runs:?}");
            for run in runs {
                assert!(run.is_run && run.first_unit == 0 && run.gap_bytes() == 0, "{run:?}");
                assert!(run.live_bytes <= 20_000, "{}", run.live_bytes);
                assert_eq!(store.bytes(run.id).len() as u64, run.live_bytes);
                records += run.entries;
            }
            let cached = CachedTable::parse(&table.tail).unwrap();
            assert_eq!(*cached.properties(), table.properties);
        }
        assert_eq!(records, result.counters.entries_out);
    }
}

#[test]
fn a_clustered_table_is_one_run_in_key_order() {
    let mut store = Store::filled(5, 400);
    let mut job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    job.limits.table_bytes = 2_000;
    job.limits.read_bytes = 700;
    let result = run_compaction(&job, &mut store).unwrap();
    assert!(result.tables.len() > 2, "{}", result.tables.len());
    let order = KeyOrder::Bytewise;
    for pair in result.tables.windows(2) {
        let (left, right) = (&pair[0].properties.largest.user_key, &pair[1].properties.smallest.user_key);
        assert_eq!(order.compare(left, right), Ordering::Less);
    }
    let mut written = 0;
    for table in &result.tables {
        let [run] = table.properties.segments.as_slice() else { panic!("{:?}", table.properties.segments) };
        assert!(run.is_run && run.first_unit == 0 && run.gap_bytes() == 0);
        assert!(run.live_bytes <= 2_000 + 200, "{}", run.live_bytes);
        let bytes = store.bytes(run.id);
        assert_eq!(bytes.len() as u64, run.live_bytes);
        // The run alone, walked from its start, consists of the table's records in order.
        let (mut at, mut last) = (0, None::<(Vec<u8>, Tag)>);
        while at < bytes.len() {
            let header = forebay_base::RecordHeader::decode(&bytes[at..]).unwrap();
            let record = forebay_base::Record::decode(&bytes[at..]).unwrap();
            if let Some((key, tag)) = &last {
                let before = InternalKey { user_key: key, tag: *tag };
                let this = InternalKey { user_key: record.key, tag: record.tag };
                assert_eq!(order.compare_internal(before, this), Ordering::Less);
            }
            last = Some((record.key.to_vec(), record.tag));
            at += header.padded_length();
        }
        let cached = CachedTable::parse(&table.tail).unwrap();
        assert_eq!(*cached.properties(), table.properties);
        written += run.live_bytes + table.image.length;
    }
    assert_eq!(result.counters.bytes_written, written);
    let moved: u64 = result.dead.iter().map(|dead| dead.moved_bytes).sum();
    assert_eq!(moved, result.tables.iter().map(|table| table.properties.record_bytes).sum::<u64>());
    let lengths: u64 = result.segments.iter().map(|(_, info)| info.length).sum();
    assert_eq!(lengths, written, "segments are allocated in their exact size");
    // Dropped and moved bytes together are all bytes of the inputs.
    let dead: u64 = result.dead.iter().map(|dead| dead.dropped_bytes + dead.moved_bytes).sum();
    let live: u64 = job.inputs.iter().map(|input| input.table.properties.record_bytes).sum();
    assert_eq!(dead, live);
    assert_eq!(result.counters.entries_in, job.inputs.iter().map(|i| i.table.properties.entries()).sum::<u64>());
}

#[test]
fn an_unclustered_compaction_reads_no_record() {
    let mut store = Store::filled(6, 300);
    let job = job_of(&store, Clustering::None);
    let result = run_compaction(&job, &mut store).unwrap();
    let images: u64 = job.inputs.iter().map(|input| input.table.image.length).sum();
    assert_eq!(result.counters.bytes_read, images);
    assert_eq!(result.counters.gathers, 0);
    assert!(result.segments.iter().all(|(_, info)| info.kind == SegmentKind::TableImage));
}

#[test]
fn images_are_read_in_pieces() {
    let mut store = Store::filled(6, 300);
    let mut job = job_of(&store, Clustering::None);
    let blocks: Vec<_> = job.inputs.iter().map(|input| input.table.image.tail_offset as usize).collect();
    for read_bytes in [700, 1 << 20] {
        job.limits.read_bytes = read_bytes as u32;
        store.reads.clear();
        run_compaction(&job, &mut store).unwrap();
        // One read for each tail. Blocks have about 300 bytes, so each piece is more than half full.
        let most: usize = job.inputs.len() + blocks.iter().map(|bytes| bytes.div_ceil(read_bytes / 2)).sum::<usize>();
        let least: usize = job.inputs.len() + blocks.iter().map(|bytes| bytes.div_ceil(read_bytes)).sum::<usize>();
        assert!((least..=most).contains(&store.reads.len()), "{least} {most} {:?}", store.reads);
    }
}

/// A sound record that is not the one named by the index is rejected.
#[test]
fn a_record_in_the_place_of_another_is_found() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.put(b"a", b"first");
    store.put(b"b", b"other");
    store.flush();
    let job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    let block = job.inputs[0].table.properties.segments[0].id;
    store.swap_records(block, 24);
    let error = run_compaction(&job, &mut store).unwrap_err();
    assert!(matches!(error, Error::BadRecord { .. }), "{error}");
}

#[test]
fn records_that_follow_each_other_are_read_at_once() {
    let mut store = Store::filled(7, 200);
    let mut job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    let first = run_compaction(&job, &mut store).unwrap();
    store.install(&job, &first, 1);
    job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    assert_eq!(job.inputs.len(), 1);
    store.reads_gathered = 0;
    let second = run_compaction(&job, &mut store).unwrap();
    assert_eq!((second.counters.gathers, store.reads_gathered), (1, 1));
    assert_eq!(second.counters.entries_out, second.counters.entries_in);
}

#[test]
fn parts_of_a_range_together_are_the_whole() {
    let mut store = Store::filled(8, 300);
    let job = job_of(&store, Clustering::None);
    let whole = run_compaction(&job, &mut store).unwrap();
    let middle = b"key0020".to_vec();
    let left = CompactionJob { upper: Some(middle.clone()), ..job.clone() };
    let right = CompactionJob { lower: Some(middle), ..job };
    let entries = |result: &CompactionResult| result.tables.iter().map(|table| table.properties.entries()).sum::<u64>();
    let (left, right) = (run_compaction(&left, &mut store).unwrap(), run_compaction(&right, &mut store).unwrap());
    assert!(entries(&left) > 0 && entries(&right) > 0);
    assert_eq!(entries(&left) + entries(&right), entries(&whole));
    assert_eq!(left.counters.entries_in + right.counters.entries_in, whole.counters.entries_in);
}

#[test]
fn a_job_is_cut_into_parts_that_together_are_the_whole() {
    let mut store = Store::filled(13, 300);
    let mut job = job_of(&store, Clustering::None);
    let parts = |job: &CompactionJob, store: &mut Store| {
        split_compaction(job, store, 4).unwrap().iter().map(|part| part.of(job)).collect::<Vec<_>>()
    };
    assert_eq!(parts(&job, &mut store), [job.clone()], "too small to be cut");
    let large = vec![7; 100 << 10];
    for i in 0..400u64 {
        store.put(format!("key{:04}", i * 7 % 400).as_bytes(), &large);
    }
    store.flush();
    job = job_of(&store, Clustering::None);
    let upper = CompactionJob { output_level: 0, is_bottommost: false, ..job.clone() };
    assert_eq!(parts(&upper, &mut store), std::slice::from_ref(&upper), "one table");
    let parts = parts(&job, &mut store);
    assert_eq!(parts.len(), 4);
    assert!(parts.windows(2).all(|pair| pair[0].upper.is_some() && pair[0].upper == pair[1].lower));
    assert!(parts[0].lower.is_none() && parts[3].upper.is_none());
    let whole = run_compaction(&job, &mut store).unwrap();
    let made: Vec<_> = parts.iter().map(|part| run_compaction(part, &mut store).unwrap()).collect();
    assert!(made.iter().all(|part| part.counters.entries_in > 0));
    let made = join_results(made).unwrap();
    assert_eq!(made.counters.entries_in, whole.counters.entries_in);
    assert_eq!(made.counters.entries_out, whole.counters.entries_out);
    assert_eq!(made.dead, whole.dead);
}

/// The segments of a store's tables, with the number of their records after a compaction.
fn uses(result: &CompactionResult) -> Vec<(SegmentId, bool, u64)> {
    let segments = result.tables.iter().flat_map(|table| &table.properties.segments);
    segments.map(|used| (used.id, used.is_run, used.entries)).collect()
}

#[test]
fn records_are_treated_by_their_size() {
    let mut store = Store::new(KeyOrder::Bytewise);
    for (i, bytes) in [10, 40, 70, 10, 40, 70].into_iter().enumerate() {
        store.put(format!("key{i}").as_bytes(), &vec![1; bytes]);
    }
    store.flush();
    let mut job = job_of(&store, Clustering::None);
    let block = job.inputs[0].table.properties.segments[0].id;
    job.size_classes = SizeClasses { medium_from_bytes: 30, large_from_bytes: 60 };
    let counts = |job: &CompactionJob, store: &mut Store| {
        let uses = uses(&run_compaction(job, store).unwrap());
        let stayed: u64 = uses.iter().filter(|(id, ..)| *id == block).map(|(.., entries)| entries).sum();
        (stayed, uses.iter().filter(|(_, is_run, _)| *is_run).map(|(.., entries)| entries).sum())
    };
    assert_eq!(counts(&job, &mut store), (4, 2));
    job.clustering = Clustering::Gather(Residents::Keep);
    assert_eq!(counts(&job, &mut store), (2, 4));
    job.vacated.insert(block);
    assert_eq!(counts(&job, &mut store), (0, 6));
    job.vacated.clear();
    job.clustering = Clustering::Gather(Residents::Rewrite);
    assert_eq!(counts(&job, &mut store), (0, 6));
}

#[test]
fn residents_stay_until_their_run_is_vacated() {
    let mut store = Store::filled(14, 200);
    let job = job_of(&store, Clustering::Gather(Residents::Keep));
    let first = run_compaction(&job, &mut store).unwrap();
    store.install(&job, &first, 1);
    let run = uses(&first)[0].0;
    store.put(b"key0000", b"new");
    store.flush();
    let mut job = job_of(&store, Clustering::Gather(Residents::Keep));
    let kept = run_compaction(&job, &mut store).unwrap();
    assert_eq!(uses(&kept).len(), 2, "{:?}", uses(&kept));
    assert!(uses(&kept).iter().any(|(id, _, entries)| *id != run && *entries == 1));
    job.vacated.insert(run);
    let vacated = run_compaction(&job, &mut store).unwrap();
    assert!(matches!(uses(&vacated)[..], [(id, true, _)] if id != run), "{:?}", uses(&vacated));
}

#[test]
fn a_resident_that_has_grown_keeps_its_last_entry() {
    let mut store = Store::filled(14, 200);
    let job = job_of(&store, Clustering::None);
    let first = run_compaction(&job, &mut store).unwrap();
    let [resident] = first.tables.as_slice() else { panic!("{} tables", first.tables.len()) };
    store.install(&job, &first, 1);
    store.put(b"key0000", b"new");
    store.flush();
    let mut job = job_of(&store, Clustering::None);
    job.limits.table_bytes = resident.properties.record_bytes * 9 / 10;
    let grown = run_compaction(&job, &mut store).unwrap();
    let entries: Vec<_> = grown.tables.iter().map(|table| table.properties.entries()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
}

/// Tables of level 0 are in order of their numbers, so a merge within it must not give two tables with the same
/// numbers.
#[test]
fn what_is_merged_within_level_0_stays_one_table() {
    let mut store = Store::filled(15, 200);
    let mut job = job_of(&store, Clustering::Gather(Residents::Keep));
    (job.limits.table_bytes, job.is_bottommost) = (100, false);
    store.longest_piece = 500;
    assert!(run_compaction(&job, &mut store).unwrap().tables.len() > 1);
    job.output_level = 0;
    let merged = run_compaction(&job, &mut store).unwrap();
    assert_eq!(merged.tables.len(), 1);
    store.install(&job, &merged, 0);
    store.check(15);
}

#[test]
fn a_deletion_that_hides_something_stays() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.put(b"k", b"old");
    store.take_snapshot();
    store.delete(b"k");
    store.flush();
    let job = job_of(&store, Clustering::None);
    let kept = run_compaction(&job, &mut store).unwrap();
    assert_eq!((kept.tables[0].properties.puts, kept.tables[0].properties.deletions), (1, 1));
    let gone = run_compaction(&CompactionJob { snapshots: vec![], ..job.clone() }, &mut store).unwrap();
    assert!(gone.tables.is_empty() && gone.segments.is_empty());
    assert_eq!(gone.dead[0].dropped_bytes, 24 + 16);
    let upper = CompactionJob { snapshots: vec![], is_bottommost: false, ..job };
    let upper = run_compaction(&upper, &mut store).unwrap();
    assert_eq!((upper.tables[0].properties.puts, upper.tables[0].properties.deletions), (0, 1));
}

/// The owner of the job, or one before it, is of a build that does not know the number of shadowed entries.
#[test]
fn a_table_is_merged_whose_owner_does_not_know_of_shadowed_entries() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.put(b"k", b"old");
    store.take_snapshot();
    store.put(b"k", b"new");
    store.flush();
    let mut job = job_of(&store, Clustering::None);
    let properties = Arc::make_mut(&mut job.inputs[0].table.properties);
    assert_eq!(std::mem::take(&mut properties.shadowed), 1);
    let made = run_compaction(&job, &mut store).unwrap();
    assert_eq!(made.tables[0].properties.shadowed, 1);
    Arc::make_mut(&mut job.inputs[0].table.properties).puts += 1;
    assert!(matches!(run_compaction(&job, &mut store), Err(Error::Inconsistent { .. })));
}

#[test]
fn operands_become_one_record() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.put(b"a", b"base");
    for _ in 0..100 {
        store.write(b"a", Kind::Merge, b"+1", None);
        store.write(b"b", Kind::Merge, b"+2", None);
    }
    store.flush();
    let job = CompactionJob { merge_operator: "append".to_owned(), ..job_of(&store, Clustering::None) };
    for is_bottommost in [true, false] {
        let job = CompactionJob { is_bottommost, ..job.clone() };
        let made = run_compaction(&job, &mut store).unwrap();
        let properties = &made.tables[0].properties;
        let (puts, merges) = if is_bottommost { (2, 0) } else { (1, 1) };
        assert_eq!((properties.puts, properties.merges, properties.segments.len()), (puts, merges, 1));
        let run = store.bytes(properties.segments[0].id);
        let (first, header) = Record::decode_unverified(run).unwrap();
        assert_eq!(first.value, [b"base", &b"+1".repeat(100)[..]].concat());
        assert_eq!(Record::decode(&run[header.padded_length()..]).unwrap().value, b"+2".repeat(100));
    }
    let kind = |name: &str, store: &mut Store| {
        let job = CompactionJob { merge_operator: name.to_owned(), ..job.clone() };
        run_compaction(&job, store).unwrap_err().kind()
    };
    assert_eq!(kind("test.unknown", &mut store), ErrorKind::Unsupported);
    assert_eq!(kind("", &mut store), ErrorKind::Corrupt);
}

/// Values of the records of a result, in the order of its table.
fn made_values(store: &Store, made: &CompactionResult) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    for segment in &made.tables[0].properties.segments {
        let mut rest = store.bytes(segment.id);
        while !rest.is_empty() {
            let record = Record::decode(rest).unwrap();
            values.push(record.value.to_vec());
            rest = &rest[pad(record.length())..];
        }
    }
    values
}

#[test]
fn a_long_chain_is_merged_in_parts() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.put(b"a", b"base");
    let operands: Vec<_> = (0..100).map(|number| format!("{number:03}").into_bytes()).collect();
    operands.iter().for_each(|operand| store.write(b"a", Kind::Merge, operand, None));
    store.flush();
    let whole = [b"base".to_vec(), operands.concat()].concat();
    let limits = JobLimits { read_bytes: 20, ..JobLimits::default() };
    let mut parts = Vec::new();
    while parts.last() != Some(&1) {
        let job = CompactionJob { merge_operator: "append".to_owned(), limits, ..job_of(&store, Clustering::None) };
        let made = run_compaction(&job, &mut store).unwrap();
        let values = made_values(&store, &made);
        assert_eq!(values.iter().rev().flatten().copied().collect::<Vec<_>>(), whole);
        let properties = &made.tables[0].properties;
        assert_eq!((properties.puts, properties.merges), (1, values.len() as u64 - 1));
        parts.push(values.len());
        store.install(&job, &made, 1);
        assert!(parts.is_sorted_by(|more, fewer| more > fewer), "{parts:?}");
    }
    assert!(store.most_gathered <= 20 * 16, "{}", store.most_gathered);
}

/// Makes an operand that is [`Swell::BYTES`] longer than two together, and counts how often.
#[derive(Debug, Default)]
struct Swell(AtomicUsize);

impl Swell {
    const BYTES: usize = 8 << 20;
}

impl MergeOperator for Swell {
    fn full(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.iter().try_fold(value.unwrap_or_default().to_vec(), |older, newer| self.partial(key, &older, newer))
    }

    fn partial(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.0.fetch_add(1, Atomic::Relaxed);
        Some(vec![0; older.len() + Self::BYTES + newer.len()])
    }
}

#[test]
fn operands_that_are_too_long_together_stay() {
    let swell = Arc::new(Swell::default());
    let mut operators = MergeOperators::default();
    operators.register("test.swell", Arc::clone(&swell) as Arc<dyn MergeOperator>).unwrap();
    for (operands, left, merges) in [(7, 1, 6), (100, 100, MAX_VALUE_BYTES / Swell::BYTES + 1)] {
        let mut store = Store::new(KeyOrder::Bytewise);
        (0..operands).for_each(|_| store.write(b"a", Kind::Merge, b"", None));
        store.flush();
        let limits = JobLimits { table_bytes: u64::MAX, ..JobLimits::default() };
        let job = job_of(&store, Clustering::None);
        let job = CompactionJob { merge_operator: "test.swell".to_owned(), limits, is_bottommost: false, ..job };
        let made = run_compaction_with(&job, &operators, &mut store).unwrap();
        assert_eq!(made.tables[0].properties.merges, left);
        assert_eq!(swell.0.swap(0, Atomic::Relaxed), merges, "of {operands} operands");
    }
}

#[test]
fn records_that_are_made_are_written_from_time_to_time() {
    let mut store = Store::new(KeyOrder::Bytewise);
    for _ in 0..2 {
        (0..20).for_each(|key| store.write(&[key], Kind::Merge, &[key; 100], None));
    }
    store.flush();
    let limits = JobLimits { read_bytes: 80, ..JobLimits::default() };
    let job = CompactionJob { merge_operator: "append".to_owned(), limits, ..job_of(&store, Clustering::None) };
    let made = run_compaction(&job, &mut store).unwrap();
    let lengths = made.segments.iter().filter(|(_, info)| info.kind == SegmentKind::Run).map(|(_, info)| info.length);
    assert_eq!(lengths.collect::<Vec<_>>(), [6 * 216, 6 * 216, 6 * 216, 2 * 216]);
    assert_eq!(made_values(&store, &made), (0..20).map(|key| vec![key; 200]).collect::<Vec<_>>());
}

#[test]
fn expired_records_go_where_deletions_go() {
    let mut store = Store::new(KeyOrder::Bytewise);
    store.write(b"a", Kind::Put, b"x", Some(100));
    store.write(b"b", Kind::Put, b"x", Some(200));
    store.flush();
    let mut job = job_of(&store, Clustering::None);
    let all = run_compaction(&job, &mut store).unwrap();
    assert_eq!((all.tables[0].properties.entries(), all.tables[0].properties.oldest_expiry_ms), (2, Some(100)));
    job.expire_before_ms = 150;
    let one = run_compaction(&job, &mut store).unwrap();
    assert_eq!((one.tables[0].properties.entries(), one.tables[0].properties.oldest_expiry_ms), (1, Some(200)));
}

#[test]
fn a_job_keeps_to_its_budget_and_stops_when_asked() {
    let mut store = Store::filled(9, 100);
    let mut job = job_of(&store, Clustering::None);
    job.limits.output_bytes = 100;
    let error = run_compaction(&job, &mut store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    job.limits.output_bytes = u64::MAX;
    store.cancelled = true;
    assert_eq!(run_compaction(&job, &mut store).unwrap_err(), Error::Cancelled);
}

/// If any byte of the inputs is wrong, the job either reports it or makes the same output.
#[test]
fn damaged_inputs_are_found() {
    let mut store = Store::filled(10, 30);
    let job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    let good = run_compaction(&job, &mut store).unwrap();
    let run = |result: &CompactionResult, store: &Store| {
        result.segments.iter().map(|(id, _)| store.bytes(*id).to_vec()).collect::<Vec<_>>()
    };
    let expected = run(&good, &store);
    let inputs: Vec<SegmentId> = job.segments.keys().copied().collect();
    let mut found = 0;
    for id in inputs {
        for at in 0..store.bytes(id).len() {
            store.flip(id, at);
            match run_compaction(&job, &mut store) {
                Ok(result) => {
                    // Padding, and records that are dropped without being read.
                    assert_eq!(result.tables.len(), good.tables.len(), "{id} byte {at}");
                    assert_eq!(run(&result, &store)[0], expected[0], "{id} byte {at}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{id} byte {at}: {error}");
                    found += 1;
                }
            }
            store.flip(id, at);
        }
    }
    assert!(found > 1_000, "{found}");
}

#[test]
fn wrong_arguments_are_refused() {
    let mut store = Store::filled(12, 20);
    let job = job_of(&store, Clustering::None);
    let descending = vec![SequenceNumber(2), SequenceNumber(1)];
    let mut no_segment = job.clone();
    no_segment.segments.pop_first();
    let mut no_read = job.clone();
    no_read.limits.read_bytes = 0;
    let cases = [
        CompactionJob { inputs: vec![], ..job.clone() },
        CompactionJob { snapshots: descending, ..job.clone() },
        CompactionJob { lower: Some(b"b".to_vec()), upper: Some(b"a".to_vec()), ..job },
        no_segment,
        no_read,
    ];
    for case in cases {
        assert_eq!(run_compaction(&case, &mut store).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// A store of tables that overlap, with `entries` records of `value_bytes` bytes, and a job over all of them.
fn overlapping(entries: u64, value_bytes: usize) -> (Store, CompactionJob) {
    let mut store = Store::new(KeyOrder::Bytewise);
    let value = vec![7; value_bytes];
    for table in 0..4 {
        (table..entries).step_by(4).for_each(|key| store.write(&key.to_be_bytes(), Kind::Put, &value, None));
        store.flush();
    }
    let job = job_of(&store, Clustering::Gather(Residents::Rewrite));
    (store, CompactionJob { options: TableOptions::default(), ..job })
}

/// Entries of each table of a result.
fn entries_of(made: &CompactionResult) -> Vec<u64> {
    made.tables.iter().map(|table| table.properties.entries()).collect()
}

/// A table of 64 MiB is one if its records have 400 bytes. If they are tiny, the table ends where building it takes as much as
/// it may, whatever the job's owner wants. In both cases it is one run.
#[test]
fn what_building_a_table_takes_is_bounded() {
    let (mut store, job) = overlapping(160_000, 376);
    let made = run_compaction(&job, &mut store).unwrap();
    assert_eq!(entries_of(&made), [160_000]);
    assert!(store.most_held.bytes() < 20 << 20, "{:?}", store.most_held);

    let (mut store, mut job) = overlapping(1_000_000, 8);
    (job.limits.table_bytes, job.limits.table_entries) = (u64::MAX, u64::MAX);
    let made = run_compaction(&job, &mut store).unwrap();
    let entries = entries_of(&made);
    assert_eq!((entries.len(), entries.iter().sum()), (5, 1_000_000), "{entries:?}");
    // The last one may be short.
    assert!(entries[..4].iter().all(|entries| (200_000..220_000).contains(entries)), "{entries:?}");
    assert!(store.most_held.working_bytes < 24 << 20, "{:?}", store.most_held);
    assert!(made.tables.iter().all(|table| table.properties.segments.len() == 1));
}

/// Residents end where they ended before, also where their index determines the end.
#[test]
fn tables_of_tiny_records_keep_their_bounds() {
    let (mut store, job) = overlapping(600_000, 8);
    let first = run_compaction(&job, &mut store).unwrap();
    let before = entries_of(&first);
    assert_eq!(before.len(), 3, "{before:?}");
    store.install(&job, &first, 1);
    (0..1000u64).for_each(|key| store.put(&(key * 600).to_be_bytes(), b"new"));
    store.flush();
    let job = CompactionJob { options: job.options, ..job_of(&store, Clustering::None) };
    let again = run_compaction(&job, &mut store).unwrap();
    assert_eq!(entries_of(&again), before);
}

/// Where keys are long and values are short, an index is as long as its records. It still fits into an extent, of which a
/// table should take half.
#[test]
fn an_index_of_long_keys_is_shorter_than_an_extent() {
    const TABLE_BYTES: u64 = 256 << 10;
    let mut store = Store::new(KeyOrder::Bytewise);
    let mut job_over = |first: usize| {
        let key = |number| format!("{number:08}{}", "z".repeat(200)).into_bytes();
        (first..8000).step_by(2).for_each(|number| store.write(&key(number), Kind::Put, b"", None));
        store.flush();
        let mut job = job_of(&store, Clustering::Gather(Residents::Rewrite));
        (job.limits.table_bytes, job.options) = (TABLE_BYTES, TableOptions::default());
        let made = run_compaction(&job, &mut store).unwrap();
        store.install(&job, &made, 1);
        made
    };
    // The second time, each resident gets twice the entries that it had.
    for (first, entries) in [(0, 4000), (1, 8000)] {
        let made = job_over(first);
        assert_eq!(entries_of(&made).iter().sum::<u64>(), entries);
        let longest =
            |kind| made.segments.iter().filter(|(_, info)| info.kind == kind).map(|(_, info)| info.length).max();
        assert!(longest(SegmentKind::TableImage).unwrap() <= TABLE_BYTES / 2 * 3);
        assert!(longest(SegmentKind::Run).unwrap() <= TABLE_BYTES * 2);
    }
}

/// A job tells its runner before it holds anything that no limit bounds.
#[test]
fn a_runner_refuses_what_is_too_much_for_it() {
    let refused = |store: &mut Store, job: &CompactionJob, most: u64| {
        (store.may_hold, store.most_held) = (most, Held::default());
        let error = run_compaction(job, store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        // It would have held at most a step more.
        assert!(store.most_held.bytes() < most + (2 << 20), "{:?}", store.most_held);
    };
    // Versions of a key that some snapshot sees are all in one table. So is everything merged within level 0.
    let mut store = Store::new(KeyOrder::Bytewise);
    for _ in 0..200_000 {
        store.write(b"key", Kind::Put, b"value", None);
        store.take_snapshot();
    }
    store.flush();
    let job = job_of(&store, Clustering::None);
    refused(&mut store, &job, 4 << 20);
    let (mut store, job) = overlapping(200_000, 8);
    let level0 = CompactionJob { output_level: 0, is_bottommost: false, ..job.clone() };
    refused(&mut store, &level0, 8 << 20);
    // A table is named again and again: no part of it is read more often than there is room for it.
    let mut many = job;
    many.inputs = vec![many.inputs[0].clone(); 1000];
    refused(&mut store, &many, 8 << 20);
    // Results also add up, except tails, which the runner may leave out.
    let mut tables = CompactionJob { inputs: many.inputs[..1].to_vec(), ..many };
    tables.limits.table_entries = 10;
    refused(&mut store, &tables, 2 << 20);
    (store.may_hold, store.tail_bytes) = (u64::MAX, 10_000);
    let made = run_compaction(&tables, &mut store).unwrap();
    assert_eq!(made.tables.len(), 5000);
    let tails: Vec<_> = made.tables.iter().map(|table| table.tail.len()).filter(|length| *length > 0).collect();
    assert!(tails.len() > 10 && tails.iter().sum::<usize>() <= 10_000, "{tails:?}");
}

/// Records as the input of a job: damaged or cut-off records give an error that says where, and no table.
#[test]
fn damaged_records_are_not_flushed() {
    let mut store = Store::new(KeyOrder::Bytewise);
    let (block, job) = store.records_to_flush(20);
    let whole = run_compaction(&job, &mut store).unwrap();
    assert_eq!((whole.tables.len(), whole.counters.entries_in), (1, 20));
    let is_damaged = |made| matches!(made, Err(Error::BadRecord { .. } | Error::Inconsistent { .. }));
    for offset in 0..job.stretches[0].length {
        store.flip(block, offset as usize);
        assert!(is_damaged(run_compaction(&job, &mut store)), "a flip at {offset}");
        store.flip(block, offset as usize);
    }
    let mut cut = job.clone();
    cut.stretches[0].length -= 8;
    assert!(is_damaged(run_compaction(&cut, &mut store)));
    let mut outside = job.clone();
    outside.stretches[0].offset = 8;
    let neither = CompactionJob { stretches: Vec::new(), ..job.clone() };
    let deeper = CompactionJob { output_level: 1, ..job.clone() };
    for wrong in [outside, neither, deeper] {
        assert!(matches!(run_compaction(&wrong, &mut store), Err(Error::Invalid(_))));
    }
    // A runner refuses if it has less memory than the keys take.
    store.may_hold = 100;
    assert!(matches!(run_compaction(&job, &mut store), Err(Error::Io { .. })));
}
