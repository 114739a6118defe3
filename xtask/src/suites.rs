//! The long suites: one row each, run by name in full, and some as a short slice in
//! `cargo xtask test`.
//!
//! Wherever possible, a slice is a test like any other, of the same build. A suite that builds with flags of its own
//! gets a target folder of its own, so that it does not throw away what others built; its slice is a run of the suite.

use crate::command::{Step, Workspace};
use crate::{Failure, Outcome, setup};

/// A long suite.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The folder of the package whose tests these are; empty when it is the whole workspace.
    folder: &'static str,
    toolchain: Toolchain,
    /// Variables of the build and the run.
    environment: &'static [(&'static str, &'static str)],
    /// The arguments of cargo.
    command: &'static [&'static str],
    /// What follows the command in a full run, unless the command line says otherwise.
    full: &'static [&'static str],
    /// The part of it that runs in `cargo xtask test`.
    slice: Slice,
}

impl Suite {
    /// Whether `cargo xtask test` runs it beside the tests.
    pub(crate) fn runs_beside_tests(&self) -> bool {
        matches!(self.slice, Slice::Run(_))
    }
}

/// The part of a suite that runs in `cargo xtask test`.
#[derive(Debug, Clone, Copy)]
enum Slice {
    Nothing,
    /// Tests in this file, with all other tests.
    Tests(&'static str),
    /// The suite's command, followed by this.
    Run(&'static [&'static str]),
}

