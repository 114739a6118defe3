//! Builds, starts, reads and stops the measured programs.

use crate::{Outcome, machine};
use forebay_env::thread::run_all;
use forebay_workload::{PhaseReport, Report};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Memory that must stay free besides a memory node or a database on tmpfs, bytes.
const SPARE_BYTES: u64 = 2 << 30;

/// The variable that names a program to measure. Then none is built.
const PROGRAM_VARIABLE: &str = "FOREBAY_PROGRAM";

/// The command `forebay`, built for release.
#[derive(Debug, Clone)]
pub struct Forebay {
    program: PathBuf,
    /// The one core that its processes may use, if not all.
    core: Option<usize>,
}

impl Forebay {
    /// Builds it, unless the environment names one.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build() -> Outcome<Self> {
        if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
            return Ok(Self { program: program.into(), core: None });
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["build", "--release", "--package", "forebay-cli", "--message-format=json-render-diagnostics"];
        let mut command = Command::new(cargo);
        // As in `xtask/src/command.rs`: otherwise what is built here would be built again there.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        let output = command
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo cannot be started: {error}"))?;
        let messages = String::from_utf8_lossy(&output.stdout);
        let built = messages.lines().filter_map(executable).next_back();
        built
            .map(|program| Self { program, core: None })
            .ok_or_else(|| "the command `forebay` could not be built".into())
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The same command, with its processes restricted to this core.
    #[must_use]
    pub fn on_core(&self, core: usize) -> Self {
        Self { core: Some(core), ..self.clone() }
    }

    /// What to start for a call with these arguments.
    fn call(&self, arguments: Vec<String>) -> (&Path, Vec<String>) {
        let Some(core) = self.core else { return (&self.program, arguments) };
        let mut all = vec!["--cpu-list".to_owned(), core.to_string(), self.program.display().to_string()];
        all.extend(arguments);
        (Path::new("taskset"), all)
    }

    /// Starts a serving process, and waits until it says that it is ready. Returns what it said then.
    ///
    /// # Errors
    /// When it cannot be started, or ends before.
    pub fn start(&self, arguments: Vec<String>) -> Outcome<(Running, String)> {
        let (program, arguments) = self.call(arguments);
        Running::start(program, &arguments, |line| line.starts_with("ready"))
    }

    /// Runs workloads against these memory nodes, or in memory of the process.
    ///
    /// # Errors
    /// When the command fails; the error has its output.
    pub fn report(&self, command: &str, memory: &[&MemoryNode], flags: &[String]) -> Outcome<Vec<PhaseReport>> {
        self.counted(command, memory, flags).map(|(phases, _)| phases)
    }

    /// As [`Forebay::report`], with the bytes that the process wrote ([`Ran::written_bytes`]).
    ///
    /// # Errors
    /// The same.
    pub fn counted(&self, command: &str, memory: &[&MemoryNode], flags: &[String]) -> Outcome<(Vec<PhaseReport>, u64)> {
        let mut arguments = vec![command.to_owned(), "--format=json".into()];
        arguments.extend(memory_flag(memory));
        arguments.extend_from_slice(flags);
        let (program, arguments) = self.call(arguments);
        let Ran { text, written_bytes } = run(program, &arguments)?;
        let report: Report = serde_json::from_str(&text).map_err(|error| format!("a report that is none: {error}"))?;
        Ok((report.benchmarks, written_bytes))
    }

    /// Starts a memory node over shared memory.
    ///
    /// # Errors
    /// When there is not enough memory, or the node does not start.
    pub fn memory_node(&self, number: u32, memory_bytes: u64, threads: usize) -> Outcome<MemoryNode> {
        self.memory_node_with(number, memory_bytes, &[format!("--threads={threads}")])
    }

    /// As [`Forebay::memory_node`], with these flags.
    ///
    /// # Errors
    /// The same.
    pub fn memory_node_with(&self, number: u32, memory_bytes: u64, flags: &[String]) -> Outcome<MemoryNode> {
        require_memory(memory_bytes)?;
        let socket = std::env::temp_dir().join(format!("forebay-measure-{}-{number}", std::process::id()));
        let address = format!("shm:{}", socket.display());
        let mut arguments = vec![
            "memory-node".to_owned(),
            format!("--listen={address}"),
            format!("--memory={memory_bytes}"),
            format!("--node={number}"),
        ];
        arguments.extend_from_slice(flags);
        let (process, _) = self.start(arguments)?;
        Ok(MemoryNode { _process: process, address })
    }
}

/// The flag that names memory nodes.
pub fn memory_flag(memory: &[&MemoryNode]) -> Option<String> {
    let addresses: Vec<_> = memory.iter().map(|node| node.address.as_str()).collect();
    (!addresses.is_empty()).then(|| format!("--memory={}", addresses.join(",")))
}

