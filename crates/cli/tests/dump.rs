//! Dumps written and loaded by the command.

use crate::common::{Ended, FreshPath, fresh_path, run};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

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
        // It is added to what is there, with the settings that are there.
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
    dump(&folder, "--from b --to a").expect(1);
    dump(&folder, "--keyspace one").expect(1);

    let folder = loaded("a\t1\n", "--keyspace one");
    let file = fresh_path(".tsv");
    fs::write(&file, "a\t2\nb\t3\n").unwrap();
    run(&format!("load {} --keyspace two {}", folder.flag(), file.display())).expect(0);
    assert_eq!(dump(&folder, "--keyspace one").expect(0).out, "a\t1\n");
    assert_eq!(dump(&folder, "--keyspace two").expect(0).out, "a\t2\nb\t3\n");
    assert!(dump(&folder, "--keyspace three").expect(1).error.contains("three"));
    // All keyspaces at once, by the keys that the database has.
    let (file, other) = (fresh_path(".bin"), Folder::new());
    dump(&folder, &format!("--format binary {}", file.display())).expect(0);
    run(&format!("load {} --format binary {}", other.flag(), file.display())).expect(0);
    assert_eq!(dump(&other, "--keyspace two").expect(0).out, "a\t2\nb\t3\n");
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
    // A line of JSON that was cut is none, and one that has all of its braces was not cut.
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
    // Links lead to a file that is there, or that is not there yet.
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
