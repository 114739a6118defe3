//! A memory node in one process and the engine in another, over each back end between processes.

use crate::common::{places, run, start, start_node};
use rustix::process::Signal;
use std::path::PathBuf;

/// The recorded traces, if present: beside the checkout or beside the directory around it.
fn traces() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|above| above.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("no recorded traces beside this checkout: only the made ones are replayed");
    }
    found
}

#[test]
fn load_and_read() {
    for place in places() {
        let (node, address) = start_node(&place, "--memory=512MiB");
        let line = "bench --num=20000 --benchmarks=fillseq,readrandom,compact,readrandom,readseq --format=json";
        let report = run(&format!("{line} --memory={address} --write_buffer_size=1MiB")).expect(0).json();
        let entries = report["benchmarks"].as_array().unwrap();
        for read in [&entries[1], &entries[3]] {
            assert!(read["fabric"]["round_trips"].as_u64().unwrap() <= 22_000, "{read}");
            assert_eq!(read["found"], 20_000, "{read}");
        }
        assert_eq!(entries[4]["found"], 20_000);
        assert!(entries[3]["memory_node"]["live_bytes"].as_u64().unwrap() > 20_000 * 400, "{}", entries[3]);
        node.signal(Signal::TERM);
        node.wait_stopped();
    }
}

/// A database that shares a node's memory is shown with its share while it is open.
#[test]
fn databases_that_share_a_pool() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=256MiB");
        let bench = |name: &str, share: u32| {
            let flags = "--num=100000000 --write-rate=10000 --benchmarks=fillrandom --write_buffer_size=1MiB";
            start(&format!("bench {flags} --memory={address} --db={name} --pool-share={share}"))
        };
        let [mut one, mut other] = [bench("one", 3), bench("other", 1)];
        for bench in [&mut one, &mut other] {
            bench.until_open();
        }
        let show = || run(&format!("pool --memory={address} --format=json")).expect(0).json()["nodes"][0].clone();
        let pool = show();
        let databases = pool["databases"].as_array().unwrap();
        let figure = |name: &str| [0, 1].map(|at| databases[at][name].as_u64().unwrap());
        assert_eq!([&databases[0]["database"], &databases[1]["database"]], ["one", "other"], "{pool}");
        assert_eq!(figure("weight"), [3, 1], "{pool}");
        let [larger, smaller] = figure("share_bytes");
        assert!(larger > 2 * smaller && smaller > 0 && figure("held_bytes").iter().all(|held| *held > 0), "{pool}");
        assert_eq!((figure("owed_bytes"), figure("sessions")), ([0, 0], [1, 1]), "{pool}");
        let table = run(&format!("pool --memory={address}")).expect(0).out;
        assert!(table.contains("\none ") && table.contains("\nother ") && table.contains("free: "), "{table}");
        drop(one);
        let alone =
            (0..500).map(|_| show()).find(|pool| pool["databases"].as_array().is_some_and(|all| all.len() == 1));
        let alone = alone.expect("a process that is gone shares no more");
        assert_eq!(alone["databases"][0]["database"], "other");
        assert!(alone["other_bytes"].as_u64().unwrap() > 0, "what the other one has flushed is there");
    }
    run("pool --memory=local").expect(2);
}

/// The shared tree reports what its nodes and values take, wherever its memory is.
#[test]
fn memory_of_the_shared_tree() {
    let check = |address: &str| {
        let line = "ycsb --engine=tree --records=20000 --value_size=8 --operations=1 --workload=c --format=json";
        let report = run(&format!("{line} --memory={address}")).expect(0).json();
        for entry in report["benchmarks"].as_array().unwrap() {
            let memory = &entry["memory_node"];
            let [allocated, live] = ["allocated_bytes", "live_bytes"].map(|name| memory[name].as_u64().unwrap());
            // 25 bytes a record, plus the client's spare memory.
            assert!((20_000 * 16..20_000 * 27 + (1 << 20)).contains(&live) && live <= allocated, "{memory}");
        }
    };
    check("local");
    for place in places() {
        let (node, address) = start_node(&place, "--memory=512MiB");
        check(&address);
        let left = run(&format!("tenants --memory={address} --format=json")).expect(0).json();
        assert_eq!(left["tenants"][0]["stores"], 0, "the tree outlives the command: {left}");
        node.signal(Signal::TERM);
        node.wait_stopped();
    }
}

