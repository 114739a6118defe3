//! The programs that are measured: built, started, read and stopped.

use crate::{Outcome, machine};
use forebay_workload::{PhaseReport, Report};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What must stay free beside a memory node or a database on tmpfs, bytes.
const SPARE_BYTES: u64 = 2 << 30;

/// The variable that names a program to measure, which then is not built.
const PROGRAM_VARIABLE: &str = "FOREBAY_PROGRAM";

/// The command `forebay`, built for release.
#[derive(Debug, Clone)]
pub struct Forebay {
    program: PathBuf,
}

impl Forebay {
    /// Builds it, unless the environment names one.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build() -> Outcome<Self> {
        if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
            return Ok(Self { program: program.into() });
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = ["build", "--release", "--package", "forebay-cli", "--message-format=json-render-diagnostics"];
        let output = Command::new(cargo)
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo cannot be started: {error}"))?;
        let messages = String::from_utf8_lossy(&output.stdout);
        let built = messages.lines().filter_map(executable).next_back();
        built.map(|program| Self { program }).ok_or_else(|| "the command `forebay` could not be built".into())
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs workloads against the memory nodes at `memory`.
    ///
    /// # Errors
    /// When the command fails, with what it said.
    pub fn report(&self, command: &str, memory: &[&MemoryNode], flags: &[String]) -> Outcome<Vec<PhaseReport>> {
        let mut arguments = vec![command.to_owned(), "--format=json".into()];
        if !memory.is_empty() {
            let addresses: Vec<_> = memory.iter().map(|node| node.address.as_str()).collect();
            arguments.push(format!("--memory={}", addresses.join(",")));
        }
        arguments.extend_from_slice(flags);
        let text = output(&self.program, &arguments)?;
        let report: Report = serde_json::from_str(&text).map_err(|error| format!("a report that is none: {error}"))?;
        Ok(report.benchmarks)
    }

    /// Starts a memory node over shared memory.
    ///
    /// # Errors
    /// When there is not enough memory, or the node does not start.
    pub fn memory_node(&self, number: u32, memory_bytes: u64, threads: usize) -> Outcome<MemoryNode> {
        require_memory(memory_bytes)?;
        let socket = std::env::temp_dir().join(format!("forebay-measure-{}-{number}", std::process::id()));
        let address = format!("shm:{}", socket.display());
        let mut child = Command::new(&self.program)
            .args(["memory-node", &format!("--listen={address}"), &format!("--memory={memory_bytes}")])
            .args([format!("--threads={threads}"), format!("--node={number}")])
            .env("FOREBAY_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the memory node cannot be started: {error}"))?;
        let mut ready = String::new();
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        let node = MemoryNode { child, address };
        match read {
            Some(Ok(_)) if ready.starts_with("ready") => Ok(node),
            _ => Err(format!("the memory node of {memory_bytes} bytes did not start")),
        }
    }
}

/// The program in a line of cargo's messages.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

/// A memory node; it is stopped when this is dropped.
#[derive(Debug)]
pub struct MemoryNode {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It removes its socket; that it may be gone already is no failure.
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Refuses to start what needs more memory than there is.
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

/// Runs a program to its end and gives what it printed.
///
/// # Errors
/// When it fails, with the end of what it said.
pub fn output(program: &Path, arguments: &[String]) -> Outcome<String> {
    let name = program.file_name().unwrap_or(program.as_os_str()).display().to_string();
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = ran.map_err(|error| format!("{name} cannot be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let end = said.lines().last().unwrap_or_default().to_owned();
        return Err(format!("`{name} {}` failed ({}): {end}", arguments.join(" "), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
