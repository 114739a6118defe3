//! What Redis does in rare cases.

use super::*;
use crate::keyspace::header::{self, Content, Header};
use crate::keyspace::layout;
use crate::keyspace::streams::{Consumer, Group, StreamId, StreamKeys};

#[test]
fn a_member_that_the_target_has_changes_only_the_source() {
    let server = server(&Arc::default());
    told(&server, "SADD a x y; SADD b x");
    for (member, replies) in [("x", "*1\r\n:1\r\n"), ("y", "*-1\r\n")] {
        let mut watches = server.connect();
        watches.send(b"WATCH b\r\nMULTI\r\nSCARD b\r\n");
        assert_eq!(told(&server, &format!("SMOVE a b {member}; SISMEMBER a {member}")), ":1\r\n:0\r\n");
        assert_eq!(watches.send(b"EXEC\r\n"), replies.as_bytes(), "{member}");
    }
    assert_eq!(told(&server, "EXISTS a; SMISMEMBER b x y"), ":0\r\n*2\r\n:1\r\n:1\r\n");
}

/// `PFCOUNT` keeps its estimate, but needs no room.
#[test]
fn an_estimate_that_cannot_be_kept_is_given() {
    let disk = SimDisk::new();
    let server = server_on(&disk, &Arc::default(), Syncing::Sync);
    assert_eq!(told(&server, "PFADD a x y z; PFADD b x y"), ":1\r\n:1\r\n");
    fill(&disk);
    // What was already published is in doubt. Later writes are refused.
    assert!(told(&server, "SET room 1").starts_with(IN_DOUBT));
    for (request, reply) in [("PFCOUNT a", ":3\r\n"), ("MULTI; PFCOUNT b; EXEC", "+OK\r\n+QUEUED\r\n*1\r\n:2\r\n")] {
        let refused = told(&server, "PFADD a w");
        assert!(refused.starts_with("-ERR storage"), "{refused}");
        assert_eq!(told(&server, request), reply, "{request}");
    }
}

#[test]
fn a_pattern_without_a_star_counts_among_several() {
    let server = server(&Arc::default());
    told(&server, "RPUSH l 3 1 2; MSET w_3 3 w_1 1 w_2 2");
    let elements = |order: &str| order.chars().map(|element| format!("$1\r\n{element}\r\n")).collect::<String>();
    for (options, order) in
        [("BY w_*", "123"), ("BY nosort BY w_*", "312"), ("BY w_* BY nosort", "312"), ("BY nosort BY w_* DESC", "213")]
    {
        assert_eq!(told(&server, &format!("SORT l {options}")), format!("*3\r\n{}", elements(order)), "{options}");
    }
}

/// A dump of another server may say that there were as many entries and deliveries as can be counted.
#[test]
fn counts_of_a_restored_stream_begin_anew_after_the_largest() {
    let (server, most) = (server(&Arc::default()), [0xff_u8; 8]);
    let id = [&6_u64.to_be_bytes()[..], &[0; 8]].concat();
    let mut dump = [
        // A stream without entries, whose last id is 5-0.
        &[19, 0, 0, 5, 0, 0, 0, 0, 0, 0x81][..],
        &most,
        // A group, in which an entry is pending that will be added.
        &[1, 1, b'g', 5, 0, 0, 1],
        &id,
        &[0; 8],
        &[0x81],
        &most,
        &[1, 1, b'c'],
        &[0; 8],
        &[1],
        &id,
        &[10, 0],
    ]
    .concat();
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Redis, &dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
    let head = format!("*4\r\n$7\r\nRESTORE\r\n$1\r\nx\r\n$1\r\n0\r\n${}\r\n", dump.len());
    assert_eq!(server.connect().send(&[head.as_bytes(), &dump, b"\r\n"].concat()), b"+OK\r\n");
    assert_eq!(told(&server, "XADD x 6-0 a b"), "$3\r\n6-0\r\n");
    assert!(told(&server, "XINFO STREAM x").contains("entries-added\r\n:0\r\n"));
    assert!(told(&server, "XREADGROUP GROUP g c STREAMS x 0").contains("6-0"));
    assert!(told(&server, "XPENDING x g - + 1").ends_with(":0\r\n:0\r\n"));
}

