//! The command `forebay`.
//!
//! | module | holds |
//! |---|---|
//! | `bench`, `ycsb`, `replay`, `checkpoint`, `backup`, `dump`, `load`, `drop`, `inspect`, `verify`, `repair`, `memory_node`, `worker`, `scheduler`, `serve`, `top`, `tenants`, `pool`, `fabric_test`, `manual`, `version` | the commands |
//! | `arguments` | flags that several commands share |
//! | `configuration` | options from a file and from variables |
//! | `access` | how this process and memory nodes prove themselves to each other |
//! | `flags`, `units`, `names` | the formats of flags, sizes, durations, rates and names |
//! | `given` | which flags of a group were given |
//! | `admin` | where operators look, and what they see |
//! | `nodes`, `stores`, `tree_store` | reaching a memory node and opening a database or a tree on it |
//! | `place` | the database that a command reads |
//! | `storage_flags` | storage that flags name |
//! | `output`, `findings`, `progress`, `failure`, `log` | results, progress, errors and exit codes, the log |
//! | `partial` | files that are not whole when a signal ends a command |
//! | `traces` | traces for a collector of OpenTelemetry, with the feature of this name |

#![forbid(unsafe_code)]

mod access;
mod admin;
mod arguments;
mod backup;
mod bench;
mod checkpoint;
mod configuration;
mod drop;
mod dump;
mod durability;
mod fabric_test;
mod failure;
mod findings;
mod flags;
mod given;
mod inspect;
mod load;
mod log;
mod manual;
mod memory_node;
mod names;
mod nodes;
mod output;
mod partial;
mod place;
mod placement;
mod pool;
mod progress;
mod repair;
mod replay;
mod scheduler;
mod serve;
mod signals;
mod storage_flags;
mod stores;
mod tenants;
mod top;
#[cfg_attr(not(feature = "traces"), path = "no_traces.rs")]
mod traces;
mod tree_store;
mod units;
mod verify;
mod worker;
mod ycsb;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind as ClapKind};
use configuration::Configuration;
use failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// Fills and reads take less time with mimalloc (`docs/decisions/0071`). A program that links the library chooses its
/// own allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Key-value engine for machines whose memory is a pool on the network.
#[derive(Debug, Parser)]
#[command(name = "forebay", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Offer memory until SIGTERM or SIGINT.
    MemoryNode(memory_node::Arguments),
    /// Run jobs of databases until SIGTERM or SIGINT.
    Worker(worker::Arguments),
    /// Place jobs on workers, while it is elected, until SIGTERM or SIGINT.
    Scheduler(scheduler::Arguments),
    /// Serve a store to clients of Redis until SIGTERM or SIGINT.
    Serve(Box<serve::Arguments>),
    /// Run db_bench's workloads; without flags, load and read a million records. Replaces what bench left before.
    Bench(Box<bench::Arguments>),
    /// Run YCSB's workloads, or workloads from published statistics.
    Ycsb(Box<ycsb::Arguments>),
    /// Replay a recorded trace and check every value that is read.
    Replay(Box<replay::Arguments>),
    /// Write a named database to a file.
    Checkpoint(checkpoint::WriteArguments),
    /// Create a named database from such a file.
    Restore(checkpoint::RestoreArguments),
    /// Checkpoints of databases in storage, copies of them elsewhere, and databases that begin with one.
    #[command(subcommand)]
    Backup(backup::Action),
    /// Write the keys and values of a database as lines of text, lines of JSON, or binary.
    Dump(dump::Arguments),
    /// Write such a dump into a database.
    Load(Box<load::Arguments>),
    /// Delete a database and all that it holds.
    Drop(drop::Arguments),
    /// Show what lies in storage, or on memory nodes, without opening it: manifest, logs, tables, segments.
    Inspect(inspect::Arguments),
    /// Read all of a database, and check that it is what was written.
    Verify(verify::Arguments),
    /// Save what is left of a database in storage to a new one.
    Repair(repair::Arguments),
    /// Show who uses a memory node, and how much of it.
    Tenants(tenants::Arguments),
    /// Show which databases share memory nodes, and who holds, has borrowed and owes how much.
    Pool(pool::Arguments),
    /// Show what a process does, in a terminal.
    Top(top::Arguments),
    /// Measure latency and rate of each operation of the fabric.
    FabricTest(fabric_test::Arguments),
    /// Print what completes the command's arguments in a shell.
    Completions(manual::CompletionsArguments),
    /// Print the manual page, or write the pages of all commands into a folder.
    Man(manual::ManArguments),
    /// Print the version.
    Version,
}

