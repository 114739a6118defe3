//! `inspect`, `verify` and `repair`, on databases whole and damaged.

use crate::common::{Ended, FreshPath, fresh_path, run, start};
use forebay::{Durability, Options, Storage, StorageOptions, Store, Syncing, WriteBatch};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: u32 = 3000;

/// A folder with a database.
struct Folder(FreshPath);

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("{number}-").repeat(20).into_bytes()
}

impl Folder {
    /// A database of two shards with tables on several levels, deleted keys, and, unless it is closed, a log.
    fn new(is_closed: bool) -> Self {
        let folder = Self(fresh_path(".storage"));
        let options = Options {
            name: Some("default".to_owned()),
            storage: Some(Storage::open(&folder.0.to_string_lossy(), StorageOptions::default()).unwrap()),
            durability: Durability::Storage(Syncing::Sync),
            shards: 2,
            shard_bounds: forebay::ShardBounds::Given(vec![key(KEYS / 2)]),
            write_buffer_bytes: 64 << 10,
            target_table_bytes: 64 << 10,
            level1_bytes: 256 << 10,
            // Nothing changes once this is done, although the process lives.
            settle_after: None,
            ..Options::default()
        };
        let store = Store::embedded(128 << 20, options).unwrap();
        let mut batch = WriteBatch::new();
        for number in 0..KEYS {
            batch.put(&key(number), &value(number));
            if batch.len() == 100 {
                store.write(&batch).unwrap();
                batch = WriteBatch::new();
            }
        }
        store.flush().unwrap();
        store.wait_for_compactions().unwrap();
        for number in (0..KEYS).step_by(100) {
            store.delete(&key(number)).unwrap();
        }
        store.delete_range(&key(10), &key(20)).unwrap();
        if is_closed {
            store.close().unwrap();
        } else {
            // As if the process had been killed: nobody has the lock.
            std::mem::forget(store);
            fs::remove_file(folder.0.join("LOCK")).unwrap();
        }
        folder
    }

    fn run(&self, command: &str, flags: &str) -> Ended {
        run(&format!("{command} --storage {} {flags}", self.0.display()))
    }

    fn verify(&self) -> Ended {
        self.run("verify", "--format json")
    }

