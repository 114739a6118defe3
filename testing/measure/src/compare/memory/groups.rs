//! The rows, in groups that share one database.

use crate::compare::db_bench::KEY_BYTES;

/// Most memory that a record takes besides key and value, in either system.
const OVERHEAD_BYTES: u64 = 40;

/// The work of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Fills with several threads, which share the operations, and waits until background work is done.
    Fill {
        /// Threads.
        threads: u64,
    },
    /// Fills without the triggers of level 0.
    Bulk,
    /// Fills, compacts, and reads: each workload runs twice, and the second run counts.
    Reads,
    /// Fills and scans without a requested compaction: right after the fill, and once background work is done.
    Scans {
        /// Threads, including those of the fill, which share its operations.
        threads: u64,
    },
}

/// The workloads of both systems for [`Work::Scans`]: two runs, each with its workloads and their figures. A
/// fill begins with an empty database.
pub const SCANS: [Scans; 2] = [
    Scans {
        reads_all: true,
        workloads: &[
            ("fillrandom", None),
            ("readseq", Some(Figure::ScanAtOnce)),
            ("fillrandom", None),
            ("waitforcompaction", None),
            ("readseq", Some(Figure::ScanQuiet)),
            ("readseq", Some(Figure::ScanQuietAgain)),
        ],
    },
    Scans {
        reads_all: false,
        workloads: &[
            ("fillrandom", None),
            ("waitforcompaction", None),
            ("seekrandom", None),
            ("seekrandom", Some(Figure::Seek)),
            ("readwhilescanning", Some(Figure::ReadWhileScanning)),
            ("readwhilewriting", Some(Figure::ReadWhileWriting)),
        ],
    },
];

/// A run of [`SCANS`].
#[derive(Debug, Clone, Copy)]
pub struct Scans {
    /// Whether each workload reads all records, or only a tenth.
    reads_all: bool,
    /// Names, with their figures.
    workloads: &'static [(&'static str, Option<Figure>)],
}

impl Scans {
    /// The workloads' names, as both systems accept them.
    pub fn names(&self) -> String {
        self.workloads.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    }

    /// Reads of each thread.
    pub const fn reads(&self, group: &Group) -> u64 {
        if self.reads_all { group.records } else { group.records / 10 }
    }

    /// The figures, from results in the order of the workloads: names and operations a second. RocksDB prints no
    /// figure of steps.
    pub fn figures(&self, results: impl IntoIterator<Item = (String, f64)>) -> Vec<(Figure, f64)> {
        let mut workloads = self.workloads.iter();
        let of_result = |(name, rate)| Some((workloads.find(|(wanted, _)| *wanted == name)?.1?, rate));
        results.into_iter().filter_map(of_result).collect()
    }
}

/// Rows that share a database.
#[derive(Debug, Clone)]
pub struct Group {
    /// The name for `--rows`.
    pub name: &'static str,
    /// Length of the values, bytes.
    pub value_bytes: u64,
    /// Records written.
    pub records: u64,
    /// What is done.
    pub work: Work,
    /// The rows.
    pub rows: &'static [Row],
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The figure of the group that it shows.
    pub figure: Figure,
    /// The goal as a multiple of RocksDB's figure, if there is a goal.
    pub goal: Option<f64>,
}

/// A figure of a group, in operations a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// `fillrandom`, until the last record is accepted.
    Fill,
    /// The same, until flushes and compactions are done.
    Quiet,
    /// `fillrandom` in bulk-load mode.
    Bulk,
    /// `readrandom`, one thread.
    Read,
    /// `readrandom`, two threads.
    ReadTwo,
    /// `multireadrandom`, batches of 16.
    MultiRead,
    /// `readseq`.
    Sequential,
    /// `readrandomwriterandom`, half reads.
    Mixed,
    /// `readseq` right after a fill, while compactions run.
    ScanAtOnce,
    /// The same once all is quiet.
    ScanQuiet,
    /// The same for the second time.
    ScanQuietAgain,
    /// `seekrandom`, with [`SEEK_NEXTS`].
    Seek,
    /// `readwhilewriting`.
    ReadWhileWriting,
    /// `readwhilescanning`.
    ReadWhileScanning,
}

/// Steps after each seek of `seekrandom`.
pub const SEEK_NEXTS: u64 = 50;

impl Figure {
    /// The workload's name and its setting.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fill => "fillrandom",
            Self::Quiet => "fillrandom until quiet",
            Self::Bulk => "fillrandom, bulk-load mode",
            Self::Read => "readrandom, 1 thread",
            Self::ReadTwo => "readrandom, 2 threads",
            Self::MultiRead => "multireadrandom, batches of 16",
            Self::Sequential => "readseq",
            Self::Mixed => "readrandomwriterandom 50:50",
            Self::ScanAtOnce => "readseq right after the fill",
            Self::ScanQuiet => "readseq once quiet",
            Self::ScanQuietAgain => "readseq once quiet, again",
            Self::Seek => "seekrandom, 50 nexts",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::ReadWhileScanning => "readwhilescanning",
        }
    }
}

const fn row(figure: Figure, goal: f64) -> Row {
    Row { figure, goal: if goal > 0.0 { Some(goal) } else { None } }
}

const MILLION: u64 = 1_000_000;