/// The server remembers where a trimmed stream begins.
#[test]
fn a_trimmed_stream_has_all_entries_that_stay_or_come() {
    let mut server = server(&Arc::default());
    let front = |server: &LocalServer| {
        let mut keys = server.shared.transaction(0);
        let stream = keys.stream(0, b"x").unwrap().unwrap();
        let all = StreamKeys { space: 0, id: stream.id }.entries(StreamId::LEAST, StreamId::MOST);
        StreamId::of_key(&keys.fronts().narrowed((stream.id, 0), all).0).to_string()
    };
    let ids = |server: &LocalServer| {
        let range = told(server, "XRANGE x - +");
        range.lines().filter(|line| line.contains('-')).collect::<Vec<_>>().join(" ")
    };
    told(&server, "XADD x 5-1 a b; XADD x 6-1 a b; XADD x 7-1 a b");
    assert_eq!((front(&server), ids(&server)), ("0-0".to_owned(), "5-1 6-1 7-1".to_owned()));
    // What is not written has trimmed nothing.
    let most = std::mem::replace(&mut server.shared.max_written_bytes, 1000);
    let refused = told(&server, &format!("MULTI; XTRIM x MAXLEN 1; SET k {}; EXEC", "v".repeat(2000)));
    assert!(refused.contains("QUEUED\r\n-ERR"), "{refused}");
    server.shared.max_written_bytes = most;
    assert_eq!((front(&server), ids(&server)), ("0-0".to_owned(), "5-1 6-1 7-1".to_owned()));
    for (requests, begins, stays) in [
        ("XTRIM x MAXLEN 1", "6-2", "7-1"),
        ("XADD x MAXLEN 1 7-2 a b", "7-2", "7-2"),
        ("XTRIM x MINID 9", "7-3", ""),
        // Entries may come before others now.
        ("XSETID x 2-0; XADD x 3-0 a b", "0-0", "3-0"),
        ("MULTI; XTRIM x MAXLEN 0; XSETID x 1-0; EXEC; XADD x 2-0 a b", "0-0", "2-0"),
        ("XTRIM x MAXLEN 0; XADD x 2-1 a b", "2-1", "2-1"),
    ] {
        told(&server, requests);
        assert_eq!((front(&server), ids(&server)), (begins.to_owned(), stays.to_owned()), "{requests}");
    }
}

/// The members of the sorted set `q`, in the order of their scores.
fn queue(server: &LocalServer) -> String {
    let reply = told(server, "ZRANGE q 0 -1");
    reply.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
}

