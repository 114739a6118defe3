//! Publishing and subscribing.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{FAST, LOADING, MAY_REPLICATE, NOSCRIPT, PUBSUB, STALE};
use crate::commands::command::{Command, Context, Family, unknown_form};
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::channels::Topic;
use crate::text::pattern;
use bytes::Bytes;

const FAMILY: Family = Family::PubSub;
const PUBLISH: u32 = PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE;
const SUBSCRIBE: u32 = PUBSUB | NOSCRIPT | LOADING | STALE;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(FAMILY, "psubscribe", -2, SUBSCRIBE, psubscribe)
        .doc("2.0.0", "Subscribes to channels that match patterns."),
    Command::alone(FAMILY, "publish", 3, PUBLISH, publish).doc("2.0.0", "Sends a message to a channel."),
    Command::alone(FAMILY, "pubsub", -2, 0, help).doc("2.8.0", "A container for Pub/Sub commands.").subcommands(&[
        Command::alone(FAMILY, "pubsub|channels", -2, PUBSUB | LOADING | STALE, channels)
            .doc("2.8.0", "Lists the channels that have subscribers."),
        Command::alone(FAMILY, "pubsub|help", 2, LOADING | STALE, help).doc("6.2.0", "Returns help."),
        Command::alone(FAMILY, "pubsub|numpat", 2, PUBSUB | LOADING | STALE, numpat)
            .doc("2.8.0", "Counts the patterns."),
        Command::alone(FAMILY, "pubsub|numsub", -2, PUBSUB | LOADING | STALE, numsub)
            .doc("2.8.0", "Counts the subscribers of channels."),
        Command::alone(FAMILY, "pubsub|shardchannels", -2, PUBSUB | LOADING | STALE, shard_channels)
            .doc("7.0.0", "Lists the shard channels that have subscribers."),
        Command::alone(FAMILY, "pubsub|shardnumsub", -2, PUBSUB | LOADING | STALE, shard_numsub)
            .doc("7.0.0", "Counts the subscribers of shard channels."),
    ]),
    Command::alone(FAMILY, "punsubscribe", -1, SUBSCRIBE, punsubscribe).doc("2.0.0", "Ends subscriptions to patterns."),
    Command::alone(FAMILY, "spublish", 3, PUBLISH, spublish)
        .keys(1, 1, 1)
        .doc("7.0.0", "Sends a message to a shard channel."),
    Command::alone(FAMILY, "ssubscribe", -2, SUBSCRIBE, ssubscribe)
        .keys(1, -1, 1)
        .doc("7.0.0", "Subscribes to shard channels."),
    Command::alone(FAMILY, "subscribe", -2, SUBSCRIBE, subscribe).doc("2.0.0", "Subscribes to channels."),
    Command::alone(FAMILY, "sunsubscribe", -1, SUBSCRIBE, sunsubscribe)
        .keys(1, -1, 1)
        .doc("7.0.0", "Ends subscriptions to shard channels."),
    Command::alone(FAMILY, "unsubscribe", -1, SUBSCRIBE, unsubscribe).doc("2.0.0", "Ends subscriptions to channels."),
];

fn publish(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let sent = cx.shared.channels.publish(Topic::Channel, arguments.at(1), arguments.at(2));
    cx.out.count(sent);
    Ok(())
}

fn spublish(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let sent = cx.shared.channels.publish(Topic::Shard, arguments.at(1), arguments.at(2));
    cx.out.count(sent);
    Ok(())
}

/// Sends one reply for each name: what was done, the name, and the number of subscriptions.
fn confirm(cx: &mut Context<'_, '_>, what: &str, topic: Topic, name: Option<&Bytes>) {
    let count = cx.session.subscriptions.count(topic);
    cx.out.push(3);
    cx.out.bulk(what);
    cx.out.bulk_or_null(name);
    cx.out.count(count);
    let subscriptions = &cx.session.subscriptions;
    let counts = (subscriptions.channels.len(), subscriptions.patterns.len(), subscriptions.shards.len());
    cx.session.client.describe(|described| described.subscriptions = counts);
}

fn add(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, what: &str, topic: Topic) -> Outcome {
    for name in arguments.from(1) {
        let name = Bytes::copy_from_slice(name);
        if cx.session.subscriptions.of(topic).insert(name.clone()) {
            cx.shared.channels.subscribe(topic, &name, &cx.session.client);
        }
        confirm(cx, what, topic, Some(&name));
    }
    Ok(())
}

fn remove(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, what: &str, topic: Topic) -> Outcome {
    let names: Vec<Bytes> = if arguments.len() == 1 {
        cx.session.subscriptions.of(topic).iter().cloned().collect()
    } else {
        arguments.from(1).iter().map(|name| Bytes::copy_from_slice(name)).collect()
    };
    if names.is_empty() {
        confirm(cx, what, topic, None);
    }
    let subscribed = cx.session.subscriptions.of(topic);
    let ended: Vec<&Bytes> = names.iter().filter(|name| subscribed.contains(*name)).collect();
    ended.iter().for_each(|name| cx.shared.channels.unsubscribe(topic, name, cx.session.client.id));
    // Messages from before come before the confirmation. Others come with them, so that all keep their order. In a
    // transaction they would be among its replies.
    if !ended.is_empty() && !cx.session.is_in_transaction {
        for letter in cx.session.client.take_letters() {
            if cx.session.wants(&letter) {
                cx.out.raw(letter.bytes());
            }
        }
    }
    for name in names {
        cx.session.subscriptions.of(topic).remove(&name);
        confirm(cx, what, topic, Some(&name));
    }
    Ok(())
}

fn subscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    add(cx, arguments, "subscribe", Topic::Channel)
}

fn psubscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    add(cx, arguments, "psubscribe", Topic::Pattern)
}

fn ssubscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    // Redis allows the other subscriptions in a transaction, because it always did.
    if cx.session.is_in_transaction {
        return Err(Failure::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    add(cx, arguments, "ssubscribe", Topic::Shard)
}

fn unsubscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    remove(cx, arguments, "unsubscribe", Topic::Channel)
}

fn punsubscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    remove(cx, arguments, "punsubscribe", Topic::Pattern)
}

fn sunsubscribe(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    remove(cx, arguments, "sunsubscribe", Topic::Shard)
}

fn list(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, topic: Topic) -> Outcome {
    if arguments.len() > 3 {
        return Err(unknown_form(arguments));
    }
    let mut names = cx.shared.channels.names(topic);
    if arguments.len() > 2 {
        names.retain(|name| pattern::matches(arguments.at(2), name));
    }
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name));
    Ok(())
}

fn channels(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    list(cx, arguments, Topic::Channel)
}

fn shard_channels(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    list(cx, arguments, Topic::Shard)
}

fn count(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, topic: Topic) -> Outcome {
    cx.out.array(arguments.from(2).len() * 2);
    for name in arguments.from(2) {
        let count = cx.shared.channels.subscribers(topic, name);
        cx.out.bulk(name);
        cx.out.count(count);
    }
    Ok(())
}

fn numsub(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    count(cx, arguments, Topic::Channel)
}

fn shard_numsub(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    count(cx, arguments, Topic::Shard)
}

fn numpat(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let patterns = cx.shared.channels.names(Topic::Pattern).len();
    cx.out.count(patterns);
    Ok(())
}

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CHANNELS [<pattern>], NUMPAT, NUMSUB [<channel> ...], SHARDCHANNELS [<pattern>], SHARDNUMSUB [<channel> ...]",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}
