//! `cargo xtask test`: everything that must pass before a change is merged.

use crate::command::Workspace;
use crate::{Outcome, check, setup, suites};

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    setup::run(workspace)?;
    check::run(workspace)?;
    workspace.cargo().arguments(["test", "--workspace"]).run()?;
    for suite in suites::SUITES {
        suites::run_slice(workspace, suite)?;
    }
    println!("\nAll checks and tests passed.");
    Ok(())
}
