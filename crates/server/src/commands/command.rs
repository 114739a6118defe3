//! What a command is, and what it is given.

use crate::commands::arguments::Arguments;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Header, Kind};
use crate::keyspace::layout::{DATABASES, Space};
use crate::keyspace::transaction::Transaction;
use crate::protocol::reply::Reply;
use crate::state::command_counters::Counted;
use crate::state::counters::Counters;
use crate::state::latencies::Sample;
use crate::state::session::Session;
use crate::state::shared::Shared;
use crate::state::tracking::Tracked;
use crate::text::shown;
use bytes::Bytes;
use forebay_env::{HashMap, Nanos};

/// The family of a command, as its documentation names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Connections.
    Connection,
    /// The server.
    Server,
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Hashes.
    Hash,
    /// Sets.
    Set,
    /// Lists.
    List,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// Places on earth.
    Geo,
    /// Sketches of sets.
    HyperLogLog,
    /// Transactions.
    Transactions,
    /// Publishing and subscribing.
    PubSub,
    /// Scripts.
    Scripting,
}

impl Family {
    /// The name in `COMMAND DOCS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Generic => "generic",
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::Geo => "geo",
            Self::HyperLogLog => "hyperloglog",
            Self::Transactions => "transactions",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
        }
    }
}

/// Where a command's keys are among its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The command has no keys.
    None,
    /// First place, last place, and step. A negative last place counts from the end.
    Range(i64, i64, i64),
    /// The number of keys is at this place, and the keys follow it. A destination is at place 1 if the flag is set.
    Counted(usize, bool),
    /// One key is at place 1; others follow these words, from a place on.
    After(&'static [&'static str], usize),
    /// The keys are the first half of what follows the word STREAMS, which is looked for from a place on.
    Streams(usize),
    /// One key is at place 3. If it is empty, the keys are what follows the word KEYS, if there is one.
    Migrated,
}

/// Which arguments of a command are elements of the collection at its first key, so that a run can fetch the elements
/// of all its commands together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// The type of the collection.
    pub kind: Kind,
    /// First place, last place, step; as for keys.
    pub places: (i64, i64, i64),
}

/// Properties of a command, with Redis's names.
pub mod flags {
    /// It writes.
    pub const WRITE: u32 = 1;
    /// It reads only.
    pub const READONLY: u32 = 1 << 1;
    /// It may take more memory.
    pub const DENYOOM: u32 = 1 << 2;
    /// It is for administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// It is not for scripts.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// It may wait.
    pub const BLOCKING: u32 = 1 << 5;
    /// It is possible while the server loads.
    pub const LOADING: u32 = 1 << 6;
    /// It is possible with data that may be old.
    pub const STALE: u32 = 1 << 7;
    /// It takes little time.
    pub const FAST: u32 = 1 << 8;
    /// It is possible without a password.
    pub const NO_AUTH: u32 = 1 << 9;
    /// Its keys follow from other arguments.
    pub const MOVABLEKEYS: u32 = 1 << 10;
    /// It is about channels.
    pub const PUBSUB: u32 = 1 << 11;
    /// It is possible while a script is busy.
    pub const ALLOW_BUSY: u32 = 1 << 12;
    /// It is not possible within a transaction.
    pub const NO_MULTI: u32 = 1 << 13;
    /// It is not a write command, but may write or publish something, so a pause of writes holds it. Clients do not see
    /// this flag.
    pub const MAY_REPLICATE: u32 = 1 << 14;
    /// It is not possible while a server loads other data beside its own. This server never does.
    pub const NO_ASYNC_LOADING: u32 = 1 << 15;
    /// It may be called without keys.
    pub const NO_MANDATORY_KEYS: u32 = 1 << 16;
    /// Clients that watch all commands are also shown the commands that it calls.
    pub const SKIP_MONITOR: u32 = 1 << 17;
    /// It is never logged as slow; the commands that it carries out may be.
    pub const SKIP_SLOWLOG: u32 = 1 << 18;

    /// The flags by name.
    pub const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (ALLOW_BUSY, "allow_busy"),
        (NO_MULTI, "no_multi"),
        (MOVABLEKEYS, "movablekeys"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
    ];
}

/// Carries out a command that exists only for its subcommands, when none is named.
///
/// # Errors
/// Always.
pub fn container(_: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    Err(Failure::SYNTAX)
}

