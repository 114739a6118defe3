//! What `COMMAND` says of commands beyond the table of commands: how the time that they take grows, their arguments,
//! what they do with their keys, hints for clients, and what came with later versions. `documentation.txt` has it, a
//! few lines for each command:
//!
//! ```text
//!   NAME: COMPLEXITY
//!     ARGUMENT ARGUMENT …
//!     keys WHERE: FLAG FLAG …        a key specification
//!     note TEXT                      what the one above does not say
//!     tips TIP TIP …
//!     deprecated VERSION INSTEAD     or     syscmd
//!     since VERSION TEXT             what is new from a version on
//!
//!   WHERE: 1           the first argument            WORD@3   what follows this word, looked for from place 3 on
//!          1..-1       from there to the last one    1..-1/2  every second of these      1..-1*2  the first half of these
//!          1#          their number, which they follow        ?  nowhere that can be said
//!
//!   name          a string            name:integer, :double, :pattern, :unix-time
//!   key           a key               name:key; name:key1 is found by the second key specification of the command
//!   TOKEN         a word that is given as it is, or not; name=TOKEN if it is not named like that in small letters
//!   TOKEN name    a word before an argument
//!   name(a b)     a block             name(a | b)      one of these
//!   a...          one or more         a...!            the same, each with the word before it
//!   a@7.0.0       from this version   a@-7.0.0         deprecated from this version on
//!   [a]           optional
//! ```
//!
//! Names and forms of arguments, key specifications and tips are those of Redis 7.0, as clients and tools know them.

use crate::commands::arguments::Arguments;
use forebay_env::HashMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("documentation.txt");
/// Types that may follow a name, with the place of the key specification that finds it.
const KINDS: &[(&str, &str, Option<i64>)] = &[
    ("integer", "integer", None),
    ("double", "double", None),
    ("unix-time", "unix-time", None),
    ("pattern", "pattern", None),
    ("pattern1", "pattern", Some(1)),
    ("key", "key", Some(0)),
    ("key1", "key", Some(1)),
    ("key2", "key", Some(2)),
];

/// The documentation of a command.
#[derive(Debug, Default)]
pub struct Documentation {
    /// How the time that it takes grows.
    pub complexity: &'static str,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// Where its keys are, and what it does with them.
    pub keys: Vec<KeySpecification>,
    /// What it can do from later versions on: the version, and what is new, the oldest first.
    pub history: Vec<(&'static str, &'static str)>,
    /// Hints for clients.
    pub tips: Vec<&'static str>,
    /// The version from which it is deprecated, and its replacement.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Whether it is for the server's own use.
    pub is_internal: bool,
}

/// An argument.
#[derive(Debug, Default)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: &'static str,
    /// The key specification that finds it.
    pub key_specification: Option<i64>,
    /// The word before it, or the word that it is.
    pub token: Option<&'static str>,
    /// The first version that has it, if that is not the command's.
    pub since: Option<&'static str>,
    /// The version from which it is deprecated.
    pub deprecated_since: Option<&'static str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether there may be several.
    pub is_repeated: bool,
    /// Whether the word is before each of them.
    pub repeats_token: bool,
    /// Its parts, or its alternatives.
    pub arguments: Vec<Argument>,
}

/// Where some keys are, and what the command does with them.
#[derive(Debug, PartialEq, Eq)]
pub struct KeySpecification {
    /// Where the search begins.
    pub begin: Begin,
    /// Which arguments from there on are keys.
    pub find: Find,
    /// What the command does with them, in Redis's words.
    pub flags: Vec<&'static str>,
    /// What the specification does not say.
    pub note: Option<&'static str>,
}

/// Where the search for keys begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At a place.
    At(usize),
    /// After a word, which is looked for from a place on. A negative place counts from the end, and the search goes
    /// backwards.
    Behind(&'static str, i64),
    /// It cannot be said.
    Unknown,
}

