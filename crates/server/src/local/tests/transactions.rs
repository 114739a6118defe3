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
