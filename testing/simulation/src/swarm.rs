//! How often a seed makes each kind of call, and how often each rare event happens.
//!
//! With the same weights in every seed, all histories are alike: each has a little of everything, and what needs two rare
//! things shortly after each other is met in hardly any. So each seed draws a factor for each kind, which says that it
//! never happens, happens as often as in the tables below, or happens much more often (swarm testing: Groce, Zhang, Eide,
//! Chen and Regehr, ISSTA 2012). Some seeds keep all the ordinary frequencies.
//!
//! The factors come from a random stream of their own, so the other parameters of a seed do not depend on them.

use forebay_env::Random;
use std::fmt;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Keeps its weight: see [`Swarm::drawn`].
    Put,
    PutExpiring,
    Merge,
    PutIf,
    Delete,
    Batch,
    Get,
    MultiGet,
    Scan,
    OpenWalker,
    Walk,
    DeleteRange,
    TakeSnapshot,
    ReadSnapshot,
    DropSnapshot,
    Flush,
    CompactRange,
    Sync,
    PassTime,
    Checkpoint,
    MoveBound,
}

/// Each kind of call with its ordinary weight.
const CALLS: [(Call, u64); 21] = [
    (Call::Put, 408),
    (Call::PutExpiring, 136),
    (Call::Merge, 96),
    (Call::PutIf, 64),
    (Call::Delete, 144),
    (Call::Batch, 112),
    (Call::Get, 288),
    (Call::MultiGet, 64),
    (Call::Scan, 48),
    (Call::OpenWalker, 48),
    (Call::Walk, 64),
    (Call::DeleteRange, 16),
    (Call::TakeSnapshot, 32),
    (Call::ReadSnapshot, 48),
    (Call::DropSnapshot, 32),
    (Call::Flush, 8),
    (Call::CompactRange, 1),
    (Call::Sync, 24),
    (Call::PassTime, 2),
    (Call::Checkpoint, 16),
    (Call::MoveBound, 2),
];

impl Call {
    /// Whether the call waits for no background work, unless it is stalled.
    pub(crate) const fn is_short(self) -> bool {
        !matches!(
            self,
            Self::Flush | Self::CompactRange | Self::Sync | Self::PassTime | Self::Checkpoint | Self::MoveBound
        )
    }
}

/// Something that happens now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A step of background work runs between two calls. Keeps its frequency: see [`Swarm::drawn`].
    Step,
    /// A step of background work runs while a call waits.
    StepInsideCall,
    /// A call is made while a step of background work waits.
    CallInsideStep,
    /// One of the next operations of a storage that fails goes wrong.
    StorageFault,
    /// The same, while a process opens the database.
    StorageFaultOfOpening,
    /// The database on a storage that fails is opened again.
    Reopening,
    /// A process that lost a node, or lacks copies, is given up.
    GivingUp,
    /// Lost nodes of a database with copies are started again.
    NodesReturn,
    /// Another process reads a checkpoint.
    CheckpointIsRead,
    /// Something is damaged.
    Damage,
    /// The damage is met with a strike, or ends.
    DamageEnds,
    /// Something is damaged when a process opens the database.
    DamageOfOpening,
    /// A worker is struck while it waits.
    WorkerStrike,
    /// The neighbour does something.
    NeighbourActs,
    /// It is killed instead.
    NeighbourDies,
    /// A value is large.
    LargeValue,
    /// A write has another durability than the database.
    OtherDurability,
    /// A range lies between any two keys.
    WideRange,
    /// Of the deliberate faults of the run, each is one: the factor multiplies how many are planned.
    Strike,
}

/// Each event with the chances among which it ordinarily comes once. What a chance is, such as a call or a wait, depends
/// on the event.
const EVENTS: [(Event, u64); 19] = [
    (Event::Step, 64),
    (Event::StepInsideCall, 16),
    (Event::CallInsideStep, 2),
    (Event::StorageFault, 200),
    (Event::StorageFaultOfOpening, 4),
    (Event::Reopening, 1000),
    (Event::GivingUp, 500),
    (Event::NodesReturn, 200),
    (Event::CheckpointIsRead, 100),
    (Event::Damage, 120),
    (Event::DamageEnds, 100),
    (Event::DamageOfOpening, 3),
    (Event::WorkerStrike, 2000),
    (Event::NeighbourActs, 64),
    (Event::NeighbourDies, 200),
    (Event::LargeValue, 50),
    (Event::OtherDurability, 20),
    (Event::WideRange, 40),
    (Event::Strike, 1),
];

/// Maximum factor.
const MOST: u64 = 30;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swarm {
    calls: [u64; CALLS.len()],
    events: [u64; EVENTS.len()],
}

