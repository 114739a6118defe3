//! Nodes hang: their links are up, and they answer nothing.

use super::*;
use crate::Db;
use crate::durable::log::tests::{TIMEOUT, VALUE, nodes_of, open, open_copies, open_with, shard, start, step};
use crate::remote::members::Tried;
use crate::remote::pipeline::read_range;
use forebay_env::thread::set_turn;
use forebay_fabric::Traffic;
use forebay_fabric::sim::{SimNetwork, SimOptions};
use forebay_storage::{MemoryObjects, ObjectFault, Storage, StorageOptions};
use forebay_table::SegmentKind;

const NODES: [u32; 2] = [1, 2];
const BYTES: u64 = 16 << 10;

/// Returns what a flush has just made, at the member that serves the shard.
fn made(tree: &Tree) -> Change {
    let segment = tree.remote.allocate(tree.next_segment(), SegmentKind::Run, BYTES, Purpose::Flush).unwrap();
    let mut change = Change { segments: vec![Arc::clone(&segment)], ..Change::default() };
    change.edit.added_segments = vec![(segment.id(), segment.info().clone())];
    change
}

fn active(tree: &Tree) -> Vec<usize> {
    tree.remote.active().map(|remote| remote.member()).collect()
}

#[test]
fn a_member_is_left_out_for_its_own_failure_only() {
    // Which node hangs, and which members are left then.
    for (hung, left) in [(0, vec![0, 1]), (1, vec![0])] {
        let network = start(&NODES);
        let db = open(&network, &NODES);
        let tree = &shard(&db).0.tree;
        let mut change = made(tree);
        network.partition(NODES[hung]);
        let copied = spread(tree, &mut change);
        assert_eq!(active(tree), left, "node {hung} hangs: {copied:?}");
        // A segment that cannot be read must be made again, elsewhere.
        assert_eq!(copied.is_err(), hung == 0);
        network.heal(NODES[hung]);
        spread(tree, &mut change).unwrap();
        db.put(b"a", &VALUE).unwrap();
        assert_eq!(active(tree), left, "node {hung} came back");
    }
}

#[test]
fn nobody_is_left_out_while_no_other_member_answers() {
    // Either both hang for a while, or one hangs and the link to the other one is lost.
    for (is_lost, turn) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        set_turn(turn);
        let network = start(&NODES);
        let db = open(&network, &NODES);
        let tree = &shard(&db).0.tree;
        db.put(b"a", &VALUE).unwrap();
        db.flush().unwrap();
        network.partition(NODES[0]);
        match is_lost {
            true => network.crash(NODES[1]),
            false => network.partition(NODES[1]),
        }
        assert!(matches!(db.get(b"a").unwrap_err().kind(), ErrorKind::TimedOut | ErrorKind::Unavailable));
        assert!(matches!(db.put(b"b", &VALUE).unwrap_err().kind(), ErrorKind::TimedOut | ErrorKind::Unavailable));
        let cause = Error::new(ErrorKind::TimedOut, "no reply");
        assert_eq!(tree.remote.leave_out(0, &cause).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(active(tree), [0, 1]);

        // The node that comes back has everything.
        network.heal(NODES[0]);
        network.crash(NODES[1]);
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
        db.put(b"c", &VALUE).unwrap();
        assert_eq!(active(tree), [0]);
    }
}

#[test]
fn another_member_serves_when_the_one_that_does_hangs() {
    for turn in 0..2 {
        set_turn(turn);
        let network = start(&NODES);
        let db = open(&network, &NODES);
        let tree = &shard(&db).0.tree;
        db.put(b"a", &VALUE).unwrap();
        db.flush().unwrap();
        network.partition(NODES[0]);
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
        db.put(b"b", &VALUE).unwrap();
        assert_eq!(active(tree), [1]);
    }
}

/// Writes a table, and returns its keys: one for each read.
fn fill(db: &Db) -> Vec<Vec<u8>> {
    let keys: Vec<_> = (0..20).map(|number| format!("{number:02}").into_bytes()).collect();
    keys.iter().for_each(|key| db.put(key, &VALUE).unwrap());
    db.flush().unwrap();
    keys
}

