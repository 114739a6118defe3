//! Processes that are killed, or stopped while another one takes over, on a real directory. `FOREBAY_ROUNDS=N` runs more
//! rounds.
//!
//! The child is this test's own program. It commits and logs numbers, and writes a line for each one that was acknowledged. The
//! parent kills or stops it after a random number of lines, takes over, and compares.

use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{
    CommitKind, CommitRegister, FileLogOptions, Frame, History, ObjectName, Recovery, Storage, StorageOptions,
};
use forebay_storage_conformance::servers::scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

const FOLDER: &str = "FOREBAY_KILL_FOLDER";
const ROUNDS: u64 = 15;

fn storage(folder: &Path) -> Storage {
    // Short segments, so that kills hit everything that happens between two of them.
    let file_log = FileLogOptions { segment_bytes: 4096, reserve_bytes: 1024 };
    let options = StorageOptions { file_log, ..Default::default() };
    Storage::open(folder.to_str().unwrap(), options).unwrap()
}

fn register() -> ObjectName {
    ObjectName::new("commit").unwrap()
}

fn log_of(epoch: u64) -> ObjectName {
    ObjectName::new("log").unwrap().numbered(epoch).unwrap()
}

fn claim(storage: &Storage) -> (CommitRegister, History) {
    let writer = Random::secret().unwrap();
    let claimed = CommitRegister::claim(Arc::clone(storage.objects()), &register(), writer, |history| {
        let kind = if history.last().is_none() { CommitKind::Snapshot } else { CommitKind::Edit };
        Ok((kind, Bytes::new()))
    });
    claimed.unwrap()
}

/// Ends a child that was fenced.
fn fenced<T>(error: forebay_storage::Error) -> T {
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    println!("fenced");
    std::process::exit(0)
}

/// Commits and logs until it is killed or fenced. Each line is a kind and a number that was acknowledged.
fn child(folder: &Path) {
    let storage = storage(folder);
    let (mut register, _) = claim(&storage);
    let log = storage.create_log(&log_of(register.epoch()), register.epoch()).unwrap();
    for mark in 0u64.. {
        let end = log.append(0, mark, &vec![mark as u8; (mark % 300) as usize]).unwrap_or_else(fenced);
        if mark % 3 == 0 {
            log.sync(end).unwrap_or_else(fenced);
            println!("log {mark}");
        }
        if mark % 20 == 10 {
            let kind = if mark % 60 == 10 { CommitKind::Snapshot } else { CommitKind::Edit };
            let number = register.commit(kind, Bytes::from(mark.to_string())).unwrap_or_else(fenced);
            register.prune().unwrap();
            println!("commit {number}");
        }
    }
}

/// Not a test: the program that the others start.
#[test]
fn runs_as_a_child() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        child(Path::new(&folder));
    }
}

struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The last number of each kind that was acknowledged.
    log: Option<u64>,
    commit: Option<u64>,
    is_fenced: bool,
}

impl Running {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kill::runs_as_a_child", "--nocapture"]).env(FOLDER, folder);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, log: None, commit: None, is_fenced: false }
    }

    /// Reads `count` acknowledgements, or all if there are fewer.
    fn read(&mut self, mut count: u64) {
        while count > 0
            && let Some(Ok(line)) = self.lines.next()
        {
            let number = |kind| line.split(kind).nth(1).and_then(|text| text.trim().parse().ok());
            self.is_fenced |= line.contains("fenced");
            self.log = number("log ").or(self.log);
            self.commit = number("commit ").or(self.commit);
            count -= 1;
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// Takes over. Returns the frames of the previous epoch's log, and the register's history.
fn take_over(folder: &Path) -> (Vec<Frame>, History) {
    let storage = storage(folder);
    let (_, history) = claim(&storage);
    let reader = storage.open_log(&log_of(history.epoch()), Recovery::Seal).unwrap();
    (reader.frames().unwrap(), history)
}

fn judge(frames: &[Frame], history: &History, running: &Running) {
    for (mark, frame) in (0..).zip(frames) {
        assert_eq!((frame.mark, &frame.payload[..]), (mark, &vec![mark as u8; (mark % 300) as usize][..]));
    }
    let logged = running.log.map_or(0, |mark| mark + 1);
    assert!(frames.len() as u64 >= logged, "{logged} were acknowledged, and {} are there", frames.len());
    let committed = running.commit.unwrap_or(0);
    assert!(history.last().is_some_and(|last| last.number >= committed), "commit {committed} is lost: {history:?}");
}

fn rounds() -> u64 {
    std::env::var("FOREBAY_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    let folder = scratch("kill");
    let mut random = Random::seeded(1);
    for _ in 0..rounds() {
        let mut running = Running::start(&folder);
        // Lines of the test framework come before.
        running.read(random.below(60) + 4);
        running.child.kill().unwrap();
        running.read(u64::MAX);
        running.child.wait().unwrap();
        // If it was killed before it had claimed anything, there is nothing to compare.
        if running.log.is_some() {
            let (frames, history) = take_over(&folder);
            judge(&frames, &history, &running);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_stopped_writer_acknowledges_nothing_after_a_takeover() {
    let folder = scratch("stop");
    let mut random = Random::seeded(2);
    for _ in 0..rounds() {
        let mut running = Running::start(&folder);
        running.read(random.below(60) + 8);
        running.signal(Signal::STOP);
        assert!(running.log.is_some(), "it has begun");
        let (frames, history) = take_over(&folder);
        running.signal(Signal::CONT);
        running.read(u64::MAX);
        running.child.wait().unwrap();
        assert!(running.is_fenced, "it went on");
        judge(&frames, &history, &running);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
