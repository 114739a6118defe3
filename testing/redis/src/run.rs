//! Sends the same commands to both servers and compares the replies.

use crate::agreement::{Agreement, sorted};
use crate::client::{Client, Value};
use crate::families::Family;
use crate::families::streams::without_times;
use crate::real::Redis;
use forebay::{Options, OwnedTree, Store, TreeOptions};
use forebay_env::Random;
use forebay_server::{Records, Server, ServerOptions};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Memory of Forebay's embedded memory node.
const MEMORY_BYTES: u64 = 512 << 20;
/// Number of commands that are shown before one whose replies differ.
const SHOWN: usize = 60;
/// All keys are compared after one in this many pipelines.
const LOOK_EVERY: u64 = 8;
/// Most commands of a pipeline.
const PIPELINE: u64 = 24;

/// Ends of transactions.
const ENDS: &[&[u8]] = &[b"EXEC", b"DISCARD", b"RESET"];
/// The text of a reply that says that a command waits for its transaction.
const QUEUED: &str = "+QUEUED";

/// A command, and how its replies must agree.
type Sent = (Agreement, Vec<Vec<u8>>);

/// The engine of Forebay's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// An LSM database.
    Lsm,
    /// A shared tree.
    Tree,
}

/// Both servers.
#[derive(Debug)]
pub struct Pair {
    /// Redis.
    pub redis: Redis,
    /// Forebay.
    pub forebay: Server,
}

impl Pair {
    /// Starts both, empty.
    ///
    /// # Panics
    /// When one does not start.
    #[must_use]
    pub fn start(engine: Engine) -> Self {
        Self::start_with(engine, ServerOptions::default())
    }

    /// Starts both, empty, and Forebay's on this engine, with these options and an address of its own.
    ///
    /// # Panics
    /// When one does not start.
    #[must_use]
    pub fn start_with(engine: Engine, options: ServerOptions) -> Self {
        let records: Records = match engine {
            Engine::Lsm => Store::embedded(MEMORY_BYTES, Options::default()).expect("a store opens").into(),
            Engine::Tree => OwnedTree::embedded(MEMORY_BYTES, TreeOptions::default()).expect("a tree opens").into(),
        };
        let options = ServerOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..options };
        Self { redis: Redis::start(), forebay: Server::start(records, options).expect("the server starts") }
    }
}

/// A command whose replies do not agree.
#[derive(Debug)]
pub struct Difference {
    /// The seed of the run.
    pub seed: u64,
    /// The commands up to that point, the latest last.
    pub commands: Vec<String>,
    /// What Redis said.
    pub redis: String,
    /// What Forebay said.
    pub forebay: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: the replies to the last of these commands differ", self.seed)?;
        self.commands.iter().try_for_each(|command| writeln!(f, "  {command}"))?;
        writeln!(f, "redis:   {}\nforebay: {}", self.redis, self.forebay)
    }
}

/// Sends `count` random commands of a family, in pipelines, over one connection each.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// When a connection breaks.
pub fn family(pair: &Pair, family: &Family, seed: u64, count: u64) -> Result<(), Box<Difference>> {
    let mut redis = Client::connect(pair.redis.port).expect("Redis accepts");
    let mut forebay = Client::connect(pair.forebay.address().port()).expect("Forebay accepts");
    let mut random = Random::seeded(seed);
    let protocol = if random.one_in(1, 2) { "3" } else { "2" };
    for client in [&mut redis, &mut forebay] {
        client.call(&["HELLO", protocol]).expect("it answers");
        client.call(&["FLUSHALL"]).expect("it answers");
        client.call(&["FUNCTION", "FLUSH"]).expect("it answers");
    }
    let mut lookers =
        [pair.redis.port, pair.forebay.address().port()].map(|port| Client::connect(port).expect("it accepts"));
    let templates = family.templates();
    let mut latest: VecDeque<String> = VecDeque::new();
    let mut queued: Vec<Sent> = Vec::new();
    let mut sent = 0;
    while sent < count {
        let pipeline: Vec<_> = (0..=random.below(PIPELINE)).map(|_| templates.next(&mut random)).collect();
        sent += pipeline.len() as u64;
        let (scans, commands): (Vec<_>, Vec<_>) = pipeline
            .into_iter()
            .partition(|(agreement, _)| matches!(agreement, Agreement::Scan | Agreement::ScanPairs));
        for client in [&mut redis, &mut forebay] {
            client.send(commands.iter().map(|(_, words)| &words[..])).expect("it reads");
        }
        let mut difference = None;
        for (agreement, words) in commands {
            latest.push_back(shown(&words));
            latest.keep_latest(SHOWN);
            let (a, b) = (redis.receive().expect("it answers"), forebay.receive().expect("it answers"));
            let agrees = |(agreement, words): &Sent, a: &Value, b: &Value| {
                agreement.holds(a, b) || family.may_differ(words, a, b)
            };
            let agree = match (&a, &b) {
                (Value::Many(x, xs), Value::Many(y, ys))
                    if agreement == Agreement::Transaction && xs.len() == queued.len() && ys.len() == xs.len() =>
                {
                    x == y && queued.iter().zip(xs.iter().zip(ys)).all(|(sent, (a, b))| agrees(sent, a, b))
                }
                _ => agrees(&(agreement, words.clone()), &a, &b),
            };
            if is_queued(&a) {
                queued.push((agreement, words));
            } else if words.first().is_some_and(|word| ENDS.iter().any(|end| word.eq_ignore_ascii_case(end))) {
                queued.clear();
            }
            if difference.is_none() && !agree {
                let commands = latest.iter().cloned().collect();
                difference =
                    Some(Box::new(Difference { seed, commands, redis: a.to_string(), forebay: b.to_string() }));
            }
        }
        if let Some(difference) = difference {
            return Err(difference);
        }
        if random.one_in(1, LOOK_EVERY) {
            let [a, b] = lookers.each_mut().map(everything);
            if a != b {
                let commands = latest.iter().cloned().collect();
                return Err(Box::new(Difference { seed, commands, redis: a, forebay: b }));
            }
        }
        for (agreement, words) in scans {
            let (a, b) = (scanned(&mut redis, &words, agreement), scanned(&mut forebay, &words, agreement));
            if a != b {
                latest.push_back(shown(&words));
                let commands = latest.iter().cloned().collect();
                return Err(Box::new(Difference { seed, commands, redis: a.join(" "), forebay: b.join(" ") }));
            }
            if a == [QUEUED] {
                // A single step: cursors differ.
                queued.push((Agreement::Any, words));
            }
        }
    }
    Ok(())
}

