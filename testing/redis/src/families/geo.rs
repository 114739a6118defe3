//! Places.

pub(super) const TABLE: &str = "
    = 14 GEOADD {k} {lon} {lat} {m}
    = 6  GEOADD {k} {lon} {lat} {m} {lon} {lat} {m} {lon} {lat} {m}
    = 3  GEOADD {k} (NX|XX|CH|NX CH|XX CH|NX XX) {lon} {lat} {m}
    = 1  GEOADD {k} (181|x|-180) (86|-85|x) {m}
    = 6  GEODIST {k} {m} {m} (m|km|FT|mi|x|)
    = 4  GEOHASH {k} {m*}
    = 6  GEOPOS {k} {m*}
    = 5  GEORADIUS {k} {lon} {lat} {len} {unit} (WITHDIST|WITHCOORD|WITHHASH|WITHDIST WITHCOORD WITHHASH|) (ASC|DESC|) (COUNT {n}|COUNT {n} ANY|)
    = 3  GEORADIUS_RO {k} {lon} {lat} {len} {unit} (ASC|DESC|) (COUNT {n}|STORE {k}|)
    = 5  GEORADIUSBYMEMBER {k} {m} {len} {unit} (WITHDIST|WITHCOORD|) (ASC|DESC|) (COUNT {n}|COUNT {n} ANY|)
    = 2  GEORADIUSBYMEMBER_RO {k} {m} {len} {unit} (ASC|DESC|) (COUNT {n}|STORE {k}|)
    = 3  GEORADIUS {k} {lon} {lat} {len} {unit} (STORE {k}|STOREDIST {k}|STORE {k} STOREDIST {k}|STORE {k} WITHDIST) (COUNT {n}|DESC|)
    = 3  GEORADIUSBYMEMBER {k} {m} {len} {unit} (STORE {k}|STOREDIST {k}) (COUNT {n}|)
    = 8  GEOSEARCH {k} (FROMLONLAT {lon} {lat}|FROMMEMBER {m}) (BYRADIUS {len} {unit}|BYBOX {len} {len} {unit}) (WITHDIST|WITHCOORD|WITHHASH|) (ASC|DESC|) (COUNT {n}|COUNT {n} ANY|)
    = 4  GEOSEARCHSTORE {k} {k} (FROMLONLAT {lon} {lat}|FROMMEMBER {m}) (BYRADIUS {len} {unit}|BYBOX {len} {len} {unit}) (STOREDIST|WITHDIST|) (ASC|DESC|) (COUNT {n}|COUNT {n} ANY|)
    = 2  GEOSEARCH {k} (FROMLONLAT {lon} {lat}|FROMMEMBER {m}|) (FROMMEMBER {m}|BYBOX 1 1 m|BYRADIUS 1 x|BYBOX -1 1 m|BYBOX 1 x m|) (BYRADIUS {len} {unit}|BYRADIUS -1 m|BYRADIUS x m|STOREDIST|ANY|)
    = 3  ZREM {k} {m*}
    = 3  ZRANGE {k} 0 -1 WITHSCORES
    = 1  ZADD {k} {g} {m}
    = 1  COMMAND GETKEYS GEORADIUS {k} 0 0 1 m (STORE {k}|STOREDIST {k} STORE {k}|ASC STORE|)
";
