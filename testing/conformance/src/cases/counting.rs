//! The counts of a fixed sequence of calls are the same on every back end.

use crate::fixture::procedure;
use crate::{Fixture, case_list};
use forebay_fabric::rpc::{Client, Style};
use forebay_fabric::{AccessKey, Counts, EndpointOptions, Rights, Traffic};
use std::time::Duration;

case_list![single_operations, batches, calls, traffic_is_kept_apart, failures_count_what_was_posted];

const LONG: Duration = Duration::from_secs(20);

fn single_operations(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    endpoint.write(key.at(0), &[1; 100]).unwrap();
    endpoint.read(key.at(0), &mut [0; 1000]).unwrap();
    endpoint.fetch_add(key.at(8), 1).unwrap();
    endpoint.compare_swap(key.at(8), 1, 2).unwrap();
    let id = endpoint.post_message(&[0; 33]).unwrap();
    endpoint.wait_for(id).unwrap();
    let expected = Counts {
        round_trips: 5,
        doorbells: 5,
        reads: 1,
        writes: 1,
        atomics: 2,
        messages: 1,
        bytes_read: 1000 + 16,
        bytes_written: 100 + 16 + 33,
    };
    assert_eq!(endpoint.counts().read_all(), expected);
    drop(endpoint);
    assert_eq!(connection.link.counts(Traffic::Foreground), expected);
    assert_eq!(connection.link.counts(Traffic::Background), Counts::default());
}

fn batches(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(64 << 10, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let reads = |endpoint: &mut forebay_fabric::Endpoint, count: u64| {
        let mut last = None;
        for i in 0..count {
            let slot = endpoint.slot(64).unwrap();
            last = Some(endpoint.post_read(key.at(64 * i), slot).unwrap());
        }
        last.unwrap()
    };
    // One doorbell, every completion waited for: one round trip.
    reads(&mut endpoint, 16);
    for _ in 0..16 {
        endpoint.wait().unwrap();
    }
    assert_eq!(endpoint.counts().read_all().round_trips, 1);
    // Two doorbells, only the later one waited for: one round trip.
    reads(&mut endpoint, 4);
    endpoint.flush();
    let last = reads(&mut endpoint, 4);
    endpoint.wait_for(last).unwrap();
    while endpoint.outstanding() > 0 {
        endpoint.wait().unwrap();
    }
    let expected = Counts { round_trips: 2, doorbells: 3, reads: 24, bytes_read: 24 * 64, ..Counts::default() };
    assert_eq!(endpoint.counts().read_all(), expected);
    // Completions that came without a wait cost none.
    reads(&mut endpoint, 4);
    endpoint.flush();
    crate::fixture::eventually("completions", || {
        endpoint.poll();
        endpoint.outstanding() == 0
    });
    let expected = Counts { doorbells: 4, reads: 28, bytes_read: 28 * 64, ..expected };
    assert_eq!(endpoint.counts().read_all(), expected);
}

fn calls(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut client = Client::new(connection.link.clone(), EndpointOptions::default(), 4000).unwrap();
    for style in [Style::Poll, Style::Sleep] {
        client.call(procedure::REVERSE, &[1; 100], style, LONG).unwrap();
    }
    let expected = Counts {
        round_trips: 2,
        doorbells: 2,
        messages: 2,
        bytes_read: 2 * (24 + 100),
        bytes_written: 2 * (52 + 100),
        ..Counts::default()
    };
    assert_eq!(connection.link.counts(Traffic::Foreground), expected);
    // The node pulls arguments by reference: this side sends only the request.
    client.call(procedure::REVERSE, &[1; 3000], Style::Sleep, LONG).unwrap();
    let expected = Counts {
        round_trips: 3,
        doorbells: 3,
        messages: 3,
        bytes_read: expected.bytes_read + 24 + 3000,
        bytes_written: expected.bytes_written + 52 + 36,
        ..expected
    };
    assert_eq!(connection.link.counts(Traffic::Foreground), expected);
}

fn traffic_is_kept_apart(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut background = connection.link.endpoint(EndpointOptions::background()).unwrap();
    background.write(key.at(0), &[1; 8]).unwrap();
    connection.endpoint().read(key.at(0), &mut [0; 8]).unwrap();
    let foreground = connection.link.counts(Traffic::Foreground);
    let background = connection.link.counts(Traffic::Background);
    assert_eq!((foreground.reads, foreground.writes, foreground.round_trips), (1, 0, 1));
    assert_eq!((background.reads, background.writes, background.round_trips), (0, 1, 1));
}

fn failures_count_what_was_posted(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let forged = AccessKey::new(key.index, !key.secret());
    for i in 0..4 {
        let slot = endpoint.slot(64).unwrap();
        endpoint.post_write(if i == 1 { forged.at(0) } else { key.at(0) }, slot).unwrap();
    }
    for _ in 0..4 {
        let _ = endpoint.wait().unwrap();
    }
    // Refused at the post: not counted.
    assert!(endpoint.post_message(b"x").is_err());
    let expected = Counts { round_trips: 1, doorbells: 1, writes: 4, bytes_written: 256, ..Counts::default() };
    assert_eq!(endpoint.counts().read_all(), expected);
}
