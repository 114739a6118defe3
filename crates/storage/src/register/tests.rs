//! Tests of the register; the bytes of `docs/formats/commit.md`.

use super::*;
use crate::objects::{MemoryObjects, ObjectFault};
use proptest::prelude::*;

fn prefix() -> ObjectName {
    ObjectName::new("commit").unwrap()
}

fn claim(storage: &MemoryObjects, writer: u128) -> Result<CommitRegister> {
    let claimed = CommitRegister::claim(Arc::new(storage.clone()), &prefix(), writer, |history| {
        let kind = if history.last().is_none() { CommitKind::Snapshot } else { CommitKind::Edit };
        Ok((kind, Bytes::from(format!("claim of {writer}"))))
    });
    claimed.map(|(register, _)| register)
}

fn commit(register: &mut CommitRegister, text: &'static str) -> Result<u64> {
    register.commit(CommitKind::Edit, Bytes::from_static(text.as_bytes()))
}

fn payloads(storage: &MemoryObjects) -> Vec<String> {
    let history = History::read(storage, &prefix()).unwrap();
    history.commits.iter().map(|commit| String::from_utf8(commit.payload.to_vec()).unwrap()).collect()
}

#[test]
fn golden_bytes() {
    let mut commit =
        following(None, &prefix(), CommitKind::Snapshot, true, 0x0102, Bytes::from_static(b"one")).unwrap();
    let hex = |commit: &Commit| commit.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let first = "4642434d0100030001000000000000000100000000000000010000000000000002010000000000000000000000000000000000000300\
                 00006f6e65";
    assert_eq!(hex(&commit), format!("{first}{:08x}", commit.checksum.swap_bytes()));
    assert_eq!(commit.checksum, envelope_checksum(&commit.encode()[..59]));
    commit.checksum = 0x0403_0201;
    let next = following(Some(&commit), &prefix(), CommitKind::Edit, false, 0x0102, Bytes::new()).unwrap();
    let second = "4642434d0100000002000000000000000100000000000000010000000000000002010000000000000000000000000000010203040000\
                  0000";
    assert_eq!(hex(&next), format!("{second}{:08x}", next.checksum.swap_bytes()));
    assert_eq!(Commit::decode(&next.encode()), Ok(next));
}

#[test]
fn commits_are_read_from_the_last_snapshot() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    assert_eq!(commit(&mut register, "a").unwrap(), 2);
    assert_eq!(payloads(&storage), ["claim of 1", "a"]);
    assert_eq!(register.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap(), 3);
    commit(&mut register, "b").unwrap();
    assert_eq!(payloads(&storage), ["all", "b"]);
    assert_eq!(register.prune().unwrap(), 2);
    assert_eq!(payloads(&storage), ["all", "b"]);
    assert_eq!((register.epoch(), register.base(), register.last()), (1, 3, 4));
}

