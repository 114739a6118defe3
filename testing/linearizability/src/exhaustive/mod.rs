//! All schedules of a few clients over a small tree: the clients are the real ones.
//!
//! A *schedule* is the order in which the one-sided operations of the clients take effect. The operations of one
//! doorbell take effect in their order, or, where the back end declares none, in any that its fences allow. A
//! read is under way from the moment when it may begin until its turn in the schedule. Each of its words has a
//! value that the word held in that time. All combinations are tried, up to a limit. A write takes effect at
//! once: writes longer than a word go to places that nobody else reads yet.
//!
//! What a client does next is a function of what it has found so far. So a schedule is not replayed with threads
//! that wait for each other: a client is run from its beginning with what it has found, up to the operations that
//! it posts next. The search is depth first, with a log to undo changes of the memory. A state is visited once.
//! It consists of the memory, what each client has found, what its reads under way may find, and which calls had
//! ended before which others began.
//!
//! If requested, all clients may die in each state. An observer then verifies the tree, which completes what was
//! begun, and reads all keys. An order must explain what all have seen. Where all clients have ended, each block
//! must be reachable, or in one process's list.
//!
//! | module | what |
//! |---|---|
//! | `memory`, `link` | words with a hash and a log; endpoints whose operations the search answers |
//! | `actor` | a client, its script, and where it is |
//! | `explore`, `observer` | the search and its checks |
//! | `script`, `scenario` | what clients do; what is tried |

mod actor;
mod explore;
mod link;
mod memory;
mod observer;
mod scenario;
mod script;

pub use scenario::{all, explore};
pub use script::{Scenario, Step};

/// What a search has covered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Coverage {
    /// Different states.
    pub states: u64,
    /// Schedules, which go through these states.
    pub schedules: f64,
    /// Turns of the longest schedule.
    pub longest: u64,
    /// Different things that clients have found.
    pub places: u64,
    /// Different contents of the memory that an observer has examined.
    pub memories: u64,
    /// States whose history was checked.
    pub checks: u64,
    /// Checked states where all clients had ended.
    pub ends: u64,
    /// Turns that were skipped because of too many switches.
    pub cut: u64,
    /// Reads for which not all ways of tearing were tried.
    pub simplified: u64,
}

impl Coverage {
    /// Adds what another search has covered.
    pub fn add(&mut self, other: &Self) {
        self.states += other.states;
        self.schedules += other.schedules;
        self.longest = self.longest.max(other.longest);
        self.places += other.places;
        self.memories += other.memories;
        self.checks += other.checks;
        self.ends += other.ends;
        self.cut += other.cut;
        self.simplified += other.simplified;
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { states, schedules, longest, places, memories, checks, ends, cut, simplified } = self;
        write!(
            f,
            "{schedules:.0} schedules of at most {longest} turns through {states} states; {places} places of clients, \
             {memories} contents of the memory; {checks} histories checked, {ends} of them at an end; {cut} turns left \
             out, {simplified} torn reads simplified"
        )
    }
}
