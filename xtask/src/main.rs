//! The one door for Forebay's checks: `cargo xtask`.
//!
//! ```text
//!  setup ──► rules, lock files, format ──► build, with clippy ──► every test, documentation, and slices of the long suites
//!    │         (text only, seconds)                                 │
//!    └ servers and clients of the tests come over the network       └ the same table of suites, each also by name
//!      until these begin
//! ```
//!
//! - [`rules`]: promises of `ARCHITECTURE.md` and `CONTRIBUTING.md` that a program can verify by reading files. Pure
//!   functions over a [`rules::Tree`]; each is tested with a planted violation.
//! - [`check`]: the rules and the tools of the toolchain.
//! - [`documented`]: documentation of what was built, and its tests.
//! - [`suites`]: the long suites, one row each.
//! - [`bindings`]: the Python wheel, and what reads cost through C and Python.
//! - [`package`]: the Debian package.
//! - [`redis_clients`]: clients of Redis in several languages.
//! - [`azure`]: storage in Azure.
//! - [`setup`]: what the machine needs.
//! - [`programs`]: the programs of tests, several at a time.
//! - [`costs`]: how long each step of `cargo xtask test`, and each program of tests, took; printed at the end.
//! - [`scratch`]: the folder for temporary files, in which a run may leave nothing.
//!
//! Exit codes: 0 all is well, 1 something failed, 2 the command line is wrong. This program has no dependencies, so
//! that the checks build in seconds and on a machine without a network.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "measures how long steps take; nothing of Forebay runs in here")]

mod azure;
mod bindings;
mod check;
mod command;
mod costs;
mod documented;
mod outcome;
mod package;
mod programs;
mod redis_clients;
mod rules;
mod scratch;
mod setup;
mod suites;
mod system_calls;
mod test;

use outcome::{Failure, Outcome};
use std::path::PathBuf;
use std::process::ExitCode;

/// A command with a name of its own; the long suites come in addition.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&command::Workspace) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command { name: "setup", about: "install what the tests need; does nothing when all is there", run: setup::run },
    Command { name: "rules", about: "the rules that are checked by reading files: seconds", run: check::rules },
    Command { name: "check", about: "rules, lock files, formatting, clippy, documentation", run: check::run },
    Command {
        name: "python",
        about: "builds the Python wheel in a virtual environment and tests it",
        run: bindings::python,
    },
    Command {
        name: "bindings-bench",
        about: "reads through C against Rust, and through Python against plyvel",
        run: bindings::bench,
    },
    Command {
        name: "package",
        about: "the Debian package, of a release build: builds it and looks at what is in it",
        run: package::run,
    },
    Command {
        name: "redis-clients",
        about: "programs over clients of Redis in Rust, Python, JavaScript, Go and Java, and YCSB, against the server",
        run: redis_clients::run,
    },
    Command { name: "storage-azure", about: "storage in Azure, which Azurite plays on loopback", run: azure::run },
    Command { name: "test", about: "setup, check, every test, short slices of the long suites", run: test::run },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match documented::as_rustdoc().unwrap_or_else(|| dispatch(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(arguments: &[String]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(format!("a command is missing\n\n{}", help())));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", help());
        return Ok(());
    }
    let workspace = command::Workspace::at(root());
    if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
        if let Some(extra) = rest.first() {
            return Err(Failure::Usage(format!("`{name}` takes no arguments, found `{extra}`")));
        }
        return (command.run)(&workspace);
    }
    if let Some(suite) = suites::find(name) {
        return suites::run(&workspace, suite, rest);
    }
    Err(Failure::Usage(format!("there is no command `{name}`; `cargo xtask --help` lists what there is")))
}

fn help() -> String {
    let commands = COMMANDS.iter().map(|command| (command.name, command.about));
    let suites = suites::SUITES.iter().map(|suite| (suite.name, suite.about));
    let list = |entries: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        entries.map(|(name, about)| format!("  {name:<10} {about}\n")).collect::<String>()
    };
    format!(
        "Usage: cargo xtask COMMAND\n\nCommands:\n{}\nLong suites (arguments after the name replace the suite's own):\n{}\n\
         Every cargo that is started builds with at most {} jobs.",
        list(&mut commands.into_iter()),
        list(&mut suites.into_iter()),
        command::MAX_JOBS,
    )
}

/// The repository's folder: `cargo run` says where this package is.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = PathBuf::from(package);
    package.parent().map_or_else(|| package.clone(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_the_help() {
        let mut names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        names.extend(suites::SUITES.iter().map(|suite| suite.name));
        let help = help();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} is there twice");
            assert!(help.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
        }
    }

    #[test]
    fn wrong_command_lines_are_usage_errors() {
        for arguments in [&[][..], &["no-such-command"], &["rules", "extra"]] {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.into()).collect();
            assert!(matches!(dispatch(&arguments), Err(Failure::Usage(_))), "{arguments:?}");
        }
    }
}
