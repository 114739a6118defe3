//! The cost of a key: Dolphin's table II, and bytes of a get against memory, by the options of a
//! tree.
//!
//! These are counts, taken in this process through the library.

use super::{Bench, Figure};
use crate::Outcome;
use forebay::{ClientOptions, MemoryClient, MemoryNode, MemoryNodeOptions, NodeAddress, Tree, TreeOptions};
use forebay_env::Random;
use forebay_workload::plot::{Plot, Scale};

/// Items of the paper's table II.
const PAPER_ITEMS: f64 = 512e6;
/// Number of counted gets.
const GETS: u64 = 20_000;
/// Numbers of slots of a bucket to try, and the maximum fill of a new leaf.
const SLOTS: [usize; 6] = [5, 7, 9, 11, 13, 15];
const FILLS: [usize; 4] = [50, 60, 67, 75];

/// Counts of a tree of random inserts.
#[derive(Debug, Clone, Copy)]
struct Counted {
    get_bytes: f64,
    remote_bytes_a_key: f64,
    cached_bytes_a_key: f64,
    keys_a_leaf: f64,
    insert_trips: f64,
    insert_bytes: f64,
}

/// How keys follow from numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Random,
    Dense,
}

impl Keys {
    fn key(self, number: u64) -> [u8; 8] {
        match self {
            Self::Random => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(),
            Self::Dense => number.to_be_bytes(),
        }
    }
}

/// Inserts records in random order into a new tree, reads all, and counts.
fn counted(options: &TreeOptions, keys: Keys, records: u64) -> Outcome<Counted> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let socket = std::env::temp_dir().join(format!("forebay-frontier-{}", std::process::id()));
    let address = NodeAddress::SharedMemory(socket);
    let listener = forebay::listen(&address, forebay::ListenOptions { node: 1, ..Default::default() })
        .map_err(|error| said(&error))?;
    let memory = MemoryNodeOptions::with_memory((records * 100).max(1 << 28));
    let node = MemoryNode::start(listener, memory).map_err(|error| said(&error))?;
    let link = forebay::connect(&address).map_err(|error| said(&error))?;
    let session = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
    let session = MemoryClient::connect(link, "frontier", session).map_err(|error| said(&error))?;
    let measured = (|| {
        let mut client = Tree::create(&[session], "frontier", options.clone())?.client()?;
        let mut order: Vec<u64> = (0..records).collect();
        let mut random = Random::seeded(1);
        random.shuffle(&mut order);
        let before = client.counts();
        for &number in &order {
            client.insert(&keys.key(number), &number.to_le_bytes())?;
        }
        let inserts = client.counts() - before;
        client.tree().clear_cache();
        for number in 0..records {
            client.get(&keys.key(number))?;
        }
        let cached = client.tree().cached_bytes() as f64;
        let before = client.counts();
        for _ in 0..GETS {
            client.get(&keys.key(random.below(records)))?;
        }
        let gets = client.counts() - before;
        let statistics = client.verify()?;
        let each = |count: f64| count / records as f64;
        Ok(Counted {
            get_bytes: gets.bytes_read as f64 / GETS as f64,
            remote_bytes_a_key: each(statistics.bytes() as f64),
            cached_bytes_a_key: each(cached),
            keys_a_leaf: statistics.keys as f64 / statistics.leaves.max(1) as f64,
            insert_trips: each(inserts.round_trips as f64),
            insert_bytes: each((inserts.bytes_read + inserts.bytes_written) as f64),
        })
    })();
    let measured = measured.map_err(|error: forebay::tree::Error| said(&error));
    node.shutdown().map_err(|error| said(&error))?;
    measured
}

