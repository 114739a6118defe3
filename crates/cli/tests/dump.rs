//! Dumps written and loaded by the command.

use crate::common::{Ended, FreshPath, fresh_path, run, start_node};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

/// A folder with a database.
struct Folder(FreshPath);

impl Folder {
    fn new() -> Self {
        Self(fresh_path(".storage"))
    }

    fn flag(&self) -> String {
        format!("--storage {} --local-memory-size 256MiB", self.0.display())
    }
}

const LINES: &str = "\\x00\tzero\n\
                     a\\tb\tc\\\\d\\n\n\
                     empty\t\n\
                     expires\tlate\t4000000000000\n\
                     k1\tone\n\
                     k2\ttwo\n\
                     \\xff\\xfe\t\\x80\n";

fn loaded(lines: &str, flags: &str) -> Folder {
    let (folder, file) = (Folder::new(), fresh_path(".tsv"));
    fs::write(&file, lines).unwrap();
    let out = run(&format!("load {} {flags} {}", folder.flag(), file.display())).expect(0).out;
    assert!(out.starts_with(&format!("loaded: {} keys", lines.lines().count())), "{out}");
    folder
}

fn dump(folder: &Folder, flags: &str) -> Ended {
    run(&format!("dump {} {flags}", folder.flag()))
}

