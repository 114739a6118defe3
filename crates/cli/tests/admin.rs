//! What operators see of each process that has something to show.

use crate::common::{Running, run, start};
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Returns where a process serves operators, once it has said so.
pub fn admin_of(running: &mut Running) -> String {
    let out = running.until(|out| out.contains("\nadmin http://"));
    let line = out.lines().find_map(|line| line.strip_prefix("admin http://")).unwrap();
    line.trim_end_matches('/').to_owned()
}

/// Returns the body of an answer with status 200.
#[track_caller]
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    body.to_owned()
}

/// The value of a metric.
#[track_caller]
pub fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in:\n{metrics}")).parse().unwrap()
}

/// Checks that promtool finds nothing wrong with what a process really says.
fn lint(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("promtool: {error}: run `cargo xtask setup`"));
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}\n{metrics}");
}

/// What a server answers to a command.
#[track_caller]
pub fn redis(port: &str, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", port]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Clients are told the cause at once, even when no write waits for storage, and operators are told what to do.
#[test]
fn a_server_whose_commits_were_deleted_says_that_it_must_be_restarted() {
    let folder = crate::common::fresh_path("");
    let flags = format!(
        "serve --listen=127.0.0.1:0 --admin=127.0.0.1:0 --local-memory-size=256MiB --durability=storage=flush --path={}",
        folder.display()
    );
    let mut server = start(&flags);
    let admin = admin_of(&mut server);
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!(redis(&port, &["set", "key", "value"]), "OK");
    let (commits, aside) = (folder.join("default/commit"), folder.join("aside"));
    std::fs::rename(&commits, &aside).unwrap();
    let mut looks = 0;
    while value(&get(&admin, "/metrics"), "forebay_ready") > 0.0 {
        looks += 1;
        assert!(looks < 600, "waited too long: {}", server.problem());
        server.pause(Duration::from_millis(100));
    }
    let says = "restart what serves it";
    let says_so = || {
        let status: serde_json::Value = serde_json::from_str(&get(&admin, "/api/status")).unwrap();
        assert!(status["process"]["not_ready"].as_str().unwrap().contains(says), "{status}");
        assert!(redis(&port, &["set", "key", "other"]).contains(says));
        assert_eq!(redis(&port, &["get", "key"]), "value");
    };
    says_so();
    assert!(server.problem().contains(says), "{}", server.problem());
    let _ = std::fs::remove_dir(&commits);
    std::fs::rename(&aside, &commits).unwrap();
    // The server looks again each second.
    server.pause(Duration::from_millis(2500));
    says_so();
    drop(server);
    let mut server = start(&flags);
    admin_of(&mut server);
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!(redis(&port, &["set", "key", "other"]), "OK");
}

#[test]
fn a_server_shows_its_clients_and_its_database() {
    let flags = "--listen=127.0.0.1:0 --admin=127.0.0.1:0 --local-memory-size=512MiB --durability=none";
    let mut server = start(&format!("serve {flags}"));
    let admin = admin_of(&mut server);
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    redis(&port, &["config", "set", "slowlog-log-slower-than", "0"]);
    redis(&port, &["set", "key", "\x1b[31m\"value\n"]);
    redis(&port, &["get", "key"]);
    let metrics = get(&admin, "/metrics");
    lint(&metrics);
    assert_eq!(value(&metrics, "forebay_ready"), 1.0);
    assert!(value(&metrics, "forebay_commands_total") >= 3.0);
    assert_eq!(value(&metrics, "forebay_command_duration_seconds_count{kind=\"write\"}"), 1.0);
    assert!(value(&metrics, "forebay_command_duration_seconds_count{kind=\"read\"}") >= 2.0);
    assert!(value(&metrics, "forebay_memtable_bytes") > 0.0);
    assert_eq!(value(&metrics, "forebay_memory_node_memory_bytes{node=\"0\"}"), f64::from(512 << 20));
    let status: serde_json::Value = serde_json::from_str(&get(&admin, "/api/status")).unwrap();
    let slow = status["clients"]["slow"][1]["command"].as_str().unwrap();
    assert_eq!(slow, r#""set" "key" "\x1b[31m\"value\n""#);
    assert_eq!(get(&admin, "/readyz"), "ready\n");

    let shown = run(&format!("top {admin} --once --interval=100ms")).expect(0).out;
    for part in ["CLIENTS", "TRAFFIC", "TREE", "STALLS", "MEMORY NODES", "SLOW COMMANDS"] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let report = run(&format!("top http://{admin}/ --once --interval=100ms --format=json")).expect(0).json();
    assert!(report["rates"]["seconds"].as_f64().unwrap() > 0.05);
    assert_eq!(report["status"]["process"]["role"], "serve");
    let hint = "is this the address that the process prints after `admin`?";
    let of_clients = run(&format!("top 127.0.0.1:{port} --once")).expect(3);
    assert!(of_clients.error.contains(hint), "{of_clients:?}");
    server.signal(Signal::INT);
    server.wait_stopped();
    assert!(run(&format!("top {admin} --once")).expect(3).error.contains(hint));
}

#[test]
fn a_memory_node_shows_its_tenants_and_a_worker_its_jobs() {
    let mut node = start("memory-node --listen=tcp://127.0.0.1:0 --memory=64MiB --admin=127.0.0.1:0");
    let admin = admin_of(&mut node);
    let address = node.out().lines().next().unwrap().strip_prefix("ready ").unwrap().to_owned();
    let mut worker = start(&format!("worker --memory={address} --admin=127.0.0.1:0"));
    let admin_of_worker = admin_of(&mut worker);
    let listen = "--listen=tcp://127.0.0.1:0 --admin=127.0.0.1:0";
    let mut scheduler = start(&format!("scheduler --memory={address} {listen}"));
    let admin_of_scheduler = admin_of(&mut scheduler);

    let metrics = get(&admin, "/metrics");
    lint(&metrics);
    assert!(value(&metrics, "forebay_tenant_sessions{tenant=\"anonymous\"}") >= 1.0);
    assert!(value(&metrics, "forebay_tenant_endpoints{tenant=\"anonymous\"}") >= 1.0);
    assert_eq!(value(&metrics, "forebay_tenant_most_endpoints{tenant=\"anonymous\"}"), f64::INFINITY);
    let shown = run(&format!("tenants --memory {address} --format json")).expect(0).json();
    assert!(shown["tenants"][0]["endpoints"].as_u64().unwrap() >= 1, "{shown}");
    assert!(shown["tenants"][0]["most_endpoints"].is_null(), "{shown}");
    let shown = run(&format!("tenants --memory {address}")).expect(0).out;
    assert!(shown.contains("endpoints    of"), "{shown}");
    assert!(value(&metrics, "forebay_connections_total{outcome=\"admitted\"}") >= 1.0);
    let metrics = get(&admin_of_worker, "/metrics");
    lint(&metrics);
    assert_eq!(value(&metrics, "forebay_worker_failed_attempts_total"), 0.0);
    let metrics = get(&admin_of_scheduler, "/metrics");
    lint(&metrics);
    assert!(value(&metrics, "forebay_scheduler_term") >= 0.0);
    for admin in [&admin, &admin_of_worker, &admin_of_scheduler] {
        assert_eq!(get(admin, "/healthz"), "ok\n");
    }
    for running in [scheduler, worker, node] {
        running.signal(Signal::TERM);
        running.wait_stopped();
    }
}

#[test]
fn a_usual_address_that_is_taken_is_no_error_and_one_that_is_given_is() {
    let serve = "serve --listen=127.0.0.1:0 --local-memory-size=512MiB --durability=none";
    let mut first = start(serve);
    let mut second = start(serve);
    first.until(|out| out.contains('\n'));
    second.until(|out| out.contains('\n'));
    let mut taken = start(&format!("{serve} --admin=127.0.0.1:0"));
    let address = admin_of(&mut taken);
    let refused = run(&format!("{serve} --admin={address}"));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.error.contains("listening for operators on"), "{refused:?}");
    for running in [first, second, taken] {
        running.signal(Signal::INT);
        running.wait_stopped();
    }
}

#[test]
fn the_screen_of_top_on_a_terminal() {
    let mut node = start("memory-node --listen=tcp://127.0.0.1:0 --memory=64MiB --admin=127.0.0.1:0");
    let admin = admin_of(&mut node);
    let mut top = Top::start(&admin);
    top.press("q");
    let (code, screen) = top.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("MEMORY NODES"), "{screen}");
    assert_restored(&screen);
    node.signal(Signal::TERM);
    node.wait_stopped();
}

