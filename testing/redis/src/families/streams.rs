//! Streams. Ids are small, so that they coincide, and streams mostly have fewer than a hundred entries.

use crate::client::Value;

pub(super) const TABLE: &str = "
    = 24 XADD {k} {aid} {mv*}
    = 3  XADD {k} (NOMKSTREAM|MAXLEN {n}|MAXLEN = {n}|MINID {sid}|MINID = {sid}|MAXLEN ~ 1000|MAXLEN ~ 1000 LIMIT 5|MINID ~ 0-1) {aid} {m} {v}
    = 1  XADD nothing NOMKSTREAM * a b
    = 1  XADD {k} (MAXLEN|MAXLEN 5 MINID 3|MAXLEN -1|MAXLEN 5 LIMIT 2|LIMIT 2|MAXLEN ~ 5 LIMIT -1|MINID x|) {aid} {m} {v}
    = 1  XADD {k} (0-0|18446744073709551615-18446744073709551615|x|-|+|5-x|0-*|007-1) {m} {v}
    = 4  XLEN {k}
    = 6  (XRANGE|XREVRANGE) {k} {rid} {rid} (COUNT {n}|COUNT {i}|)
    = 4  XRANGE {k} - + (COUNT {n}|COUNT x|x|)
    = 2  XREVRANGE {k} + - (COUNT {n}|)
    = 5  XDEL {k} {sid} (-|{sid}|)
    = 4  XDEL {k} {hid} {hid} {hid}
    = 3  XTRIM {k} (MAXLEN {n}|MINID {sid}|MAXLEN = {n}|MAXLEN ~ 0|MAXLEN ~ 1000|MINID ~ 99|MAXLEN ~ 0 LIMIT 0)
    = 1  XTRIM {k} (MAXLEN|x 5|MAXLEN 5 x|MAXLEN 5 LIMIT 3|LIMIT 3|MAXLEN -1)
    = 4  XREAD (COUNT {n}|COUNT -1|) STREAMS {k} {k} {sid} ({sid}|$)
    = 1  XREAD (BLOCK 1|BLOCK -1|BLOCK x|GROUP g c|NOACK|) STREAMS {k} ({sid}|$|>|)
    = 8  XGROUP CREATE {k} {gr} ({sid}|$|0) (MKSTREAM|ENTRIESREAD {n}|MKSTREAM ENTRIESREAD {n}|ENTRIESREAD -1|ENTRIESREAD -2|x|)
    = 3  XGROUP SETID {k} {gr} ({sid}|$|0|-|+) (ENTRIESREAD {n}|)
    = 2  XGROUP CREATECONSUMER {k} {gr} {co}
    = 1  XGROUP DELCONSUMER {k} {gr} {co}
    = 1  XGROUP (NOSUCH|CREATE {k}|DESTROY {k} {gr} x|SETID {k} {gr}|CREATE {k} {gr} $ MKSTREAM MKSTREAM MKSTREAM)
    = 18 XREADGROUP GROUP {gr} {co} (COUNT {n}|COUNT 3|) (NOACK|BLOCK 1|||) STREAMS {k} >
    = 4  XREADGROUP GROUP {gr} {co} (COUNT {n}|) (NOACK|) STREAMS {k} {k} (>|{sid}|0) (>|0)
    = 4  XREADGROUP GROUP {gr} {co} (COUNT {n}|) STREAMS {k} (0|{sid})
    = 1  XREADGROUP (GROUP {gr} {co}|GROUP {gr}|COUNT 1) STREAMS {k} ($|x|18446744073709551615-18446744073709551615|)
    = 6  XACK {k} {gr} {sid} {hid} {hid}
    times 5 XPENDING {k} {gr}
    times 5 XPENDING {k} {gr} (IDLE 0|IDLE 500000|IDLE x|) {rid} {rid} {n} ({co}|)
    times 3 XPENDING {k} {gr} - + 100 ({co}|)
    = 1  XPENDING {k} {gr} (-|- +|IDLE 0 - +|- + x|x + 5)
    = 8  XCLAIM {k} {gr} {co} (0|500000|1000000000) {sid} {hid} {hid} (IDLE 1000000|IDLE 0|TIME 1|TIME 0|RETRYCOUNT {n}|FORCE|JUSTID|FORCE JUSTID|LASTID {sid}|)
    = 1  XCLAIM {k} {gr} {co} (x|-1|0) {sid} (IDLE x|TIME x|RETRYCOUNT x|RETRYCOUNT -1|LASTID x|x|IDLE)
    = 5  XAUTOCLAIM {k} {gr} {co} (0|500000) (0|-|{rid}) (COUNT {n}|COUNT 3|JUSTID|COUNT 2 JUSTID|)
    = 1  XAUTOCLAIM {k} {gr} {co} (x|-1) {sid} (COUNT 0|COUNT x|x)
    times 2 XINFO STREAM {k} (FULL|FULL COUNT {n}|FULL COUNT x|FULL x|x|)
    times 3 XINFO GROUPS {k}
    times 2 XINFO CONSUMERS {k} {gr}
    = 1  XINFO (NOSUCH|STREAM)
    = 1  COMMAND GETKEYS (XREAD STREAMS a b 0 0|XREADGROUP GROUP streams c COUNT 1 STREAMS a >)
    = 1  OBJECT ENCODING {k}
";

/// Commands that change a stream, and do not break transactions of Redis.
pub(super) const QUIET: &str = "
    = 2  XSETID {k} {sid} (ENTRIESADDED {n}|MAXDELETEDID {sid}|ENTRIESADDED 100 MAXDELETEDID {sid}|ENTRIESADDED -1|x|)
    = 1  XGROUP DESTROY {k} {gr}
";

/// Replaces the sizes of Redis's trees, and times, by what both servers would show.
pub(crate) fn without_times(value: &Value) -> Value {
    let Value::Many(sign, values) = value else { return value.clone() };
    let mut plain: Vec<Value> = values.iter().map(without_times).collect();
    // A pending entry: id, consumer, time or duration, deliveries; or without the consumer.
    if let [Value::Bulk(_), Value::Bulk(_), Value::Integer(time), Value::Integer(_)]
    | [Value::Bulk(_), Value::Integer(time), Value::Integer(_)] = &mut plain[..]
    {
        *time = rough(*time);
    }
    const FIELDS: [&[u8]; 4] = [b"idle", b"seen-time", b"radix-tree-keys", b"radix-tree-nodes"];
    for at in 1..plain.len() {
        let is_field = matches!(&plain[at - 1], Value::Bulk(name) if FIELDS.contains(&&name[..]));
        if let (true, Value::Integer(time)) = (is_field, &mut plain[at]) {
            *time = 0;
        }
    }
    Value::Many(*sign, plain)
}

/// A time, rounded to some minutes.
const fn rough(time_ms: i64) -> i64 {
    (time_ms + 300_000) / 600_000
}
