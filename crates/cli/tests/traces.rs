//! The part of a server's traces that a collector on loopback gets.

mod common;

use common::{start, start_node};
use forebay::{CompactionPlace, NodeAddress, Options, Store};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

/// Receives requests over HTTP. It ends with the process.
struct Collector {
    port: u16,
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (port, kept) = (listener.local_addr().unwrap().port(), Arc::clone(&received));
        let take_all = move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = take(&stream);
                // Keep the request before the answer: the sender may end after it, and then the test looks.
                kept.lock().unwrap().push(request);
                stream.write_all(ANSWER).unwrap();
            }
        };
        drop(forebay_env::thread::spawn("collector", take_all).unwrap());
        Self { port, received }
    }

    /// Returns the spans, and the attributes of their sender.
    fn spans(&self) -> (Vec<Span>, BTreeMap<String, String>) {
        let (mut spans, mut sender) = (Vec::new(), BTreeMap::new());
        for of_resource in self.received.lock().unwrap().iter().flat_map(|request| &request.resource_spans) {
            for attribute in &of_resource.resource.as_ref().unwrap().attributes {
                if let Some(Value::StringValue(value)) = attribute.value.as_ref().and_then(|value| value.value.as_ref())
                {
                    sender.insert(attribute.key.clone(), value.clone());
                }
            }
            spans.extend(of_resource.scope_spans.iter().flat_map(|scope| scope.spans.clone()));
        }
        (spans, sender)
    }
}

/// Spans of this name.
fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// Checks that parts are in the trace of their whole, and within its time.
fn check_parts(spans: &[Span], name: &str) {
    let parts = named(spans, name);
    assert!(!parts.is_empty(), "{name}");
    for part in parts {
        let parent = spans.iter().find(|span| span.span_id == part.parent_span_id).unwrap();
        assert_eq!(parent.trace_id, part.trace_id);
        assert!(parent.start_time_unix_nano <= part.start_time_unix_nano);
        assert!(part.end_time_unix_nano <= parent.end_time_unix_nano);
    }
}

/// Takes the request of a connection.
fn take(stream: &TcpStream) -> ExportTraceServiceRequest {
    let mut lines = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    lines.read_line(&mut head).unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("content-type", kind)) => assert_eq!(kind, "application/x-protobuf"),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).unwrap();
    ExportTraceServiceRequest::decode(&body[..]).unwrap()
}

/// Makes a server carry out commands that fill several memtables, and end.
fn serve(flags: &str) {
    let mut server = start(&format!(
        "serve --listen=127.0.0.1:0 --admin=none --durability=none --local-memory-size=512MiB --write_buffer_size=1MiB {flags}"
    ));
    let ready = server.until(|out| out.contains('\n'));
    let port: u16 = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let value = "secret".repeat(200);
    for number in 0..5000 {
        write!(client, "SET key{number} {value}\r\n").unwrap();
    }
    client.write_all(b"GET key7\r\nQUIT\r\n").unwrap();
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).unwrap();
    assert_eq!(replies.len(), 5000 * 5 + value.len() + 9 + 5);
    server.signal(Signal::TERM);
    server.wait_stopped();
}

#[test]
fn a_collector_gets_what_commands_and_background_work_were_made_of() {
    let collector = Collector::start();
    serve(&format!("--traces=http://127.0.0.1:{} --traces-share=1", collector.port));
    let (spans, sender) = collector.spans();
    assert_eq!((&sender["service.name"][..], &sender["forebay.command"][..]), ("forebay", "serve"));
    let (commands, flushes) = (named(&spans, "commands"), named(&spans, "flush"));
    assert!(!commands.is_empty() && flushes.len() >= 4, "{} and {}", commands.len(), flushes.len());
    // A span that begins a trace has no parent.
    assert!(commands.iter().chain(&flushes).all(|span| span.parent_span_id.is_empty()));
    ["fetch", "commit", "call"].iter().for_each(|name| check_parts(&spans, name));
    let count = |span: &Span| {
        let count = span.attributes.iter().find(|attribute| attribute.key == "count").unwrap();
        match count.value.as_ref().unwrap().value {
            Some(Value::IntValue(count)) => count,
            _ => panic!("{count:?}"),
        }
    };
    assert!(commands.iter().map(|span| count(span)).sum::<i64>() >= 5001);
    assert!(!format!("{spans:?}").contains("secret"), "nothing that clients sent");
}

#[test]
fn a_collector_gets_what_jobs_of_a_worker_were_made_of() {
    let collector = Collector::start();
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0");
    let traces = format!("--traces=http://127.0.0.1:{} --traces-share=1", collector.port);
    let mut worker = start(&format!("worker --memory {address} {traces}"));
    worker.until(|out| out == "ready\n");
    let options = Options {
        write_buffer_bytes: 128 << 10,
        target_table_bytes: 128 << 10,
        compaction_place: CompactionPlace::Pool,
        ..Options::default()
    };
    let store = Store::connect(&address.parse::<NodeAddress>().unwrap(), options).unwrap();
    let is_offloaded = (0..100u32).any(|_| {
        (0..4000u32).for_each(|key| store.put(&key.to_be_bytes(), &[1; 100]).unwrap());
        store.flush().unwrap();
        store.wait_for_compactions().unwrap();
        store.statistics().offloaded_compactions > 0
    });
    assert!(is_offloaded);
    store.close().unwrap();
    worker.signal(Signal::TERM);
    worker.wait_stopped();
    let (spans, sender) = collector.spans();
    assert_eq!(&sender["forebay.command"][..], "worker");
    let jobs = named(&spans, "job");
    assert!(!jobs.is_empty() && jobs.iter().all(|span| span.parent_span_id.is_empty()));
    check_parts(&spans, "call");
}

#[test]
fn a_share_of_nothing_sends_nothing() {
    let collector = Collector::start();
    serve(&format!("--traces=http://127.0.0.1:{}/ --traces-share=0", collector.port));
    assert_eq!(collector.spans().0, []);
}

#[test]
fn an_address_that_is_none_is_refused() {
    for address in ["127.0.0.1:4318", "https://127.0.0.1:4318", "http://127.0.0.1", "http://"] {
        let ended = common::run(&format!("serve --traces={address}"));
        assert!(ended.code == Some(2) && ended.error.contains("--traces"), "{ended:?}");
    }
    // A scheduler traces nothing.
    let ended = common::run("scheduler --listen=shm:/nowhere --memory=shm:/nowhere --traces=http://127.0.0.1:4318");
    assert!(ended.code == Some(2) && ended.error.contains("unexpected argument '--traces'"), "{ended:?}");
}
