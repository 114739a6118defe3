//! Commands with the memory node in their own process.

use crate::common::{run, start_with};

#[test]
fn all_workloads_and_steps() {
    let names = "fillseq,fillrandom,overwrite,readrandom,multireadrandom,readmissing,readseq,seekrandom,\
                 readrandomwriterandom,deleterandom,compact,waitforcompaction";
    let flags = "--num=2000 --reads=500 --threads=2 --key_size=16 --value_size=100 --write_buffer_size=64KiB \
                 --local-memory-size=256MiB --format=json";
    let report = run(&format!("bench --benchmarks={names},stats {flags}")).expect(0).json();
    let entries = report["benchmarks"].as_array().unwrap();
    let found: Vec<_> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(found.join(","), names.replace(' ', ""));
    for entry in entries {
        for field in ["operations", "seconds", "ops_per_second", "latency_us", "fabric", "fabric_background"] {
            assert!(!entry[field].is_null(), "{field}: {entry}");
        }
        let level_bytes = entry["lsm"]["levels"].as_array().unwrap().iter().map(|level| level["bytes"].as_u64());
        assert!(level_bytes.clone().all(|bytes| bytes.is_some()), "{entry}");
        assert!(entry["compute"]["cpu_seconds"].as_f64().unwrap() >= 0.0, "{entry}");
    }
    let number = |name: &str, pointer: &str| {
        let entry = entries.iter().find(|entry| entry["name"] == name).unwrap();
        entry.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{name} {pointer}"))
    };
    assert_eq!((number("fillrandom", "/operations"), number("readrandom", "/operations")), (4000, 1000));
    let flushes: u64 = entries.iter().filter_map(|entry| entry.pointer("/lsm/flushes")?.as_u64()).sum();
    assert!(flushes > 1);
    assert!(number("overwrite", "/fabric_background/bytes_written") > 2000 * 100);
    assert_eq!(number("readmissing", "/found"), 0);
    assert_eq!(number("readseq", "/found"), 1000);
    let trips = number("readrandom", "/fabric/round_trips") as f64 / number("readrandom", "/found") as f64;
    assert!(trips <= 1.1, "{trips} round trips a found key");
}

#[test]
fn the_table_is_for_people_and_the_model_adds_columns() {
    let line = "bench --num=1000 --local-memory-size=128MiB --benchmarks=fillrandom,readrandom,stats --link-rtt=5us";
    let out = run(line).expect(0).out;
    for text in ["fillrandom", "readrandom", "modelled ops/s", "checked, byte by byte", "level"] {
        assert!(out.contains(text), "{text}: {out}");
    }
    let report = run(&format!("{line} --format=json")).expect(0).json();
    assert_eq!(report["benchmarks"][1]["model"]["link_rtt_us"], 5.0);
}

#[test]
fn the_same_seed_gives_the_same_counts() {
    let counts = || {
        let line = "bench --num=3000 --local-memory-size=128MiB --benchmarks=fillrandom,compact,readrandom --seed=9";
        let report = run(&format!("{line} --format=json")).expect(0).json();
        (report["benchmarks"][2]["found"].clone(), report["benchmarks"][2]["fabric"].clone())
    };
    let first = counts();
    assert_eq!(first, counts());
    // Each found key costs one read. An absent key costs none, except for a false match.
    let found = first.0.as_u64().unwrap();
    assert!((found..=found + found / 10).contains(&first.1["reads"].as_u64().unwrap()), "{first:?}");
}

#[test]
fn memory_that_is_full() {
    let ended =
        run("bench --num=1000000 --value_size=1000 --local-memory-size=64MiB --write_buffer_size=1MiB").expect(5);
    assert!(ended.error.contains("put"), "{}", ended.error);
}

