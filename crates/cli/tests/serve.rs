//! `forebay serve`, with Redis's own command-line client and benchmark, which `cargo xtask setup` installs.

use crate::common::{Running, fresh_path, run, start, start_node, start_with_short_files, start_within};
use forebay_env::{Clock, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A server at a free port, and that port.
fn serve(flags: &str) -> (Running, String) {
    ready(start(&line(flags)))
}

fn line(flags: &str) -> String {
    format!("serve --listen=127.0.0.1:0 --admin=none --local-memory-size=512MiB {flags}")
}

/// A server once it serves, and its port.
fn ready(mut server: Running) -> (Running, String) {
    let ready = server.until(|out| out.contains('\n'));
    let port = ready.lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert!(ready.starts_with("ready redis://127.0.0.1:"), "{ready}");
    (server, port)
}

/// What a program of Redis prints.
fn ask(program: &str, port: &str, arguments: &[&str], input: &str) -> String {
    let output = try_to_ask(program, port, arguments, input);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn try_to_ask(program: &str, port: &str, arguments: &[&str], input: &str) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(["-p", port]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}: run `cargo xtask setup`"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn redis_cli_and_redis_benchmark() {
    let (server, port) = serve("--durability=none --threads=2");
    // Without certificates there is nothing to read again, and the server continues.
    server.signal(Signal::HUP);
    let cli = |arguments: &[&str]| ask("redis-cli", &port, arguments, "");
    assert_eq!(cli(&["set", "key", "value", "ex", "100"]), "OK\n");
    assert_eq!(cli(&["get", "key"]), "value\n");
    assert_eq!(cli(&["-3", "hset", "hash", "a", "1", "b", "2"]), "2\n");
    let session = "multi\nincr counter\nrpush list a b c\nexec\nlrange list 0 -1\nnosuch\n";
    let replies = ask("redis-cli", &port, &[], session);
    let expected = "OK\nQUEUED\nQUEUED\n1\n3\na\nb\nc\nERR unknown command 'nosuch', with args beginning with: \n\n";
    assert_eq!(replies, expected);
    assert!(cli(&["info"]).contains("redis_version:7.0"));
    let tests = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,ping";
    let report = ask("redis-benchmark", &port, &["-n", "3000", "-P", "16", "-q", "-t", tests], "");
    assert!(report.contains("LRANGE_100") && !report.contains("Error"), "{report}");
    server.signal(Signal::INT);
    server.wait_stopped();
}

/// The server's checkpoint is copied to another storage, and another server begins with the copy.
#[test]
fn a_server_is_backed_up_while_it_runs() {
    let (store, copies) = (fresh_path(".store"), fresh_path(".copies"));
    let (server, port) = serve(&format!("--path={}", store.display()));
    let cli = |words: &[&str]| ask("redis-cli", &port, words, "");
    assert_eq!(cli(&["set", "a", "before"]), "OK\n");
    assert_eq!(cli(&["forebay.checkpoint", "create", "monday"]), "OK\n");
    assert_eq!(cli(&["set", "a", "after"]), "OK\n");
    let at = format!("--path={}", store.display());
    let then = run(&format!("dump --checkpoint=monday {at}")).expect(0).out;
    assert!(then.contains("before") && !then.contains("after"), "{then}");
    let wrong = run(&format!("dump --checkpoint=monday --memory=tcp://127.0.0.1:1 {at}")).expect(2);
    assert!(wrong.error.contains("no --memory"), "{wrong:?}");
    let wrong = run(&format!("dump --path=/nowhere --checkpoint={}", "x".repeat(300))).expect(2);
    assert!(wrong.error.contains("is no name of a checkpoint"), "{wrong:?}");
    let refused = run(&format!("backup create {at} tuesday")).expect(1);
    assert!(refused.error.contains("FOREBAY.CHECKPOINT CREATE"), "{refused:?}");
    assert_eq!(run(&format!("backup list {at}")).expect(0).out, "monday\n");
    run(&format!("backup copy {at} monday --to={}", copies.display())).expect(0);
    assert_eq!(cli(&["forebay.checkpoint", "drop", "monday"]), "OK\n");
    assert_eq!(cli(&["forebay.checkpoint", "list"]), "\n");
    let copied = format!("--storage={}", copies.display());
    run(&format!("backup clone {copied} monday --as=restored")).expect(0);
    let (restored, port) = serve(&format!("{copied} --db=restored"));
    assert_eq!(ask("redis-cli", &port, &["get", "a"], ""), "before\n");
    assert_eq!(cli(&["get", "a"]), "after\n");
    for server in [server, restored] {
        server.signal(Signal::INT);
        server.wait_stopped();
    }
}

/// Replies wait for the turns of other connections, and none is lost: not for a client that has nothing more to ask, for
/// one that leaves, or for one that gets more than it can take at once.
#[test]
fn who_has_asked_for_all_gets_all_replies() {
    let (server, port) = serve("--durability=none");
    assert_eq!(ask("redis-cli", &port, &["set", "large", &"x".repeat(20_000)], ""), "OK\n");
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let clients: Vec<_> = (0..64).map(|_| connect()).collect();
    for (number, mut client) in clients.iter().enumerate() {
        let asked = match number % 3 {
            0 => "PING\r\nGET nothing\r\n",
            1 => "PING\r\nQUIT\r\n",
            _ => "GET large\r\nPING\r\n",
        };
        client.write_all(asked.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
    }
    for (number, mut client) in clients.iter().enumerate() {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let expected = match number % 3 {
            0 => "+PONG\r\n$-1\r\n".to_owned(),
            1 => "+PONG\r\n+OK\r\n".to_owned(),
            _ => format!("$20000\r\n{}\r\n+PONG\r\n", "x".repeat(20_000)),
        };
        assert!(answer == expected, "{number}: {} bytes", answer.len());
    }
    server.signal(Signal::INT);
    server.wait_stopped();
}

/// A new store has a shard on each memory node unless a flag says otherwise, and strings are divided between them:
/// together the nodes hold more than one node can.
#[test]
fn all_memory_nodes_hold_something() {
    const VALUES: usize = 1100;
    let nodes = [(); 2].map(|()| start_node("tcp://127.0.0.1:0", "--memory=64MiB"));
    let [first, second] = [&nodes[0].1, &nodes[1].1];
    let flags = "--admin=none --durability=none --write-buffer-size=2MiB";
    let (server, port) =
        ready(start(&format!("serve --listen=127.0.0.1:0 --memory={first} --memory={second} {flags}")));
    let value = "x".repeat(64 << 10);
    let request = |number| format!("*3\r\n$3\r\nSET\r\n$8\r\nkey:{number:04}\r\n${}\r\n{value}\r\n", value.len());
    let requests: String = (0..VALUES).map(request).collect();
    let report = ask("redis-cli", &port, &["--pipe"], &requests);
    assert!(report.contains(&format!("errors: 0, replies: {VALUES}")), "{report}");
    let unused = "memory nodes are not used";
    assert!(!server.problem().contains(unused), "{}", server.problem());
    server.signal(Signal::INT);
    server.wait_stopped();
    // The server reports a node that would hold nothing.
    let line = format!("serve --listen=127.0.0.1:0 --memory={first},{second} {flags} --shards=1");
    let (server, _) = ready(start(&line));
    assert!(server.problem().contains(unused), "{}", server.problem());
    server.signal(Signal::INT);
    server.wait_stopped();
}

/// A connection that sends PING.
fn ping(port: &str) -> TcpStream {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    connection.write_all(b"PING\r\n").unwrap();
    connection
}

fn answer(mut connection: &TcpStream) -> String {
    let mut line = [0; 64];
    let length = connection.read(&mut line).unwrap();
    String::from_utf8_lossy(&line[..length]).into_owned()
}

const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

/// A connection that is served. A connection that has ended may still count for a moment.
fn served(port: &str) -> TcpStream {
    let clock = SystemClock::new();
    for _ in 0..6000 {
        let connection = ping(port);
        let answer = answer(&connection);
        if answer == "+PONG\r\n" {
            return connection;
        }
        assert_eq!(answer, TOO_MANY);
        clock.sleep(Duration::from_millis(10));
    }
    panic!("too many clients are connected for ever");
}

#[test]
fn as_many_clients_are_served_as_the_system_lets_files_be_open() {
    for (files, most, clients) in [(60, 100, 50), (100, 100, 50), (700, 700, 444)] {
        let (server, port) = ready(start_within(&line("--durability=none"), files, most));
        let cli = |arguments: &[&str]| ask("redis-cli", &port, arguments, "");
        assert_eq!(cli(&["config", "get", "maxclients"]), format!("maxclients\n{clients}\n"));
        let refused = cli(&["config", "set", "maxclients", &(clients + 1).to_string()]);
        assert!(refused.contains(&format!("try with {clients}")), "{refused}");
        assert!(server.problem().contains("fewer clients can be connected"), "{}", server.problem());
        let served: Vec<_> = (0..clients).map(|_| served(&port)).collect();
        assert_eq!(answer(&ping(&port)), TOO_MANY);
        // Storage and the server itself still have files left.
        drop(served);
        server.signal(Signal::INT);
        server.wait_stopped();
    }
    let (server, port) = ready(start_within(&line("--durability=none"), 300, 10_300));
    assert_eq!(ask("redis-cli", &port, &["config", "get", "maxclients"], ""), "maxclients\n10000\n");
    assert!(!server.problem().contains("fewer clients can be connected"), "{}", server.problem());
}

/// A connection that could not be accepted is accepted once others have ended. The system reports a connection only
/// once.
#[test]
fn connections_wait_for_files_and_are_served() {
    for threads in [1, 3] {
        let (server, port) = serve(&format!("--durability=none --threads={threads}"));
        // Allow two more files than are open: they get the lowest free numbers.
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.id().as_raw_nonzero())).unwrap().count() as u64;
        let limit = Rlimit { current: Some(open + 2), ..getrlimit(Resource::Nofile) };
        prlimit(Some(server.id()), Resource::Nofile, limit).unwrap();
        let mut waiting: VecDeque<_> = (0..20).map(|_| ping(&port)).collect();
        // The first connections are served in turn, and then leave their places to others.
        while let Some(next) = waiting.pop_front() {
            next.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(answer(&next), "+PONG\r\n", "{} are left: {}", waiting.len(), server.problem());
        }
        assert_eq!(server.problem().matches("accepting a connection").count(), 1, "{}", server.problem());
        server.signal(Signal::INT);
        server.wait_stopped();
    }
}