#[test]
fn every_form_holds_everything() {
    let folder = loaded(LINES, "--shards 2");
    assert_eq!(dump(&folder, "").expect(0).out, LINES);
    for format in ["tsv", "json", "binary"] {
        let (file, other) = (fresh_path(".dump"), Folder::new());
        let told = dump(&folder, &format!("--format {format} {}", file.display())).expect(0).out;
        assert!(told.contains("7 keys"), "{told}");
        run(&format!("load {} --format {format} {}", other.flag(), file.display())).expect(0);
        assert_eq!(dump(&other, "").expect(0).out, LINES, "{format}");
        // The dump is added to the existing data, with the existing settings.
        run(&format!("load {} --shards 3 --format {format} {}", folder.flag(), file.display())).expect(0);
    }
    assert_eq!(
        dump(&folder, "--format json --prefix k").expect(0).out.lines().next(),
        Some(r#"{"key":"k1","value":"one"}"#)
    );
}

#[test]
fn ranges_and_keyspaces() {
    let folder = loaded(LINES, "");
    let keys = |flags: &str| {
        let out = dump(&folder, flags).expect(0).out;
        out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("--prefix k"), ["k1", "k2"]);
    assert_eq!(keys("--from empty --to k2"), ["empty", "expires", "k1"]);
    assert_eq!(keys(r"--from \xff"), [r"\xff\xfe"]);
    assert_eq!(keys(r"--to a\tb"), [r"\x00"]);
    assert!(
        dump(&folder, "--from b --to a").expect(2).error.contains("--from and --to: the range ends before it starts")
    );
    dump(&folder, "--keyspace one").expect(1);

    let folder = loaded("a\t1\n", "--keyspace one");
    let file = fresh_path(".tsv");
    fs::write(&file, "a\t2\nb\t3\n").unwrap();
    run(&format!("load {} --keyspace two {}", folder.flag(), file.display())).expect(0);
    assert_eq!(dump(&folder, "--keyspace one").expect(0).out, "a\t1\n");
    assert_eq!(dump(&folder, "--keyspace two").expect(0).out, "a\t2\nb\t3\n");
    assert!(dump(&folder, "--keyspace three").expect(1).error.contains("three"));
}

/// A dump of all keyspaces has their numbers, which mean other keyspaces in another database.
#[test]
fn numbers_of_keyspaces_do_not_mix() {
    let one = loaded("a\t1\n", "--keyspace one");
    let file = fresh_path(".tsv");
    dump(&one, &file.display().to_string()).expect(0);
    let all = fs::read_to_string(&file).unwrap();
    let load = |folder: &Folder, flags: &str| run(&format!("load {} {flags} {}", folder.flag(), file.display()));
    let copy = Folder::new();
    load(&copy, "").expect(0);
    assert_eq!(dump(&copy, "--keyspace one").expect(0).out, "a\t1\n");

    let other = loaded("b\t2\n", "--keyspace other");
    let before = dump(&other, "").expect(0).out;
    for flags in ["", "--on-error skip"] {
        let refused = load(&other, flags).expect(1);
        assert!(refused.error.contains("has keyspaces") && refused.error.contains("--keyspace"), "{refused:?}");
    }
    fs::write(&file, "a\t1\n").unwrap();
    load(&other, "").expect(1);
    assert_eq!(dump(&other, "").expect(0).out, before);
    load(&other, "--keyspace fresh").expect(0);
    assert_eq!(dump(&other, "--keyspace other").expect(0).out, "b\t2\n");

    // Keys in no keyspace, beside keyspaces.
    let plain = loaded("c\t3\n", "");
    fs::write(&file, all).unwrap();
    for flags in ["", "--on-error skip"] {
        let refused = load(&plain, flags).expect(1);
        assert!(refused.error.contains("line 1: the dump has keyspaces"), "{refused:?}");
    }
    assert_eq!(dump(&plain, "").expect(0).out, "c\t3\n");
}

#[test]
fn a_line_that_says_nothing_has_a_number() {
    let (folder, file) = (Folder::new(), fresh_path(".tsv"));
    let long = "x".repeat((64 << 10) + 1);
    fs::write(&file, format!("a\t1\nb\n{long}\t1\nc\t3\na\t4\n")).unwrap();
    let stopped = run(&format!("load {} {}", folder.flag(), file.display())).expect(1);
    assert!(stopped.error.contains("line 2"), "{stopped:?}");
    assert_eq!(dump(&folder, "").expect(0).out, "a\t1\n", "what came before stays");
    let skipped = run(&format!("load {} --on-error skip {}", folder.flag(), file.display())).expect(0);
    assert!(skipped.out.starts_with("loaded: 3 keys") && skipped.out.contains("2 skipped"), "{skipped:?}");
    assert!(skipped.error.contains("line 2") && skipped.error.contains("line 3"), "{skipped:?}");
    // Of several lines of a key the last one stays.
    assert_eq!(dump(&folder, "").expect(0).out, "a\t4\nc\t3\n");
}

/// Limits that differ between databases: by their memory, and by the prefix of keys in a keyspace.
#[test]
fn what_is_too_long_for_this_database_has_a_number() {
    let file = fresh_path(".tsv");
    // A write may have a 32nd of the memory, 8 MiB, and a key of a keyspace 65,532 bytes.
    let (long, longest) = ("v".repeat(8 << 20), "w".repeat((8 << 20) - 64));
    let key = |length: usize| "k".repeat(length);
    fs::write(&file, format!("a\t1\nb\t{long}\nc\t{longest}\n{}\t4\n{}\t5\nd\t6\n", key(65_533), key(65_532))).unwrap();
    let load = |folder: &Folder, flags: &str| run(&format!("load {} {flags} {}", folder.flag(), file.display()));
    let kept = format!("c\t{longest}\nd\t6\n{}\t5\n", key(65_532));
    for (flags, skips, kept) in [
        ("--keyspace one", vec!["line 2: b: ", "line 4: "], format!("a\t1\n{kept}")),
        ("", vec!["line 2: b: "], format!("a\t1\n{kept}{}\t4\n", key(65_533))),
    ] {
        let folder = Folder::new();
        let stopped = load(&folder, flags).expect(1);
        assert!(stopped.error.contains("line 2: b: its record has 8388"), "{}", stopped.error);
        assert_eq!(dump(&folder, flags).expect(0).out, "a\t1\n", "what came before stays");
        let skipped = load(&folder, &format!("--on-error skip {flags}")).expect(0);
        assert!(skipped.out.contains(&format!("{} skipped", skips.len())), "{}", skipped.out);
        assert!(skips.iter().all(|skip| skipped.error.contains(skip)), "{}", skipped.error);
        assert!(dump(&folder, flags).expect(0).out == kept, "{flags}");
    }
}

#[test]
fn a_dump_that_was_cut_is_told() {
    let (folder, file) = (Folder::new(), fresh_path(".dump"));
    let load = |format: &str, text: &str| {
        fs::write(&file, text).unwrap();
        run(&format!("load {} --format {format} {}", folder.flag(), file.display()))
    };
    assert!(!load("tsv", "a\t1\nb\tlong\n").expect(0).error.contains("warning"));
    assert!(load("tsv", "a\t1\nb\tlo").expect(0).error.contains("has no line feed"));
    assert_eq!(dump(&folder, "").expect(0).out, "a\t1\nb\tlo\n");
    // A cut line of JSON is invalid, and a line that has all of its braces was not cut.
    assert!(load("json", "{\"key\":\"a\",\"value\":\"2\"}").expect(0).error.is_empty());
    let cut = load("json", "{\"key\":\"a\",\"value\":\"2\"}\n{\"key\":\"b\",\"val").expect(1);
    assert!(cut.error.contains("line 2: ") && cut.error.contains("at column 15"), "{cut:?}");
    assert_eq!(cut.error.matches("line").count(), 1, "{cut:?}");
}

#[test]
fn what_is_damaged_or_missing_is_named() {
    let folder = loaded(LINES, "");
    let file = fresh_path(".bin");
    dump(&folder, &format!("--format binary {}", file.display())).expect(0);
    let bytes = fs::read(&file).unwrap();
    let load = |bytes: &[u8], flags: &str| {
        let damaged = fresh_path(".bin");
        fs::write(&damaged, bytes).unwrap();
        run(&format!("load {} --format binary {flags} {}", Folder::new().flag(), damaged.display()))
    };
    let cut = load(&bytes[..bytes.len() - 10], "").expect(6);
    assert!(cut.error.contains("dump"), "{cut:?}");
    let mut damaged = bytes.clone();
    damaged[60] ^= 1;
    assert!(load(&damaged, "").expect(6).error.contains("block 1"));
    assert!(load(&damaged, "--on-error skip").expect(0).out.contains("1 skipped"));
    assert!(load(b"a\tb\n", "").expect(6).error.contains("binary"));

    let missing = run(&format!("load {} /nowhere/at/all", folder.flag())).expect(1);
    assert!(missing.error.contains("/nowhere/at/all"), "{missing:?}");
    let empty = Folder::new();
    fs::create_dir_all(&*empty.0).unwrap();
    assert!(dump(&empty, "").expect(1).error.contains("there is no database"));
    assert!(run("dump --db name").expect(2).error.contains("--storage"));
    assert!(run("dump --format xml").expect(2).error.contains("json"));
    assert!(!Path::new(&format!("{}.partial", file.display())).exists());
}

/// An input that is not a dump in the requested form creates no database.
#[test]
fn what_is_no_dump_is_told_first() {
    let (folder, file, never) = (loaded(LINES, ""), fresh_path(".bin"), fresh_path(".never"));
    dump(&folder, &format!("--format binary {}", file.display())).expect(0);
    let load = |flags: &str, file: &Path| run(&format!("load --path {} {flags} {}", never.display(), file.display()));
    for format in ["tsv", "json"] {
        let refused = load(&format!("--format {format}"), &file).expect(2);
        assert!(refused.error.contains("is a checkpoint") && refused.error.contains("--format binary"), "{refused:?}");
    }
    let refused = load("", &std::env::temp_dir()).expect(2);
    assert!(refused.error.contains(&std::env::temp_dir().display().to_string()), "{refused:?}");
    fs::write(&*file, LINES).unwrap();
    load("--format binary", &file).expect(6);
    assert!(!never.exists());
    // Text may begin with the same letters.
    fs::write(&file, "FBCH-key\tvalue\n").unwrap();
    run(&format!("load {} {}", folder.flag(), file.display())).expect(0);
}

#[test]
fn what_the_file_is_stays() {
    let (folder, pipe) = (loaded(LINES, ""), fresh_path(".pipe"));
    let made = std::process::Command::new("mkfifo").arg(&*pipe).status().unwrap();
    assert!(made.success());
    let mut reading = std::process::Command::new("timeout");
    let reading = reading.args(["60", "cat"]).arg(&*pipe).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let told = dump(&folder, &pipe.display().to_string()).expect(0).out;
    assert!(told.contains("7 keys"), "{told}");
    assert!(fs::symlink_metadata(&*pipe).unwrap().file_type().is_fifo());
    assert_eq!(String::from_utf8(reading.wait_with_output().unwrap().stdout).unwrap(), LINES);
    // Links lead to a file that exists, or that does not exist yet.
    let (link, second, file) = (fresh_path(".link"), fresh_path(".link"), fresh_path(".tsv"));
    symlink(file.file_name().unwrap(), &*second).unwrap();
    symlink(&*second, &*link).unwrap();
    for what in ["no file yet", "a file"] {
        dump(&folder, &link.display().to_string()).expect(0);
        assert!(fs::symlink_metadata(&*file).unwrap().is_file(), "{what}");
        assert_eq!(fs::read_to_string(&*file).unwrap(), LINES, "{what}");
        assert!(link.is_symlink() && second.is_symlink(), "{what}");
        fs::write(&*file, "").unwrap();
    }
    dump(&folder, &std::env::temp_dir().display().to_string()).expect(1);
    let looped = fresh_path(".link");
    symlink(&*looped, &*looped).unwrap();
    assert!(dump(&folder, &looped.display().to_string()).expect(1).error.contains("links"));
}

/// The disk is full at the end of a short dump, or in the middle of a long one.
#[test]
fn a_dump_that_does_not_fit_leaves_nothing() {
    let long: String = (0..30).map(|number| format!("k{number}\t{}\n", "x".repeat(100_000))).collect();
    for lines in [LINES, &long] {
        let (folder, file) = (loaded(lines, ""), fresh_path(".tsv"));
        fs::write(&*file, "before").unwrap();
        let partial = PathBuf::from(format!("{}.partial", file.display()));
        symlink("/dev/full", &partial).unwrap();
        let full = dump(&folder, &file.display().to_string()).expect(5).error;
        assert!(full.contains("nothing of the dump was kept"), "{full}");
        assert!(!partial.is_symlink());
        assert_eq!(fs::read_to_string(&*file).unwrap(), "before");
        dump(&folder, "/dev/full").expect(5);
        assert!(fs::symlink_metadata("/dev/full").unwrap().file_type().is_char_device());
    }
    // A refused dump leaves nothing either.
    let (folder, file) = (loaded(LINES, ""), fresh_path(".tsv"));
    dump(&folder, &format!("--from k2 --to k1 {}", file.display())).expect(2);
    assert!(!file.exists() && !Path::new(&format!("{}.partial", file.display())).exists());
}

#[test]
fn streams_are_piped() {
    let (folder, other) = (loaded(LINES, ""), Folder::new());
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let line =
        format!("{forebay} dump {} --format json - | {forebay} load {} --format json -", folder.flag(), other.flag());
    let ended = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(dump(&other, "").expect(0).out, LINES);
}

/// All files of a folder, with their bytes and when they were written.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => {
                found.push((entry.path(), Vec::new(), changed));
                found.extend(files(&entry.path()));
            }
            false => found.push((entry.path(), fs::read(entry.path()).unwrap(), changed)),
        }
    }
    found.sort();
    found
}

