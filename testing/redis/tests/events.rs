//! Events of keys are reported as Redis reports them.

use forebay_redis_differential::client::{Client, Value};
use forebay_redis_differential::run::{Engine, Pair};

/// Commands, one after another; each sees the results of earlier ones.
const COMMANDS: &str = "
    SET s a | SET s a EX 100 | SET s a NX | SETNX s b | SETNX s2 b | SETEX s 100 a | PSETEX s 100000 a | GETSET s b
    SET s c KEEPTTL | GETEX s EX 100 | GETEX s PERSIST | GETEX s EXAT 1 | SET s a | GETDEL s | GETDEL s
    MSET a 1 b 2 | MSETNX c 1 d 2 | MSETNX c 1 e 2 | APPEND s x | SETRANGE s 1 y | SETRANGE s 1  | INCR n | INCRBY n 5 | DECR n
    INCRBYFLOAT n 1.5 | SETBIT bits 3 1 | SETBIT bits 3 1 | BITOP OR bits2 bits | BITOP AND bits2 nothing
    BITFIELD bits SET u8 0 5 | BITFIELD bits GET u8 0 | DEL a b nothing | UNLINK c
    HSET h f 1 g 2 | HSETNX h f 2 | HSETNX h i 3 | HMSET h f 5 | HINCRBY h f 1 | HINCRBYFLOAT h f 1.5 | HDEL h f nothing
    HDEL h nothing | HDEL h g i | LPUSH l a b | RPUSH l c | LPUSHX nothing a | RPUSHX l d | LSET l 0 z | LINSERT l BEFORE z y
    LINSERT l BEFORE nothing y | LREM l 1 y | LREM l 1 nothing | LTRIM l 0 2 | LPOP l | LPOP l 0 | RPOP l 9 | RPUSH l a b c
    LMOVE l l2 LEFT RIGHT | RPOPLPUSH l l | LMPOP 2 nothing l LEFT COUNT 1 | RPOPLPUSH l l3 | LTRIM l2 5 6
    SADD t a b c | SADD t a | SREM t a nothing | SREM t nothing | SADD t a | SMOVE t t2 a | SMOVE t t2 nothing | SADD t2 b
    SMOVE t t2 b | SUNIONSTORE t3 t t2 | SINTERSTORE t3 t t2 | SDIFFSTORE t3 t nothing | SINTERSTORE nothing2 t nothing
    SPOP t3 5 | SREM t c | ZADD z 1 a 2 b 3 c | ZADD z 1 a | ZADD z XX 5 nothing | ZADD z INCR 1 a | ZINCRBY z 1 a
    ZREM z a nothing | ZREM z nothing | ZADD z 1 d 4 e 5 f 6 g | ZPOPMIN z | ZPOPMAX z | ZPOPMIN nothing | ZMPOP 1 z MIN
    ZRANGESTORE z2 z 0 -1 | ZUNIONSTORE z3 1 z | ZINTERSTORE z3 2 z nothing | ZDIFFSTORE z3 1 z
    ZREMRANGEBYRANK z 0 0 | ZREMRANGEBYSCORE z3 -inf +inf | ZREMRANGEBYLEX z2 - + | ZREMRANGEBYRANK z 50 60
    SET s a | RENAME s s5 | RENAMENX s5 s6 | RENAME s6 s6 | COPY s6 s7 | COPY s6 s8 DB 1 | MOVE s6 2 | EXPIRE s7 100
    PEXPIREAT s7 9999999999999 | PERSIST s7 | PERSIST s7 | EXPIRE s7 -1 | SET s a | EXPIREAT s 1 | MULTI | SET s a | INCR s
    RPUSH l9 a | EXEC | SADD t a b | SUNIONSTORE t3 t | SUNIONSTORE t3 t | SINTERSTORE t3 t nothing | SUNIONSTORE n t
    ZADD z 1 a 2 b | ZRANGESTORE z4 z 0 -1 | ZRANGESTORE z4 z 0 -1 | ZRANGESTORE z4 z 5 6 | ZUNIONSTORE s 1 z
    SET s a | SET s9 a | RENAME s s9 | SET s a | COPY s s9 REPLACE | RPUSH l9 c b | SORT l9 ALPHA STORE l10
    SORT l9 ALPHA STORE l10 | SORT nothing STORE l10 | SORT nothing STORE l10 | GEOADD g 13 38 a 15 37 b | GEOADD g 13 38 a
    GEOSEARCHSTORE g2 g FROMLONLAT 15 37 BYRADIUS 500 km | GEOSEARCHSTORE g2 g FROMLONLAT 15 37 BYRADIUS 500 km
    GEORADIUS g 15 37 500 km STORE g3 | GEORADIUSBYMEMBER g a 1 m STOREDIST g3 | GEORADIUS g 0 0 1 m STORE g3
    GEOSEARCHSTORE g2 nothing FROMLONLAT 15 37 BYRADIUS 500 km | PFADD p a b | PFADD p a | PFADD p2 | PFMERGE p3 p p2
    PFCOUNT p | PFCOUNT p p3 | XADD x 1 f v | XADD x 2 f v | XADD x MAXLEN 2 3 f v | XADD x MAXLEN 2 NOMKSTREAM 4 f v
    XADD nothing NOMKSTREAM 1 f v | XTRIM x MAXLEN 9 | XTRIM x MAXLEN 1 | XDEL x 4 | XDEL x 4 | XSETID x 5 | XADD x 6 f v
    XADD x 7 f v | XGROUP CREATE x g 0 | XGROUP CREATE x2 g $ MKSTREAM | XGROUP CREATE x g 0 | XGROUP SETID x g 0
    XGROUP CREATECONSUMER x g c | XGROUP CREATECONSUMER x g c | XREADGROUP GROUP g c2 COUNT 1 STREAMS x > | XACK x g 6
    XREADGROUP GROUP g c2 STREAMS x > | XREADGROUP GROUP g c2 STREAMS x 0 | XREADGROUP GROUP g c3 STREAMS x 0
    XCLAIM x g c4 0 7 | XCLAIM x g c5 0 99 | XAUTOCLAIM x g c6 0 0 | XGROUP DELCONSUMER x g c | XGROUP DELCONSUMER x g c
    XGROUP DESTROY x g | XGROUP DESTROY x g | XDEL x 6 7 | DEL x | EVAL return{redis.call('set','s','b'),redis.call('del','s')} 0 | SELECT 3 | SET s a | FLUSHALL
