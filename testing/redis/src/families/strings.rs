//! Strings and their bits.

pub(super) const TABLE: &str = "
    = 20 SET {k} {v}
    = 6  SET {k} {v} (NX|XX|) (GET|) (EX {t}|PX {ms}|EXAT {at}|PXAT {atms}|KEEPTTL|)
    = 2  SET {k} {v} (EX 0|EX -5|PX 9223372036854775807|EX 9223372036854775807|EX|NX XX|KEEPTTL EX 5|PXAT 1)
    = 12 GET {k}
    = 4  APPEND {k} {v}
    = 4  STRLEN {k}
    = 6  (INCR|DECR) {k}
    = 6  (INCRBY|DECRBY) {k} {i}
    = 4  GETSET {k} {v}
    = 3  GETDEL {k}
    = 4  GETEX {k} (EX {t}|PX {ms}|EXAT {at}|PXAT {atms}|PERSIST|EXAT 1|EX 0|)
    = 4  (GETRANGE|SUBSTR) {k} {i} {i}
    = 4  SETRANGE {k} {n} {v}
    = 3  SETNX {k} {v}
    = 2  SETEX {k} {t} {v}
    = 2  PSETEX {k} {ms} {v}
    = 2  LCS {k} {k} (LEN|IDX|IDX WITHMATCHLEN|IDX MINMATCHLEN {n}|LEN IDX|x|)
    = 1  (SETEX|PSETEX) {k} (0|-1|-1000000|9223372036854775807|x) {v}
    = 4  MGET {k*}
    = 4  MSET {kv*}
    = 3  MSETNX {kv*}
    s 3  (TTL|EXPIRETIME) {k}
    ms 3 (PTTL|PEXPIRETIME) {k}
    = 1  DEL {k*}
";

pub(super) const BITS: &str = "
    = 6  SET {k} {v}
    = 12 SETBIT {k} {o} {b}
    = 6  GETBIT {k} {o}
    = 6  BITCOUNT {k} ({i} {i}|{i} {i} BIT|{i} {i} BYTE|{i}|)
    = 8  BITPOS {k} {b} ({i} {i}|{i} {i} BIT|{i} {i} BYTE|{i}|)
    = 6  BITOP (AND|OR|XOR) {k} {k*}
    = 3  BITOP NOT {k} {k}
    = 1  BITOP NOT {k} {k} {k}
    = 9  BITFIELD {k} (OVERFLOW WRAP|OVERFLOW SAT|OVERFLOW x|) (GET {bt} {o}|SET {bt} {o} {j}|INCRBY {bt} {o} {j}|) (GET {bt} {o}|SET {bt} {o} {j}|INCRBY {bt} {o} {j}|)
    = 4  BITFIELD_RO {k} (GET {bt} {o}|SET {bt} {o} {j}|)
    = 4  GET {k}
";

/// Commands that may make a string longer without breaking transactions of Redis.
pub(super) const BITS_QUIET: &str = "
    = 3  BITFIELD {k} OVERFLOW FAIL (GET {bt} {o}|SET {bt} {o} {j}|INCRBY {bt} {o} {j}|) (GET {bt} {o}|SET {bt} {o} {j}|INCRBY {bt} {o} {j}|)
";

/// Sums of numbers with fractions, none of which Redis rounds.
pub(super) const FRACTIONS: &str = "
    = 4  SET {k} {f}
    = 12 INCRBYFLOAT {k} {f}
    = 4  GET {k}
    = 4  HSET h0 {m} {f}
    = 12 HINCRBYFLOAT (h0|h1) {m} {f}
    = 4  HGET (h0|h1) {m}
    = 1  (SET {k}|HSET h0 {m}) (x|-5|1e3|0x1.8p3|-0xff)
    = 1  INCRBYFLOAT {k} (0x1.8p3|0X.4|-0xffffp-2|0x|0x1p|1e-5000|1e5000|-inf|nan|1e-4960|+1|1.|.5|.)
    = 1  HINCRBYFLOAT (h0|h1) {m} (0x1.8p3|0X.4|-0xffffp-2|0x|0x1p|1e-5000|1e5000|-inf|nan|1e-4960|+1|1.|.5|.)
";
