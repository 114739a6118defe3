//! Messages in both directions, and the node's operations on a client's memory.

use crate::fixture::eventually;
use crate::{Connection, Fixture, case_list};
use forebay_fabric::{AccessKey, Endpoint, EndpointId, Error, Incoming, Region, Rights};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

case_list![
    messages_arrive_whole,
    messages_come_from_their_endpoint,
    a_message_that_is_too_large_is_refused,
    the_node_answers_an_endpoint,
    an_immediate_wakes_and_the_bytes_are_there,
    a_write_without_immediate_arrives,
    the_node_reads_a_clients_memory,
    the_node_stays_within_its_grants,
    nothing_comes_in_time,
];

const LONG: Duration = Duration::from_secs(20);

/// Opens an endpoint and learns its number, for which the endpoint sends the node a message.
fn numbered_endpoint(fixture: &Fixture, connection: &Connection) -> (Endpoint, EndpointId) {
    let mut endpoint = connection.endpoint();
    let id = endpoint.post_message(b"which am I").unwrap();
    endpoint.wait_for(id).unwrap();
    let message = fixture.messages(1).remove(0);
    assert_eq!(message.peer, connection.peer.id());
    (endpoint, message.endpoint)
}

/// Memory of the client that the node may touch.
fn exposed(connection: &Connection, length: usize, rights: Rights) -> (Region, AccessKey) {
    let region = connection.link.allocate(length).unwrap();
    let key = connection.link.grant(&region, 0, length as u64, rights).unwrap();
    (region, key)
}

/// Runs `at_the_node` while the endpoint behaves like a client that waits for something.
fn while_polling<T>(endpoint: &mut Endpoint, at_the_node: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let node = scope.spawn(|| {
            let result = at_the_node();
            done.store(true, Ordering::Release);
            result
        });
        while !done.load(Ordering::Acquire) && !node.is_finished() {
            // The case examines arrivals, and a broken endpoint.
            let _ = endpoint.wait_receive(Duration::from_millis(1));
        }
        node.join().expect("the node's part")
    })
}

fn messages_arrive_whole(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut endpoint = connection.endpoint();
    let limit = endpoint.capabilities().max_message_bytes;
    let sizes = || (0..300usize).map(|i| i * 7).chain([limit - 1, limit]);
    let bytes_of = |size: usize| (0..size).map(|i| (i * 31 + size) as u8).collect::<Vec<u8>>();
    for size in sizes() {
        endpoint.post_message(&bytes_of(size)).unwrap();
    }
    while endpoint.outstanding() > 0 {
        endpoint.wait().unwrap().result.unwrap();
    }
    let mut messages = fixture.messages(sizes().count());
    if !endpoint.capabilities().ordered {
        messages.sort_by_key(|message| message.bytes.len());
    }
    for (size, message) in sizes().zip(&messages) {
        assert!(message.bytes == bytes_of(size), "expected {size} bytes, came {}", message.bytes.len());
    }
    assert_eq!(sizes().count(), messages.len());
}

fn messages_come_from_their_endpoint(fixture: &Fixture) {
    let connections = [fixture.connect(), fixture.connect()];
    let mut known = std::collections::BTreeMap::new();
    let mut endpoints: Vec<_> = connections.iter().flat_map(|one| (0..3).map(move |_| (one, one.endpoint()))).collect();
    for round in 0..20 {
        for (number, (connection, endpoint)) in endpoints.iter_mut().enumerate() {
            let id = endpoint.post_message(&[number as u8, round]).unwrap();
            endpoint.wait_for(id).unwrap();
            let message = fixture.messages(1).remove(0);
            assert_eq!(message.bytes, [number as u8, round]);
            assert_eq!(message.peer, connection.peer.id());
            let from = (message.peer, message.endpoint);
            assert_eq!(*known.entry(number).or_insert(from), from, "an endpoint changed its number");
        }
    }
    let distinct: std::collections::BTreeSet<_> = known.values().collect();
    assert_eq!(distinct.len(), 6, "endpoints share numbers");
}

fn a_message_that_is_too_large_is_refused(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut endpoint = connection.endpoint();
    let limit = endpoint.capabilities().max_message_bytes;
    let refused = endpoint.post_message(&vec![0; limit + 1]);
    assert_eq!(refused, Err(Error::TooLarge { length: limit as u64 + 1, limit: limit as u64 }));
    let id = endpoint.post_message(b"small").unwrap();
    endpoint.wait_for(id).expect("a refused post breaks nothing");
    assert_eq!(fixture.messages(1).remove(0).bytes, b"small");
}

fn the_node_answers_an_endpoint(fixture: &Fixture) {
    let connection = fixture.connect();
    let (mut first, first_id) = numbered_endpoint(fixture, &connection);
    let (mut second, second_id) = numbered_endpoint(fixture, &connection);
    for i in 0..100u8 {
        connection.peer.send(first_id, &vec![i; 1 + usize::from(i) * 3]).unwrap();
        connection.peer.send(second_id, &[i, 2]).unwrap();
    }
    for i in 0..100u8 {
        let expected = Incoming::Message(vec![i; 1 + usize::from(i) * 3]);
        assert_eq!(first.wait_receive(LONG).unwrap(), Some(expected));
        assert_eq!(second.wait_receive(LONG).unwrap(), Some(Incoming::Message(vec![i, 2])));
    }
    assert!(connection.peer.send(EndpointId(u32::MAX), b"nobody").is_err(), "a message to an endpoint that is not");
}