/// The toolchain that a suite needs.
#[derive(Debug, Clone, Copy)]
enum Toolchain {
    Stable,
    /// Nightly with this component.
    Nightly(&'static str),
    /// Nightly, and the cargo subcommand `fuzz`, installed from the registry when it is missing.
    Fuzzer,
    /// Stable with this cargo subcommand, installed from the registry when it is missing.
    Subcommand(&'static str),
    /// Stable, and this program from this Debian package.
    Program(&'static str, &'static str),
}

/// A target of `fuzz/`, for an hour.
const fn fuzz(name: &'static str, about: &'static str, command: &'static [&'static str]) -> Suite {
    Suite {
        name,
        about,
        folder: "fuzz",
        toolchain: Toolchain::Fuzzer,
        environment: &[],
        command,
        full: &["-max_total_time=3600"],
        slice: Slice::Nothing,
    }
}

/// Tests of the crates with unsafe code, in the interpreter.
const INTERPRETED: &[&str] = &[
    "miri",
    "test",
    "--no-fail-fast",
    "--package",
    "forebay-fabric",
    "--package",
    "forebay-memtable",
    "--lib",
    "--test",
    "sim",
    "--test",
    "model",
    "--test",
    "threads",
];

pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "loom",
        about: "the memtable's kernels under loom: every interleaving of 2-3 threads",
        folder: "crates/memtable",
        toolchain: Toolchain::Stable,
        environment: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
        command: &["test", "--package", "forebay-memtable", "--test", "loom"],
        full: &[],
        slice: Slice::Run(&[]),
    },
    Suite {
        name: "shuttle",
        about: "the whole memtable under shuttle: random schedules",
        folder: "crates/memtable",
        toolchain: Toolchain::Stable,
        environment: &[("RUSTFLAGS", "--cfg shuttle"), ("CARGO_TARGET_DIR", "target/shuttle")],
        command: &["test", "--package", "forebay-memtable", "--test", "shuttle"],
        full: &[],
        slice: Slice::Run(&[]),
    },
    Suite {
        name: "miri",
        about: "the tests of fabric and memtable, all their unsafe code, under Miri (nightly)",
        folder: "crates/fabric",
        toolchain: Toolchain::Nightly("miri"),
        environment: &[("MIRIFLAGS", "-Zmiri-disable-isolation"), ("CARGO_TARGET_DIR", "target/miri")],
        command: INTERPRETED,
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "miri-seeds",
        about: "those with several threads under Miri with tree borrows: eight schedules of each",
        folder: "crates/fabric",
        toolchain: Toolchain::Nightly("miri"),
        environment: &[
            ("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-many-seeds=0..8"),
            ("CARGO_TARGET_DIR", "target/miri"),
        ],
        command: INTERPRETED,
        // Tests with threads have this word in their names.
        full: &["--", "threads"],
        slice: Slice::Nothing,
    },
    Suite {
        name: "tsan",
        about: "fabric and memtable under ThreadSanitizer (nightly with rust-src)",
        folder: "crates/fabric",
        toolchain: Toolchain::Nightly("rust-src"),
        environment: &[
            // The sanitizer sees memory come and go through the C library only.
            ("RUSTFLAGS", "-Zsanitizer=thread --cfg=rustix_use_libc"),
            ("RUSTDOCFLAGS", "-Zsanitizer=thread"),
            ("CARGO_TARGET_DIR", "target/tsan"),
        ],
        command: &[
            "test",
            "-Zbuild-std",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--package",
            "forebay-fabric",
            "--package",
            "forebay-memtable",
            "--lib",
            "--tests",
        ],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "seeds",
        about: "the simulated fabric: 2000 seeds of 20000 operations with faults",
        folder: "testing/conformance",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-conformance", "--bin", "fabric-seeds", "--"],
        full: &["--seeds", "2000", "--operations", "20000"],
        slice: Slice::Tests("testing/conformance/tests/seeds.rs"),
    },
    Suite {
        name: "simulation",
        about: "a whole database on one thread: 10000 seeds of 20000 calls with faults (--first N --seeds N: some of them)",
        folder: "testing/simulation",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-simulation", "--bin", "engine-seeds", "--"],
        full: &["--seeds", "10000", "--operations", "20000", "--all"],
        slice: Slice::Tests("testing/simulation/tests/seeds.rs"),
    },
    Suite {
        name: "crash-images",
        about: "20000 images of databases' storage after power failures, each opened and checked (--first N --seeds N)",
        folder: "testing/simulation",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-simulation", "--bin", "crash-images", "--"],
        full: &["--seeds", "200", "--images", "100", "--all"],
        slice: Slice::Tests("testing/simulation/tests/seeds.rs"),
    },
    Suite {
        name: "tenant-seeds",
        about: "the memory node's state with two tenants of which one is hostile: 10000 seeds",
        folder: "crates/memory-node",
        toolchain: Toolchain::Stable,
        environment: &[("FOREBAY_SEEDS", "10000")],
        command: &["test", "--profile", "seeds", "--package", "forebay-memory-node", "--lib", "a_hostile_tenant"],
        full: &[],
        slice: Slice::Tests("crates/memory-node/src/state/tests.rs"),
    },
    Suite {
        name: "storage-servers",
        about: "storage on S3, HDFS and what plays Google's store, which the tests start on loopback",
        folder: "testing/storage",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--package", "forebay-storage-conformance", "--test", "storage", "--", "servers::"],
        full: &[],
        slice: Slice::Tests("testing/storage/tests/servers.rs"),
    },
    Suite {
        name: "redis-differential",
        about: "random commands to a real Redis and to the server: a million of each family (--family NAME, --engine tree)",
        folder: "testing/redis",
        toolchain: Toolchain::Program("redis-server", "redis-server"),
        environment: &[],
        command: &["run", "--release", "--package", "forebay-redis-differential", "--"],
        full: &["--commands", "1000000"],
        slice: Slice::Tests("testing/redis/tests/short.rs"),
    },
    Suite {
        name: "traces",
        about: "what a collector of OpenTelemetry gets",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--package", "forebay-cli", "--features", "traces", "--test", "traces", "--"],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "redis-crowd",
        about: "ten thousand connections to the server at once, with slow readers among them",
        folder: "testing/redis",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--package", "forebay-redis-differential", "--test", "redis", "--", "connections::"],
        full: &["--ignored"],
        slice: Slice::Nothing,
    },
    Suite {
        name: "tree-seeds",
        about: "the shared tree: 10000 seeds of eight clients' histories in the simulated fabric, with faults",
        folder: "testing/linearizability",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-linearizability", "--bin", "tree-seeds", "--"],
        full: &["--seeds", "10000"],
        slice: Slice::Tests("testing/linearizability/tests/seeds.rs"),
    },
    Suite {
        name: "tree-exhaustive",
        about: "the shared tree: all schedules of two and three clients with few switches (--switches N --only NAME)",
        folder: "testing/linearizability",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &[
            "run",
            "--release",
            "--package",
            "forebay-linearizability",
            "--features",
            "planted",
            "--bin",
            "tree-exhaustive",
            "--",
        ],
        full: &["--switches", "2"],
        slice: Slice::Tests("testing/linearizability/tests/exhaustive.rs"),
    },
    Suite {
        name: "tree-planted",
        about: "the shared tree: bugs that are planted, each found by a seed of eight clients' histories",
        folder: "testing/linearizability",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &[
            "test",
            "--profile",
            "seeds",
            "--package",
            "forebay-linearizability",
            "--test",
            "tree-planted",
            "--",
            "--nocapture",
        ],
        full: &["--ignored"],
        slice: Slice::Tests("testing/linearizability/tests/planted_schedules.rs"),
    },
    Suite {
        name: "hostile",
        about: "all lasting attacks on a memory node at once, beside an honest tenant that is measured (--seconds N --only NAMES --check)",
        folder: "testing/hostile",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-hostile", "--bin", "hostile", "--"],
        full: &["--seconds", "30", "--check"],
        slice: Slice::Tests("testing/hostile/tests/onslaught.rs"),
    },
    Suite {
        name: "tls",
        about: "what TLS costs: reads and writes over TCP, plain and encrypted by turns (--sizes, --depths, --seconds N)",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--release", "--package", "forebay-cli", "--", "fabric-test", "--tls-cost"],
        full: &["--operations", "read,write", "--sizes", "64,64KiB", "--depths", "1,8", "--seconds", "10"],
        slice: Slice::Tests("crates/cli/tests/local.rs"),
    },
    fuzz(
        "fuzz-tcp-frames",
        "the frame parser of TCP, fuzzed for an hour (nightly; -max_total_time=SECONDS)",
        &["fuzz", "run", "tcp-frames", "--"],
    ),
    fuzz("fuzz-tcp-node", "a node's side of hello and admission", &["fuzz", "run", "tcp-node", "--"]),
    fuzz("fuzz-tcp-client", "a client's side of the same", &["fuzz", "run", "tcp-client", "--"]),
    fuzz("fuzz-shm-frame", "frames of shared memory", &["fuzz", "run", "shm-frame", "--"]),
    fuzz("fuzz-envelope", "the envelope of requests", &["fuzz", "run", "envelope", "--"]),
    fuzz("fuzz-reply-envelope", "that of replies", &["fuzz", "run", "reply-envelope", "--"]),
    fuzz("fuzz-requests", "the bodies of requests", &["fuzz", "run", "requests", "--"]),
    fuzz("fuzz-replies", "those of replies", &["fuzz", "run", "replies", "--"]),
    fuzz("fuzz-gather", "the arguments of a gather", &["fuzz", "run", "gather", "--"]),
    fuzz("fuzz-compaction-job", "those of a compaction", &["fuzz", "run", "compaction-job", "--"]),
    fuzz("fuzz-compaction-result", "the result of a compaction", &["fuzz", "run", "compaction-result", "--"]),
    fuzz("fuzz-search", "the arguments of a search", &["fuzz", "run", "search", "--"]),
    fuzz("fuzz-search-result", "its result", &["fuzz", "run", "search-result", "--"]),
    fuzz("fuzz-index-block", "index blocks of tables", &["fuzz", "run", "index-block", "--"]),
    fuzz("fuzz-table-tail", "tails of tables and their sections", &["fuzz", "run", "table-tail", "--"]),
    fuzz("fuzz-metadata", "records, and what databases keep of themselves", &["fuzz", "run", "metadata", "--"]),
    fuzz("fuzz-letters", "letters about offloaded jobs", &["fuzz", "run", "letters", "--"]),
    fuzz("fuzz-stored-place", "where a job's objects lie", &["fuzz", "run", "stored-place", "--"]),
    fuzz("fuzz-crossing-mark", "marks of batches that cross shards", &["fuzz", "run", "crossing-mark", "--"]),
    fuzz("fuzz-redis", "requests of Redis's protocol", &["fuzz", "run", "redis", "--"]),
    fuzz("fuzz-redis-commands", "commands of Redis, by two clients", &["fuzz", "run", "redis-commands", "--"]),
    Suite {
        name: "offload",
        about: "all that can go wrong twice with an offloaded job, at every moment: owners, schedulers, executors",
        folder: "crates/offload",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &[
            "test",
            "--profile",
            "seeds",
            "--package",
            "forebay-offload",
            "--test",
            "offload",
            "--",
            "explore::",
        ],
        full: &["--include-ignored", "--nocapture"],
        slice: Slice::Tests("crates/offload/tests/explore.rs"),
    },
    Suite {
        name: "pool-kill",
        about: "databases on storage, memory nodes, a scheduler and workers as processes, killed and stopped at random: on a directory for twenty minutes, on S3 for five",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--release", "--package", "forebay-cli", "--test", "cli", "--", "pool::"],
        full: &["--ignored", "--nocapture", "--test-threads=1"],
        slice: Slice::Tests("crates/cli/tests/pool.rs"),
    },
    Suite {
        name: "kill",
        about: "kill -9 of the memory node under load, over every fabric between processes",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--release", "--package", "forebay-cli", "--test", "cli", "--", "kill::", "restart::"],
        full: &["--include-ignored", "--nocapture"],
        slice: Slice::Tests("crates/cli/tests/kill.rs"),
    },
    Suite {
        name: "kill-points",
        about: "sixteen thousand kills and takeovers: writers, memory nodes and both, under each durability, in folders, on S3 and HDFS",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[("FOREBAY_ROUNDS", "1000")],
        command: &[
            "test",
            "--release",
            "--package",
            "forebay-cli",
            "--package",
            "forebay-storage-conformance",
            "--test",
            "cli",
            "--test",
            "storage",
            "--",
        ],
        // The tests of one file of the first program, and all tests of the second.
        full: &["--nocapture", "durable::", "a_killed_writer", "a_stopped_writer"],
        slice: Slice::Tests("crates/cli/tests/durable.rs"),
    },
    Suite {
        name: "tree-kill",
        about: "four clients of a shared tree, one killed every few seconds (--operations N --memory shm|tcp|both)",
        folder: "testing/processes",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--profile", "seeds", "--package", "forebay-processes", "--bin", "tree-kill", "--"],
        full: &["--operations", "20000000"],
        slice: Slice::Tests("testing/processes/tests/tree_kill.rs"),
    },
    Suite {
        name: "e2e",
        about: "memory node, bench and replay as processes, over shared memory and TCP",
        folder: "crates/cli",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--release", "--package", "forebay-cli", "--test", "cli", "--", "end_to_end::"],
        full: &["--include-ignored", "--nocapture"],
        slice: Slice::Tests("crates/cli/tests/end_to_end.rs"),
    },
    Suite {
        name: "admin-page",
        about: "the page for operators, of a server and a memory node, in headless Chromium",
        folder: "crates/cli",
        toolchain: Toolchain::Program("chromium", "chromium"),
        environment: &[],
        command: &["test", "--package", "forebay-cli", "--test", "cli", "--", "admin_page::"],
        full: &["--ignored"],
        slice: Slice::Nothing,
    },
    Suite {
        name: "compare",
        about: "Forebay beside RocksDB and Redis: docs/reference/comparison.md (--list, --rows NAMES, --section NAME, --quick)",
        folder: "testing/measure",
        toolchain: Toolchain::Program("db_bench", "rocksdb-tools"),
        environment: &[],
        command: &["run", "--release", "--package", "forebay-measure", "--", "compare"],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "figures",
        about: "a paper's figures as plots and tables in docs/figures: `figures dlsm`, `dolphin`, `o3` or `tebis` (--full: ten times the data)",
        folder: "testing/measure",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--release", "--package", "forebay-measure", "--", "figures"],
        full: &["dlsm"],
        slice: Slice::Nothing,
    },
    Suite {
        name: "soak",
        about: "half an hour in a nearly full memory node (--minutes N): growth, stalls, leaks",
        folder: "testing/measure",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--release", "--package", "forebay-measure", "--", "soak"],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "real-file",
        about: "5 million records of Debian's package index (or FILE, --records N): load, kill, verify, finish, dump, reload, compare",
        folder: "testing/measure",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["run", "--release", "--package", "forebay-measure", "--", "real-file"],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "space",
        about: "memory nodes that are filled with small records, emptied and filled again, of more sizes",
        folder: "crates/engine",
        toolchain: Toolchain::Stable,
        environment: &[],
        command: &["test", "--profile", "seeds", "--package", "forebay-engine", "--test", "engine", "--", "space::"],
        full: &["--include-ignored", "--nocapture"],
        slice: Slice::Tests("crates/engine/tests/space.rs"),
    },
    Suite {
        name: "bit-flips",
        about: "every single bit of a small database in storage, or of one of two copies in memory, flipped: an error, or what was written",
        folder: "crates/engine",
        toolchain: Toolchain::Stable,
        environment: &[("FOREBAY_BITS", "all")],
        command: &[
            "test",
            "--profile",
            "seeds",
            "--package",
            "forebay-engine",
            "--test",
            "engine",
            "--",
            "bit_flips::",
            "memory_flips::",
        ],
        full: &["--nocapture"],
        slice: Slice::Tests("crates/engine/tests/bit_flips.rs"),
    },
    Suite {
        name: "crates",
        about: "each crate as a package of its own, built from that (--no-verify: not built)",
        folder: "",
        toolchain: Toolchain::Stable,
        environment: &[("CARGO_TARGET_DIR", "target/crates")],
        // All crates except those that are not published.
        command: &[
            "package",
            "--workspace",
            "--exclude",
            "xtask",
            "--exclude",
            "forebay-conformance",
            "--exclude",
            "forebay-hostile",
            "--exclude",
            "forebay-linearizability",
            "--exclude",
            "forebay-measure",
            "--exclude",
            "forebay-processes",
            "--exclude",
            "forebay-raw-client",
            "--exclude",
            "forebay-redis-differential",
            "--exclude",
            "forebay-seeds",
            "--exclude",
            "forebay-simulation",
            "--exclude",
            "forebay-storage-conformance",
            "--exclude",
            "forebay-capi",
            "--exclude",
            "forebay-python",
        ],
        full: &[],
        slice: Slice::Nothing,
    },
    Suite {
        name: "deny",
        about: "licences, advisories and sources of dependencies (cargo-deny; needs the network)",
        folder: "",
        toolchain: Toolchain::Subcommand("deny"),
        environment: &[],
        command: &["deny", "check"],
        full: &[],
        slice: Slice::Nothing,
    },
];

