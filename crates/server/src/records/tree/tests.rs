//! Batches that are interrupted, that find no room, and that other processes look for.

use super::*;
use crate::records::batch::Batch as Written;
use crate::records::store::Records;
use crate::records::testing::{on_each_engine, on_tree};
use forebay::{ListenOptions, MemoryNode, MemoryNodeOptions, NodeAddress, TreeOptions, listen};
use proptest::prelude::*;
use std::sync::Arc;

/// The expected records, from batches or not.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn changes(all: &[Change<'_>]) -> Changes {
    let mut changes = Changes::default();
    all.iter().for_each(|change| changes.add(*change));
    changes
}

fn apply(model: &mut Model, change: Change<'_>) {
    match change {
        Change::Put(key, value) => _ = model.insert(key.to_vec(), value.to_vec()),
        Change::Delete(key) => _ = model.remove(key),
        Change::DeleteRange(from, to) => model.retain(|key, _| !(from <= &key[..] && &key[..] < to)),
    }
}

/// Returns all records except journals, as a scan and as single reads find them.
fn found(records: &TreeRecords) -> Model {
    let mut model = Model::new();
    let mut cursor = records.cursor(&[2], &[255], Direction::Forward);
    cursor.step().unwrap();
    while let Some((key, value)) = cursor.entry() {
        assert_eq!(records.get(key).unwrap().as_deref(), Some(value));
        model.insert(key.to_vec(), value.to_vec());
        cursor.step().unwrap();
    }
    model
}

/// Returns the keys of existing journals.
fn journal_keys(records: &TreeRecords) -> Vec<(Slot, u16)> {
    let (from, to) = journal::area();
    let range = Range { from: Bound::Included(&from), to: Bound::Excluded(&to), ..Range::all() };
    let entries = records.with(|client| client.scan(range)).unwrap();
    let full = entries.iter().filter(|(_, value)| !value.is_empty());
    full.map(|(key, _)| journal::named(key).unwrap()).collect()
}

/// A memory node that outlives its users.
struct Node {
    address: NodeAddress,
    _node: forebay::MemoryNodeHandle,
}

impl Node {
    fn start(name: &str, memory_bytes: u64) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-records-{}-{name}", std::process::id()));
        let address = NodeAddress::SharedMemory(path);
        let listener = listen(&address, ListenOptions::default()).unwrap();
        let node = MemoryNode::start(listener, MemoryNodeOptions::with_memory(memory_bytes)).unwrap();
        Self { address, _node: node }
    }

    fn open(&self) -> TreeRecords {
        let tree = OwnedTree::connect(std::slice::from_ref(&self.address), "shop", TreeOptions::default()).unwrap();
        TreeRecords::new(tree)
    }
}

/// Makes the records stop before the verb with this number, counted from here. Returns the counter of verbs.
fn stop_at(records: &TreeRecords, verb: u64) -> Arc<AtomicU64> {
    let verbs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&verbs);
    let mut client = lock(&records.idle).pop().unwrap_or_else(|| records.tree.client().unwrap());
    client.set_hook(Some(Box::new(move |_| count.fetch_add(1, Ordering::Relaxed) < verb)));
    lock(&records.idle).push(client);
    verbs
}

