//! The categories of commands, for `ACL` and `COMMAND`.
//!
//! Most follow from a command's family and flags; the exceptions are listed here. `categories.txt` has what Redis says,
//! and a test compares.

use crate::commands::command::{Command, Family, flags};

/// The categories that commands have instead of that of their family.
const OWN: &[(&str, &[&str])] = &[
    ("dbsize", &["keyspace"]),
    ("flushall", &["keyspace", "dangerous"]),
    ("flushdb", &["keyspace", "dangerous"]),
    ("info", &["dangerous"]),
    ("keys", &["keyspace", "dangerous"]),
    ("lastsave", &["admin", "dangerous"]),
    ("migrate", &["keyspace", "dangerous"]),
    ("pubsub|help", &[]),
    ("restore", &["keyspace", "dangerous"]),
    ("role", &["admin", "dangerous"]),
    ("sort", SORT),
    ("sort_ro", SORT),
    ("swapdb", &["keyspace", "dangerous"]),
    ("wait", &["connection"]),
    ("waitaof", &["connection"]),
];
/// `SORT` is dangerous because its patterns may read any key.
const SORT: &[&str] = &["set", "sortedset", "list", "dangerous"];

/// The category of a family. Commands about the server are in none.
const fn of_family(family: Family) -> &'static [&'static str] {
    match family {
        Family::Connection => &["connection"],
        Family::Server => &[],
        Family::Generic => &["keyspace"],
        Family::String => &["string"],
        Family::Bitmap => &["bitmap"],
        Family::Hash => &["hash"],
        Family::Set => &["set"],
        Family::List => &["list"],
        Family::SortedSet => &["sortedset"],
        Family::Stream => &["stream"],
        Family::Geo => &["geo"],
        Family::HyperLogLog => &["hyperloglog"],
        Family::Transactions => &["transaction"],
        Family::PubSub => &["pubsub"],
        Family::Scripting => &["scripting"],
    }
}

/// The categories of a command, without the sign in front.
#[must_use]
pub fn categories(command: &Command) -> Vec<&'static str> {
    let name = command.name;
    let is_container = !command.subcommands.is_empty() && name != "command";
    let own = OWN.iter().find(|(owner, _)| *owner == name);
    let mut categories: Vec<&str> = match own {
        Some((_, own)) => own.to_vec(),
        None if is_container => Vec::new(),
        None if name.starts_with("command") => vec!["connection"],
        None => of_family(command.family).to_vec(),
    };
    // A script that only reads is not in `read`: a user who may read need not be allowed to run code.
    let reads = command.has(flags::READONLY) && command.family != Family::Scripting;
    for (is_so, category) in [
        (command.has(flags::WRITE), "write"),
        (reads, "read"),
        (command.has(flags::ADMIN), "admin"),
        (command.has(flags::ADMIN), "dangerous"),
        (command.has(flags::PUBSUB), "pubsub"),
        (command.has(flags::FAST), "fast"),
        (!command.has(flags::FAST), "slow"),
        (command.has(flags::BLOCKING), "blocking"),
    ] {
        if is_so && !categories.contains(&category) {
            categories.push(category);
        }
    }
    categories
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;
    use std::collections::{BTreeMap, BTreeSet};

    /// What `COMMAND` of Redis 7.0.15 says of each command: its arity, those of its flags that are known here, and its categories.
    const OF_REDIS: &str = include_str!("categories.txt");

    #[test]
    fn commands_are_described_as_by_redis() {
        let of_redis: BTreeMap<&str, &str> = OF_REDIS.lines().filter_map(|line| line.split_once(' ')).collect();
        let registry = table::registry();
        let all = registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands));
        let mut wrong = Vec::new();
        // Redis has `waitaof` from 7.2 on.
        for command in all.filter(|command| !command.name.starts_with("forebay.") && command.name != "waitaof") {
            let is_known = |(flag, name): &(u32, &'static str)| command.has(*flag).then_some(*name);
            let flags: Vec<_> = flags::NAMES.iter().filter_map(is_known).collect();
            let categories: BTreeSet<_> = categories(command).into_iter().collect();
            let categories: Vec<_> = categories.into_iter().collect();
            let space = if flags.is_empty() { "" } else { " " };
            let here = format!("{}:{space}{}; {}", command.arity, flags.join(" "), categories.join(" "));
            let there = of_redis.get(command.name).copied().unwrap_or("nothing");
            if here != there {
                wrong.push(format!("{} {here}\n  Redis: {there}", command.name));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
