//! The programs of tests, several at a time.
//!
//! Cargo runs them one after the other, and leaves cores idle while a program waits for its last test, or for servers to
//! start. Here each worker takes the next program when its last one has ended. The [longest](LONGEST) begin first, so
//! that none of them runs alone at the end. The output of a program is shown in one piece. A suite's slice that is a run
//! of its own, with its own build, is a program like the others, and so is making the documentation.

use crate::command::{Step, Workspace, cores};
use crate::suites::{self, Suite};
use crate::{Failure, Outcome, documented};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No program takes longer, unless it hangs: then it is killed, and its output tells which of its tests did not end.
const LIMIT: Duration = Duration::from_secs(1800);

/// The programs that take longest, in this order, by the table that `cargo xtask test` prints at its end. Other programs
/// follow in the order in which they were announced.
const LONGEST: [&str; 10] = [
    "engine, integration",
    "cli, integration",
    "documentation",
    "planted, integration",
    "loom, slice",
    "linearizability, integration",
    "redis, integration",
    "shuttle, slice",
    "tree, integration",
    "storage, integration",
];

/// A program that runs tests.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    name: String,
    start: Start,
}

/// How a program is started.
#[derive(Debug, Clone)]
enum Start {
    /// A program that cargo built.
    Built(PathBuf),
    /// A command that builds and runs the slice of a suite.
    Slice(&'static Suite),
    /// Documentation and its tests.
    Documentation,
}

/// What became of a program.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) time: Duration,
    /// Why it failed, if it did.
    failed: Option<String>,
}

impl Program {
    /// Returns the program that a line of `cargo test --no-run` announces.
    pub(crate) fn announced(line: &str) -> Option<Self> {
        let (source, path) = line.trim_start().strip_prefix("Executable ")?.strip_suffix(')')?.split_once(" (")?;
        // A program's file has its target's name and a hash. For a library or binary, this is nearly its package's
        // name.
        let file = path.rsplit('/').next()?;
        let target = file.rsplit_once('-').map_or(file, |(target, _)| target);
        let kind = source.strip_prefix("unittests ").map_or("integration", |_| "unit");
        Some(Self { name: format!("{target}, {kind}"), start: Start::Built(path.into()) })
    }

    /// Returns the slice of a suite, if it is a run of its own.
    pub(crate) fn of_suite(suite: &'static Suite) -> Option<Self> {
        suite.runs_beside_tests().then(|| Self { name: format!("{}, slice", suite.name), start: Start::Slice(suite) })
    }

    /// Documentation, and the tests in it.
    pub(crate) fn documentation() -> Self {
        Self { name: "documentation".to_owned(), start: Start::Documentation }
    }

    fn step(&self, workspace: &Workspace) -> Step {
        match &self.start {
            Start::Built(path) => workspace.program(workspace.root().join(path)),
            Start::Slice(suite) => suites::slice(workspace, suite),
            Start::Documentation => documented::step(workspace),
        }
    }

    /// Runs it in the repository's folder. Its output goes to a file in `folder` first: processes that it leaves behind
    /// may keep the file open without holding up anybody.
    fn run(&self, workspace: &Workspace, threads: usize, folder: &Path) -> Ended {
        let start = Instant::now();
        let written = folder.join(match &self.start {
            Start::Built(path) => path.file_name().unwrap_or_default(),
            Start::Slice(suite) => OsStr::new(suite.name),
            Start::Documentation => OsStr::new("documentation"),
        });
        let step = self.step(workspace).environment("RUST_TEST_THREADS", threads.to_string());
        let status = File::create(&written).and_then(|file| step.write_to(file, LIMIT));
        let time = start.elapsed();
        let failed = match status {
            Ok(Some(status)) => (!status.success()).then(|| status.to_string()),
            Ok(None) => Some("did not end, and was killed".to_owned()),
            Err(error) => Some(format!("cannot be started: {error}")),
        };
        let mut out = std::io::stdout().lock();
        let how = failed.as_deref().unwrap_or("passed");
        let _ = writeln!(out, "\n==> {}: {how} after {:.1} s", self.name, time.as_secs_f64());
        let _ = out.write_all(&std::fs::read(&written).unwrap_or_default());
        let _ = std::fs::remove_file(&written);
        Ended { name: self.name.clone(), time, failed }
    }
}