";

fn subscribe(port: u16) -> Client {
    let mut client = Client::connect(port).unwrap();
    assert_eq!(client.call(&["CONFIG", "SET", "notify-keyspace-events", "AKEn"]).unwrap(), Value::Simple("OK".into()));
    client.call(&["PSUBSCRIBE", "__key*", "end"]).unwrap();
    client.receive().unwrap();
    client
}

/// What a subscriber was sent, up to a message that marks the end.
fn told(subscriber: &mut Client, other: &mut Client) -> Vec<String> {
    other.call(&["PUBLISH", "end", "."]).unwrap();
    let mut told = Vec::new();
    loop {
        match subscriber.receive().unwrap() {
            Value::Many(_, parts) => match &parts[..] {
                [_, _, Value::Bulk(channel), _] if channel == b"end" => return told,
                [_, _, channel, message] => told.push(format!("{channel} {message}")),
                other => panic!("{other:?}"),
            },
            other => panic!("{other}"),
        }
    }
}

#[test]
fn events_are_those_of_a_real_redis() {
    let pair = Pair::start(Engine::Lsm);
    let ports = [pair.redis.port, pair.forebay.address().port()];
    let mut clients = ports.map(|port| Client::connect(port).unwrap());
    let mut subscribers = ports.map(subscribe);
    for line in COMMANDS.lines() {
        for command in line.trim().split(" | ").filter(|command| !command.is_empty()) {
            let words: Vec<&str> = command.split(' ').collect();
            let mut found = Vec::new();
            for (client, subscriber) in clients.iter_mut().zip(&mut subscribers) {
                client.call(&words).unwrap();
                let in_transaction =
                    matches!(words[0], "MULTI") || client.call(&["PING"]).unwrap() == Value::Simple("QUEUED".into());
                if in_transaction {
                    found.push(Vec::new());
                } else {
                    found.push(told(subscriber, client));
                }
            }
            assert_eq!(found[0], found[1], "{command}");
        }
    }
    // The command that finds an expired key reports it.
    for (client, subscriber) in clients.iter_mut().zip(&mut subscribers) {
        client.call(&["SELECT", "0"]).unwrap();
        client.call(&["SET", "gone", "x", "PX", "1"]).unwrap();
        let mut all = Vec::new();
        while !all.iter().any(|line: &String| line.contains("expired")) {
            all.extend(told(subscriber, client));
        }
        let expired: Vec<_> = all.iter().filter(|line| line.contains("expired")).cloned().collect();
        assert_eq!(expired, ["\"__keyspace@0__:gone\" \"expired\"", "\"__keyevent@0__:expired\" \"gone\""]);
        assert_eq!(client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]).unwrap(), Value::Simple("OK".into()));
        client.call(&["SET", "gone", "x"]).unwrap();
        assert_eq!(told(subscriber, client), Vec::<String>::new());
    }
}