fn an_immediate_wakes_and_the_bytes_are_there(fixture: &Fixture) {
    let connection = fixture.connect();
    let (mut endpoint, id) = numbered_endpoint(fixture, &connection);
    let (region, key) = exposed(&connection, 64 << 10, Rights::WRITE);
    let peer = &connection.peer;
    std::thread::scope(|scope| {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            for round in 1..=50u32 {
                peer.write(id, key.at(8), &[round as u8; 5000], Some(round)).unwrap();
                gone.recv_timeout(LONG).expect("the client has looked");
            }
        });
        for round in 1..=50u32 {
            assert_eq!(endpoint.wait_receive(LONG).unwrap(), Some(Incoming::Immediate(round)));
            let mut bytes = [0; 5000];
            region.read(8, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == round as u8), "the immediate {round} came before its bytes");
            go.send(()).expect("the node goes on");
        }
    });
}

fn a_write_without_immediate_arrives(fixture: &Fixture) {
    let connection = fixture.connect();
    let (mut endpoint, id) = numbered_endpoint(fixture, &connection);
    let (region, key) = exposed(&connection, 4096, Rights::ALL);
    for value in 1..50u64 {
        let peer = &connection.peer;
        while_polling(&mut endpoint, || peer.write(id, key.at(64), &value.to_le_bytes(), None)).unwrap();
        eventually("the node's write", || {
            endpoint.wait_receive(Duration::ZERO).unwrap();
            region.load(64) == Ok(value)
        });
    }
}

fn the_node_reads_a_clients_memory(fixture: &Fixture) {
    let connection = fixture.connect();
    let (mut endpoint, id) = numbered_endpoint(fixture, &connection);
    let (region, key) = exposed(&connection, 1 << 20, Rights::READ);
    let bytes: Vec<u8> = (0..1 << 20).map(|i| (i / 3) as u8).collect();
    region.write(0, &bytes).unwrap();
    let peer = &connection.peer;
    for (offset, length) in [(0, 8), (8, 100), (4095, 5000), (0, 1 << 20), ((1 << 20) - 1, 1)] {
        let mut back = vec![0; length];
        while_polling(&mut endpoint, || peer.read(id, key.at(offset as u64), &mut back)).unwrap();
        assert!(back == bytes[offset..offset + length], "{length} bytes at {offset}");
    }
}

fn the_node_stays_within_its_grants(fixture: &Fixture) {
    let connection = fixture.connect();
    let (region, writable) = exposed(&connection, 4096, Rights::WRITE);
    let readable = connection.link.grant(&region, 0, 4096, Rights::READ).unwrap();
    let revoked = connection.link.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let revocation = connection.link.revoke(revoked).unwrap();
    eventually("a revocation", || revocation.is_complete());
    let forged = AccessKey::new(readable.index, readable.secret() ^ 1 << 100);
    let beyond = AccessKey::new(9999, readable.secret());
    let peer = &connection.peer;
    let denied = |error: &Error| *error == Error::AccessDenied;
    let outside = |error: &Error| matches!(error, Error::OutOfBounds { .. });
    type Check<'a> = &'a dyn Fn(&Error) -> bool;
    let reads: [(&str, AccessKey, u64, Check<'_>); 7] = [
        ("write-only", writable, 0, &denied),
        ("revoked", revoked, 0, &denied),
        ("forged", forged, 0, &denied),
        ("no such index", beyond, 0, &denied),
        ("behind the end", readable, 4096, &outside),
        ("across the end", readable, 4089, &outside),
        ("overflow", readable, u64::MAX - 3, &outside),
    ];
    for (what, key, offset, expected) in reads {
        let (mut endpoint, id) = numbered_endpoint(fixture, &connection);
        let error = while_polling(&mut endpoint, || peer.read(id, key.at(offset), &mut [0; 8])).unwrap_err();
        assert!(expected(&error), "{what}: {error}");
    }
    let writes = [
        (readable, 0),
        (revoked, 0),
        (forged, 0),
        (beyond, 0),
        (writable, 4096),
        (writable, 4089),
        (writable, u64::MAX),
    ];
    for (key, offset) in writes {
        let (mut endpoint, id) = numbered_endpoint(fixture, &connection);
        // A back end may learn only later that the client refused.
        let _ = while_polling(&mut endpoint, || peer.write(id, key.at(offset), &[0xee; 8], None));
        let _ = endpoint.wait_receive(Duration::from_millis(2));
    }
    let mut bytes = [0; 4096];
    region.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a refused write left bytes");
}

fn nothing_comes_in_time(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut endpoint = connection.endpoint();
    assert_eq!(endpoint.receive(), Ok(None));
    assert_eq!(endpoint.wait_receive(Duration::from_millis(5)), Ok(None));
    assert_eq!(endpoint.wait_receive(Duration::ZERO), Ok(None));
}
