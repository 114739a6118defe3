//! What is read and replied is bounded.

use super::*;

/// Replies to ranges of sorted sets are written as members are read.
#[test]
fn a_range_that_is_too_long_is_not_read_to_its_end() {
    let mut server = server(&Arc::default());
    for from in (0..20_000).step_by(250) {
        let members: String = (from..from + 250).map(|place| format!(" 1 {place:0200}")).collect();
        told(&server, &format!("ZADD set{members}"));
    }
    told(&server, "ZADD other 1 a 2 b 3 c");
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
    let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
    for request in [
        "ZRANGE set 0 -1",
        "ZRANGE set 0 -1 WITHSCORES",
        "ZREVRANGE set 0 -1",
        "ZRANGE set 5 -1 REV",
        "ZRANGEBYSCORE set -inf +inf",
        "ZREVRANGEBYSCORE set +inf -inf LIMIT 3 15000",
        "ZRANGE set 0 2 BYSCORE",
        "ZRANGEBYLEX set - +",
        "ZREVRANGEBYLEX set + [0",
    ] {
        let before = read();
        assert_eq!(told(&server, request), refusal, "{request}");
        let took = read() - before;
        assert!(took < 1 << 20, "{request} read {took} bytes");
    }
    assert_eq!(told(&server, "ZRANGE other - + BYLEX LIMIT 1 1"), "*1\r\n$1\r\nb\r\n");
    assert_eq!(told(&server, "ZRANGE other (a + BYLEX LIMIT 1 9"), "*1\r\n$1\r\nc\r\n");
    assert_eq!(told(&server, "ZRANGE other 5 9; ZRANGE none 0 1"), "*0\r\n*0\r\n");
    assert_eq!(
        told(&server, "HELLO 3; ZRANGE other 2 3 BYSCORE WITHSCORES").split_once("*2\r\n").unwrap().1,
        "*2\r\n$1\r\nb\r\n,2\r\n*2\r\n$1\r\nc\r\n,3\r\n"
    );
}

/// Makes a stream of 20,000 entries, each pending for the consumer of its number in the group `g`.
fn begin_pending<'c>(server: &LocalServer, consumer_of: impl Fn(u32) -> &'c str) {
    told(server, "XGROUP CREATE x g 0 MKSTREAM");
    for from in (0..20_000).step_by(250) {
        let entries: Vec<String> = (from..from + 250).map(|number| format!("XADD x 1-{} a b", number + 1)).collect();
        told(server, &entries.join("; "));
        told(server, &format!("XREADGROUP GROUP g {} COUNT 250 STREAMS x >", consumer_of(from)));
    }
}