/// The server remembers where a sorted set begins and ends once members were removed.
#[test]
fn a_sorted_set_that_is_a_queue_has_all_members_that_stay_or_come() {
    let mut server = server(&Arc::default());
    told(&server, "ZADD q 5 e 6 f 7 g 8 h 9 i");
    for (requests, members) in [
        ("ZPOPMIN q; ZPOPMAX q", "f g h"),
        ("ZPOPMIN q; ZPOPMAX q", "g"),
        ("ZADD q 1 a 10 j", "a g j"),
        ("ZPOPMIN q; ZMPOP 1 q MAX; ZADD q 2 b; ZADD q 3 c", "b c g"),
        ("BZPOPMIN q 0; ZINCRBY q -6 g", "g c"),
        ("ZPOPMIN q; ZADD q GT 9 c; ZADD q 3 d; RENAME q r; ZADD r 1 a; RENAME r q", "a d c"),
        ("ZPOPMIN q; COPY q r; ZADD r 1 z; RENAME r q", "z d c"),
        ("ZPOPMIN q; ZPOPMIN q; ZADD q 4 d; MOVE q 1; SELECT 1; ZADD q 1 a; MOVE q 0", "a d c"),
        ("ZPOPMIN q; ZPOPMIN q; SWAPDB 0 1; SELECT 1; ZADD q 1 a; SWAPDB 0 1", "a c"),
        ("MULTI; ZPOPMIN q; ZADD q 0 y; ZPOPMAX q; ZADD q 20 x; EXEC", "y x"),
        ("EVAL \"redis.call('ZPOPMIN', 'q') redis.call('ZADD', 'q', -1, 'w') redis.call('ZPOPMAX', 'q')\" 1 q", "w"),
        ("ZADD q 5 e 6 f 7 g 8 h; ZREMRANGEBYSCORE q -inf 5; ZREMRANGEBYRANK q -1 -1; ZPOPMIN q; ZADD q 5 e", "e g"),
        ("ZREM q e g; ZADD q 1 a 2 b 3 c; ZPOPMIN q; ZUNIONSTORE q 1 q WEIGHTS -1; ZADD q -9 z", "z c b"),
        ("ZPOPMIN q; ZPOPMIN q; FLUSHDB; ZADD q 1 a 0 z", "z a"),
    ] {
        told(&server, requests);
        assert_eq!(queue(&server), members, "{requests}");
        assert_eq!(told(&server, "ZCARD q"), format!(":{}\r\n", members.split(' ').count()), "{requests}");
    }
    // What is not written has removed nothing.
    told(&server, "ZADD q 2 b 3 c; ZPOPMIN q");
    let most = std::mem::replace(&mut server.shared.max_written_bytes, 1000);
    for command in ["ZPOPMIN q", "ZPOPMAX q", "ZADD q 0 z", "ZREMRANGEBYSCORE q 1 2"] {
        let refused = told(&server, &format!("MULTI; {command}; ZRANGE q 0 0; SET k {}; EXEC", "v".repeat(2000)));
        assert!(refused.contains("QUEUED\r\n-ERR"), "{refused}");
        assert_eq!(queue(&server), "a b c", "{command}");
    }
    server.shared.max_written_bytes = most;
}

/// Counts removed members of a sorted set in the range that is remembered. `m5` is the member with the score 5.
fn removed_in_range(server: &LocalServer, key: &str, removed: impl Iterator<Item = i32>) -> usize {
    let mut keys = server.shared.transaction(0);
    let set = keys.collection(0, key.as_bytes(), header::Kind::SortedSet).unwrap().unwrap();
    let (from, to) = keys.fronts().narrowed((set.id, 0), layout::all_scored(0, set.id));
    let places = removed.map(|score| layout::scored(0, set.id, score.into(), format!("m{score}").as_bytes()));
    places.filter(|place| from <= *place && *place < to).count()
}

/// Counts what a pop passes: removed members in the range that is remembered. There is at most one at each end, however
/// many were removed.
#[test]
fn a_pop_passes_what_the_pops_before_it_have_removed_and_no_more() {
    let server = server(&Arc::default());
    let scores = -200..200_i32;
    let all: Vec<String> = scores.clone().map(|score| format!("{score} m{score}")).collect();
    told(&server, &format!("ZADD q {}", all.join(" ")));
    let passed = |of: &dyn Fn(i32) -> bool| removed_in_range(&server, "q", scores.clone().filter(|&score| of(score)));
    for count in 1..100 {
        told(&server, "ZPOPMIN q; ZPOPMAX q");
        let removed = passed(&|score| !(-200 + count..200 - count).contains(&score));
        assert!(removed <= 2, "{removed} after {count}");
    }
    // The queue of members that are due, without a pop.
    for score in -101..0 {
        told(&server, &format!("ZRANGE q -inf 0 BYSCORE LIMIT 0 1; ZREM q m{score}"));
        let removed = passed(&|other| !(score + 1..101).contains(&other));
        assert!(removed <= 2, "{removed} after {score}");
    }
    // Members that are removed together are passed together, once.
    told(&server, "ZREMRANGEBYSCORE q -inf 50; ZPOPMIN q");
    assert!(passed(&|score| !(52..101).contains(&score)) <= 2);
    assert_eq!(queue(&server).split(' ').count(), 49);
}

