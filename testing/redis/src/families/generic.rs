//! Keys of any type, and transactions.

pub(super) const TABLE: &str = "
    = 12 SET {k} {v} (EX {t}|)
    = 3  MSET {kv*}
    = 6  EXPIRE {k} {t} (NX|XX|GT|LT|)
    = 4  PEXPIRE {k} {ms} (NX|XX|GT|LT|)
    = 4  EXPIREAT {k} {at} (NX|XX|GT|LT|)
    = 4  PEXPIREAT {k} {atms} (NX|XX|GT|LT|)
    = 2  EXPIRE {k} (0|-1|9223372036854775807|-9223372036854775808) (NX|XX|GT|LT|)
    = 1  EXPIRE {k} {t} (NX XX|GT LT|NX GT|XX GT|x)
    = 4  PERSIST {k}
    s 6  (TTL|EXPIRETIME) {k}
    ms 6 (PTTL|PEXPIRETIME) {k}
    = 4  TYPE {k}
    = 6  EXISTS {k*}
    = 4  TOUCH {k*}
    = 4  (DEL|UNLINK) {k*}
    = 5  RENAME {k} {k}
    = 5  RENAMENX {k} {k}
    = 5  COPY {k} {k} (REPLACE|DB {db}|DB {db} REPLACE|)
    = 4  MOVE {k} {db}
    = 4  GET {k}
    = 4  SELECT {db}
    = 1  SELECT (16|-1|x)
    = 1  SWAPDB {db} {db}
    = 3  DBSIZE
    ~ 3  KEYS {p}
    ? 2  RANDOMKEY
    scan 3 SCAN 0 (COUNT {n}|COUNT 100|) (MATCH {p}|) (TYPE string|TYPE list|)
    = 1  SCAN (x|1.5)
    = 1  OBJECT (ENCODING|REFCOUNT|FREQ) nothing
    = 1  FLUSHALL (SYNC|ASYNC|x|)
    = 1  DUMP nothing
    = 2  RESTORE {k} (0|-1|x|1000000) {v} (REPLACE|ABSTTL|IDLETIME 5|IDLETIME -1|FREQ 300|IDLETIME 5 FREQ 5|x|)
    = 1  ECHO {v}
    = 1  PING (|{v})
    = 1  (NOSUCH|NOSUCH {v}|CLIENT NOSUCH|CONFIG NOSUCH|OBJECT NOSUCH x)
    = 1  CONFIG SET nosuch 1
    = 1  (LOLWUT|LOLWUT VERSION 9|LOLWUT VERSION x|LATENCY GRAPH x)
    = 1  COMMAND GETKEYS (GET {k}|MSET {kv*}|PING|NOSUCH|GET)
";

/// Commands that no transaction here may have. No server is contacted, because there is no such
/// key.
pub(super) const MIGRATION: &str = "
    = 2  MIGRATE 127.0.0.1 1 nothing (0|x) (10|-1|x) (COPY|REPLACE|COPY REPLACE|AUTH p|AUTH2 u p|AUTH|AUTH2 u|KEYS a|x|)
";

pub(super) const TRANSACTIONS: &str = "
    = 14 MULTI
    exec 14 EXEC
    = 4  DISCARD
    = 5  WATCH {k*}
    = 2  UNWATCH
    = 2  SELECT {db}
    = 2  NOSUCH {v}
    = 1  FLUSHDB
    = 1  SWAPDB {db} {db}
    = 1  RENAME {k} {k}
    = 1  CLIENT REPLY ON
";
