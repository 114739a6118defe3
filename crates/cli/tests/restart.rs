//! The compute process is killed, suspended or taken over. The next process continues with its named databases.

use crate::common::{fresh_path, places, run, start, start_node, start_with_short_files};
use forebay::{MergeOperator, MergeOperators, Options, Store};
use forebay_env::Random;
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const FLAGS: &str = "--value_size=100 --write_buffer_size=256KiB --verify=true";

#[test]
fn what_one_process_wrote_the_next_one_reads() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=1GiB");
        let bench =
            |rest: &str| run(&format!("bench {FLAGS} --num=30000 --memory={address} --db=db --format=json {rest}"));
        let missing = bench("--use_existing_db --benchmarks=readrandom");
        assert_eq!(missing.code, Some(1), "{missing:?}");
        bench("--benchmarks=fillseq").expect(0);
        let read = bench("--use_existing_db --benchmarks=readrandom").expect(0).json();
        assert_eq!(read["benchmarks"][0]["found"], 30000, "{read}");
        let file = fresh_path(".checkpoint");
        let at = format!("--memory={address} {}", file.display());
        run(&format!("checkpoint --db=db {at}")).expect(0);
        run(&format!("restore --db=copy {at}")).expect(0);
        assert_eq!(run(&format!("restore --db=copy {at}")).code, Some(1));
        let flags = "--use_existing_db --benchmarks=readrandom --format=json";
        let copy = run(&format!("bench {FLAGS} --num=30000 --memory={address} --db=copy {flags}")).expect(0).json();
        assert_eq!(copy["benchmarks"][0]["found"], 30000, "{copy}");
        std::fs::write(&file, b"no checkpoint").unwrap();
        run(&format!("restore --db=other {at}")).expect(6);
        run(&format!("checkpoint --db=other {at}")).expect(1);
    }
}

/// A file of a database of counters makes a database of counters.
#[test]
fn a_restored_database_has_its_merge_operator() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=1GiB");
    let add_one = |name: &str| {
        let (name, merge_operator) = (Some(name.to_owned()), Some("counter".to_owned()));
        let options = Options { name, merge_operator, ..Options::default() };
        let store = Store::connect(&address.parse().unwrap(), options).unwrap();
        store.merge(b"key", &1_i64.to_le_bytes()).unwrap();
        let value = store.get(b"key").unwrap().unwrap();
        store.close().unwrap();
        i64::from_le_bytes(value.try_into().unwrap())
    };
    assert_eq!(add_one("counters"), 1);
    for command in ["checkpoint", "dump --format=binary"] {
        let file = fresh_path(".checkpoint");
        run(&format!("{command} --memory={address} --db=counters {}", file.display())).expect(0);
        run(&format!("restore --memory={address} --db=restored {}", file.display())).expect(0);
        assert_eq!(add_one("restored"), 2, "{command}");
        run(&format!("drop --memory={address} --db=restored --yes")).expect(0);
    }
}

/// An operator of a program that the command does not know.
#[derive(Debug)]
struct Last;

impl MergeOperator for Last {
    fn full(&self, _key: &[u8], _value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|operand| operand.to_vec())
    }

    fn partial(&self, _key: &[u8], _older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(newer.to_vec())
    }
}

#[test]
fn a_restore_that_is_refused_creates_no_directory() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    let mut merge_operators = MergeOperators::default();
    merge_operators.register("test.last", Arc::new(Last)).unwrap();
    let (name, merge_operator) = (Some("db".to_owned()), Some("test.last".to_owned()));
    let options = Options { name, merge_operator, merge_operators, ..Options::default() };
    let store = Store::connect(&address.parse().unwrap(), options).unwrap();
    store.put(b"key", b"value").unwrap();
    let (file, storage) = (fresh_path(".checkpoint"), fresh_path(".storage"));
    store.checkpoint(&*file).unwrap();
    store.close().unwrap();
    let flags = format!("--memory={address} --db=restored --storage={}", storage.display());
    let refused = run(&format!("restore {flags} {}", file.display()));
    assert!(refused.code.is_some_and(|code| code != 0) && refused.error.contains("test.last"), "{refused:?}");
    assert!(!storage.exists());
}