#[test]
fn a_database_in_a_directory_is_not_taken_from_a_server() {
    let folder = crate::common::fresh_path(".storage");
    for place in ["", " --db named"] {
        let place = format!("--storage {}{place}", folder.display());
        let (server, port) = serve(&place);
        let cli = |arguments: &[&str]| ask("redis-cli", &port, arguments, "");
        assert_eq!(cli(&["set", "key", "value"]), "OK\n");
        for command in ["dump", "backup create", "bench --num=10 --use_existing_db"] {
            let rest = if command.starts_with("backup") { "name" } else { "" };
            let refused = run(&format!("{command} {place} --local-memory-size=256MiB {rest}")).expect(1);
            assert!(refused.error.contains("is open already"), "{command}: {refused:?}");
        }
        // A command that only looks does not take the store over.
        run(&format!("verify {place}")).expect(0);
        assert_eq!(cli(&["set", "key", "other"]), "OK\n");
        // A server that hangs may be taken over. It writes nothing when it continues, and ends once it tries to.
        server.signal(Signal::STOP);
        let (other, other_port) = serve(&format!("{place} --takeover"));
        server.signal(Signal::CONT);
        let late = try_to_ask("redis-cli", &port, &["set", "key", "late"], "");
        assert_ne!(late.stdout, b"OK\n");
        let ended = server.wait();
        assert!(ended.code == Some(7) && ended.error.contains("fenced"), "{ended:?}");
        assert_eq!(ask("redis-cli", &other_port, &["get", "key"], ""), "other\n");
        other.signal(Signal::INT);
        other.wait_stopped();
        assert!(run(&format!("dump {place} --local-memory-size=256MiB")).expect(0).out.contains("other"));
    }
}

