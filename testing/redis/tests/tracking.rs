//! Clients that hold keys are told of changes as by a real Redis.

use forebay_redis_differential::client::{Client, Value};
use forebay_redis_differential::run::{Engine, Pair};

/// A connection, and whether it has begun a transaction.
struct Connection {
    name: String,
    client: Client,
    is_in_transaction: bool,
}

impl Connection {
    /// What the connection is told up to the reply to its earlier request, including messages that came with it.
    fn told(&mut self) -> Vec<Value> {
        // In a transaction this request would also wait.
        if self.is_in_transaction {
            return vec![self.client.receive().unwrap()];
        }
        let marker = Value::Bulk(b"marker".to_vec());
        let ping = [b"PING".to_vec(), b"marker".to_vec()];
        self.client.send([&ping[..]]).unwrap();
        let is_marker = |reply: &Value| match reply {
            // To a subscriber.
            Value::Many(b'*', parts) => parts.len() == 2 && parts.last() == Some(&marker),
            other => *other == marker,
        };
        std::iter::from_fn(|| Some(self.client.receive().unwrap())).take_while(|reply| !is_marker(reply)).collect()
    }
}

/// What connections are told, command by command. The first word of a line says which connection sends the rest, in which
/// `#name` is the number of another connection.
fn transcript(port: u16, lines: &[&str]) -> Vec<String> {
    let mut connections: Vec<Connection> = Vec::new();
    let mut told = Vec::new();
    for line in lines {
        let (name, request) = line.split_once(' ').unwrap();
        if request == "LEAVE" {
            connections.retain(|connection| connection.name != name);
            continue;
        }
        if !connections.iter().any(|connection| connection.name == name) {
            let client = Client::connect(port).unwrap();
            connections.push(Connection { name: name.to_owned(), client, is_in_transaction: false });
        }
        let words: Vec<Vec<u8>> = request
            .split(' ')
            .map(|word| {
                let other =
                    word.strip_prefix('#').map(|name| connections.iter_mut().find(|other| other.name == name).unwrap());
                let id = other.map(|other| other.client.call(&["CLIENT", "ID"]).unwrap().to_string());
                id.map_or(word.to_owned(), |id| id.trim_start_matches(':').to_owned()).into_bytes()
            })
            .collect();
        let sender = connections.iter_mut().find(|connection| connection.name == name).unwrap();
        sender.client.send([&words[..]]).unwrap();
        sender.is_in_transaction = request == "MULTI" || sender.is_in_transaction && request != "EXEC";
        let mut tell = |connection: &mut Connection| {
            let replies = connection.told();
            told.extend(replies.into_iter().map(|reply| format!("{line}: {} {reply}", connection.name)));
        };
        // Messages to others are sent before the reply, and so before replies to what they ask afterwards.
        tell(sender);
        connections.iter_mut().filter(|other| other.name != name && !other.is_in_transaction).for_each(tell);
    }
    told
}

#[track_caller]
fn agree(lines: &[&str]) -> Vec<String> {
    let pair = Pair::start(Engine::Lsm);
    let [redis, forebay] = [pair.redis.port, pair.forebay.address().port()].map(|port| transcript(port, lines));
    // Numbers of clients differ.
    let without_numbers = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split_once(" :").map_or(line.as_str(), |(before, _)| before).to_owned()).collect()
    };
    assert_eq!(without_numbers(&redis), without_numbers(&forebay));
    forebay
}

/// How many lines say that keys have changed.
fn count(told: &[String]) -> usize {
    told.iter().filter(|line| line.contains("\"invalidate\"") || line.contains("__redis__:invalidate")).count()
}

#[test]
fn readers_are_told() {
    let told = agree(&[
        "a HELLO 3",
        "b HELLO 3",
        "w SET k 1",
        "w MSET x 1 y 2",
        "a CLIENT TRACKING ON",
        "a GET k",
        "a MGET x y nothing",
        "b GET k",
        "w SET k 2",
        "w SET k 3",
        "w DEL x",
        "w SET nothing 1",
        "a GET k",
        "a SET k 4",
        "a HGETALL h",
        "w HSET h a b",
        "a EXISTS gone",
        "w SET gone 1 PX 1000000",
        "a SORT l",
        "w RPUSH l 1",
        "a GET k",
        "w MULTI",
        "w SET k 5",
        "w INCR k",
        "w EXEC",
        "a GET k",
        "w EVAL return(redis.call('set','k','6')) 1 k",
        "a EVAL return(redis.call('get','k')) 1 k",
        "w SET k 7",
        "a SELECT 3",
        "a GET k",
        "w SET k 8",
        "a GET k",
        "w EXPIRE k 1000",
        "a GET k",
        "w APPEND none x",
        "a CLIENT TRACKINGINFO",
        "a CLIENT GETREDIR",
        "a GET k",
        "a CLIENT TRACKING OFF",
        "w SET k 9",
        "a CLIENT TRACKINGINFO",
        "a CLIENT GETREDIR",
    ]);
    assert!(count(&told) >= 10, "{told:#?}");
}