    /// Files below a folder of the database, the largest first.
    fn files(&self, below: &str) -> Vec<PathBuf> {
        fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { collect(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        collect(&self.0.join("default").join(below), &mut found);
        found.sort_by_key(|path| (u64::MAX - fs::metadata(path).unwrap().len(), path.clone()));
        found
    }

    /// The object of a segment of some kind.
    fn object(&self, kind: &str) -> PathBuf {
        let manifest = self.run("inspect manifest", "--format json").expect(0).json();
        let segments = manifest["segments"].as_array().unwrap();
        let found = segments.iter().find(|segment| segment["kind"] == kind).unwrap();
        self.0.join(found["object"].as_str().unwrap())
    }

    /// Saves what is left to another database; returns the report, and a dump of that database. The exit code says
    /// whether damage was met.
    fn repair(&self) -> (serde_json::Value, Vec<String>) {
        let before = self.state();
        let ended = self.run("repair", "--into saved --format json");
        let report = ended.json();
        ended.expect(if report["problems"] == serde_json::json!([]) { 0 } else { 6 });
        let dumped = self.run("dump", "--db saved --local-memory-size 256MiB").expect(0).out;
        assert_eq!(self.state(), before, "the damaged database was changed");
        (report, dumped.lines().map(str::to_owned).collect())
    }

    /// All of the damaged database.
    fn state(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = self.files("");
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

/// The lines of a dump of the whole database.
fn expected() -> Vec<String> {
    let lives = |number: &u32| !number.is_multiple_of(100) && !(10..20).contains(number);
    let line =
        |number| format!("{}\t{}", String::from_utf8(key(number)).unwrap(), String::from_utf8(value(number)).unwrap());
    (0..KEYS).filter(lives).map(line).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_whole_database_is_whole() {
    let folder = Folder::new(true);
    let state = folder.state();
    let report = folder.verify().expect(0).json();
    assert_eq!(report["problems"], serde_json::json!([]));
    let checked = &report["checked"][0];
    assert_eq!(checked["shards"], 2);
    assert!(checked["entries"].as_u64().unwrap() >= u64::from(KEYS) - 100, "{checked}");
    assert!(folder.run("verify", "").expect(0).out.contains("no problems"));

    let manifest = folder.run("inspect manifest", "--format json").expect(0).json();
    assert_eq!(manifest["database"][0]["shards"], 2);
    let table = &manifest["tables"][0];
    let flags = format!("--shard {} --format json {}", table["shard"], table["table"]);
    let shown = folder.run("inspect table", &flags).expect(0).json();
    let shown_entries = shown["entries"].as_array().unwrap().len() as u64;
    assert_eq!(shown_entries, table["entries"].as_u64().unwrap().min(1000));
    for segment in manifest["segments"].as_array().unwrap().iter().take(5) {
        let shown =
            folder.run("inspect segment", &format!("--format json --limit 3 {}", segment["object"].as_str().unwrap()));
        let shown = shown.expect(0).json();
        let rows = if segment["kind"] == "image" { &shown["entries"] } else { &shown["records"] };
        assert_eq!(rows.as_array().unwrap().len(), 3, "{segment}");
    }
    assert!(folder.run("inspect manifest", "").expect(0).out.contains("no problems"));
    assert_eq!(folder.state(), state, "looking changed something");

    let (report, lines) = folder.repair();
    assert_eq!((&report["problems"], lines), (&serde_json::json!([]), expected()));
    // Opened, the database is just as whole.
    let node_flags = "--local-memory-size 256MiB";
    assert_eq!(folder.run("dump", node_flags).expect(0).out.lines().count(), expected().len());
}

#[test]
fn logs_are_read_and_their_damage_is_told() {
    let folder = Folder::new(false);
    folder.verify().expect(0);
    let shown = folder.run("inspect log", "--format json").expect(0).json();
    let frames = shown["frames"].as_array().unwrap();
    assert!(frames.len() >= 30 && frames.iter().all(|frame| frame["records"].as_u64() > Some(0)), "{shown}");
    let log = folder.files("log").into_iter().find(|path| name(path).ends_with(".log")).unwrap();
    let frame = |at: usize| 40 + frames[at]["position"].as_u64().unwrap() as usize;

    // The end was torn: it was never acknowledged, or nobody can tell.
    let whole = fs::read(&log).unwrap();
    flip(&log, frame(frames.len() - 1) + 60);
    let report = folder.verify().expect(0).json();
    assert!(report["notes"][0]["detail"].as_str().unwrap().contains("never acknowledged"), "{report}");

    // The middle was durable.
    fs::write(&log, &whole).unwrap();
    flip(&log, frame(3) + 60);
    let ended = folder.verify().expect(6);
    assert!(ended.error.contains(&name(&log)) && ended.error.contains("durable"), "{ended:?}");
    folder.run("inspect log", "").expect(0);
    let opened = folder.run("dump", "--local-memory-size 256MiB").expect(6);
    assert!(opened.error.contains(&name(&log)), "{opened:?}");
    let (report, lines) = folder.repair();
    assert!(!report["problems"].as_array().unwrap().is_empty());
    assert!(folder.run("repair", "").expect(6).error.contains("--into"));
    // What came after the damage is there too: at most the contents of the damaged frame differ.
    assert!(lines.len() >= expected().len() - 5, "{}", lines.len());
}

/// Each frame says where it belongs.
#[test]
fn a_log_with_a_damaged_header_is_saved() {
    let folder = Folder::new(false);
    let log = folder.files("log").into_iter().find(|path| name(path).ends_with(".log")).unwrap();
    let whole = fs::read(&log).unwrap();
    for at in [0, 5, 12, 24, 33, 38] {
        flip(&log, at);
        assert!(folder.verify().expect(6).error.contains("it is damaged"), "byte {at}");
        let report = folder.run("repair", "--format json").expect(6).json();
        let salvaged = &report["salvaged"][0];
        let counts = ["keys_saved", "keys_lost", "keys_in_doubt"].map(|count| salvaged[count].as_u64());
        assert_eq!(counts, [Some(expected().len() as u64), Some(0), Some(0)], "byte {at}: {report}");
        assert!(report["problems"].to_string().contains(&name(&log)), "byte {at}: {report}");
        fs::write(&log, &whole).unwrap();
    }
    flip(&log, 12);
    assert_eq!(folder.repair().1, expected());
}

/// Bytes after the last frame: a torn write, or the last frame itself is damaged. The repair reports it.
#[test]
fn what_is_behind_the_end_of_a_log_is_told() {
    let folder = Folder::new(false);
    let log = folder.files("log").into_iter().find(|path| name(path).ends_with(".log")).unwrap();
    let whole = fs::read(&log).unwrap();
    let mut in_the_reserve = whole.clone();
    let last = in_the_reserve.len() - 1000;
    in_the_reserve[last] ^= 1;
    for torn in [in_the_reserve, [&whole[..], &b"junk".repeat(5)].concat()] {
        fs::write(&log, torn).unwrap();
        for command in ["verify", "inspect log"] {
            let ended = folder.run(command, "--format json").expect(0).json();
            assert_eq!(ended["problems"], serde_json::json!([]), "{command}: {ended}");
        }
        assert!(folder.run("inspect log", "").expect(0).out.contains("never acknowledged"));
        let (report, saved) = folder.repair();
        assert!(report["problems"].to_string().contains("a write that was torn"), "{report}");
        assert_eq!(saved, expected());
        fs::remove_dir_all(folder.0.join("saved")).unwrap();
    }
}

#[test]
fn what_a_log_has_lost_is_not_known() {
    let folder = Folder::new(false);
    let log = folder.files("log").into_iter().find(|path| name(path).ends_with(".log")).unwrap();
    let whole = fs::read(&log).unwrap();
    for is_there in [true, false] {
        if is_there {
            fs::write(&log, vec![0xa5; whole.len()]).unwrap()
        } else {
            fs::remove_file(&log).unwrap()
        }
        let report = folder.run("repair", "--format json").expect(6).json();
        let salvaged = &report["salvaged"][0];
        assert!(salvaged["keys_lost"].is_null(), "{report}");
        // Everything that is left may have been overwritten.
        assert!(salvaged["keys_saved"].as_u64() > Some(0), "{report}");
        assert_eq!(salvaged["keys_in_doubt"], salvaged["keys_saved"], "{report}");
        assert!(report["problems"].to_string().contains("nor is how many keys are lost"), "{report}");
        assert!(folder.run("repair", "").expect(6).out.contains("unknown"));
        let sure = folder.run("repair", "--without-doubt --format json").expect(6).json();
        assert_eq!(sure["salvaged"][0]["keys_saved"], 0, "{sure}");
    }
    // A damaged frame of one shard: later frames, and the other shard, are kept.
    let positions = |folder: &Folder| {
        let shown = folder.run("inspect log", "--format json").expect(0).json();
        let frames = shown["frames"].as_array().unwrap().clone();
        frames.iter().map(|frame| frame["position"].as_u64().unwrap() as usize).collect::<Vec<_>>()
    };
    fs::write(&log, &whole).unwrap();
    let positions = positions(&folder);
    flip(&log, 40 + positions[positions.len() - 10] + 60);
    let report = folder.run("repair", "--format json").expect(6).json();
    let salvaged = &report["salvaged"][0];
    assert!(salvaged["keys_lost"].is_null(), "{report}");
    let counts = ["keys_saved", "keys_in_doubt"].map(|count| salvaged[count].as_u64().unwrap());
    assert!(0 < counts[1] && counts[1] < counts[0], "{report}");
}

/// What a newer build wrote is not damaged, and an older build neither repairs nor changes it.
#[test]
fn what_a_newer_build_wrote_is_refused_and_stays() {
    // The place of the version, the start of what the checksum covers, and the place of the checksum, from the end.
    let newer = |path: &Path, start: usize, crc: usize, checksum: fn(&[u8]) -> u32| {
        let mut bytes = fs::read(path).unwrap();
        bytes[start + 4] = 9;
        let right = checksum(&bytes[start..crc]);
        bytes[crc..crc + 4].copy_from_slice(&right.to_le_bytes());
        fs::write(path, bytes).unwrap();
    };
    for what in ["log", "commit", "object"] {
        let folder = Folder::new(false);
        match what {
            "log" => {
                let log = folder.files("log").into_iter().find(|path| name(path).ends_with(".log")).unwrap();
                newer(&log, 0, 32, forebay_base::checksum);
            }
            "commit" => {
                let last = folder.files("commit").into_iter().max().unwrap();
                let length = fs::read(&last).unwrap().len();
                newer(&last, 0, length - 4, forebay_base::envelope_checksum);
            }
            _ => {
                let object = folder.object("image");
                let bytes = fs::read(&object).unwrap();
                let directory = bytes.windows(4).rposition(|bytes| bytes == b"FBBO").unwrap();
                newer(&object, directory, bytes.len() - 16, forebay_base::envelope_checksum);
            }
        }
        let before = folder.state();
        let verified = folder.verify().expect(1);
        assert!(verified.error.contains("format version 9, which this build does not know"), "{what}: {verified:?}");
        assert!(!verified.error.contains("damaged") && !verified.error.contains("repair"), "{what}: {verified:?}");
        for flags in ["", "--into saved"] {
            let repaired = folder.run("repair", flags).expect(1);
            assert!(repaired.error.contains("format version 9"), "{what}: {repaired:?}");
        }
        assert!(!folder.0.join("saved").exists(), "{what}");
        let opened = folder.run("dump", "--local-memory-size 256MiB").expect(1);
        assert!(opened.error.contains("format version 9"), "{what}: {opened:?}");
        // An image is read when this process owns the database.
        assert!(what == "object" || folder.state() == before, "{what}: something was changed");
    }
}

#[test]
fn objects_that_are_damaged_are_named() {
    for kind in ["image", "run", "block of a memtable"] {
        let folder = Folder::new(true);
        let manifest = folder.run("inspect manifest", "--format json").expect(0).json();
        if manifest["segments"].as_array().unwrap().iter().all(|segment| segment["kind"] != kind) {
            continue;
        }
        let object = folder.object(kind);
        let whole = fs::read(&object).unwrap();
        let check = |what: &str| {
            let ended = folder.verify().expect(6);
            assert!(ended.out.contains(&name(&object)), "{kind} {what}: {ended:?}");
            assert!(ended.error.contains("problems"), "{kind} {what}: {ended:?}");
            // The message tells what to do next, and not what was just done.
            let advice = ["forebay repair", "forebay verify"].map(|advice| ended.error.contains(advice));
            assert_eq!(advice, [true, false], "{kind} {what}: {ended:?}");
        };
        flip(&object, whole.len() / 3);
        check("flipped");
        truncate(&object, whole.len() as u64 / 2);
        check("cut");
        fs::remove_file(&object).unwrap();
        check("gone");
        let opened = folder.run("dump", "--local-memory-size 256MiB").expect(6);
        assert!(opened.error.contains(&name(&object)) && opened.error.contains("forebay repair"), "{opened:?}");
        // What the object held is lost, and nothing else; no line differs.
        let (report, lines) = folder.repair();
        let all = expected();
        // The database has settled while it was dumped, and may have released the object.
        let is_named = report["problems"].to_string().contains(&name(&object));
        assert!(is_named || lines == all, "{kind}: {report}");
        assert!(lines.iter().all(|line| all.contains(line)), "{kind}");
        let lost = report["salvaged"][0]["keys_lost"].as_u64().unwrap() as usize;
        assert!(lines.len() + lost >= all.len(), "{kind}: {} saved, {lost} lost", lines.len());
        if kind == "image" {
            // Records are found without their index.
            assert_eq!(lines, all);
        }
    }
}

#[test]
fn a_register_that_is_gone_or_damaged() {
    for is_closed in [true, false] {
        for is_gone in [true, false] {
            let folder = Folder::new(is_closed);
            for commit in folder.files("commit") {
                if is_gone { fs::remove_file(&commit).unwrap() } else { flip(&commit, 70) }
            }
            assert!(folder.verify().expect(6).error.contains("default/commit"));
            let manifest = folder.run("inspect manifest", "--format json").expect(6).json();
            assert!(!manifest["objects"].as_array().unwrap().is_empty());
            let (report, lines) = folder.repair();
            assert!(report["notes"].to_string().contains("without the register"));
            assert_eq!(lines, expected(), "closed: {is_closed}, gone: {is_gone}");
        }
    }
}

#[test]
fn a_repair_that_was_killed_passes_for_no_database_and_is_made_again() {
    let folder = Folder::new(true);
    let (saved, commits) = (folder.0.join("saved"), folder.0.join("saved/commit"));
    loop {
        let mut repair = start(&format!("repair --storage {} --into saved", folder.0.display()));
        let is_begun = || fs::read_dir(&commits).is_ok_and(|mut commits| commits.next().is_some());
        while !is_begun() && !repair.has_ended() {
            repair.pause(Duration::from_millis(1));
        }
        // The repair is killed.
        drop(repair);
        let ended = folder.run("verify", "--db saved");
        if ended.error.contains("not whole") {
            assert!(ended.error.contains("saved/commit"), "{ended:?}");
            ended.expect(6);
            break;
        }
        // The repair was faster than the kill.
        fs::remove_dir_all(&saved).unwrap();
    }
    let ended = folder.run("dump", "--db saved --local-memory-size 256MiB");
    // The database may not exist yet.
    assert!(ended.code == Some(1) && ended.out.is_empty(), "{ended:?}");
    let (report, lines) = folder.repair();
    assert_eq!((&report["problems"], lines), (&serde_json::json!([]), expected()));
    folder.run("verify", "--db saved").expect(0);
    assert!(folder.run("repair", "--into saved").expect(1).error.contains("already"));
}

#[test]
fn a_record_that_is_too_long_for_a_repair_names_the_flag_for_more_memory() {
    let (folder, dump) = (fresh_path(".storage"), fresh_path(".tsv"));
    let value = "v".repeat(3 << 20);
    fs::write(&dump, format!("key\t{value}\n")).unwrap();
    let place = format!("--storage {}", folder.display());
    run(&format!("load {place} --local-memory-size 256MiB {}", dump.display())).expect(0);
    let refused = run(&format!("repair {place} --into saved --local-memory-size 64MiB")).expect(1);
    assert!(refused.error.contains("--local-memory-size"), "{refused:?}");
    // 32 times the record's length is enough, and so is the default.
    for flags in ["--into saved --local-memory-size 128MiB", "--into again"] {
        run(&format!("repair {place} {flags}")).expect(0);
    }
    assert_eq!(
        run(&format!("dump {place} --db again --local-memory-size 256MiB")).expect(0).out.len(),
        value.len() + 5
    );
}

#[test]
fn checkpoints_and_backups_are_verified() {
    let folder = Folder::new(true);
    let copies = Folder(fresh_path(".copies"));
    let [storage, copied] = [&folder.0, &copies.0].map(|path| format!("--storage {}", path.display()));
    let memory = "--local-memory-size 256MiB";
    let backup = |flags: &str| run(&format!("backup {flags}"));
    backup(&format!("create {storage} {memory} one")).expect(0);
    backup(&format!("copy {storage} one --to {}", copies.0.display())).expect(0);
    let report = run(&format!("verify {copied} --format json")).expect(0).json();
    let checked = &report["checked"][0];
    assert_eq!((&checked["checkpoints"], &checked["shards"], &checked["orphans"]), (&1.into(), &2.into(), &0.into()));
    assert!(run(&format!("verify {copied}")).expect(0).out.contains("no problems"));

    // A damaged object in the source or in the copy.
    let there = copies.files("segment").remove(0);
    let object = folder.0.join(there.strip_prefix(&*copies.0).unwrap());
    assert_eq!(fs::read(&object).unwrap(), fs::read(&there).unwrap());
    flip(&there, 100);
    assert!(run(&format!("verify {copied}")).expect(6).error.contains(&name(&there)));
    fs::remove_file(&there).unwrap();
    assert!(run(&format!("verify {copied}")).expect(6).error.contains(&name(&there)));
    flip(&object, 100);
    let ended = backup(&format!("copy {storage} one --to {}", copies.0.display())).expect(6);
    assert!(ended.error.contains(&name(&object)) && !there.exists(), "{ended:?}");
    flip(&object, 100);
    backup(&format!("copy {storage} one --to {}", copies.0.display())).expect(0);
    run(&format!("verify {copied}")).expect(0);

    // A damaged checkpoint is no damage of the database.
    flip(&folder.files("checkpoint").remove(0), 9);
    let ended = run(&format!("verify {storage}")).expect(6);
    assert!(ended.error.contains("default/checkpoint/one") && ended.out.contains("checked"), "{ended:?}");
    assert_eq!(folder.run("dump", memory).expect(0).out.lines().count(), expected().len());
    backup(&format!("create {storage} {memory} two")).expect(0);
    backup(&format!("drop {storage} {memory} one")).expect(0);
    run(&format!("verify {storage}")).expect(0);
}

#[test]
fn what_is_not_there_is_named() {
    let folder = Folder::new(true);
    let nowhere = run("verify --storage /nowhere/at/all").expect(1);
    assert!(nowhere.error.contains("/nowhere/at/all"), "{nowhere:?}");
    assert!(!Path::new("/nowhere").exists());
    for command in ["verify", "inspect manifest", "inspect log", "repair"] {
        let other = folder.run(command, "--db other").expect(1);
        assert!(other.error.contains("there is no database") && other.error.contains("other"), "{other:?}");
    }
    assert!(folder.run("inspect table", "77777").expect(1).error.contains("inspect manifest"));
    assert!(folder.run("inspect segment", "default/segment/x").expect(1).error.contains("default/segment/x"));
    assert!(folder.run("inspect log", "7/7").expect(1).error.contains("7/7"));
    assert!(folder.run("inspect log", "seven").expect(2).error.contains("1/1"));
    assert!(folder.run("repair", "--into default").expect(2).error.contains("default-repaired"));
    assert!(folder.run("verify", "--memory tcp://127.0.0.1:1").expect(3).error.contains("127.0.0.1:1"));
    assert!(run("verify").expect(2).error.contains("--storage"));
    // Without rights. Root may do everything, so for root this tests nothing.
    use std::os::unix::fs::PermissionsExt;
    let commits = folder.0.join("default/commit");
    fs::set_permissions(&commits, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&commits).is_err() {
        let refused = folder.verify();
        assert!(refused.error.contains("access denied") && refused.error.contains("commit"), "{refused:?}");
    }
    fs::set_permissions(&commits, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_database_on_memory_nodes_is_opened_and_verified() {
    let (node, address) = crate::common::start_node("tcp://127.0.0.1:0", "--memory 128MiB");
    run(&format!("bench --memory {address} --db named --num 5000 --benchmarks fillrandom")).expect(0);
    let report = run(&format!("verify --memory {address} --db named --format json")).expect(0).json();
    assert!(report["checked"][0]["entries"].as_u64() > Some(1000), "{report}");
    assert_eq!(report["problems"], serde_json::json!([]));
    run(&format!("verify --memory {address} --db other")).expect(1);
    drop(node);
}

/// All keys of the damaged table were written again later, so nothing of it is needed.
#[test]
fn what_repair_can_do_without_is_told_as_verify_tells_it() {
    let (folder, file) = (Folder(fresh_path(".storage")), fresh_path(".tsv"));
    let load = |value: &str| {
        let lines: String = (0..1000).map(|number| format!("key{number:06}\t{value}\n")).collect();
        fs::write(&*file, &lines).unwrap();
        let flags = format!("--local-memory-size 256MiB --bulk-load --compression none {}", file.display());
        folder.run("load", &flags).expect(0);
        lines
    };
    load(&"x".repeat(200));
    let newest = load("newest");
    let damaged = folder.files("segment").remove(0);
    flip(&damaged, 50_000);
    let problems = |report: &serde_json::Value| -> Vec<String> {
        let problems = report["problems"].as_array().unwrap().iter();
        problems.map(|problem| problem["object"].as_str().unwrap().to_owned()).collect()
    };
    let verified = problems(&folder.verify().json());
    let (report, saved) = folder.repair();
    assert!(!verified.is_empty() && problems(&report) == verified, "{verified:?}, {report}");
    assert_eq!(saved.len(), 1000);
    assert!(saved.iter().map(|line| format!("{line}\n")).eq(newest.split_inclusive('\n').map(str::to_owned)));
}

/// The exit code says that something is damaged, even if the reader of the report is gone.
#[test]
fn damage_counts_though_nobody_reads_the_report() {
    let folder = Folder::new(true);
    let damaged = folder.files("segment").remove(0);
    flip(&damaged, fs::metadata(&damaged).unwrap().len() as usize / 2);
    for command in ["verify", "repair"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut unread = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let ended = unread.args([command, "--storage"]).arg(&*folder.0).stdout(writer).output().unwrap();
        assert_eq!(ended.status.code(), Some(6), "{command}: {ended:?}");
    }
}
