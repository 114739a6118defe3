//! `forebay serve`, with Redis's own command-line client and benchmark, which `cargo xtask setup` installs.

mod common;

use common::{Running, run, start};
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// A server at a free port, and that port.
fn serve(flags: &str) -> (Running, String) {
    let mut server = start(&format!("serve --listen=127.0.0.1:0 --admin=none --local-memory-size=512MiB {flags}"));
    let ready = server.until(|out| out.contains('\n'));
    let port = ready.lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(ready.starts_with("ready redis://127.0.0.1:"), "{ready}");
    (server, port)
}

/// What a program of Redis prints.
fn ask(program: &str, port: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(["-p", port]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}: run `cargo xtask setup`"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn redis_cli_and_redis_benchmark() {
    let (server, port) = serve("--durability=none --threads=2");
    let cli = |arguments: &[&str]| ask("redis-cli", &port, arguments, "");
    assert_eq!(cli(&["set", "key", "value", "ex", "100"]), "OK\n");
    assert_eq!(cli(&["get", "key"]), "value\n");
    assert_eq!(cli(&["-3", "hset", "hash", "a", "1", "b", "2"]), "2\n");
    let session = "multi\nincr counter\nrpush list a b c\nexec\nlrange list 0 -1\nnosuch\n";
    let replies = ask("redis-cli", &port, &[], session);
    let expected = "OK\nQUEUED\nQUEUED\n1\n3\na\nb\nc\nERR unknown command 'nosuch', with args beginning with: \n\n";
    assert_eq!(replies, expected);
    assert!(cli(&["info"]).contains("redis_version:7.0"));
    let tests = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,ping";
    let report = ask("redis-benchmark", &port, &["-n", "3000", "-P", "16", "-q", "-t", tests], "");
    assert!(report.contains("LRANGE_100") && !report.contains("Error"), "{report}");
    server.signal(Signal::INT);
    server.wait_stopped();
}

#[test]
fn a_password_is_needed_where_one_is_set() {
    let file = common::fresh_path(".password");
    std::fs::write(&file, "secret\n").unwrap();
    let (server, port) = serve(&format!("--durability=none --password-file={}", file.display()));
    let replies = ask("redis-cli", &port, &[], "get a\nauth wrong\nauth secret\nget a\n");
    let expected = "NOAUTH Authentication required.\n\n\
                    WRONGPASS invalid username-password pair or user is disabled.\n\nOK\n\n";
    assert_eq!(replies, expected);
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let (_server, port) = serve("--durability=none");
    let ended = run(&format!("serve --listen=127.0.0.1:{port} --local-memory-size=512MiB --durability=none"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.error.contains("forebay: listening on"), "{ended:?}");
}

#[test]
fn what_was_synced_survives_a_kill() {
    let folder = common::fresh_path(".storage");
    let flags = format!("--durability=storage=sync --storage={}", folder.display());
    let (server, port) = serve(&flags);
    let cli = |port: &str, arguments: &[&str]| ask("redis-cli", port, arguments, "");
    assert_eq!(cli(&port, &["set", "key", "value"]), "OK\n");
    assert_eq!(cli(&port, &["rpush", "list", "a", "b"]), "2\n");
    server.signal(Signal::KILL);
    server.wait();
    let (server, port) = serve(&flags);
    assert_eq!(cli(&port, &["get", "key"]), "value\n");
    assert_eq!(cli(&port, &["lrange", "list", "0", "-1"]), "a\nb\n");
    server.signal(Signal::INT);
    server.wait_stopped();
    std::fs::remove_dir_all(&folder).unwrap();
}