/// The error for words that a subcommand does not know.
pub(super) fn unknown_form(arguments: Arguments<'_>) -> Failure {
    let (given, container) =
        (shown::short(arguments.at(1), 128), shown::short(arguments.at(0), 128).to_ascii_uppercase());
    Failure::new(format!("ERR unknown subcommand or wrong number of arguments for '{given}'. Try {container} HELP."))
}

/// The function that carries a command out.
pub type Handler = fn(&mut Context<'_, '_>, Arguments<'_>) -> Outcome;

/// How a command is carried out.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Together with those before and after it from the same connection.
    Together(Handler),
    /// By itself: it depends on the connection's state or changes it, or its effects cannot be taken back, as those of
    /// a run of several commands may be.
    Alone(Handler),
    /// By itself, while no other command touches a key.
    Exclusive(Handler),
    /// By itself, while no other command changes a key, if it reads keys that it does not name
    /// ([`Command::reads_others`]).
    Steady(Handler),
    /// By itself in the thread of scripts, while no other command touches a key.
    Script(Handler),
    /// By the executor of commands itself.
    Flow(Flow),
}

/// Commands that decide what happens to other commands, or wait for another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// A transaction begins.
    Multi,
    /// A transaction is carried out.
    Exec,
    /// A transaction is given up.
    Discard,
    /// Keys go to another server.
    Migrate,
    /// The next transaction depends on keys.
    Watch,
    /// The connection returns to its first state.
    Reset,
    /// The connection ends.
    Quit,
}

/// A command. All that is known about commands follows from these.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Its number among all commands and subcommands. `table` gives it.
    pub number: usize,
    /// Its name in small letters; of a subcommand, `command|subcommand`.
    pub name: &'static str,
    /// Number of arguments with the name; negative when it is the least number.
    pub arity: i64,
    /// See [`flags`].
    pub flags: u32,
    /// Where its keys are.
    pub keys: Keys,
    /// Whether it does not need what its keys hold, unless one of its options is GET.
    pub overwrites: bool,
    /// Which arguments are elements of a collection.
    pub elements: Option<Elements>,
    /// Whether it looks for keys that it does not name.
    pub looks_around: bool,
    /// Its family.
    pub family: Family,
    /// One line about it.
    pub summary: &'static str,
    /// The first version of Redis that has it. Commands that Redis does not have are new in the version that the server
    /// follows.
    pub since: &'static str,
    /// How it is carried out.
    pub run: Run,
    /// The commands among which the second word chooses.
    pub subcommands: &'static [Command],
}

impl Command {
    /// A command of a family that can be carried out together with others.
    #[must_use]
    pub const fn new(family: Family, name: &'static str, arity: i64, flags: u32, handler: Handler) -> Self {
        Self::with(family, name, arity, flags, Run::Together(handler))
    }

    /// A command that is carried out by itself.
    #[must_use]
    pub const fn alone(family: Family, name: &'static str, arity: i64, flags: u32, handler: Handler) -> Self {
        Self::with(family, name, arity, flags, Run::Alone(handler))
    }

    /// A command.
    #[must_use]
    pub const fn with(family: Family, name: &'static str, arity: i64, flags: u32, run: Run) -> Self {
        Self {
            number: 0,
            name,
            arity,
            flags,
            keys: Keys::None,
            overwrites: false,
            elements: None,
            looks_around: false,
            family,
            summary: "",
            since: "1.0.0",
            run,
            subcommands: &[],
        }
    }

    /// Adds where the keys are: first place, last place, step.
    #[must_use]
    pub const fn keys(mut self, first: i64, last: i64, step: i64) -> Self {
        self.keys = Keys::Range(first, last, step);
        self
    }

    /// Adds that it does not need what its keys hold, unless one of its options is GET.
    #[must_use]
    pub const fn overwrites(mut self) -> Self {
        self.overwrites = true;
        self
    }

    /// Adds that it looks for keys that it does not name.
    #[must_use]
    pub const fn looks_around(mut self) -> Self {
        self.looks_around = true;
        self
    }

    /// Whether it does not need what its keys hold.
    #[must_use]
    pub fn is_overwriting(&self, arguments: Arguments<'_>) -> bool {
        self.overwrites && (self.name != "set" || !(3..arguments.len()).any(|place| arguments.is(place, "GET")))
    }

