//! `cargo xtask check`: the rules, then the toolchain's own tools with warnings denied.

use crate::command::{Workspace, run_all};
use crate::rules::{self, Severity, Tree};
use crate::{Failure, Outcome};

/// A part of the check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Workspace) -> Outcome,
}

pub(crate) const STEPS: &[Step] = &[
    Step { name: "rules", run: rules },
    Step { name: "lock files", run: lock_files },
    Step { name: "format", run: format },
    Step { name: "clippy", run: clippy },
    Step { name: "documentation", run: documentation },
];

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    run_all(STEPS.iter().map(|step| (step.run)(workspace)))
}

/// `fuzz` is a workspace of its own, whose lock file nothing else here reads.
fn lock_files(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["tree", "--locked", "--depth", "0", "--manifest-path", "fuzz/Cargo.toml"]).run()
}

fn format(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["fmt", "--all", "--check"]).run()
}

fn clippy(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]).run()
}

/// Not of binaries: `forebay` would be documented over the library of that name. Of examples, since cargo then takes what
/// they depend on as clippy left it.
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
