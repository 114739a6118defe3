//! The suite that every back end passes.
//!
//! Each case works below a prefix of its own, and relies only on what every back end promises, according to
//! [`forebay_storage`].

use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::thread::run_all;
use forebay_storage::{
    CommitKind, CommitRegister, History, ObjectInfo, ObjectName, ObjectStorage, PutMode, ReadRequest, Recovery, Storage,
};
use std::sync::Arc;

/// A case: works with storage below a prefix.
pub type Case = fn(&Storage, &ObjectName);

/// All cases with their names.
pub const CASES: &[(&str, Case)] = &[
    ("objects-are-what-was-put", objects_are_what_was_put),
    ("missing-objects", missing_objects),
    ("put-if-absent", put_if_absent),
    ("one-of-many-puts-if-absent", one_of_many_puts_if_absent),
    ("ranges", ranges),
    ("streamed-objects", streamed_objects),
    ("lists", lists),
    ("commits-and-takeover", commits_and_takeover),
    ("two-writers-race", two_writers_race),
    ("logs", logs),
    ("a-sealed-log", a_sealed_log),
    ("sixty-four-threads-share-syncs", sixty_four_threads_share_syncs),
];

/// Runs all cases below a prefix of this run.
///
/// # Panics
/// When one fails; its name is printed before.
pub fn run(storage: &Storage) {
    let run = name("run").numbered(Random::secret().expect("the system has randomness") as u64).expect("it is short");
    for (case, body) in CASES {
        println!("{}: {case}", storage.objects().describe());
        body(storage, &run.join(case).expect("it is short"));
    }
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).expect("it is a name")
}

fn below(prefix: &ObjectName, part: &str) -> ObjectName {
    prefix.join(part).expect("it is a name")
}

fn random_bytes(seed: u64, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    Random::seeded(seed).fill(&mut bytes);
    bytes.into()
}

fn kind<T: std::fmt::Debug>(result: forebay_storage::Result<T>) -> ErrorKind {
    result.expect_err("it must fail").kind()
}

fn objects_are_what_was_put(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    for length in [0, 1, 4096, 1 << 20, (6 << 20) + 1] {
        let object = below(prefix, &format!("of-{length}"));
        let bytes = random_bytes(length as u64, length);
        objects.put(&object, bytes.clone(), PutMode::Replace).unwrap();
        assert_eq!(objects.get(&object).unwrap(), bytes);
        assert_eq!(objects.size(&object).unwrap(), length as u64);
        // Replaced as a whole, also by a shorter one.
        objects.put(&object, Bytes::from_static(b"other"), PutMode::Replace).unwrap();
        assert_eq!(&objects.get(&object).unwrap()[..], b"other");
    }
    let odd = below(prefix, "a-b_c=d.e/0.1");
    objects.put(&odd, Bytes::from_static(b"odd"), PutMode::Replace).unwrap();
    assert_eq!(&objects.get(&odd).unwrap()[..], b"odd");
}

fn missing_objects(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    let missing = below(prefix, "missing");
    assert_eq!(kind(objects.get(&missing)), ErrorKind::NotFound);
    assert_eq!(kind(objects.size(&missing)), ErrorKind::NotFound);
    let read = objects.open(&missing).and_then(|reader| reader.read_at(0, &mut [0; 4]));
    assert_eq!(kind(read), ErrorKind::NotFound);
    objects.delete(&missing).unwrap();
    assert!(objects.list(Some(&missing)).unwrap().is_empty());
    objects.put(&missing, Bytes::from_static(b"there"), PutMode::IfAbsent).unwrap();
    objects.delete(&missing).unwrap();
    assert_eq!(kind(objects.get(&missing)), ErrorKind::NotFound);
    objects.put(&missing, Bytes::from_static(b"again"), PutMode::IfAbsent).unwrap();
}

fn put_if_absent(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    let object = below(prefix, "object");
    objects.put(&object, Bytes::from_static(b"first"), PutMode::IfAbsent).unwrap();
    let second = objects.put(&object, Bytes::from_static(b"second"), PutMode::IfAbsent);
    assert_eq!(kind(second), ErrorKind::AlreadyExists);
    assert_eq!(&objects.get(&object).unwrap()[..], b"first");
}

fn one_of_many_puts_if_absent(storage: &Storage, prefix: &ObjectName) {
    const WRITERS: u8 = 8;
    for round in 0..4 {
        let object = prefix.numbered(round).expect("it is short");
        let put = |writer: u8| {
            let bytes = Bytes::from(vec![writer; 100]);
            match storage.objects().put(&object, bytes, PutMode::IfAbsent) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                    false
                }
            }
        };
        let won: Vec<bool> =
            run_all((0..WRITERS).collect(), put).into_iter().map(|won| won.expect("no panic")).collect();
        let winners: Vec<usize> = (0..usize::from(WRITERS)).filter(|writer| won[*writer]).collect();
        assert_eq!(winners.len(), 1, "{won:?}");
        assert_eq!(objects_bytes(storage, &object), vec![winners[0] as u8; 100]);
    }
}

