//! The server itself, its clients, and channels.

pub(super) const TABLE: &str = "
    = 4  CLIENT SETNAME (a|b-c|)
    = 4  CLIENT GETNAME
    = 1  CLIENT GETREDIR
    = 2  CLIENT NO-EVICT (on|off|x|)
    = 2  CLIENT UNBLOCK (99999999|x|) (TIMEOUT|ERROR|x|)
    = 2  CLIENT PAUSE (0|1|x|-1) (WRITE|ALL|x|)
    = 2  CLIENT UNPAUSE
    ? 2  CLIENT LIST (TYPE x|TYPE replica|TYPE master|ID x|ID 99999999|x)
    ? 1  CLIENT INFO
    = 3  CLIENT KILL (ID 99999999|ID x|TYPE x|1.2.3.4:5|ADDR 1.2.3.4:5|LADDR 1.2.3.4:5|SKIPME x|USER nosuch|x y)
    = 2  CLIENT (REPLY ON|REPLY x|NOSUCH)
    ? 3  HELLO (2|3|4|x|2 SETNAME a|3 SETNAME b|2 AUTH a b|2 x|)
    = 2  RESET
    ? 2  OBJECT IDLETIME ({k}|nothing)
    = 2  WAIT (0|-1|x) 0
    ~ 1  PUBSUB CHANNELS ({p}|)
    = 1  PUBSUB (NUMPAT|NUMSUB a b|NUMSUB|SHARDNUMSUB a|SHARDCHANNELS|x)
    ~ 2  COMMAND LIST FILTERBY (PATTERN zr*|PATTERN x*|ACLCAT geo|ACLCAT nosuch|MODULE x|x y)
    = 1  COMMAND (COUNT x|INFO nosuch|DOCS nosuch|LIST x)
    = 3  COMMAND GETKEYS (XGROUP CREATE a b c|MEMORY USAGE k|OBJECT ENCODING k|EVAL x 2 a b c|ZUNIONSTORE d 2 a b)
    = 3  COMMAND GETKEYS (LMPOP 2 a b LEFT|BLMPOP 0 2 a b LEFT|SORT a BY b STORE c|FCALL f 1 k|BITOP AND a b c|LCS a b)
    = 3  COMMAND GETKEYS (EVAL x 1|EVAL x 3 a b|EVAL x -1 a|EVAL x a b|EVAL x 0|EVALSHA x 9999999999999999999 a|FCALL f 2 a)
    = 2  COMMAND GETKEYS (SPUBLISH a b|SSUBSCRIBE a|SUBSCRIBE a|CONFIG NOSUCH|CONFIG NOSUCH a|CONFIG GET a)
    kinds 3 COMMAND INFO (get|set|xread|zunionstore|config|object|ping|eval|nosuch) (config|get|nosuch|)
    = 1  CONFIG RESETSTAT (x|)
    % 2  CONFIG GET (databases|maxmemory*policy|maxmemory-policy databases|nosuch|)
    = 2  CONFIG SET (timeout x|timeout 0|timeout 0 timeout 0|nosuch 0|databases 5|slowlog-max-len x|a|)
    = 2  LATENCY (HISTORY x|LATEST|RESET|RESET x|GRAPH x|HISTOGRAM nosuch|x)
    = 2  MEMORY (PURGE|MALLOC-STATS x|USAGE nothing|USAGE {k} SAMPLES|USAGE {k} SAMPLES x|USAGE {k} SAMPLES -1|x)
    ? 1  MEMORY USAGE {k} (SAMPLES {n}|)
    = 1  ROLE (x|)
    = 2  SLOWLOG (GET x|GET -2|GET 0|RESET|x)
    ? 2  (SLOWLOG LEN|LASTSAVE|LASTSAVE x|TIME|TIME x|INFO|INFO server|INFO nosuch|INFO everything|INFO server memory)
    = 2  SWAPDB (0 16|x 0|0 x|{db} {db})
    any 1 (ACL|CLIENT|COMMAND|CONFIG|FUNCTION|LATENCY|MEMORY|OBJECT|PUBSUB|SCRIPT|SLOWLOG|XGROUP|XINFO) HELP
    any 1 (COMMAND INFO get|COMMAND DOCS get|MEMORY STATS|MEMORY DOCTOR|LATENCY DOCTOR|LATENCY HISTOGRAM get|ACL LIST)
    = 6  SET {k} {v}
    = 4  GET {k}
";

/// One channel at a time, so that each command has one reply. No message is sent to a channel with subscribers.
pub(super) const CHANNELS: &str = "
    = 10 SUBSCRIBE (c1|c2|c3)
    = 10 UNSUBSCRIBE (c1|c2|c3)
    = 6  PSUBSCRIBE (c*|d?)
    = 6  PUNSUBSCRIBE (c*|d?)
    = 6  SSUBSCRIBE (t1|t2)
    = 6  SUNSUBSCRIBE (t1|t2)
    ~ 6  PUBSUB (CHANNELS|CHANNELS c*|CHANNELS x|SHARDCHANNELS|SHARDCHANNELS *1)
    = 6  PUBSUB (NUMPAT|NUMSUB c1 c2 t1|NUMSUB|SHARDNUMSUB t1 c1|SHARDNUMSUB)
    = 4  PUBLISH e1 {v}
    = 2  SPUBLISH u1 {v}
    = 4  PING (x|)
    = 4  RESET
    ? 2  HELLO (2|3)
    = 4  SET {k} {v}
    = 4  GET {k}
";