fn is_queued(reply: &Value) -> bool {
    matches!(reply, Value::Simple(text) if text == "QUEUED")
}

/// The contents of a connection's database, except times of streams.
///
/// # Panics
/// When the connection breaks.
pub fn everything(client: &mut Client) -> String {
    let mut text = String::new();
    let Ok(Value::Many(_, keys)) = client.call(&["KEYS", "*"]) else { return text };
    let mut keys: Vec<_> =
        keys.into_iter().filter_map(|key| if let Value::Bulk(key) = key { Some(key) } else { None }).collect();
    keys.sort_unstable();
    for key in keys {
        let Ok(Value::Simple(kind)) = client.call(&[b"TYPE", &key[..]]) else { continue };
        let (words, group): (&[&str], usize) = match kind.as_str() {
            "string" => (&["GET"], 1),
            "list" => (&["LRANGE", "0", "-1"], 1),
            "set" => (&["SMEMBERS"], 1),
            "hash" => (&["HGETALL"], 2),
            "stream" => (&["XINFO", "STREAM", "FULL", "COUNT", "0"], 1),
            _ => (&["ZRANGE", "0", "-1", "WITHSCORES"], 2),
        };
        let mut words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        words.insert(if kind == "stream" { 2 } else { 1 }, &key);
        let value = client.call(&words).expect("it answers");
        let value = match (&value, kind.as_str()) {
            (_, "stream") => without_times(&value).to_string(),
            (Value::Many(..), "set" | "hash") => format!("{:?}", sorted(&value, group)),
            _ => value.to_string(),
        };
        text.push_str(&format!("\n    {kind} {}: {value}", key.escape_ascii()));
    }
    text
}

trait Latest {
    fn keep_latest(&mut self, most: usize);
}

impl Latest for VecDeque<String> {
    fn keep_latest(&mut self, most: usize) {
        while self.len() > most {
            self.pop_front();
        }
    }
}

/// All that a scan finds, each once, in order. `words` has `0` in the place of the cursor.
fn scanned(client: &mut Client, words: &[Vec<u8>], agreement: Agreement) -> Vec<String> {
    let place = if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"scan")) { 1 } else { 2 };
    let mut words = words.to_vec();
    let mut found = Vec::new();
    loop {
        let reply = client.call(&words).expect("it answers");
        let Value::Many(_, parts) = &reply else { return vec![reply.to_string()] };
        let [Value::Bulk(cursor), elements] = &parts[..] else { return vec![reply.to_string()] };
        found.extend(sorted(elements, if agreement == Agreement::ScanPairs { 2 } else { 1 }).1);
        if cursor == b"0" {
            found.sort_unstable();
            found.dedup();
            return found;
        }
        if let Some(word) = words.get_mut(place) {
            word.clone_from(cursor);
        }
    }
}

fn shown(words: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for word in words {
        text.push_str(&format!("\"{}\" ", word.escape_ascii()));
    }
    text
}