fn objects_bytes(storage: &Storage, object: &ObjectName) -> Vec<u8> {
    storage.objects().get(object).unwrap().to_vec()
}

fn ranges(storage: &Storage, prefix: &ObjectName) {
    let object = below(prefix, "object");
    let bytes = random_bytes(1, 300_000);
    storage.objects().put(&object, bytes.clone(), PutMode::Replace).unwrap();
    let reader = storage.objects().open(&object).unwrap();
    let read = |seed: u64| {
        let mut random = Random::seeded(seed);
        for _ in 0..8 {
            let start = random.below(bytes.len() as u64) as usize;
            let mut out = vec![0; random.below((bytes.len() - start) as u64 + 1).min(5000) as usize];
            reader.read_at(start as u64, &mut out).unwrap();
            assert_eq!(out, bytes[start..start + out.len()]);
        }
    };
    assert!(run_all((0..4).collect(), read).iter().all(Option::is_some));
    let (mut first, mut second, mut none) = (vec![0; 1000], vec![0; 10], []);
    reader
        .read_many(&mut [
            ReadRequest { offset: 299_000, out: &mut first },
            ReadRequest { offset: 7, out: &mut none },
            ReadRequest { offset: 0, out: &mut second },
        ])
        .unwrap();
    assert_eq!((&first[..], &second[..]), (&bytes[299_000..], &bytes[..10]));
    for (offset, length) in [(299_999, 2), (300_000, 1), (1 << 40, 1)] {
        assert_eq!(kind(reader.read_at(offset, &mut vec![0; length])), ErrorKind::Corrupt, "{offset} {length}");
    }
}

fn streamed_objects(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    for (count, piece) in [(0, 0), (3, 10), (5, 4 << 20)] {
        let object = below(prefix, &format!("{count}-of-{piece}"));
        let mut writer = objects.writer(&object).unwrap();
        let pieces: Vec<Bytes> = (0..count).map(|seed| random_bytes(seed, piece)).collect();
        for bytes in &pieces {
            writer.write(bytes.clone()).unwrap();
        }
        assert_eq!(kind(objects.get(&object)), ErrorKind::NotFound, "before it is finished");
        writer.finish().unwrap();
        assert!(objects.get(&object).unwrap() == pieces.concat());
    }
    let object = below(prefix, "given-up");
    let mut writer = objects.writer(&object).unwrap();
    writer.write(random_bytes(1, 9 << 20)).unwrap();
    drop(writer);
    assert_eq!(kind(objects.get(&object)), ErrorKind::NotFound);
    assert_eq!(objects.list(Some(prefix)).unwrap().len(), 3);
}

fn lists(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    let mut expected: Vec<ObjectInfo> = (0..12u64)
        .map(|number| {
            let name = below(prefix, "a").numbered(number * number).expect("it is short");
            ObjectInfo { name, size_bytes: number }
        })
        .collect();
    for ObjectInfo { name, size_bytes } in expected.iter().rev() {
        objects.put(name, random_bytes(0, *size_bytes as usize), PutMode::IfAbsent).unwrap();
    }
    // Neither a part of a name's part, nor deeper names, are confused.
    objects.put(&below(prefix, "ab/1"), Bytes::new(), PutMode::Replace).unwrap();
    assert_eq!(objects.list(Some(&below(prefix, "a"))).unwrap(), expected);
    let deeper = ObjectInfo { name: below(prefix, "a/deeper/still"), size_bytes: 3 };
    objects.put(&deeper.name, Bytes::from_static(b"yes"), PutMode::Replace).unwrap();
    expected.push(deeper);
    assert_eq!(objects.list(Some(&below(prefix, "a"))).unwrap(), expected);
    objects.delete(&expected.remove(3).name).unwrap();
    assert_eq!(objects.list(Some(&below(prefix, "a"))).unwrap(), expected);
    assert_eq!(objects.list(Some(prefix)).unwrap().len(), expected.len() + 1);
    assert!(objects.list(None).unwrap().len() > expected.len());
}

fn claim(objects: &Arc<dyn ObjectStorage>, prefix: &ObjectName, writer: u128) -> (CommitRegister, History) {
    let claimed = CommitRegister::claim(Arc::clone(objects), prefix, writer, |history| {
        let kind = if history.last().is_none() { CommitKind::Snapshot } else { CommitKind::Edit };
        Ok((kind, Bytes::from(format!("claim of {writer}"))))
    });
    claimed.unwrap()
}

fn commits_and_takeover(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    assert_eq!(History::read(&**objects, prefix).unwrap(), History::default());
    let (mut first, history) = claim(objects, prefix, 1);
    assert_eq!(history.epoch(), 0);
    assert_eq!(first.commit(CommitKind::Edit, Bytes::from_static(b"one")).unwrap(), 2);
    let (mut second, history) = claim(objects, prefix, 2);
    let payloads: Vec<_> = history.commits.iter().map(|commit| commit.payload.clone()).collect();
    assert_eq!(payloads, [&b"claim of 1"[..], b"one"]);
    assert_eq!((second.epoch(), second.last()), (2, 3));
    assert_eq!(kind(first.commit(CommitKind::Edit, Bytes::from_static(b"late"))), ErrorKind::Fenced);
    second.commit(CommitKind::Snapshot, random_bytes(1, 100_000)).unwrap();
    assert_eq!(second.prune().unwrap(), 3);
    // The first one's next number is free again, but still does not belong to it.
    assert_eq!(kind(first.commit(CommitKind::Edit, Bytes::from_static(b"late"))), ErrorKind::Fenced);
    let history = History::read(&**objects, prefix).unwrap();
    assert_eq!((history.commits.len(), history.epoch()), (1, 2));
}

