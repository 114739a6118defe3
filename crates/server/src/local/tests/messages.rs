//! What clients are sent without having asked for it.

use super::*;
use std::collections::BTreeMap;

/// Threads publish at the same time, and their messages go to both subscribers.
#[test]
fn all_subscribers_of_a_channel_get_messages_in_one_order() {
    let server = server(&Arc::default());
    let subscribers = [server.connect(), server.connect()].map(|mut connection| {
        connection.send(b"SUBSCRIBE news\r\n");
        connection
    });
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
