//! What tools read from a server: the same fields as a real Redis, in the same order and form.

use forebay_redis_differential::client::{Client, Value};
use forebay_redis_differential::run::{Engine, Pair};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of `INFO` that are missing here: those that are not measured, and those about Redis's
/// build.
const NOT_IN_INFO: &[&str] = &[
    "redis_git_sha1",
    "redis_git_dirty",
    "redis_build_id",
    "atomicvar_api",
    "gcc_version",
    "lru_clock",
    "allocator_allocated",
    "allocator_active",
    "allocator_resident",
    "allocator_frag_ratio",
    "allocator_frag_bytes",
    "allocator_rss_ratio",
    "allocator_rss_bytes",
    "rss_overhead_ratio",
    "rss_overhead_bytes",
    "mem_fragmentation_ratio",
    "mem_fragmentation_bytes",
    "mem_allocator",
    "used_memory_functions",
    "used_memory_scripts",
    "used_memory_scripts_human",
    "expired_stale_perc",
    "expired_time_cap_reached_count",
    "dump_payload_sanitizations",
    "reply_buffer_shrinks",
    "reply_buffer_expands",
    "used_cpu_sys_main_thread",
    "used_cpu_user_main_thread",
];

/// Fields of `MEMORY STATS` that are missing here: those that are not measured.
const NOT_IN_MEMORY: &[&str] = &[
    "functions.caches",
    "db.0",
    "allocator.allocated",
    "allocator.active",
    "allocator.resident",
    "allocator-fragmentation.ratio",
    "allocator-fragmentation.bytes",
    "allocator-rss.ratio",
    "allocator-rss.bytes",
    "rss-overhead.ratio",
    "rss-overhead.bytes",
    "fragmentation",
    "fragmentation.bytes",
];

/// Connections to Redis and to Forebay.
fn connect(pair: &Pair, protocol: &str) -> [Client; 2] {
    [pair.redis.port, pair.forebay.address().port()].map(|port| {
        let mut client = Client::connect(port).unwrap();
        client.call(&["HELLO", protocol]).unwrap();
        client
    })
}

fn both(clients: &mut [Client; 2], request: &str) -> [Value; 2] {
    let words: Vec<&str> = request.split(' ').collect();
    clients.each_mut().map(|client| client.call(&words).unwrap())
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Value::Simple(text) => text.clone(),
        other => panic!("{other} is no text"),
    }
}

fn elements(value: &Value) -> &[Value] {
    let Value::Many(_, values) = value else { panic!("{value} has no elements") };
    values
}

/// The values of a map, by name.
fn map(value: &Value) -> BTreeMap<String, &Value> {
    elements(value).chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1])).collect()
}

/// The form of a value.
fn form(value: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_decimal = |text: &str| text.split_once('.').is_some_and(|(whole, part)| is_number(whole) && is_number(part));
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    if value.contains('=') {
        let parts = value.split(',').map(|part| part.split_once('=').unwrap_or((part, "")));
        return parts.map(|(name, value)| format!("{name}={} ", form(value))).collect();
    }
    if is_number(unsigned) {
        return "number".to_owned();
    }
    if let Some((_, decimals)) = unsigned.split_once('.').filter(|_| is_decimal(unsigned)) {
        return format!("{} decimals", decimals.len());
    }
    match unsigned.split_at_checked(unsigned.len().saturating_sub(1)) {
        Some((number, "%")) if is_decimal(number) => "percentage".to_owned(),
        Some((number, "B" | "K" | "M" | "G" | "T")) if is_decimal(number) || is_number(number) => "bytes".to_owned(),
        _ => "text".to_owned(),
    }
}

/// The sections of `INFO`, and its fields with their values.
fn sections(info: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for line in info.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            sections.push((title.to_owned(), Vec::new()));
        } else {
            let (name, value) = line.split_once(':').unwrap();
            sections.last_mut().unwrap().1.push((name.to_owned(), value.to_owned()));
        }
    }
    sections
}