pub(crate) fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

/// Runs a suite in full, or with `arguments` instead of its own.
pub(crate) fn run(workspace: &Workspace, suite: &Suite, arguments: &[String]) -> Outcome {
    if !is_there(workspace, suite) {
        return Err(Failure::Failed(format!("`{}` tests {}, which does not exist yet", suite.name, suite.folder)));
    }
    prepare(workspace, suite.toolchain)?;
    let step = step(workspace, suite);
    if arguments.is_empty() { step.arguments(suite.full).run() } else { step.arguments(arguments).run() }
}

/// Checks that the tests exist that are slices of suites.
///
/// # Errors
/// For a missing file of tests: its suite would no longer have a slice.
pub(crate) fn require_slices(workspace: &Workspace) -> Outcome {
    for suite in SUITES {
        if let Slice::Tests(path) = suite.slice
            && !workspace.root().join(path).is_file()
        {
            return Err(Failure::Failed(format!(
                "the slice of `{}` should be in {path}, which is not there",
                suite.name
            )));
        }
    }
    Ok(())
}

/// Returns the command that runs the slice of a suite that [runs beside the tests](Suite::runs_beside_tests).
pub(crate) fn slice(workspace: &Workspace, suite: &Suite) -> Step {
    let arguments = match suite.slice {
        Slice::Run(arguments) => arguments,
        Slice::Nothing | Slice::Tests(_) => &[],
    };
    step(workspace, suite).arguments(arguments)
}