    /// Whether it reads keys that it does not name: those that patterns lead to.
    #[must_use]
    pub fn reads_others(&self, arguments: Arguments<'_>) -> bool {
        let is_pattern = |place| arguments.is(place, "BY") || arguments.is(place, "GET");
        matches!(self.run, Run::Steady(_)) && (2..arguments.len()).any(is_pattern)
    }

    /// Whether another thread may carry it out, whatever the result: it does nothing with its connection except reply.
    #[must_use]
    pub const fn can_be_left(&self) -> bool {
        matches!(self.run, Run::Together(_) | Run::Exclusive(_) | Run::Steady(_))
    }

    /// Adds where elements of the collection at the first key are.
    #[must_use]
    pub const fn elements(mut self, kind: Kind, first: i64, last: i64, step: i64) -> Self {
        self.elements = Some(Elements { kind, places: (first, last, step) });
        self
    }

    /// Adds that the number of keys is at a place, and whether a destination is at place 1.
    #[must_use]
    pub const fn counted_keys(mut self, place: usize, has_destination: bool) -> Self {
        self.keys = Keys::Counted(place, has_destination);
        self.flags |= flags::MOVABLEKEYS;
        self
    }

    /// Adds that a key is at place 1, and that others follow these words, from a place on.
    #[must_use]
    pub const fn keys_after(mut self, words: &'static [&'static str], from: usize) -> Self {
        self.keys = Keys::After(words, from);
        self.flags |= flags::MOVABLEKEYS;
        self
    }

    /// Adds that keys follow the word STREAMS, from a place on.
    #[must_use]
    pub const fn keys_of_streams(mut self, from: usize) -> Self {
        self.keys = Keys::Streams(from);
        self.flags |= flags::MOVABLEKEYS;
        self
    }

    /// Adds that the key is at place 3, or that keys follow the word KEYS.
    #[must_use]
    pub const fn keys_to_migrate(mut self) -> Self {
        self.keys = Keys::Migrated;
        self.flags |= flags::MOVABLEKEYS;
        self
    }

    /// Adds the version of Redis, and one line.
    #[must_use]
    pub const fn doc(mut self, since: &'static str, summary: &'static str) -> Self {
        self.since = since;
        self.summary = summary;
        self
    }

    /// Adds subcommands.
    #[must_use]
    pub const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// Whether it has a property.
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether this many arguments are right.
    #[must_use]
    pub const fn takes(&self, arguments: usize) -> bool {
        let given = arguments as i64;
        if self.arity < 0 { given >= -self.arity } else { given == self.arity }
    }

    /// Registers the keys that this call has read, so that the connection's client is told of their changes, if it
    /// asked for that. The keys are locked.
    pub fn track(&self, shared: &Shared, session: &Session, arguments: Arguments<'_>) {
        let is_wanted =
            session.tracked.is_some_and(Tracked::reads) && self.has(flags::READONLY) && !self.has(flags::PUBSUB);
        if is_wanted && !matches!(self.run, Run::Script(_)) {
            let most = usize::try_from(shared.config.number("tracking-table-max-keys")).unwrap_or(0);
            let keys = self.key_places(arguments).into_iter().map(|place| arguments.at(place));
            shared.tracking.remember(session.client.id, keys, most, &shared.clients);
        }
    }

    /// Counts a call that was carried out, and notes it if it took long. `before` is how long it took before it waited,
    /// if it did, and `took` how long now.
    pub fn count(
        &self,
        shared: &Shared,
        counters: &Counters,
        before: Option<Nanos>,
        took: Nanos,
        has_failed: bool,
        now_ms: u64,
    ) {
        match (counters.of_command(self.number), before) {
            (Some(counters), Some(before)) => counters.end_wait(before, took, has_failed),
            (Some(counters), None) => counters.add(took, has_failed),
            (None, _) => {}
        }
        let (took_ms, least) = (took / 1_000_000, shared.config.latency_ms());
        if least > 0 && i64::try_from(took_ms).is_ok_and(|took| took >= least) {
            let kind = if self.has(flags::FAST) { "fast-command" } else { "command" };
            shared.latencies.add(kind, Sample { at_s: now_ms / 1000, took_ms });
        }
    }

    /// Whether it is called with two words.
    fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }

    /// Whether these arguments call it, by its name alone and with a valid number of arguments.
    #[must_use]
    pub fn is_called_by(&self, arguments: Arguments<'_>) -> bool {
        self.name.as_bytes().eq_ignore_ascii_case(arguments.at(0))
            && self.subcommands.is_empty()
            && self.takes(arguments.len())
            && !self.is_subcommand()
    }

    /// Returns the places of the keys among these arguments; none when the arguments make no sense.
    #[must_use]
    pub fn key_places(&self, arguments: Arguments<'_>) -> Vec<usize> {
        let mut places = Vec::new();
        self.add_key_places(arguments, &mut places);
        places
    }

    /// Adds the places of the keys among these arguments.
    pub fn add_key_places(&self, arguments: Arguments<'_>, into: &mut Vec<usize>) {
        match self.keys {
            Keys::None => {}
            Keys::Range(first, last, step) => into.extend(places(arguments, first, last, step)),
            Keys::Counted(at, has_destination) => {
                let left = arguments.len().saturating_sub(at + 1);
                let count = arguments.integer(at).ok().and_then(|count| usize::try_from(count).ok());
                let Some(count) = count.filter(|&count| count >= 1 && count <= left) else { return };
                let destination = has_destination.then_some(1);
                into.extend(destination.into_iter().chain(at + 1..=at + count));
            }
            Keys::After(names, from) => {
                let follows = |name: &&str| {
                    let is_before = move |&place: &usize| arguments.is(place, name);
                    (from..arguments.len().saturating_sub(1))
                        .filter(is_before)
                        .map(|place| place + 1)
                        .collect::<Vec<_>>()
                };
                into.extend(std::iter::once(1).chain(names.iter().flat_map(follows)));
            }
            Keys::Streams(_) => {
                let mut words = arguments.words(1);
                while !words.take("STREAMS") {
                    // A group may have any name.
                    if words.take_with_values::<2>("GROUP").is_none() && words.word().is_none() {
                        return;
                    }
                }
                let first = words.place();
                into.extend(first..first + (arguments.len() - first) / 2);
            }
            Keys::Migrated => {
                let mut words = arguments.words(6);
                let is_one = !arguments.at(3).is_empty();
                while !is_one && !words.is_done() {
                    if words.take("KEYS") {
                        return into.extend(words.place()..arguments.len());
                    }
                    // A password may be any word.
                    if words.take_login().is_none() {
                        words.skip(1);
                    }
                }
                into.push(3);
            }
        }
    }
}

