//! Sketches.

pub(super) const TABLE: &str = "
    = 16 PFADD {k} {e*}
    = 3  PFADD {k} {v*}
    = 1  PFADD {k}
    = 8  PFCOUNT {k}
    = 4  PFCOUNT {k*}
    = 5  PFMERGE {k} {k*}
    = 4  GET {k}
    = 2  STRLEN {k}
    = 4  PFDEBUG (ENCODING|DECODE) {k}
    = 1  PFDEBUG (TODENSE|GETREG|x) {k}
    = 1  SETRANGE {k} {n} (x|yy)
    = 1  APPEND {k} x
    = 1  SET {k} (HYLL|{v})
";