impl Command {
    /// Sets how to reach the addresses of memory nodes.
    fn resolve(&mut self) -> Result<(), Failure> {
        let (memory, access) = match self {
            Self::Scheduler(arguments) => arguments.parts(),
            Self::Serve(arguments) => arguments.memory.parts(),
            Self::Bench(arguments) => arguments.memory.parts(),
            Self::Ycsb(arguments) => arguments.memory.parts(),
            Self::Replay(arguments) => arguments.memory.parts(),
            Self::FabricTest(arguments) => arguments.memory.parts(),
            Self::Checkpoint(checkpoint::WriteArguments { place, .. })
            | Self::Restore(checkpoint::RestoreArguments { place, .. }) => (&mut place.memory, &place.access),
            Self::Dump(arguments) => arguments.place.memory.parts(),
            Self::Load(arguments) => arguments.memory.parts(),
            Self::Drop(arguments) => arguments.place.memory.parts(),
            Self::Verify(arguments) => arguments.place.memory.parts(),
            Self::Tenants(tenants::Arguments { memory, access, .. })
            | Self::Pool(pool::Arguments { memory, access, .. }) => (memory, &*access),
            Self::Worker(arguments) => return arguments.resolve(),
            Self::Inspect(arguments) => return arguments.resolve(),
            Self::MemoryNode(_)
            | Self::Backup(_)
            | Self::Top(_)
            | Self::Repair(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Version => return Ok(()),
        };
        memory.set_access(access)
    }
}

/// The command whose options may also come from a file and from variables.
const SERVE: &str = "serve";

/// Completes the command line with what a file and variables say. Whoever asks for help gets it whatever they say.
fn configure(arguments: &mut Vec<OsString>) -> Result<Configuration, Failure> {
    let command = CommandLine::command();
    let is_help = |word: &OsString| word == "--help" || word == "-h";
    let serves = arguments.get(1).is_some_and(|word| word == SERVE) && !arguments.iter().any(is_help);
    match command.find_subcommand(SERVE).filter(|_| serves) {
        Some(options) => Configuration::complete(arguments, options, &access::environment),
        None => Ok(Configuration::default()),
    }
}

fn main() -> ExitCode {
    let mut arguments = flags::normalise(std::env::args_os());
    let configuration = match configure(&mut arguments) {
        Ok(configuration) => configuration,
        Err(failure) => return end(&failure),
    };
    let matches = match CommandLine::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error, &configuration),
    };
    let mut command_line = match CommandLine::from_arg_matches(&matches) {
        Ok(command_line) => command_line,
        Err(error) => return refuse(&error, &configuration),
    };
    if let Err(failure) = command_line.command.resolve() {
        return end(&failure);
    }
    let result = match command_line.command {
        Command::MemoryNode(arguments) => memory_node::execute(&arguments),
        Command::Worker(arguments) => worker::execute(&arguments),
        Command::Scheduler(arguments) => scheduler::execute(&arguments),
        Command::Serve(arguments) if arguments.check_config => serve::check(&arguments).and_then(|usual| {
            let (command, matches) = (CommandLine::command(), matches.subcommand_matches(SERVE));
            let options = command.find_subcommand(SERVE).zip(matches);
            let text = options.map(|(options, matches)| configuration.describe(options, matches, &usual));
            output::line(text.unwrap_or_default().trim_end())
        }),
        Command::Serve(arguments) => serve::execute(&arguments),
        Command::Bench(arguments) => bench::execute(&arguments),
        Command::Ycsb(arguments) => ycsb::execute(&arguments),
        Command::Replay(arguments) => replay::execute(&arguments),
        Command::Checkpoint(arguments) => checkpoint::write(&arguments),
        Command::Restore(arguments) => checkpoint::restore(&arguments),
        Command::Backup(action) => backup::execute(&action),
        Command::Dump(arguments) => dump::execute(&arguments),
        Command::Load(arguments) => load::execute(&arguments),
        Command::Drop(arguments) => drop::execute(&arguments),
        Command::Inspect(arguments) => inspect::execute(&arguments),
        Command::Verify(arguments) => verify::execute(&arguments),
        Command::Repair(arguments) => repair::execute(&arguments),
        Command::Tenants(arguments) => tenants::execute(&arguments),
        Command::Pool(arguments) => pool::execute(&arguments),
        Command::Top(arguments) => top::execute(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, CommandLine::command()),
        Command::Man(arguments) => manual::pages(&arguments, CommandLine::command()),
        Command::FabricTest(arguments) => fabric_test::execute(&arguments),
        Command::Version => output::line(concat!("forebay ", env!("CARGO_PKG_VERSION"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure),
    }
}

fn end(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        output::complain(&format!("forebay: {}", failure.message));
    }
    ExitCode::from(failure.code())
}