/// Returns the places from the first to the last. A negative last place counts from the end.
pub fn places(arguments: Arguments<'_>, first: i64, last: i64, step: i64) -> impl Iterator<Item = usize> {
    let count = arguments.len() as i64;
    let last = if last < 0 { count + last } else { last };
    let end = if step > 0 { count.min(last.saturating_add(1)) } else { first };
    (first..end).step_by(usize::try_from(step).unwrap_or(1).max(1)).filter_map(|place| usize::try_from(place).ok())
}

/// All commands, by name.
#[derive(Debug)]
pub struct Registry {
    commands: Vec<&'static Command>,
    by_name: HashMap<&'static str, &'static Command>,
}

/// Longest name of a command.
const MAX_NAME_BYTES: usize = 40;

impl Registry {
    /// These commands.
    #[must_use]
    pub fn new(commands: impl IntoIterator<Item = &'static Command>) -> Self {
        let mut commands: Vec<_> = commands.into_iter().collect();
        commands.sort_by_key(|command| command.name);
        let mut by_name = HashMap::default();
        for command in commands.iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands)) {
            by_name.insert(command.name, command);
        }
        Self { commands, by_name }
    }

    /// All commands, in the order of their names.
    #[must_use]
    pub fn all(&self) -> &[&'static Command] {
        &self.commands
    }

    /// The command of this name, in capital or small letters; of a subcommand, `command|subcommand`.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut small = [0; MAX_NAME_BYTES];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        self.by_name.get(std::str::from_utf8(small).ok()?).copied()
    }

    /// A number that is larger than that of any command.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.by_name.values().map(|command| command.number + 1).max().unwrap_or(0)
    }

    /// Returns the counts of each command and subcommand, in the order of their names.
    #[must_use]
    pub fn counted(&self, shared: &Shared) -> Vec<(&'static str, Counted)> {
        let mut all = shared.counts.of_commands();
        let mut take = |number: usize| all.get_mut(number).map(std::mem::take).unwrap_or_default();
        let mut counted: Vec<_> = self.by_name.iter().map(|(name, command)| (*name, take(command.number))).collect();
        counted.sort_unstable_by_key(|(name, _)| *name);
        counted
    }

    /// Returns the command that these arguments name, even if their number is wrong.
    #[must_use]
    pub fn look_up(&self, arguments: Arguments<'_>) -> Option<&'static Command> {
        let name = arguments.at(0);
        let command = self.find(name).filter(|command| !command.is_subcommand())?;
        if command.subcommands.is_empty() || arguments.len() == 1 {
            return Some(command);
        }
        self.find(&[name, b"|", arguments.at(1)].concat())
    }

    /// The command that these arguments call.
    ///
    /// # Errors
    /// When there is none, or the number of arguments is wrong: the text of the reply.
    pub fn resolve(&self, arguments: Arguments<'_>) -> Outcome<&'static Command> {
        let name = arguments.at(0);
        let Some(mut command) = self.find(name).filter(|command| !command.is_subcommand()) else {
            return Err(unknown(arguments));
        };
        if !command.subcommands.is_empty() && arguments.len() > 1 {
            let full = [name, b"|", arguments.at(1)].concat();
            command = self.find(&full).ok_or_else(|| {
                let given = crate::text::shown::short(arguments.at(1), 128);
                let container = command.name.to_ascii_uppercase();
                Failure::new(format!("ERR unknown subcommand '{given}'. Try {container} HELP."))
            })?;
        }
        if !command.takes(arguments.len()) {
            return Err(Failure::new(format!("ERR wrong number of arguments for '{}' command", command.name)));
        }
        Ok(command)
    }
}

fn unknown(arguments: Arguments<'_>) -> Failure {
    use crate::text::shown::short;
    let mut list = String::new();
    for argument in arguments.from(1) {
        if list.len() >= 128 {
            break;
        }
        let room = 128 - list.len();
        list.push('\'');
        list.push_str(&short(argument, room));
        list.push_str("' ");
    }
    let name = short(arguments.at(0), 128);
    Failure::new(format!("ERR unknown command '{name}', with args beginning with: {list}"))
}

/// What a command is given: its connection, the keys, and where to reply.
pub struct Context<'a, 's> {
    /// What connections share.
    pub shared: &'s Shared,
    /// All commands.
    pub registry: &'s Registry,
    /// What this thread counts.
    pub counters: &'s Counters,
    /// The connection.
    pub session: &'a mut Session,
    /// The keys.
    pub keys: &'a mut Transaction<'s>,
    /// The replies.
    pub out: &'a mut Reply,
    /// What the command waits for, if it has found nothing.
    pub wait: Option<Wait>,
}

/// What a command waits for.
#[derive(Debug)]
pub struct Wait {
    /// The keys, one of which must change.
    pub keys: Vec<Bytes>,
    /// The type that the key must have then; `None` when the command must learn of any change.
    pub kind: Option<Kind>,
    /// How long it waits; zero is forever.
    pub timeout_ms: u64,
    /// The request that is carried out then, if it is not the client's own.
    pub request: Option<Vec<Bytes>>,
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("database", &self.session.database).finish_non_exhaustive()
    }
}