fn is_there(workspace: &Workspace, suite: &Suite) -> bool {
    suite.folder.is_empty() || workspace.root().join(suite.folder).join("Cargo.toml").exists()
}

fn step(workspace: &Workspace, suite: &Suite) -> Step {
    let cargo = match suite.toolchain {
        Toolchain::Nightly(_) | Toolchain::Fuzzer => workspace.nightly_cargo(),
        Toolchain::Stable | Toolchain::Subcommand(_) | Toolchain::Program(..) => workspace.cargo(),
    };
    let cargo = cargo.arguments(suite.command);
    suite.environment.iter().fold(cargo, |cargo, (name, value)| cargo.environment(name, value))
}

fn prepare(workspace: &Workspace, toolchain: Toolchain) -> Outcome {
    match toolchain {
        Toolchain::Stable => Ok(()),
        Toolchain::Nightly(component) => nightly(workspace, component),
        Toolchain::Fuzzer => subcommand(workspace, "fuzz"),
        Toolchain::Subcommand(name) => subcommand(workspace, name),
        Toolchain::Program(program, package) => setup::provide(workspace, program, package, "this suite runs it"),
    }
}

fn nightly(workspace: &Workspace, component: &str) -> Outcome {
    let list = ["component", "list", "--toolchain", "nightly", "--installed"];
    let installed = workspace.program("rustup").arguments(list).output().unwrap_or_default();
    if installed.lines().any(|line| line.starts_with(component)) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "this suite needs the nightly toolchain with {component}: \
         `rustup toolchain install nightly --component {component}`"
    )))
}

