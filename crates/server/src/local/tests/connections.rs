//! Clients that do not take what they are sent.

use super::*;
use crate::execute::MAX_REPLY_BYTES;
use crate::network::connection::{Connection, Turn};
use crate::state::clients::MAX_UNASKED_BYTES;
use crate::state::mailbox::{Letter, Reason};
use crate::stream::Stream;
use bytes::Bytes;
use rustix::net::sockopt;
use std::io::Read;
use std::net::{TcpListener, TcpStream};

/// What each of the sockets holds, in bytes. The system may double it.
const SOCKET_BYTES: usize = 128 << 10;
/// More than the sockets hold.
const BACKLOG_BYTES: usize = 4 << 20;

/// A connection and its client.
fn connect(server: &LocalServer) -> (Connection, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    sockopt::set_socket_recv_buffer_size(&client, SOCKET_BYTES).unwrap();
    sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES).unwrap();
    socket.set_nonblocking(true).unwrap();
    let stream = Stream::new(Arc::new(mio::net::TcpStream::from_std(socket)), None).unwrap();
    let known = server.shared.clients.add(Arc::clone(&server.mailbox), address(), address(), 0);
    let session = Session::new(known, server.shared.users.anonymous());
    (Connection::new(stream, session, 0, None), client)
}

/// A connection that has subscribed to `news`, and its client.
fn subscriber(server: &LocalServer) -> (Connection, TcpStream) {
    let (mut connection, client) = connect(server);
    connection.dialogue.session.subscriptions.channels.insert(Bytes::from_static(b"news"));
    (connection, client)
}

/// A message of this many bytes to a subscriber.
fn letter(bytes: usize) -> Letter {
    let reason = Reason::Channel(Bytes::from_static(b"news"));
    Letter::new(vec![b'x'; bytes].into(), reason, &Arc::default(), usize::MAX).unwrap()
}

/// The client takes what it is sent, but never everything.
#[test]
fn what_a_slow_client_has_taken_is_not_held() {
    let server = server(&Arc::default());
    let (mut connection, mut client) = subscriber(&server);
    let executor = server.executor();
    let (mut taken, mut room) = (0, [0; 16 << 10]);
    assert!(connection.push(&letter(BACKLOG_BYTES)));
    while taken < 10 * BACKLOG_BYTES {
        assert_eq!(connection.end_turn(&executor), Turn::Waits);
        let held = connection.dialogue.out.len();
        assert!((1..=2 * BACKLOG_BYTES).contains(&held), "{held} bytes after {taken}");
        let read = client.read(&mut room).unwrap();
        taken += read;
        assert!(connection.push(&letter(read)));
        connection.is_ready(false, true, false);
    }
}

#[test]
fn a_reply_that_was_not_read_yet_does_not_count_as_unasked() {
    let server = server(&Arc::default());
    let (mut connection, _client) = subscriber(&server);
    connection.dialogue.out.raw(&vec![b'x'; MAX_UNASKED_BYTES + 1]);
    assert_eq!(connection.end_turn(&server.executor()), Turn::Waits);
    let taken = (0..64).take_while(|_| connection.push(&letter(1 << 20))).count();
    assert_eq!(taken, MAX_UNASKED_BYTES >> 20);
}

/// Otherwise the thread would try again and again until the client reads.
#[test]
fn a_request_waits_while_the_client_does_not_read_replies() {
    let server = server(&Arc::default());
    let (mut connection, mut client) = connect(&server);
    let executor = server.executor();
    let turn = |connection: &mut Connection| {
        _ = connection.turn(&executor, &mut Vec::new());
        connection.end_turn(&executor)
    };
    // The sockets take less than half of the reply, and then less is unsent than may be.
    let reply = vec![b'x'; MAX_REPLY_BYTES + 1024];
    connection.dialogue.out.raw(&reply);
    connection.dialogue.requests.push(b"PING\r\n");
    assert_eq!([turn(&mut connection), turn(&mut connection)], [Turn::Waits; 2]);
    let (mut taken, mut room) = (0, [0; 16 << 10]);
    while taken < reply.len() + b"+PONG\r\n".len() {
        taken += client.read(&mut room).unwrap();
        connection.is_ready(false, true, false);
        turn(&mut connection);
    }
}

/// Values that were read wait for a slow client as they are, and each is freed when it is sent.
#[test]
fn long_values_that_a_slow_client_has_taken_are_not_held() {
    let server = server(&Arc::default());
    let value = vec![b'v'; 5 << 18];
    let bulk = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    for key in 0..6 {
        let set = [format!("*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n").as_bytes(), &bulk].concat();
        assert_eq!(server.connect().send(&set), b"+OK\r\n");
    }
    let (mut connection, mut client) = connect(&server);
    let executor = server.executor();
    let expected = [&b"*6\r\n"[..], &bulk.repeat(6), b"+PONG\r\n"].concat();
    connection.dialogue.requests.push(b"MGET 0 1 2 3 4 5\r\nPING\r\n");
    let (mut taken, mut room) = (Vec::new(), [0; 64 << 10]);
    while taken.len() < expected.len() {
        connection.is_ready(false, true, false);
        _ = connection.turn(&executor, &mut Vec::new());
        assert_eq!(connection.end_turn(&executor), Turn::Waits);
        let held = connection.dialogue.session.client.described().reply_bytes;
        assert!(held <= expected.len() - taken.len() + value.len() + 4096, "{held} after {}", taken.len());
        assert!(held > 0 || taken.len() + (2 << 20) > expected.len(), "{held} after {}", taken.len());
        let read = client.read(&mut room).unwrap();
        taken.extend_from_slice(&room[..read]);
    }
    assert!(taken == expected);
    _ = connection.turn(&executor, &mut Vec::new());
    assert_eq!(connection.end_turn(&executor), Turn::Waits);
    assert!(connection.dialogue.session.client.line(0).contains(" multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 "));
}

/// Requests that wait in a transaction are on the account of their client.
#[test]
fn a_transaction_that_has_begun_is_held() {
    let server = server(&Arc::default());
    let mut client = server.connect();
    let value = "v".repeat(10_000);
    client.send(format!("MULTI\r\nSET key {value}\r\nSET key {value}\r\n").as_bytes());
    let held = |client: &LocalConnection<'_>| client.dialogue.session.client.described().held_bytes();
    assert!((20_000..21_000).contains(&held(&client)), "{}", held(&client));
    assert_eq!(server.shared.clients.held_bytes(), held(&client));
    client.send(b"DISCARD\r\n");
    assert_eq!(held(&client), 0);
}
