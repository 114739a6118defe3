//! Runs the command with a time limit, and with a memory node in another process.

#![allow(dead_code, reason = "each test program uses a part")]

use forebay_env::{Clock, SystemClock};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long any command of these tests may take.
const LIMIT: Duration = Duration::from_secs(120);

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay");

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
    pub took: Duration,
}

impl Ended {
    /// Asserts that the command ended with this code. A failed command must say why in one line and
    /// must not panic.
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

/// A running command. Dropping it kills it and removes its files.
pub struct Running {
    child: Child,
    started: u64,
    clock: SystemClock,
    out: FreshPath,
    error: FreshPath,
    /// A memory node's socket: a node that is killed leaves the file behind.
    socket: Option<FreshPath>,
}

/// The path of a file or folder that is removed on drop, if it exists.
#[derive(Debug)]
pub struct FreshPath(PathBuf);

impl std::ops::Deref for FreshPath {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl AsRef<Path> for FreshPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}

/// A path in the tests' directory that no other test uses.
pub fn fresh_path(suffix: &str) -> FreshPath {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    FreshPath(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}{suffix}", std::process::id())))
}

/// Starts `forebay` with the words of `line`. A hangup or an interrupt ends it unless it handles the signal, even if
/// the process that runs the tests ignores it.
pub fn start(line: &str) -> Running {
    start_with(line, &[])
}

/// Starts `forebay`, which ignores hangups, as `nohup` starts it.
pub fn start_ignoring_hangups(line: &str) -> Running {
    spawn(Command::new("env").args(["--ignore-signal=HUP", PROGRAM]).stdin(Stdio::null()), line)
}

/// Starts `forebay` with variables.
pub fn start_with(line: &str, variables: &[(&str, &str)]) -> Running {
    start_by(Command::new("env"), line, variables)
}

/// Starts `forebay`, which may have `files` files open, and may raise that limit to `most`.
pub fn start_within(line: &str, files: u64, most: u64) -> Running {
    let mut shell = Command::new("sh");
    let limits = format!("ulimit -S -n {files} && ulimit -H -n {most} && exec env \"$@\"");
    shell.args(["-c", &limits, "sh"]);
    start_by(shell, line, &[])
}

/// Starts `forebay`, which may write no file longer than `kib` KiB, as on a full disk.
pub fn start_with_short_files(line: &str, kib: u64) -> Running {
    let mut shell = Command::new("sh");
    let limits = format!("trap '' XFSZ && ulimit -f {} && exec env \"$@\"", kib * 2);
    shell.args(["-c", &limits, "sh"]);
    start_by(shell, line, &[])
}

/// Starts `forebay`, whose user may have `most` processes and threads. The limit does not hold for root, so root starts
/// it as a user without other processes. This user gets the program as an open file, because the program may be where
/// only root has access.
pub fn start_with_threads(line: &str, most: u64) -> Running {
    const USER: &str = "61913";
    let nproc = format!("--nproc={most}");
    let mut limited = match rustix::process::geteuid().is_root() {
        true => {
            let mut other = Command::new("setpriv");
            other.args(["--reuid", USER, "--regid", USER, "--clear-groups", "prlimit"]);
            other
        }
        false => Command::new("prlimit"),
    };
    limited.args([&nproc, "env", "--default-signal=HUP", "/proc/self/fd/0"]);
    spawn(limited.stdin(File::open(PROGRAM).unwrap()), line)
}

/// Starts `forebay` with `env`, or with a command that takes the same arguments.
fn start_by(mut env: Command, line: &str, variables: &[(&str, &str)]) -> Running {
    env.args(["--default-signal=HUP,INT", PROGRAM]).envs(variables.iter().copied());
    spawn(env.stdin(Stdio::null()), line)
}

/// Starts a command that ends in the path of `forebay`.
fn spawn(command: &mut Command, line: &str) -> Running {
    let (out, error) = (fresh_path(".out"), fresh_path(".err"));
    let clock = SystemClock::new();
    let child = command
        .args(line.split_whitespace())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&error).unwrap())
        .spawn()
        .unwrap();
    Running { child, started: clock.now(), clock, out, error, socket: None }
}

/// Runs `forebay` to its end.
pub fn run(line: &str) -> Ended {
    start(line).wait()
}

/// Runs `forebay` with variables to its end.
pub fn run_with(line: &str, variables: &[(&str, &str)]) -> Ended {
    start_with(line, variables).wait()
}

/// Sends a signal to a child that nobody has waited for. If it is to stop the child, waits until the child stands
/// still: until then it may still answer. Returns false if it has ended instead.
pub fn signal(child: &Child, signal: Signal) -> bool {
    let pid = Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
    if signal != Signal::STOP {
        return true;
    }
    // Somebody else waits for its end.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), stopped).unwrap().is_some_and(|status| status.stopped())
}

impl Running {
    /// Waits for the end. A command that takes too long is killed, and then has no exit code.
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
        Ended { code: status.code(), out: read(&self.out), error: read(&self.error), took }
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

    /// Standard output so far.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    /// Sends a signal, as [`signal`]. The process may have ended by itself.
    pub fn signal(&self, signal: Signal) {
        self::signal(&self.child, signal);
    }

    /// The number of the process.
    pub fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until `done` accepts the standard output.
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

    /// Waits until a `bench` has opened its store. Only then does the loss of the node end it with
    /// code 4; before that, with code 3.
    #[track_caller]
    pub fn until_open(&mut self) {
        self.until(|out| out.contains("operations"));
    }

    /// Standard error so far.
    pub fn problem(&self) -> String {
        std::fs::read_to_string(&self.error).unwrap_or_default()
    }

    /// Waits until standard error contains `text`.
    #[track_caller]
    pub fn until_told(&self, text: &str) {
        let is_told = (0..LIMIT.as_millis() / 10).any(|_| {
            self.pause(Duration::from_millis(10));
            self.problem().contains(text)
        });
        assert!(is_told, "{}", self.problem());
    }

    /// Lets time pass.
    pub fn pause(&self, time: Duration) {
        self.clock.sleep(time);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A command that was waited for is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses to listen at: one of each back end between processes.
pub fn places() -> [String; 2] {
    [format!("shm:{}", socket_path().display()), "tcp://127.0.0.1:0".into()]
}

/// A short path: a socket's path has at most 107 bytes.
pub fn socket_path() -> PathBuf {
    let name = fresh_path("").file_name().unwrap().to_owned();
    std::env::temp_dir().join(format!("forebay-test-{}", name.to_string_lossy()))
}

/// Starts a memory node and waits until it serves. Returns it and its address.
#[track_caller]
pub fn start_node(listen: &str, flags: &str) -> (Running, String) {
    let mut node = start(&format!("memory-node --listen {listen} {flags}"));
    node.socket = listen.strip_prefix("shm:").map(|path| FreshPath(path.into()));
    let out = node.until(|out| out.ends_with('\n'));
    let address = out.strip_prefix("ready ").unwrap_or_else(|| panic!("{out:?}")).trim().to_owned();
    (node, address)
}