#[test]
fn info_has_the_fields_of_redis() {
    let pair = Pair::start(Engine::Lsm);
    let mut clients = connect(&pair, "2");
    for request in [
        "SET k v",
        "GET k",
        "SET e v EX 1000",
        "LPUSH k x",
        "GET",
        "BLPOP none 0.01",
        "EVAL return(1) 0",
        "INFO",
        "LATENCY RESET",
    ] {
        both(&mut clients, request);
    }
    for request in ["INFO", "INFO everything"] {
        let [redis, forebay] = both(&mut clients, request).map(|reply| sections(&text(&reply)));
        let titles = |sections: &[(String, _)]| sections.iter().map(|(title, _)| title.clone()).collect::<Vec<_>>();
        assert_eq!(titles(&redis), titles(&forebay));
        for ((title, expected), (_, found)) in redis.into_iter().zip(forebay) {
            let is_here = |(name, _): &(String, String)| !NOT_IN_INFO.contains(&&**name);
            let form_of = |(name, value): (String, String)| format!("{name}: {}", form(&value));
            let mut expected: Vec<_> = expected.into_iter().filter(is_here).map(form_of).collect();
            let mut found: Vec<_> =
                found.into_iter().filter(|(name, _)| !name.starts_with("forebay_")).map(form_of).collect();
            // Redis has these in no order.
            if title.ends_with("stats") && title != "Stats" {
                expected.sort();
                found.sort();
            }
            assert_eq!(found, expected, "{title}");
        }
    }
}

