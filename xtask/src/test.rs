//! `cargo xtask test`: everything that must pass before a change is merged.

use crate::command::{Workspace, run_all};
use crate::costs::{Costs, Programs};
use crate::scratch::Scratch;
use crate::{Outcome, check, setup, suites};

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let (mut costs, mut programs) = (Costs::default(), Programs::default());
    let outcome = steps(workspace, &mut costs, &mut programs);
    println!("\n{}\n{}", programs.table(), costs.table());
    outcome?;
    println!("All checks and tests passed.");
    Ok(())
}

fn steps(workspace: &Workspace, costs: &mut Costs, programs: &mut Programs) -> Outcome {
    suites::require_slices(workspace)?;
    costs.note("setup", || setup::run(workspace))?;
    run_all(check::STEPS.iter().map(|step| costs.note(step.name, || (step.run)(workspace))))?;
    let scratch = Scratch::new()?;
    let workspace = &workspace.with_temporary(scratch.path());
    let tests = ["test", "--workspace"];
    // Half as many again as there are cores: many wait for processes, for the disk, or for time to pass.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores + cores.div_ceil(2);
    costs.note("build of tests", || workspace.cargo().arguments(tests).arguments(["--no-run"]).run())?;
    costs.note("tests", || {
        let step = workspace.cargo().arguments(tests).environment("RUST_TEST_THREADS", threads.to_string());
        let outcome = step.run_noting(|line| programs.note(line));
        programs.end();
        outcome
    })?;
    for suite in suites::SUITES.iter().filter(|suite| suite.runs_beside_tests()) {
        costs.note(suite.name, || suites::run_slice(workspace, suite))?;
    }
    scratch.check()
}
