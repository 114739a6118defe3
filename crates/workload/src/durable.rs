//! Figures of what a store does so that writes survive: its log, and its storage.

use serde::{Deserialize, Serialize};

/// What was done to storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StorageFigures {
    /// Objects read, as a whole or in part.
    pub objects_read: u64,
    /// Objects written.
    pub objects_written: u64,
    /// Objects deleted.
    pub objects_deleted: u64,
    /// Bytes of objects that were read.
    pub bytes_read: u64,
    /// Bytes of objects that were written. The log in files is not counted here.
    pub bytes_written: u64,
    /// Syncs of files and folders.
    pub syncs: u64,
}

/// What the log of writes did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LogFigures {
    /// Bytes of records that were logged.
    pub bytes: u64,
    /// Number of these records.
    pub records: u64,
    /// Shipments. Each ships all that was written since the one before.
    pub groups: u64,
    /// Records of a shipment.
    pub records_per_group: f64,
    /// Writers that waited while another one shipped.
    pub waits: u64,
    /// Bytes of tables that were copied from one memory node to others, where there are several copies.
    #[serde(default)]
    pub replicated_bytes: u64,
    /// Bytes of tables that those other nodes made themselves.
    #[serde(default)]
    pub rebuilt_bytes: u64,
}

/// What opening a store found of what earlier processes left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryFigures {
    /// Time that opening took, microseconds.
    pub open_us: u64,
    /// Writes that only the log had.
    pub records_replayed: u64,
    /// Logs in storage that were read.
    pub logs: u64,
    /// Bytes of records in them.
    pub log_bytes: u64,
    /// Bytes at the ends of logs that do not count: they were torn, and never acknowledged.
    pub cut_bytes: u64,
    /// Segments that memory still held.
    pub segments_held: u64,
    /// Segments that were read from storage.
    pub segments_loaded: u64,
    /// Bytes of these segments.
    pub bytes_loaded: u64,
    /// Objects that no version named.
    pub objects_swept: u64,
}

impl StorageFigures {
    /// What was done since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            objects_read: self.objects_read.saturating_sub(before.objects_read),
            objects_written: self.objects_written.saturating_sub(before.objects_written),
            objects_deleted: self.objects_deleted.saturating_sub(before.objects_deleted),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            syncs: self.syncs.saturating_sub(before.syncs),
        }
    }
}

impl LogFigures {
    /// Makes figures from these counts.
    #[must_use]
    pub fn new(bytes: u64, records: u64, groups: u64, waits: u64) -> Self {
        let records_per_group = records as f64 / groups.max(1) as f64;
        Self { bytes, records, groups, records_per_group, waits, replicated_bytes: 0, rebuilt_bytes: 0 }
    }

    /// Returns the same figures, with what other copies got.
    #[must_use]
    pub const fn with_copies(self, replicated_bytes: u64, rebuilt_bytes: u64) -> Self {
        Self { replicated_bytes, rebuilt_bytes, ..self }
    }

    /// What was done since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self::new(
            self.bytes.saturating_sub(before.bytes),
            self.records.saturating_sub(before.records),
            self.groups.saturating_sub(before.groups),
            self.waits.saturating_sub(before.waits),
        )
        .with_copies(
            self.replicated_bytes.saturating_sub(before.replicated_bytes),
            self.rebuilt_bytes.saturating_sub(before.rebuilt_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_a_difference() {
        let before = LogFigures::new(100, 10, 2, 5).with_copies(7, 1);
        let log = LogFigures::new(900, 90, 10, 5).with_copies(9, 1).since(&before);
        assert_eq!(log, LogFigures::new(800, 80, 8, 0).with_copies(2, 0));
        assert_eq!((log.records_per_group, log.replicated_bytes), (10.0, 2));
        let at = |syncs| StorageFigures { syncs, ..StorageFigures::default() };
        assert_eq!(at(7).since(&at(3)), at(4));
    }
}
