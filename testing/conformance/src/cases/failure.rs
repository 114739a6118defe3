//! What breaks, what fails with it, and what continues.

use crate::fixture::{eventually, procedure};
use crate::{Connection, Fixture, case_list};
use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::rpc::{Client, Style};
use forebay_fabric::{AccessKey, Endpoint, EndpointId, EndpointOptions, Error, Outcome, RevocationMode, Rights};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

case_list![
    a_failure_breaks_its_endpoint_and_no_other,
    a_node_dies_under_reads_and_writes,
    a_node_dies_while_endpoints_sleep,
    a_node_dies_during_calls,
    a_dead_node_is_noticed_by_its_links,
    a_node_comes_back_as_another,
    a_client_goes,
    a_client_closes_its_link,
    a_node_closes_a_link,
];

const LONG: Duration = Duration::from_secs(60);
/// How soon everybody must know that a node is gone.
const BOUND_NANOS: u64 = 10_000_000_000;

fn is_lost(error: &Error) -> bool {
    let error = if let Error::Broken(cause) = error { cause } else { error };
    matches!(error, Error::PeerLost { .. })
}

fn post_word(endpoint: &mut Endpoint, key: AccessKey, at: u64, value: u64) {
    let mut slot = endpoint.slot(8).unwrap();
    slot.copy_from_slice(&value.to_le_bytes());
    endpoint.post_write(key.at(at), slot).unwrap();
}

fn a_failure_breaks_its_endpoint_and_no_other(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let mut other = connection.endpoint();
    let forged = AccessKey::new(key.index, !key.secret());
    for bad_at in [0u64, 1, 7, 15] {
        let mut endpoint = connection.endpoint();
        let first = 1 + 100 * bad_at;
        for i in 0..16 {
            post_word(&mut endpoint, if i == bad_at { forged } else { key }, 8 * i, first + i);
        }
        let mut results = Vec::new();
        for _ in 0..16 {
            let completion = endpoint.wait().unwrap();
            results.push((completion.id, completion.result));
        }
        results.sort_by_key(|(id, _)| *id);
        for (i, (_, result)) in (0..).zip(&results) {
            match result {
                Ok(Outcome::Done(Some(_))) => {
                    assert!(i != bad_at, "a forged key was honoured");
                    assert!(i < bad_at || !endpoint.capabilities().ordered, "operation {i} went past a failure");
                    assert_eq!(region.load(8 * i), Ok(first + i));
                }
                Err(Error::AccessDenied) => assert_eq!(i, bad_at),
                Err(Error::Flushed) => {
                    assert!(i != bad_at);
                    assert!(i > bad_at || !endpoint.capabilities().ordered, "operation {i} is flushed by a later one");
                    assert!(!endpoint.capabilities().ordered || region.load(8 * i) != Ok(first + i));
                }
                unexpected => panic!("operation {i}: {unexpected:?}"),
            }
        }
        assert_eq!(endpoint.outstanding(), 0);
        assert!(endpoint.failure().is_some());
        let slot = endpoint.slot(8).unwrap();
        assert!(matches!(endpoint.post_read(key.at(0), slot), Err(Error::Broken(_))));
        assert!(matches!(endpoint.post_message(b"x"), Err(Error::Broken(_))));
        assert!(matches!(endpoint.fetch_add(key.at(0), 1), Err(Error::Broken(_))));
        other.write(key.at(0), &[0; 8]).expect("another endpoint of the link");
        connection.endpoint().write(key.at(0), &[0; 8]).expect("a new endpoint");
        region.zero(0, 4096).unwrap();
    }
    assert!(connection.link.is_alive() && connection.peer.is_alive());
}

