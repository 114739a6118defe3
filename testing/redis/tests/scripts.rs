//! Scripts that take long, are ended, or break off.

use crate::common::{ask, connect, said, serve};
use forebay_redis_differential::client::Client;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Asks until the answer is this.
#[track_caller]
fn until(client: &mut Client, words: &[&str], expected: &str) {
    crate::common::until(|| said(client, words).starts_with(expected));
}

#[test]
fn a_script_that_takes_long_can_be_ended_and_leaves_nothing() {
    for threads in [1, 3] {
        let server = serve(threads);
        let (mut caller, mut other, mut third) = (connect(&server), connect(&server), connect(&server));
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "-NOTBUSY No scripts in execution right now.");
        assert_eq!(said(&mut other, &["CONFIG", "SET", "busy-reply-threshold", "50"]), "+OK");
        // Protected calls and coroutines do not prevent its end.
        let endless = "redis.call('set', 'k', 'v') local f = function() while true do end end \
                       while true do pcall(f) pcall(coroutine.wrap(f)) end";
        ask(&mut caller, &["EVAL", endless, "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY Redis is busy running a script.");
        assert!(said(&mut other, &["FLUSHALL"]).starts_with("-BUSY"));
        assert!(said(&mut other, &["WATCH", "k"]).starts_with("-BUSY"));
        for script in [&["EVAL", "return 1", "0"][..], &["FCALL", "f", "0"], &["FUNCTION", "LOAD", "x"]] {
            let busy = said(&mut third, script);
            assert!(busy.starts_with("-BUSY Redis is busy running a script."), "{busy}");
        }
        assert_eq!(said(&mut third, &["MULTI"]), "+OK");
        assert_eq!(said(&mut third, &["GET", "k"]), "+QUEUED");
        let busy = said(&mut third, &["EXEC"]);
        assert!(busy.starts_with("-EXECABORT Transaction discarded because of: BUSY Redis is busy"), "{busy}");
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "+OK");
        let ended = caller.receive().unwrap().to_string();
        assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{ended}");
        assert_eq!(said(&mut other, &["GET", "k"]), "null");
        // In a transaction nobody can end it, so it ends itself.
        assert_eq!(said(&mut caller, &["MULTI"]), "+OK");
        assert_eq!(said(&mut caller, &["SET", "k", "v"]), "+QUEUED");
        assert_eq!(said(&mut caller, &["EVAL", endless, "1", "k"]), "+QUEUED");
        let ended = said(&mut caller, &["EXEC"]);
        assert!(ended.starts_with("-ERR the script took too long for a transaction"), "{ended}");
        assert_eq!(said(&mut other, &["GET", "k"]), "null");
        // The script engine still works.
        assert_eq!(said(&mut caller, &["EVAL", "return ARGV[1]", "0", "x"]), "\"x\"");
        ask(&mut caller, &["EVAL", endless, "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY");
        server.stop().unwrap();
    }
}

/// It takes 2^60 steps.
const ENDLESS_PATTERN: &str = "local a = ('a'):rep(60) redis.call('set', 'k', 'v') return a:find(('a?'):rep(60) .. a)";

#[test]
fn a_match_of_a_pattern_can_be_ended() {
    let server = serve(2);
    let (mut caller, mut other) = (connect(&server), connect(&server));
    assert_eq!(said(&mut other, &["CONFIG", "SET", "busy-reply-threshold", "50"]), "+OK");
    let caught = format!("for i = 1, 3 do pcall(function() {ENDLESS_PATTERN} end) end");
    let replacing = ENDLESS_PATTERN.replace(":find(", ":gsub(").replace(".. a)", ".. a, 'x')");
    for script in [ENDLESS_PATTERN, &caught, &replacing] {
        ask(&mut caller, &["EVAL", script, "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY");
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "+OK");
        let ended = caller.receive().unwrap().to_string();
        assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{ended}");
        assert_eq!(said(&mut other, &["GET", "k"]), "null");
    }
    assert_eq!(said(&mut caller, &["MULTI"]), "+OK");
    assert_eq!(said(&mut caller, &["EVAL", ENDLESS_PATTERN, "1", "k"]), "+QUEUED");
    let ended = said(&mut caller, &["EXEC"]);
    assert!(ended.starts_with("-ERR the script took too long for a transaction"), "{ended}");
    ask(&mut caller, &["EVAL", ENDLESS_PATTERN, "1", "k"]);
    until(&mut other, &["GET", "k"], "-BUSY");
    server.stop().unwrap();
}

