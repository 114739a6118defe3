//! Random commands to a real Redis and to Forebay's server: `cargo xtask redis-differential`.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_redis_differential::families::{FAMILIES, Family};
use forebay_redis_differential::run::{self, Engine, Pair};
use std::process::ExitCode;

/// Number of commands after which a new run begins, with an empty store and its own seed.
const COMMANDS_A_RUN: u64 = 20_000;

/// Sends random commands to a real Redis and to Forebay's server, and compares the replies.
#[derive(Debug, Parser)]
struct Arguments {
    /// Commands of each family.
    #[arg(long, default_value_t = 1_000_000)]
    commands: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What Forebay's server keeps its keys in.
    #[arg(long, value_enum, default_value_t = Engine::Lsm)]
    engine: Engine,
    /// Only this family.
    #[arg(long)]
    family: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let pair = Pair::start(arguments.engine);
    let mut differences = 0;
    for family in FAMILIES.iter().filter(|family| arguments.family.as_deref().is_none_or(|name| name == family.name)) {
        differences += all(&pair, family, &arguments);
    }
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of runs that met a difference.
fn all(pair: &Pair, family: &Family, arguments: &Arguments) -> u64 {
    let runs = arguments.commands.div_ceil(COMMANDS_A_RUN);
    let mut differences = 0;
    for seed in arguments.seed..arguments.seed + runs {
        let count = arguments.commands.min(COMMANDS_A_RUN);
        // Replies after a difference prove nothing, so the next run continues.
        if let Err(difference) = run::family(pair, family, seed, count) {
            println!("{}: {difference}", family.name);
            differences += 1;
        }
    }
    let commands = runs * arguments.commands.min(COMMANDS_A_RUN);
    println!("{}: {commands} commands, {differences} differences in {runs} runs", family.name);
    differences
}
