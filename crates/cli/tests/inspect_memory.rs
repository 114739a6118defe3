//! `inspect --memory`: databases on memory nodes of other processes, with an owner and without.

use crate::common::{Ended, places, run, start_node};
use forebay::{Durability, NodeAddress, Options, ShardBounds, Store};
use serde_json::{Value, json};

const KEYS: u32 = 3000;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Opens a database of two shards, and writes to it, with one record to each shard at the end.
fn open(addresses: &[NodeAddress], durability: Durability) -> Store {
    let options = Options {
        name: Some("orders".to_owned()),
        durability,
        shards: 2,
        shard_bounds: ShardBounds::Given(vec![key(KEYS / 2)]),
        write_buffer_bytes: 64 << 10,
        // Nothing changes once this is done, although the process lives.
        settle_after: None,
        ..Options::default()
    };
    let store = Store::connect_all(addresses, options).unwrap();
    (0..KEYS).for_each(|number| store.put(&key(number), &[b'v'; 100]).unwrap());
    store.flush().unwrap();
    store.wait_for_compactions().unwrap();
    [1, KEYS - 1].into_iter().for_each(|number| store.put(&key(number), b"behind the tables").unwrap());
    store
}

fn inspect(memory: &str, what: &str) -> Ended {
    let (command, rest) = what.split_once(' ').unwrap_or((what, ""));
    run(&format!("inspect {command} --memory {memory} --db orders --format json {rest}"))
}

/// Inspects everything, and returns the manifest.
fn look_at_all(memory: &str) -> Value {
    let manifest = inspect(memory, "manifest").expect(0).json();
    assert_eq!(manifest["problems"], json!([]));
    for table in manifest["tables"].as_array().unwrap() {
        let shown = inspect(memory, &format!("table --shard {} {}", table["shard"], table["table"])).expect(0).json();
        let entries = shown["entries"].as_array().unwrap().len() as u64;
        assert_eq!(entries, table["entries"].as_u64().unwrap().min(1000), "{table}");
    }
    for segment in manifest["segments"].as_array().unwrap().iter().take(4) {
        let name = format!("{}/{}", segment["shard"], segment["segment"]);
        let shown = inspect(memory, &format!("segment --limit 1 {name}")).expect(0).json();
        let rows = if segment["kind"] == "image" { &shown["entries"] } else { &shown["records"] };
        let count = rows.as_array().unwrap().len();
        // A part of the log may still be empty.
        assert!(count == 1 || segment["kind"] == "block of a memtable", "{segment}");
        assert_eq!(shown["segment"][0]["bytes"], segment["bytes"]);
    }
    manifest
}

#[test]
fn a_database_is_shown_with_an_owner_and_without() {
    for durability in [Durability::None, Durability::Memory { copies: 1 }] {
        let nodes = places().map(|listen| start_node(&listen, "--memory=256MiB"));
        let addresses: Vec<NodeAddress> = nodes.iter().map(|(_, address)| address.parse().unwrap()).collect();
        let memory = nodes.each_ref().map(|(_, address)| address.as_str()).join(",");
        let store = open(&addresses, durability);
        let manifest = look_at_all(&memory);
        let count = |list: &str| manifest[list].as_array().unwrap().len();
        assert_eq!((count("stores"), count("manifests"), count("shards")), (2, 2, 2));
        assert!(manifest["manifests"].as_array().unwrap().iter().all(|of| of["state"] == "whole"));
        let log = inspect(&memory, "log").expect(0).json();
        let needed = log["parts"].as_array().unwrap().iter().filter(|part| part["needed"] == "yes");
        assert_eq!(needed.count(), if durability == Durability::None { 0 } else { 2 }, "{log}");
        let text = run(&format!("inspect manifest --memory {memory} --db orders")).expect(0).out;
        assert!(text.contains("no problems") && text.contains("manifests: 2"), "{text}");
        // One of the nodes alone.
        let one = inspect(&addresses[0].to_string(), "manifest").expect(0).json();
        assert_eq!(one["shards"].as_array().unwrap().len(), 1);
        assert!(one["notes"][0]["detail"].as_str().unwrap().contains("name the others"), "{one}");
        assert_eq!(
            inspect(&memory, "manifest").expect(0).json()["manifests"],
            manifest["manifests"],
            "looking changed it"
        );
        store.put(b"key", b"goes on").unwrap();
        assert!(store.failure().is_none());
        store.close().unwrap();
        drop(store);
        look_at_all(&memory);
        // Nobody was fenced, and nobody has it open.
        run(&format!("verify --memory {memory} --db orders")).expect(0);
    }
}

#[test]
fn what_is_not_there_and_wrong_flags_are_told() {
    let (node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    open(&[address.parse().unwrap()], Durability::None).close().unwrap();
    assert!(inspect(&address, "table 77777").expect(1).error.contains("inspect manifest"));
    assert!(inspect(&address, "segment 7/7").expect(1).error.contains("no shard 7"));
    let at = format!("--memory {address}");
    assert!(run(&format!("inspect manifest {at} --db another")).expect(1).error.contains("there is no database"));
    assert!(run(&format!("inspect manifest {at} --path .")).expect(2).error.contains("--path"));
    assert!(run("inspect manifest --memory local --db orders").expect(2).error.contains("of this process"));
    assert!(run("inspect manifest --tls-name name --path .").expect(2).error.contains("--memory"));
    assert!(run("inspect manifest").expect(2).error.contains("say where the database lies"));
    drop(node);
    // A node is not asked for a name that nothing can have.
    assert!(inspect(&address, "segment default/segment").expect(2).error.contains("SHARD/SEGMENT"));
    assert!(inspect(&address, "log 1/1").expect(2).error.contains("has no number"));
    assert!(inspect(&address, "manifest").expect(3).error.contains("is a memory node running"));
}