/// Runs all programs: as many at a time as there are cores, with as many threads each. Many tests wait for processes,
/// for the disk, or for time to pass: their threads share the cores.
pub(crate) fn run(workspace: &Workspace, programs: &[Program], folder: &Path) -> Vec<Ended> {
    let cores = cores();
    let programs = longest_first(programs);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut ended = Vec::new();
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            ended.push(program.run(workspace, cores, folder));
        }
        ended
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    })
}

/// Returns the programs in the order in which they begin.
fn longest_first(programs: &[Program]) -> Vec<&Program> {
    let mut programs: Vec<_> = programs.iter().collect();
    programs.sort_by_key(|program| LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len()));
    programs
}

/// Names the programs that failed.
pub(crate) fn outcome(announced: &[Program], ended: &[Ended]) -> Outcome {
    let failed: Vec<_> =
        ended.iter().filter_map(|ended| Some(format!("{} ({})", ended.name, ended.failed.as_deref()?))).collect();
    let problem = if !announced.iter().any(|program| matches!(program.start, Start::Built(_))) {
        "cargo announced no program of tests"
    } else if ended.len() < announced.len() {
        "not all programs of tests were run"
    } else if !failed.is_empty() {
        &format!("tests failed: {}", failed.join(", "))
    } else {
        return Ok(());
    };
    Err(Failure::Failed(problem.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn programs_are_told_apart_by_what_cargo_says() {
        let name = |line| Program::announced(line).map(|program| program.name);
        let unit = "  Executable unittests src/lib.rs (target/debug/deps/forebay_tree-0123456789abcdef)";
        assert_eq!(name(unit).as_deref(), Some("forebay_tree, unit"));
        let other = "  Executable tests/counts.rs (target/debug/deps/counts-0123456789abcdef)";
        assert_eq!(name(other).as_deref(), Some("counts, integration"));
        assert_eq!(name("   Compiling forebay-tree v0.1.0 (/a/b)"), None);
    }

    #[test]
    fn the_longest_begin_first_and_the_others_as_they_were_announced() {
        let program = |name: &str| Program { name: name.into(), start: Start::Built(name.into()) };
        let programs = ["a, unit", LONGEST[1], "b, unit", LONGEST[0]].map(program);
        let order: Vec<_> = longest_first(&programs).iter().map(|program| program.name.as_str()).collect();
        assert_eq!(order, [LONGEST[0], LONGEST[1], "a, unit", "b, unit"]);
    }

    #[test]
    fn all_run_and_failures_are_named() {
        let scratch = Scratch::new("programs").unwrap_or_else(|_| panic!("a folder can be made"));
        let program = |name: &str, path: &str| Program { name: name.into(), start: Start::Built(path.into()) };
        let programs = [program("passes", "/bin/true"), program("fails", "/bin/false"), program("lacks", "/nowhere")];
        let workspace = Workspace::at(crate::root());
        let ended = run(&workspace, &programs, scratch.path());
        let Err(Failure::Failed(problem)) = outcome(&programs, &ended) else { panic!("two fail") };
        assert!(problem.contains("fails") && problem.contains("lacks") && !problem.contains("passes"), "{problem}");
        assert!(scratch.check().is_ok());
        assert!(outcome(&programs, &ended[..2]).is_err() && outcome(&[], &[]).is_err());
        assert!(outcome(&programs[..1], &run(&workspace, &programs[..1], scratch.path())).is_ok());
    }
}