/// The dump has what is in tables, and what is in the log alone, of a process that was killed.
#[test]
fn a_dump_only_reads() {
    let folder = loaded(LINES, "--shards 2");
    let key = format!("bench {} --use_existing_db --num 40 --benchmarks", folder.flag());
    run(&format!("{key} overwrite")).expect(0);
    let mut killed = crate::common::start(&format!("{key} overwrite,waitforcompaction,readrandom --reads 1000000000"));
    killed.until(|out| out.contains("waitforcompaction"));
    killed.signal(rustix::process::Signal::KILL);
    assert_eq!(killed.wait().code, None);
    fs::remove_file(folder.0.join("LOCK")).unwrap();
    let before = files(&folder.0);
    let dumped = dump(&folder, "").expect(0).out;
    assert!(files(&folder.0) == before, "a dump changed the folder");
    assert!(dumped.lines().count() > LINES.lines().count());
    // The next owner has the same.
    run(&format!("verify {}", folder.flag().split(" --local").next().unwrap())).expect(0);
    let copy = fresh_path(".tsv");
    fs::write(&copy, &dumped).unwrap();
    let other = Folder::new();
    run(&format!("load {} {}", other.flag(), copy.display())).expect(0);
    assert_eq!(dump(&other, "").expect(0).out, dumped);
    run(&format!("load {} /dev/null", folder.flag())).expect(0);
    assert_eq!(dump(&folder, "").expect(0).out, dumped);
}

