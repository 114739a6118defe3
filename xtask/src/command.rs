//! Running other programs: every step is announced and timed, and its failure is named.

use crate::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Builds use at most this many cores: the smallest machine that Forebay is checked on has two.
pub(crate) const MAX_JOBS: usize = 2;

/// The repository that is being checked.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    /// Environment variables of started programs.
    environment: Vec<(&'static str, OsString)>,
}

impl Workspace {
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root, environment: Vec::new() }
    }

    /// Returns the same, but started programs have their temporary files in this folder.
    pub(crate) fn with_temporary(&self, folder: &Path) -> Self {
        self.with("TMPDIR", folder)
    }

    /// Returns the same, for a build from scratch: cargo keeps nothing for the next build, what it builds has no line
    /// numbers for debuggers, and a crate is compiled in as many units as there are cores. That takes an eighth less
    /// time.
    pub(crate) fn building_afresh(&self) -> Self {
        let workspace = self.with("CARGO_INCREMENTAL", "0").with("CARGO_PROFILE_DEV_DEBUG", "0");
        workspace.with("CARGO_PROFILE_DEV_CODEGEN_UNITS", cores().to_string())
    }

    fn with(&self, name: &'static str, value: impl Into<OsString>) -> Self {
        let mut environment = self.environment.clone();
        environment.push((name, value.into()));
        Self { root: self.root.clone(), environment }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The cargo that started this program.
    pub(crate) fn cargo(&self) -> Step {
        self.program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// The cargo of the nightly toolchain.
    pub(crate) fn nightly_cargo(&self) -> Step {
        self.program("rustup").arguments(["run", "nightly", "cargo"])
    }

    /// Any program, started in the repository's folder.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Step {
        let mut command = Command::new(name);
        command.current_dir(&self.root).stdin(Stdio::null()).env("CARGO_BUILD_JOBS", jobs().to_string());
        // Remove the variables that tell this program about its own package. A build script may read variables of these
        // names, and then everything that depends on its crate is rebuilt whenever another program asks for it.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Step { command }
    }
}

/// Returns the number of jobs that the caller's environment asks for, but at most [`MAX_JOBS`] and no more than there
/// are cores.
fn jobs() -> usize {
    let wanted = std::env::var("CARGO_BUILD_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(MAX_JOBS);
    wanted.clamp(1, MAX_JOBS.min(cores()))
}

/// Returns how many cores this program may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Step {
    command: Command,
}

impl Step {
    pub(crate) fn arguments(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it with its output shown.
    pub(crate) fn run(self) -> Outcome {
        self.run_as(|command| command.status())
    }

    /// Runs it with its output shown, and each line of its errors noted.
    pub(crate) fn run_noting(self, mut note: impl FnMut(&str)) -> Outcome {
        self.run_as(|command| {
            let mut child = command.stderr(Stdio::piped()).spawn()?;
            for line in child.stderr.take().into_iter().flat_map(|errors| BufReader::new(errors).split(b'\n')) {
                let line = String::from_utf8_lossy(&line?).into_owned();
                eprintln!("{line}");
                note(&line);
            }
            child.wait()
        })
    }

    /// Runs it without showing its output, which goes to a file. A program that has not ended within `limit` is killed,
    /// and has no status.
    pub(crate) fn write_to(mut self, file: std::fs::File, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
        let mut child = self.command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill()?;
        child.wait().map(|_| None)
    }

    fn run_as(mut self, run: impl FnOnce(&mut Command) -> std::io::Result<ExitStatus>) -> Outcome {
        let line = self.line();
        eprintln!("\n==> {line}");
        let start = Instant::now();
        let status =
            run(&mut self.command).map_err(|error| Failure::Failed(format!("cannot start `{line}`: {error}")))?;
        let seconds = start.elapsed().as_secs_f64();
        if status.success() {
            eprintln!("==> done in {seconds:.1} s");
            Ok(())
        } else {
            Err(Failure::Failed(format!("`{line}` failed ({status}) after {seconds:.1} s")))
        }
    }

    /// Runs it without showing its output. Returns what it wrote to standard output, or `None` if it failed.
    pub(crate) fn output(mut self) -> Option<String> {
        let output = self.command.stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it without showing its output, and returns whether it succeeded.
    pub(crate) fn succeeds(self) -> bool {
        self.output().is_some()
    }

    /// The command as one would type it, with the variables that change what is built.
    fn line(&self) -> String {
        // Removed variables are not shown.
        let variables = self.command.get_envs().filter_map(|(name, value)| Some((name.to_string_lossy(), value?)));
        let mut words: Vec<String> = variables
            .filter(|(name, _)| !["CARGO_BUILD_JOBS", "TMPDIR"].contains(&&**name))
            .map(|(name, value)| format!("{name}={:?}", value.display().to_string()))
            .collect();
        let program = Path::new(self.command.get_program());
        words.push(program.file_name().map_or_else(OsString::new, OsString::from).display().to_string());
        words.extend(self.command.get_args().map(|argument| argument.display().to_string()));
        words.join(" ")
    }
}

/// Runs every step even when one fails, so that one run shows everything that needs repair.
pub(crate) fn run_all(steps: impl IntoIterator<Item = Outcome>) -> Outcome {
    let failures: Vec<String> = steps
        .into_iter()
        .filter_map(|step| match step {
            Ok(()) => None,
            Err(Failure::Failed(message) | Failure::Usage(message)) => Some(message),
        })
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("\nxtask: "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_what_changes_the_build() {
        let step = Workspace::at("/".into()).program("/bin/tool").arguments(["a", "b"]).environment("FLAGS", "--x y");
        assert_eq!(step.line(), "FLAGS=\"--x y\" tool a b");
    }

    #[test]
    fn what_hangs_is_killed() -> std::io::Result<()> {
        let run = |argument, limit| {
            let file = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
            Workspace::at("/".into()).program("sleep").arguments([argument]).write_to(file, Duration::from_secs(limit))
        };
        assert!(run("1000", 0)?.is_none());
        assert!(run("0", 100)?.is_some_and(|status| status.success()));
        Ok(())
    }

    #[test]
    fn all_steps_run_and_all_failures_are_named() {
        let failed = |message: &str| Err(Failure::Failed(message.into()));
        assert!(run_all([Ok(()), Ok(())]).is_ok());
        let Err(Failure::Failed(message)) = run_all([failed("first"), Ok(()), failed("second")]) else { panic!() };
        assert!(message.contains("first") && message.contains("second"));
    }
}
