//! `forebay serve --engine tree`: servers that are killed and that sleep too long, over a memory node of another process.

use crate::common::{Running, fresh_path, run, start, start_node};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn line(flags: &str) -> String {
    format!("serve --engine=tree --listen=127.0.0.1:0 --admin=none {flags}")
}

fn serve(flags: &str) -> (Running, String) {
    let mut server = start(&line(flags));
    let ready = server.until(|out| out.contains('\n'));
    let port = ready.lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(ready.starts_with("ready redis://127.0.0.1:"), "{ready}");
    (server, port)
}

/// A client that reads replies.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(port: &str) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()) }
    }

    fn send(&mut self, request: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(format!("{request}\r\n").as_bytes())
    }

    /// A reply, its parts separated by spaces; `None` when the server is gone.
    fn receive(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 || !line.ends_with("\r\n") {
            return None;
        }
        let line = line.trim_end().to_owned();
        match line.split_at(1) {
            ("$", "-1") => Some("nil".to_owned()),
            ("$", _) => {
                let mut text = String::new();
                self.stream.read_line(&mut text).ok()?;
                text.ends_with("\r\n").then(|| text.trim_end().to_owned())
            }
            ("*", count) => {
                let parts: Option<Vec<String>> = (0..count.parse().ok()?).map(|_| self.receive()).collect();
                Some(parts?.join(" "))
            }
            _ => Some(line),
        }
    }

    #[track_caller]
    fn ask(&mut self, request: &str) -> String {
        self.send(request).unwrap();
        self.receive().unwrap_or_else(|| panic!("no reply to {request}"))
    }
}

/// Requests of a round, each of which makes all of its changes together.
fn requests(round: u32) -> Vec<String> {
    let hash: String = (0..10).map(|field| format!(" f{field} {round}")).collect();
    vec![
        format!("MSET a {round} b {round} c {round} d {round}"),
        format!("HSET hash{hash}"),
        format!("LPUSH list {round} {round} {round}"),
        "MULTI".to_owned(),
        format!("SET t {round}"),
        format!("ZADD set {round} member"),
        format!("RPUSH queue {round}"),
        "EXEC".to_owned(),
    ]
}

/// Kills the server in the middle of a pipeline. Acknowledged writes are there, and all or nothing of each batch.
#[test]
fn what_was_acknowledged_survives_kills_and_batches_are_whole() {
    let (node, memory) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --lazy");
    let flags = format!("--memory={memory} --db=shop");
    let (mut first_round, mut pushed_before) = (1, 0);
    for kill in 0..8 {
        let (server, port) = serve(&flags);
        let mut client = Client::connect(&port);
        // Other servers are refused while it serves.
        if kill == 0 {
            let refused = run(&line(&flags)).expect(1);
            assert!(refused.error.contains("stop that process, or name another tree"), "{}", refused.error);
        }
        let mut acknowledged = first_round - 1;
        let last = first_round + 200;
        for round in first_round..last {
            requests(round).iter().for_each(|request| client.send(request).unwrap());
        }
        let most = 20 + kill * 15;
        for round in first_round..last {
            if round - first_round == most {
                server.signal(Signal::KILL);
            }
            if (0..8).map(|_| client.receive()).any(|reply| reply.is_none()) {
                break;
            }
            acknowledged = round;
        }
        server.wait();
        let (server, port) = serve(&flags);
        let mut client = Client::connect(&port);
        let number = |text: &str| text.parse::<u32>().unwrap();
        let strings = client.ask("MGET a b c d");
        let round = number(strings.split(' ').next().unwrap());
        assert_eq!(strings, vec![round.to_string(); 4].join(" "));
        assert!(round >= acknowledged, "{round} of {acknowledged}");
        let hash = client.ask("HGETALL hash");
        let values: Vec<u32> = hash.split(' ').skip(1).step_by(2).map(number).collect();
        assert!(values.len() == 10 && values.iter().all(|value| *value == values[0]), "{hash}");
        assert!((acknowledged..=round).contains(&values[0]));
        // Three elements at a time, since the beginning.
        let length = number(&client.ask("LLEN list")[1..]);
        assert!(length % 3 == 0 && length >= 3 * (pushed_before + acknowledged + 1 - first_round), "{length}");
        assert_eq!(client.ask("LRANGE list 0 -1").split(' ').count() as u32, length);
        let (set, score, queue) =
            (number(&client.ask("GET t")), client.ask("ZSCORE set member"), client.ask("LINDEX queue -1"));
        assert_eq!((number(&score), number(&queue)), (set, set));
        assert!((acknowledged..=round).contains(&set));
        let keys = client.ask("KEYS *").split(' ').count();
        assert_eq!(client.ask("DBSIZE"), format!(":{keys}"));
        pushed_before = length / 3;
        first_round = round + 1;
        server.signal(Signal::KILL);
        server.wait();
    }
    drop(node);
}

