//! Measurements that take minutes and are run by hand: `cargo xtask compare`, `figures`, `soak` and
//! `real-file` start this program.
//!
//! | module | what |
//! |---|---|
//! | `compare` | Forebay beside RocksDB and Redis: in memory, durable, served |
//! | `figures` | the papers' figures, as plots and tables |
//! | `soak` | half an hour of overwrites, deletes and snapshots in a memory node that is nearly full |
//! | `real_file` | a real file's records, loaded, killed, verified, dumped and reloaded |
//! | `processes` | builds, starts, reads and stops the measured programs |
//! | `scratch` | temporary folders for databases |
//! | `machine` | the machine of a measurement |
//!
//! Everything is measured from outside, through the command `forebay` and its JSON, with the memory
//! node in a process of its own. One thing runs at a time.

#![forbid(unsafe_code)]

mod compare;
mod figures;
mod machine;
mod outcome;
mod processes;
mod real_file;
mod scratch;
mod soak;

use clap::{Parser, Subcommand};
use outcome::Outcome;
use std::process::ExitCode;

/// Measures Forebay.
#[derive(Debug, Parser)]
#[command(name = "measure", disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare with RocksDB's db_bench and with Redis.
    Compare(compare::Arguments),
    /// Measure what a paper's figures show.
    Figures(figures::Arguments),
    /// Overwrite, delete and read for a long time, and look for growth, stalls and leaks.
    Soak(soak::Arguments),
    /// Load a real file's records, kill, verify, finish, dump, reload, and compare.
    RealFile(real_file::Arguments),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Compare(arguments) => compare::execute(&arguments),
        Command::Figures(arguments) => figures::execute(&arguments),
        Command::Soak(arguments) => soak::execute(&arguments),
        Command::RealFile(arguments) => real_file::execute(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("measure: {message}");
            ExitCode::FAILURE
        }
    }
}
