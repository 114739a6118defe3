//! The subscriptions of clients.

use crate::protocol::reply::{Protocol, Reply};
use crate::state::clients::Client;
use crate::state::mailbox::Reason;
use crate::text::pattern;
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The subject of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A channel of a shard: another name space.
    Shard,
}

impl Topic {
    /// Returns the first word of a message to a subscriber.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }

    /// Returns why a subscriber of this name is sent messages.
    fn reason(self, name: &Bytes) -> Reason {
        match self {
            Self::Channel => Reason::Channel(name.clone()),
            Self::Pattern => Reason::Pattern(name.clone()),
            Self::Shard => Reason::Shard(name.clone()),
        }
    }
}

type Subscribers = BTreeMap<Bytes, BTreeMap<u64, Arc<Client>>>;

/// The subscriptions of clients.
#[derive(Debug, Default)]
pub struct Channels {
    channels: Mutex<Subscribers>,
    patterns: Mutex<Subscribers>,
    shards: Mutex<Subscribers>,
}

impl Channels {
    const fn of(&self, topic: Topic) -> &Mutex<Subscribers> {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shards,
        }
    }

    /// Adds a subscriber.
    pub fn subscribe(&self, topic: Topic, name: &Bytes, client: &Arc<Client>) {
        lock(self.of(topic)).entry(name.clone()).or_default().insert(client.id, Arc::clone(client));
    }

    /// Removes a subscriber.
    pub fn unsubscribe(&self, topic: Topic, name: &Bytes, client: u64) {
        let mut subscribers = lock(self.of(topic));
        if let Some(of_name) = subscribers.get_mut(name) {
            of_name.remove(&client);
            if of_name.is_empty() {
                subscribers.remove(name);
            }
        }
    }

    /// Sends a message to all subscribers of a channel, and to those of patterns that match it. Returns how many. All
    /// subscribers of a channel get its messages in one order, because nobody else publishes meanwhile.
    pub fn publish(&self, topic: Topic, channel: &[u8], message: &[u8]) -> usize {
        let subscribers = lock(self.of(topic));
        let exact = subscribers.get_key_value(channel);
        let mut sent = exact.map_or(0, |(name, clients)| send(topic, name, clients, &[channel, message]));
        if topic == Topic::Channel {
            let patterns = lock(&self.patterns);
            for (name, clients) in patterns.iter().filter(|(name, _)| pattern::matches(name, channel)) {
                sent += send(Topic::Pattern, name, clients, &[name, channel, message]);
            }
        }
        sent
    }

    /// What a client has subscribed to.
    pub fn of_client(&self, client: u64) -> Vec<(Topic, Bytes)> {
        let topics = [Topic::Channel, Topic::Pattern, Topic::Shard];
        let of_topic = |topic: Topic| {
            let subscribers = lock(self.of(topic));
            let own = subscribers.iter().filter(|(_, clients)| clients.contains_key(&client));
            own.map(|(name, _)| (topic, name.clone())).collect::<Vec<_>>()
        };
        topics.into_iter().flat_map(of_topic).collect()
    }

    /// The names that have subscribers.
    pub fn names(&self, topic: Topic) -> Vec<Bytes> {
        lock(self.of(topic)).keys().cloned().collect()
    }

    /// Number of subscribers of a name.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        lock(self.of(topic)).get(name).map_or(0, BTreeMap::len)
    }
}

/// Sends the same message to all of these subscribers of a name, which share its bytes. Returns how many there are.
fn send(topic: Topic, name: &Bytes, clients: &BTreeMap<u64, Arc<Client>>, parts: &[&[u8]]) -> usize {
    let [mut two, mut three] = [Protocol::Two, Protocol::Three].map(|protocol| (protocol, None));
    for client in clients.values() {
        let (protocol, message) = if client.described().protocol == 3 { &mut three } else { &mut two };
        let message: &mut Bytes = message.get_or_insert_with(|| {
            let mut reply = Reply::new(*protocol);
            reply.push(1 + parts.len());
            reply.bulk(topic.message());
            parts.iter().for_each(|part| reply.bulk(part));
            reply.take().into()
        });
        client.send(message.clone(), topic.reason(name));
    }
    clients.len()
}