/// Makes a cargo subcommand available.
pub(crate) fn subcommand(workspace: &Workspace, name: &str) -> Outcome {
    if workspace.cargo().arguments([name, "--version"]).succeeds() {
        return Ok(());
    }
    println!("cargo-{name} is missing and will be built from source: this takes minutes");
    workspace.cargo().arguments(["install", "--locked", &format!("cargo-{name}")]).run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::package_name;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    #[test]
    fn only_what_is_built_with_flags_of_its_own_runs_beside_the_tests() {
        let own = |suite: &Suite| suite.environment.iter().any(|entry| entry.0 == "CARGO_TARGET_DIR");
        for suite in SUITES.iter().filter(|suite| suite.runs_beside_tests()) {
            assert!(own(suite), "{}: make its slice a test", suite.name);
            assert!(matches!(suite.toolchain, Toolchain::Stable), "{}: nothing installs what it needs", suite.name);
        }
    }

    #[test]
    fn files_with_the_tests_of_slices_are_there() {
        for suite in SUITES {
            if let Slice::Tests(path) = suite.slice {
                let text = std::fs::read_to_string(crate::root().join(path)).expect(path);
                assert!(text.contains("#[test]") && path.starts_with(suite.folder), "{}: {path}", suite.name);
            }
        }
    }

    #[test]
    fn suites_with_flags_of_their_own_have_a_target_of_their_own() {
        let variable =
            |suite: &Suite, name| suite.environment.iter().find(|entry| entry.0 == name).map(|entry| entry.1);
        let flagged = SUITES.iter().filter(|suite| variable(suite, "RUSTFLAGS").is_some());
        let mut targets: Vec<_> = flagged.map(|suite| variable(suite, "CARGO_TARGET_DIR").expect(suite.name)).collect();
        let count = targets.len();
        targets.sort_unstable();
        targets.dedup();
        assert_eq!(targets.len(), count);
    }

    /// Returns what follows each `flag` in a command.
    fn named<'a>(command: &'a [&str], flag: &'a str) -> impl Iterator<Item = &'a str> {
        command.windows(2).filter(move |two| two[0] == flag).map(|two| two[1])
    }

    /// The folders of the workspace's packages.
    fn members() -> Vec<PathBuf> {
        let folders = ["crates", "testing", "bindings"].map(|folder| std::fs::read_dir(crate::root().join(folder)));
        let members = folders.into_iter().flat_map(|entries| entries.unwrap().flatten()).map(|entry| entry.path());
        members.chain([crate::root().join("xtask")]).collect()
    }

    fn manifest(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default()
    }

    #[test]
    fn what_is_not_published_is_no_package() {
        let excluded: BTreeSet<_> =
            named(find("crates").expect("a suite").command, "--exclude").map(str::to_owned).collect();
        let manifests = members().into_iter().map(|folder| manifest(&folder));
        let private = manifests.filter(|manifest| manifest.contains("\npublish = false\n"));
        let private: BTreeSet<_> = private.filter_map(|manifest| Some(package_name(&manifest)?.0.to_owned())).collect();
        assert_eq!(excluded, private);
    }

    #[test]
    fn packages_have_the_test_programs_that_suites_name() {
        let members = members();
        let folder_of = |package: &str| {
            let is_it = |folder: &&PathBuf| package_name(&manifest(folder)).is_some_and(|(name, _)| name == package);
            members.iter().find(is_it).expect(package)
        };
        for suite in SUITES {
            let packages: Vec<_> = named(suite.command, "--package").map(folder_of).collect();
            for program in named(suite.command, "--test") {
                let has_it = packages.iter().any(|folder| {
                    let manifest = manifest(folder);
                    manifest.contains(&format!("[[test]]\nname = \"{program}\"\n"))
                        || !manifest.contains("autotests = false")
                            && [format!("{program}.rs"), format!("{program}/main.rs")]
                                .iter()
                                .any(|path| folder.join("tests").join(path).is_file())
                });
                assert!(has_it, "{}: no package of it has a test program `{program}`", suite.name);
            }
        }
    }
}