/// The target of a checkpoint stays what it is, and a full disk is reported as such.
#[test]
fn a_checkpoint_goes_where_its_path_leads() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    run(&format!("bench {FLAGS} --num=5000 --memory={address} --db=db --benchmarks=fillseq")).expect(0);
    let line = |path: &Path| format!("checkpoint --memory={address} --db=db {}", path.display());
    let file = fresh_path(".checkpoint");
    run(&line(&file)).expect(0);
    let expected = std::fs::read(&*file).unwrap();
    let (pipe, received) = (fresh_path(".pipe"), fresh_path(".checkpoint"));
    assert!(Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
    let mut reading = Command::new("timeout");
    let mut reading =
        reading.args(["60", "cat"]).arg(&*pipe).stdout(File::create(&*received).unwrap()).spawn().unwrap();
    run(&line(&pipe)).expect(0);
    assert!(std::fs::symlink_metadata(&*pipe).unwrap().file_type().is_fifo());
    assert!(reading.wait().unwrap().success() && std::fs::read(&*received).unwrap() == expected);
    // A link leads to a file that exists, or that does not exist yet.
    let (link, target) = (fresh_path(".link"), fresh_path(".checkpoint"));
    symlink(target.file_name().unwrap(), &*link).unwrap();
    for what in ["no file yet", "a file"] {
        run(&line(&link)).expect(0);
        assert!(link.is_symlink() && std::fs::read(&*target).unwrap() == expected, "{what}");
        std::fs::write(&*target, "").unwrap();
    }
    let full = start_with_short_files(&line(&file), 64).wait().expect(5).error;
    assert!(full.contains("nothing of the checkpoint was kept"), "{full}");
    assert!(std::fs::read(&*file).unwrap() == expected, "the one before stays");
    assert!(!Path::new(&format!("{}.partial", file.display())).exists());
}

#[test]
fn a_database_over_several_nodes_goes_to_a_file_and_comes_back() {
    let nodes: Vec<_> = places().iter().map(|place| start_node(place, "--memory=512MiB")).collect();
    let memory = format!("--memory={},{}", nodes[0].1, nodes[1].1);
    let bench = |rest: &str| run(&format!("bench {FLAGS} --num=30000 {memory} --format=json {rest}")).expect(0).json();
    bench("--db=db --shards=4 --benchmarks=fillrandom,compact");
    let file = fresh_path(".checkpoint");
    run(&format!("checkpoint --db=db {memory} {}", file.display())).expect(0);
    // One node has only a part of the database.
    let part = run(&format!("checkpoint --db=db --memory={} {}", nodes[0].1, file.display()));
    assert!(part.error.contains("lies on 2 memory nodes"), "{part:?}");
    let found = |db: &str, shards: u32| {
        let report = bench(&format!("--db={db} --shards={shards} --use_existing_db --benchmarks=readseq"));
        report["benchmarks"][0]["found"].as_u64().unwrap()
    };
    let before = found("db", 4);
    assert!(before > 15_000, "{before}");
    for (name, flag, shards) in [("two", "", 2), ("five", "--shards=5", 5)] {
        run(&format!("restore --db={name} {memory} {flag} {}", file.display())).expect(0);
        assert_eq!(found(name, shards), before);
    }
}

/// The number of shards need not be given again, and a new database has one shard on each memory node.
#[test]
fn a_database_keeps_its_number_of_shards() {
    let nodes: Vec<_> = places().iter().map(|place| start_node(place, "--memory=256MiB")).collect();
    let memory = format!("--memory={},{}", nodes[0].1, nodes[1].1);
    let folder = fresh_path(".data");
    let path = format!("--path={} --local-memory-size=256MiB", folder.display());
    let flags = "--num=1000 --value_size=100 --write_buffer_size=256KiB --format=json";
    for (place, created, shards, another) in [
        (format!("{memory} --db=new"), "", 2, 1),
        (format!("{memory} --db=three"), "--shards=3", 3, 2),
        (format!("{memory} --db=one"), "--shards=1", 1, 2),
        (path, "--shards=2", 2, 1),
    ] {
        run(&format!("bench {flags} {place} {created} --benchmarks=fillseq")).expect(0);
        let open = format!("bench {flags} {place} --use_existing_db --benchmarks=readseq");
        for said in [String::new(), format!("--shards={shards}")] {
            let read = run(&format!("{open} {said}")).expect(0).json();
            assert_eq!(read["benchmarks"][0]["found"], 1000, "{place} {said}: {read}");
        }
        let refused = run(&format!("{open} --shards={another}")).expect(2);
        assert!(refused.error.contains(&format!("a number of shards of {shards}, not {another}")), "{refused:?}");
        // The existing records are not ycsb's, but ycsb opens the database all the same.
        let other = run(&format!("ycsb {place} --records=10 --operations=10 --warm-up=10 --workload=c"));
        assert!(!other.error.contains("number of shards"), "{other:?}");
    }
}