fn a_node_dies_under_reads_and_writes(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(64 << 10, Rights::ALL);
    let done = [const { AtomicU64::new(0) }; 4];
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4u64)
            .map(|thread| {
                let (done, clock, mut endpoint) = (&done[thread as usize], &clock, connection.endpoint());
                scope.spawn(move || {
                    let cause = loop {
                        let depth = 1 + thread * 5;
                        for i in 0..depth {
                            let slot = endpoint.slot(512 << thread).unwrap();
                            let at = key.at((thread * 16 + i) % 64 * 512);
                            let posted =
                                if i % 2 == 0 { endpoint.post_read(at, slot) } else { endpoint.post_write(at, slot) };
                            posted.expect("no failure was seen yet");
                        }
                        let failed = (0..depth).filter_map(|_| endpoint.wait().unwrap().result.err()).next();
                        match failed {
                            None => done.fetch_add(1, Ordering::Relaxed),
                            Some(cause) => break cause,
                        };
                    };
                    while endpoint.outstanding() > 0 {
                        let result = endpoint.wait().unwrap().result;
                        assert!(result.is_err(), "an operation succeeded behind a failed one");
                    }
                    (cause, clock.now())
                })
            })
            .collect();
        eventually("some operations", || done.iter().all(|done| done.load(Ordering::Relaxed) > 20));
        let start = clock.now();
        fixture.kill();
        for client in clients {
            let (cause, when) = client.join().expect("a client");
            assert!(is_lost(&cause), "{cause}");
            assert!(when.saturating_sub(start) < BOUND_NANOS, "noticed too late");
        }
    });
}

fn a_node_dies_while_endpoints_sleep(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut endpoints: Vec<Endpoint> = (0..3).map(|_| connection.endpoint()).collect();
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        let sleeping: Vec<_> =
            endpoints.iter_mut().map(|endpoint| scope.spawn(move || endpoint.wait_receive(LONG))).collect();
        clock.sleep(Duration::from_millis(50));
        let start = clock.now();
        fixture.kill();
        for one in sleeping {
            let result = one.join().expect("a client");
            assert!(matches!(&result, Err(cause) if is_lost(cause)), "{result:?}");
        }
        assert!(clock.now() - start < BOUND_NANOS, "noticed too late");
    });
}

fn a_node_dies_during_calls(fixture: &Fixture) {
    let connection = fixture.connect();
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        let calls: Vec<_> = [Style::Poll, Style::Sleep]
            .into_iter()
            .map(|style| {
                let mut client = Client::new(connection.link.clone(), EndpointOptions::default(), 4000).unwrap();
                scope.spawn(move || client.call(procedure::IGNORE, b"", style, LONG))
            })
            .collect();
        clock.sleep(Duration::from_millis(50));
        let start = clock.now();
        fixture.kill();
        for call in calls {
            let error = call.join().expect("a caller").expect_err("nobody answers");
            assert!(is_lost(&error), "{error}");
        }
        assert!(clock.now() - start < BOUND_NANOS, "noticed too late");
    });
}