fn read_in_every_way(db: &Db, keys: &[Vec<u8>]) {
    assert_eq!(db.get(&keys[0]).unwrap().as_deref(), Some(&VALUE[..]));
    let wanted: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    assert!(db.multi_get(&wanted).unwrap().iter().all(|found| found.as_deref() == Some(&VALUE[..])));
    let mut entries = db.iter().unwrap();
    entries.seek_to_first().unwrap();
    for key in keys {
        assert_eq!((entries.key(), entries.value()), (&key[..], &VALUE[..]));
        entries.next().unwrap();
    }
}

fn reads_at(member: &Remote) -> u64 {
    member.memory_node().link().counts(Traffic::Foreground).reads
}

/// A thread that reads at the other node notices nothing. A thread that reads at the node that hangs waits once.
#[test]
fn a_node_that_hangs_keeps_only_those_waiting_who_read_there() {
    for (hung, node) in NODES.into_iter().enumerate() {
        for way in 0..3 {
            let network = start(&NODES);
            let db = open(&network, &NODES);
            let tree = &shard(&db).0.tree;
            let keys = fill(&db);
            let members: Vec<_> = tree.remote.active().cloned().collect();
            // Each iterator begins at one of the members, and rests there.
            let mut resting = [0, 1].map(|turn| {
                set_turn(turn);
                let mut entries = db.iter().unwrap();
                entries.seek(&keys[0]).unwrap();
                entries
            });
            network.partition(node);
            let (clock, begun) = (network.clock(), network.clock().now());
            set_turn(1 - hung);
            read_in_every_way(&db, &keys);
            assert!(clock.now() - begun < TIMEOUT.as_nanos() as u64);
            assert_eq!(active(tree), [0, 1], "who reads at the other one finds nothing");

            let begun = clock.now();
            set_turn(hung);
            match way {
                0 => drop(db.get(&keys[3]).unwrap()),
                1 => drop(db.multi_get(&[&keys[3], &keys[7]]).unwrap()),
                _ => db.iter().unwrap().seek(&keys[3]).unwrap(),
            }
            // A scan may ask the node to look first.
            let waits = if way == 2 { 3 } else { 2 };
            let waited = clock.now() - begun;
            assert!(waited < waits * TIMEOUT.as_nanos() as u64, "way {way}: {waited} ns");
            assert_eq!(active(tree), [1 - hung]);
            let begun = clock.now();
            read_in_every_way(&db, &keys);
            for entries in &mut resting {
                for key in &keys {
                    assert_eq!((entries.key(), entries.value()), (&key[..], &VALUE[..]));
                    entries.next().unwrap();
                }
                assert!(!entries.valid());
            }
            assert!(clock.now() - begun < TIMEOUT.as_nanos() as u64, "nobody waits again");
            // The node answers again, but what it holds is no longer read.
            network.heal(node);
            let before = reads_at(&members[hung]);
            read_in_every_way(&db, &keys);
            assert_eq!(reads_at(&members[hung]), before);
        }
    }
}

/// The register cannot say that a member is out. Still, nothing is read there until it answers again.
#[test]
fn a_member_that_cannot_be_left_out_is_not_read_until_it_answers() {
    for (hung, node) in NODES.into_iter().enumerate() {
        let objects = MemoryObjects::new();
        let register = Storage::of_objects(Arc::new(objects.clone()), StorageOptions::default());
        let network = start(&NODES);
        let db = open_with(&network, &NODES, Some(register));
        let tree = &shard(&db).0.tree;
        let keys = fill(&db);
        let members: Vec<_> = tree.remote.active().cloned().collect();
        let steps = objects.steps()..objects.steps() + 20;
        steps.for_each(|step| objects.fail_at(step, ObjectFault::Refused(ErrorKind::AccessDenied)));
        network.partition(node);
        set_turn(hung);
        read_in_every_way(&db, &keys);
        assert_eq!(active(tree), [0, 1]);
        let (clock, begun) = (network.clock(), network.clock().now());
        read_in_every_way(&db, &keys);
        assert!(clock.now() - begun < TIMEOUT.as_nanos() as u64);
        tree.remote.check_owner().unwrap();
        assert!(!tree.remote.reads_at(hung));
        network.heal(node);
        tree.remote.check_owner().unwrap();
        let before = reads_at(&members[hung]);
        read_in_every_way(&db, &keys);
        assert_eq!(active(tree), [0, 1]);
        assert!(reads_at(&members[hung]) > before);
    }
}