/// `forebay top` on a pseudo terminal.
struct Top {
    child: Child,
    keys: ChildStdin,
    out: ChildStdout,
    screen: Vec<u8>,
    /// How much of the output was searched.
    seen: usize,
}

impl Top {
    /// Starts it, and returns when it shows something.
    fn start(admin: &str) -> Self {
        // `script` runs a command on a pseudo terminal, whose keys are its standard input. The shell says which process it is, and
        // becomes the command.
        let line = format!("echo process $$; exec {} top {admin} --interval=50ms", env!("CARGO_BIN_EXE_forebay"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut top = Self { child, keys, out, screen: Vec::new(), seen: 0 };
        top.until("q ends");
        top
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text is drawn.
    fn until(&mut self, text: &str) {
        let mut byte = [0];
        while !String::from_utf8_lossy(&self.screen[self.seen..]).contains(text) {
            assert_eq!(self.out.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&self.screen));
            self.screen.push(byte[0]);
        }
        self.seen = self.screen.len();
    }

    fn signal(&self, signal: Signal) {
        let screen = String::from_utf8_lossy(&self.screen);
        let process = screen.split_once("process ").unwrap().1.split_whitespace().next().unwrap();
        rustix::process::kill_process(Pid::from_raw(process.parse().unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits until it has ended. Returns its exit code, and all that was drawn.
    fn end(mut self) -> (Option<i32>, String) {
        self.out.read_to_end(&mut self.screen).unwrap();
        let code = self.child.wait().unwrap().code();
        // The input of `script` stays open until then: `script` ends the command when its input ends.
        drop(self.keys);
        (code, String::from_utf8_lossy(&self.screen).into_owned())
    }
}

/// Checks that it took another screen and hid the cursor, and restored both.
fn assert_restored(screen: &str) {
    for (taken, given) in [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")] {
        assert!(screen.find(taken).unwrap() < screen.rfind(given).unwrap(), "{screen}");
    }
}

#[test]
fn signals_end_the_terminal_as_it_was() {
    let mut node = start("memory-node --listen=tcp://127.0.0.1:0 --memory=64MiB --admin=127.0.0.1:0");
    let admin = admin_of(&mut node);
    for (signal, expected) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let top = Top::start(&admin);
        top.signal(signal);
        let (code, screen) = top.end();
        assert_eq!(code, Some(expected), "{screen}");
        assert_restored(&screen);
    }
    node.signal(Signal::TERM);
    node.wait_stopped();
}

#[test]
fn the_terminal_goes_on_while_nobody_answers() {
    let command = "memory-node --listen=tcp://127.0.0.1:0 --memory=64MiB --admin";
    let mut node = start(&format!("{command}=127.0.0.1:0"));
    let admin = admin_of(&mut node);
    let mut top = Top::start(&admin);
    node.signal(Signal::TERM);
    node.wait_stopped();
    top.until("NO ANSWER");
    // The last figures stay.
    top.until("MEMORY NODES");
    let node = start(&format!("{command}={admin}"));
    // Everything is drawn anew, with another first line.
    top.until("\x1b[1mforebay memory-node");
    node.signal(Signal::STOP);
    top.press("q");
    let (code, screen) = top.end();
    assert_eq!(code, Some(0), "{screen}");
    assert_restored(&screen);
    node.signal(Signal::CONT);
    node.signal(Signal::TERM);
    node.wait_stopped();
}

#[test]
fn nodes_that_answer_are_shown_beside_one_that_does_not() {
    let mut nodes = [0; 3].map(|_| start("memory-node --listen=tcp://127.0.0.1:0 --memory=256MiB"));
    let addresses = nodes.each_mut().map(|node| {
        node.until(|out| out.contains('\n'));
        node.out().lines().next().unwrap().strip_prefix("ready ").unwrap().to_owned()
    });
    let memory = addresses.join(",");
    let flags = "--listen=127.0.0.1:0 --admin=127.0.0.1:0 --shards=3 --durability=none";
    let mut server = start(&format!("serve {flags} --memory={memory}"));
    let admin = admin_of(&mut server);
    let [first, second, third] = nodes;
    second.signal(Signal::KILL);
    let mut metrics = get(&admin, "/metrics");
    while value(&metrics, "forebay_memory_node_up{node=\"1\"}") != 0.0 {
        metrics = get(&admin, "/metrics");
    }
    lint(&metrics);
    for node in [0, 2] {
        assert_eq!(value(&metrics, &format!("forebay_memory_node_up{{node=\"{node}\"}}")), 1.0);
        let offered = value(&metrics, &format!("forebay_memory_node_memory_bytes{{node=\"{node}\"}}"));
        assert_eq!(offered, f64::from(256 << 20));
    }
    let status: serde_json::Value = serde_json::from_str(&get(&admin, "/api/status")).unwrap();
    assert_eq!(status["memory_nodes"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["lost_nodes"][0]["node"], "1", "{status}");
    assert!(status["process"]["not_ready"].as_str().unwrap().starts_with("memory node 1: "), "{status}");
    drop((server, first, second, third));
}