#[test]
fn errors_of_patterns_are_texts_with_their_places() {
    let server = serve(1);
    let mut client = connect(&server);
    for (script, expected) in [
        ("local found = ('a'):find('[a') return found", "-ERR user_script:1: malformed pattern (missing ']') script: "),
        ("local _, why = pcall(string.find, 'a', '%') return why", "\"malformed pattern (ends with \\'%\\')\""),
        (
            "local s = ('a'):gsub('a', {a = {}}) return s",
            "-ERR user_script:1: invalid replacement value (a table) script: ",
        ),
        ("local s = ('a'):gsub('a', redis.call) return s", "-ERR Unknown Redis command called from script script: "),
        ("local s = ('x'):gsub('x', function() error({err = 'OWN text'}) end) return s", "-OWN text script: "),
    ] {
        let reply = said(&mut client, &["EVAL", script, "0"]);
        assert!(reply.starts_with(expected), "{script}: {reply}");
    }
}

#[test]
fn no_function_of_lua_ends_the_process_or_changes_it_for_others() {
    let server = serve(1);
    let mut client = connect(&server);
    for script in [
        "return unpack({}, 0, 2147483647)",
        "return unpack({}, -1, 2147483647)",
        "return unpack({}, 0/0, 2147483647)",
        "return unpack({}, 2147483640, 2147483647)",
        "return string.find(string.rep('a', 200000), string.rep('a?', 200000))",
        "return (('a'):rep(200000)):gsub(('a?'):rep(200000), '')",
        "return ('x'):match(('a?'):rep(200000))",
        "collectgarbage('setpause', 1000000)",
        "collectgarbage('stop')",
    ] {
        let refused = said(&mut client, &["EVAL", script, "0"]);
        assert!(refused.starts_with("-ERR"), "{script}: {refused}");
    }
    for (script, value) in [
        ("return {unpack({1, 2, 3})}", "*[:1 :2 :3 ]"),
        ("return {unpack({1, 2, 3}, 2)}", "*[:2 :3 ]"),
        ("return {unpack({1, 2, 3}, 3, 2)}", "*[]"),
        ("return select('#', unpack({}, 1, 7000))", ":7000"),
        (
            "return {string.find('abc', 'b'), ('a.c'):find('.c', 1, true), ('aab'):match('a+'), ('ab'):gsub('b', 'c')}",
            "*[:2 :2 \"aa\" \"ac\" :1 ]",
        ),
        ("return string.find(('a'):rep(9999) .. 'b', ('a'):rep(9999) .. 'b', 1, true)", ":1"),
        ("collectgarbage() return type(collectgarbage('count'))", "\"number\""),
    ] {
        assert_eq!(said(&mut client, &["EVAL", script, "0"]), value, "{script}");
    }
    server.stop().unwrap();
}