/// Such queues are never popped: what is due is read and then removed, or all that is too old is removed.
#[test]
fn a_queue_that_is_read_by_scores_passes_no_more_than_one_that_is_popped() {
    let server = server(&Arc::default());
    let all: Vec<String> = (0..100).map(|score| format!("{score} m{score}")).collect();
    for key in ["due", "old", "top"] {
        told(&server, &format!("ZADD {key} {}", all.join(" ")));
    }
    for first in 0..90 {
        let last = 99 - first;
        told(&server, &format!("ZRANGEBYSCORE due -inf {first} LIMIT 0 1; ZREM due m{first}"));
        told(&server, &format!("ZREMRANGEBYSCORE old -inf {first}"));
        told(&server, &format!("ZREVRANGEBYSCORE top +inf {last} LIMIT 0 1; ZREM top m{last}"));
        for (key, removed) in [("due", 0..first + 1), ("old", 0..first + 1), ("top", last..100)] {
            assert_eq!(removed_in_range(&server, key, removed), 1, "{key} after {first}");
        }
    }
    for (key, range) in [("due", "90 91"), ("old", "90 91"), ("top", "8 9")] {
        let count = told(&server, &format!("ZCOUNT {key} {range}; ZCOUNT {key} -inf +inf; ZCARD {key}"));
        assert_eq!(count, ":2\r\n:10\r\n:10\r\n", "{key}");
    }
}

/// The server remembers where pending entries begin: those of the group `g`, and those of its consumers `c` and `d`.
#[test]
fn entries_that_were_acknowledged_are_not_passed_again() {
    let mut server = server(&Arc::default());
    let fronts = |server: &LocalServer| {
        let mut keys = server.shared.transaction(0);
        let id = keys.stream(0, b"x").unwrap().unwrap().id;
        let stream = StreamKeys { space: 0, id };
        let mut stored = |key| keys.writes().get(&key).unwrap().unwrap();
        let group = Group::decode(&stored(stream.group(b"g"))).unwrap().number;
        let [c, d] = [b"c", b"d"].map(|name| Consumer::decode(&stored(stream.consumer(group, name))).unwrap().number);
        let all = (StreamId::LEAST, StreamId::MOST);
        let of_consumer = |number| (number, stream.all_own_pending(group, number, all.0, all.1));
        let parts = [(group, stream.all_pending(group, all.0, all.1)), of_consumer(c), of_consumer(d)];
        parts.map(|(number, all)| StreamId::of_key(&keys.fronts().narrowed((id, number), all).0).to_string())
    };
    let ids = |server: &LocalServer, key: &str| {
        let pending = told(server, &format!("XPENDING {key} g - + 99"));
        pending.lines().filter(|line| line.contains('-')).collect::<Vec<_>>().join(" ")
    };
    let adds: Vec<String> = (1..10).map(|ms| format!("XADD x {ms}-0 a b")).collect();
    told(&server, &format!("{}; XGROUP CREATE x g 0", adds.join("; ")));
    told(&server, "XREADGROUP GROUP g c COUNT 6 STREAMS x >; XREADGROUP GROUP g d STREAMS x >");
    told(&server, "XACK x g 1-0 2-0 3-0 7-0");
    assert_eq!(fronts(&server), ["0-1"; 3]);
    // What is not written has acknowledged nothing.
    let most = std::mem::replace(&mut server.shared.max_written_bytes, 1000);
    let refused = told(&server, &format!("MULTI; XACK x g 4-0; XPENDING x g; SET k {}; EXEC", "v".repeat(2000)));
    assert!(refused.contains("QUEUED\r\n-ERR"), "{refused}");
    server.shared.max_written_bytes = most;
    for (requests, begin, pending) in [
        ("PING", ["0-1"; 3], "4-0 5-0 6-0 8-0 9-0"),
        ("XREADGROUP GROUP g c STREAMS x 0", ["4-0", "4-0", "0-1"], "4-0 5-0 6-0 8-0 9-0"),
        ("XREADGROUP GROUP g c STREAMS x 5-0", ["4-0", "4-0", "0-1"], "4-0 5-0 6-0 8-0 9-0"),
        ("XPENDING x g - + 9 d", ["4-0", "4-0", "8-0"], "4-0 5-0 6-0 8-0 9-0"),
        // An entry has another consumer.
        ("XACK x g 4-0; XAUTOCLAIM x g d 0 0 COUNT 1", ["5-0", "4-0", "5-0"], "5-0 6-0 8-0 9-0"),
        // One is pending that was not.
        ("XCLAIM x g c 0 2-0 FORCE", ["2-0", "2-0", "5-0"], "2-0 5-0 6-0 8-0 9-0"),
        (
            "MULTI; XACK x g 2-0; XPENDING x g; XCLAIM x g c 0 1-0 FORCE; EXEC",
            ["1-0", "1-0", "5-0"],
            "1-0 5-0 6-0 8-0 9-0",
        ),
        // The group is set back.
        ("XACK x g 1-0 5-0; XPENDING x g; XREADGROUP GROUP g d STREAMS x 0", ["6-0", "1-0", "8-0"], "6-0 8-0 9-0"),
        ("XGROUP SETID x g 3-0; XREADGROUP GROUP g d COUNT 1 STREAMS x >", ["4-0", "1-0", "4-0"], "4-0 6-0 8-0 9-0"),
        // A copy has pending entries of its own.
        ("COPY x y; XACK x g 4-0; XPENDING x g", ["6-0", "1-0", "4-0"], "6-0 8-0 9-0"),
        ("XACK x g 6-0 8-0 9-0; XAUTOCLAIM x g c 0 0", ["6-0", "1-0", "4-0"], ""),
    ] {
        told(&server, requests);
        assert_eq!(fronts(&server), begin, "{requests}");
        assert_eq!(ids(&server, "x"), pending, "{requests}");
    }
    assert_eq!(ids(&server, "y"), "4-0 6-0 8-0 9-0");
    let again = told(&server, "XREADGROUP GROUP g d STREAMS y 0");
    assert_eq!(again.lines().filter(|line| line.ends_with("-0")).collect::<Vec<_>>(), ["4-0", "8-0", "9-0"]);
    assert_eq!(told(&server, "XGROUP DELCONSUMER y g d; XGROUP DELCONSUMER y g c"), ":3\r\n:1\r\n");
    assert_eq!(ids(&server, "y"), "");
}