fn two_writers_race(storage: &Storage, prefix: &ObjectName) {
    let objects = storage.objects();
    let race = |writer: u128| {
        let (mut register, _) = claim(objects, prefix, writer);
        let mut made = vec![register.last()];
        for count in 0..3 {
            match register.commit(CommitKind::Edit, Bytes::from(format!("{count} of {writer}"))) {
                Ok(number) => made.push(number),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
                    break;
                }
            }
        }
        made
    };
    let made = run_all(vec![1, 2, 3], race);
    let history = History::read(&**objects, prefix).unwrap();
    for (writer, made) in (1..).zip(made) {
        for number in made.expect("no panic") {
            assert_eq!(history.commits[number as usize - 1].writer, writer, "commit {number}");
        }
    }
    assert_eq!(history.epoch(), 3);
}

fn logs(storage: &Storage, prefix: &ObjectName) {
    let log = storage.create_log(prefix, 7).unwrap();
    let lengths = (0..19).map(|at| at * 1001).chain([(1 << 20) + 3]);
    let payloads: Vec<Bytes> = (0..).zip(lengths).map(|(seed, length)| random_bytes(seed, length)).collect();
    let mut ends = Vec::new();
    for (mark, payload) in (0..).zip(&payloads) {
        ends.push(log.append(mark as u32, mark, payload).unwrap());
        if mark % 5 == 4 {
            log.sync(ends[mark as usize]).unwrap();
        }
    }
    assert_eq!((log.durable(), log.end()), (ends[19], ends[19]));
    assert_eq!(kind(log.sync(ends[19] + 1)), ErrorKind::Invalid);
    assert!(log.counts().groups >= 4 && log.counts().frames == 20);
    let look = storage.open_log(prefix, Recovery::Look).unwrap();
    assert_eq!((look.begin(), look.end(), look.frames().unwrap().len()), (0, ends[19], 20));
    // Looking changes nothing.
    log.sync(log.append(0, 20, b"more").unwrap()).unwrap();
    let read = storage.open_log(prefix, Recovery::Seal).unwrap();
    let frames = read.frames().unwrap();
    assert_eq!(frames.len(), 21);
    for (mark, payload) in (0..).zip(&payloads) {
        let frame = &frames[mark as usize];
        assert_eq!((frame.stream, frame.mark, &frame.payload), (mark as u32, mark, payload));
    }
    log.discard().unwrap();
    assert!(storage.open_log(prefix, Recovery::Look).unwrap().frames().unwrap().is_empty());
}

fn a_sealed_log(storage: &Storage, prefix: &ObjectName) {
    let log = storage.create_log(prefix, 7).unwrap();
    let end = log.append(1, 1, b"before").unwrap();
    log.sync(end).unwrap();
    log.append(1, 2, b"not acknowledged").unwrap();
    let read = storage.open_log(prefix, Recovery::Seal).unwrap();
    assert!(read.end() >= end);
    let late = log.append(1, 3, b"late").and_then(|end| log.sync(end));
    assert_eq!(kind(late), ErrorKind::Fenced);
    assert_eq!(kind(log.append(1, 4, b"later")), ErrorKind::Fenced);
    let again = storage.open_log(prefix, Recovery::Seal).unwrap();
    assert_eq!(again.frames().unwrap(), read.frames().unwrap());
    storage.delete_log(prefix).unwrap();
    assert!(storage.open_log(prefix, Recovery::Seal).unwrap().frames().unwrap().is_empty());
}

fn sixty_four_threads_share_syncs(storage: &Storage, prefix: &ObjectName) {
    const THREADS: u64 = 64;
    let log = storage.create_log(prefix, 7).unwrap();
    let write = |thread: u64| {
        for count in 0..4 {
            let end = log.append(thread as u32, count, &[1; 100]).unwrap();
            log.sync(end).unwrap();
            assert!(log.durable() >= end);
        }
    };
    assert!(run_all((0..THREADS).collect(), write).iter().all(Option::is_some));
    let counts = log.counts();
    assert_eq!(counts.frames, THREADS * 4);
    assert!(counts.groups <= counts.frames, "{counts:?}");
    let frames = storage.open_log(prefix, Recovery::Seal).unwrap().frames().unwrap();
    for thread in 0..THREADS {
        let marks: Vec<_> =
            frames.iter().filter(|frame| u64::from(frame.stream) == thread).map(|frame| frame.mark).collect();
        assert_eq!(marks, [0, 1, 2, 3]);
    }
    println!("  {} frames in {} groups", counts.frames, counts.groups);
}