#[test]
fn the_first_commit_is_a_snapshot() {
    let storage: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let edit = CommitRegister::claim(storage, &prefix(), 1, |_| Ok((CommitKind::Edit, Bytes::new())));
    assert_eq!(edit.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_claim_fences_the_writer_before() {
    let storage = MemoryObjects::new();
    let mut first = claim(&storage, 1).unwrap();
    commit(&mut first, "a").unwrap();
    let mut second = claim(&storage, 2).unwrap();
    assert_eq!((second.epoch(), second.last()), (2, 3));
    for _ in 0..2 {
        assert_eq!(commit(&mut first, "late").unwrap_err().kind(), ErrorKind::Fenced);
    }
    commit(&mut second, "b").unwrap();
    assert_eq!(payloads(&storage), ["claim of 1", "a", "claim of 2", "b"]);
}

#[test]
fn a_writer_that_slept_does_not_take_a_pruned_number() {
    for slept_at_commits in 0..4 {
        let storage = MemoryObjects::new();
        let mut first = claim(&storage, 1).unwrap();
        for _ in 0..slept_at_commits {
            commit(&mut first, "a").unwrap();
        }
        let mut second = claim(&storage, 2).unwrap();
        second.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
        second.prune().unwrap();
        assert_eq!(commit(&mut first, "late").unwrap_err().kind(), ErrorKind::Fenced);
        commit(&mut second, "b").unwrap();
        // What it left does no harm, and the next pruning removes it.
        assert_eq!(payloads(&storage), ["all", "b"]);
        second.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
        second.prune().unwrap();
        assert_eq!(storage.list(None).unwrap().len(), 1);
    }
}

#[test]
fn a_lost_reply_is_recognised() {
    for fault in [ObjectFault::ReplyLost, ObjectFault::Refused(ErrorKind::Unavailable), ObjectFault::Late(1)] {
        let storage = MemoryObjects::new();
        let mut register = claim(&storage, 1).unwrap();
        storage.fail_at(storage.steps(), fault);
        let error = commit(&mut register, "a").unwrap_err();
        assert!(error.is_undecided() && register.is_unsettled(), "{error}");
        // The next commit insists on the previous one.
        assert_eq!(commit(&mut register, "b").unwrap(), 3);
        assert_eq!(payloads(&storage), ["claim of 1", "a", "b"]);
    }
}

#[test]
fn a_commit_that_reads_damaged_does_not_fence_its_writer() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    storage.fail_at(storage.steps(), ObjectFault::ReplyLost);
    assert!(commit(&mut register, "a").unwrap_err().is_undecided());
    // It reads what it has put: wrong once, and then damaged until somebody brings it back.
    storage.rot_read(0, 300);
    assert_eq!(commit(&mut register, "b").unwrap(), 3);
    storage.fail_at(storage.steps(), ObjectFault::ReplyLost);
    assert!(commit(&mut register, "c").unwrap_err().is_undecided());
    let name = prefix().numbered(4).unwrap();
    storage.flip(&name, 40, 1).unwrap();
    assert_eq!(commit(&mut register, "d").unwrap_err().kind(), ErrorKind::Corrupt);
    storage.flip(&name, 40, 1).unwrap();
    assert_eq!(commit(&mut register, "d").unwrap(), 5);
    assert_eq!(payloads(&storage), ["claim of 1", "a", "b", "c", "d"]);
}

/// As where a service answers that another put of the name is under way.
#[test]
fn a_number_that_is_taken_by_nothing_does_not_fence() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    storage.fail_at(storage.steps(), ObjectFault::Refused(ErrorKind::AlreadyExists));
    let error = commit(&mut register, "a").unwrap_err();
    assert!(error.is_undecided() && register.is_unsettled(), "{error}");
    assert_eq!(commit(&mut register, "b").unwrap(), 3);
    assert_eq!(payloads(&storage), ["claim of 1", "a", "b"]);
    // Where another writer took over and pruned, it is fenced.
    let mut second = claim(&storage.handle(), 2).unwrap();
    second.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
    second.prune().unwrap();
    storage.fail_at(storage.steps(), ObjectFault::Refused(ErrorKind::AlreadyExists));
    assert_eq!(commit(&mut register, "late").unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn a_commit_that_was_followed_counts_and_then_no_more() {
    let storage = MemoryObjects::new();
    let mut first = claim(&storage, 1).unwrap();
    storage.fail_at(storage.steps(), ObjectFault::ReplyLost);
    commit(&mut first, "a").unwrap_err();
    let _second = claim(&storage.handle(), 2).unwrap();
    first.settle().unwrap();
    assert_eq!(commit(&mut first, "b").unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(payloads(&storage), ["claim of 1", "a", "claim of 2"]);
}

#[test]
fn an_owner_sees_that_its_commits_are_gone() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    commit(&mut register, "a").unwrap();
    register.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
    commit(&mut register, "b").unwrap();
    register.prune().unwrap();
    register.check().unwrap();
    for number in [3, 4] {
        let name = prefix().numbered(number).unwrap();
        let bytes = storage.get(&name).unwrap();
        storage.delete(&name).unwrap();
        assert_eq!(register.check().unwrap_err().kind(), ErrorKind::Corrupt);
        storage.put(&name, bytes, PutMode::IfAbsent).unwrap();
        register.check().unwrap();
    }
    // What a successor pruned is not missing.
    let mut second = claim(&storage.handle(), 2).unwrap();
    second.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
    second.prune().unwrap();
    assert_eq!(register.check().unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn damage_is_named() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    commit(&mut register, "a").unwrap();
    let names: Vec<_> = storage.list(None).unwrap().into_iter().map(|object| object.name).collect();
    for name in &names {
        for offset in 0..storage.get(name).unwrap().len() {
            storage.flip(name, offset, 0x10).unwrap();
            let error = History::read(&storage, &prefix()).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, name.as_str()), "byte {offset}");
            storage.flip(name, offset, 0x10).unwrap();
        }
    }
    storage.delete(&names[0]).unwrap();
    let error = History::read(&storage, &prefix()).unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, names[0].as_str()));
}