/// Dolphin's table II: memory for 512 million items.
pub fn table_2(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "Table II: memory for 512 million items",
        paper: "in the table; Dolphin's keys are dense, because a leaf of it spans 256 consecutive integers",
        remarks: "Of the tree the bytes a key of a run, inserted in random order, times 512 million, inner nodes included; \
                  it needs about as much as Sherman's and Dolphin's nodes and less cache than any, for random \
                  keys as for dense ones. Memory that chunks and free blocks hold in reserve is not counted.",
        header: vec![
            "system",
            "keys",
            "cache of a compute node, MB",
            "memory nodes, GB",
            "cached B/key",
            "remote B/key",
        ],
        ..Figure::default()
    };
    for (name, keys) in [("random", Keys::Random), ("dense", Keys::Dense)] {
        let Some(it) = figure.note(counted(&TreeOptions::default(), keys, bench.records)) else { continue };
        figure.row([
            "**Forebay's tree**".to_owned(),
            name.to_owned(),
            format!("{:.0}", it.cached_bytes_a_key * PAPER_ITEMS / 1e6),
            format!("{:.1}", it.remote_bytes_a_key * PAPER_ITEMS / 1e9),
            format!("{:.2}", it.cached_bytes_a_key),
            format!("{:.1}", it.remote_bytes_a_key),
        ]);
    }
    for (name, cache_mb, memory_gb) in
        [("Dolphin", 320.0, 14.0), ("Sherman", 460.0, 12.0), ("Marlin", 460.0, 26.0), ("SMART", 5200.0, 156.0)]
    {
        figure.row([
            format!("{name} (paper)"),
            "dense".to_owned(),
            format!("{cache_mb:.0}"),
            format!("{memory_gb:.0}"),
            format!("{:.2}", cache_mb * 1e6 / PAPER_ITEMS),
            format!("{:.1}", memory_gb * 1e9 / PAPER_ITEMS),
        ]);
    }
    figure
}

/// Bytes of a get against memory a key and cached bytes a key.
pub fn frontier(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "The frontier: bytes of a get, memory, cache",
        remarks: "Slots of a bucket decide the bytes of a get; how full a new leaf is made decides memory against how often \
                  leaves are replaced. More slots fill better, because a bucket overflows later, and more buckets make \
                  larger leaves, of which fewer are remembered. The default (15 slots, 67 %) is where inserts are still \
                  cheap and a get fits into four lines of 64 B; `small_reads` (9 slots, 12 buckets) is for wires that are \
                  full of gets; 75 % for data that is loaded once. Below 9 slots memory rises steeply, since the \
                  control word is shared by fewer slots and buckets differ more. Dense keys are hashed within their leaf \
                  like any others, so they cost the same.",
        header: vec![
            "keys",
            "slots",
            "buckets",
            "fill, %",
            "bytes/get",
            "remote B/key",
            "cached B/key",
            "keys/leaf",
            "round trips/insert",
            "bytes/insert",
        ],
        ..Figure::default()
    };
    let records = bench.records / 5;
    let title = "bytes of a get";
    let mut memory = Plot::lines("Memory against bytes of a get", title, "remote bytes a key");
    let mut cache = Plot::lines("Cache against bytes of a get", title, "cached bytes a key");
    let mut tried: Vec<(Keys, usize, Vec<usize>)> =
        FILLS.iter().map(|&fill| (Keys::Random, fill, SLOTS.to_vec())).collect();
    tried.push((Keys::Dense, 67, vec![9, 15]));
    for (keys, fill_percent, all_slots) in tried {
        let (mut remote, mut cached) = (Vec::new(), Vec::new());
        for slots in all_slots {
            let most_buckets = (120 / slots).min(12);
            let options = TreeOptions { slots, most_buckets, fill_percent, ..TreeOptions::default() };
            let Some(it) = figure.note(counted(&options, keys, records)) else { continue };
            remote.push((it.get_bytes, it.remote_bytes_a_key));
            cached.push((it.get_bytes, it.cached_bytes_a_key));
            figure.row([
                if keys == Keys::Dense { "dense" } else { "random" }.to_owned(),
                slots.to_string(),
                most_buckets.to_string(),
                fill_percent.to_string(),
                format!("{:.0}", it.get_bytes),
                format!("{:.1}", it.remote_bytes_a_key),
                format!("{:.2}", it.cached_bytes_a_key),
                format!("{:.0}", it.keys_a_leaf),
                format!("{:.2}", it.insert_trips),
                format!("{:.0}", it.insert_bytes),
            ]);
        }
        if keys == Keys::Random {
            memory = memory.with(format!("filled to {fill_percent} %"), remote);
            cache = cache.with(format!("filled to {fill_percent} %"), cached);
        }
    }
    memory = memory.with("Dolphin (paper)", [(1088.0, 27.5)]).with("goal", [(160.0, 34.0), (256.0, 34.0)]);
    cache = cache.with("Dolphin (paper)", [(1088.0, 0.62)]).with("goal", [(160.0, 0.5), (256.0, 0.5)]);
    figure.plots.extend([memory, cache].map(|plot| plot.scaled(Scale::Logarithmic, Scale::Linear)));
    figure
}
