//! Which commands, keys and channels a rule set allows.

use crate::acl::catalogue::{Catalogue, CommandSet};
use crate::text::pattern;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What a command does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether the key's value becomes known.
    pub reads: bool,
    /// Whether the key's value changes.
    pub writes: bool,
}

impl Access {
    /// Neither: only the key's existence, and things such as its type, become known.
    pub const NONE: Self = Self { reads: false, writes: false };
    /// The value becomes known.
    pub const READ: Self = Self { reads: true, writes: false };
    /// The value changes.
    pub const WRITE: Self = Self { reads: false, writes: true };
    /// Both.
    pub const BOTH: Self = Self { reads: true, writes: true };

    const fn covers(self, other: Self) -> bool {
        (self.reads || !other.reads) && (self.writes || !other.writes)
    }
}

/// A channel that a command is about.
#[derive(Debug, Clone, Copy)]
pub struct Channel<'a> {
    /// Its name, or a pattern of names.
    pub name: &'a [u8],
    /// Whether it is a pattern, which must be allowed as it is.
    pub is_pattern: bool,
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The command's number.
    pub command: usize,
    /// The command's first argument.
    pub first_argument: &'a [u8],
    /// Keys, and what is done with them.
    pub keys: Vec<(&'a [u8], Access)>,
    /// Channels.
    pub channels: Vec<Channel<'a>>,
}

/// Why a request is not allowed, the most telling reason last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// The key at this place among those asked for.
    Key(usize),
    /// The channel at this place among those asked for.
    Channel(usize),
}

/// A pattern of keys, and what may be done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    /// The pattern.
    pub pattern: Bytes,
    /// What is allowed.
    pub access: Access,
}

impl KeyPattern {
    /// Returns the word that adds the pattern.
    #[must_use]
    pub fn word(&self) -> Vec<u8> {
        let sign: &[u8] = match self.access {
            Access { reads: true, writes: false } => b"%R~",
            Access { reads: false, writes: true } => b"%W~",
            _ => b"~",
        };
        [sign, &self.pattern].concat()
    }
}

/// Which commands, keys and channels are allowed. An empty selector allows nothing.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    /// Commands that are allowed.
    pub commands: CommandSet,
    /// Commands that are allowed with some first arguments only.
    pub first_arguments: BTreeMap<usize, Vec<Bytes>>,
    /// The words that led to these commands, without words that have no effect.
    pub words: Vec<String>,
    /// Whether all commands are allowed, whichever there are.
    pub all_commands: bool,
    /// Whether all keys are allowed.
    pub all_keys: bool,
    /// Patterns of keys.
    pub keys: Vec<KeyPattern>,
    /// Whether all channels are allowed.
    pub all_channels: bool,
    /// Patterns of channels.
    pub channels: Vec<Bytes>,
}

impl Selector {
    /// Whether the selector allows everything.
    #[must_use]
    pub fn allows_all(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Judges what is asked for.
    ///
    /// # Errors
    /// Why it is not allowed.
    pub fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let argument_fits = || {
            let allowed = self.first_arguments.get(&asked.command).map_or(&[][..], |allowed| allowed);
            allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(asked.first_argument))
        };
        if !self.commands.contains(asked.command) && !argument_fits() {
            return Err(Denied::Command);
        }
        if let Some(place) = asked.keys.iter().position(|(key, access)| !self.allows_key(key, *access)) {
            return Err(Denied::Key(place));
        }
        match asked.channels.iter().position(|channel| !self.allows_channel(channel)) {
            Some(place) => Err(Denied::Channel(place)),
            None => Ok(()),
        }
    }

    fn allows_key(&self, key: &[u8], access: Access) -> bool {
        let fits = |allowed: &KeyPattern| allowed.access.covers(access) && pattern::matches(&allowed.pattern, key);
        self.all_keys || self.keys.iter().any(fits)
    }

    /// Whether the value of every key may become known.
    #[must_use]
    pub fn reads_all_keys(&self) -> bool {
        self.all_keys || self.keys.iter().any(|allowed| allowed.access.reads && allowed.pattern == "*")
    }

    /// Whether a channel may be used.
    #[must_use]
    pub fn allows_channel(&self, channel: &Channel<'_>) -> bool {
        let fits = |allowed: &Bytes| match channel.is_pattern {
            true => allowed[..] == *channel.name,
            false => pattern::matches(allowed, channel.name),
        };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// Allows or forbids all commands.
    pub fn set_all_commands(&mut self, catalogue: &Catalogue, is_allowed: bool) {
        catalogue.all().for_each(|number| self.commands.set(number, is_allowed));
        self.all_commands = is_allowed;
        self.first_arguments.clear();
        self.words = vec![if is_allowed { "+@all" } else { "-@all" }.to_owned()];
    }

    /// Allows or forbids these commands, which `word` names without its sign.
    pub fn set_commands(&mut self, numbers: &[usize], is_allowed: bool, word: &str) {
        for &number in numbers {
            self.commands.set(number, is_allowed);
            self.first_arguments.remove(&number);
        }
        self.all_commands &= is_allowed;
        self.say(is_allowed, word);
    }

    /// Allows a command with a first argument.
    pub fn add_first_argument(&mut self, number: usize, argument: &str, word: &str) {
        if !self.commands.contains(number) {
            let allowed = self.first_arguments.entry(number).or_default();
            allowed.push(Bytes::copy_from_slice(argument.as_bytes()));
        }
        self.say(true, word);
    }

    /// Records a word, and drops earlier words on the same commands, which no longer have an effect.
    fn say(&mut self, is_allowed: bool, word: &str) {
        let is_covered = |other: &String| {
            let rest = other.get(1..).and_then(|other| other.strip_prefix(word));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.words.retain(|other| !is_covered(other));
        self.words.push(format!("{}{word}", if is_allowed { '+' } else { '-' }));
    }
}
