//! Scripts that take long, are ended, or break off.

mod common;

use common::{ask, connect, said, serve};
use forebay_redis_differential::client::Client;

/// Asks until the answer is this.
#[track_caller]
fn until(client: &mut Client, words: &[&str], expected: &str) {
    common::until(|| said(client, words).starts_with(expected));
}

#[test]
fn a_script_that_takes_long_can_be_ended_and_leaves_nothing() {
    for threads in [1, 3] {
        let server = serve(threads);
        let (mut caller, mut other) = (connect(&server), connect(&server));
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "-NOTBUSY No scripts in execution right now.");
        assert_eq!(said(&mut other, &["CONFIG", "SET", "busy-reply-threshold", "50"]), "+OK");
        // Protected calls and coroutines do not keep it from ending.
        let endless = "redis.call('set', 'k', 'v') local f = function() while true do end end \
                       while true do pcall(f) pcall(coroutine.wrap(f)) end";
        ask(&mut caller, &["EVAL", endless, "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY Redis is busy running a script.");
        assert!(said(&mut other, &["FLUSHALL"]).starts_with("-BUSY"));
        assert!(said(&mut other, &["WATCH", "k"]).starts_with("-BUSY"));
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "+OK");
        let ended = caller.receive().unwrap().to_string();
        assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{ended}");
        assert_eq!(said(&mut other, &["GET", "k"]), "null");
        // In a transaction there is nobody to end it, so it ends itself.
        assert_eq!(said(&mut caller, &["MULTI"]), "+OK");
        assert_eq!(said(&mut caller, &["SET", "k", "v"]), "+QUEUED");
        assert_eq!(said(&mut caller, &["EVAL", endless, "1", "k"]), "+QUEUED");
        let ended = said(&mut caller, &["EXEC"]);
        assert!(ended.starts_with("-ERR the script took too long for a transaction"), "{ended}");
        assert_eq!(said(&mut other, &["GET", "k"]), "null");
        // The machine goes on.
        assert_eq!(said(&mut caller, &["EVAL", "return ARGV[1]", "0", "x"]), "\"x\"");
        ask(&mut caller, &["EVAL", endless, "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY");
        server.stop().unwrap();
    }
}

#[test]
fn what_a_script_holds_is_bounded() {
    let server = serve(1);
    let mut client = connect(&server);
    let growing = "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end";
    assert!(said(&mut client, &["EVAL", growing, "0"]).contains("not enough memory"));
    assert_eq!(said(&mut client, &["EVAL", "return 1", "0"]), ":1");
    let nested = "local t = {} t[1] = t return t";
    assert_eq!(said(&mut client, &["EVAL", nested, "0"]), "-ERR reached lua stack limit");
    let deep = "local function f(n) return 1 + f(n + 1) end return f(1)";
    assert!(said(&mut client, &["EVAL", deep, "0"]).starts_with("-ERR"));
    assert!(said(&mut client, &["EVAL", "\u{1b}Lua", "0"]).starts_with("-ERR"));
    assert!(said(&mut client, &["EVAL", "return (loadstring('\\27Lua'))", "0"]).starts_with("null"));
}

#[test]
fn scripts_do_not_see_each_other_or_the_machine() {
    let server = serve(1);
    let mut client = connect(&server);
    for breach in [
        "rawset(string, 'format', nil) rawset(_G, 'redis', nil) rawset(math, 'abs', nil) return 1",
        "table.insert(table, 1) rawset(redis, 'call', nil) return 1",
        "local ok = pcall(function() getmetatable('').__index = nil end) return ok and 0 or 1",
        "local ok = pcall(function() string.rep = nil end) return ok and 0 or 1",
        "local ok = pcall(function() setmetatable(_G, {}) end) return ok and 0 or 1",
    ] {
        assert_eq!(said(&mut client, &["EVAL", breach, "0"]), ":1", "{breach}");
    }
    let whole = "return ('%d'):format(math.abs(-5)) .. string.rep('x', 2) .. #table.concat({'a'})";
    assert_eq!(said(&mut client, &["EVAL", whole, "0"]), "\"5xx1\"");
    for name in
        ["io", "os", "debug", "package", "require", "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy"]
    {
        let read = format!("return {name}");
        assert!(said(&mut client, &["EVAL", &read, "0"]).contains("nonexistent global variable"), "{name}");
    }
}

#[test]
fn a_user_may_do_no_more_in_a_script() {
    let server = serve(1);
    let (mut admin, mut user) = (connect(&server), connect(&server));
    said(&mut admin, &["ACL", "SETUSER", "u", "on", "nopass", "+eval", "+get", "~a*"]);
    assert_eq!(said(&mut user, &["AUTH", "u", "x"]), "+OK");
    assert_eq!(said(&mut user, &["EVAL", "return redis.call('get', 'a')", "0"]), "null");
    let refused = said(&mut user, &["EVAL", "return redis.call('get', 'b')", "0"]);
    assert!(
        refused.starts_with("-ERR The user executing the script can't access at least one of the keys"),
        "{refused}"
    );
    let refused = said(&mut user, &["EVAL", "return redis.call('set', 'a', 'b')", "0"]);
    assert!(refused.starts_with("-ERR The user executing the script can't run this command"), "{refused}");
    assert!(said(&mut user, &["EVAL", "return 1", "1", "b"]).starts_with("-NOPERM"));
    let asked = "return {redis.acl_check_cmd('get', 'a'), redis.acl_check_cmd('get', 'b')}";
    assert_eq!(said(&mut user, &["EVAL", asked, "0"]), "*[:1 null ]");
}

#[test]
fn scripts_wake_those_who_wait() {
    let server = serve(2);
    let (mut waiting, mut client) = (connect(&server), connect(&server));
    ask(&mut waiting, &["BLPOP", "l", "0"]);
    until(&mut client, &["EVAL", "return redis.call('llen', 'l')", "0"], ":0");
    assert_eq!(said(&mut client, &["EVAL", "return redis.call('rpush', 'l', 'a', 'b')", "1", "l"]), ":2");
    assert_eq!(waiting.receive().unwrap().to_string(), "*[\"l\" \"a\" ]");
    assert_eq!(said(&mut client, &["LRANGE", "l", "0", "-1"]), "*[\"b\" ]");
}
