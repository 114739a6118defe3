//! Databases of O3-LSM's experiments: upper levels in a memory node, lower ones in a directory.

use super::Bench;
use crate::Outcome;
use crate::processes::MemoryNode;
use crate::scratch::Scratch;
use forebay_workload::PhaseReport;
use std::path::Path;

/// The folder of databases.
const FOLDER: &str = "target/figures";
pub(super) const KEY_BYTES: u64 = 16;
pub(super) const VALUE_BYTES: u64 = 64;

/// How a database is laid out.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) value_bytes: u64,
    /// Number of memtables, at the compute node and on their way to the memory node.
    pub(super) memtables: u64,
    /// Tables of level 0 at which writers are slowed down; they wait at half as many more (O3-LSM 5.1).
    pub(super) level0_tables: u64,
    /// MiB of a memtable and of a table.
    pub(super) table_mib: u64,
    /// Number of tables that fill level 1.
    pub(super) level1_tables: u64,
    /// First level in storage.
    pub(super) storage_from: u64,
    /// Where compactions run.
    pub(super) place: &'static str,
    /// Most bytes a second that a database moves to the storage, and the same from it; `None` for no limit.
    pub(super) storage_rate: Option<u64>,
    /// Who builds the indexes of flushes.
    pub(super) flush_place: &'static str,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            value_bytes: VALUE_BYTES,
            memtables: 8,
            level0_tables: 32,
            table_mib: 1,
            level1_tables: 4,
            storage_from: 2,
            place: "memory",
            storage_rate: None,
            flush_place: "compute",
        }
    }
}

impl Layout {
    pub(super) fn flags(&self, storage: &Path) -> Vec<String> {
        let mut flags = vec![
            format!("--value_size={}", self.value_bytes),
            format!("--max_write_buffer_number={}", self.memtables),
            format!("--storage-from-level={}", self.storage_from),
            format!("--compaction-place={}", self.place),
            format!("--flush-place={}", self.flush_place),
            format!("--storage={}", storage.display()),
            "--durability=storage=interval:1s".into(),
            "--compression=none".into(),
            "--block-cache=10MiB".into(),
            // Over the modelled networks, a block takes longer than the 30 us from which memory nodes keep it.
            "--memory-cache-after=0s".into(),
            format!("--write_buffer_size={}MiB", self.table_mib),
            format!("--target_file_size_base={}MiB", self.table_mib),
            format!("--max_bytes_for_level_base={}MiB", self.table_mib * self.level1_tables),
            format!("--level0_slowdown_writes_trigger={}", self.level0_tables),
            format!("--level0_stop_writes_trigger={}", self.level0_tables * 3 / 2),
            "--max_background_jobs=4".into(),
            "--verify=false".into(),
        ];
        flags.extend(self.storage_rate.map(|rate| format!("--storage-rate={rate}")));
        flags
    }

    /// Memory of a node that would hold all writes of a run, bytes.
    pub(super) fn memory_bytes(&self, writes: u64) -> u64 {
        (writes * (KEY_BYTES + self.value_bytes + 60) * 2).max(1 << 30)
    }
}

/// Runs workloads of `bench` on a memory node and a directory.
pub(super) fn on_node(
    bench: &Bench,
    node: &MemoryNode,
    storage: &Scratch,
    layout: &Layout,
    benchmarks: &str,
    more: &[String],
) -> Outcome<Vec<PhaseReport>> {
    let mut flags = layout.flags(storage.path());
    flags.extend([format!("--key_size={KEY_BYTES}"), format!("--benchmarks={benchmarks}")]);
    flags.extend_from_slice(more);
    bench.forebay.report("bench", &[node], &flags)
}

/// A directory for a database.
pub(super) fn storage() -> Outcome<Scratch> {
    Scratch::below(Path::new(FOLDER), "figure")
}
