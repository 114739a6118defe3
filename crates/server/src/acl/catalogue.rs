//! The names of all commands, with their categories, as sets.

use forebay_env::HashMap;

/// The categories, in the order of `ACL CAT`.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A set of commands, by their numbers in the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandSet(Vec<u64>);

impl CommandSet {
    /// Whether a command is in the set.
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Adds or removes a command.
    pub fn set(&mut self, number: usize, is_in: bool) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(number / 64) {
            *word = if is_in { *word | 1 << (number % 64) } else { *word & !(1 << (number % 64)) };
        }
    }
}

/// The commands of a server. A subcommand is `command|subcommand`.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: Vec<&'static str>,
    numbers: HashMap<&'static str, usize>,
    categories: HashMap<&'static str, Vec<usize>>,
}

impl Catalogue {
    /// Makes a catalogue of these commands, with the categories of each.
    #[must_use]
    pub fn new(commands: impl IntoIterator<Item = (&'static str, Vec<&'static str>)>) -> Self {
        let mut catalogue = Self::default();
        for (number, (name, categories)) in commands.into_iter().enumerate() {
            catalogue.names.push(name);
            catalogue.numbers.insert(name, number);
            for category in categories {
                catalogue.categories.entry(category).or_default().push(number);
            }
        }
        catalogue
    }

    /// The number of a command.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The numbers of a command and of all its subcommands.
    #[must_use]
    pub fn family(&self, name: &str) -> Vec<usize> {
        let is_in = |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'));
        (0..).zip(&self.names).filter(|(_, other)| is_in(other)).map(|(number, _)| number).collect()
    }

    /// The numbers of a category's commands; `None` when there is no such category.
    #[must_use]
    pub fn category(&self, name: &str) -> Option<&[usize]> {
        CATEGORIES.contains(&name).then(|| self.categories.get(name).map_or(&[][..], |numbers| numbers))
    }

    /// The names of these numbers.
    pub fn names<'c>(&'c self, numbers: &'c [usize]) -> impl Iterator<Item = &'static str> + 'c {
        numbers.iter().filter_map(|&number| self.names.get(number).copied())
    }

    /// The numbers of all commands.
    #[must_use]
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.names.len()
    }
}
