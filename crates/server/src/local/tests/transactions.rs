//! What transactions depend on.

use super::*;

/// A client that watches an expired key watches a key that does not exist. The sweep that removes its remains changes
/// nothing.
#[test]
fn the_removal_of_an_expired_key_is_no_change_for_who_watched_it_later() {
    const EXEC: &[u8] = b"MULTI\r\nPING\r\nEXEC\r\n";
    let clock = Arc::new(ManualClock::new());
    let server = server(&clock);
    let (mut before, mut after, mut other) = (server.connect(), server.connect(), server.connect());
    told(&server, "SET k 1 PX 10");
    assert_eq!(before.send(b"WATCH k\r\n"), b"+OK\r\n");
    clock.advance(Duration::from_millis(20));
    assert_eq!(after.send(b"WATCH k\r\n"), b"+OK\r\n");
    assert_eq!(other.send(b"WATCH k\r\n"), b"+OK\r\n");
    assert!(told(&server, "INFO keyspace").contains("expires=1"));
    server.sweep().unwrap();
    assert!(!told(&server, "INFO keyspace").contains("expires=1"));
    assert!(before.send(EXEC).ends_with(b"+QUEUED\r\n*-1\r\n"));
    assert!(after.send(EXEC).ends_with(b"*1\r\n+PONG\r\n"));
    told(&server, "SET k 2");
    assert!(other.send(EXEC).ends_with(b"+QUEUED\r\n*-1\r\n"));
}

/// A command that finds the remains changes something only when it puts something in their place.
#[test]
fn who_removes_an_expired_key_changes_nothing_for_who_watched_it_later() {
    const EXEC: &[u8] = b"MULTI\r\nPING\r\nEXEC\r\n";
    let clock = Arc::new(ManualClock::new());
    let server = server(&clock);
    for (request, is_change) in [
        ("DEL k", false),
        ("UNLINK other k", false),
        ("MULTI; DEL k; GET k; EXEC", false),
        ("SET k 2", true),
        ("RPUSH k x", true),
        ("DEL k; SET k 2", true),
        ("MULTI; DEL k; SET k 2; EXEC", true),
        ("MULTI; SET k 2; DEL k; EXEC", true),
    ] {
        let (mut before, mut after) = (server.connect(), server.connect());
        told(&server, "SET k 1 PX 10");
        assert_eq!(before.send(b"WATCH k\r\n"), b"+OK\r\n");
        clock.advance(Duration::from_millis(20));
        assert_eq!(after.send(b"WATCH k\r\n"), b"+OK\r\n");
        told(&server, request);
        assert!(before.send(EXEC).ends_with(b"+QUEUED\r\n*-1\r\n"), "{request}");
        let end: &[u8] = if is_change { b"+QUEUED\r\n*-1\r\n" } else { b"+QUEUED\r\n*1\r\n+PONG\r\n" };
        assert!(after.send(EXEC).ends_with(end), "{request}");
        told(&server, "DEL k");
    }
}

/// As in Redis, the number of replies is the first one that is sent or not.
#[test]
fn a_transaction_may_change_which_replies_are_wanted() {
    let server = server(&Arc::default());
    for (requests, replies) in [
        ("MULTI; PING; CLIENT REPLY OFF; PING; EXEC; PING", "+OK +QUEUED +QUEUED +QUEUED *3 +PONG"),
        ("CLIENT REPLY OFF; MULTI; PING; CLIENT REPLY ON; PING; EXEC; ECHO x", "+OK +PONG $1 x"),
        ("CLIENT REPLY OFF; MULTI; PING; EXEC; CLIENT REPLY ON", "+OK"),
        ("CLIENT REPLY OFF; WATCH k; INCR k; MULTI; PING; EXEC; CLIENT REPLY ON", "+OK"),
        ("MULTI; CLIENT REPLY SKIP; PING; EXEC; PING; ECHO x", "+OK +QUEUED +QUEUED *2 +PONG $1 x"),
    ] {
        let replies: String = replies.split_terminator(' ').map(|reply| format!("{reply}\r\n")).collect();
        assert_eq!(told(&server, requests), replies, "{requests}");
    }
}

/// Otherwise the client would wait for the rest of the reply.
#[test]
fn a_refused_command_whose_error_has_no_room_fails_the_transaction() {
    let mut server = server(&Arc::default());
    server.shared.max_reply_bytes = 150;
    assert_eq!(told(&server, "ACL SETUSER u on nopass ~* &* +@all"), "+OK\r\n");
    let mut connection = server.connect();
    assert_eq!(connection.send(b"AUTH u x\r\nMULTI\r\nDEL a\r\n"), b"+OK\r\n+OK\r\n+QUEUED\r\n");
    assert_eq!(told(&server, "ACL SETUSER u -del"), "+OK\r\n");
    let sent = connection.send(b"EXEC\r\nPING\r\n");
    assert_eq!(sent, b"-ERR too much is replied at once: at most 512 MiB\r\n+PONG\r\n", "{}", sent.escape_ascii());
}

/// The client gets no confirmation, and believes that nothing has changed.
#[test]
fn a_transaction_that_fails_as_a_whole_changes_neither_database_nor_subscriptions() {
    let mut server = server(&Arc::default());
    server.shared.max_reply_bytes = 10_000;
    let long = "x".repeat(11_000);
    assert_eq!(told(&server, &format!("SET where 0; SELECT 1; SET where 1; SET long {long}")), "+OK\r\n".repeat(4));
    let queued = format!("+OK\r\n{}-ERR too much is replied at once: at most 512 MiB\r\n", "+QUEUED\r\n".repeat(3));
    let mut connection = server.connect();
    let sent = connection.send(b"MULTI\r\nSUBSCRIBE c\r\nSELECT 1\r\nGET long\r\nEXEC\r\nPING\r\nGET where\r\n");
    assert_eq!(String::from_utf8(sent).unwrap(), format!("{queued}+PONG\r\n$1\r\n0\r\n"));
    assert!(connection.dialogue.session.client.line(0).contains(" db=0 sub=0 psub=0 "));
    // A subscription that would have ended continues.
    let channels = &server.shared.channels;
    connection.send(b"HELLO 3\r\nSUBSCRIBE d\r\n");
    let sent = connection.send(b"MULTI\r\nUNSUBSCRIBE d\r\nSELECT 1\r\nGET long\r\nEXEC\r\n");
    assert_eq!(String::from_utf8(sent).unwrap(), queued);
    let counts = [&b"c"[..], b"d"].map(|name| channels.subscribers(Topic::Channel, name));
    assert_eq!((counts, connection.dialogue.session.subscriptions.count(Topic::Channel)), ([0, 1], 1));
}