/// The program in a line of cargo's messages.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

/// A memory node; it is stopped when this is dropped.
#[derive(Debug)]
pub struct MemoryNode {
    _process: Running,
    /// Its address.
    pub address: String,
}

/// A running process; it is asked to end when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Kept, so that later output of the process does not fail.
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program, and waits for a line that says that it is ready.
    ///
    /// # Errors
    /// When it cannot be started, or ends before.
    pub fn start(program: &Path, arguments: &[String], is_ready: impl Fn(&str) -> bool) -> Outcome<(Self, String)> {
        let mut child = Command::new(program)
            .args(arguments)
            .env("FOREBAY_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let stdout = child.stdout.take().ok_or("a process without its output")?;
        let mut running = Self { child, stdout: BufReader::new(stdout) };
        let mut line = String::new();
        loop {
            line.clear();
            match running.stdout.read_line(&mut line) {
                Ok(1..) if is_ready(&line) => return Ok((running, line)),
                Ok(1..) => {}
                _ => return Err(format!("`{} {}` did not start", program.display(), arguments.join(" "))),
            }
        }
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When that is not possible.
    pub fn kill(mut self) -> Outcome {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(process) = process_id(&self.child) {
            // It is not a failure if the process is gone already.
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn process_id(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Fails if less memory than this is available.
///
/// # Errors
/// What is missing.
pub fn require_memory(bytes: u64) -> Outcome {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match machine::available_bytes() {
        Some(available) if available < bytes + SPARE_BYTES => Err(format!(
            "needs {:.1} GiB of memory with what must stay free, and {:.1} GiB are available",
            gib(bytes + SPARE_BYTES),
            gib(available)
        )),
        _ => Ok(()),
    }
}

/// The output and counts of a program that has ended.
#[derive(Debug)]
pub struct Ran {
    /// What it printed.
    pub text: String,
    /// Bytes that it passed to write calls, as the system counts them: those to files, and what it printed.
    pub written_bytes: u64,
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// When it fails; the error has the end of its output.
pub fn output(program: &Path, arguments: &[String]) -> Outcome<String> {
    run(program, arguments).map(|ran| ran.text)
}

/// Runs a program to its end.
///
/// # Errors
/// When it fails; the error has the end of its output.
pub fn run(program: &Path, arguments: &[String]) -> Outcome<Ran> {
    let name = program.file_name().unwrap_or(program.as_os_str()).display().to_string();
    let failed = |error: std::io::Error| format!("{name} cannot be run: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    // Both at once: a program waits when one of them is full.
    let mut read = run_all(Vec::from(pipes), |pipe| {
        let mut bytes = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
    })
    .into_iter();
    let mut next = || read.next().flatten().unwrap_or_else(|| Ok(Vec::new())).map_err(failed);
    let (text, said) = (next()?, next()?);
    // Once its exit status is collected, the system no longer knows what it wrote.
    if let Some(process) = process_id(&child) {
        let until_it_ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(process), until_it_ends).map_err(|error| failed(error.into()))?;
    }
    let written_bytes = written_bytes(child.id()).unwrap_or(0);
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        let end = String::from_utf8_lossy(&said).trim().lines().last().unwrap_or_default().to_owned();
        return Err(format!("`{name} {}` failed ({status}): {end}", arguments.join(" ")));
    }
    Ok(Ran { text: String::from_utf8_lossy(&text).into_owned(), written_bytes })
}

/// Bytes that a process has passed to write calls.
fn written_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_prints_and_writes_is_known_when_it_has_ended() {
        let ran = run(Path::new("echo"), &["four".to_owned()]).unwrap();
        assert_eq!((ran.text.as_str(), ran.written_bytes), ("four\n", 5));
        let failed = run(Path::new("cat"), &["/nowhere/at/all".to_owned()]).unwrap_err();
        assert!(failed.contains("/nowhere/at/all"), "{failed}");
    }

    #[test]
    fn a_program_that_says_more_than_a_pipe_holds_ends() {
        let script = "head -c 300000 /dev/zero >&2; echo done";
        let ran = run(Path::new("sh"), &["-c".to_owned(), script.to_owned()]).unwrap();
        assert_eq!(ran.text, "done\n");
    }

    #[test]
    fn a_program_that_ends_before_it_is_ready_is_an_error() {
        let started = |ready: &'static str| {
            Running::start(Path::new("echo"), &["ready".into()], move |line| line.contains(ready))
        };
        assert_eq!(started("ready").map(|(_, line)| line), Ok("ready\n".to_owned()));
        assert!(started("never").is_err());
    }
}