/// So is the list of pending entries, a portion at a time.
#[test]
fn pending_entries_are_read_as_they_are_replied() {
    let mut server = server(&Arc::default());
    let name = "c".repeat(200);
    begin_pending(&server, |number| if number < 2500 { "d" } else { &name });
    for (query, count) in [
        ("- + 20000", 20_000),
        ("- + 1500", 1500),
        ("1-19001 + 20000", 1000),
        ("- + 2000 d", 2000),
        ("- + 9000 d", 2500),
        ("1-1001 1-2000 9000 d", 1000),
        ("1-2500 + 1 d", 1),
        ("1-2501 + 9000 d", 0),
        ("- + 9000 nobody", 0),
        ("- + 0", 0),
        ("IDLE 1 - + 9000", 0),
    ] {
        let reply = told(&server, &format!("XPENDING x g {query}"));
        let ids: BTreeSet<&str> = reply.lines().filter(|line| line.starts_with("1-")).collect();
        assert!(reply.starts_with(&format!("*{count}\r\n")) && ids.len() == count, "{query}: {}", ids.len());
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
    let before = read();
    assert_eq!(told(&server, "XPENDING x g - + 20000"), "-ERR too much is replied at once: at most 512 MiB\r\n");
    let took = read() - before;
    assert!(took < 1 << 20, "{took} bytes");
    // So are those that a consumer claims.
    let before = read();
    let claims = "XAUTOCLAIM x g d 0 0 COUNT 20000";
    assert_eq!(told(&server, claims), "-ERR too much is replied at once: at most 512 MiB\r\n");
    let took = read() - before;
    assert!(took < 6 << 20, "{took} bytes");
}

/// So is what `XINFO` tells of them, and of groups and consumers with long names.
#[test]
fn what_is_told_of_groups_is_read_as_far_as_there_is_room_for_it() {
    let mut server = server(&Arc::default());
    begin_pending(&server, |_| "c");
    told(&server, "XTRIM x MAXLEN 0");
    // Each of them is told with its group and with its consumer.
    let full = told(&server, "XINFO STREAM x FULL COUNT 0");
    assert_eq!(full.lines().filter(|line| *line == "1-7").count(), 2);
    assert!(full.matches("pending\r\n*20000\r\n").count() == 2 && full.contains("pel-count\r\n:20000\r\n"));
    let few = told(&server, "XINFO STREAM x FULL COUNT 3");
    assert_eq!(few.matches("pending\r\n*3\r\n").count(), 2, "{few}");
    server.records().lsm().unwrap().flush().unwrap();
    let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
    let most = std::mem::replace(&mut server.shared.max_reply_bytes, 10_000);
    let (reply, took) = read_for(&server, "XINFO STREAM x FULL COUNT 0");
    assert_eq!(reply, refusal);
    assert!(took < 1 << 20, "{took} bytes");
    server.shared.max_reply_bytes = most;
    for from in (0..1000_u32).step_by(50) {
        let make = |number: u32| format!("XGROUP CREATE x {number:04000} 0; XGROUP CREATECONSUMER x g {number:04000}");
        let made = told(&server, &(from..from + 50).map(make).collect::<Vec<_>>().join("; "));
        assert_eq!(made, "+OK\r\n:1\r\n".repeat(50));
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    for request in ["XINFO GROUPS x", "XINFO CONSUMERS x g", "XINFO STREAM x FULL", "DUMP x"] {
        let (reply, took) = read_for(&server, request);
        assert_eq!(reply, refusal, "{request}");
        assert!(took < 2 << 20, "{request} read {took} bytes");
    }
    // Names that are not told do not count.
    assert!(told(&server, "XINFO STREAM x").contains("groups\r\n:1001\r\n"));
    assert!(told(&server, "XPENDING x g").ends_with("*1\r\n*2\r\n$1\r\nc\r\n$5\r\n20000\r\n"));
}

/// What becomes of them is written, so it is bounded like other writes.
#[test]
fn pending_entries_that_change_hands_are_held_within_bounds() {
    let mut server = server(&Arc::default());
    let name = "c".repeat(200);
    begin_pending(&server, |_| &name);
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_written_bytes = 100_000;
    let refusal = "-ERR too much is written at once: at most 256 MiB\r\n";
    let (reply, took) = read_for(&server, &format!("XAUTOCLAIM x g {name}d 0 0 COUNT 20000 JUSTID"));
    assert_eq!(reply, refusal);
    assert!(took < 6 << 20, "{took} bytes");
    assert_eq!(told(&server, &format!("XGROUP DELCONSUMER x g {name}")), refusal);
    assert_eq!(told(&server, &format!("XREADGROUP GROUP g {name} STREAMS x 0")), refusal);
    assert!(told(&server, "XPENDING x g").starts_with("*4\r\n:20000\r\n"));
}

/// What a consumer has is one range. The pending entries of the group are removed one by one.
#[test]
fn a_consumer_is_removed_with_one_record_for_each_pending_entry() {
    let mut server = server(&Arc::default());
    told(&server, "XADD x 0-1 a b; DEL x");
    let count = server.records().count();
    begin_pending(&server, |number| if number < 250 { "other" } else { "c" });
    server.records().lsm().unwrap().flush().unwrap();
    // A removed record takes about 100 bytes until it is written.
    server.shared.max_written_bytes = 3_000_000;
    assert_eq!(told(&server, "XGROUP DELCONSUMER x g c"), ":19750\r\n");
    assert!(told(&server, "XPENDING x g").starts_with("*4\r\n:250\r\n$3\r\n1-1\r\n$5\r\n1-250\r\n*1\r\n"));
    // The stream, its entries, the group, and a consumer with two records for each of its entries.
    assert_eq!(server.records().count() - count, 1 + 20_000 + 1 + 1 + 2 * 250);
}

#[test]
fn what_is_made_of_sets_is_not_read_to_its_end_when_it_is_too_long() {
    let mut server = server(&Arc::default());
    for from in (0..20_000).step_by(250) {
        let members: String = (from..from + 250).map(|place| format!(" {place:0200}")).collect();
        told(&server, &format!("SADD set{members}"));
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
    for request in ["SUNION set none", "SDIFF set none", "SINTER set set"] {
        let before = read();
        assert!(told(&server, request).starts_with("-ERR too much is replied at once"), "{request}");
        let took = read() - before;
        assert!(took < 2 << 20, "{request} read {took} bytes");
    }
    let before = read();
    assert_eq!(told(&server, "SINTERCARD 2 set set LIMIT 7"), ":7\r\n");
    assert!(read() - before < 2 << 20);
}

/// Portions are short where many sets are read together.
#[test]
fn sets_are_combined_in_portions() {
    let server = server(&Arc::default());
    let multiples = |of: usize| (0..3000).step_by(of).map(|number| format!(" {number}")).collect::<String>();
    let scored = |of: usize| (0..3000).step_by(of).map(|number| format!(" {number} {number}")).collect::<String>();
    told(&server, &format!("SADD two{}; SADD three{}; SADD five{}", multiples(2), multiples(3), multiples(5)));
    told(&server, &format!("ZADD ztwo{}; ZADD zthree{}", scored(2), scored(3)));
    let numbers =
        |is_in: fn(&usize) -> bool| (0..3000).filter(is_in).map(|number| number.to_string()).collect::<BTreeSet<_>>();
    let members = |reply: String| {
        let mut lines = reply.lines();
        let count: usize = lines.next().unwrap()[1..].parse().unwrap();
        let members: Vec<String> = lines.skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(members.len(), count);
        let distinct: BTreeSet<String> = members.into_iter().collect();
        assert_eq!(distinct.len(), count);
        distinct
    };
    let many = |sets: &str| vec![sets; 100].join(" ");
    let union = numbers(|number| number % 2 == 0 || number % 3 == 0);
    let both = numbers(|number| number % 6 == 0);
    let rest = numbers(|number| number % 5 == 0 && number % 2 != 0 && number % 3 != 0);
    assert_eq!(members(told(&server, &format!("SUNION {}", many("two three")))), union);
    assert_eq!(members(told(&server, &format!("SINTER {}", many("two three")))), both);
    assert_eq!(members(told(&server, &format!("SDIFF five {}", many("two three none")))), rest);
    assert_eq!(told(&server, "SDIFF none five; SINTER two none; SUNION none"), "*0\r\n*0\r\n*0\r\n");
    for (request, expected) in [
        (format!("SUNIONSTORE made {}", many("two three")), &union),
        (format!("SINTERSTORE made {}", many("two three")), &both),
        (format!("SDIFFSTORE made five {}", many("two three")), &rest),
        ("SUNIONSTORE two two three".to_owned(), &union),
    ] {
        assert_eq!(told(&server, &request), format!(":{}\r\n", expected.len()), "{request}");
        let made = if request.contains("made") { "made" } else { "two" };
        assert_eq!(told(&server, &format!("SCARD {made}")), format!(":{}\r\n", expected.len()));
        assert_eq!(&members(told(&server, &format!("SMEMBERS {made}"))), expected, "{request}");
    }
    assert_eq!(told(&server, "SINTERSTORE made two none; EXISTS made"), ":0\r\n:0\r\n");
    let count = |is_in: fn(&usize) -> bool| (0..3000).filter(is_in).count();
    // Sets of both kinds, each many times: the scores of their members are added.
    let sent = told(&server, &format!("ZUNIONSTORE made 200 {}; ZSCORE made 6; ZSCORE made 3", many("ztwo three")));
    let size = count(|number| number % 2 == 0 || number % 3 == 0);
    assert_eq!(sent, format!(":{size}\r\n$3\r\n700\r\n$3\r\n100\r\n"));
    let sent = told(&server, &format!("ZINTERSTORE made 200 {}; ZSCORE made 6; ZSCORE made 3", many("ztwo zthree")));
    assert_eq!(sent, format!(":{}\r\n$4\r\n1200\r\n$-1\r\n", both.len()));
    let sent = told(&server, "ZDIFFSTORE made 2 ztwo three; ZRANGE made 0 0; ZINTERCARD 2 ztwo zthree LIMIT 3");
    assert_eq!(sent, format!(":{}\r\n*1\r\n$1\r\n2\r\n:3\r\n", count(|number| number % 2 == 0 && number % 3 != 0)));
    let sent = told(&server, "ZUNION 2 ztwo zthree WEIGHTS 1 2 AGGREGATE MAX WITHSCORES");
    assert!(
        sent.starts_with(
            "*4000\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n4\r\n$1\r\n4\r\n$1\r\n3\r\n$1\r\n6\r\n"
        ),
        "{}",
        &sent[..200]
    );
}

#[test]
fn ranges_by_rank_are_the_same_from_either_end() {
    let server = server(&Arc::default());
    let size = 1200;
    let all: String = (0..size).map(|place| format!(" {place} {place}")).collect();
    told(&server, &format!("ZADD set{all}"));
    for (from, to) in [(0, 3), (3, 899), (700, 1000), (800, 1199), (1100, 1199), (600, 1199), (1199, 1199), (0, 1199)] {
        let bulk = |place: i32| format!("${}\r\n{place}\r\n", place.to_string().len());
        let count = to - from + 1;
        let expected: String = (from..=to).map(bulk).collect();
        let reversed: String = (from..=to).map(|place| bulk(size - 1 - place)).collect();
        for (from, to) in [(from, to), (from - size, to - size)] {
            let sent = told(&server, &format!("ZRANGE set {from} {to}"));
            assert_eq!(sent, format!("*{count}\r\n{expected}"), "{from} {to}");
            let sent = told(&server, &format!("ZRANGE set {from} {to} REV"));
            assert_eq!(sent, format!("*{count}\r\n{reversed}"), "{from} {to}");
        }
    }
}

#[test]
fn who_asks_for_many_keys_gets_all_in_order() {
    let server = server(&Arc::default());
    told(&server, "SETRANGE k 9 x");
    let keys: Vec<String> =
        (0..1000).map(|place| if place % 3 == 0 { "k".to_owned() } else { place.to_string() }).collect();
    let sent = told(&server, &format!("MGET {}", keys.join(" ")));
    let found = "$10\r\n\0\0\0\0\0\0\0\0\0x\r\n";
    assert_eq!(sent, format!("*1000\r\n{found}{}", format!("$-1\r\n$-1\r\n{found}").repeat(333)));
}

#[test]
fn what_is_replied_at_once_is_bounded() {
    let mut server = server(&Arc::default());
    let value = "v".repeat(300);
    for key in ["k", "other"] {
        told(&server, &format!("SET {key} {value}"));
    }
    told(&server, &format!("RPUSH list {value} 2 3 4; HSET hash a {value} b {value}"));
    told(&server, &format!("XADD stream * f {value}"));
    server.shared.max_reply_bytes = 1000;
    let bulk = format!("$300\r\n{value}\r\n");
    let refusal = "-ERR too much is replied at once: at most 512 MiB\r\n";
    // One command.
    assert_eq!(told(&server, "MGET k k other"), format!("*3\r\n{}", bulk.repeat(3)));
    for request in [
        "MGET k k k k",
        "HMGET hash a b a b",
        "SORT list BY nosort GET k* GET # GET # GET # GET #",
        "SORT list BY nosort GET # GET # GET # GET # STORE made",
        "XREAD STREAMS stream stream stream stream 0 0 0 0",
        "HRANDFIELD hash -4 WITHVALUES",
        &format!("MGET {} k k k", "a ".repeat(40)),
    ] {
        assert_eq!(told(&server, request), refusal, "{request}");
    }
    assert_eq!(told(&server, "EXISTS made"), ":0\r\n");
    // A pipeline continues, and only a command that is too long by itself fails.
    let gets = |count: usize| vec!["GET k"; count].join("; ");
    assert_eq!(told(&server, &gets(50)), bulk.repeat(50));
    let expected = format!("{bulk}:1\r\n{refusal}{}", bulk.repeat(2));
    assert_eq!(told(&server, "GET k; SADD new x; MGET k k k k; GET k; GET k"), expected);
    // A transaction is refused as a whole, and nothing of it stays.
    let queued = |count: usize| format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count));
    let sent = told(&server, &format!("MULTI; {}; EXEC", gets(3)));
    assert_eq!(sent, format!("{}*3\r\n{}", queued(3), bulk.repeat(3)));
    for last in
        [&gets(4)[..], "LRANGE list 0 0; LRANGE list 0 0; HGETALL hash", "EVAL \"return {'v'}\" 0; MGET k k k k"]
    {
        let sent = told(&server, &format!("MULTI; SET made 1; {last}; EXEC; EXISTS made"));
        assert!(sent.ends_with(&format!("+QUEUED\r\n{refusal}:0\r\n")), "{last}: {sent}");
    }
    // Replies that are not sent do not count.
    let quiet = format!("CLIENT REPLY OFF; MULTI; SET made 1; {}; EXEC; CLIENT REPLY ON; EXISTS made", gets(9));
    assert_eq!(told(&server, &quiet), "+OK\r\n:1\r\n");
    // A script may call any number of times, but no single reply may be too long.
    let long = "EVAL \"for i = 1, 20 do redis.call('GET', 'k') end return redis.call('GET', 'k')\" 0";
    assert_eq!(told(&server, long), bulk);
    for (script, expected) in [
        ("redis.call('SET', 'new', 1) return redis.pcall('MGET', 'k', 'k', 'k', 'k')", refusal),
        ("redis.call('SET', 'new', 1) local k = redis.call('GET', 'k') return {k, k, k, k}", refusal),
    ] {
        assert_eq!(told(&server, &format!("EVAL \"{script}\" 0")), expected, "{script}");
    }
    assert_eq!(told(&server, "TYPE new"), "+set\r\n");
}

/// Removals one by one are written, so they are bounded like other writes. All members are removed at once.
#[test]
fn members_that_are_removed_are_held_within_bounds() {
    let mut server = server(&Arc::default());
    for from in (0..1000).step_by(250) {
        let members: String = (from..from + 250).map(|place| format!(" {place} {place:0100}")).collect();
        told(&server, &format!("ZADD set{members}; ZADD other{members}"));
    }
    server.shared.max_written_bytes = 100_000;
    let refusal = "-ERR too much is written at once: at most 256 MiB\r\n";
    for request in [
        "ZREMRANGEBYRANK set 1 -1",
        "ZREMRANGEBYSCORE set -inf (999",
        "ZREMRANGEBYLEX set - (0",
        "ZREMRANGEBYSCORE set 1 +inf",
    ] {
        let expected = if request.contains("LEX") { ":0\r\n" } else { refusal };
        assert_eq!(told(&server, &format!("{request}; ZCARD set")), format!("{expected}:1000\r\n"), "{request}");
    }
    assert_eq!(
        told(&server, "ZREMRANGEBYRANK set 1 99; ZREMRANGEBYSCORE set 500 599; ZCARD set"),
        ":99\r\n:100\r\n:801\r\n"
    );
    assert_eq!(told(&server, "ZSCORE set 0; ZREMRANGEBYSCORE set -inf +inf; EXISTS set"), "$-1\r\n:801\r\n:0\r\n");
    assert_eq!(told(&server, "ZREMRANGEBYRANK other 0 -1; EXISTS other"), ":1000\r\n:0\r\n");
}

/// Members that are popped are read in portions of 4 MiB. The bound of writes or replies ends the reading, and all
/// members are removed at once.
#[test]
fn members_that_are_popped_are_held_in_portions() {
    const MEMBERS: usize = 40_000;
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::default();
    let options = Options { background_threads: 0, clock: Arc::clone(&clock), ..Options::default() };
    let mut server = LocalServer::new(Store::embedded(1 << 30, options).unwrap(), clock, &["config"]).unwrap();
    for from in (0..MEMBERS).step_by(250) {
        let members: String = (from..from + 250).map(|place| format!(" {place} {place:0200}")).collect();
        told(&server, &format!("ZADD set{members}"));
    }
    server.records().lsm().unwrap().flush().unwrap();
    let refused = |server: &LocalServer, request: &str, refusal: &str| {
        let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
        let before = read();
        assert!(told(server, request).starts_with(refusal), "{request}");
        let took = read() - before;
        assert_eq!(told(server, "ZCARD set"), format!(":{MEMBERS}\r\n"), "{request}");
        took
    };
    let (written, replied) = (server.shared.max_written_bytes, server.shared.max_reply_bytes);
    server.shared.max_written_bytes = 100_000;
    refused(&server, "ZPOPMIN set 39999", "-ERR too much is written at once");
    refused(&server, "ZMPOP 2 none set MAX COUNT 39999", "-ERR too much is written at once");
    server.shared.max_written_bytes = written;
    server.shared.max_reply_bytes = 100_000;
    refused(&server, "ZPOPMAX set 39999", "-ERR too much is replied at once");
    let took = refused(&server, "ZPOPMAX set 40000", "-ERR too much is replied at once");
    assert!(took < 2 << 20, "all members were read until {took} bytes");
    server.shared.max_reply_bytes = replied;
    // More than a portion from either end, in the order of the end.
    let popped = |reply: &str| {
        let members = reply.lines().filter(|line| line.len() == 200);
        members.map(|member| member.parse::<usize>().unwrap()).collect::<Vec<_>>()
    };
    let first = told(&server, "ZPOPMIN set 19000");
    assert!(first.starts_with("*38000\r\n"), "{}", &first[..20]);
    assert_eq!(popped(&first), (0..19_000).collect::<Vec<_>>());
    let last = told(&server, "ZMPOP 1 set MAX COUNT 19000");
    assert!(last.starts_with("*2\r\n$3\r\nset\r\n*19000\r\n*2\r\n"), "{}", &last[..40]);
    assert_eq!(popped(&last), (21_000..MEMBERS).rev().collect::<Vec<_>>());
    assert_eq!(told(&server, "ZCARD set; ZCOUNT set -inf +inf"), ":2000\r\n:2000\r\n");
    server.shared.max_written_bytes = 10_000;
    assert_eq!(popped(&told(&server, "ZPOPMIN set 5000")), (19_000..21_000).collect::<Vec<_>>());
    assert_eq!(told(&server, "EXISTS set; ZPOPMIN set; ZPOPMIN set 3; ZMPOP 1 set MIN"), ":0\r\n*0\r\n*0\r\n*-1\r\n");
}

/// It is written in parts, like other collections, with the entries that are pending.
#[test]
fn a_restored_stream_may_be_longer_than_one_write() {
    let mut server = server(&Arc::default());
    server.shared.max_written_bytes = 2_000_000;
    for from in (1..=11_000).step_by(250) {
        let requests: String = (from..from + 250).map(|id| format!("XADD s {id}-1 f {id:0300}\r\n")).collect();
        server.connect().send(requests.as_bytes());
    }
    told(&server, "XGROUP CREATE s g 0");
    for consumer in ["c", "d"].iter().cycle().take(22) {
        told(&server, &format!("XREADGROUP GROUP g {consumer} COUNT 500 STREAMS s >"));
    }
    let mut connection = server.connect();
    let mut ask = |request: &[u8]| {
        assert_eq!(connection.send(request), b"");
        assert_eq!(server.carry_out_jobs(), 1);
        connection.send(b"")
    };
    let dumped = ask(b"DUMP s\r\n");
    let before = server.records().count();
    let restore = [&b"*4\r\n$7\r\nRESTORE\r\n$1\r\nr\r\n$1\r\n0\r\n"[..], &dumped].concat();
    assert_eq!(ask(&restore), b"+OK\r\n");
    // The key, the entries, the group, its consumers, and two records for each pending entry.
    assert_eq!(server.records().count() - before, 1 + 11_000 + 1 + 2 + 2 * 11_000);
    assert!(ask(b"DUMP r\r\n") == dumped);
    let ends = told(&server, "XLEN r; XRANGE r - + COUNT 1; XREVRANGE r + - COUNT 1");
    assert!(ends.starts_with(":11000\r\n") && ends.contains("\r\n1-1\r\n") && ends.contains("\r\n11000-1\r\n"));
    assert_eq!(told(&server, "XACK r g 1-1 1-1 10600-1"), ":2\r\n");
    let pending = told(&server, "XPENDING r g");
    assert!(pending.starts_with("*4\r\n:10998\r\n$3\r\n2-1\r\n$7\r\n11000-1\r\n"), "{pending}");
    assert!(pending.ends_with("$1\r\nc\r\n$4\r\n5499\r\n*2\r\n$1\r\nd\r\n$4\r\n5499\r\n"), "{pending}");
    assert!(told(&server, "XREADGROUP GROUP g d COUNT 1 STREAMS r 0").contains("\r\n501-1\r\n"));
}

#[test]
fn a_stream_that_is_too_long_is_not_read_to_its_end() {
    let mut server = server(&Arc::default());
    for from in (1..=20_000).step_by(250) {
        let requests: String = (from..from + 250).map(|id| format!("XADD s {id}-1 f {id:0200}\r\n")).collect();
        server.connect().send(requests.as_bytes());
    }
    assert_eq!(told(&server, "XLEN s; XGROUP CREATE s g 0"), ":20000\r\n+OK\r\n");
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
    for request in [
        "XRANGE s - +",
        "XREVRANGE s + -",
        "XREAD STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "XINFO STREAM s FULL COUNT 0",
        "DUMP s",
    ] {
        let before = read();
        assert_eq!(told(&server, request), "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
        let took = read() - before;
        assert!(took < 1 << 20, "{request} read {took} bytes");
    }
    // Nothing was delivered. What is removed is not replied.
    assert_eq!(told(&server, "XPENDING s g"), "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n");
    // However many entries are trimmed, they are one range: the engine should have few range deletions.
    let written = std::mem::replace(&mut server.shared.max_written_bytes, 1000);
    assert_eq!(told(&server, "XTRIM s MAXLEN 10"), ":19990\r\n");
    server.shared.max_written_bytes = written;
    // What is too long is not claimed, and not delivered again.
    server.shared.max_reply_bytes = usize::MAX;
    assert!(told(&server, "XREADGROUP GROUP g c STREAMS s >").starts_with("*1\r\n"));
    server.shared.max_reply_bytes = 1000;
    for request in [
        "XREADGROUP GROUP g c STREAMS s 0",
        "XAUTOCLAIM s g other 0 0",
        "XCLAIM s g other 0 19991-1 19992-1 19993-1 19994-1 19995-1",
    ] {
        assert_eq!(told(&server, request), "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
    }
    assert!(told(&server, "XAUTOCLAIM s g other 0 0 JUSTID").starts_with("*3\r\n$3\r\n0-0\r\n*10\r\n"));
}

#[test]
fn entries_are_trimmed_one_by_one_or_by_the_hundred() {
    let server = server(&Arc::default());
    for (trim, removed) in [
        ("MAXLEN 0", 1150),
        ("MAXLEN 50", 1100),
        ("MAXLEN 1145", 5),
        ("MINID 1100-1", 1099),
        ("MINID 0-1", 0),
        ("MAXLEN ~ 0", 1150),
        ("MAXLEN ~ 0 LIMIT 1149", 1100),
        ("MAXLEN ~ 100", 1000),
        ("MINID ~ 1060-1", 1000),
        ("MINID ~ 9999-1 LIMIT 0", 1150),
        ("MINID ~ 60-1", 0),
    ] {
        let add = |from: u32| (from..from + 50).map(|id| format!("XADD s {id}-1 f v\r\n")).collect::<String>();
        (1..=1150).step_by(50).for_each(|from| _ = server.connect().send(add(from).as_bytes()));
        let left = 1150 - removed;
        assert_eq!(told(&server, &format!("XTRIM s {trim}; XLEN s")), format!(":{removed}\r\n:{left}\r\n"), "{trim}");
        let ids = told(&server, "XRANGE s - +");
        let ids: Vec<&str> = ids.lines().filter(|line| line.ends_with("-1")).collect();
        let expected: Vec<String> = (removed + 1..=1150).map(|id| format!("{id}-1")).collect();
        assert_eq!(ids, expected, "{trim}");
        assert_eq!(told(&server, "DEL s"), ":1\r\n");
    }
}

/// A server with a collection of 20,000 elements, which this command adds, and whose replies are short.
fn with_many(command: &str, element: fn(u32) -> String) -> LocalServer {
    let mut server = server(&Arc::default());
    for from in (0..20_000).step_by(250) {
        let elements: String = (from..from + 250).map(element).collect();
        assert!(!told(&server, &format!("{command}{elements}")).starts_with('-'));
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    server
}

/// Returns the reply to a request, and how many bytes were read for it.
fn read_for(server: &LocalServer, request: &str) -> (String, u64) {
    let read = || server.records().lsm().unwrap().statistics().foreground.bytes_read;
    let before = read();
    let reply = told(server, request);
    (reply, read() - before)
}

/// A command that adds elements, what it adds for a number, and requests that reply with too much of it.
type Many = (&'static str, fn(u32) -> String, &'static [&'static str]);

/// What is read for a reply is held until it is complete.
#[test]
fn elements_that_are_too_long_for_a_reply_are_not_held() {
    let cases: [Many; 5] = [
        (
            "SADD k",
            |number| format!(" {number:0200}"),
            &[
                "SPOP k 20000",
                "SPOP k 19000",
                "SRANDMEMBER k 20000",
                "SRANDMEMBER k 19000",
                "SRANDMEMBER k -19000",
                "SRANDMEMBER k -10000000",
                "SSCAN k 0 COUNT 20000",
                "DUMP k",
                "SORT k ALPHA",
            ],
        ),
        (
            "HSET k",
            |number| format!(" {number} {number:0200}"),
            &[
                "HRANDFIELD k 19000 WITHVALUES",
                "HRANDFIELD k -19000 WITHVALUES",
                "HRANDFIELD k -10000000",
                "HSCAN k 0 COUNT 20000",
                "DUMP k",
            ],
        ),
        (
            "ZADD k",
            |number| format!(" {number} {number:0200}"),
            &[
                "ZRANDMEMBER k 19000",
                "ZRANDMEMBER k -19000 WITHSCORES",
                "ZRANDMEMBER k -10000000",
                "ZSCAN k 0 COUNT 20000",
                "DUMP k",
            ],
        ),
        (
            "RPUSH k",
            |number| format!(" {number:0200}"),
            &["LPOP k 19000", "RPOP k 20000", "LMPOP 1 k RIGHT COUNT 19000", "DUMP k", "SORT k BY nosort"],
        ),
        (
            "GEOADD k",
            |number| format!(" {} {} {number:0200}", number % 180, number % 85),
            &["GEOSEARCH k FROMLONLAT 0 0 BYRADIUS 30000 km", "GEORADIUS k 0 0 30000 km COUNT 19000 ANY DESC"],
        ),
    ];
    for (command, element, requests) in cases {
        let server = with_many(command, element);
        for request in requests {
            let (reply, took) = read_for(&server, request);
            assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
            assert!(took < 2 << 20, "{request} read {took} bytes");
        }
    }
}

#[test]
fn a_collection_that_is_named_many_times_is_read_once() {
    let server = server(&Arc::default());
    for from in (0..4_000_u32).step_by(250) {
        let members: String = (from..from + 250).map(|number| format!(" {number:0200}")).collect();
        let scored: String = (from..from + 250).map(|number| format!(" 1 {number:0200}")).collect();
        told(&server, &format!("SADD set{members}; ZADD sorted{scored}"));
    }
    server.records().lsm().unwrap().flush().unwrap();
    let many = |names: &str| vec![names; 100].join(" ");
    for (request, reply) in [
        (format!("SUNION {}", many("set")), "*4000\r\n"),
        (format!("SDIFF {}", many("set")), "*0\r\n"),
        (format!("ZUNION 200 {}", many("sorted set")), "*4000\r\n"),
        (format!("ZINTERCARD 200 {}", many("sorted set")), ":4000\r\n"),
    ] {
        let (found, took) = read_for(&server, &request);
        assert!(found.starts_with(reply), "{request}");
        assert!(took < 10 << 20, "{request} read {took} bytes");
    }
    let sum = format!("ZUNIONSTORE made 200 {} WEIGHTS {}; ZSCORE made {:0200}", many("sorted set"), many("2 1"), 7);
    assert_eq!(told(&server, &sum), ":4000\r\n$3\r\n300\r\n");
}

#[test]
fn fields_are_read_as_far_as_there_is_room_for_them() {
    let server = with_many("HSET k", |number| format!(" {number} {number:0200}"));
    let fields: String = (0..8000).map(|number| format!(" {number}")).collect();
    let (reply, took) = read_for(&server, &format!("HMGET k{fields}"));
    assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n");
    assert!(took < 1 << 20, "{took} bytes");
}

/// The run reads 64 MiB of values before the command begins.
#[test]
fn strings_are_read_as_far_as_there_is_room_for_them() {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::default();
    let options = Options { background_threads: 0, clock: Arc::clone(&clock), ..Options::default() };
    let mut server = LocalServer::new(Store::embedded(1 << 30, options).unwrap(), clock, &["config"]).unwrap();
    let names: String = (0..80).map(|number| format!(" k{number}")).collect();
    for name in names.split_whitespace() {
        assert_eq!(told(&server, &format!("SETRANGE {name} 1048575 x")), ":1048576\r\n");
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let (reply, took) = read_for(&server, &format!("MGET{names}{names}"));
    assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n");
    assert!((64 << 20..80 << 20).contains(&took), "{took} bytes");
}

#[test]
fn keys_that_are_too_long_for_a_reply_are_not_held() {
    let server = with_many("MSET", |number| format!(" {number:0200} v"));
    for request in ["SCAN 0 COUNT 20000", "SCAN 0 COUNT 20000 TYPE string", "KEYS *"] {
        let (reply, took) = read_for(&server, request);
        assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
        assert!(took < 2 << 20, "{request} read {took} bytes");
    }
}

/// Numbers that give the order are not held as texts.
#[test]
fn what_patterns_lead_to_is_not_read_to_its_end_when_it_is_too_long() {
    let mut server = server(&Arc::default());
    for from in (0..12_000_u32).step_by(250) {
        let elements: String = (from..from + 250).map(|number| format!(" {number}")).collect();
        let keys: String =
            (from..from + 250).map(|number| format!(" v{number} {number:0200} w{number} {number}")).collect();
        told(&server, &format!("RPUSH l{elements}; MSET{keys}"));
    }
    server.records().lsm().unwrap().flush().unwrap();
    server.shared.max_reply_bytes = 10_000;
    let (_, elements) = read_for(&server, "SORT l LIMIT 0 1");
    for request in ["SORT l BY nosort GET v*", "SORT l BY nosort GET v* STORE made", "SORT l BY v* ALPHA LIMIT 0 1"] {
        let (reply, took) = read_for(&server, request);
        assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
        assert!(took < elements + (1 << 20), "{request} read {took} bytes, of which elements take {elements}");
    }
    assert_eq!(told(&server, "SORT l BY w* DESC LIMIT 0 1"), "*1\r\n$5\r\n11999\r\n");
}

/// Few elements may be long.
#[test]
fn elements_beyond_a_reply_are_not_read() {
    let options = Options { background_threads: 0, ..Options::default() };
    let store = Store::embedded(256 << 20, options).unwrap();
    let mut server = LocalServer::new(store, Arc::<ManualClock>::default(), &[]).unwrap();
    let value = "v".repeat(1 << 20);
    let push = format!("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n${}\r\n{value}\r\n", value.len());
    (1..=40).for_each(|count| assert_eq!(server.connect().send(push.as_bytes()), format!(":{count}\r\n").as_bytes()));
    told(&server, &format!("RPUSH short{}", " element".repeat(64)));
    server.records().lsm().unwrap().flush().unwrap();
    let most = std::mem::replace(&mut server.shared.max_reply_bytes, 2 << 20);
    for request in ["LRANGE l 0 -1", "LPOP l 40", "RPOP l 40", "LMPOP 1 l LEFT COUNT 40"] {
        let (reply, took) = read_for(&server, request);
        assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n", "{request}");
        assert!(took < 8 << 20, "{request} read {took} bytes");
    }
    server.shared.max_reply_bytes = most;
    let element = format!("${}\r\n{value}\r\n", value.len());
    assert!(told(&server, "LRANGE l 0 19") == format!("*20\r\n{}", element.repeat(20)));
    assert!(told(&server, "RPOP l 5; LLEN l") == format!("*5\r\n{}:35\r\n", element.repeat(5)));
    // Short elements come together.
    let round_trips = || server.records().lsm().unwrap().statistics().foreground.round_trips;
    let before = round_trips();
    assert!(told(&server, "LRANGE short 0 -1").starts_with("*64\r\n"));
    assert!(round_trips() - before <= 4);
}

#[test]
fn a_list_is_read_where_it_changes() {
    let server = with_many("RPUSH k", |number| format!(" {number:0200}"));
    for (request, expected) in [
        (format!("LINSERT k AFTER {:0200} x", 3), ":20001\r\n"),
        (format!("LREM k 1 {:0200}", 5), ":1\r\n"),
        (format!("LREM k -1 {:0200}", 19_990), ":1\r\n"),
    ] {
        let (reply, took) = read_for(&server, &request);
        assert_eq!(reply, expected, "{request}");
        assert!(took < 2 << 20, "{request} read {took} bytes");
    }
    let element = |number: u32| format!("$200\r\n{number:0200}\r\n");
    let front = format!("*4\r\n{}$1\r\nx\r\n{}{}", element(3), element(4), element(6));
    let end = format!("*2\r\n{}{}:19999\r\n", element(19_989), element(19_991));
    assert_eq!(told(&server, "LRANGE k 3 6; LRANGE k -10 -9; LLEN k"), front + &end);
}

/// Of a short collection, all elements are equally likely.
#[test]
fn elements_that_differ_are_evenly_chosen() {
    let server = server(&Arc::default());
    told(&server, "SADD set 0 1 2 3 4 5 6 7 8 9");
    let mut chosen = [0; 10];
    for _ in 0..1000 {
        let reply = told(&server, "SRANDMEMBER set 5");
        let members: BTreeSet<usize> = reply.lines().skip(2).step_by(2).map(|member| member.parse().unwrap()).collect();
        assert!(reply.starts_with("*5\r\n") && members.len() == 5, "{reply}");
        members.into_iter().for_each(|member| chosen[member] += 1);
    }
    assert!(chosen.iter().all(|times| (350..650).contains(times)), "{chosen:?}");
}

/// They come in any order, not in that of the collection.
#[test]
fn elements_that_are_chosen_with_repetition_are_mixed() {
    let server = server(&Arc::default());
    told(&server, "SADD set 0 1 2 3 4 5 6 7 8 9; ZADD sorted 0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9");
    for request in ["SRANDMEMBER set -1000", "ZRANDMEMBER sorted -1000"] {
        let reply = told(&server, request);
        let members: Vec<&str> = reply.lines().skip(2).step_by(2).collect();
        assert!(reply.starts_with("*1000\r\n") && members.len() == 1000, "{reply}");
        assert_eq!(members.iter().collect::<BTreeSet<_>>().len(), 10);
        let equal = members.windows(2).filter(|pair| pair.first() == pair.last()).count();
        assert!(equal < 300, "{equal} of 999 are as the one before");
    }
    // The score of each member is its own.
    let reply = told(&server, "ZRANDMEMBER sorted -1000 WITHSCORES");
    let words: Vec<&str> = reply.lines().skip(2).step_by(2).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    assert!(reply.starts_with("*2000\r\n") && pairs.len() == 1000 && rest.is_empty(), "{reply}");
    assert!(pairs.iter().all(|[member, score]| member == score));
}

/// Values that are not replied do not count.
#[test]
fn random_elements_are_different_or_not() {
    let mut server = server(&Arc::default());
    let value = "v".repeat(300);
    let most = server.shared.max_reply_bytes;
    for size in [10_u32, 600] {
        for from in (0..size).step_by(100) {
            let fields: String =
                (from..size.min(from + 100)).map(|number| format!(" f{number} {number}{value}")).collect();
            told(&server, &format!("HSET hash{fields}"));
        }
        server.shared.max_reply_bytes = 20_000;
        for (count, expected) in [(1, 1), (9, 9), (200, size.min(200)), (599, size.min(599)), (1000, size)] {
            let reply = told(&server, &format!("HRANDFIELD hash {count}"));
            let found: BTreeSet<&str> = reply.lines().filter(|line| line.starts_with('f')).collect();
            assert!(reply.starts_with(&format!("*{expected}\r\n")), "{size} {count}");
            assert_eq!(found.len(), expected as usize, "{size} {count}");
        }
        // Some of these are chosen one by one, the others in one pass.
        for count in [-100, -1000, -10_000_000] {
            let reply = told(&server, &format!("HRANDFIELD hash {count} WITHVALUES"));
            assert_eq!(reply, "-ERR too much is replied at once: at most 512 MiB\r\n", "{size} {count}");
        }
        server.shared.max_reply_bytes = most;
        for count in [-1_i32, -100, -1000] {
            let reply = told(&server, &format!("HRANDFIELD hash {count} WITHVALUES"));
            let lines: Vec<&str> = reply.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            let (pairs, rest) = lines.as_chunks::<2>();
            assert!(rest.is_empty() && pairs.len() == count.unsigned_abs() as usize, "{size} {count}");
            assert!(pairs.iter().all(|[field, found]| **found == format!("{}{value}", &field[1..])), "{size} {count}");
        }
        assert_eq!(told(&server, "HRANDFIELD hash -10000001"), "-ERR value is out of range\r\n");
    }
}
