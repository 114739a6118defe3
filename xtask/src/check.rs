//! `cargo xtask check`: the rules, then the toolchain's own tools with warnings denied.

use crate::command::{Step, Workspace, run_all};
use crate::rules::{self, Severity, Tree};
use crate::{Failure, Outcome};

/// A part of the check.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Workspace) -> Outcome,
}

/// The parts that only read files.
pub(crate) const OF_TEXT: &[Part] = &[
    Part { name: "rules", run: rules },
    Part { name: "lock files", run: lock_files },
    Part { name: "format", run: format },
];

/// The parts that compile. In `cargo xtask test`, the steps that build and document do this anyway: [`linting`] and
/// [`documented`].
const OF_CODE: &[Part] = &[Part { name: "clippy", run: clippy }, Part { name: "documentation", run: documentation }];

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    run_all(OF_TEXT.iter().chain(OF_CODE).map(|step| (step.run)(workspace)))
}

/// Makes clippy's driver compile the workspace's crates, as `cargo clippy` does, for any command of cargo. So crates
/// are linted as they are built, and dependencies are compiled once.
pub(crate) fn linting(step: Step) -> Step {
    step.environment("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").environment("CLIPPY_ARGS", DENIED)
}

/// Checks lock files. `fuzz` is a workspace of its own, whose lock file nothing else here reads.
fn lock_files(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["tree", "--locked", "--depth", "0", "--manifest-path", "fuzz/Cargo.toml"]).run()
}

fn format(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["fmt", "--all", "--check"]).run()
}

/// `--deny warnings`, in the form in which `cargo clippy` hands it to the driver.
const DENIED: &str = "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

fn clippy(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]).run()
}

/// Makes the documentation. It leaves out binaries, because `forebay` would overwrite the library of that name. It
/// includes examples, because cargo then takes their dependencies as clippy left them.
fn documentation(workspace: &Workspace) -> Outcome {
    let step = workspace.cargo().arguments(["doc", "--workspace", "--no-deps", "--lib", "--examples"]);
    step.environment("RUSTDOCFLAGS", "--deny warnings").run()
}

/// The rules over every file that is tracked or about to be.
pub(crate) fn rules(workspace: &Workspace) -> Outcome {
    eprintln!("\n==> rules");
    let tree = Tree::load(workspace)?;
    let findings = rules::all(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    eprintln!("==> {} files, {errors} errors, {} warnings", tree.len(), findings.len() - errors);
    if errors == 0 { Ok(()) } else { Err(Failure::Failed(format!("{errors} broken rules, listed above"))) }
}