/// The node takes the tree from the server, and gives it to the next one.
#[test]
fn a_server_that_slept_through_its_lease_ends_and_writes_nothing() {
    let (node, memory) = start_node("tcp://127.0.0.1:0", "--memory=128MiB --lazy --lease=3s");
    let flags = format!("--memory={memory}");
    let (sleeper, port) = serve(&flags);
    let mut client = Client::connect(&port);
    assert_eq!(client.ask("SET key first"), "+OK");
    sleeper.signal(Signal::STOP);
    client.send("SET key late").unwrap();
    // Until the lease ends, the tree has an owner.
    let mut server = start(&line(&flags));
    while !server.out().contains('\n') {
        if server.has_ended() {
            server = start(&line(&flags));
        }
        server.pause(Duration::from_millis(10));
    }
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    let mut next = Client::connect(&port);
    assert_eq!((next.ask("GET key"), next.ask("SET key next")), ("first".to_owned(), "+OK".to_owned()));
    sleeper.signal(Signal::CONT);
    let ended = sleeper.wait();
    assert!(ended.code == Some(7) && ended.error.contains("lapsed"), "{ended:?}");
    assert_eq!(next.ask("GET key"), "next");
    let dropped = format!("drop --engine=tree --memory={memory} --db=default --yes");
    let refused = run(&dropped).expect(1);
    assert!(refused.error.contains("stop that process"), "{}", refused.error);
    for command in ["drop --yes", "dump"] {
        let refused = run(&format!("{command} --memory={memory} --db=default")).expect(2);
        assert!(refused.error.contains("perhaps a shared tree (--engine tree)"), "{}", refused.error);
    }
    server.signal(Signal::INT);
    server.wait_stopped();
    run(&dropped).expect(0);
    let gone = run(&dropped).expect(1);
    assert!(gone.error.contains("there is no shared tree \"default\""), "{}", gone.error);
    run("drop --engine=tree --path=/nowhere --yes").expect(2);
    drop(node);
}

#[test]
fn a_tree_in_this_process_serves_and_ends_with_it() {
    let (server, port) = serve("--local-memory-size=128MiB --threads=2");
    let mut client = Client::connect(&port);
    assert_eq!(client.ask("SET key value"), "+OK");
    assert!(client.ask("SAVE").starts_with("-ERR storage: the shared tree lies in memory alone"));
    server.signal(Signal::INT);
    server.wait_stopped();
    let (server, port) = serve("--local-memory-size=128MiB");
    assert_eq!(Client::connect(&port).ask("GET key"), "nil");
    server.signal(Signal::INT);
    server.wait_stopped();
}

/// Operators see what is served.
#[test]
fn operators_see_the_tree() {
    let line = "serve --engine=tree --listen=127.0.0.1:0 --admin=127.0.0.1:0 --local-memory-size=128MiB";
    let mut server = start(line);
    let ready = server.until(|out| out.lines().count() == 2);
    let mut client = Client::connect(ready.lines().next().unwrap().rsplit(':').next().unwrap());
    assert_eq!(client.ask("MSET a 1 b 2"), "+OK");
    let admin = ready.lines().nth(1).unwrap().strip_prefix("admin http://").unwrap().trim_end_matches('/').to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = get("/metrics");
    for line in [
        "forebay_ready 1",
        "forebay_tree_keys 2",
        "forebay_tree_unfinished_batches 0",
        "forebay_memory_node_up{node=\"0\"} 1",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("forebay_shards") && metrics.contains("forebay_fabric_round_trips_total"), "{metrics}");
    assert!(get("/api/status").contains("\"tree\":{\"name\":\"tree\",\"keys\":2"));
    let top = run(&format!("top {admin} --once --interval=10ms"));
    assert!(top.out.contains("SHARED TREE"), "{top:?}");
    server.signal(Signal::INT);
    server.wait_stopped();
}

/// The node ends, and the tree with it.
#[test]
fn a_server_without_its_memory_node_ends() {
    let (node, memory) = start_node("tcp://127.0.0.1:0", "--memory=128MiB --lazy");
    let (server, port) = serve(&format!("--memory={memory}"));
    assert_eq!(Client::connect(&port).ask("SET key value"), "+OK");
    node.signal(Signal::KILL);
    let ended = server.wait();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn what_only_an_lsm_database_has_is_refused() {
    for (flags, why) in [
        ("--durability=none", "--durability is for --engine=lsm"),
        ("--path=/nowhere", "--path is for --engine=lsm"),
        ("--storage=memory:", "--storage is for --engine=lsm"),
        ("--takeover", "--takeover is for --engine=lsm"),
        ("--shards=2", "--shards is for --engine=lsm"),
        ("--lend-threads", "--lend-threads is for --engine=lsm"),
        ("--db=shop", "--db names a tree on memory nodes of other processes"),
    ] {
        let refused = run(&format!("serve --engine=tree {flags}")).expect(2);
        assert!(refused.error.contains(why), "{flags}: {}", refused.error);
    }
    let refused = run("serve --tree-cache-size=1MiB").expect(2);
    assert!(refused.error.contains("--tree-cache-size is for --engine=tree"), "{}", refused.error);
}

/// A file with the printed options means the same.
#[test]
fn the_options_of_a_tree_are_shown() {
    let file = fresh_path(".toml");
    std::fs::write(&file, "engine = 'tree'\nmemory = 'tcp://127.0.0.1:1'\n").unwrap();
    let shown = run(&format!("serve --check-config --config={}", file.display())).expect(0).out;
    for line in [
        &format!("engine = \"tree\"  # {}:1", file.display())[..],
        "# db = \"default\"  # default",
        "# tree-cache-size = \"256MiB\"  # default",
    ] {
        assert!(shown.lines().any(|other| other == line), "{line}: {shown}");
    }
    assert!(!shown.contains("durability") && !shown.contains("shards"), "{shown}");
    std::fs::write(&file, &shown).unwrap();
    run(&format!("serve --check-config --config={}", file.display())).expect(0);
    let variable = crate::common::run_with("serve --check-config", &[("FOREBAY_ENGINE", "tree")]).expect(0).out;
    assert!(variable.contains("engine = \"tree\"  # FOREBAY_ENGINE"), "{variable}");
}