/// A command that waits counts when its wait ends, however that ends.
#[test]
fn waits_are_counted_as_by_redis() {
    let pair = Pair::start(Engine::Lsm);
    let (mut clients, mut waiting) = (connect(&pair, "2"), connect(&pair, "2"));
    let counts = |clients: &mut [Client; 2]| {
        both(clients, "INFO commandstats").map(|reply| {
            let info = text(&reply);
            let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_blpop:"));
            let parts = line.unwrap_or_default().split(',').filter(|part| !part.starts_with("usec"));
            parts.map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let agree = |clients: &mut [Client; 2], calls: &str| {
        let [redis, forebay] = counts(clients);
        assert_eq!(redis, forebay);
        assert!(forebay.iter().any(|part| part == calls), "{forebay:?}");
    };
    both(&mut waiting, "BLPOP list 0.01");
    agree(&mut clients, "calls=1");
    let ids = both(&mut waiting, "CLIENT ID");
    for (how, calls) in [("", "calls=2"), ("ERROR", "calls=3")] {
        for (number, id) in ids.iter().enumerate() {
            let Value::Integer(id) = id else { panic!("{id} is no number") };
            let blpop = ["BLPOP", "list", "0"].map(|word| word.as_bytes().to_vec());
            waiting[number].send([&blpop[..]]).unwrap();
            let id = id.to_string();
            let unblock = ["CLIENT", "UNBLOCK", &id, how];
            let unblock = &unblock[..if how.is_empty() { 3 } else { 4 }];
            crate::common::until(|| clients[number].call(unblock).unwrap() == Value::Integer(1));
            waiting[number].receive().unwrap();
        }
        agree(&mut clients, calls);
    }
    both(&mut clients, "MULTI");
    both(&mut clients, "BLPOP list 0");
    both(&mut clients, "EXEC");
    agree(&mut clients, "calls=4");
}

/// Commands whose arguments differ here from Redis 7.0, or that Redis does not have.
const OTHER_COMMANDS: &[&str] = &["waitaof", "forebay.checkpoint"];

/// Compares the documents of a command, and of its subcommands that both have.
fn compare_documents(name: &str, redis: &Value, forebay: &Value, wrong: &mut Vec<String>) {
    let (redis, forebay) = (map(redis), map(forebay));
    for field in ["since", "group", "doc_flags", "deprecated_since", "arguments"] {
        let shown = |value: Option<&&Value>| value.map(ToString::to_string);
        let (expected, found) = (shown(redis.get(field)), shown(forebay.get(field)));
        if expected != found {
            wrong.push(format!("{name} {field}\n  Redis:   {expected:?}\n  Forebay: {found:?}"));
        }
    }
    // The texts are this server's own.
    let versions = |value: Option<&&Value>| {
        let changes = value.map_or(&[][..], |value| elements(value));
        changes.iter().map(|change| text(&elements(change)[0])).collect::<Vec<_>>()
    };
    let (expected, found) = (versions(redis.get("history")), versions(forebay.get("history")));
    if expected != found {
        wrong.push(format!("{name} history\n  Redis:   {expected:?}\n  Forebay: {found:?}"));
    }
    for field in ["summary", "complexity"] {
        assert!(forebay.get(field).is_some_and(|text_of| text(text_of).len() > 2), "{name} has no {field}");
    }
    assert_eq!(redis.contains_key("replaced_by"), forebay.contains_key("replaced_by"), "{name}");
    if let (Some(redis), Some(forebay)) = (redis.get("subcommands"), forebay.get("subcommands")) {
        let redis = map(redis);
        for (name, forebay) in map(forebay) {
            if let Some(redis) = redis.get(&name) {
                compare_documents(&name, redis, forebay, wrong);
            }
        }
    }
}

#[test]
fn commands_are_documented_as_by_redis() {
    let pair = Pair::start(Engine::Lsm);
    let [redis, forebay] = both(&mut connect(&pair, "3"), "COMMAND DOCS");
    let (redis, mut wrong) = (map(&redis), Vec::new());
    for (name, forebay) in map(&forebay) {
        match redis.get(&name) {
            Some(redis) => compare_documents(&name, redis, forebay, &mut wrong),
            None => assert!(OTHER_COMMANDS.contains(&&*name), "{name}"),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value with the same text in place of all notes of key specifications, and with the elements of sets sorted.
fn with_plain_notes(value: &Value) -> Value {
    let Value::Many(sign, values) = value else { return value.clone() };
    let mut values: Vec<Value> = match values.first() {
        Some(first) if *sign == b'%' && *first == Value::Bulk(b"notes".to_vec()) => {
            let marked = [first.clone(), Value::Simple("a note".to_owned())];
            marked.into_iter().chain(values.iter().skip(2).map(with_plain_notes)).collect()
        }
        _ => values.iter().map(with_plain_notes).collect(),
    };
    // Key specifications are also a set, but arguments refer to their order.
    if *sign == b'~' && !values.iter().any(|value| matches!(value, Value::Many(..))) {
        values.sort_by_key(ToString::to_string);
    }
    Value::Many(*sign, values)
}

#[test]
fn commands_are_described_as_by_redis() {
    let pair = Pair::start(Engine::Lsm);
    let replies = both(&mut connect(&pair, "3"), "COMMAND");
    let [redis, forebay] = replies.each_ref().map(|reply| {
        let mut all = BTreeMap::new();
        for command in elements(reply) {
            let parts = elements(command);
            let subcommands = elements(&parts[9]);
            for command in std::iter::once(command).chain(subcommands) {
                let parts: Vec<Value> = elements(command)[..9].iter().map(with_plain_notes).collect();
                all.insert(text(&parts[0]), parts);
            }
        }
        all
    });
    let mut wrong = Vec::new();
    for (name, forebay) in &forebay {
        match redis.get(name) {
            Some(redis) if redis == forebay => {}
            Some(redis) => {
                let differ = redis.iter().zip(forebay).filter(|(redis, forebay)| redis != forebay);
                wrong
                    .extend(differ.map(|(redis, forebay)| format!("{name}\n  Redis:   {redis}\n  Forebay: {forebay}")));
            }
            None => assert!(OTHER_COMMANDS.iter().any(|other| name.starts_with(other)), "{name}"),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn keys_of_requests_have_the_flags_of_redis() {
    let pair = Pair::start(Engine::Lsm);
    let mut clients = connect(&pair, "3");
    for request in [
        "SET a 1",
        "SET a 1 GET",
        "GET a",
        "MSET a 1 b 2",
        "DEL a b",
        "RENAME a b",
        "BITFIELD a GET u8 0",
        "BITFIELD a SET u8 0 1",
        "BITOP AND a b c",
        "SORT a",
        "SORT a BY x STORE b",
        "XREAD STREAMS a b 1 2",
        "XREADGROUP GROUP g c STREAMS a 1",
        "GEORADIUS a 1 2 3 m STORE b",
        "GEORADIUS a 1 2 3 m",
        "ZUNIONSTORE a 2 b c",
        "LMPOP 1 a LEFT",
        "BLMOVE a b LEFT LEFT 0",
        "EVAL x 2 a b",
        "FCALL f 1 a",
        "LCS a b",
        "MEMORY USAGE a",
        "XGROUP CREATE a g 0",
        "OBJECT FREQ a",
        "PFCOUNT a b",
        "GETEX a",
        "XADD a * b c",
        "COPY a b",
        "RESTORE a 0 x",
        "SMOVE a b c",
        "MIGRATE h 1 a 0 0",
        "MIGRATE h 1  0 0 COPY KEYS a b",
        "PING x",
        "SPUBLISH a b",
    ] {
        let [redis, forebay] =
            both(&mut clients, &format!("COMMAND GETKEYSANDFLAGS {request}")).map(|reply| with_plain_notes(&reply));
        assert_eq!(redis, forebay, "{request}");
    }
}

#[test]
fn clients_memory_and_slow_commands_are_shown_as_by_redis() {
    let pair = Pair::start(Engine::Lsm);
    let mut clients = connect(&pair, "3");
    for request in ["CLIENT INFO", "CLIENT LIST"] {
        let [redis, forebay] = both(&mut clients, request).map(|reply| {
            let line = text(&reply).trim_start_matches("txt:").trim_end().to_owned();
            let fields = line.split(' ').map(|field| field.split_once('=').unwrap());
            fields.map(|(name, value)| format!("{name}: {}", form(value))).collect::<Vec<_>>()
        });
        assert_eq!(redis, forebay, "{request}");
    }
    both(&mut clients, "SET k v");
    let replies = both(&mut clients, "MEMORY STATS");
    let [redis, forebay] = replies.each_ref().map(|reply| {
        let kinds = map(reply).into_iter().map(|(name, value)| (name, std::mem::discriminant(value)));
        kinds.filter(|(name, _)| !NOT_IN_MEMORY.contains(&&**name)).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(redis.keys().collect::<BTreeSet<_>>(), forebay.keys().collect());
    assert_eq!(redis, forebay);
    both(&mut clients, "CONFIG SET slowlog-log-slower-than 0");
    both(&mut clients, "GET k");
    let same_form = |[redis, forebay]: [Value; 2]| {
        fn forms(value: &Value) -> String {
            match value {
                Value::Many(sign, values) => {
                    format!("{}[{}]", char::from(*sign), values.iter().map(forms).collect::<String>())
                }
                other => format!("{:?} ", std::mem::discriminant(other)),
            }
        }
        assert_eq!(forms(&redis), forms(&forebay));
    };
    for request in
        ["SLOWLOG GET 1", "SLOWLOG LEN", "LATENCY DOCTOR", "LATENCY LATEST", "LATENCY RESET", "MEMORY DOCTOR"]
    {
        same_form(both(&mut clients, request));
    }
    let histograms = both(&mut clients, "LATENCY HISTOGRAM set");
    for histogram in &histograms {
        let of_set = map(map(histogram)["set"]);
        assert!(matches!(of_set["calls"], Value::Integer(1)), "{histogram}");
        let counts = elements(of_set["histogram_usec"]);
        assert!(counts.iter().all(|count| matches!(count, Value::Integer(1..))), "{histogram}");
    }
}
