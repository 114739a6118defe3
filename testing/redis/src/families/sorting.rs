//! Sorting of lists, sets and sorted sets, by themselves and by other keys.

pub(super) const TABLE: &str = "
    = 6  RPUSH {k} {num} {num} {num} {num} {num}
    = 2  RPUSH {k} {m*}
    = 4  SADD (t0|t1) {num} {num} {num}
    = 4  ZADD (z0|z1) {q} {num} {q} {num} {q} {m}
    = 8  MSET {wkey} {num} {wkey} {num} {wkey} {v}
    = 4  HSET {okey} f {num} g {v}
    = 2  DEL {wkey} {wkey} {okey} {okey}
    = 2  DEL t0 z0 {k}
    = 8  SORT {k} (ASC|DESC|) (ALPHA|) (LIMIT {n} {n}|LIMIT {i} {i}|)
    = 4  SORT {k} BY (w_*|o_*->f|o_*->g|o_*->) (DESC|)
    = 3  SORT {k} BY (w_*|o_*->f) LIMIT {n} {n} (DESC|)
    ~ 2  SORT {k} BY (nosort|x|#|o->f) (DESC|)
    = 2  RPUSH lists {num} {num}
    = 1  LTRIM lists 0 {n}
    = 2  ZADD sorted {q} {num} {q} {num}
    = 4  SORT (lists|sorted) BY (nosort|x|#|o->f) (DESC|) (LIMIT {n} {n}|) (GET w_*|)
    = 4  SORT {k} (GET #|GET w_*|GET o_*->f|GET nothing|GET # GET w_* GET o_*->g) (DESC|) (LIMIT {n} {n}|)
    = 4  SORT {k} (BY w_*|ALPHA|) (GET # GET w_*|) STORE {k} (LIMIT {n} {n}|)
    = 3  SORT (t0|t1|z0|z1) (DESC|) (ALPHA|) (LIMIT {n} {n}|)
    = 2  SORT (t0|t1|lists|sorted) BY nosort STORE {k} (DESC|)
    = 3  SORT_RO {k} (BY w_*|) (DESC|) (STORE {k}||)
    = 1  SORT {k} (x|LIMIT 1|LIMIT x 1|BY|GET|STORE|LIMIT 1 x)
    = 2  LRANGE {k} 0 -1
    = 1  COMMAND GETKEYS SORT {k}
";