#[test]
fn everything_is_forgotten_when_a_database_is_emptied() {
    let told = agree(&[
        "a HELLO 3",
        "a CLIENT TRACKING ON",
        "a GET k",
        "w FLUSHDB",
        "w SET k 1",
        "a GET k",
        "w FLUSHALL",
        "a GET k",
        "a FLUSHALL",
        "a GET k",
        "a RESET",
        "w SET k 2",
        "a CLIENT TRACKINGINFO",
    ]);
    assert_eq!(count(&told), 3, "{told:#?}");
}

#[test]
fn clients_choose_what_they_are_told_of() {
    let told = agree(&[
        "a HELLO 3",
        "a CLIENT TRACKING ON OPTIN",
        "a GET k",
        "w SET k 1",
        "a CLIENT CACHING YES",
        "a CLIENT TRACKINGINFO",
        "a GET k",
        "a CLIENT TRACKINGINFO",
        "w SET k 2",
        "a CLIENT CACHING NO",
        "a CLIENT CACHING x",
        "a CLIENT TRACKING ON OPTOUT",
        "a CLIENT TRACKING OFF",
        "a CLIENT CACHING YES",
        "a CLIENT TRACKING ON OPTOUT NOLOOP",
        "a GET k",
        "w SET k 3",
        "a CLIENT CACHING NO",
        "a GET k",
        "w SET k 4",
        "a GET k",
        "a SET k 5",
        "w SET k 6",
        "a GET k",
        "w SET k 7",
        "a CLIENT TRACKINGINFO",
    ]);
    assert_eq!(count(&told), 3, "{told:#?}");
}

#[test]
fn a_transaction_is_chosen_as_a_whole() {
    let pair = Pair::start(Engine::Lsm);
    for port in [pair.redis.port, pair.forebay.address().port()] {
        let (mut tracks, mut writes) = (Client::connect(port).unwrap(), Client::connect(port).unwrap());
        for request in
            ["HELLO 3", "CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", "MULTI", "GET a", "GET b", "EXEC", "GET c"]
        {
            tracks.call(&request.split(' ').collect::<Vec<_>>()).unwrap();
        }
        writes.call(&["MSET", "a", "1", "b", "2", "c", "3"]).unwrap();
        for key in ["a", "b"] {
            let told = tracks.receive().unwrap();
            assert_eq!(told.to_string(), format!(">[\"invalidate\" *[\"{key}\" ] ]"));
        }
        assert_eq!(tracks.call(&["PING"]).unwrap(), Value::Simple("PONG".to_owned()));
    }
}

#[test]
fn prefixes_are_told_of() {
    let told = agree(&[
        "a HELLO 3",
        "a CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:",
        "w SET user:1 x",
        "w SET other x",
        "w MSET item:1 a item:2 b",
        "w MSET user:2 a other b item:3 c",
        "a CLIENT TRACKING ON BCAST PREFIX user:1",
        "a CLIENT TRACKING ON",
        "a CLIENT TRACKING ON BCAST PREFIX z PREFIX zz",
        "a CLIENT TRACKING ON BCAST PREFIX q NOLOOP",
        "a SET q1 x",
        "w SET q1 y",
        "a CLIENT TRACKINGINFO",
        "w DEL nothing",
        "w DEL user:1",
        "b HELLO 3",
        "b CLIENT TRACKING ON BCAST",
        "w SET anything x",
        "w FLUSHALL",
        "b CLIENT TRACKING OFF",
        "w SET q2 x",
        "a CLIENT TRACKING ON OPTIN",
        "a CLIENT TRACKING ON PREFIX x",
        "a CLIENT TRACKING ON BCAST OPTIN",
        "a CLIENT TRACKING OFF",
        "a CLIENT TRACKING ON OPTIN OPTOUT",
        "a CLIENT TRACKING x",
        "a CLIENT TRACKING ON x",
        "a CLIENT TRACKING ON REDIRECT x",
        "a CLIENT TRACKING ON REDIRECT 999999",
    ]);
    assert!(count(&told) >= 8, "{told:#?}");
}

#[test]
fn another_connection_is_told() {
    let told = agree(&[
        "r SUBSCRIBE __redis__:invalidate",
        "o HELLO 3",
        "a HELLO 3",
        "b CLIENT TRACKING ON REDIRECT #o",
        "b GET k",
        "w SET k 1",
        "a CLIENT TRACKING ON REDIRECT #o REDIRECT #o",
        "a CLIENT TRACKING ON REDIRECT #o",
        "a GET k",
        "w SET k 2",
        "a GET k",
        "w FLUSHALL",
        "b CLIENT TRACKINGINFO",
        "o LEAVE",
        "a GET k",
        "w SET k 3",
        "a CLIENT TRACKINGINFO",
    ]);
    assert!(count(&told) >= 3 && told.iter().any(|line| line.contains("tracking-redir-broken")), "{told:#?}");
}