/// All groups: the table of goals.
pub const GROUPS: &[Group] = &[
    Group {
        name: "fill-1",
        value_bytes: 400,
        records: 5 * MILLION,
        work: Work::Fill { threads: 1 },
        rows: &[row(Figure::Fill, 5.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "fill-2",
        value_bytes: 400,
        records: 5 * MILLION,
        work: Work::Fill { threads: 2 },
        rows: &[row(Figure::Fill, 6.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "quiet",
        value_bytes: 400,
        records: 20 * MILLION,
        work: Work::Fill { threads: 2 },
        rows: &[row(Figure::Fill, 0.0), row(Figure::Quiet, 4.0)],
    },
    Group { name: "bulk", value_bytes: 400, records: 5 * MILLION, work: Work::Bulk, rows: &[row(Figure::Bulk, 6.0)] },
    Group {
        name: "reads",
        value_bytes: 400,
        records: 5 * MILLION,
        work: Work::Reads,
        rows: &[
            row(Figure::Read, 3.0),
            row(Figure::ReadTwo, 3.0),
            row(Figure::MultiRead, 4.0),
            row(Figure::Sequential, 5.0),
            row(Figure::Mixed, 4.0),
        ],
    },
    Group {
        name: "scans",
        value_bytes: 400,
        records: 5 * MILLION,
        work: Work::Scans { threads: 1 },
        rows: &[
            row(Figure::ScanAtOnce, 3.0),
            row(Figure::ScanQuiet, 5.0),
            row(Figure::ScanQuietAgain, 5.0),
            row(Figure::Seek, 0.0),
            row(Figure::ReadWhileScanning, 0.0),
            row(Figure::ReadWhileWriting, 0.0),
        ],
    },
    Group {
        name: "scans-2",
        value_bytes: 400,
        records: 5 * MILLION,
        work: Work::Scans { threads: 2 },
        rows: &[
            row(Figure::ScanAtOnce, 3.0),
            row(Figure::ScanQuiet, 5.0),
            row(Figure::ScanQuietAgain, 5.0),
            row(Figure::Seek, 0.0),
            row(Figure::ReadWhileScanning, 0.0),
            row(Figure::ReadWhileWriting, 0.0),
        ],
    },
    Group {
        name: "fill-64",
        value_bytes: 64,
        records: 5 * MILLION,
        work: Work::Fill { threads: 1 },
        rows: &[row(Figure::Fill, 2.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "fill-64-2",
        value_bytes: 64,
        records: 5 * MILLION,
        work: Work::Fill { threads: 2 },
        rows: &[row(Figure::Fill, 2.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "reads-64",
        value_bytes: 64,
        records: 5 * MILLION,
        work: Work::Reads,
        rows: &[
            row(Figure::Read, 2.0),
            row(Figure::ReadTwo, 2.0),
            row(Figure::MultiRead, 2.0),
            row(Figure::Sequential, 2.0),
        ],
    },
    Group {
        name: "fill-1k",
        value_bytes: 1024,
        records: 5 * MILLION,
        work: Work::Fill { threads: 1 },
        rows: &[row(Figure::Fill, 4.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "fill-1k-2",
        value_bytes: 1024,
        records: 5 * MILLION,
        work: Work::Fill { threads: 2 },
        rows: &[row(Figure::Fill, 4.0), row(Figure::Quiet, 0.0)],
    },
    Group {
        name: "reads-1k",
        value_bytes: 1024,
        records: 5 * MILLION,
        work: Work::Reads,
        rows: &[
            row(Figure::Read, 4.0),
            row(Figure::ReadTwo, 4.0),
            row(Figure::MultiRead, 4.0),
            row(Figure::Sequential, 4.0),
        ],
    },
];

impl Group {
    /// What the row is, for people.
    pub fn label(&self, row: &Row) -> String {
        let threads = match self.work {
            Work::Fill { threads } | Work::Scans { threads } => {
                format!(", {threads} thread{}", if threads == 1 { "" } else { "s" })
            }
            Work::Bulk | Work::Reads => String::new(),
        };
        let records = self.records as f64 / MILLION as f64;
        format!("{}{threads}, {records} million, {} B", row.figure.label(), self.value_bytes)
    }

    /// Reads of each thread of a read workload: enough to be steady, and to touch every block.
    pub fn reads(&self) -> u64 {
        self.records.min(2 * MILLION)
    }

    /// Bytes of all records, as written.
    pub fn data_bytes(&self) -> u64 {
        self.records * (KEY_BYTES + self.value_bytes + OVERHEAD_BYTES)
    }

    /// Writes of each thread of the fill.
    pub fn writes_per_thread(&self) -> u64 {
        match self.work {
            Work::Fill { threads } | Work::Scans { threads } => self.records / threads,
            Work::Bulk | Work::Reads => self.records,
        }
    }

    /// Threads of the fill.
    pub const fn fill_threads(&self) -> u64 {
        match self.work {
            Work::Fill { threads } | Work::Scans { threads } => threads,
            Work::Bulk | Work::Reads => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_writes() {
        for group in GROUPS {
            assert_eq!(group.writes_per_thread() * group.fill_threads(), group.records);
            assert!(!group.rows.is_empty());
        }
    }

    #[test]
    fn figures_of_scans_come_in_order_with_steps_or_without() {
        let result = |name: &str, rate: f64| (name.to_owned(), rate);
        let mut results = vec![result("fillrandom", 1.0), result("readseq", 2.0), result("fillrandom", 3.0)];
        results.extend([result("readseq", 4.0), result("readseq", 5.0)]);
        let expected = [(Figure::ScanAtOnce, 2.0), (Figure::ScanQuiet, 4.0), (Figure::ScanQuietAgain, 5.0)];
        assert_eq!(SCANS[0].figures(results.clone()), expected);
        results.insert(3, result("waitforcompaction", 9.0));
        assert_eq!(SCANS[0].figures(results), expected);
    }
}
