//! Contents of keys go from a real Redis to Forebay's server and back, as `DUMP` returns them.

use forebay_env::Random;
use forebay_redis_differential::agreement::sorted;
use forebay_redis_differential::client::{Client, Value};
use forebay_redis_differential::families::FAMILIES;
use forebay_redis_differential::run::{self, Engine, Pair};

const COMMANDS: usize = 1500;

fn connect(pair: &Pair) -> [Client; 2] {
    [pair.redis.port, pair.forebay.address().port()].map(|port| Client::connect(port).unwrap())
}

fn keys(client: &mut Client) -> Vec<Vec<u8>> {
    let Value::Many(_, keys) = client.call(&["KEYS", "*"]).unwrap() else { panic!("no keys") };
    keys.into_iter().map(|key| if let Value::Bulk(key) = key { key } else { panic!("no key") }).collect()
}

/// Copies the contents of one server to the other.
fn carry(from: &mut Client, to: &mut Client) {
    to.call(&["FLUSHALL"]).unwrap();
    for key in keys(from) {
        let Value::Bulk(dump) = from.call(&[b"DUMP", &key[..]]).unwrap() else { panic!("no dump") };
        let restored = to.call(&[b"RESTORE", &key[..], b"0", &dump[..]]).unwrap();
        assert_eq!(restored, Value::Simple("OK".into()), "{}: {}", key.escape_ascii(), dump.escape_ascii());
    }
}

#[test]
fn every_type_goes_there_and_back() {
    let pair = Pair::start(Engine::Lsm);
    let [mut redis, mut forebay] = connect(&pair);
    for name in ["strings", "hashes", "sets", "lists", "sorted-sets", "streams", "sorting"] {
        let templates = FAMILIES.iter().find(|family| family.name == name).unwrap().templates();
        let mut random = Random::seeded(1);
        redis.call(&["FLUSHALL"]).unwrap();
        for _ in 0..COMMANDS {
            redis.call(&templates.next(&mut random).1).unwrap();
        }
        redis.call(&["SELECT", "0"]).unwrap();
        large(&mut redis, name);
        let held = run::everything(&mut redis);
        carry(&mut redis, &mut forebay);
        assert_eq!(run::everything(&mut forebay), held, "{name}: from Redis");
        carry(&mut forebay, &mut redis);
        assert_eq!(run::everything(&mut redis), held, "{name}: to Redis");
    }
    functions_go_there_and_back(redis, forebay);
}

fn functions_go_there_and_back(mut redis: Client, mut forebay: Client) {
    for (name, text) in [("a", "short".to_owned()), ("b", "long ".repeat(5000))] {
        let library = format!("#!lua name={name}\nredis.register_function('{name}', function() return '{text}' end)");
        redis.call(&["FUNCTION", "LOAD", &library]).unwrap();
    }
    let all = ["FUNCTION", "LIST", "WITHCODE"];
    let held = sorted(&redis.call(&all).unwrap(), 1);
    for _ in 0..2 {
        let Value::Bulk(dump) = redis.call(&["FUNCTION", "DUMP"]).unwrap() else { panic!("no dump") };
        for policy in ["APPEND", "REPLACE", "FLUSH"] {
            let request = [b"FUNCTION", &b"RESTORE"[..], &dump[..], policy.as_bytes()];
            assert_eq!(forebay.call(&request).unwrap(), Value::Simple("OK".into()), "{policy}");
            assert_eq!(sorted(&forebay.call(&all).unwrap(), 1), held);
        }
        let taken = forebay.call(&[b"FUNCTION", &b"RESTORE"[..], &dump[..]]).unwrap().to_string();
        assert!(taken.starts_with("-ERR Library ") && taken.ends_with(" already exists"), "{taken}");
        redis.call(&["FUNCTION", "FLUSH"]).unwrap();
        std::mem::swap(&mut redis, &mut forebay);
    }
}

/// Values that Redis stores otherwise than small ones: compressed strings, several nodes, tables in place of
/// lists.
fn large(redis: &mut Client, name: &str) {
    let long = "long ".repeat(5000);
    let call = |redis: &mut Client, words: &[&str]| drop(redis.call(words).unwrap());
    match name {
        "strings" => {
            call(redis, &["SET", "long", &long]);
            ["1", "-1", "300", "-70000", "9999999999"].iter().for_each(|number| call(redis, &["SET", number, number]));
        }
        "lists" => call(redis, &["RPUSH", "long", "1", &long, "-3000", "x", "100000", "9999999999"]),
        "sets" => {
            call(redis, &["SADD", "integers", "1", "-5", "70000", "99999999999"]);
            call(redis, &["SADD", "long", "1", &long]);
        }
        "hashes" => call(redis, &["HSET", "long", "field", &long, "2", "-1000"]),
        "sorted-sets" => call(redis, &["ZADD", "long", "1.5", &long, "-inf", "x", "3", "5"]),
        _ => {
            for number in 0..250 {
                call(redis, &["XADD", "long", &format!("9-{}", number + 1), "field", &format!("{number}")]);
            }
            call(redis, &["XDEL", "long", "9-7", "9-250"]);
            call(redis, &["XGROUP", "CREATE", "long", "g", "9-3"]);
            call(redis, &["XREADGROUP", "GROUP", "g", "c", "COUNT", "5", "STREAMS", "long", ">"]);
        }
    }
}
