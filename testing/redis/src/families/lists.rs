//! Lists.

pub(super) const TABLE: &str = "
    = 14 (LPUSH|RPUSH) {k} {m*}
    = 4  (LPUSH|RPUSH) {k} {v*}
    = 3  (LPUSHX|RPUSHX) {k} {m*}
    = 6  (LPOP|RPOP) {k} ({n}|)
    = 1  (LPOP|RPOP) {k} ({i}|{n} x)
    = 4  LLEN {k}
    = 6  LINDEX {k} {i}
    = 6  LSET {k} {i} {m}
    = 8  LRANGE {k} {i} {i}
    = 4  LRANGE {k} 0 -1
    = 3  LTRIM {k} {i} {i}
    = 6  LREM {k} {i} {m}
    = 6  LINSERT {k} (BEFORE|AFTER|x) {m} {m}
    = 8  LPOS {k} {m} (RANK {i}|) (COUNT {n}|) (MAXLEN {n}|)
    = 1  LPOS {k} {m} (RANK|RANK 0|COUNT -1|MAXLEN -1|x)
    = 4  RPOPLPUSH {k} {k}
    = 6  LMOVE {k} {k} (LEFT|RIGHT) (LEFT|RIGHT|x)
    = 3  LMPOP 2 {k} {k} (LEFT|RIGHT) (COUNT {n}|COUNT 5|)
    = 1  LMPOP (0|-1|x|1|2|3) {k} (LEFT|RIGHT|x) (COUNT 0|COUNT|COUNT 1 COUNT 2|)
";

/// Commands that wait for a moment where there is nothing.
pub(super) const BLOCKING: &str = "
    = 2 (BLPOP|BRPOP) {k} {k} (0.001|0.002|1e-3|0x.01|x|-1|inf|1e16|1e400|-1e400|1e5000|1e-400|9223372036854776|)
    = 1 BRPOPLPUSH {k} {k} (0.001|x|-1)
    = 2 BLMOVE {k} {k} (LEFT|RIGHT) (LEFT|RIGHT|x) (0.001|x|-1)
    = 2 BLMPOP (0.001|x|-1) 2 {k} {k} (LEFT|RIGHT|x) (COUNT {n}|COUNT 0|)
    = 1 BLMPOP 0.001 (0|-1|x|1|3) {k} (LEFT|RIGHT)
";