/// Nobody else would drop it: it has a name of its own.
#[test]
fn the_tree_of_a_run_that_a_signal_ends_is_dropped() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=512MiB");
    for signal in [Signal::INT, Signal::TERM] {
        let line = "ycsb --engine=tree --records=1000 --operations=1000000000 --threads=2 --clients=2";
        let mut ycsb = start(&format!("{line} --memory={address}"));
        ycsb.until(|out| out.contains("operations a workload"));
        ycsb.signal(signal);
        let ended = ycsb.wait();
        assert!(ended.code.is_none() && ended.error.contains("the tree is dropped first"), "{ended:?}");
        let left = run(&format!("tenants --memory={address} --format=json")).expect(0).json();
        assert_eq!(left["tenants"][0]["stores"], 0, "{left}");
    }
}

#[test]
fn replay_of_traces() {
    let made = crate::common::fresh_path(".csv");
    let lines = (0..2000_u64).map(|i| {
        let op = if i % 3 == 0 { "28" } else { "2a" };
        format!("1,{i},{op},{},{}\n", 512 * (1 + i % 17), i * 7919 % 1000)
    });
    std::fs::write(&made, format!("version,time,op,size,lbn\n{}", lines.collect::<String>())).unwrap();
    let recorded = traces().map(|folder| [folder.join("cloudphysics-io.csv"), folder.join("oltp.lis.zst")]);
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=1GiB");
        for trace in recorded.iter().flatten().chain([&*made]) {
            // Memtables so small that writers wait for flushes. Some flushes are done when the
            // replay ends.
            let flags = "--limit=10000 --write_buffer_size=256KiB --format=json";
            let report = run(&format!("replay {} --memory={address} {flags}", trace.display())).expect(0).json();
            let entry = &report["benchmarks"][0];
            assert!(entry["found"].as_u64().unwrap() > 0 && entry["lsm"]["flushes"].as_u64().unwrap() > 0, "{entry}");
        }
    }
}

#[test]
fn the_fabric_test_over_both() {
    for (place, name) in places().iter().zip(["shm", "tcp"]) {
        let (_node, address) = start_node(place, "--memory=512MiB");
        let line = format!("fabric-test --memory={address} --seconds=0.01 --sizes=8,64 --depths=1,16 --format=json");
        let report = run(&line).expect(0).json();
        assert_eq!(report["back_end"], name);
        assert_eq!(report["fabric_test"].as_array().unwrap().len(), 2 * 2 * 2 + 2 * 2 + 1);
    }
}

#[test]
fn signals_stop_the_node_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        for place in places() {
            let (node, address) = start_node(&place, "--memory=256MiB --log=json");
            run(&format!("bench --num=1000 --memory={address}")).expect(0);
            node.signal(signal);
            let ended = node.wait();
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert_eq!(ended.out, format!("ready {address}\n"));
            for line in ended.error.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            }
            if let Some(path) = address.strip_prefix("shm:") {
                assert!(!PathBuf::from(path).exists(), "the socket is left behind");
            }
            run(&format!("bench --num=1000 --memory={address}")).expect(3);
        }
    }
}

#[test]
fn an_address_that_is_taken() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=256MiB");
        let ended = run(&format!("memory-node --listen={address} --memory=256MiB"));
        assert!(matches!(ended.code, Some(1 | 2)) && ended.out.is_empty(), "{ended:?}");
        assert!(ended.error.starts_with("forebay: ") && ended.error.lines().count() == 1, "{ended:?}");
    }
}

#[test]
fn two_compute_nodes_share_a_memory_node() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=1GiB");
        let line = format!(
            "bench --num=20000 --benchmarks=fillrandom,readrandom,readseq --write_buffer_size=1MiB --memory={address}"
        );
        let (first, second) = (start(&line), start(&format!("{line} --seed=2")));
        first.wait().expect(0);
        second.wait().expect(0);
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask e2e"]
fn two_million_records_and_whole_traces() {
    let recorded = traces().map(|folder| [folder.join("cloudphysics-io.csv"), folder.join("oltp.lis.zst")]);
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=8GiB");
        let line = "bench --num=2000000 --reads=500000 --key_size=20 --value_size=400 --format=json \
                    --benchmarks=fillseq,readrandom,overwrite,waitforcompaction,readrandom,readseq";
        let report = run(&format!("{line} --memory={address}")).expect(0).json();
        for read in [1, 4, 5].map(|entry| &report["benchmarks"][entry]) {
            assert_eq!(read["found"], 500_000, "{read}");
            assert!(read["fabric"]["round_trips"].as_u64().unwrap() <= 550_000, "{read}");
        }
        for trace in recorded.iter().flatten() {
            let report = run(&format!("replay {} --memory={address} --format=json", trace.display())).expect(0).json();
            let operations = report["benchmarks"][0]["operations"].as_u64().unwrap();
            assert!([113_872, 914_145].contains(&operations), "{report}");
        }
    }
}
