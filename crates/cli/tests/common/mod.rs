//! Running the command: with a limit of time, and with a memory node in another process.

#![allow(dead_code, reason = "each test program uses a part")]

use forebay_env::{Clock, SystemClock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long any command of these tests may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What a command left.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
    pub took: Duration,
}

impl Ended {
    /// The command ended with this code; a failure says why in one line and never panicked.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.error.contains("panicked"), "{self:?}");
        if code != 0 {
            assert_eq!(self.error.lines().count(), 1, "{self:?}");
            assert!(self.error.starts_with("forebay: "), "{self:?}");
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    started: u64,
    clock: SystemClock,
    out: PathBuf,
    error: PathBuf,
}

/// A path in the tests' directory that no other test uses.
pub fn fresh_path(suffix: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}{suffix}", std::process::id()))
}

/// Starts `forebay` with the words of `line`.
pub fn start(line: &str) -> Running {
    let (out, error) = (fresh_path(".out"), fresh_path(".err"));
    let clock = SystemClock::new();
    let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&error).unwrap())
        .spawn()
        .unwrap();
    Running { child, started: clock.now(), clock, out, error }
}

/// Runs `forebay` to its end.
pub fn run(line: &str) -> Ended {
    start(line).wait()
}

impl Running {
    /// Waits for the end; a command that takes too long is killed, and then has no code.
    pub fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.age() > LIMIT {
                self.child.kill().unwrap();
            }
            self.clock.sleep(Duration::from_millis(5));
        };
        let took = self.age();
        let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let ended = Ended { code: status.code(), out: read(&self.out), error: read(&self.error), took };
        for path in [&self.out, &self.error] {
            let _ = std::fs::remove_file(path);
        }
        ended
    }

    /// Waits for the end of a node that was told to stop.
    #[track_caller]
    pub fn wait_stopped(self) {
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Time since the start.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(self.clock.now() - self.started)
    }

    /// What is on standard output so far.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until `done` says so of standard output.
    #[track_caller]
    pub fn until(&mut self, done: impl Fn(&str) -> bool) -> String {
        for _ in 0..LIMIT.as_millis() / 10 {
            let out = self.out();
            if done(&out) {
                return out;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "ended early: {}", self.problem());
            self.clock.sleep(Duration::from_millis(10));
        }
        panic!("waited too long: {}", self.problem());
    }

    /// Waits until a `bench` has opened its store: only then does losing the node end it with code
    /// 4, before that with code 3.
    #[track_caller]
    pub fn until_open(&mut self) {
        self.until(|out| out.contains("operations"));
    }

    fn problem(&self) -> String {
        std::fs::read_to_string(&self.error).unwrap_or_default()
    }

    /// Lets time pass.
    pub fn pause(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A command that was waited for is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses to listen at: one of each back end between processes.
pub fn places() -> [String; 2] {
    [format!("shm:{}", socket_path().display()), "tcp://127.0.0.1:0".into()]
}

/// A short path: that of a socket has 107 bytes at most.
pub fn socket_path() -> PathBuf {
    let name = fresh_path("").file_name().unwrap().to_owned();
    std::env::temp_dir().join(format!("forebay-test-{}", name.to_string_lossy()))
}

/// Starts a memory node and waits until it serves. Returns it and its address.
#[track_caller]
pub fn start_node(listen: &str, flags: &str) -> (Running, String) {
    let mut node = start(&format!("memory-node --listen {listen} {flags}"));
    let out = node.until(|out| out.ends_with('\n'));
    let address = out.strip_prefix("ready ").unwrap_or_else(|| panic!("{out:?}")).trim().to_owned();
    (node, address)
}