#[test]
fn members_may_change_while_another_one_is_asked_whether_it_answers() {
    set_turn(0);
    let network = SimNetwork::new(1, SimOptions::default());
    let nodes = Arc::new(nodes_of(&network, &NODES));
    let served = Arc::clone(&nodes);
    network.set_progress_hook(move || step(&served));
    let db = Arc::new(open(&network, &NODES));
    db.put(b"a", &VALUE).unwrap();
    db.flush().unwrap();
    // While a thread waits for a node, this hook names the members.
    let named = Arc::downgrade(&db);
    network.set_progress_hook(move || {
        step(&nodes);
        if let Some(db) = named.upgrade() {
            shard(&db).0.tree.remote.name_joined().unwrap();
        }
    });
    network.partition(NODES[0]);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
    assert_eq!(active(&shard(&db).0.tree), [1]);
}

/// The other process reaches only the node where the damage is.
#[test]
fn damage_that_a_read_finds_while_another_process_takes_over_is_not_told() {
    set_turn(1);
    let register = Storage::open("memory:", StorageOptions::default()).unwrap();
    let network = start(&NODES);
    let db = open_with(&network, &NODES, Some(register.clone()));
    let tree = &shard(&db).0.tree;
    fill(&db);
    let mut successor = None;
    let failed = tree.wherever(|_| {
        successor.get_or_insert_with(|| open_copies(&network, &NODES[1..], 2, Some(register.clone())));
        Err::<(), _>(Error::corrupt("one of two copies is damaged"))
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(db.get(b"00").unwrap_err().kind(), ErrorKind::Fenced);
}

/// Damage was found before another process took over. A read at the next member tells the takeover.
#[test]
fn damage_is_judged_once() {
    for turn in 0..2 {
        set_turn(turn);
        let register = Storage::open("memory:", StorageOptions::default()).unwrap();
        let network = start(&NODES);
        let db = open_with(&network, &NODES, Some(register.clone()));
        let remote = &shard(&db).0.tree.remote;
        let (damage, at) = (Error::corrupt("one of two copies is damaged"), remote.reader().member());
        let judged = remote.judged_at(remote.reader(), damage);
        assert_eq!(judged.kind(), ErrorKind::Corrupt);
        let _successor = open_with(&network, &NODES, Some(register));
        assert!(remote.goes_on(&judged, at, &mut Tried::default()));
        assert!(remote.serves_around_damage(&judged));
    }
}

/// A node rots while its copy of the log is written once more to the other one, which has everything.
#[test]
fn damage_of_a_log_is_not_copied_over_a_whole_one() {
    set_turn(1);
    let network = start(&NODES);
    let db = open(&network, &NODES);
    for number in 0..20u8 {
        db.put(&[number], &VALUE).unwrap();
    }
    let tree = &shard(&db).0.tree;
    let version = Arc::clone(&tree.view.load().version);
    let used = Used::by([&version.version]);
    let part = version.version.log_parts().next().unwrap().segment;
    let segment = version.segment(part).unwrap();
    let source = segment.served();
    let other = segment.copies().find(|copy| !std::ptr::eq(*copy, source)).unwrap();
    let read = |copy: &Segment| {
        let mut endpoint = copy.remote().background().unwrap();
        read_range(&mut endpoint, copy.at(0).unwrap(), copy.info().length).unwrap()
    };
    // The same memory, held once more.
    let held = |copy: &Segment| {
        let member = copy.remote().member();
        let remote = tree.remote.active().find(|remote| remote.member() == member).unwrap();
        remote.hold(part, copy.info()).unwrap().unwrap()
    };
    let whole = read(other);
    assert_eq!(read(source), whole);
    let mut writes = Pipeline::new(source.remote().background().unwrap());
    writes.write(&held(source), 0, &[!whole[0]]).unwrap();
    writes.drain().unwrap();
    assert_ne!(read(source), whole);
    let copy = held(other);
    copy_into(segment, &copy, Some(&copy), &used, IfDamaged::Copy).unwrap();
    assert_eq!(read(other), whole);
    assert!(segment.remote().serving().is_suspected());
}
