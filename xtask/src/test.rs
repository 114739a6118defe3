//! `cargo xtask test`: everything that must pass before a change is merged.

use crate::command::{Workspace, run_all};
use crate::costs::{self, Costs};
use crate::programs::{self, Ended, Program};
use crate::scratch::Scratch;
use crate::{Outcome, check, setup, suites};

const TESTS: [&str; 2] = ["test", "--workspace"];

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let (mut costs, mut ended) = (Costs::beginning(), Vec::new());
    let outcome = steps(&workspace.building_afresh(), &mut costs, &mut ended);
    println!("\n{}\n{}", costs::of_programs(&ended), costs.table());
    outcome?;
    println!("All checks and tests passed.");
    Ok(())
}

fn steps(workspace: &Workspace, costs: &mut Costs, ended: &mut Vec<Ended>) -> Outcome {
    suites::require_slices(workspace)?;
    costs.note("setup of builds", || setup::to_build(workspace))?;
    let slices = suites::SUITES.iter().filter_map(Program::of_suite);
    let mut programs: Vec<Program> = slices.chain([Program::documentation()]).collect();
    std::thread::scope(|scope| {
        // Servers and clients are downloaded while the programs of the tests are built.
        let servers = scope.spawn(|| setup::servers_and_clients(workspace));
        run_all(check::OF_TEXT.iter().map(|part| costs.note(part.name, || (part.run)(workspace))))?;
        costs.note("build of tests, clippy", || {
            let build = check::linting(workspace.cargo().arguments(TESTS).arguments(["--no-run"]));
            build.run_noting(|line| programs.extend(Program::announced(line)))
        })?;
        costs.note("wait for servers", || servers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let scratch = Scratch::new("run")?;
    let workspace = &workspace.with_temporary(scratch.path());
    costs.note("tests", || {
        *ended = programs::run(workspace, &programs, scratch.path());
        programs::outcome(&programs, ended)
    })?;
    scratch.check()
}
