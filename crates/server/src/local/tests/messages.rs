//! What clients are sent without having asked for it.

use super::*;
use std::collections::BTreeMap;

/// Two connections that have subscribed to the channel `news`.
fn two_subscribers(server: &LocalServer) -> [LocalConnection<'_>; 2] {
    [server.connect(), server.connect()].map(|mut connection| {
        connection.send(b"SUBSCRIBE news\r\n");
        connection
    })
}

/// Threads publish at the same time, and their messages go to both subscribers.
#[test]
fn all_subscribers_of_a_channel_get_messages_in_one_order() {
    let server = server(&Arc::default());
    let subscribers = two_subscribers(&server);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let channels = &server.shared.channels;
            let publish = move |number: u32| {
                let message = format!("{thread} {number}");
                assert_eq!(channels.publish(Topic::Channel, b"news", message.as_bytes()), 2);
            };
            scope.spawn(move || (0..20_000).for_each(publish));
        }
    });
    let mut received: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for message in server.mailbox.take() {
        if let Message::Send { client, letter } = message {
            received.entry(client).or_default().extend_from_slice(letter.bytes());
        }
    }
    let received: Vec<Vec<u8>> = received.into_values().collect();
    assert_eq!(received.len(), subscribers.len());
    assert!(received[0] == received[1]);
}

/// Otherwise a client with RESP2 would take it for the reply to its next request. Messages come before the
/// confirmation.
#[test]
fn what_was_sent_before_a_subscription_ended_does_not_come_after_its_end() {
    let server = server(&Arc::default());
    let Shared { channels, monitors, tracking, clients, .. } = &server.shared;
    let publish: [&dyn Fn(); 4] = [
        &|| _ = channels.publish(Topic::Channel, b"news", b"x"),
        &|| _ = channels.publish(Topic::Shard, b"news", b"x"),
        &|| monitors.show(0, 0, "lua", &[b"PING"]),
        &|| _ = tracking.changed(None, &[&bytes::Bytes::from_static(b"k")], clients),
    ];
    let [message, shard, command, invalidation] = publish;
    for (begin, sent, end, replies) in [
        (
            "SUBSCRIBE news",
            message,
            "UNSUBSCRIBE news",
            "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n",
        ),
        (
            "PSUBSCRIBE n*",
            message,
            "PUNSUBSCRIBE",
            "*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\nx\r\n\
             *3\r\n$12\r\npunsubscribe\r\n$2\r\nn*\r\n:0\r\n",
        ),
        (
            "SSUBSCRIBE news",
            shard,
            "SUNSUBSCRIBE news",
            "*3\r\n$8\r\nsmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n*3\r\n$12\r\nsunsubscribe\r\n$4\r\nnews\r\n:0\r\n",
        ),
        ("SUBSCRIBE news", message, "RESET", "+RESET\r\n"),
        ("MONITOR", command, "RESET", "+RESET\r\n"),
        ("HELLO 3\r\nCLIENT TRACKING ON\r\nGET k", invalidation, "RESET", "+RESET\r\n"),
    ] {
        let mut connection = server.connect();
        connection.send(format!("{begin}\r\n").as_bytes());
        sent();
        // Its mail comes after the replies to what it has sent.
        let received = connection.send(format!("{end}\r\nPING\r\n").as_bytes());
        assert_eq!(String::from_utf8(received).unwrap(), format!("{replies}+PONG\r\n"), "{begin}; {end}");
    }
    // Another subscription continues, and its messages keep their place.
    let mut connection = server.connect();
    connection.send(b"SUBSCRIBE news\r\nPSUBSCRIBE n*\r\n");
    message();
    let received = String::from_utf8(connection.send(b"UNSUBSCRIBE\r\n")).unwrap();
    let exact = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n";
    let matching = "*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\nx\r\n";
    let confirmation = "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    assert_eq!(received, format!("{exact}{matching}{confirmation}"));
    message();
    // A subscriber with RESP2 gets an array.
    let received = String::from_utf8(connection.send(b"PING\r\n")).unwrap();
    assert_eq!(received, format!("*2\r\n$4\r\npong\r\n$0\r\n\r\n{matching}"));
}

#[test]
fn the_line_of_a_client_says_what_it_has_subscribed_to() {
    let server = server(&Arc::default());
    let mut connection = server.connect();
    connection.send(b"SUBSCRIBE a b\r\nPSUBSCRIBE a* b* c*\r\nSSUBSCRIBE s\r\n");
    let line = connection.dialogue.session.client.line(0);
    assert!(line.contains(" flags=P ") && line.contains(" sub=2 psub=3 ssub=1 "), "{line}");
}

#[test]
fn no_transaction_subscribes_to_channels_of_shards() {
    let (queued, refused) = ("+QUEUED\r\n", "-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client\r\n");
    let replies = told(&server(&Arc::default()), "MULTI; SSUBSCRIBE s; SUBSCRIBE c; EXEC");
    assert_eq!(replies, format!("+OK\r\n{queued}{queued}*2\r\n{refused}*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"));
}

#[test]
fn nothing_comes_after_the_reply_that_ends_the_connection() {
    let server = server(&Arc::default());
    let mut connection = server.connect();
    connection.send(b"SUBSCRIBE news\r\n");
    server.shared.channels.publish(Topic::Channel, b"news", b"x");
    assert_eq!(connection.send(b"QUIT\r\n"), b"+OK\r\n");
}

#[test]
fn what_waits_for_a_subscriber_is_bounded_and_held_once() {
    let server = server(&Arc::default());
    let subscribers = two_subscribers(&server);
    server.shared.channels.publish(Topic::Channel, b"news", b"first");
    let letters = server.mailbox.take();
    let place = |message: &Message| match message {
        Message::Send { letter, .. } => letter.bytes().as_ptr(),
        _ => panic!("no message"),
    };
    let places: Vec<_> = letters.iter().map(place).collect();
    assert!(places.len() == 2 && places[0] == places[1]);
    drop(letters);
    let message = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        server.shared.channels.publish(Topic::Channel, b"news", &message);
    }
    let (letters, others): (Vec<_>, Vec<_>) =
        server.mailbox.take().into_iter().partition(|message| matches!(message, Message::Send { .. }));
    assert_eq!(letters.len(), 2 * 31);
    assert!(matches!(others[..], [Message::Kill(_), Message::Kill(_)]));
    // Letters that were taken out do not count any more.
    drop(letters);
    server.shared.channels.publish(Topic::Channel, b"news", &message);
    assert_eq!(server.mailbox.take().len(), 2);
    drop(subscribers);
}
