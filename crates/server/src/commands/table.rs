//! All commands. A family adds its table here.

use crate::acl::catalogue::Catalogue;
use crate::commands::categories::categories;
use crate::commands::command::{Command, Registry};
use crate::commands::dump::commands as dump;
use crate::commands::geo::{places, search};
use crate::commands::hyperloglog::commands as hyperloglog;
use crate::commands::sorted_sets::{algebra, basic, pops, ranges};
use crate::commands::streams::{self, claims, group_commands, reading};
use crate::commands::{
    acl, bitfield, bitmaps, blocking, checkpoints, client, connection, diagnostics, expiry, hashes, info,
    introspection, keys, lcs, lists, lolwut, memory, migrate, persistence, pubsub, scan, scripting, server,
    set_algebra, sets, sorting, strings, transactions,
};
use std::sync::LazyLock;

const TABLES: &[&[Command]] = &[
    acl::COMMANDS,
    algebra::COMMANDS,
    basic::COMMANDS,
    bitfield::COMMANDS,
    bitmaps::COMMANDS,
    blocking::COMMANDS,
    checkpoints::COMMANDS,
    client::COMMANDS,
    connection::COMMANDS,
    diagnostics::COMMANDS,
    dump::COMMANDS,
    expiry::COMMANDS,
    hashes::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    keys::COMMANDS,
    lcs::COMMANDS,
    lists::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    persistence::COMMANDS,
    places::COMMANDS,
    pops::COMMANDS,
    pubsub::COMMANDS,
    ranges::COMMANDS,
    scan::COMMANDS,
    scripting::functions::COMMANDS,
    scripting::scripts::COMMANDS,
    search::COMMANDS,
    server::COMMANDS,
    set_algebra::COMMANDS,
    sets::COMMANDS,
    sorting::COMMANDS,
    streams::basic::COMMANDS,
    claims::COMMANDS,
    group_commands::COMMANDS,
    streams::info::COMMANDS,
    reading::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

/// All commands with their numbers.
static ALL: LazyLock<Vec<Command>> = LazyLock::new(|| {
    let mut numbers = 0..;
    let mut numbered = |command: &Command| Command { number: numbers.next().unwrap_or(0), ..*command };
    let all = TABLES.iter().copied().flatten();
    all.map(|command| {
        let subcommands: Vec<Command> = command.subcommands.iter().map(&mut numbered).collect();
        Command { subcommands: subcommands.leak(), ..numbered(command) }
    })
    .collect()
});

/// All commands of the server.
#[must_use]
pub fn registry() -> Registry {
    Registry::new(ALL.iter())
}

/// The names of these commands and of their subcommands, with their categories.
#[must_use]
pub fn catalogue(registry: &Registry) -> Catalogue {
    let all = registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands));
    Catalogue::new(all.map(|command| (command.name, categories(command))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_small_and_unique_and_documented() {
        let registry = registry();
        let names: Vec<_> = registry.all().iter().map(|command| command.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "a name is there twice");
        for command in registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands)) {
            assert_eq!(command.name, command.name.to_ascii_lowercase());
            assert!(command.summary.ends_with('.') && command.arity != 0, "{}", command.name);
            assert_eq!(registry.find(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
        }
    }

    #[test]
    fn each_command_has_a_number() {
        let registry = registry();
        let all = registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands));
        let mut numbers: Vec<usize> = all.map(|command| command.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..registry.numbers()));
    }

    #[test]
    fn a_command_is_told_by_its_name_alone() {
        let registry = registry();
        let is_called = |name: &str, words: &[&[u8]]| {
            registry.find(name.as_bytes()).unwrap().is_called_by(crate::commands::arguments::Arguments::new(words))
        };
        assert!(is_called("get", &[b"get", b"key"]) && is_called("get", &[b"GeT", b"key"]));
        assert!(!is_called("get", &[b"set", b"key"]) && !is_called("get", &[b"get"]));
        // For these commands the second word also counts.
        assert!(!is_called("config", &[b"config", b"get", b"port"]));
        assert!(!is_called("config|get", &[b"config|get", b"port", b"save"]));
    }
}
