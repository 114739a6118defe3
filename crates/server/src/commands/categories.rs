//! The categories of commands, for `ACL` and `COMMAND`.
//!
//! Most follow from a command's family and flags; what does not is listed here.

use crate::commands::command::{Command, Family, flags};

/// What commands have beside that.
const EXTRA: &[(&str, &[&str])] = &[
    ("dbsize", &["keyspace"]),
    ("flushall", &["keyspace", "dangerous"]),
    ("flushdb", &["keyspace", "dangerous"]),
    ("info", &["dangerous"]),
    ("keys", &["dangerous"]),
    ("lastsave", &["admin", "dangerous"]),
    ("role", &["admin", "dangerous"]),
    ("swapdb", &["keyspace", "dangerous"]),
];

/// The categories of a command, without the sign in front.
#[must_use]
pub fn categories(command: &Command) -> Vec<&'static str> {
    let mut categories = Vec::new();
    let of_flags = [
        (flags::WRITE, "write"),
        (flags::READONLY, "read"),
        (flags::ADMIN, "admin"),
        (flags::ADMIN, "dangerous"),
        (flags::PUBSUB, "pubsub"),
        (flags::FAST, "fast"),
        (flags::BLOCKING, "blocking"),
    ];
    categories.extend(of_flags.iter().filter(|(flag, _)| command.has(*flag)).map(|(_, name)| *name));
    if !command.has(flags::FAST) {
        categories.push("slow");
    }
    let is_container = !command.subcommands.is_empty() && command.name != "command";
    let family = match command.family {
        _ if is_container || command.name == "pubsub|help" => None,
        _ if command.name == "wait" || command.name.starts_with("command") => Some("connection"),
        Family::Generic => Some("keyspace"),
        Family::SortedSet => Some("sortedset"),
        Family::Transactions => Some("transaction"),
        Family::Server => None,
        other => Some(other.name()),
    };
    let extra = EXTRA.iter().find(|(name, _)| *name == command.name).map_or(&[][..], |(_, extra)| extra);
    for name in family.iter().chain(extra) {
        if !categories.contains(name) {
            categories.push(name);
        }
    }
    categories
}