#[test]
fn a_signal_leaves_nothing_of_a_dump() {
    let folder = loaded(&long(), "");
    expect_nothing_left_by_signals("dump", &format!("dump {}", folder.flag()));
}

#[test]
fn a_signal_leaves_nothing_of_a_checkpoint() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    let lines = fresh_path(".tsv");
    fs::write(&*lines, long()).unwrap();
    run(&format!("load --memory={address} --db=db {}", lines.display())).expect(0);
    expect_nothing_left_by_signals("checkpoint", &format!("checkpoint --memory={address} --db=db"));
}

#[test]
fn a_signal_ends_a_dump_that_waits_for_a_reader() {
    let (folder, pipe) = (loaded(LINES, ""), fresh_path(".pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
    let writing = crate::common::start(&format!("dump {} {}", folder.flag(), pipe.display()));
    until_prepared(&writing);
    writing.signal(rustix::process::Signal::TERM);
    let ended = writing.wait();
    assert!(ended.code.is_none() && ended.took < std::time::Duration::from_secs(60), "{ended:?}");
}

/// A signal that comes while the file is created waits until it can be removed.
#[test]
fn a_signal_leaves_nothing_of_a_file_that_is_just_created() {
    let (folder, file, pipe) = (loaded(&long(), ""), fresh_path(".tsv"), fresh_path(".pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
    let partial = PathBuf::from(format!("{}.partial", file.display()));
    symlink(&*pipe, &partial).unwrap();
    let writing = crate::common::start(&format!("dump {} {}", folder.flag(), file.display()));
    until_prepared(&writing);
    writing.signal(rustix::process::Signal::TERM);
    // Opened for both, a pipe waits for nobody. It holds less than the dump.
    let reader = fs::File::options().read(true).write(true).open(&*pipe).unwrap();
    let ended = writing.wait();
    assert!(ended.error.contains("ended by a signal; nothing of the dump was kept"), "{ended:?}");
    assert!(ended.code.is_none() && !partial.is_symlink() && !file.exists());
    drop(reader);
}

/// Waits until a command that writes a file handles signals itself.
fn until_prepared(writing: &crate::common::Running) {
    let threads = format!("/proc/{}/task", writing.id().as_raw_nonzero());
    let is_prepared = || {
        writing.pause(std::time::Duration::from_millis(10));
        let mut names = fs::read_dir(&threads).into_iter().flatten().flatten().map(|thread| thread.path().join("comm"));
        names.any(|name| fs::read_to_string(name).is_ok_and(|name| name.trim_end() == "forebay-signals"))
    };
    assert!((0..3000).any(|_| is_prepared()), "{}", writing.problem());
}

/// A command that was started to ignore hangups goes on when its terminal is gone.
#[test]
fn a_hangup_that_is_ignored_ends_no_dump() {
    use std::io::Read;
    let (folder, pipe) = (loaded(&long(), ""), fresh_path(".pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
    let writing = crate::common::start_ignoring_hangups(&format!("dump {} {}", folder.flag(), pipe.display()));
    // The command waits until more is read.
    let (mut reader, mut dumped) = (fs::File::open(&*pipe).unwrap(), vec![0_u8]);
    reader.read_exact(&mut dumped).unwrap();
    writing.signal(rustix::process::Signal::HUP);
    reader.read_to_end(&mut dumped).unwrap();
    writing.wait().expect(0);
    assert_eq!(dumped.len(), long().len());
}

/// The command in `line` writes a file whose name is appended to the line.
fn expect_nothing_left_by_signals(what: &str, line: &str) {
    use rustix::process::Signal;
    use std::io::Read;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (file, pipe) = (fresh_path(".tsv"), fresh_path(".pipe"));
        assert!(std::process::Command::new("mkfifo").arg(&*pipe).status().unwrap().success());
        let partial = PathBuf::from(format!("{}.partial", file.display()));
        symlink(&*pipe, &partial).unwrap();
        let writing = crate::common::start(&format!("{line} {}", file.display()));
        // The command waits until more is read.
        let mut reader = fs::File::open(&*pipe).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        writing.signal(signal);
        let ended = writing.wait();
        assert_eq!(ended.code, None, "{ended:?}");
        assert!(ended.error.contains(&format!("ended by a signal; nothing of the {what} was kept")), "{ended:?}");
        assert!(!partial.is_symlink() && !file.exists());
    }
}

/// More than a pipe and the buffer before it hold.
fn long() -> String {
    (0..40).map(|number| format!("k{number}\t{}\n", "x".repeat(100_000))).collect()
}