impl Swarm {
    /// The frequencies of the tables.
    pub(crate) const ORDINARY: Self = Self { calls: [1; CALLS.len()], events: [1; EVENTS.len()] };

    /// Draws the factors of a seed. Puts and steps are as frequent as ever: without puts nothing goes on, and without steps
    /// tables pile up, and each read takes longer than the one before.
    pub(crate) fn drawn(random: &mut Random) -> Self {
        let mut swarm = Self::ORDINARY;
        if random.one_in(3, 5) {
            swarm.calls.iter_mut().chain(&mut swarm.events).for_each(|factor| *factor = any_factor(random));
            (swarm.calls[Call::Put as usize], swarm.events[Event::Step as usize]) = (1, 1);
        }
        swarm
    }

    /// Draws one of the calls that may be made, which include puts. None is more frequent than puts.
    pub(crate) fn call(&self, random: &mut Random, may_be_made: impl Fn(Call) -> bool) -> Call {
        let most = CALLS[Call::Put as usize].1;
        let weighted = CALLS.iter().zip(self.calls).filter(|((call, _), _)| may_be_made(*call));
        let weighted = weighted.map(|((call, weight), factor)| (*call, (weight * factor).min(most)));
        let mut at = random.below(weighted.clone().map(|(_, weight)| weight).sum());
        for (call, weight) in weighted {
            match at.checked_sub(weight) {
                Some(left) => at = left,
                None => return call,
            }
        }
        Call::Put
    }

    /// Whether this chance of an event is one at which it happens. That is at most every second one.
    pub(crate) fn happens(&self, event: Event, random: &mut Random) -> bool {
        let (_, chances) = EVENTS[event as usize];
        random.one_in(self.factor(event).min(chances / 2), chances)
    }

    /// How many times more often than ordinarily an event happens.
    pub(crate) const fn factor(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Whether calls of a kind are made.
    pub(crate) const fn makes(&self, call: Call) -> bool {
        self.calls[call as usize] > 0
    }
}

/// Draws a factor: none at all, once, or many times.
fn any_factor(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => 2 + random.below(MOST - 1),
        _ => 1,
    }
}

/// Only what is not ordinary.
impl fmt::Debug for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for ((call, _), factor) in CALLS.iter().zip(self.calls).filter(|(_, factor)| *factor != 1) {
            map.entry(call, &factor);
        }
        for ((event, _), factor) in EVENTS.iter().zip(self.events).filter(|(_, factor)| *factor != 1) {
            map.entry(event, &factor);
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 1000;

    #[test]
    fn the_tables_are_in_the_order_of_the_kinds() {
        assert!(CALLS.iter().enumerate().all(|(at, (call, _))| *call as usize == at));
        assert!(EVENTS.iter().enumerate().all(|(at, (event, _))| *event as usize == at));
    }

    #[test]
    fn a_third_of_the_seeds_is_ordinary_and_each_kind_is_off_or_frequent_in_some() {
        let swarms: Vec<_> = (0..SEEDS).map(|seed| Swarm::drawn(&mut Random::seeded(seed))).collect();
        let count = |is: &dyn Fn(&Swarm) -> bool| swarms.iter().filter(|swarm| is(swarm)).count() as u64;
        assert!(count(&|swarm| *swarm == Swarm::ORDINARY) >= SEEDS / 3);
        let varies = |factor: &dyn Fn(&Swarm) -> u64| {
            count(&|swarm| factor(swarm) == 0) > SEEDS / 10 && count(&|swarm| factor(swarm) > 9) > SEEDS / 20
        };
        assert!((1..CALLS.len()).all(|at| varies(&|swarm| swarm.calls[at])));
        assert!((1..EVENTS.len()).all(|at| varies(&|swarm| swarm.events[at])));
        assert!(swarms.iter().all(|swarm| [swarm.calls[0], swarm.events[0]] == [1, 1]));
    }

    #[test]
    fn what_is_off_never_comes_and_what_is_frequent_comes_often() {
        let mut swarm = Swarm::ORDINARY;
        (swarm.calls[Call::Get as usize], swarm.calls[Call::MoveBound as usize]) = (0, MOST);
        (swarm.events[Event::Damage as usize], swarm.events[Event::GivingUp as usize]) = (0, MOST);
        let mut random = Random::seeded(1);
        let calls: Vec<_> = (0..SEEDS).map(|_| swarm.call(&mut random, |call| call != Call::Scan)).collect();
        assert!(!calls.contains(&Call::Get) && !calls.contains(&Call::Scan));
        assert!(calls.iter().filter(|call| **call == Call::MoveBound).count() > 20);
        let mut count = |event| (0..SEEDS).filter(|_| swarm.happens(event, &mut random)).count();
        assert_eq!(count(Event::Damage), 0);
        assert!(count(Event::GivingUp) > 30);
    }
}
