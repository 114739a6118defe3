//! Documentation of what was built, and its tests, in one run of cargo.
//!
//! `cargo doc` compiles all dependencies once more, as metadata, which takes several times as long as the documentation
//! itself. `cargo test --doc` uses them as the tests have left them, and tells rustdoc where they are. So this program
//! takes rustdoc's place there: it makes the documentation of the same crate from the same arguments, and then runs the
//! crate's tests.

use crate::command::{Step, Workspace};
use crate::{Failure, Outcome, check};
use std::ffi::{OsStr, OsString};
use std::process::Command;

/// This variable says that this program was started as rustdoc, and holds the folder for documentation.
const FOLDER: &str = "FOREBAY_XTASK_DOCUMENTATION";

/// What cargo tells rustdoc about tests, each with a value after it.
const OF_TESTS: [&str; 3] = ["--test-run-directory", "--test-args", "--test-runtool"];

/// Makes the documentation of what the tests were built of, and runs its tests: cargo starts this program as rustdoc.
pub(crate) fn step(workspace: &Workspace) -> Step {
    // If the system does not say where this program is, cargo reports that it cannot be started.
    let program = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
    let tests = check::linting(workspace.cargo().arguments(["test", "--workspace", "--doc"]));
    tests.environment("RUSTDOC", program).environment(FOLDER, workspace.root().join("target/documentation"))
}

/// Does rustdoc's work, if this program was started in rustdoc's place.
pub(crate) fn as_rustdoc() -> Option<Outcome> {
    let folder = std::env::var_os(FOLDER)?;
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let documented = documenting(&arguments, &folder).map_or(Ok(()), |arguments| rustdoc(&arguments));
    Some(documented.and_then(|()| rustdoc(&arguments)))
}

/// Returns the arguments that make the documentation of a crate, from those that test it.
fn documenting(arguments: &[OsString], folder: &OsStr) -> Option<Vec<OsString>> {
    if !arguments.iter().any(|argument| argument == "--test") {
        return None;
    }
    let mut kept = Vec::with_capacity(arguments.len());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if OF_TESTS.iter().any(|name| argument == name) {
            let _value = rest.next();
        } else if argument != "--test" {
            kept.push(argument.clone());
        }
    }
    kept.extend(["--deny", "warnings", "--out-dir"].map(OsString::from));
    kept.push(folder.to_owned());
    Some(kept)
}

fn rustdoc(arguments: &[OsString]) -> Outcome {
    match Command::new("rustdoc").args(arguments).env_remove(FOLDER).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("rustdoc: {status}"))),
        Err(error) => Err(Failure::Failed(format!("rustdoc cannot be started: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_documented_from_what_tests_it() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let tests = words("--crate-name a --test src/lib.rs --test-run-directory /a --extern b=libb.rlib");
        let expected = "--crate-name a src/lib.rs --extern b=libb.rlib --deny warnings --out-dir folder";
        assert_eq!(documenting(&tests, OsStr::new("folder")), Some(words(expected)));
        assert_eq!(documenting(&words("-vV"), OsStr::new("folder")), None);
    }
}
