//! Sorted sets.

pub(super) const TABLE: &str = "
    = 12 ZADD {k} {gm*}
    = 8  ZADD {k} (NX|XX|) (GT|LT|) (CH|) {gm*}
    = 3  ZADD {k} (NX|XX|GT|LT|) INCR {g} {m}
    = 1  ZADD {k} (NX XX|GT LT|NX GT|INCR|CH CH) {gm*}
    = 5  ZINCRBY {k} {g} {m}
    = 5  ZSCORE {k} {m}
    = 4  ZMSCORE {k} {m*}
    = 3  ZCARD {k}
    = 5  ZREM {k} {m*}
    = 4  (ZRANK|ZREVRANK) {k} {m}
    = 4  ZCOUNT {k} {sc} {sc}
    = 5  ZRANGE {k} {i} {i} (WITHSCORES|)
    = 3  ZRANGE {k} {i} {i} REV (WITHSCORES|)
    = 4  ZREVRANGE {k} {i} {i} (WITHSCORES|)
    = 5  (ZRANGEBYSCORE|ZREVRANGEBYSCORE) {k} {sc} {sc} (WITHSCORES|) (LIMIT {i} {i}|LIMIT {n} {n}|)
    = 5  ZRANGE {k} {sc} {sc} BYSCORE (REV|) (LIMIT {i} {i}|LIMIT {n} {n}|) (WITHSCORES|)
    = 1  ZRANGE {k} 0 -1 (LIMIT 0 1|BYSCORE BYLEX|BYLEX WITHSCORES|LIMIT|LIMIT 0 -1|x)
    = 4  ZRANGESTORE {k} {k} {i} {i} (REV|)
    = 3  ZRANGESTORE {k} {k} {sc} {sc} BYSCORE (REV|) (LIMIT {n} {n}|)
    = 2  ZREMRANGEBYRANK {k} {i} {i}
    = 2  ZREMRANGEBYSCORE {k} {sc} {sc}
    = 4  (ZPOPMIN|ZPOPMAX) {k} ({n}|)
    = 1  (ZPOPMIN|ZPOPMAX) {k} (-1|x|1 x)
    = 3  ZMPOP 2 {k} {k} (MIN|MAX) (COUNT {n}|COUNT 5|)
    = 1  ZMPOP (0|-1|x|1|2|3) {k} (MIN|MAX|x) (COUNT 0|COUNT|)
    ? 2  ZRANDMEMBER {k} ({n}|-5|{n} WITHSCORES|-3 WITHSCORES|x|{n} x)
    ~ 1  ZRANDMEMBER {k} 100
    = 3  (ZUNION|ZINTER) 2 {k} {k} (WEIGHTS {w} {g}|) (AGGREGATE MIN|AGGREGATE MAX|AGGREGATE SUM|) (WITHSCORES|)
    = 2  ZDIFF 2 {k} {k} (WITHSCORES|)
    = 4  (ZUNIONSTORE|ZINTERSTORE) {k} 2 {k} {k} (WEIGHTS {w} {g}|) (AGGREGATE MIN|AGGREGATE MAX|AGGREGATE SUM|)
    = 2  ZDIFFSTORE {k} 2 {k} {k}
    = 1  (ZUNION|ZINTER|ZDIFF|ZINTERCARD) (0|-1|x|3|1) {k} (x|WEIGHTS|WEIGHTS x|AGGREGATE|AGGREGATE x|WITHSCORES|LIMIT 1|LIMIT -1|)
    = 2  ZINTERCARD 2 {k} {k} (LIMIT {n}|)
    = 1  SADD {k} {m*}
    scan% 3 ZSCAN {k} 0 (COUNT {n}|COUNT 100|) (MATCH {p}|)
";

pub(super) const LEX: &str = "
    = 16 ZADD {k} 0 {m} 0 {m} 0 {m}
    = 4  ZREM {k} {m*}
    = 8  (ZRANGEBYLEX|ZREVRANGEBYLEX) {k} {lex} {lex} (LIMIT {i} {i}|LIMIT {n} {n}|)
    = 6  ZRANGE {k} {lex} {lex} BYLEX (REV|) (LIMIT {n} {n}|)
    = 4  ZRANGESTORE {k} {k} {lex} {lex} BYLEX (REV|) (LIMIT {n} {n}|)
    = 6  ZLEXCOUNT {k} {lex} {lex}
    = 2  ZREMRANGEBYLEX {k} {lex} {lex}
    = 4  ZRANGE {k} 0 -1
    = 2  (ZRANK|ZREVRANK) {k} {m}
";

/// Commands that wait for a moment where there is nothing.
pub(super) const BLOCKING: &str = "
    = 2 (BZPOPMIN|BZPOPMAX) {k} {k} (0.001|0.002|x|-1|inf|)
    = 2 BZMPOP (0.001|x|-1) 2 {k} {k} (MIN|MAX|x) (COUNT {n}|COUNT 0|)
    = 1 BZMPOP 0.001 (0|-1|x|1|3) {k} (MIN|MAX)
";
