//! Whether a user may do what a request asks for.
//!
//! What a command does with its keys follows from whether it reads or writes, and from the lists here. The lists are
//! those of Redis: a command that tells only a value's existence, type or length needs no right to read it.

use crate::acl::selector::{Access, Asked, Channel, Denied};
use crate::acl::user::User;
use crate::acl::users::Users;
use crate::commands::arguments::Arguments;
use crate::commands::command::{Command, Family, flags};
use crate::keyspace::failure::Failure;

/// Commands that tell nothing about a value's contents.
const TELL_NOTHING: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory|usage",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];
/// Commands that write, and also tell the old value.
const READ_TOO: &[&str] = &[
    "bitfield",
    "blmpop",
    "blpop",
    "brpop",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "decr",
    "decrby",
    "eval",
    "evalsha",
    "fcall",
    "getdel",
    "getex",
    "getset",
    "hincrby",
    "hincrbyfloat",
    "incr",
    "incrby",
    "incrbyfloat",
    "lmpop",
    "lpop",
    "migrate",
    "move",
    "rpop",
    "setbit",
    "spop",
    "zincrby",
    "zmpop",
    "zpopmax",
    "zpopmin",
];
/// Commands whose first key is read and removed, and the second written.
const MOVE: &[&str] = &["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];
/// Commands whose first key is written, and the others read.
const STORE: &[&str] = &[
    "bitop",
    "geosearchstore",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// What a command does with its first key, and with the others.
fn access(command: &Command, arguments: Arguments<'_>) -> (Access, Access) {
    let name = command.name;
    let same = |access| (access, access);
    match name {
        "bitfield" if only_gets(arguments) => same(Access::READ),
        _ if TELL_NOTHING.contains(&name) => same(Access::NONE),
        _ if READ_TOO.contains(&name) => same(Access::BOTH),
        _ if MOVE.contains(&name) => (Access::BOTH, Access::WRITE),
        _ if STORE.contains(&name) => (Access::WRITE, Access::READ),
        "pfmerge" => (Access::BOTH, Access::READ),
        "copy" | "georadius" | "georadiusbymember" | "sort" => (Access::READ, Access::WRITE),
        "xreadgroup" => same(Access::READ),
        "set" if (3..arguments.len()).any(|place| arguments.is(place, "GET")) => same(Access::BOTH),
        _ if command.has(flags::WRITE) => same(Access::WRITE),
        _ => same(Access::READ),
    }
}

/// Whether all steps of a `BITFIELD` only read. An invalid step counts as one that writes.
fn only_gets(arguments: Arguments<'_>) -> bool {
    let mut words = arguments.words(2);
    while words.take_with_values::<2>("GET").is_some() || words.take_with_value("OVERFLOW").is_some() {}
    words.is_done()
}

fn channels<'a>(command: &Command, arguments: Arguments<'a>) -> Vec<Channel<'a>> {
    let (names, is_pattern) = match command.name {
        "publish" | "spublish" => (arguments.range(1, 2), false),
        "subscribe" | "ssubscribe" => (arguments.from(1), false),
        "psubscribe" => (arguments.from(1), true),
        _ => return Vec::new(),
    };
    names.iter().map(|name| Channel { name, is_pattern }).collect()
}

/// Something that a user may not do.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// `command`, `key` or `channel`.
    pub reason: &'static str,
    /// Which one.
    pub object: &'a [u8],
}

impl Refusal<'_> {
    /// The text of the error.
    #[must_use]
    pub fn failure(&self, command: &Command) -> Failure {
        Failure::new(match self.reason {
            "command" => format!("NOPERM this user has no permissions to run the '{}' command", command.name),
            reason => format!("NOPERM this user has no permissions to access one of the {reason}s used as arguments"),
        })
    }

    /// The same for a command that was allowed when it was queued.
    #[must_use]
    pub fn failure_in_exec(&self) -> Failure {
        let why = match self.reason {
            "command" => "no permission to execute the command or subcommand",
            "key" => "no permission to touch the specified keys",
            _ => "no permission to access one of the channels used as arguments",
        };
        Failure::new(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {why}"
        ))
    }

    /// The same within a script.
    #[must_use]
    pub fn failure_in_script(&self) -> Failure {
        Failure::text(match self.reason {
            "command" => "ERR The user executing the script can't run this command or subcommand",
            "key" => {
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
            }
            _ => {
                "ERR The user executing the script can't access at least one of the channels mentioned in the command \
                 arguments"
            }
        })
    }
}

/// Returns what a request asks for; `None` for a command that the catalogue does not have.
fn asked<'a>(users: &Users, command: &Command, arguments: Arguments<'a>) -> Option<Asked<'a>> {
    let number = users.catalogue().number(command.name)?;
    let (first, others) = access(command, arguments);
    // Shard channels are in the places of keys, to say which node of a cluster has them, but they are not keys.
    let places = if command.family == Family::PubSub { Vec::new() } else { command.key_places(arguments) };
    let keys = places
        .into_iter()
        .enumerate()
        .map(|(order, place)| (arguments.at(place), if order == 0 { first } else { others }));
    Some(Asked {
        command: number,
        first_argument: arguments.at(1),
        keys: keys.collect(),
        channels: channels(command, arguments),
    })
}

/// Whether a user may do what a request asks for.
///
/// # Errors
/// What the user may not do.
pub fn check<'a>(users: &Users, user: &User, command: &Command, arguments: Arguments<'a>) -> Result<(), Refusal<'a>> {
    if user.may_do_all() || command.has(flags::NO_AUTH) {
        return Ok(());
    }
    let of_command = Refusal { reason: "command", object: command.name.as_bytes() };
    let Some(asked) = asked(users, command, arguments) else { return Err(of_command) };
    user.rules().judge(&asked).map_err(|denied| match denied {
        Denied::Command => of_command,
        Denied::Key(place) => Refusal { reason: "key", object: asked.keys.get(place).map_or(&[][..], |(key, _)| *key) },
        Denied::Channel(place) => {
            Refusal { reason: "channel", object: asked.channels.get(place).map_or(&[][..], |channel| channel.name) }
        }
    })
}

/// Whether a user may read keys that a request's arguments do not name: the selector that allows the request must allow
/// every key.
pub fn reads_all_keys(users: &Users, user: &User, command: &Command, arguments: Arguments<'_>) -> bool {
    user.may_do_all() || asked(users, command, arguments).is_some_and(|asked| user.rules().reads_all_keys(&asked))
}
