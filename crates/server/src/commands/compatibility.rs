//! The table of commands in `docs/reference/redis.md`, made from the commands themselves.

use crate::commands::command::{Command, Registry};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Commands of Redis 7.0 that are not here, by family. They get the error for an unknown command.
const MISSING: &[(&str, &[&str])] = &[
    ("cluster", &["asking", "cluster", "readonly", "readwrite"]),
    ("scripting", &["script debug"]),
    ("server", &["debug", "failover", "module", "psync", "replicaof", "slaveof", "sync"]),
];

/// The table as text.
#[must_use]
pub fn table(registry: &Registry) -> String {
    let mut families: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let is_container = |command: &Command| !command.subcommands.is_empty();
    for command in registry.all() {
        let names = families.entry(command.family.name()).or_default();
        if !is_container(command) || command.name == "command" {
            names.push(command.name);
        }
        names.extend(command.subcommands.iter().map(|subcommand| subcommand.name));
    }
    for (family, _) in MISSING {
        families.entry(family).or_default();
    }
    let mut text = String::from("| family | here | not here |\n|---|---|---|\n");
    for (family, names) in families {
        let missing = MISSING.iter().find(|(name, _)| *name == family).map_or(&[][..], |(_, names)| names);
        let _ = writeln!(text, "| {family} | {} | {} |", list(&names), list(missing));
    }
    text
}

fn list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.replace('|', " "))).collect();
    if names.is_empty() { "—".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::registry;

    #[test]
    fn what_is_missing_is_not_there() {
        let registry = registry();
        for name in MISSING.iter().flat_map(|(_, names)| *names) {
            let full = name.replace(' ', "|");
            assert!(registry.find(full.as_bytes()).is_none(), "{name} is there");
        }
    }
}
