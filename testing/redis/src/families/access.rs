//! Users, and what they may do.
//!
//! The text of a user's commands differs, so it is not compared. What the user may do is compared.

pub(super) const TABLE: &str = "
    = 40 ACL SETUSER (u1|u2|u3) (+@read|-@read|+@write|-@write|+@string|-@string|+@fast|-@slow|+@all|-@all|+@admin|-@admin|+@keyspace|-@dangerous)
    = 40 ACL SETUSER (u1|u2|u3) (+get|-get|+set|-set|+config|-config|+config|-client|+client|+select|-select|+acl|-acl|+mget|+rename|-copy)
    = 30 ACL SETUSER (u1|u2|u3) (~*|resetkeys|~s1*|%R~s2|%W~s3|%RW~s4|~s[0-2]|allkeys|%R~s*)
    = 15 ACL SETUSER (u1|u2|u3) (&*|resetchannels|RESETCHANNELS|&ch*|&s?|allchannels)
    = 15 ACL SETUSER (u1|u2|u3) (on|off|ON|Off|nopass|resetpass|>p1|>p2|<p1|<p2|reset|clearselectors|sanitize-payload|skip-sanitize-payload)
    = 10 ACL SETUSER (u1|u2|u3) (nosuch|+nosuch|+@nosuch|%X~a|%~a|#abc|!abc|+get|x|-nosuch|~|&|+|-|>)
    = 6  ACL SETUSER (u1|u2|u3) on nopass resetkeys ~s* -@all +@read
    = 3  ACL DELUSER (u1|u2|u3|u4|default)
    = 30 ACL DRYRUN (u1|u2|u3) (GET|STRLEN|INCR|GETDEL|APPEND|TTL|TYPE|PERSIST|EXISTS) {k}
    = 30 ACL DRYRUN (u1|u2|u3) SET {k} {v} (GET|)
    = 20 ACL DRYRUN (u1|u2|u3) (MGET|DEL|SUNIONSTORE|BITOP AND|COPY|RENAME|LMOVE|SMOVE|ZUNIONSTORE s1 1) {k} {k}
    = 10 ACL DRYRUN (u1|u2|u3) (PFCOUNT|BITFIELD|PFMERGE {k}) {k} (GET u8 0|SET u8 0 1|GET u8|)
    = 20 ACL DRYRUN (u1|u2|u3) (CONFIG GET x|CONFIG SET x y|CLIENT ID|ACL WHOAMI|SELECT 1|PING|FLUSHALL|AUTH a b|KEYS x)
    = 20 ACL DRYRUN (u1|u2|u3) (PUBLISH|SPUBLISH|SUBSCRIBE|PSUBSCRIBE|SSUBSCRIBE) (ch1|ch*|s1|s?|x) (y|)
    = 2  ACL DRYRUN (u1|u9) (NOSUCH|GET|PUBLISH|CONFIG) (x|)
    = 4  ACL USERS
    = 2  ACL WHOAMI
    = 2  ACL GETUSER (u4|u5)
    = 2  ACL GENPASS (0|5000|x|-1)
    ? 2  ACL GENPASS (5|256|)
    = 1  ACL CAT nosuch
    = 1  ACL CAT
    = 1  (ACL LOAD|ACL SAVE|ACL LOG RESET|ACL LOG x)
    = 2  AUTH nosuch nothing
    = 2  CLIENT KILL USER (nosuch|u1)
";