/// The same nodes in another order are the same database. Two databases of one name are not confused, nor deleted
/// together.
#[test]
fn nodes_are_named_in_any_order() {
    let nodes: Vec<_> = (0..2).map(|_| start_node(&places()[0], "--memory=256MiB")).collect();
    let (a, b) = (&nodes[0].1, &nodes[1].1);
    let file = fresh_path(".tsv");
    std::fs::write(&file, "k\t1\n").unwrap();
    let load = |memory: &str| {
        run(&format!("load --memory={memory} --db=h --shards=1 --durability=memory {}", file.display())).expect(0)
    };
    let dump = |memory: &str| run(&format!("dump --memory={memory} --db=h"));
    load(&format!("{a},{b}"));
    let checkpoint = fresh_path(".checkpoint");
    run(&format!("checkpoint --db=h --memory={b},{a} {}", checkpoint.display())).expect(0);
    for order in [format!("{a},{b}"), format!("{b},{a}")] {
        assert_eq!(dump(&order).expect(0).out, "k\t1\n");
        load(&order);
        let taken = run(&format!("restore --db=h --memory={order} {}", checkpoint.display())).expect(1);
        assert!(taken.error.contains("there is a database"), "{taken:?}");
    }
    assert!(dump(b).expect(1).error.contains("no database \"h\" on these memory nodes"));
    // A command that knows only one of the nodes creates another database there.
    load(b);
    let both = format!("--memory={a},{b} --db=h");
    for refused in [format!("dump {both}"), format!("drop --yes {both}")] {
        let refused = run(&refused).expect(2);
        assert!(refused.error.contains(a.as_str()) && refused.error.contains(b.as_str()), "{refused:?}");
    }
    run(&format!("drop --yes --db=h --memory={b}")).expect(0);
    assert_eq!(dump(&format!("{b},{a}")).expect(0).out, "k\t1\n");
    run(&format!("drop --yes {both}")).expect(0);
    dump(a).expect(1);
}

/// A command that names fewer nodes than hold copies would leave copies out: a reader is refused, and others are told.
#[test]
fn copies_are_left_out_only_when_told() {
    let nodes: Vec<_> = (0..3).map(|_| start_node(&places()[0], "--memory=256MiB")).collect();
    let [a, b, c] = [0, 1, 2].map(|at: usize| nodes[at].1.as_str());
    let (file, register) = (fresh_path(".tsv"), fresh_path(".register"));
    std::fs::write(&file, "a\t1\nz\t2\n").unwrap();
    let place = |memory: &[&str]| format!("--memory={} --db=c --register={}", memory.join(","), register.display());
    let load = |memory: &[&str], more: &str| {
        run(&format!("load {} --durability=memory=2 {more} {}", place(memory), file.display())).expect(0)
    };
    assert!(!load(&[a, b, c], "--shards=3").error.contains("copies"));
    let checkpoint = fresh_path(".checkpoint");
    for refused in [
        format!("dump {}", place(&[a, b])),
        format!("verify {}", place(&[a, b])),
        format!("checkpoint {} {}", place(&[c, a]), checkpoint.display()),
    ] {
        let refused = run(&refused).expect(2);
        assert!(refused.error.contains("--leave-out") && refused.error.contains(a), "{refused:?}");
    }
    let whole = run(&format!("dump {}", place(&[c, b, a]))).expect(0);
    assert!(whole.out == "a\t1\nz\t2\n" && !whole.error.contains("copies"), "{whole:?}");
    let left_out = run(&format!("dump --leave-out {}", place(&[a, b]))).expect(0);
    assert!(left_out.out == whole.out && left_out.error.contains("2 copies of shards are missing"), "{left_out:?}");
    assert!(load(&[a, b], "").error.contains("copies of shards are missing"));
    // Without its register, the database is not created anew.
    for flags in ["dump", "load --durability=memory=2 --shards=3"] {
        let file = if flags == "dump" { String::new() } else { file.display().to_string() };
        let refused = run(&format!("{flags} --memory={a},{b},{c} --db=c {file}")).expect(1);
        assert!(refused.error.contains("register"), "{refused:?}");
    }
    assert_eq!(run(&format!("dump {}", place(&[a, b, c]))).expect(0).out, whole.out);
}

