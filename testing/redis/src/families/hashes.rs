//! Hashes.

pub(super) const TABLE: &str = "
    = 16 HSET {k} {mv*}
    = 3  HMSET {k} {mv*}
    = 4  HSETNX {k} {m} {v}
    = 8  HGET {k} {m}
    = 5  HMGET {k} {m*}
    = 7  HDEL {k} {m*}
    = 4  HEXISTS {k} {m}
    = 3  HLEN {k}
    = 3  HSTRLEN {k} {m}
    = 6  HINCRBY {k} {m} {i}
    % 5  HGETALL {k}
    ~ 3  HKEYS {k}
    ~ 3  HVALS {k}
    ? 2  HRANDFIELD {k} ({n}|{i}|{n} WITHVALUES|{n} x)
    ? 1  HRANDFIELD {k} -5 WITHVALUES
    % 2  HRANDFIELD {k} 100 WITHVALUES
    ~ 1  HRANDFIELD {k} 100
    scan% 3 HSCAN {k} 0 (COUNT {n}|COUNT 100|) (MATCH {p}|)
    = 1  HSCAN {k} (x|0 x|0 COUNT x|0 COUNT 0)
    = 1  HSET {k} {m}
    = 1  HMSET {k} {m} {v} {m}
";