impl Context<'_, '_> {
    /// The space of the connection's database.
    #[must_use]
    pub fn space(&self) -> Space {
        self.space_of(self.session.database)
    }

    /// The space of a database.
    #[must_use]
    pub fn space_of(&self, database: usize) -> Space {
        self.keys.space_of(database)
    }

    /// Makes a command that has found nothing wait. It is carried out again when one of these keys changes and is of
    /// this type. Until then the client waits, forever if the time is zero. If the time runs out, the command's reply
    /// so far is the reply.
    pub fn wait(&mut self, keys: &[&[u8]], kind: Kind, timeout_ms: u64) {
        let keys = keys.iter().map(|key| Bytes::copy_from_slice(key)).collect();
        self.wait = Some(Wait { keys, kind: Some(kind), timeout_ms, request: None });
    }

    /// Fails when this many bytes, which the command holds for its reply, are more than it may reply.
    ///
    /// # Errors
    /// See above; the failure takes back all of the run.
    pub fn make_room(&self, bytes: usize) -> Outcome {
        if bytes > self.out.room() { Err(Failure::REPLY_TOO_LONG) } else { Ok(()) }
    }

    /// Whether a command that may wait for keys looks at this key. A command that a key has woken looks only at that
    /// key.
    #[must_use]
    pub fn looks_at(&self, key: &[u8]) -> bool {
        self.session.woken_by.as_ref().is_none_or(|woken_by| woken_by == key)
    }