/// Kills a process that writes, and reads everything in the next one.
fn kill_at_random(seed: u64) {
    let mut random = Random::seeded(seed);
    let place = places()[random.below(2) as usize].clone();
    println!("seed {seed}: {place}");
    let (_node, address) = start_node(&place, "--memory=1GiB");
    let flags = format!("{FLAGS} --memory={address} --db=db");
    let num = "--num=30000";
    run(&format!("bench {flags} {num} --benchmarks=fillseq,compact")).expect(0);
    for _ in 0..3 {
        let mut load = start(&format!("bench {flags} --num=100000000 --use_existing_db --benchmarks=overwrite"));
        load.until_open();
        load.pause(Duration::from_micros(random.below(800_000)));
        load.signal(Signal::KILL);
        load.wait();
        // The first keys all exist, each with a value that was written.
        let check = format!("bench {flags} {num} --use_existing_db --benchmarks=readrandom,readseq --format=json");
        let read = run(&check).expect(0).json();
        assert_eq!(read["benchmarks"][0]["found"], 30000, "{read}");
    }
}

#[test]
fn killed_at_random_moments() {
    (0..2).for_each(kill_at_random);
}

#[test]
#[ignore = "takes minutes: cargo xtask kill"]
fn killed_at_many_random_moments() {
    (100..140).for_each(kill_at_random);
}

/// A suspended process that resumes after a takeover does no harm, and reports why it ends.
#[test]
fn a_stopped_process_wakes_up_after_a_takeover() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=1GiB");
        let flags = format!("{FLAGS} --memory={address} --db=db");
        let num = "--num=30000";
        run(&format!("bench {flags} {num} --benchmarks=fillseq")).expect(0);
        let mut zombie = start(&format!("bench {flags} --num=100000000 --use_existing_db --benchmarks=overwrite"));
        zombie.until_open();
        zombie.pause(Duration::from_millis(400));
        zombie.signal(Signal::STOP);
        let stopped = zombie.age();
        let busy = run(&format!("bench {flags} {num} --use_existing_db --benchmarks=readrandom"));
        assert_eq!(busy.code, Some(1), "{busy:?}");
        let check =
            format!("bench {flags} {num} --use_existing_db --takeover --benchmarks=readrandom,readseq --format=json");
        let read = run(&check).expect(0).json();
        assert_eq!(read["benchmarks"][0]["found"], 30000, "{read}");
        run(&format!("bench {flags} {num} --use_existing_db --takeover --benchmarks=overwrite,compact")).expect(0);
        zombie.signal(Signal::CONT);
        let woken = zombie.age();
        // A node closes a connection that takes nothing for ten seconds, so the process may see the end of the
        // connection first.
        let ended = zombie.wait();
        let lost = woken - stopped >= Duration::from_secs(10) && ended.code == Some(4);
        let ended = ended.expect(if lost { 4 } else { 7 });
        assert!(ended.took - woken < Duration::from_secs(10), "{ended:?}");
        let read = run(&check).expect(0).json();
        assert_eq!(read["benchmarks"][0]["found"], 30000, "{read}");
    }
}

/// Exit codes of a process that got too little time.
const STARVED: [Option<i32>; 3] = [Some(3), Some(4), Some(7)];

/// A process that gets too little time may lose its session at any moment, including during its last flush. Either it
/// fails, or everything that it wrote exists. On a busy machine, the process that checks may also starve.
fn starve(seed: u64) -> bool {
    let mut random = Random::seeded(seed);
    let (_node, address) = start_node(&places()[0], "--memory=256MiB --lease=100ms");
    let flags = format!("{FLAGS} --num=30000 --memory={address} --db=db --format=json");
    let mut load = start(&format!("bench {flags} --benchmarks=fillseq"));
    load.pause(Duration::from_micros(random.below(30_000)));
    while !load.has_ended() {
        load.signal(Signal::STOP);
        load.pause(Duration::from_millis(random.below(150)));
        load.signal(Signal::CONT);
        load.pause(Duration::from_micros(random.below(30_000)));
    }
    let ended = load.wait();
    if ended.code != Some(0) {
        assert!(STARVED.contains(&ended.code), "seed {seed}: {ended:?}");
        return false;
    }
    let check = format!("bench {flags} --use_existing_db --takeover --benchmarks=readrandom");
    let read = (0..50).map(|_| run(&check)).find(|read| !STARVED.contains(&read.code));
    let read = read.expect("a reader that gets enough time").expect(0).json();
    assert_eq!(read["benchmarks"][0]["found"], 30000, "seed {seed}: {read}");
    true
}

#[test]
fn a_process_that_starves_loses_nothing_in_silence() {
    let well = (0..20).filter(|&seed| starve(seed)).count();
    println!("{well} of 20 ended well");
}
