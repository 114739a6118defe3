//! Programs that use Redis clients of several languages, against the server.
//!
//! `cargo xtask setup` installs redis-py. `cargo xtask redis-clients` also installs the others, and runs all of them,
//! and those of `crates/cli/tests/serve.rs`: redis-cli and redis-benchmark.

use crate::common::serve;
use redis::{Commands, RedisResult};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where clients are installed, below the repository's folder.
const CLIENTS: &str = "target/redis-clients";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs a program, and gives it the server's port.
#[track_caller]
fn run(mut program: Command, tell: impl FnOnce(&mut Command, &str), install: &str) {
    let server = serve(2);
    tell(&mut program, &server.address().port().to_string());
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}: run `cargo xtask {install}`"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    print!("{}", text(&output.stdout));
    server.stop().unwrap();
}

#[test]
fn redis_py() {
    let mut program = Command::new(root().join(CLIENTS).join("python/bin/python"));
    program.args(["-X", "dev"]).arg(programs().join("redis_py.py"));
    run(program, |program, port| _ = program.arg(port), "setup");
}

#[test]
#[ignore = "needs Node and ioredis: cargo xtask redis-clients"]
fn ioredis() {
    let mut program = Command::new("node");
    program.arg(programs().join("ioredis.mjs"));
    run(program, |program, port| _ = program.arg(port).arg(root().join(CLIENTS).join("node")), "redis-clients");
}

#[test]
#[ignore = "needs Go: cargo xtask redis-clients"]
fn go_redis() {
    let mut program = Command::new("go");
    program.current_dir(programs().join("go")).args(["run", "."]);
    run(program, |program, port| _ = program.arg(port), "redis-clients");
}

#[test]
#[ignore = "needs Maven: cargo xtask redis-clients"]
fn jedis_and_ycsb() {
    let mut program = Command::new("mvn");
    program.current_dir(programs().join("java")).args(["--quiet", "--batch-mode", "compile", "exec:java"]);
    run(program, |program, port| _ = program.arg(format!("-Dexec.args={port}")), "redis-clients");
}

#[test]
fn redis_rs() {
    let server = serve(2);
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://{}/?protocol={protocol}", server.address());
        use_redis_rs(&redis::Client::open(url).unwrap()).unwrap();
    }
    server.stop().unwrap();
}

fn use_redis_rs(client: &redis::Client) -> RedisResult<()> {
    let mut connection = client.get_connection()?;
    redis::cmd("FLUSHALL").exec(&mut connection)?;
    () = connection.set_ex("s", "v", 100)?;
    assert_eq!(connection.get::<_, Option<String>>("s")?.as_deref(), Some("v"));
    assert_eq!(connection.get::<_, Option<String>>("nothing")?, None);
    assert!((90..=100).contains(&connection.ttl::<_, i64>("s")?));
    () = connection.hset_multiple("h", &[("f", 1), ("g", 2)])?;
    assert_eq!(connection.hget::<_, _, i64>("h", "g")?, 2);
    assert_eq!(connection.rpush::<_, _, i64>("l", &["a", "b", "c"])?, 3);
    assert_eq!(connection.lrange::<_, Vec<String>>("l", -2, -1)?, ["b", "c"]);
    () = connection.zadd_multiple("z", &[(2.5, "b"), (1.0, "a")])?;
    let members: Vec<(String, f64)> = connection.zrange_withscores("z", 0, -1)?;
    assert_eq!(members, [("a".into(), 1.0), ("b".into(), 2.5)]);
    assert!(connection.lpush::<_, _, i64>("s", "x").unwrap_err().to_string().contains("wrong kind of value"));

    let mut pipeline = redis::pipe();
    for number in 0..500 {
        pipeline.set(format!("p:{number}"), number).ignore().get(format!("p:{number}"));
    }
    assert_eq!(pipeline.query::<Vec<i64>>(&mut connection)?, (0..500).collect::<Vec<_>>());
    let found = connection.scan_match::<_, String>("p:*")?.collect::<RedisResult<Vec<_>>>()?;
    assert_eq!(found.len(), 500);
    let (n, length): (i64, i64) = redis::pipe().atomic().incr("n", 5).rpush("l", "d").query(&mut connection)?;
    assert_eq!((n, length), (5, 4));

    let raise = redis::Script::new("return redis.call('incrby', KEYS[1], ARGV[1])");
    assert_eq!(raise.key("n").arg(4).invoke::<i64>(&mut connection)?, 9);
    assert_eq!(raise.key("n").arg(4).invoke::<i64>(&mut connection)?, 13);

    let mut listening = client.get_connection()?;
    let mut subscriber = listening.as_pubsub();
    subscriber.psubscribe("n*")?;
    assert_eq!(connection.publish::<_, _, i64>("news", "hello")?, 1);
    let message = subscriber.get_message()?;
    assert_eq!((message.get_channel_name(), message.get_payload::<String>()?.as_str()), ("news", "hello"));
    Ok(())
}
