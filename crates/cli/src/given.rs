//! Flags of a group, and which of them were given.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::collections::BTreeSet;

/// The flags of `T`, and the names of those that the command line gives.
#[derive(Debug, Clone)]
pub struct Given<T> {
    /// The flags.
    pub flags: T,
    /// Those that were given, with their dashes, in the order in which help shows them.
    given: Vec<String>,
}

impl<T> Given<T> {
    /// The first flag that was given.
    pub fn first(&self) -> Option<&str> {
        self.first_but("")
    }

    /// The first flag that was given, except this one.
    pub fn first_but(&self, other: &str) -> Option<&str> {
        self.given.iter().map(String::as_str).find(|flag| *flag != other)
    }
}

impl<T: Args> Given<T> {
    /// The names of all flags, without dashes in front.
    pub fn names() -> BTreeSet<String> {
        let group = T::augment_args(Command::new("group"));
        group.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }
}

impl<T: Args> Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: Args> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let group = T::augment_args(Command::new("group"));
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = group.get_arguments().filter(|argument| is_given(argument.get_id().as_str()));
        let given = given.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
        Ok(Self { flags: T::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
