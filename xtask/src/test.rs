//! `cargo xtask test`: everything that must pass before a change is merged.

use crate::command::{Workspace, run_all};
use crate::costs::{self, Costs};
use crate::programs::{self, Ended, Program};
use crate::scratch::Scratch;
use crate::{Outcome, check, setup, suites};

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let (mut costs, mut ended) = (Costs::default(), Vec::new());
    let outcome = steps(&workspace.building_afresh(), &mut costs, &mut ended);
    println!("\n{}\n{}", costs::of_programs(&ended), costs.table());
    outcome?;
    println!("All checks and tests passed.");
    Ok(())
}

fn steps(workspace: &Workspace, costs: &mut Costs, ended: &mut Vec<Ended>) -> Outcome {
    suites::require_slices(workspace)?;
    costs.note("setup", || setup::run(workspace))?;
    run_all(check::STEPS.iter().map(|step| costs.note(step.name, || (step.run)(workspace))))?;
    let scratch = Scratch::new("run")?;
    let workspace = &workspace.with_temporary(scratch.path());
    let tests = ["test", "--workspace"];
    let mut programs = Vec::new();
    costs.note("build of tests", || {
        let build = workspace.cargo().arguments(tests).arguments(["--no-run"]);
        build.run_noting(|line| programs.extend(Program::announced(line)))
    })?;
    costs.note("tests", || {
        *ended = programs::run(workspace, &programs, scratch.path());
        programs::outcome(&programs, ended)
    })?;
    costs.note("tests in documentation", || workspace.cargo().arguments(tests).arguments(["--doc"]).run())?;
    for suite in suites::SUITES.iter().filter(|suite| suite.runs_beside_tests()) {
        costs.note(suite.name, || suites::run_slice(workspace, suite))?;
    }
    scratch.check()
}