fn a_dead_node_is_noticed_by_its_links(fixture: &Fixture) {
    let connections = [fixture.connect(), fixture.connect()];
    assert!(connections.iter().all(|connection| connection.link.is_alive()));
    fixture.kill();
    for connection in &connections {
        eventually("the node's end", || !connection.link.is_alive());
        assert!(connection.link.endpoint(EndpointOptions::default()).is_err());
    }
    let error = fixture.try_connect().expect_err("a link to a dead node");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

fn a_node_comes_back_as_another(fixture: &Fixture) {
    let (old, _region, old_key) = fixture.granted(4096, Rights::ALL);
    let mut old_endpoint = old.endpoint();
    old_endpoint.write(old_key.at(0), &[7; 8]).unwrap();
    let before = fixture.identity();
    fixture.restart();
    let after = fixture.identity();
    assert_eq!(before.node, after.node);
    assert_ne!(before.incarnation, after.incarnation);
    let (new, region, new_key) = fixture.granted(4096, Rights::ALL);
    assert_eq!((old.link.node(), new.link.node()), (before, after));
    if fixture.capabilities().revocation == RevocationMode::Cooperative {
        // Until the client notices, it writes to memory that has died with its node.
        eventually("the end of the old link", || !old.link.is_alive());
    }
    let error = old_endpoint.write(old_key.at(0), &[7; 8]).unwrap_err();
    assert!(is_lost(&error), "{error}");
    let error = new.endpoint().write(old_key.at(0), &[7; 8]).unwrap_err();
    assert_eq!(error, Error::AccessDenied, "a key of an earlier life");
    let mut bytes = [1; 4096];
    new.endpoint().read(new_key.at(0), &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "memory of an earlier life");
    assert_eq!(region.load(0), Ok(0));
}

/// An endpoint's number at the node.
fn number_of(fixture: &Fixture, endpoint: &mut Endpoint) -> EndpointId {
    let id = endpoint.post_message(b"which am I").unwrap();
    endpoint.wait_for(id).unwrap();
    fixture.messages(1).remove(0).endpoint
}

/// Checks that nothing on this link works any more, as seen from the node.
fn assert_gone(fixture: &Fixture, connection: &Connection, endpoint: EndpointId, exposed: AccessKey) {
    let cause = fixture.wait_left(connection.peer.id());
    assert!(is_lost(&cause), "{cause}");
    let peer = &connection.peer;
    assert!(!peer.is_alive());
    for result in [
        peer.send(endpoint, b"x"),
        peer.read(endpoint, exposed.at(0), &mut [0; 8]),
        peer.write(endpoint, exposed.at(0), &[0; 8], Some(1)),
    ] {
        let error = result.expect_err("a call to a client that has gone");
        assert!(is_lost(&error), "{error}");
    }
}

fn a_client_goes(fixture: &Fixture) {
    let staying = fixture.granted(4096, Rights::ALL);
    let Connection { link, peer } = fixture.connect();
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    let number = number_of(fixture, &mut endpoint);
    let own = link.allocate(4096).unwrap();
    let exposed = link.grant(&own, 0, 4096, Rights::ALL).unwrap();
    drop(endpoint);
    drop(link);
    let gone = Connection { link: staying.0.link.clone(), peer };
    assert_gone(fixture, &gone, number, exposed);
    staying.0.endpoint().write(staying.2.at(0), &[1]).expect("another link");
}

fn a_client_closes_its_link(fixture: &Fixture) {
    let staying = fixture.granted(4096, Rights::ALL);
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let number = number_of(fixture, &mut endpoint);
    let own = connection.link.allocate(4096).unwrap();
    let exposed = connection.link.grant(&own, 0, 4096, Rights::ALL).unwrap();
    connection.link.close();
    assert!(!connection.link.is_alive());
    let error = endpoint.write(key.at(0), &[1]).unwrap_err();
    assert!(is_lost(&error), "{error}");
    assert!(connection.link.endpoint(EndpointOptions::default()).is_err());
    assert_gone(fixture, &connection, number, exposed);
    connection.link.close();
    staying.0.endpoint().write(staying.2.at(0), &[1]).expect("another link");
}

fn a_node_closes_a_link(fixture: &Fixture) {
    let staying = fixture.granted(4096, Rights::ALL);
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let mut sleeping = connection.endpoint();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| sleeping.wait_receive(LONG));
        SystemClock::new().sleep(Duration::from_millis(20));
        connection.peer.close();
        let result = sleeper.join().expect("a client");
        assert!(matches!(&result, Err(cause) if is_lost(cause)), "{result:?}");
    });
    // Where memory is shared, the other side may learn of it a moment later.
    let mut error = None;
    eventually("the end of the endpoint", || {
        error = endpoint.write(key.at(0), &[1]).err();
        error.is_some()
    });
    assert!(error.as_ref().is_some_and(is_lost), "{error:?}");
    eventually("the end of the link", || !connection.link.is_alive());
    assert!(is_lost(&fixture.wait_left(connection.peer.id())));
    staying.0.endpoint().write(staying.2.at(0), &[1]).expect("another link");
    let _again = fixture.connect();
}