    /// The header of a key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn header(&mut self, key: &[u8]) -> Outcome<Option<Header>> {
        self.keys.header(self.space(), key)
    }

    /// Returns the outline of a key: its header, perhaps without the bytes if it is a string.
    ///
    /// # Errors
    /// Those of the database.
    pub fn outline(&mut self, key: &[u8]) -> Outcome<Option<Header>> {
        self.keys.outline(self.space(), key)
    }

    /// Returns the header of a key, and counts the lookup.
    ///
    /// # Errors
    /// Those of the database.
    pub fn look_up(&mut self, key: &[u8]) -> Outcome<Option<Header>> {
        let header = self.header(key)?;
        self.count_look_up(key, header.is_some());
        Ok(header)
    }

    /// Returns the string of a key, and counts the lookup.
    ///
    /// # Errors
    /// Those of the database; when it is no string.
    pub fn look_up_string(&mut self, key: &[u8]) -> Outcome<Option<Bytes>> {
        let string = self.keys.string(self.space(), key)?;
        self.count_look_up(key, string.is_some());
        Ok(string)
    }

    /// Counts the lookup of a key.
    pub fn count_look_up(&mut self, key: &[u8], is_found: bool) {
        if !is_found {
            self.notify(Class::MISS, "keymiss", key);
        }
        self.keys.count_look_up(is_found);
    }

    /// The string of a key.
    ///
    /// # Errors
    /// Those of the database; when it is no string.
    pub fn string(&mut self, key: &[u8]) -> Outcome<Option<Bytes>> {
        self.keys.string(self.space(), key)
    }

    /// The collection of a key.
    ///
    /// # Errors
    /// Those of the database; when it is of another type.
    pub fn collection(&mut self, key: &[u8], kind: Kind) -> Outcome<Option<Collection>> {
        self.keys.collection(self.space(), key, kind)
    }

    /// Tells that something happened to a key of the connection's database.
    pub fn notify(&mut self, class: Class, name: &'static str, key: &[u8]) {
        self.keys.notify(class, name, self.space(), key);
    }

    /// Removes a key, and tells of that if the key existed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn delete(&mut self, key: &[u8]) -> Outcome {
        if self.remove(key)? {
            self.notify(Class::GENERIC, "del", key);
        }
        Ok(())
    }

    /// Changes or adds a key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_header(&mut self, key: &[u8], header: &Header) -> Outcome {
        self.keys.set_header(self.space(), key, header)
    }

    /// Gives a key a string.
    ///
    /// # Errors
    /// Those of the database.
    pub fn overwrite(&mut self, key: &[u8], bytes: &[u8], expires_ms: Option<u64>) -> Outcome {
        self.keys.set_string(self.space(), key, bytes, expires_ms)
    }

    /// Gives a key a string, and keeps an expiry.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_string(&mut self, key: &[u8], bytes: impl Into<Bytes>) -> Outcome {
        let expires_ms = self.header(key)?.and_then(|header| header.expires_ms);
        self.set_header(key, &Header { expires_ms, ..Header::string(bytes) })
    }

    /// Removes a key. Returns false when it did not exist.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove(&mut self, key: &[u8]) -> Outcome<bool> {
        self.keys.remove(self.space(), key)
    }

    /// Reads the number of a database.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn database(&self, text: &[u8]) -> Outcome<usize> {
        let number = crate::commands::arguments::integer(text)?;
        if i32::try_from(number).is_err() {
            return Err(Failure::text("ERR value is out of range, value must between -2147483648 and 2147483647"));
        }
        let number = usize::try_from(number).ok().filter(|&number| number < DATABASES);
        number.ok_or(Failure::text("ERR DB index is out of range"))
    }
}
