//! What Redis does in rare cases.

use super::*;

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