#[test]
fn a_directory_needs_no_setting_and_is_read_back_by_the_next_command() {
    let path = crate::common::fresh_path("directory");
    let line = format!("bench --path={} --num=2000 --format=json", path.display());
    let report = run(&line).expect(0).json();
    let found = report["benchmarks"][1]["found"].as_u64().unwrap();
    assert!(found > 1000 && path.join("default/commit").is_dir(), "{report}");
    let again = run(&format!("{line} --use_existing_db --benchmarks=readrandom")).expect(0).json();
    // The phase draws other keys than those that were written, but about as many of them exist.
    let found = again["benchmarks"][0]["found"].as_u64().unwrap();
    assert!((1100..1400).contains(&found), "{again}");
    // All commands find the database by its path.
    let place = format!("--path={}", path.display());
    assert!(run(&format!("dump {place} --local-memory-size=256MiB")).expect(0).out.lines().count() > 1000);
    for command in ["verify", "inspect manifest", "repair"] {
        run(&format!("{command} {place}")).expect(0);
        run(&format!("{command} {place} --db=other")).expect(2);
        assert!(run(&format!("{command} --path=/nowhere/at/all")).expect(1).error.contains("/nowhere/at/all"));
        assert!(run(command).expect(2).error.contains("--path"));
    }
    run(&format!("dump {place} --memory=tcp://127.0.0.1:1")).expect(2);
    for command in ["load", "bench --num=10", "dump", "backup list"] {
        let refused = run(&format!("{command} --path=s3://bucket/x")).expect(2);
        assert!(refused.error.contains("use --storage"), "{refused:?}");
    }
    assert!(!std::path::Path::new("s3:").exists());
    run(&format!("drop {place} --yes --memory=tcp://127.0.0.1:1")).expect(2);
    run(&format!("{line} --storage=memory:")).expect(2);
    run(&format!("{line} --memory=shm:/nowhere")).expect(2);
    run(&format!("drop {place} --yes")).expect(0);
    assert!(!path.exists());
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_is_measured() {
    let refused = run("bench --num=1000 --local-memory-size=128MiB --report /nowhere/x.html").expect(1);
    assert!(refused.out.is_empty() && refused.error.contains("/nowhere/x.html"), "{refused:?}");
    let file = crate::common::fresh_path(".html");
    let bench =
        |flags: &str| run(&format!("bench --num=1000 --local-memory-size=128MiB {flags} --report {}", file.display()));
    // A run that is refused leaves no file, and one that is there as it was.
    let nowhere = crate::common::fresh_path("nowhere");
    let missing = format!("--use_existing_db --path={}", nowhere.display());
    let refused = bench(&missing);
    assert!(refused.code != Some(0) && !file.exists(), "{refused:?}");
    std::fs::write(&file, "other").unwrap();
    assert_ne!(bench(&missing).code, Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "other");
    bench("").expect(0);
    assert!(std::fs::read_to_string(&file).unwrap().contains("<html"));
}

#[test]
fn files_that_are_not_the_databases_stay() {
    let path = crate::common::fresh_path("directory");
    std::fs::create_dir_all(path.join("default")).unwrap();
    std::fs::write(path.join("default/foreign"), "x").unwrap();
    for _ in 0..2 {
        run(&format!("bench --path={} --num=100", path.display())).expect(0);
        assert_eq!(std::fs::read_to_string(path.join("default/foreign")).unwrap(), "x");
    }
}

#[test]
fn bench_replaces_what_bench_left_and_nothing_else() {
    let (path, storage) = (crate::common::fresh_path("directory"), crate::common::fresh_path("storage"));
    for place in [format!("--path={}", path.display()), format!("--storage={} --db=name", storage.display())] {
        let bench = |flags: &str| run(&format!("bench {place} --num=100 --local-memory-size=256MiB {flags}"));
        let keys = || run(&format!("dump {place} --local-memory-size=256MiB")).expect(0).out;
        let refused = || {
            let refused = bench("").expect(2);
            for text in ["not as bench left it", "--use_existing_db", "--replace", "forebay drop"] {
                assert!(refused.error.contains(text) && refused.out.is_empty(), "{place}: {refused:?}");
            }
        };
        bench("--benchmarks=fillseq,readrandom,fillseq").expect(0);
        bench("--use_existing_db --benchmarks=readrandom").expect(0);
        run(&format!("ycsb {place} --records=100 --operations=100 --warm-up=0 --local-memory-size=256MiB")).expect(0);
        bench("--benchmarks=fillseq").expect(0);
        assert!(run(&format!("verify {place} --format=json")).expect(0).json()["notes"].as_array().unwrap().is_empty());
        // A command that only reads leaves the database as it is.
        assert_eq!(keys().lines().count(), 100);
        bench("--benchmarks=fillseq").expect(0);
        // Another command has opened the database, and may have written data worth keeping.
        run(&format!("load {place} --local-memory-size=256MiB /dev/null")).expect(0);
        refused();
        bench("--use_existing_db --benchmarks=readrandom").expect(0);
        refused();
        assert_eq!(keys().lines().count(), 100);
        bench("--replace --use_existing_db").expect(2);
        bench("--replace --benchmarks=fillrandom").expect(0);
        bench("").expect(0);
        run(&format!("drop {place} --yes")).expect(0);
        // A database that another command has made is not bench's either.
        let dump = crate::common::fresh_path(".tsv");
        std::fs::write(&dump, "key\tvalue\n").unwrap();
        run(&format!("load {place} --local-memory-size=256MiB {}", dump.display())).expect(0);
        refused();
        assert_eq!(keys(), "key\tvalue\n");
        run(&format!("drop {place} --yes")).expect(0);
        bench("").expect(0);
    }
    assert!(path.join("default/bench").is_file() && storage.join("name/bench").is_file());
    run(&format!("drop --path={} --yes", path.display())).expect(0);
    assert!(!path.exists());
}

/// No command has begun before it has reached the storage.
#[test]
fn backups_tell_storage_that_cannot_be_reached_from_storage_that_was_lost() {
    let variables = [
        // Nobody listens there.
        ("AWS_ENDPOINT", "http://127.0.0.1:1"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let to = crate::common::fresh_path("to");
    let actions = [
        "create full".to_owned(),
        "list".to_owned(),
        format!("copy full --to={}", to.display()),
        "clone full --as=other".to_owned(),
        "drop full".to_owned(),
    ];
    // Each of them tries again for a while.
    let start = |action: &String| start_with(&format!("backup {action} --storage=s3://forebay/backups"), &variables);
    let started: Vec<_> = actions.iter().map(start).collect();
    for (action, running) in actions.iter().zip(started) {
        let ended = running.wait();
        assert_eq!(ended.code, Some(3), "{action}: {ended:?}");
    }
    assert!(!to.exists());
}

#[test]
fn checkpoints_are_kept_copied_cloned_and_dropped() {
    let (path, copy) = (crate::common::fresh_path("directory"), crate::common::fresh_path("copy"));
    let bench =
        |place: &str, flags: &str| run(&format!("bench {place} --num=500 --format=json {flags}")).expect(0).json();
    let at = format!("--path={}", path.display());
    let found = |place: &str| bench(place, "--use_existing_db --benchmarks=readseq")["benchmarks"][0]["found"].clone();
    bench(&at, "--benchmarks=fillseq");
    run(&format!("backup create {at} full")).expect(0);
    run(&format!("backup create {at} full")).expect(1);
    bench(&at, "--use_existing_db --benchmarks=deleterandom");
    assert_ne!(found(&at), 500);
    run(&format!("backup create {at} less")).expect(0);
    assert_eq!(run(&format!("backup list {at}")).expect(0).out, "full\nless\n");
    for name in ["full", "less"] {
        let ended = run(&format!("backup copy {at} {name} --to={}", copy.display())).expect(0);
        assert!(ended.out.starts_with("copied: ") && ended.out.contains(name), "{}", ended.out);
    }
    run(&format!("backup drop {at} full")).expect(0);
    assert_eq!(run(&format!("backup list {at}")).expect(0).out, "less\n");
    std::fs::remove_dir_all(path).unwrap();
    let copied = format!("--storage={}", copy.display());
    run(&format!("backup clone {copied} full --as=restored")).expect(0);
    assert_eq!(found(&format!("{copied} --db=restored")), 500);
    run(&format!("backup drop {copied} less")).expect(0);
    let held = run(&format!("backup drop {copied} full")).expect(1);
    assert!(held.error.contains("\"restored\"") && held.error.contains("drop it first"), "{held:?}");
    assert!(run(&format!("drop {copied} --db=restored")).expect(2).error.contains("--yes"));
    assert_eq!(found(&format!("{copied} --db=restored")), 500);
    run(&format!("backup clone {copied} full --as=dropped")).expect(0);
    run(&format!("drop {copied} --db=dropped --yes")).expect(0);
    run(&format!("drop {copied} --db=dropped --yes")).expect(1);
    run(&format!("backup clone {copied} none --as=other")).expect(1);
    run("backup list").expect(2);
    // Looking does not create anything.
    let nowhere = crate::common::fresh_path("nowhere");
    for place in [format!("--storage={}", nowhere.display()), format!("--path={}", nowhere.display())] {
        assert!(run(&format!("backup list {place}")).code != Some(0), "{place}");
        assert!(!nowhere.exists(), "{place}");
    }
    assert!(run(&format!("backup list {copied} --db=other")).expect(1).error.contains("other"));
    let missing = run(&format!("backup copy {copied} --db=restored nosuch --to={}", nowhere.display())).expect(1);
    assert!(missing.error.contains("nosuch") && !nowhere.exists(), "{missing:?}");
    // Without its clone the checkpoint can also be dropped.
    run(&format!("drop {copied} --db=restored --yes")).expect(0);
    run(&format!("backup drop {copied} full")).expect(0);
    std::fs::remove_dir_all(copy).unwrap();
}

#[test]
fn the_fabric_test_measures_every_operation() {
    let report = run("fabric-test --seconds=0.01 --sizes=8,64 --depths=1,4 --format=json").expect(0).json();
    assert_eq!(report["back_end"], "inprocess");
    let cells = report["fabric_test"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 + 2 * 2 + 1);
    assert!(cells.iter().all(|cell| cell["ops_per_second"].as_f64().unwrap() > 0.0));
}

#[test]
fn the_fabric_test_says_what_tls_costs() {
    const LINE: &str =
        "fabric-test --tls-cost --seconds=0.02 --sizes=64,64KiB --depths=1,4 --operations=read,write,message";
    let report = run(&format!("{LINE} --format=json")).expect(0).json();
    assert_eq!(report["back_end"], "tcp");
    let cells = report["fabric_test"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 + 1);
    for cell in cells {
        let rate = |side: &str| cell[side]["ops_per_second"].as_f64().unwrap();
        let latency = |side: &str| cell[side]["latency_us"]["p50"].as_f64().unwrap();
        assert!(["plain", "tls"].iter().all(|side| rate(side) > 0.0 && latency(side) > 0.0), "{cell}");
        assert!((cell["tls_by_plain"].as_f64().unwrap() - rate("tls") / rate("plain")).abs() < 1e-6, "{cell}");
    }
    assert_eq!(
        (&cells[0]["operation"], &cells[0]["size_bytes"], &cells[0]["depth"]),
        (&"read".into(), &64.into(), &1.into())
    );
    let table = run(LINE).expect(0).out;
    let lines: Vec<_> = table.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 3 + 2 * 2 * 2 + 1, "{table}");
    let columns = |line: &str| line.split_whitespace().count();
    assert!(lines[2].ends_with("TLS/plain") && lines[3..].iter().all(|line| columns(line) == 8), "{table}");
    let refused = run("fabric-test --tls-cost --memory=tcp://127.0.0.1:1").expect(2).error;
    assert!(refused.contains("--memory"), "{refused}");
}

/// Like most tools, a command is silent then. A command that serves says why it ends.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    use std::process::Command;
    let path = crate::common::fresh_path("directory");
    let at = format!("--path={}", path.display());
    run(&format!("bench {at} --num=1000 --local-memory-size=256MiB")).expect(0);
    let node = format!("memory-node --listen=shm:{} --memory=128MiB", crate::common::socket_path().display());
    for (line, said) in [
        ("bench --num=1000 --local-memory-size=128MiB", ""),
        (&format!("dump {at} --local-memory-size=256MiB"), ""),
        (&format!("dump {at} --local-memory-size=256MiB --format=binary -"), ""),
        (&format!("inspect manifest {at}"), ""),
        ("help", ""),
        (&node, "forebay: writing to standard output: Broken pipe"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(line.split(' ')).stdout(writer).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        assert!(error.contains(said) && error.is_empty() == said.is_empty(), "{line}: {error}");
    }
}

/// A pipe can be read once.
#[test]
fn a_trace_that_comes_through_a_pipe_is_replayed_from_its_start() {
    use std::process::Command;
    let (pipe, file) = (crate::common::fresh_path(".pipe"), crate::common::fresh_path(".lis"));
    std::fs::write(&file, (0..50).map(|page| format!("{page} 1 0 {page}\n")).collect::<String>()).unwrap();
    assert!(Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
    let mut copying = Command::new("timeout").args(["60", "cp"]).args([&*file, &*pipe]).spawn().unwrap();
    let line = format!("replay {} --local-memory-size=256MiB --format=json", pipe.display());
    assert_eq!(run(&line).expect(0).json()["benchmarks"][0]["operations"], 50);
    assert!(copying.wait().unwrap().success());
}

#[test]
fn a_report_is_written_though_nobody_reads_the_results() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = crate::common::fresh_path(".html");
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
    bench.args(["bench", "--num=1000", "--local-memory-size=128MiB", "--report"]).arg(&*file);
    let output = bench.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("<html"));
}
