//! Clients that hold keys.

use super::*;

#[test]
fn the_table_of_keys_is_bounded() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let options = Options { background_threads: 0, ..Options::default() };
    let server = LocalServer::new(Store::embedded(64 << 20, options).unwrap(), clock, &[]).unwrap();
    told(&server, "CONFIG SET tracking-table-max-keys 2");
    let mut tracks = server.connect();
    let read = |tracks: &mut LocalConnection<'_>, request: &str| {
        String::from_utf8(tracks.send(format!("{request}\r\n").as_bytes())).unwrap()
    };
    let forgotten = |key: &str| format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len());
    tracks.send(b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
    assert_eq!(read(&mut tracks, "MGET a b"), "*2\r\n_\r\n_\r\n");
    // Each key has its turn, in the order of their names.
    for (key, pushed_out) in [("c", "a"), ("a", "b"), ("b", "c"), ("a", "")] {
        let more = if pushed_out.is_empty() { String::new() } else { forgotten(pushed_out) };
        assert_eq!(read(&mut tracks, &format!("GET {key}")), format!("_\r\n{more}"));
    }
    let info = told(&server, "INFO everything");
    for line in ["tracking_clients:1", "tracking_total_keys:2", "tracking_total_items:2", "tracking_total_prefixes:0"] {
        assert!(info.lines().any(|other| other == line), "{line} in {info}");
    }
    drop(tracks);
    let info = told(&server, "INFO everything");
    assert!(info.contains("tracking_clients:0") && info.contains("tracking_total_keys:0"), "{info}");
}

#[test]
fn a_transaction_that_begins_to_track_is_told_of_its_own_changes() {
    let server = server(&Arc::default());
    let mut tracks = server.connect();
    tracks.send(b"HELLO 3\r\nMULTI\r\nCLIENT TRACKING ON\r\nGET k\r\nSET k v\r\n");
    let sent = String::from_utf8(tracks.send(b"EXEC\r\n")).unwrap();
    assert_eq!(sent, "*3\r\n+OK\r\n_\r\n+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
}
