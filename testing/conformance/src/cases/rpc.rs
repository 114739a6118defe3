//! RPC in both styles.

use crate::fixture::procedure;
use crate::{Connection, Fixture, case_list};
use forebay_base::ErrorKind;
use forebay_fabric::rpc::{Client, MAX_ARGUMENT_BYTES, MAX_INLINE_BYTES, Style};
use forebay_fabric::{EndpointOptions, Error};
use std::time::Duration;

case_list![
    both_styles_and_both_ways_of_passing_arguments,
    replies_of_every_size,
    errors_come_back,
    many_clients_at_once,
    a_slow_procedure,
    an_answer_that_never_comes,
];

const LONG: Duration = Duration::from_secs(20);
const STYLES: [Style; 2] = [Style::Poll, Style::Sleep];

fn client(connection: &Connection, reply_bytes: usize) -> Client {
    Client::new(connection.link.clone(), EndpointOptions::default(), reply_bytes).unwrap()
}

fn both_styles_and_both_ways_of_passing_arguments(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut client = client(&connection, 1 << 20);
    for length in [0, 1, 100, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 5000, 300_000, 1 << 20, 7] {
        let arguments: Vec<u8> = (0..length).map(|i| (i * 13) as u8).collect();
        let expected: Vec<u8> = arguments.iter().rev().copied().collect();
        for style in STYLES {
            let reply = client.call(procedure::REVERSE, &arguments, style, LONG).unwrap();
            assert!(reply == expected, "{length} bytes of arguments, {style:?}");
        }
    }
}

fn replies_of_every_size(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut client = client(&connection, 8 << 20);
    for length in [0u32, 1, 40, 4096, 70_000, 1 << 20, 8 << 20] {
        for style in STYLES {
            let reply = client.call(procedure::PRODUCE, &length.to_le_bytes(), style, LONG).unwrap();
            assert_eq!(reply.len(), length as usize);
            assert!(reply.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8), "{length} bytes, {style:?}");
        }
    }
}

fn errors_come_back(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut small = client(&connection, 4000);
    for style in STYLES {
        let error = small.call(procedure::FAIL, b"x", style, LONG).unwrap_err();
        assert_eq!(error, Error::Remote { kind: ErrorKind::Full, message: "no more".into() });
        let error = small.call(procedure::PRODUCE, &100_000u32.to_le_bytes(), style, LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(small.call(procedure::REVERSE, b"ab", style, LONG), Ok(b"ba".to_vec()));
    }
    let refused = small.call(procedure::REVERSE, &vec![0; MAX_ARGUMENT_BYTES + 1], Style::Poll, LONG);
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert_eq!(small.call(procedure::REVERSE, b"ab", Style::Poll, LONG), Ok(b"ba".to_vec()));
}

fn many_clients_at_once(fixture: &Fixture) {
    let connections = [fixture.connect(), fixture.connect()];
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let connection = &connections[thread % 2];
            scope.spawn(move || {
                let mut client = client(connection, 64 << 10);
                for i in 0..60usize {
                    let arguments = vec![(thread * 60 + i) as u8; i * 40];
                    let style = STYLES[(i + thread) % 2];
                    let reply = client.call(procedure::REVERSE, &arguments, style, LONG).unwrap();
                    assert!(reply == arguments, "call {i} of client {thread} got another's reply");
                }
            });
        }
    });
}

fn a_slow_procedure(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut client = client(&connection, 4000);
    for style in STYLES {
        assert_eq!(client.call(procedure::SLOW, b"slow", style, LONG), Ok(b"slow".to_vec()));
    }
}

fn an_answer_that_never_comes(fixture: &Fixture) {
    let connection = fixture.connect();
    let mut working = client(&connection, 4000);
    for style in STYLES {
        let mut waiting = client(&connection, 4000);
        let limit = Duration::from_millis(50);
        assert_eq!(waiting.call(procedure::IGNORE, b"", style, limit), Err(Error::TimedOut(limit)));
        let again = waiting.call(procedure::REVERSE, b"", style, limit);
        assert!(matches!(again, Err(Error::Broken(_))), "{again:?}");
        assert_eq!(working.call(procedure::REVERSE, b"ab", style, LONG), Ok(b"ba".to_vec()));
    }
}