/// The end of a killed process's log is written anew, which takes room.
#[test]
fn a_server_that_finds_its_disk_full_ends_as_load_does() {
    let folder = crate::common::fresh_path(".storage");
    let flags = format!("--durability=storage=sync --storage={}", folder.display());
    let (server, port) = serve(&flags);
    assert_eq!(ask("redis-cli", &port, &["setrange", "key", "200000", "x"], ""), "200001\n");
    server.signal(Signal::KILL);
    server.wait();
    let ended = start_with_short_files(&line(&flags), 64).wait();
    assert!(ended.code == Some(5) && ended.error.contains("make room for 20"), "{ended:?}");
}

/// Without background jobs, bounds between shards stay where they are.
#[test]
fn several_shards_need_no_background_jobs() {
    let (server, _) = serve("--durability=none --shards=2 --max-background-jobs=0");
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn a_password_is_needed_where_one_is_set() {
    let file = crate::common::fresh_path(".password");
    std::fs::write(&file, "secret\n").unwrap();
    let (server, port) = serve(&format!("--durability=none --password-file={}", file.display()));
    let replies = ask("redis-cli", &port, &[], "get a\nauth wrong\nauth secret\nget a\n");
    let expected = "NOAUTH Authentication required.\n\n\
                    WRONGPASS invalid username-password pair or user is disabled.\n\nOK\n\n";
    assert_eq!(replies, expected);
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let (_server, port) = serve("--durability=none");
    let ended = run(&format!("serve --listen=127.0.0.1:{port} --local-memory-size=512MiB --durability=none"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.error.contains("forebay: listening on"), "{ended:?}");
}

#[test]
fn what_was_synced_survives_a_kill() {
    let folder = crate::common::fresh_path(".storage");
    let flags = format!("--durability=storage=sync --storage={}", folder.display());
    let (server, port) = serve(&flags);
    let cli = |port: &str, arguments: &[&str]| ask("redis-cli", port, arguments, "");
    assert_eq!(cli(&port, &["set", "key", "value"]), "OK\n");
    assert_eq!(cli(&port, &["rpush", "list", "a", "b"]), "2\n");
    let library =
        "#!lua name=library\nredis.register_function('length', function(k) return redis.call('llen', k[1]) end)";
    assert_eq!(cli(&port, &["function", "load", library]), "library\n");
    server.signal(Signal::KILL);
    server.wait();
    let (server, port) = serve(&flags);
    assert_eq!(cli(&port, &["get", "key"]), "value\n");
    assert_eq!(cli(&port, &["lrange", "list", "0", "-1"]), "a\nb\n");
    assert_eq!(cli(&port, &["fcall", "length", "1", "list"]), "2\n");
    server.signal(Signal::INT);
    server.wait_stopped();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_directory_of_a_server_is_no_storage_for_others() {
    let folder = crate::common::fresh_path(".data");
    let (server, port) = serve(&format!("--path={}", folder.display()));
    let cli = |arguments: &[&str]| ask("redis-cli", &port, arguments, "");
    assert_eq!(cli(&["set", "key", "value"]), "OK\n");
    let at = format!("--storage={} --local-memory-size=256MiB", folder.display());
    for line in [
        format!("dump {at}"),
        format!("load {at} /dev/null"),
        format!("bench {at} --num=10 --replace"),
        format!("backup create {at} now"),
    ] {
        let ended = run(&line).expect(1);
        assert!(ended.error.contains("open already"), "{line}: {}", ended.error);
    }
    assert_eq!(cli(&["set", "other", "value"]), "OK\n");
    assert_eq!(cli(&["get", "key"]), "value\n");
    server.signal(Signal::TERM);
    server.wait_stopped();
    let dumped = run(&format!("dump {at}")).expect(0);
    assert!(dumped.error.contains("dumped: "), "{dumped:?}");
}

#[test]
fn no_other_command_writes_into_the_store_of_a_server() {
    let (folder, trace) = (crate::common::fresh_path(".data"), crate::common::fresh_path(".lis"));
    let dump = crate::common::fresh_path(".tsv");
    std::fs::write(&trace, "1 1 0 0\n").unwrap();
    std::fs::write(&dump, "key\tvalue\n").unwrap();
    let stop = |server: Running| {
        server.signal(Signal::TERM);
        server.wait_stopped();
    };
    stop(serve(&format!("--path={}", folder.display())).0);
    for (command, file) in [
        ("bench --use_existing_db", None),
        ("bench --use_existing_db --benchmarks=fillseq", None),
        ("ycsb", None),
        ("replay", Some(&trace)),
        ("load", Some(&dump)),
        ("load --keyspace=some", Some(&dump)),
    ] {
        let file = file.map(|file| file.display().to_string()).unwrap_or_default();
        let refused =
            run(&format!("{command} --path={} --local-memory-size=256MiB {file}", folder.display())).expect(2);
        assert!(refused.error.contains("a store of forebay serve"), "{command}: {refused:?}");
    }
    stop(serve(&format!("--path={}", folder.display())).0);
}

/// The first keys make it a store of a server, which takes no load any more.
#[test]
fn a_dump_of_a_server_is_loaded_in_parts_if_its_first_keys_come_last() {
    let (folder, copy) = (fresh_path(".data"), fresh_path(".data"));
    let (server, port) = serve(&format!("--path={}", folder.display()));
    assert_eq!(ask("redis-cli", &port, &["mset", "a", "1", "b", "2"], ""), "OK\n");
    server.signal(Signal::TERM);
    server.wait_stopped();
    let at = |folder: &Path| format!("--path={} --local-memory-size=256MiB", folder.display());
    let part = |range: &str| {
        let file = fresh_path(".tsv");
        run(&format!("dump {} {range} {}", at(&folder), file.display())).expect(0);
        file
    };
    let load = |part: &Path| run(&format!("load {} {}", at(&copy), part.display()));
    let (first, others) = (part(r"--to \x02"), part(r"--from \x02"));
    load(&others).expect(0);
    load(&first).expect(0);
    let refused = load(&others).expect(2);
    assert!(refused.error.contains("the first keys as the last one"), "{refused:?}");
    let (server, port) = serve(&format!("--path={}", copy.display()));
    assert_eq!(ask("redis-cli", &port, &["mget", "a", "b"], ""), "1\n2\n");
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn a_database_of_others_is_not_served() {
    let folder = crate::common::fresh_path(".data");
    let at = format!("--path={} --local-memory-size=256MiB", folder.display());
    run(&format!("bench {at} --benchmarks=fillseq --num=10")).expect(0);
    let dump = format!("dump --storage={} --local-memory-size=256MiB", folder.display());
    let before = run(&dump).expect(0).out;
    let refused = run(&format!("serve --listen=127.0.0.1:0 --admin=none {at}"));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.error.contains("keys that forebay serve has not written"), "{refused:?}");
    assert_eq!(run(&dump).expect(0).out, before);
}

#[test]
fn a_store_in_a_folder_has_storage() {
    let flags = "--storage-from-level=2 --storage-lag=4 --block-cache=1MiB --memory-cache=1MiB \
                 --memory-cache-after=1ms --compression=zstd --block-size=8KiB";
    run(&format!("serve --check-config {flags}")).expect(0);
    let folder = crate::common::fresh_path(".data");
    let (server, _) = serve(&format!("--path={} {flags}", folder.display()));
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn options_come_from_flags_variables_and_a_file() {
    let file = crate::common::fresh_path(".toml");
    let check = |text: &str, flags: &str| {
        std::fs::write(&file, text).unwrap();
        let line = format!("serve --check-config --config={} {flags}", file.display());
        crate::common::run_with(
            &line,
            &[("FOREBAY_SHARDS", "3"), ("FOREBAY_DB", "variable"), ("FOREBAY_TLS_NAME", "node")],
        )
    };
    let text =
        "# A comment.\nshards = 2\ndb = \"file\"\nblock_cache = \"1MiB\"\nstorage = \"memory:\"\nunprotected = true\n";
    let ended = check(text, "--db=flag").expect(0);
    let shown = file.display();
    for line in [
        "shards = 3  # FOREBAY_SHARDS".to_owned(),
        "db = \"flag\"  # flag".to_owned(),
        format!("block-cache = \"1MiB\"  # {shown}:4"),
        format!("unprotected = true  # {shown}:6"),
        "threads = 1  # default".to_owned(),
        "# password-file is not set".to_owned(),
        "# tls-name is what FOREBAY_TLS_NAME says".to_owned(),
    ] {
        assert!(ended.out.lines().any(|other| other == line), "{line}: {}", ended.out);
    }
    // The printed options are such a file.
    let again = check(&ended.out.replace("shards = 3", "shards = 4"), "").expect(0).out;
    assert!(again.contains(&format!("unprotected = true  # {shown}")), "{again}");
    for (text, why) in [
        ("thread = 4", ":1: unexpected argument '--thread' found; a similar argument exists: '--threads'"),
        ("\nthreads = \"x\"", ":2: invalid value 'x' for '--threads <THREADS>'"),
        ("threads =", ":1: "),
        ("threads = [1]", ":1: threads: a value is"),
        ("log = 'text'\nblock-cache = '1MB'\nblock_cache = '2MB'", ":3: block_cache: it is there twice"),
        ("config = 'x'", ":1: config: this is a flag only"),
        ("password-file = '/nowhere'", "--password-file /nowhere: "),
    ] {
        let ended = check(text, "");
        assert!(ended.code != Some(0) && ended.error.contains(why), "{text}: {}", ended.error);
    }
    let ended = crate::common::run_with("serve --check-config", &[("FOREBAY_THREADS", "many")]).expect(2);
    assert!(ended.error.contains("FOREBAY_THREADS: invalid value 'many'"), "{}", ended.error);
    let ended = run("serve --check-config --config=/nowhere/file").expect(2);
    assert!(ended.error.contains("/nowhere/file: "), "{}", ended.error);
}

/// Of a parameter, too, a variable comes before the file, and a flag before both.
#[test]
fn parameters_come_from_flags_a_variable_and_a_file() {
    let file = crate::common::fresh_path(".toml");
    std::fs::write(&file, "[parameters]\nslowlog-max-len = 9\ntimeout = 60\n").unwrap();
    let check = |flags: &str, variable: &str| {
        let line = format!("serve --check-config --config={} {flags}", file.display());
        crate::common::run_with(&line, &[("FOREBAY_PARAMETER", variable)])
    };
    for (flags, timeout) in [("", 30), ("--parameter=timeout=5", 5)] {
        let shown = check(flags, "timeout=30").expect(0).out;
        assert!(shown.ends_with(&format!("\n[parameters]\nslowlog-max-len = 9\ntimeout = {timeout}\n")), "{shown}");
    }
    let refused = check("", "timeout").expect(2).error;
    assert!(refused.contains("FOREBAY_PARAMETER: invalid value 'timeout'"), "{refused}");
    let refused = check("--parameter=timeout", "timeout=30").expect(2).error;
    assert!(refused.starts_with("forebay: invalid value 'timeout'"), "{refused}");
}

#[test]
fn what_nobody_set_is_shown() {
    let shown = |line: &str| run(&format!("serve --check-config {line}")).expect(0).out;
    let usual = shown("");
    for line in [
        "# admin = \"127.0.0.1:9121\"  # default",
        "# path = \"forebay-data\"  # default",
        "# durability = \"storage=interval:1s\"  # default",
        "# shards is not set",
        "# write-buffer-size = \"64MiB\"  # default",
        "# settle-after = \"500ms\"  # default",
        "# block-cache = \"64MiB\"  # default",
        "# cached-index-size is not set",
    ] {
        assert!(usual.lines().any(|other| other == line), "{line}: {usual}");
    }
    // Each printed value is valid for its option, and means the same.
    let path = crate::common::fresh_path(".toml");
    let lines = usual.lines().map(|line| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line));
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let given = shown(&format!("--config={}", path.display()));
    let values = |text: &str| {
        let lines = text.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
        lines.map(|(name, rest)| format!("{name} = {}", rest.split("  # ").next().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(values(&given), values(&usual));
    // Without storage nothing says how it is used.
    let without = shown("--durability=none");
    assert!(without.contains("# path is not set\n") && without.contains("# block-cache is not set\n"), "{without}");
    // A store without a name is always new, and has a shard on each memory node.
    assert!(without.contains("# shards = 1  # default\n"), "{without}");
    let spread = shown("--durability=none --memory=tcp://127.0.0.1:1,tcp://127.0.0.1:2");
    assert!(spread.contains("# shards = 2  # default\n"), "{spread}");
}

/// A file that only its owner may read.
fn file(suffix: &str, text: &str) -> crate::common::FreshPath {
    let path = crate::common::fresh_path(suffix);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// An authority that signs itself, and its certificate as text.
fn authority() -> (Issuer<'static, KeyPair>, String) {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Certificates that it signs have the usual name, and must not seem self-signed.
    parameters.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let text = parameters.self_signed(&key).unwrap().pem();
    (Issuer::new(parameters, key), text)
}

/// A certificate and its key, as text.
fn certificate(issuer: &Issuer<'static, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
    (made.pem(), key.serialize_pem())
}

#[test]
fn connections_within_tls_and_certificates_that_are_read_again() {
    let (issuer, text) = authority();
    let authority = file(".pem", &text);
    let (own, key) = certificate(&issuer, "localhost");
    let (own, key) = (file(".pem", &own), file(".key", &key));
    let flags = format!(
        "--durability=none --listen=none --tls-listen=127.0.0.1:0 --tls-listen-certificate={} --tls-listen-key={} \
         --tls-listen-client-authority={}",
        own.display(),
        key.display(),
        authority.display(),
    );
    let mut server = start(&format!("serve --admin=none --local-memory-size=512MiB {flags}"));
    let ready = server.until(|out| out.contains('\n'));
    assert!(ready.starts_with("ready rediss://127.0.0.1:"), "{ready}");
    let port = ready.trim().rsplit(':').next().unwrap().to_owned();
    let (shown, shown_key) = certificate(&issuer, "client");
    let (shown, shown_key) = (file(".pem", &shown), file(".key", &shown_key));
    let paths = [authority.display(), shown.display(), shown_key.display()].map(|path| path.to_string());
    let [ca, cert, key] = &paths;
    let with = ["--tls", "--cacert", ca, "--cert", cert, "--key", key];
    let large = format!("set large {}\nstrlen large\nget nothing\n", "x".repeat(300_000));
    assert_eq!(ask("redis-cli", &port, &with, &large), "OK\n300000\n\n");
    assert_eq!(ask("redis-cli", &port, &[&with[..], &["--raw", "get", "large"]].concat(), "").len(), 300_001);
    let pipelined = [&with[..], &["-n", "20000", "-P", "16", "-d", "1000", "-q", "-t", "set,get"]].concat();
    let report = ask("redis-benchmark", &port, &pipelined, "");
    assert!(report.contains("GET") && !report.contains("Error"), "{report}");
    let turned_away = |flags: &[&str]| {
        let output = try_to_ask("redis-cli", &port, flags, "get large\n");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("xxx"), "{output:?}");
    };
    turned_away(&[]);
    turned_away(&["--tls", "--cacert", ca]);
    // A client beyond the limit is told so within TLS.
    assert_eq!(ask("redis-cli", &port, &with, "config set maxclients 1\n"), "OK\n");
    let mut stays = Command::new("redis-cli");
    stays.args(["-p", port.as_str()]).args(with).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut stays = stays.spawn().unwrap();
    stays.stdin.as_mut().unwrap().write_all(b"ping\n").unwrap();
    let is_told = (0..1000).any(|_| {
        server.pause(std::time::Duration::from_millis(10));
        let output = try_to_ask("redis-cli", &port, &with, "get nothing\n");
        String::from_utf8_lossy(&output.stdout).contains("ERR max number of clients reached")
    });
    assert!(is_told);
    drop(stays.stdin.take());
    stays.wait().unwrap();
    let is_served = (0..1000).any(|_| {
        server.pause(std::time::Duration::from_millis(10));
        try_to_ask("redis-cli", &port, &with, "config set maxclients 1000\n").stdout == b"OK\n"
    });
    assert!(is_served);
    // Other authorities from now on.
    let (other, text) = self::authority();
    std::fs::write(&authority, text).unwrap();
    server.signal(Signal::HUP);
    server.until_told("read again");
    turned_away(&with);
    let (shown_now, key_now) = certificate(&other, "client");
    std::fs::write(&shown, shown_now).unwrap();
    std::fs::write(&shown_key, key_now).unwrap();
    let insecure = [&with[..], &["--insecure"]].concat();
    assert_eq!(ask("redis-cli", &port, &insecure, "strlen large\n"), "300000\n");
    server.signal(Signal::TERM);
    server.wait_stopped();
}

/// The page is refused, before the store is opened. Otherwise the server would find its own port taken.
#[test]
fn two_of_its_addresses_are_not_the_same() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = run(&format!("serve --durability=none --listen={free} --admin={free}")).expect(1);
    assert!(ended.error.contains(&format!("listening for operators on {free}")), "{ended:?}");
}

/// What the store is opened on may not answer for long.
#[test]
fn a_signal_ends_a_server_that_opens_its_store() {
    let (node, address) = start_node("tcp://127.0.0.1:0", "--memory=64MiB");
    node.signal(Signal::STOP);
    for signal in [Signal::TERM, Signal::INT] {
        let server = start(&line(&format!("--memory={address}")));
        server.pause(Duration::from_millis(500));
        server.signal(signal);
        let ended = server.wait();
        // With a code, it would have waited for the node.
        assert_eq!(ended.code, None, "{ended:?}");
    }
}

/// What the store is closed on may not answer, either. A service manager that asks twice does not break off the closing.
#[test]
fn the_second_ctrl_c_ends_a_server_that_closes_its_store() {
    let (node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    let (server, port) = serve(&format!("--memory={address}"));
    assert_eq!(ask("redis-cli", &port, &["set", "key", "value"], ""), "OK\n");
    node.signal(Signal::STOP);
    server.signal(Signal::INT);
    server.until_told("stopping");
    server.signal(Signal::TERM);
    server.pause(Duration::from_millis(200));
    server.signal(Signal::INT);
    let ended = server.wait();
    // With a code, it would have waited for the node.
    assert_eq!(ended.code, None, "{ended:?}");
}

#[test]
fn nobody_is_served_without_an_address() {
    let ended = run("serve --listen=none --durability=none").expect(2);
    assert!(ended.error.contains("--tls-listen"), "{}", ended.error);
    let ended = run("serve --tls-listen=127.0.0.1:0 --durability=none").expect(2);
    assert!(ended.error.contains("--tls-listen-certificate"), "{}", ended.error);
}

#[test]
fn what_config_set_changed_is_kept_in_the_file() {
    let file = crate::common::fresh_path(".toml");
    let before = "# Mine.\nthreads = 2 # two\n\n[parameters] # of Redis\ntimeout = 300 # seconds\n\n# The end.\n";
    std::fs::write(&file, before).unwrap();
    let flags = format!("--durability=none --config={}", file.display());
    let (server, port) = serve(&format!("{flags} --parameter=slowlog-max-len=7"));
    let cli = |request: &str| ask("redis-cli", &port, &request.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(cli("config get timeout"), "timeout\n300\n");
    assert_eq!(cli("config get slowlog-max-len"), "slowlog-max-len\n7\n");
    assert!(cli("info server").contains(&format!("config_file:{}", file.display())));
    // Nothing has changed yet.
    assert_eq!(cli("config rewrite"), "OK\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert_eq!(cli("config set timeout 60 notify-keyspace-events KEA"), "OK\n");
    assert_eq!(cli("config rewrite"), "OK\n");
    let after = before.replace("timeout = 300 # seconds", "timeout = 60 # seconds");
    let events = "notify-keyspace-events = \"AKE\"";
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, after.replace("# seconds\n", &format!("# seconds\n{events}\n")));
    server.signal(Signal::TERM);
    server.wait_stopped();
    let checked = run(&format!("serve --check-config {flags} --parameter=timeout=5")).expect(0).out;
    assert!(checked.ends_with(&format!("\n[parameters]\n{events}\ntimeout = 5\n")), "{checked}");
    let ended = run(&format!("serve --check-config {flags} --parameter=nosuch=5"));
    assert!(ended.code == Some(2) && ended.error.contains("'nosuch'"), "{ended:?}");
    let (server, port) = serve(&flags);
    assert_eq!(ask("redis-cli", &port, &["config", "get", "timeout"], ""), "timeout\n60\n");
    // A password is not written to the file.
    assert_eq!(ask("redis-cli", &port, &["config", "set", "requirepass", "secret"], ""), "OK\n");
    let refused = ask("redis-cli", &port, &["--no-auth-warning", "-a", "secret", "config", "rewrite"], "");
    assert!(refused.contains("is a secret"), "{refused}");
    server.signal(Signal::TERM);
    server.wait_stopped();
    let (server, port) = serve("--durability=none");
    let refused = ask("redis-cli", &port, &["config", "rewrite"], "");
    assert!(refused.contains("ERR The server is running without a config file"), "{refused}");
    server.signal(Signal::TERM);
    server.wait_stopped();
}
