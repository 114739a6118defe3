//! Clients whose commands are jobs, side by side with others on the same keys.

use crate::common::{connect, said};
use forebay::{Options, Store};
use forebay_redis_differential::client::{Client, Value};
use forebay_server::{Server, ServerOptions};
use std::net::SocketAddr;

/// Number of rounds; the last twenty add pairs.
const ROUNDS: u32 = 140;

fn count(reply: &Value) -> usize {
    match reply {
        Value::Many(_, values) => values.len(),
        other => panic!("{other}"),
    }
}

/// The replies to a transaction.
fn transaction(client: &mut Client, requests: &[&[&str]]) -> Vec<Value> {
    said(client, &["MULTI"]);
    requests.iter().for_each(|request| assert_eq!(said(client, request), "+QUEUED"));
    match client.call(&["EXEC"]).unwrap() {
        Value::Many(_, values) => values,
        other => panic!("{other}"),
    }
}

/// Fields come and go in pairs, and nobody sees one of a pair alone, not even in copies.
#[test]
fn nobody_sees_half_of_a_command_that_takes_long() {
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server =
        Server::start(store, ServerOptions { address, threads: 2, max_steps: 5, ..ServerOptions::default() }).unwrap();
    let server = &server;
    std::thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || {
                let mut client = connect(server);
                for round in 0..ROUNDS {
                    let [a, b] = [0, 1].map(|part| format!("{writer} {} {part}", round % 20));
                    if round % 40 < 20 {
                        transaction(&mut client, &[&["HSET", "h", &a, "v"], &["HSET", "h", &b, "v"]]);
                    } else {
                        assert_eq!(said(&mut client, &["HDEL", "h", &a, &b]), ":2");
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut client = connect(server);
            for _ in 0..ROUNDS {
                // There are pairs of a field and a value, and two fields.
                assert_eq!(count(&client.call(&["HGETALL", "h"]).unwrap()) % 4, 0);
                let copied = said(&mut client, &["COPY", "h", "c", "REPLACE"]);
                let seen = transaction(&mut client, &[&["HLEN", "c"], &["HKEYS", "c"], &["HVALS", "c"]]);
                let is_whole = seen[0] == Value::Integer(count(&seen[1]) as i64) && count(&seen[1]) == count(&seen[2]);
                assert!(is_whole && (count(&seen[1]).is_multiple_of(2) || copied == ":0"), "{copied} {seen:?}");
            }
        });
        scope.spawn(|| {
            let mut client = connect(server);
            for round in 0..ROUNDS {
                let keys: String = round.to_string();
                said(&mut client, &["SET", "own", &keys]);
                assert_eq!(said(&mut client, &["GET", "own"]), format!("{keys:?}"));
                assert_eq!(said(&mut client, &["EVAL", "return #redis.call('hkeys', KEYS[1]) % 2", "1", "h"]), ":0");
                let database = round % 3 + 1;
                assert_eq!(said(&mut client, &["SWAPDB", "5", &database.to_string()]), "+OK");
                said(&mut client, &["KEYS", "*"]);
                said(&mut client, &["SORT", "h2", "BY", "w_*", "STORE", "sorted"]);
            }
        });
    });
    let mut client = connect(server);
    assert_eq!(client.call(&["HLEN", "h"]).unwrap(), Value::Integer(2 * 2 * 20));
}
