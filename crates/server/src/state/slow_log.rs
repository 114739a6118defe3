//! Commands that took long.

use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::VecDeque;

/// Most arguments of a command that are kept, and most bytes of each.
const MAX_ARGUMENTS: usize = 32;
const MAX_ARGUMENT_BYTES: usize = 128;

/// A command that took long.
#[derive(Debug, Clone)]
pub struct SlowCommand {
    /// Its number.
    pub id: i64,
    /// When it was carried out: seconds since 1970.
    pub at_s: u64,
    /// How long it took.
    pub took_us: u64,
    /// Its arguments. Much of them may be left out.
    pub arguments: Vec<Bytes>,
    /// Where its client is.
    pub address: String,
    /// The name that its client gave itself.
    pub name: Bytes,
}

/// Commands that took long, the latest first.
#[derive(Debug, Default)]
pub struct SlowLog {
    entries: Mutex<(i64, VecDeque<SlowCommand>)>,
}

impl SlowLog {
    /// Adds a command, and forgets all but the latest `most`.
    pub fn add(&self, mut command: SlowCommand, most: usize) {
        let mut entries = lock(&self.entries);
        command.id = entries.0;
        entries.0 += 1;
        entries.1.push_front(command);
        entries.1.truncate(most);
    }

    /// The latest commands.
    pub fn latest(&self, most: usize) -> Vec<SlowCommand> {
        lock(&self.entries).1.iter().take(most).cloned().collect()
    }

    /// Number of commands.
    pub fn len(&self) -> usize {
        lock(&self.entries).1.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all commands.
    pub fn clear(&self) {
        lock(&self.entries).1.clear();
    }
}

/// Returns the part of arguments that is kept.
#[must_use]
pub fn kept(arguments: &[&[u8]]) -> Vec<Bytes> {
    let shorten =
        |argument: &&[u8]| match argument.get(..MAX_ARGUMENT_BYTES).filter(|_| argument.len() > MAX_ARGUMENT_BYTES) {
            Some(shown) => {
                let more = argument.len() - shown.len();
                Bytes::from([shown, format!("... ({more} more bytes)").as_bytes()].concat())
            }
            None => Bytes::copy_from_slice(argument),
        };
    if arguments.len() <= MAX_ARGUMENTS {
        return arguments.iter().map(shorten).collect();
    }
    let mut kept: Vec<Bytes> = arguments.iter().take(MAX_ARGUMENTS - 1).map(shorten).collect();
    kept.push(Bytes::from(format!("... ({} more arguments)", arguments.len() - kept.len())));
    kept
}
