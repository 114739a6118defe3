//! When storage gets the tables that the log still holds.
//!
//! Later means fewer bytes written, because what was compacted away meanwhile need not go there. But the log gets
//! longer, and memory holds what only the version in storage names.

use crate::terms::Options;

/// How far storage lags behind a shard's tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lag {
    /// Bytes of memtables that were flushed since.
    pub(crate) flushed_bytes: u64,
    /// Bytes of memory that nothing else needs.
    pub(crate) held_bytes: u64,
    pub(crate) is_memory_short: bool,
    /// The log has become long, and nothing else keeps it from being trimmed.
    pub(crate) holds_log: bool,
    /// Tables have waited for as long as they may.
    pub(crate) is_old: bool,
    /// Storage refused the tables when it was to get them. This is tried again, whether or not it would still be due.
    pub(crate) was_refused: bool,
}

impl Lag {
    /// Whether storage is to get the tables now.
    pub(crate) fn is_due(&self, options: &Options) -> bool {
        let most = options.storage_lag_bytes();
        self.flushed_bytes >= most
            || self.held_bytes >= most
            || self.holds_log
            || self.is_old
            || self.was_refused
            || self.is_memory_short && self.held_bytes > 0
    }
}

/// Whether this many bytes of flushed memtables are so much for the log that nothing more is flushed before storage has
/// their tables.
pub(crate) fn is_too_long(options: &Options, flushed_bytes: u64) -> bool {
    flushed_bytes > options.storage_lag_bytes().saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_gets_tables_when_the_log_is_long_or_memory_is_wanted() {
        let options = Options { write_buffer_bytes: 100, storage_lag_memtables: 3, ..Options::default() };
        let none = Lag {
            flushed_bytes: 0,
            held_bytes: 0,
            is_memory_short: false,
            holds_log: false,
            is_old: false,
            was_refused: false,
        };
        let is_due = |lag: Lag| lag.is_due(&options);
        assert!(!is_due(none) && !is_due(Lag { flushed_bytes: 299, held_bytes: 299, ..none }));
        assert!(is_due(Lag { flushed_bytes: 300, ..none }) && is_due(Lag { held_bytes: 300, ..none }));
        assert!(is_due(Lag { holds_log: true, ..none }) && is_due(Lag { is_old: true, ..none }));
        assert!(is_due(Lag { was_refused: true, ..none }));
        let short = Lag { is_memory_short: true, ..none };
        assert!(!is_due(Lag { flushed_bytes: 299, ..short }), "no memory would come back");
        assert!(is_due(Lag { held_bytes: 1, ..short }));
        assert!(!is_too_long(&options, 600) && is_too_long(&options, 601));
    }
}
