//! How the simulated fabric behaves.

use crate::RevocationMode;

/// The order in which operations of one endpoint take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As posted: [`Capabilities::ordered`](crate::Capabilities::ordered).
    Total,
    /// Writes and messages among themselves, and reads and atomics after all before them; a write
    /// may overtake an earlier read or atomic unless fenced. Reliable connections of verbs behave
    /// so.
    Writes,
    /// Any order, unless fenced; messages stay in order among themselves.
    None,
}

/// The clock for the endpoints' deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The network's own clock, which polling and blocking move: one thread, repeatable.
    /// Endpoints use it whatever their options say.
    Virtual,
    /// The endpoints' clocks; blocking really blocks. For several threads.
    Real,
}

/// Faults: how many of a million operations each strikes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// None, some or all of the operation's effect happens, now or later, and it ends with an
    /// error or never.
    pub lose_completion: u32,
    /// The endpoint breaks before the operation begins.
    pub break_endpoint: u32,
    /// The link ends.
    pub close_link: u32,
    /// The node crashes.
    pub crash_node: u32,
}

/// A bug that the checkers must find: a test of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Operations in flight continue to write after their key was revoked.
    WriteAfterRevoke,
    /// A fetch-and-add is sometimes applied twice.
    ApplyTwice,
    /// Writes land in pieces of 4 bytes.
    TornWord,
    /// A line of a write is sometimes not written.
    LostWrite,
    /// A write sometimes completes before it has landed.
    CompletionBeforeEffect,
    /// A node that has restarted accepts the keys of its earlier life.
    StaleKeyHonoured,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WriteAfterRevoke,
        Self::ApplyTwice,
        Self::TornWord,
        Self::LostWrite,
        Self::CompletionBeforeEffect,
        Self::StaleKeyHonoured,
    ];
}

/// How the simulated fabric behaves.
#[derive(Debug, Clone, Copy)]
pub struct SimOptions {
    /// Bytes that land at once: 64, or 8 in the harsher mode. Aligned in the target's memory.
    pub line_bytes: usize,
    /// Order within an endpoint.
    pub order: Order,
    /// How the node's grants are revoked.
    pub revocation: RevocationMode,
    /// The clock for deadlines.
    pub time: Time,
    /// Random faults.
    pub faults: Faults,
    /// Average number of steps by which a poll advances everything.
    pub steps_per_poll: u32,
    /// An operation with fewer missing lines than this lands one line in a step, other operations a
    /// share of their lines.
    pub single_lines: u32,
    /// A planted bug.
    pub plant: Option<Plant>,
}

impl Default for SimOptions {
    /// Lines of 64 bytes, the order of verbs, enforced revocation, virtual time, no faults.
    fn default() -> Self {
        Self {
            line_bytes: 64,
            order: Order::Writes,
            revocation: RevocationMode::Enforced,
            time: Time::Virtual,
            faults: Faults::default(),
            steps_per_poll: 4,
            single_lines: 128,
            plant: None,
        }
    }
}