#[test]
fn a_limit_of_none_chooses_none() {
    let server = server(&Arc::default());
    told(&server, "ZADD same 0 a 0 b; ZADD other 1 a 2 b");
    for key in ["same", "other"] {
        for request in [
            format!("ZRANGEBYLEX {key} - + LIMIT 0 0"),
            format!("ZRANGE {key} + - BYLEX REV LIMIT 1 0"),
            format!("ZRANGEBYSCORE {key} -inf +inf LIMIT 0 0"),
        ] {
            assert_eq!(told(&server, &request), "*0\r\n", "{request}");
        }
        assert_eq!(told(&server, &format!("ZRANGESTORE to {key} - + BYLEX LIMIT 0 0; EXISTS to")), ":0\r\n:0\r\n");
        assert_eq!(told(&server, &format!("ZRANGEBYLEX {key} - + LIMIT 0 1")), "*1\r\n$1\r\na\r\n");
    }
}

#[test]
fn a_script_gets_the_members_of_a_set_in_order() {
    let server = server(&Arc::default());
    told(&server, "SADD s h c b f a g e d");
    let shown = |members: &str| members.chars().map(|member| format!("$1\r\n{member}\r\n")).collect::<String>();
    for (options, members) in [("", "abcdefgh"), (", 'DESC'", "hgfedcba"), (", 'LIMIT', 1, 3", "bcd")] {
        let script = format!("EVAL \"return redis.call('SORT', KEYS[1], 'BY', 'nosort'{options})\" 1 s");
        assert_eq!(told(&server, &script), format!("*{}\r\n{}", members.len(), shown(members)), "{options}");
    }
}