/// Prints help or the version on standard output, or one line about the faulty arguments.
fn refuse(error: &clap::Error, configuration: &Configuration) -> ExitCode {
    let text = error.render().to_string();
    if matches!(error.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) {
        return match output::line(text.trim_end()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => end(&failure),
        };
    }
    if error.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::complain(text.trim_end());
        return ExitCode::from(Failure::usage("").code());
    }
    let text = one_line(&text);
    end(&match configuration.blame(error) {
        Some(origin) => Failure::usage(format_args!("{origin}: {text}")),
        None => Failure::usage(text),
    })
}

/// Clap's message in one line, without the usage.
fn one_line(text: &str) -> String {
    let said = text.split("\n\nUsage:").next().unwrap_or(text).trim_start_matches("error: ");
    let parts = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .map(|line| line.trim_start_matches("tip: "));
    parts.fold(String::new(), |line, part| match line.chars().last() {
        None => part.to_owned(),
        Some(':') => format!("{line} {part}"),
        Some(_) => format!("{line}; {part}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let arguments = flags::normalise(line.split(' ').map(Into::into));
        one_line(&CommandLine::try_parse_from(arguments).expect_err(line).render().to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    /// A heading covers the flags that it is for, and none that follow them.
    #[test]
    fn flags_are_below_their_headings() {
        let command = CommandLine::command();
        let (mut commands, mut headed) = (vec![&command], 0);
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            for argument in command.get_arguments() {
                let Some((flag, heading)) = argument.get_long().zip(argument.get_help_heading()) else { continue };
                let fits = ["tls-", "secret", "allow-uid", "allow-gid", "traces"].iter().any(|of| flag.starts_with(of));
                assert!(fits, "--{flag} of {} is below {heading:?}", command.get_name());
                headed += 1;
            }
        }
        assert!(headed > 0);
    }

    #[test]
    fn refusals_say_what_would_be_right() {
        for (line, hint) in [
            ("forebay bench --key_sice=20", "--key-size"),
            ("forebay bench --benchmarks=fillrandon", "fillrandom"),
            ("forebay bench --memory=tcp://nowhere", "tcp://<host>:<port>"),
            ("forebay bench --local-memory-size=8GBB", "8GiB"),
            ("forebay bench --link-rtt=2", "2us"),
            ("forebay bench --num=many", "--num"),
            ("forebay benhc", "bench"),
            ("forebay ycsb --workload=g", "range-only"),
            ("forebay ycsb --profile=x.csv", "--cluster"),
            ("forebay replay", "<TRACE>"),
            ("forebay fabric-test --operations=reed", "read"),
        ] {
            let said = refused(line);
            assert!(said.contains(hint) && !said.contains('\n'), "{line}: {said}");
        }
    }

    #[test]
    fn underscores_are_dashes() {
        let line = "forebay bench --benchmarks=fillseq,readrandom --key_size=16 --value-size=100 --reads=-1 --verify=0";
        let parsed = CommandLine::try_parse_from(flags::normalise(line.split(' ').map(Into::into))).unwrap();
        let Command::Bench(arguments) = parsed.command else { panic!("not bench") };
        let settings = arguments.settings().unwrap();
        assert_eq!((settings.key_size, settings.value_size, settings.reads, settings.verify), (16, 100, None, false));
    }
}