/// A version or a flag of a newer build, with a right checksum, is no damage; nobody claims what it cannot read.
#[test]
fn what_a_newer_build_committed_is_told_from_damage() {
    let storage = MemoryObjects::new();
    let mut register = claim(&storage, 1).unwrap();
    commit(&mut register, "a").unwrap();
    let name = prefix().numbered(2).unwrap();
    let whole = storage.get(&name).unwrap();
    for (at, told) in [(4, "format version 3"), (6, "flags 4")] {
        let mut newer = whole.to_vec();
        newer[at] = if at == 4 { 3 } else { 4 };
        let covered = newer.len() - CHECKSUM_BYTES;
        let right = envelope_checksum(&newer[..covered]);
        newer[covered..].copy_from_slice(&right.to_le_bytes());
        storage.put(&name, newer.into(), PutMode::Replace).unwrap();
        let error = History::read(&storage, &prefix()).unwrap_err();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Unsupported, name.as_str()));
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(claim(&storage, 2).map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(storage.list(None).unwrap().len(), 2);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>, flips in prop::collection::vec((0usize..70, any::<u8>()), 0..4)) {
        let _ = Commit::decode(&bytes.into());
        let commit = following(None, &prefix(), CommitKind::Snapshot, true, 7, Bytes::from_static(b"payload")).unwrap();
        let mut bytes = commit.encode().to_vec();
        for (at, mask) in flips {
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= mask);
        }
        if let Ok(decoded) = Commit::decode(&bytes.into()) {
            prop_assert_eq!(decoded, commit);
        }
    }
}

#[test]
fn a_service_that_ignores_conditions_is_refused() {
    let storage = MemoryObjects::of_careless_service();
    // One that creates the register, and one that takes over.
    for writer in [1, 2] {
        let error = claim(&storage, writer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("memory:") && text.contains("If-None-Match"), "{text}");
    }
    // Reading needs no condition.
    assert_eq!(payloads(&storage), ["claim of 1", "claim of 2"]);
}

#[test]
fn only_a_service_is_asked_whether_it_heeds_conditions() {
    let operations = |storage: MemoryObjects| {
        claim(&storage, 1).unwrap();
        storage.steps()
    };
    // A list, a put and a list.
    assert_eq!(operations(MemoryObjects::new()), 3);
    assert_eq!(operations(MemoryObjects::of_service()), 4);
}

#[test]
fn a_claim_that_was_pruned_is_no_condition_ignored() {
    let storage = MemoryObjects::of_service();
    let other = storage.handle();
    storage.interrupt_at(3, move || {
        let mut next = claim(&other, 2).unwrap();
        next.commit(CommitKind::Snapshot, Bytes::from_static(b"all")).unwrap();
        assert_eq!(next.prune().unwrap(), 2);
    });
    let register = claim(&storage, 1).unwrap();
    assert_eq!((register.epoch(), register.last()), (3, 4));
    assert_eq!(payloads(&storage), ["all", "claim of 1"]);
    // It was put again, and does no harm.
    assert_eq!(register.prune().unwrap(), 1);
}