#[test]
fn who_sends_a_script_and_nothing_more_gets_its_reply() {
    let server = serve(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let long = "local n = 0 for i = 1, 2e7 do n = n + 1 end return 7";
    stream.write_all(format!("EVAL \"{long}\" 0\r\nSET behind x\r\n").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, ":7\r\n+OK\r\n");
    assert_eq!(said(&mut connect(&server), &["GET", "behind"]), "\"x\"");
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
    let overflow = said(&mut client, &["EVAL", deep, "0"]);
    assert!(overflow.starts_with("-ERR user_script:1: stack overflow"), "{overflow}");
    assert!(said(&mut client, &["EVAL", "\u{1b}Lua", "0"]).starts_with("-ERR"));
    assert!(said(&mut client, &["EVAL", "return (loadstring('\\27Lua'))", "0"]).starts_with("null"));
}

#[test]
fn what_is_made_for_a_script_is_bounded() {
    let server = serve(1);
    let mut client = connect(&server);
    let many = "local s, t = ('x'):rep(1000000), {} for i = 1, 300 do t[i] = s end ";
    for (made, refusal) in [
        ("return t", "-ERR the reply of the script is too long: at most 256 MiB"),
        ("return {map = {a = t}}", "-ERR the reply of the script is too long: at most 256 MiB"),
        ("return cjson.encode(t)", "-ERR not enough memory"),
        ("return cmsgpack.pack(t)", "-ERR not enough memory"),
        ("return redis.call('del', unpack(t))", "-ERR the arguments of a call are too long: at most 256 MiB"),
        ("local r = s:gsub('x', ('y'):rep(300)) return r", "-ERR user_script:1: not enough memory"),
    ] {
        let reply = said(&mut client, &["EVAL", &format!("{many}{made}"), "0"]);
        assert!(reply.starts_with(refusal), "{made}: {reply}");
        assert_eq!(said(&mut client, &["EVAL", "return 1", "0"]), ":1");
    }
}

#[test]
fn what_is_made_of_very_many_values_is_ended() {
    let server = serve(2);
    let (mut caller, mut other) = (connect(&server), connect(&server));
    assert_eq!(said(&mut other, &["CONFIG", "SET", "busy-reply-threshold", "20"]), "+OK");
    let tables = "local t = {} for i = 1, 60 do t = {t, t} end ";
    for made in [
        &format!("{tables}return t"),
        &format!("{tables}return cjson.encode(t)"),
        &format!("{tables}return cmsgpack.pack(t)"),
        "local text = '[' .. ('0,'):rep(1e7) .. '0]' while true do cjson.decode(text) end",
        "local text = '\\221\\0\\127\\0\\0' .. ('\\0'):rep(1e7) while true do cmsgpack.unpack(text) end",
    ] {
        ask(&mut caller, &["EVAL", made, "0"]);
        until(&mut other, &["GET", "k"], "-BUSY");
        assert_eq!(said(&mut other, &["SCRIPT", "KILL"]), "+OK", "{made}");
        let ended = caller.receive().unwrap().to_string();
        assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{made}: {ended}");
    }
}

#[test]
fn what_a_script_writes_is_bounded() {
    let server = serve(1);
    let mut client = connect(&server);
    let writing = "for i = 1, 8 do redis.pcall('setrange', 'k' .. i, 60000000, 'x') end return 1";
    for request in [&["EVAL", writing, "0"][..], &["DBSIZE"]] {
        let reply = said(&mut client, request);
        let expected = if request[0] == "EVAL" { "-ERR too much is written at once: at most 256 MiB" } else { ":0" };
        assert_eq!(reply, expected);
    }
    // A value that is written twice is held once.
    let again = "for i = 1, 8 do redis.call('setrange', 'k', 60000000, 'x') end redis.call('del', 'k') return 1";
    assert_eq!(said(&mut client, &["EVAL", again, "0"]), ":1");
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

/// A library with these functions: names and bodies.
fn library(name: &str, functions: &[(&str, &str)]) -> String {
    let mut text = format!("#!lua name={name}");
    for (function, body) in functions {
        text += &format!("\nredis.register_function('{function}', function(keys, args) {body} end)");
    }
    text
}

#[test]
fn functions_share_nothing_and_are_ended_by_their_own_command() {
    for threads in [1, 3] {
        let server = serve(threads);
        let (mut caller, mut other) = (connect(&server), connect(&server));
        let endless = "redis.call('set', keys[1], 'v') while true do pcall(error) end";
        let text =
            library("l", &[("endless", endless), ("breach", "return 1"), ("get", "return redis.call('get', keys[1])")]);
        assert_eq!(said(&mut caller, &["FUNCTION", "LOAD", &text]), "\"l\"");
        for breach in ["rawset(_G, 'x', 1)", "rawset(string, 'rep', 1)", "rawset(redis, 'call', 1)", "x = 1"] {
            let text = library("b", &[("breach", breach)]);
            assert_eq!(
                said(&mut caller, &["FUNCTION", "LOAD", "REPLACE", &text]),
                "-ERR Function breach already exists"
            );
            let text = text.replace("'breach'", "'breach2'");
            assert_eq!(said(&mut caller, &["FUNCTION", "LOAD", "REPLACE", &text]), "\"b\"");
            assert!(
                said(&mut caller, &["FCALL", "breach2", "0"]).contains("Attempt to modify a readonly table"),
                "{breach}"
            );
        }
        assert_eq!(said(&mut other, &["CONFIG", "SET", "busy-reply-threshold", "50"]), "+OK");
        ask(&mut caller, &["FCALL", "endless", "1", "k"]);
        until(&mut other, &["GET", "k"], "-BUSY Redis is busy running a script. You can only call FUNCTION KILL");
        assert!(said(&mut other, &["SCRIPT", "KILL"]).starts_with("-BUSY"));
        let running = said(&mut other, &["FUNCTION", "STATS"]);
        assert!(
            running.contains("\"name\" \"endless\" \"command\" *[\"FCALL\" \"endless\" \"1\" \"k\" ]"),
            "{running}"
        );
        assert!(running.contains("\"libraries_count\" :2 \"functions_count\" :4"), "{running}");
        assert_eq!(said(&mut other, &["FUNCTION", "KILL"]), "+OK");
        let ended = caller.receive().unwrap().to_string();
        assert!(ended.starts_with("-ERR Script killed by user with FUNCTION KILL..."), "{ended}");
        // None of its effects stay, but the libraries do.
        assert_eq!(said(&mut other, &["FCALL", "get", "1", "k"]), "null");
        // Loading a library that does not end is given up.
        let stuck = said(&mut other, &["FUNCTION", "LOAD", "#!lua name=stuck\nwhile true do end"]);
        assert_eq!(stuck, "-ERR Error registering functions: ERR FUNCTION LOAD timeout");
        let busy = said(&mut caller, &["EVAL", "return redis.call('fcall', 'get', 0)", "0"]);
        assert!(busy.contains("not allowed from script"), "{busy}");
        server.stop().unwrap();
    }
}

#[test]
fn libraries_come_and_go_with_their_transaction() {
    let server = serve(2);
    let mut client = connect(&server);
    let (one, two) = (library("one", &[("f", "return 1")]), library("two", &[("f", "return 2"), ("g", "return 3")]));
    for request in [&["MULTI"][..], &["FUNCTION", "LOAD", &one], &["FCALL", "f", "0"], &["FUNCTION", "DELETE", "one"]] {
        said(&mut client, request);
    }
    said(&mut client, &["FUNCTION", "LOAD", &two]);
    assert_eq!(said(&mut client, &["EXEC"]), "*[\"one\" :1 +OK \"two\" ]");
    assert_eq!(said(&mut client, &["FUNCTION", "LOAD", &one]), "-ERR Function f already exists");
    // The end of a script undoes the transaction, including what it loaded.
    assert_eq!(said(&mut client, &["CONFIG", "SET", "busy-reply-threshold", "20"]), "+OK");
    for request in [&["MULTI"][..], &["FUNCTION", "FLUSH"], &["EVAL", "while true do end", "0"]] {
        said(&mut client, request);
    }
    assert!(said(&mut client, &["EXEC"]).starts_with("-ERR the script took too long"));
    assert_eq!(said(&mut client, &["FCALL", "G", "0"]), ":3");
    assert_eq!(said(&mut client, &["FLUSHALL"]), "+OK");
    assert_eq!(said(&mut client, &["FCALL", "f", "0"]), ":2");
}
