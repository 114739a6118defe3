//! Whether a lookup without point indexes, or the start of a scan, is delegated to the memory node (O3-LSM 4.5).
//!
//! Two ways lead to a record of a table whose index is not held. The reader reads an index block of each table with one
//! doorbell, and then the record: two round trips, and kilobytes for each table. Or it sends one message, and the
//! memory node looks into the blocks: one round trip, and tens of bytes for each table, but a turn of the node's
//! processor. A scan that reads takes a round trip for each level, and one for records; a delegated scan takes one in
//! all. Both ways are counted in bytes: a round trip counts as the bytes that would travel meanwhile.
//!
//! A node that reports waiting calls is spared: each of them adds the price of one message. The report fades with each
//! lookup that is not delegated because of it, so the node is asked again.

use crate::terms::Delegation;
use forebay_fabric::{Atomics, Capabilities};

/// Bytes that travel during a round trip: 2 microseconds at 100 Gb/s.
const ROUND_TRIP_BYTES: u64 = 25_000;
/// Round trips that a message costs where reads do not use the target's processor. Waking a thread across cores takes as
/// long as a hundred reads over shared memory, and as a few over a network.
const MESSAGE_ROUND_TRIPS: u64 = 16;

/// What a lookup of some keys, or the start of a scan, costs either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookupCost {
    /// Round trips of the reader, if it reads.
    pub(crate) one_sided_round_trips: u64,
    /// Bytes of the index blocks and records that the reader would read.
    pub(crate) one_sided_bytes: u64,
    /// Bytes of the message and its reply.
    pub(crate) delegated_bytes: u64,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delegating {
    delegation: Delegation,
    /// Round trips that a message costs at a node where nothing waits.
    message_round_trips: u64,
}

impl Delegating {
    /// How to decide for a node over a back end with these capabilities.
    pub(crate) fn new(delegation: Delegation, capabilities: &Capabilities) -> Self {
        let serves_reads = capabilities.atomics == Atomics::ByTargetCpu;
        Self { delegation, message_round_trips: if serves_reads { 1 } else { MESSAGE_ROUND_TRIPS } }
    }

    /// Whether anything is ever delegated.
    pub(crate) fn is_possible(self) -> bool {
        self.delegation != Delegation::Never
    }

    /// Whether to delegate a lookup, when the node reported `waiting` waiting calls.
    pub(crate) fn delegates(self, cost: LookupCost, waiting: u32) -> bool {
        match self.delegation {
            Delegation::Never => false,
            Delegation::Always => true,
            Delegation::Automatic => {
                let message = self.message_round_trips.saturating_mul(ROUND_TRIP_BYTES);
                let delegated = message.saturating_mul(1 + u64::from(waiting)).saturating_add(cost.delegated_bytes);
                let read = cost.one_sided_round_trips.saturating_mul(ROUND_TRIP_BYTES);
                delegated < read.saturating_add(cost.one_sided_bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_KEY: LookupCost =
        LookupCost { one_sided_round_trips: 2, one_sided_bytes: 4 * 4096 + 400, delegated_bytes: 600 };

    fn automatic(message_round_trips: u64) -> Delegating {
        Delegating { delegation: Delegation::Automatic, message_round_trips }
    }

    #[test]
    fn a_message_saves_a_round_trip_where_reads_use_the_processor_anyway() {
        assert!(automatic(1).delegates(ONE_KEY, 0));
        assert!(!automatic(MESSAGE_ROUND_TRIPS).delegates(ONE_KEY, 0));
        let (one_sided_bytes, delegated_bytes) = (64 * ONE_KEY.one_sided_bytes, 64 * 600);
        let many = LookupCost { one_sided_bytes, delegated_bytes, ..ONE_KEY };
        assert!(automatic(MESSAGE_ROUND_TRIPS).delegates(many, 0), "one message for many keys");
    }

    #[test]
    fn a_busy_node_is_spared() {
        let limit = (0..100).find(|&waiting| !automatic(1).delegates(ONE_KEY, waiting));
        assert_eq!(limit, Some(2));
    }

    #[test]
    fn the_option_decides_when_it_is_set() {
        for (delegation, expected) in [(Delegation::Never, false), (Delegation::Always, true)] {
            for message_round_trips in [1, MESSAGE_ROUND_TRIPS] {
                let delegating = Delegating { delegation, message_round_trips };
                assert_eq!(delegating.delegates(ONE_KEY, 1000), expected);
                assert_eq!(delegating.is_possible(), expected);
            }
        }
    }
}