#[test]
fn lists_change_in_the_middle() {
    let server = server(&Arc::default());
    let shown = |elements: &[&str]| {
        let bulks: String = elements.iter().map(|element| format!("$1\r\n{element}\r\n")).collect();
        format!("*{}\r\n{bulks}", elements.len())
    };
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    for (place, pivot) in letters.iter().enumerate() {
        for (side, after) in [("BEFORE", 0), ("AFTER", 1)] {
            let mut expected = letters.to_vec();
            expected.insert(place + after, "x");
            let request = format!("RPUSH l a b c d e f g; LINSERT l {side} {pivot} x; LRANGE l 0 -1; DEL l");
            assert_eq!(told(&server, &request), format!(":7\r\n:8\r\n{}:1\r\n", shown(&expected)), "{request}");
        }
    }
    for bits in 0..64_u32 {
        let elements: Vec<&str> = (0..6).map(|place| if bits >> place & 1 == 1 { "a" } else { "b" }).collect();
        for count in [-2_i32, -1, 0, 1, 2, 9] {
            let mut left = if count == 0 { 6 } else { count.unsigned_abs() };
            let mut stays = |element: &&str| {
                let goes = left > 0 && *element == "a";
                left -= u32::from(goes);
                !goes
            };
            let expected: Vec<&str> = if count < 0 {
                let kept: Vec<&str> = elements.iter().rev().copied().filter(|element| stays(element)).collect();
                kept.into_iter().rev().collect()
            } else {
                elements.iter().copied().filter(|element| stays(element)).collect()
            };
            let request = format!("RPUSH l {}; LREM l {count} a; LRANGE l 0 -1; LLEN l", elements.join(" "));
            let (removed, size) = (6 - expected.len(), expected.len());
            let replies = format!(":6\r\n:{removed}\r\n{}:{size}\r\n", shown(&expected));
            assert_eq!(told(&server, &request), replies, "{request}");
            told(&server, "DEL l");
        }
    }
    let left = server.records().scan(&[2], &[255], Direction::Forward).unwrap();
    assert!(!left.valid(), "nothing is left of the lists");
}

#[test]
fn statistics_of_functions_read_them_first() {
    let server = server(&Arc::default());
    let mut keys = server.shared.transaction(0);
    let library = b"#!lua name=one\nredis.register_function('one', function() return 1 end)";
    crate::keyspace::functions::keep(keys.writes(), "one", library);
    keys.commit().unwrap();
    // The transaction has everything locked.
    let sent = told(&server, "MULTI; FLUSHALL; FUNCTION STATS; EXEC");
    assert!(sent.contains("libraries_count\r\n:1\r\n"), "{sent}");
}

/// A shorter string is followed by zeros, wherever it is named.
#[test]
fn bits_of_strings_of_any_lengths_are_combined() {
    let server = server(&Arc::default());
    told(&server, "MSET a abc b ac c abcde");
    let bulk = |bytes: &str| format!("${}\r\n{bytes}\r\n", bytes.len());
    for (request, expected) in [
        ("AND d a b c", "ab\0\0\0"),
        ("AND d c a b", "ab\0\0\0"),
        ("OR d b none c", "accde"),
        ("XOR d a b c a b c a b", "\0\x01c\0\0"),
        ("AND d a none", "\0\0\0"),
        ("OR d a", "abc"),
    ] {
        let replies = format!(":{}\r\n{}", expected.len(), bulk(expected));
        assert_eq!(told(&server, &format!("BITOP {request}; GET d")), replies, "{request}");
    }
    assert_eq!(told(&server, "BITOP XOR d none none; EXISTS d"), ":0\r\n:0\r\n");
}

/// Scripts in transactions and libraries that are loaded end when they are busy.
#[test]
fn without_a_threshold_nothing_is_busy() {
    let server = server(&Arc::default());
    server.set("busy-reply-threshold", "0").unwrap();
    assert_eq!(told(&server, "MULTI; EVAL \"return 7\" 0; EXEC"), "+OK\r\n+QUEUED\r\n*1\r\n:7\r\n");
    let library = "#!lua name=one\nredis.register_function('f', function() return 7 end)";
    let load = format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{library}", library.len());
    assert_eq!(told(&server, &load), "$3\r\none\r\n");
    assert_eq!(told(&server, "FCALL f 0"), ":7\r\n");
}