/// Which arguments from a place on are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// Arguments up to a last one, which counts from the first one, or from the end if it is negative, with a step. A
    /// limit says which part of them are keys.
    Range {
        /// The last key.
        last: i64,
        /// The distance from one key to the next.
        step: usize,
        /// Into how many parts the whole is divided; only the first part has keys. Zero means one.
        limit: usize,
    },
    /// The first argument is the number of keys, and the keys follow it.
    Counted,
}

impl KeySpecification {
    fn read(text: &'static str) -> Option<Self> {
        let (place, flags) = text.split_once(": ")?;
        let flags = flags.split(' ').collect();
        let (begin, find) = match place.strip_suffix('#') {
            Some(begin) => (begin, Find::Counted),
            None => {
                let (begin, last) = place.split_once("..").unwrap_or((place, "0"));
                let (last, limit) = last.split_once('*').unwrap_or((last, "0"));
                let (last, step) = last.split_once('/').unwrap_or((last, "1"));
                let find =
                    Find::Range { last: last.parse().ok()?, step: step.parse().ok()?, limit: limit.parse().ok()? };
                (begin, find)
            }
        };
        let begin = match begin.split_once('@') {
            Some((word, from)) => Begin::Behind(word, from.parse().ok()?),
            None if begin == "?" => Begin::Unknown,
            None => Begin::At(begin.parse().ok()?),
        };
        Some(Self { begin, find, flags, note: None })
    }

    /// Returns the places of these keys among the arguments of a request; none where that cannot be said.
    #[must_use]
    pub fn places(&self, arguments: Arguments<'_>) -> Vec<usize> {
        let first = match self.begin {
            Begin::At(place) => Some(place),
            Begin::Behind(word, from) => {
                let is_word = |place: &usize| arguments.is(*place, word);
                let from_start = usize::try_from(from).map(|from| (from..arguments.len()).find(is_word));
                let from_end = || {
                    let from = arguments.len().checked_add_signed(isize::try_from(from).ok()?)?;
                    (1..=from).rev().find(is_word)
                };
                from_start.unwrap_or_else(|_| from_end()).map(|place| place + 1)
            }
            Begin::Unknown => None,
        };
        let Some(first) = first.filter(|first| *first < arguments.len()) else { return Vec::new() };
        let left = arguments.len() - first;
        let (first, count, step) = match self.find {
            Find::Counted => {
                let count = arguments.integer(first).ok().and_then(|count| usize::try_from(count).ok());
                (first + 1, count.unwrap_or(0), 1)
            }
            Find::Range { last, step, limit } => {
                let from_end = |last: i64| (left / limit.max(1)).checked_add_signed(isize::try_from(last).ok()?);
                let last = usize::try_from(last).ok().or_else(|| from_end(last));
                (first, last.map_or(0, |last| last / step.max(1) + 1), step.max(1))
            }
        };
        (first..arguments.len()).step_by(step).take(count).collect()
    }
}

/// Returns the documentation of the command of this name.
#[must_use]
pub fn of(name: &str) -> Option<&'static Documentation> {
    static ALL: LazyLock<HashMap<&str, Documentation>> = LazyLock::new(|| read(TEXT).unwrap_or_default());
    ALL.get(name)
}

fn read(text: &'static str) -> Option<HashMap<&'static str, Documentation>> {
    let mut all = HashMap::default();
    let mut latest = "";
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("  ") {
            let command: &mut Documentation = all.get_mut(latest)?;
            if let Some(deprecated) = line.strip_prefix("deprecated ") {
                command.deprecated = Some(deprecated.split_once(' ')?);
            } else if let Some(keys) = line.strip_prefix("keys ") {
                command.keys.push(KeySpecification::read(keys)?);
            } else if let Some(note) = line.strip_prefix("note ") {
                command.keys.last_mut()?.note = Some(note);
            } else if let Some(change) = line.strip_prefix("since ") {
                command.history.push(change.split_once(' ')?);
            } else if let Some(tips) = line.strip_prefix("tips ") {
                command.tips = tips.split(' ').collect();
            } else if line == "syscmd" {
                command.is_internal = true;
            } else {
                let mut reader = Reader(line);
                let (arguments, has_alternatives) = reader.group()?;
                if has_alternatives || !reader.0.is_empty() {
                    return None;
                }
                command.arguments = arguments;
            }
        } else {
            let (name, complexity) = line.split_once(": ")?;
            all.insert(name, Documentation { complexity, ..Documentation::default() });
            latest = name;
        }
    }
    Some(all)
}