/// Stops a server before each verb of a batch. The next process finds all of the batch or nothing, and all of it if the
/// server has acknowledged it.
fn cut_everywhere(name: &str, piece_bytes: usize, batch: &[Change<'_>]) {
    let node = Node::start(name, 64 << 20);
    let before: Vec<(Vec<u8>, Vec<u8>)> = (10..30).map(|key| (vec![key], vec![key; 40])).collect();
    let mut cuts = 0;
    for verb in 0.. {
        let mut records = node.open();
        records.recover().unwrap();
        records.write(&changes(&[Change::DeleteRange(&[2], &[255])])).unwrap();
        before.iter().for_each(|(key, value)| records.write(&changes(&[Change::Put(key, value)])).unwrap());
        records.piece_bytes = piece_bytes;
        let old = found(&records);
        let mut new = old.clone();
        batch.iter().for_each(|change| apply(&mut new, *change));
        let verbs = stop_at(&records, verb);
        let said = records.write(&changes(batch));
        let is_cut = verbs.load(Ordering::Relaxed) > verb;
        // As when a process is killed: nothing is finished, and the session ends.
        records.tree.close();
        drop(records);
        let records = node.open();
        records.recover().unwrap();
        let after = found(&records);
        assert!(after == new || after == old && said.is_err(), "stopped before verb {verb}: {after:?}");
        assert_eq!((journal_keys(&records), records.unfinished.any()), (vec![], false), "{verb}");
        drop(records);
        if !is_cut {
            assert!(said.is_ok() && after == new);
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn a_batch_is_whole_or_not_at_all_wherever_its_server_is_stopped() {
    let batch = [
        Change::DeleteRange(&[12], &[15]),
        Change::Put(&[13], b"new"),
        Change::Put(&[20], &[7; 300]),
        Change::Delete(&[25]),
        Change::Put(b"zz", b"newer"),
    ];
    cut_everywhere("short", PIECE_BYTES, &batch);
}

#[test]
fn so_is_one_whose_journal_has_pieces() {
    let batch = [Change::Put(&[13], &[1; 90]), Change::Put(&[50], &[2; 90]), Change::Delete(&[11])];
    cut_everywhere("pieces", 64, &batch);
}

/// A journal in the reserve, when the nodes are full.
#[test]
fn a_removal_in_the_reserve_is_whole_or_not_at_all() {
    let node = Node::start("reserve", 64 << 20);
    let batch = [Change::Delete(&[11]), Change::DeleteRange(&[13], &[20]), Change::Delete(&[25])];
    for is_ended in [false, true] {
        let records = node.open();
        records.recover().unwrap();
        (10..30).for_each(|key| records.write(&changes(&[Change::Put(&[key], &[key; 40])])).unwrap());
        let mut model = found(&records);
        assert_eq!(records.begin_in_reserve(changes(&batch).bytes()).unwrap(), RESERVE_SLOT);
        assert_eq!(records.begin_in_reserve(changes(&batch).bytes()).unwrap_err().kind(), ErrorKind::Full);
        if is_ended {
            records.with(|client| client.put(&journal::head_key(RESERVE_SLOT), b"")).unwrap();
        } else {
            batch.iter().for_each(|change| apply(&mut model, *change));
        }
        records.tree.close();
        drop(records);
        let records = node.open();
        records.recover().unwrap();
        assert_eq!((found(&records), records.unfinished.any()), (model, false));
        assert!(*lock(&records.is_reserve_free));
    }
}

/// A write of unknown effect may take effect later, so the server ends.
#[test]
fn after_a_write_of_which_nobody_knows_what_it_did_nothing_is_written() {
    let Records::Tree(records) = on_tree(64 << 20) else { panic!("no tree") };
    records.write(&changes(&[Change::Put(b"a", b"1")])).unwrap();
    assert!(records.failure().is_none());
    stop_at(&records, 1);
    assert!(records.write(&changes(&[Change::Put(b"a", b"2")])).is_err());
    let client = lock(&records.idle).pop().unwrap();
    drop(client);
    let failed = records.write(&changes(&[Change::Put(b"b", b"3")])).unwrap_err();
    assert_eq!((failed.kind(), records.failure().is_some()), (ErrorKind::Closed, true));
    assert_eq!(records.get(b"b").unwrap(), None);
    assert!(records.close().is_err());
}

/// Batches that find room for their journal, but none for their changes: all of a batch is visible, now and to the next
/// process, and it is applied once there is room.
#[test]
fn a_batch_that_finds_no_room_in_the_middle_counts_and_is_finished_later() {
    let node = Node::start("full", 8 << 20);
    let records = node.open();
    records.recover().unwrap();
    let mut model = Model::new();
    let value = |number: u32| vec![number as u8; 3000];
    let key = |number: u32| [&[2][..], &number.to_be_bytes()].concat();
    let batch_from = |first: u32| -> Vec<(Vec<u8>, Vec<u8>)> {
        (first..first + 8).map(|number| (key(number), value(number))).collect()
    };
    let mut put = |first: u32, count: usize| {
        let all = batch_from(first);
        let batch: Vec<_> = all.iter().take(count).map(|(key, value)| Change::Put(key, value)).collect();
        let written = records.write(&changes(&batch));
        if written.is_ok() {
            batch.iter().for_each(|change| apply(&mut model, *change));
        }
        written
    };
    // Journals have some blocks that are reused, and single records take all other blocks.
    (0..10).for_each(|batch| put(batch * 8, 8).unwrap());
    let first = (80..).find(|number| put(*number, 1).is_err()).unwrap();
    put(first, 8).unwrap();
    assert!(records.unfinished.any(), "no batch was cut in the middle");
    assert!(model.len() > 100);
    assert_eq!(found(&records), model);
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert!(records.multi_get(&wanted, usize::MAX).unwrap().into_iter().eq(model.values().cloned().map(Some)));
    let mut backward = records.cursor(&[2], &[255], Direction::Backward);
    for (key, value) in model.iter().rev() {
        backward.step().unwrap();
        assert_eq!(backward.entry(), Some((&key[..], &value[..])));
    }
    // Changes that need room are refused, and so are changes that touch the batch.
    let last = keys.last().unwrap();
    assert_eq!(records.write(&changes(&[Change::Put(b"\xf0", &[0; 3000])])).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(records.write(&changes(&[Change::Delete(last)])).unwrap_err().kind(), ErrorKind::Full);
    // Another process also finds the batch.
    records.tree.close();
    drop(records);
    let records = node.open();
    records.recover().unwrap();
    assert_eq!(found(&records), model);
    // Changes that remove other keys are made, until there is room.
    let half = keys.len() / 2;
    for pair in keys.chunks_exact(2).take(half / 2) {
        records.write(&changes(&[Change::Delete(&pair[0]), Change::Delete(&pair[1])])).unwrap();
        pair.iter().for_each(|key| _ = model.remove(key));
    }
    // Memory of values of one size can only hold values of that size.
    records.write(&changes(&[Change::Put(b"\xf0", &[7; 3000])])).unwrap();
    assert!(!records.unfinished.any());
    model.insert(b"\xf0".to_vec(), vec![7; 3000]);
    assert_eq!((found(&records), journal_keys(&records)), (model, vec![]));
}

/// Another thread, which has other keys locked, finishes a batch between two reads of a scan.
#[test]
fn a_scan_finds_all_of_a_batch_that_is_finished_meanwhile() {
    let Records::Tree(records) = on_tree(64 << 20) else { panic!("no tree") };
    let records = Arc::new(records);
    let before: Vec<([u8; 2], [u8; 40])> = (0..200).map(|number| ([9, number], [number; 40])).collect();
    let before: Vec<Change<'_>> = before.iter().map(|(key, value)| Change::Put(key, value)).collect();
    let batch = changes(&[Change::Put(&[9, 0], b"new"), Change::Delete(&[9, 100]), Change::Put(&[9, 250], b"new")]);
    for verb in 0_u64.. {
        records.write(&changes(&[Change::DeleteRange(&[2], &[255])])).unwrap();
        records.write(&changes(&before)).unwrap();
        let (slot, pieces) = records.begin(batch.bytes()).unwrap();
        records.unfinished.add(Batch::new(slot, pieces, batch.bytes().to_vec()).unwrap());
        let expected = found(&records);
        let mut client = lock(&records.idle).pop().unwrap();
        let (other, mut verbs) = (Arc::clone(&records), 0);
        client.set_hook(Some(Box::new(move |_| {
            if verbs == verb {
                other.finish_all().unwrap();
            }
            verbs += 1;
            true
        })));
        lock(&records.idle).push(client);
        let (mut cursor, mut seen) = (records.cursor(&[2], &[255], Direction::Forward), Model::new());
        cursor.portion = MAX_PAGE;
        cursor.step().unwrap();
        while let Some((key, value)) = cursor.entry() {
            seen.insert(key.to_vec(), value.to_vec());
            cursor.step().unwrap();
        }
        let mut client = lock(&records.idle).pop().unwrap();
        client.set_hook(None);
        lock(&records.idle).push(client);
        assert_eq!(seen, expected, "finished before verb {verb}");
        if records.unfinished.any() {
            assert!(verb > 3, "the scan has {verb} verbs");
            break;
        }
        assert_eq!(found(&records), expected);
    }
}

#[test]
fn a_page_of_long_values_is_short() {
    let Records::Tree(records) = on_tree(256 << 20) else { panic!("no tree") };
    let value = vec![7; 1 << 20];
    (0..20_u8).for_each(|number| records.write(&changes(&[Change::Put(&[9, number], &value)])).unwrap());
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = records.cursor(&[9], &[10], direction);
        let mut count = 0;
        cursor.step().unwrap();
        while cursor.entry().is_some_and(|(_, found)| found == value) {
            assert!(cursor.page.len() < 4, "{} records", cursor.page.len());
            count += 1;
            cursor.step().unwrap();
        }
        assert_eq!(count, 20);
    }
    records.write(&changes(&[Change::DeleteRange(&[9], &[10])])).unwrap();
    assert_eq!(found(&records), Model::new());
}

#[test]
fn a_damaged_journal_is_not_applied() {
    let Records::Tree(records) = on_tree(64 << 20) else { panic!("no tree") };
    let body = changes(&[Change::Put(b"a", b"1"), Change::Put(b"b", b"2")]);
    let mut head = Journal::of(body.bytes(), PIECE_BYTES).unwrap().head;
    *head.last_mut().unwrap() ^= 1;
    records.with(|client| client.put(&journal::key(0, 0), &head)).unwrap();
    assert_eq!(records.recover().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(records.get(b"a").unwrap(), None);
}

#[test]
fn what_is_too_long_is_refused_before_anything_is_written() {
    let Records::Tree(records) = on_tree(64 << 20) else { panic!("no tree") };
    let long = vec![1; MAX_KEY_BYTES + 1];
    let error = records.write(&changes(&[Change::Put(b"a", b"1"), Change::Delete(&long)])).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("4096"), "{error}");
    let most = records.tree.tree().most_bytes() as usize;
    let error = records.write(&changes(&[Change::Put(b"a", &vec![0; most])])).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(&most.to_string()), "{error}");
    records.write(&changes(&[Change::Put(b"a", &vec![0; most - 1])])).unwrap();
    assert_eq!(records.get(&long).unwrap(), None);
    assert_eq!(
        records.multi_get(&[&long, b"a", b"b"], usize::MAX).unwrap().iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert_eq!(journal_keys(&records), []);
}

#[test]
fn one_change_needs_no_journal_and_keys_of_a_run_share_round_trips() {
    let Records::Tree(records) = on_tree(64 << 20) else { panic!("no tree") };
    for number in 0..100_u8 {
        records.write(&changes(&[Change::Put(&[9, number], b"value")])).unwrap();
    }
    assert_eq!(records.figures().journals, 0);
    let keys: Vec<[u8; 2]> = (0..100).map(|number| [9, number]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    records.multi_get(&keys, usize::MAX).unwrap();
    let before = records.tree.counts()[0].round_trips;
    records.multi_get(&keys, usize::MAX).unwrap();
    assert!(
        records.tree.counts()[0].round_trips - before <= 8,
        "{} round trips",
        records.tree.counts()[0].round_trips - before
    );
    records.write(&changes(&[Change::Put(b"a", b"1"), Change::Put(b"b", b"2")])).unwrap();
    records.write(&changes(&[Change::DeleteRange(b"a", b"c")])).unwrap();
    assert_eq!((records.figures().journals, journal_keys(&records)), (2, vec![]));
}

#[derive(Debug, Clone)]
enum Step {
    Batch(Vec<(u8, u8, u8)>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..3_u8, 2..40_u8, 2..40_u8);
    prop_oneof![8 => prop::collection::vec(change, 0..8).prop_map(Step::Batch), 1 => Just(Step::Reopen)]
}

fn check_steps(records: &Records, steps: &[Step]) {
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Batch(all) => {
                let mut batch: Written = records.batch();
                // Nobody removes an empty range.
                for (kind, a, b) in all.iter().filter(|(kind, a, b)| *kind < 2 || a < b) {
                    match kind {
                        0 => batch.put(&[*a], &[*b]),
                        1 => batch.delete(&[*a]),
                        _ => batch.delete_range(&[*a], &[*b]),
                    }
                    let change = match kind {
                        0 => Change::Put(&[*a], &[*b]),
                        1 => Change::Delete(&[*a]),
                        _ => Change::DeleteRange(&[*a], &[*b]),
                    };
                    apply(&mut model, change);
                }
                assert!(!all.is_empty() || batch.is_empty());
                records.write(&batch).unwrap();
            }
            Step::Reopen => records.recover().unwrap(),
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = records.scan(&[5], &[30], direction).unwrap();
            let mut found = Vec::new();
            while cursor.valid() {
                found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                cursor.step().unwrap();
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            let expected = model.range(vec![5]..vec![30]).map(|(key, value)| (key.clone(), value.clone()));
            assert!(expected.eq(found));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn both_engines_hold_what_was_written(steps in prop::collection::vec(step(), 1..30)) {
        on_each_engine(64 << 20).iter().for_each(|records| check_steps(records, &steps));
    }
}