/// Some clients keep cursors in signed words, and others in floating-point numbers.
#[test]
fn cursors_have_at_most_53_bits() {
    let server = server(&Arc::default());
    let many = |element: fn(u32) -> String| (0..300).map(element).collect::<String>();
    told(&server, &format!("MSET{}", many(|number| format!(" k{number} v"))));
    told(&server, &format!("HSET h{}", many(|number| format!(" k{number} v"))));
    told(&server, &format!("SADD s{}", many(|number| format!(" k{number}"))));
    told(&server, &format!("ZADD z{}", many(|number| format!(" 1 k{number}"))));
    for scan in ["SCAN", "HSCAN h", "SSCAN s", "ZSCAN z"] {
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let reply = told(&server, &format!("{scan} {cursor} COUNT 7"));
            let mut lines = reply.lines();
            cursor = lines.nth(2).unwrap().parse().unwrap();
            assert!(cursor < 1_u64 << 53, "{scan}: {cursor}");
            found.extend(lines.filter(|line| line.starts_with('k')).map(str::to_owned));
            if cursor == 0 {
                break;
            }
        }
        let distinct: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (300, 300), "{scan}");
    }
    // Clients may have cursors of other servers.
    assert_eq!(told(&server, "SCAN 18446744073709551615; SCAN -1"), "*2\r\n$1\r\n0\r\n*0\r\n".repeat(2));
}

/// The header of a damaged collection may count more elements than there are.
#[test]
fn who_asks_for_random_elements_that_are_not_there_is_told() {
    let server = server(&Arc::default());
    told(&server, "SADD s a b c d e f; HSET h a 1 b 2 c 3 d 4 e 5 f 6; ZADD z 1 a 2 b 3 c 4 d 5 e 6 f");
    let count_as = |key: &str, count: u64| {
        let place = server.shared.spaces.layout().header(0, key.as_bytes());
        let mut header = Header::decode(server.records().get(&place).unwrap().unwrap().into()).unwrap();
        let Content::Collection(_, collection) = &mut header.content else { panic!("{key} is no collection") };
        collection.a = count;
        server.records().put(&place, &header.encode()).unwrap();
    };
    let missing = "-ERR storage: a collection has not as many elements as it should\r\n";
    // How many elements there seem to be, and how many are asked for.
    for (seeming, asked) in [(100, "100"), (100, "50"), (100, "-1000"), (1_u64 << 40, "20")] {
        ["s", "h", "z"].iter().for_each(|key| count_as(key, seeming));
        for request in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z", "SPOP s"] {
            if request != "SPOP s" || !asked.starts_with('-') {
                assert_eq!(told(&server, &format!("{request} {asked}")), missing, "{request} {asked} of {seeming}");
            }
        }
    }
    ["s", "h", "z"].iter().for_each(|key| count_as(key, 6));
    assert_eq!(told(&server, "SPOP s 6").lines().next(), Some("*6"));
}

/// Lua collects no garbage when memory runs out, and here it never does so by itself.
#[test]
fn libraries_have_the_room_of_those_that_are_gone() {
    let server = server(&Arc::default());
    // A table of these takes a kilobyte.
    let zeros = "0,".repeat(60);
    let load = |name: &str, tables: u32, end: &str| {
        let holds = format!("local all = {{}} for place = 1, {tables} do all[place] = {{{zeros}}} end {end}");
        let function = format!("redis.register_function('{name}', function() return #all end)");
        let reply = told(&server, &format!("FUNCTION LOAD REPLACE \"#!lua name={name}\\n{holds} {function}\""));
        server.shared.scripts.machine().as_ref().unwrap().lua().gc_stop();
        reply
    };
    for _ in 0..4 {
        assert_eq!(load("one", 100_000, ""), "$3\r\none\r\n");
    }
    for _ in 0..4 {
        let refused = load("two", 100_000, "local nothing nothing()");
        assert!(refused.contains("attempt to call local 'nothing'"), "{refused}");
    }
    assert_eq!(told(&server, "FUNCTION FLUSH"), "+OK\r\n");
    assert_eq!(load("two", 135_000, ""), "$3\r\ntwo\r\n");
    // It is loaded again from the store.
    server.shared.scripts.doubt();
    assert_eq!(told(&server, "FCALL two 0"), ":135000\r\n");
}

/// Otherwise the client would take it for the reply to its next request.
#[test]
fn a_client_may_skip_the_reply_to_reset() {
    let server = server(&Arc::default());
    assert_eq!(told(&server, "CLIENT REPLY SKIP; RESET; PING; PING x"), "+PONG\r\n$1\r\nx\r\n");
    assert_eq!(told(&server, "CLIENT REPLY OFF; RESET; PING"), "+RESET\r\n+PONG\r\n");
}