/// The rest of a line.
struct Reader(&'static str);

impl Reader {
    fn takes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes what comes before the first of these letters.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'static str {
        let (word, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        word
    }

    /// Arguments up to the end of a group, and whether they are alternatives.
    fn group(&mut self) -> Option<(Vec<Argument>, bool)> {
        let mut arguments = vec![self.argument()?];
        let mut has_alternatives = false;
        while self.0.starts_with(' ') {
            has_alternatives |= self.takes(" | ");
            let _ = self.takes(" ");
            arguments.push(self.argument()?);
        }
        Some((arguments, has_alternatives))
    }

    fn argument(&mut self) -> Option<Argument> {
        if self.takes("[") {
            let argument = self.argument()?;
            return self.takes("]").then_some(Argument { is_optional: true, ..argument });
        }
        let word = self.until(|letter| " ()[]|@.".contains(letter));
        let is_token = word.starts_with(|letter: char| letter.is_ascii_uppercase())
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let is_before_another = self.0.strip_prefix(' ').is_some_and(|rest| !rest.starts_with(['|', '[']));
        if is_token && is_before_another {
            let _ = self.takes(" ");
            return Some(Argument { token: Some(word), ..self.argument()? });
        }
        let mut argument = Argument { name: word.to_owned(), kind: "string", ..Argument::default() };
        if is_token {
            argument = Argument { name: word.to_lowercase(), kind: "pure-token", token: Some(word), ..argument };
        } else if let Some((name, token)) = word.split_once('=') {
            argument = Argument { name: name.to_owned(), kind: "pure-token", token: Some(token), ..argument };
        } else if word == "key" {
            argument = Argument { kind: "key", key_specification: Some(0), ..argument };
        } else if let Some((name, kind)) = word.rsplit_once(':')
            && let Some((_, kind, key_specification)) = KINDS.iter().find(|(known, ..)| *known == kind)
        {
            argument = Argument { name: name.to_owned(), kind, key_specification: *key_specification, ..argument };
        }
        if self.takes("(") {
            let (arguments, has_alternatives) = self.group()?;
            argument.kind = if has_alternatives { "oneof" } else { "block" };
            argument.arguments = arguments;
            if !self.takes(")") {
                return None;
            }
        }
        argument.is_repeated = self.takes("...");
        argument.repeats_token = self.takes("!");
        if self.takes("@") {
            let is_end = self.takes("-");
            let version = self.until(|letter| letter != '.' && !letter.is_ascii_digit());
            let place = if is_end { &mut argument.deprecated_since } else { &mut argument.since };
            *place = Some(version);
        }
        Some(argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command::Keys;
    use crate::commands::command::flags::PUBSUB;
    use crate::commands::table;

    #[test]
    fn each_command_is_documented() {
        let all = read(TEXT).expect("documentation.txt is in its form");
        let registry = table::registry();
        let commands = registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands));
        let mut names: Vec<&str> = commands.map(|command| command.name).collect();
        names.sort_unstable();
        let mut documented: Vec<&str> = all.keys().copied().collect();
        documented.sort_unstable();
        assert_eq!(documented, names);
        assert!(all.values().all(|command| !command.complexity.is_empty()));
        // A command that needs an argument beside its name has one.
        for command in registry.all().iter().filter(|command| command.subcommands.is_empty()) {
            assert!(command.arity.abs() == 1 || !all[command.name].arguments.is_empty(), "{}", command.name);
        }
    }

    #[test]
    fn changes_and_notes_are_sentences_in_order() {
        let all = read(TEXT).unwrap();
        let version = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
        for (name, command) in &all {
            let versions: Vec<_> = command.history.iter().map(|(since, _)| version(since)).collect();
            assert!(versions.is_sorted() && versions.iter().all(|version| version.len() == 3), "{name}");
            let notes = command.keys.iter().filter_map(|keys| keys.note);
            let mut texts = command.history.iter().map(|(_, text)| *text).chain(notes);
            assert!(texts.all(|text| text.ends_with('.') && text.len() > 10), "{name}");
        }
        let set = &all["set"];
        assert_eq!(set.history.first(), Some(&("2.6.12", "Takes `EX`, `PX`, `NX` and `XX`.")));
        assert_eq!(set.keys[0].note, Some("With `GET`, the former value is read."));
        let sort: Vec<_> = all["sort"].keys.iter().map(|keys| keys.note.is_some()).collect();
        assert_eq!(sort, [false, true, true]);
        for broken in ["note of no key", "since 7.0.0"] {
            assert!(read(Box::leak(format!("x: O(1)\n  {broken}").into_boxed_str())).is_none(), "{broken}");
        }
    }

    /// The places of keys are given twice: here for clients, and in the table of commands for the server.
    #[test]
    fn key_specifications_find_keys() {
        let registry = table::registry();
        for request in [
            "mset a 1 b 2",
            "bitop and a b c",
            "blpop a b 0",
            "lcs a b",
            "xgroup create a b c",
            "object encoding a",
            "rename a b",
            "lmpop 2 a b left",
            "zunionstore a 2 b c weights 1 2",
            "eval x 2 a b c",
            "xread count 1 streams a b 1 2",
            "xreadgroup group a b streams a 1",
            "georadius a 1 2 3 m store b",
            "georadiusbymember a b 3 m storedist c",
            "memory usage a",
            "sunionstore a b c",
            "msetnx a 1",
            "zinterstore a 1 b",
            "sintercard 1 a",
            "del a b c",
            "exists a",
            "set a 1 get",
            "migrate host 6379 a 0 0 copy",
        ] {
            let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
            let arguments = Arguments::new(&words);
            let command = registry.resolve(arguments).unwrap();
            let mut places: Vec<usize> =
                of(command.name).unwrap().keys.iter().flat_map(|keys| keys.places(arguments)).collect();
            places.sort_unstable();
            let mut of_table = command.key_places(arguments);
            of_table.sort_unstable();
            assert_eq!(places, of_table, "{request}");
        }
        let all = registry.all().iter().flat_map(|command| std::iter::once(*command).chain(command.subcommands));
        for command in all {
            let has_keys = of(command.name).is_some_and(|of| of.keys.iter().any(|keys| keys.flags != ["not_key"]));
            assert_eq!(has_keys, command.keys != Keys::None && !command.has(PUBSUB), "{}", command.name);
        }
    }

    #[test]
    fn arguments_are_read() {
        let mut reader =
            Reader("key [GET pattern:pattern1...!@2.6.0] limits(a:integer b) [order(ASC@-7.0.0 | down=DESC)]");
        let (arguments, has_alternatives) = reader.group().unwrap();
        assert!(!has_alternatives && reader.0.is_empty());
        let [key, get, limits, order] = &arguments[..] else { panic!("{arguments:?}") };
        assert_eq!((&*key.name, key.kind, key.key_specification), ("key", "key", Some(0)));
        assert_eq!(
            (get.token, get.kind, get.key_specification, get.since),
            (Some("GET"), "pattern", Some(1), Some("2.6.0"))
        );
        assert!(get.is_optional && get.is_repeated && get.repeats_token && !key.is_optional);
        assert_eq!((limits.kind, &*limits.arguments[0].name, limits.arguments[0].kind), ("block", "a", "integer"));
        let [up, down] = &order.arguments[..] else { panic!("{order:?}") };
        assert_eq!(
            (order.kind, up.deprecated_since, &*down.name, down.token),
            ("oneof", Some("7.0.0"), "down", Some("DESC"))
        );
        for broken in ["[a", "a(b", "a)", "a | b"] {
            assert!(read(Box::leak(format!("x: O(1)\n  {broken}").into_boxed_str())).is_none(), "{broken}");
        }
    }
}
