//! What `MIGRATE` asks for. `execute::migrations` carries it out.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::WRITE;
use crate::commands::command::{Command, Family, Flow, Run};
use crate::keyspace::failure::{Failure, Outcome};
use std::ops::Range;
use std::time::Duration;

/// The time-out if the request gives none.
const USUAL_TIMEOUT_MS: u64 = 1000;
/// The place of the first option.
const OPTIONS: usize = 6;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::with(Family::Generic, "migrate", -6, WRITE, Run::Flow(Flow::Migrate))
    .keys_to_migrate()
    .doc("2.6.0", "Moves keys to another server.")];

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Migration<'a> {
    /// Where the target is.
    pub host: &'a [u8],
    /// The port there.
    pub port: &'a [u8],
    /// The target's database.
    pub database: i64,
    /// How long the target may be silent.
    pub timeout: Duration,
    /// Whether the keys also stay here.
    pub copies: bool,
    /// Whether they replace keys that the target has.
    pub replaces: bool,
    /// The arguments of `AUTH` at the target: nothing, a password, or a user and a password.
    pub login: &'a [&'a [u8]],
    /// The keys.
    pub keys: &'a [&'a [u8]],
}

impl<'a> Migration<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn read(arguments: Arguments<'a>) -> Outcome<Self> {
        const KEY_AND_KEYS: &str =
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";
        let (mut words, mut copies, mut replaces) = (arguments.words(OPTIONS), false, false);
        let (mut login, mut keys) = (&[][..], arguments.range(3, 4));
        while !words.is_done() {
            if words.take("COPY") {
                copies = true;
            } else if words.take("REPLACE") {
                replaces = true;
            } else if let Some(places) = words.take_login() {
                login = arguments.range(places.start, places.end);
            } else if words.take("KEYS") {
                if !arguments.at(3).is_empty() {
                    return Err(Failure::text(KEY_AND_KEYS));
                }
                keys = words.rest();
                break;
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        let timeout_ms = u64::try_from(arguments.integer(5)?).ok().filter(|timeout| *timeout > 0);
        Ok(Self {
            host: arguments.at(1),
            port: arguments.at(2),
            database: arguments.integer(4)?,
            timeout: Duration::from_millis(timeout_ms.unwrap_or(USUAL_TIMEOUT_MS)),
            copies,
            replaces,
            login,
            keys,
        })
    }
}

/// The places of users and passwords, and of what is between them.
#[must_use]
pub fn secrets(arguments: Arguments<'_>) -> Range<usize> {
    let (mut words, mut secrets) = (arguments.words(OPTIONS), 0..0);
    while !words.is_done() && !words.take("KEYS") {
        match words.take_login() {
            None => words.skip(1),
            Some(places) if secrets.is_empty() => secrets = places,
            Some(places) => secrets.end = places.end,
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    fn words(request: &str) -> Vec<&[u8]> {
        // Between two blanks is an empty word.
        request.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn requests_are_read() {
        let request = words("migrate h 1  2 30 copy REPLACE auth x AUTH2 u keys KEYS a b");
        let read = Migration::read(Arguments::new(&request)).unwrap();
        let expected = Migration {
            host: b"h",
            port: b"1",
            database: 2,
            timeout: Duration::from_millis(30),
            copies: true,
            replaces: true,
            login: &[b"u", b"keys"],
            keys: &[b"a", b"b"],
        };
        assert_eq!(read, expected);
        for (timeout, expected_ms) in [("0", 1000), ("-5", 1000), ("1", 1), ("9223372036854775807", i64::MAX as u64)] {
            let request = format!("migrate h 1 k -1 {timeout}");
            let request = words(&request);
            let read = Migration::read(Arguments::new(&request)).unwrap();
            assert_eq!((read.timeout, read.keys), (Duration::from_millis(expected_ms), &[&b"k"[..]][..]));
            assert!(!read.copies && !read.replaces && read.login.is_empty() && read.database == -1);
        }
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        for (request, expected) in [
            ("migrate h 1 k 0 10 x", "ERR syntax error"),
            ("migrate h 1 k 0 10 auth", "ERR syntax error"),
            ("migrate h 1 k 0 10 auth2 u", "ERR syntax error"),
            ("migrate h 1 k 0 x", "ERR value is not an integer or out of range"),
            ("migrate h 1 k x 10 copy", "ERR value is not an integer or out of range"),
            (
                "migrate h 1 k 0 10 keys a",
                "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
            ),
        ] {
            let request = words(request);
            assert_eq!(Migration::read(Arguments::new(&request)).unwrap_err().message(), expected);
        }
    }

    #[test]
    fn keys_and_secrets_are_found() {
        let command = table::registry().find(b"migrate").unwrap();
        for (request, keys, secrets_at) in [
            ("migrate h 1 k 0 0", &[3][..], 0..0),
            ("migrate h 1  0 0 copy", &[3], 0..0),
            ("migrate h 1 k 0 0 keys a", &[3], 0..0),
            ("migrate h 1  0 0 keys a b", &[7, 8], 0..0),
            ("migrate h 1  0 0 keys", &[], 0..0),
            ("migrate h 1  0 0 copy auth keys keys a auth x", &[10, 11, 12], 8..9),
            ("migrate h 1  0 0 auth2 keys keys replace keys auth", &[11], 7..9),
            ("migrate h 1 k 0 0 auth x nosuch auth y auth", &[3], 7..11),
        ] {
            let request = words(request);
            let arguments = Arguments::new(&request);
            assert_eq!(command.key_places(arguments), keys, "{request:?}");
            assert_eq!(secrets(arguments), secrets_at, "{request:?}");
        }
    }
}
