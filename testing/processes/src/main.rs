//! The shared tree among processes: a memory node and four clients. Every few seconds, one client is
//! killed with `kill -9` and started again.
//!
//! ```text
//!            driver ── starts, kills, starts again ──► client 0 .. 3 ── journal (a file) each
//!              │ starts                                   │
//!              └────────────► memory node ◄───────────────┘ shared memory or TCP
//! ```
//!
//! Each client owns a residue class of the keys: it knows the value of each and checks every answer
//! exactly, including what a write says about the earlier value. All clients write a further class.
//! There, a client must have written each value. A value must not be older than one of the same writer
//! that was seen before. A writer's own value must be its last one. What a client knows is in its
//! [`journal`], which outlives the client. Its next life first reads all its keys, and finds all
//! acknowledged writes and perhaps the one write that was not acknowledged. In the end the driver checks
//! the tree's invariants, and every key against the journals.
//!
//! | module | what |
//! |---|---|
//! | `driver` | starts and kills processes, checks the end |
//! | `client` | a client's life: operations, each checked |
//! | `common` | definitions that these share |
//! | `journal` | what a client wrote, in a file |
//! | `records` | keys and values |

#![forbid(unsafe_code)]

mod client;
mod common;
mod driver;
mod journal;
mod records;

use clap::{Parser, Subcommand};
use common::{Outcome, READY, wait_for_the_end};
use forebay::{MemoryNode, MemoryNodeOptions, NodeAddress};
use std::process::ExitCode;
use std::time::Duration;

/// Kills clients of a shared tree.
#[derive(Debug, Parser)]
#[command(name = "tree-kill", disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(flatten)]
    driver: driver::Arguments,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The processes that the driver starts.
#[derive(Debug, Subcommand)]
enum Role {
    /// A memory node, until standard input ends.
    #[command(hide = true)]
    Node(NodeArguments),
    /// A client.
    #[command(hide = true)]
    Client(client::Arguments),
}

#[derive(Debug, clap::Args)]
struct NodeArguments {
    listen: NodeAddress,
    memory_bytes: u64,
    /// How long a session lives without a call, milliseconds; by default as long as a node has it.
    lease_ms: Option<u64>,
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let (who, result) = match &command_line.role {
        None => ("tree-kill".to_owned(), driver::execute(&command_line.driver)),
        Some(Role::Node(arguments)) => ("memory node".to_owned(), serve(arguments)),
        Some(Role::Client(arguments)) => {
            (format!("client {} in life {}", arguments.number, arguments.life), client::execute(arguments))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{who}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until the driver ends it.
fn serve(arguments: &NodeArguments) -> Outcome {
    let listener = forebay::listen(&arguments.listen, forebay::ListenOptions { node: 1, ..Default::default() })
        .map_err(|error| error.to_string())?;
    let usual = MemoryNodeOptions::with_memory(arguments.memory_bytes);
    let lease = arguments.lease_ms.map_or(usual.lease, Duration::from_millis);
    let options = MemoryNodeOptions { lease, ..usual };
    let node = MemoryNode::start(listener, options).map_err(|error| error.to_string())?;
    println!("{READY} {}", node.address());
    wait_for_the_end();
    node.shutdown().map_err(|error| error.to_string())
}
