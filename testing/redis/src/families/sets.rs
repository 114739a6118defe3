//! Sets.

pub(super) const TABLE: &str = "
    = 16 SADD {k} {m*}
    = 3  SADD {k} {v*}
    = 8  SREM {k} {m*}
    = 4  SISMEMBER {k} {m}
    = 4  SMISMEMBER {k} {m*}
    = 4  SCARD {k}
    ~ 4  SMEMBERS {k}
    = 5  SMOVE {k} {k} {m}
    ~ 2  SPOP {k} (100|-1|0|x)
    ? 2  SRANDMEMBER {k} ({n}|-5|x|{n} x)
    ~ 2  SRANDMEMBER {k} 100
    ~ 4  (SINTER|SUNION|SDIFF) {k*}
    = 5  (SINTERSTORE|SUNIONSTORE|SDIFFSTORE) {k} {k*}
    = 2  SINTERCARD 1 {k} (LIMIT {n}|LIMIT -1|LIMIT x|LIMIT|)
    = 3  SINTERCARD 2 {k} {k} (LIMIT {n}|)
    = 1  SINTERCARD (0|-1|x|3) {k}
    scan 3 SSCAN {k} 0 (COUNT {n}|COUNT 100|) (MATCH {p}|)
";
