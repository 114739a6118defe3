//! The families of commands, each a table of templates ([`crate::template`]).

mod access;
mod generic;
mod geo;
mod hashes;
mod hyperloglog;
mod lists;
mod scripting;
mod server;
mod sets;
mod sorted_sets;
mod sorting;
pub(crate) mod streams;
mod strings;

use crate::client::Value;
use crate::template::Templates;
use forebay_env::{Clock, SystemClock};

/// A family of commands.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name on the command line.
    pub name: &'static str,
    prefix: &'static str,
    tables: &'static [&'static str],
}

/// All families.
pub const FAMILIES: &[Family] = &[
    Family { name: "access", prefix: "s", tables: &[access::TABLE, strings::TABLE] },
    Family { name: "scripts", prefix: "s", tables: &[scripting::TABLE, strings::TABLE, OTHERS] },
    Family { name: "functions", prefix: "s", tables: &[scripting::FUNCTIONS, strings::TABLE, OTHERS] },
    Family { name: "strings", prefix: "s", tables: &[strings::TABLE, OTHERS] },
    Family { name: "fractions", prefix: "s", tables: &[strings::FRACTIONS, OTHERS] },
    Family { name: "bitmaps", prefix: "s", tables: &[strings::BITS, strings::BITS_QUIET, OTHERS] },
    Family { name: "hyperloglog", prefix: "s", tables: &[hyperloglog::TABLE, OTHERS] },
    Family { name: "keys", prefix: "s", tables: &[generic::TABLE, generic::MIGRATION, OTHERS] },
    Family { name: "hashes", prefix: "h", tables: &[hashes::TABLE, OTHERS] },
    Family { name: "sets", prefix: "t", tables: &[sets::TABLE, OTHERS] },
    Family { name: "lists", prefix: "l", tables: &[lists::TABLE, OTHERS] },
    Family { name: "sorted-sets", prefix: "z", tables: &[sorted_sets::TABLE, OTHERS] },
    Family { name: "sorted-sets-lex", prefix: "z", tables: &[sorted_sets::LEX, OTHERS] },
    Family { name: "geo", prefix: "z", tables: &[geo::TABLE, OTHERS] },
    Family { name: "sorting", prefix: "l", tables: &[sorting::TABLE, OTHERS] },
    Family { name: "streams", prefix: "x", tables: &[streams::TABLE, streams::QUIET, OTHERS] },
    Family { name: "transactions", prefix: "s", tables: &[generic::TRANSACTIONS, strings::TABLE] },
    Family { name: "transactions-streams", prefix: "x", tables: &[generic::TRANSACTIONS, streams::TABLE] },
    Family {
        name: "transactions-lists",
        prefix: "l",
        tables: &[generic::TRANSACTIONS, lists::TABLE, lists::BLOCKING, OTHERS],
    },
    Family {
        name: "transactions-sorted-sets",
        prefix: "z",
        tables: &[generic::TRANSACTIONS, sorted_sets::TABLE, sorted_sets::BLOCKING, OTHERS],
    },
    Family { name: "transactions-hashes", prefix: "h", tables: &[generic::TRANSACTIONS, hashes::TABLE, OTHERS] },
    Family { name: "transactions-sets", prefix: "t", tables: &[generic::TRANSACTIONS, sets::TABLE, OTHERS] },
    Family { name: "transactions-bitmaps", prefix: "s", tables: &[generic::TRANSACTIONS, strings::BITS, OTHERS] },
    Family {
        name: "transactions-fractions",
        prefix: "s",
        tables: &[generic::TRANSACTIONS, strings::FRACTIONS, OTHERS],
    },
    Family { name: "transactions-keys", prefix: "s", tables: &[generic::TRANSACTIONS, generic::TABLE, OTHERS] },
    Family { name: "blocking-lists", prefix: "l", tables: &[lists::BLOCKING, lists::TABLE, OTHERS] },
    Family { name: "blocking-sorted-sets", prefix: "z", tables: &[sorted_sets::BLOCKING, sorted_sets::TABLE, OTHERS] },
    Family { name: "server", prefix: "s", tables: &[server::TABLE, OTHERS] },
    Family { name: "channels", prefix: "s", tables: &[server::CHANNELS] },
];

/// Commands that give keys other types, and remove keys.
const OTHERS: &str = "
    = 2 DEL {k*}
    = 1 FLUSHDB
    = 2 (SET s0 x|RPUSH l0 a|SADD t0 a|HSET h0 a b|ZADD z0 0 a|XADD x0 9-* a b)
    = 2 RENAME {k} {k}
    = 2 COPY {k} {k} (REPLACE|)
    = 1 MOVE {k} 2
    = 1 TYPE {k}
    = 1 EXPIRE {k} {t}
    s 1 TTL {k}
";

impl Family {
    /// The family of a name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// Its templates.
    #[must_use]
    pub fn templates(&self) -> Templates {
        Templates::read(self.tables, self.prefix, SystemClock::new().wall_ms())
    }

    /// Whether these replies may differ: the list of `docs/reference/redis.md`.
    #[must_use]
    pub fn may_differ(&self, words: &[Vec<u8>], redis: &Value, forebay: &Value) -> bool {
        let is = |name: &str| words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        let is_acl =
            |name: &str| is("ACL") && words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        match (redis, forebay) {
            // Unprintable characters are not shown here.
            (Value::Error(a), Value::Error(b)) if a.starts_with("ERR unknown command") => {
                b.starts_with("ERR unknown command")
            }
            // Strings are shorter here.
            (Value::Error(a), Value::Error(b)) if is("SETRANGE") => {
                a.contains("exceeds maximum") || b.contains("exceeds maximum")
            }
            (Value::Integer(_), Value::Error(b)) => b.contains("exceeds maximum") || b.contains("bit offset"),
            // Redis rounds to 80 bits, Forebay does not round.
            (Value::Bulk(a), Value::Bulk(b)) if is("INCRBYFLOAT") || is("HINCRBYFLOAT") => is_near(a, b),
            // Random, where a word was left out.
            (Value::Bulk(a), Value::Bulk(b)) if is_acl("GENPASS") => a.len() == b.len(),
            // A user whose name is a word of the table, because words are left out at random: the text of what it may do
            // differs.
            (Value::Many(a, _), Value::Many(b, _)) if is_acl("GETUSER") => a == b,
            // Times and addresses.
            (Value::Many(_, a), Value::Many(_, b)) if is_acl("LOG") => a.len() == b.len(),
            _ => false,
        }
    }
}

fn is_near(a: &[u8], b: &[u8]) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    matches!((number(a), number(b)), (Some(a), Some(b)) if (a - b).abs() <= a.abs() * 1e-15)
}
