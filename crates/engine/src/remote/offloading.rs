//! This database's dealings with the scheduler: which jobs it wants placed, and what was decided about each (O3-LSM
//! 4.3).
//!
//! The decisions are those of [`forebay_offload::Owner`]. The threads that wait for their jobs take turns to talk to
//! the scheduler. The thread that does passes on the letters of the others, and receives what was decided for them.
//!
//! A scheduler that hangs costs the thread that asks it one time limit. It is then left alone for several times as
//! long, and jobs run without it. So do those that it has already placed, as nobody would learn of their end.

use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::atomic::{AtomicU32, Ordering};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, HashMap, Nanos};
use forebay_fabric::NodeIdentity;
use forebay_memory_client::{MemoryClient, Reach, SessionId};
use forebay_offload::{JobName, Letter, Load, Order, Owner, Package};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pauses between two talks with the scheduler. They grow with the time that a job takes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
/// How long a scheduler that did not answer is left alone, in multiples of the time waited for it.
const REST: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Offloading {
    scheduler: Arc<Reach>,
    database: u128,
    clock: Arc<dyn Clock>,
    threads: u32,
    /// Jobs that run here.
    at_home: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    owner: Owner,
    letters: Vec<Letter>,
    /// The party that the scheduler knows this database as.
    party: Option<(NodeIdentity, SessionId)>,
    /// What the thread that waits for each job must do.
    orders: HashMap<JobName, VecDeque<Order>>,
    /// Until then the scheduler is left alone.
    rests_until: Nanos,
}

impl State {
    /// Sorts the decider's orders by job.
    fn act(&mut self) {
        for order in self.owner.take_orders() {
            let name = match &order {
                Order::Send(message) => {
                    self.letters.push(Letter::Message(*message));
                    continue;
                }
                Order::Install { name, .. }
                | Order::EndKeys(name)
                | Order::FreeInputs(name)
                | Order::RunElsewhere(name, _) => *name,
            };
            if let Some(orders) = self.orders.get_mut(&name) {
                orders.push_back(order);
            }
        }
    }
}

/// A job that runs here, while this lives.
pub(crate) struct AtHome<'a>(&'a AtomicU32);

impl Drop for AtHome<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Offloading {
    /// Jobs are placed by the scheduler that `scheduler` reaches, or by the one at the first memory node, whose client
    /// is `first`. `threads` is the number of this database's threads for background work.
    pub(crate) fn new(
        scheduler: Option<Arc<Reach>>,
        first: &Arc<MemoryClient>,
        threads: usize,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let database = u128::from(first.node().incarnation) << 64 | u128::from(first.session().0);
        let scheduler = scheduler.unwrap_or_else(|| {
            let first = Arc::clone(first);
            Arc::new(Reach::new(move || Ok(Arc::clone(&first))))
        });
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        Arc::new(Self { scheduler, database, clock, threads, at_home: AtomicU32::new(0), state: Mutex::default() })
    }

    /// What names this database among all that the scheduler knows.
    pub(crate) fn database(&self) -> u128 {
        self.database
    }

    /// Notes that a job begins to run here.
    pub(crate) fn at_home(&self) -> AtHome<'_> {
        self.at_home.fetch_add(1, Ordering::Relaxed);
        AtHome(&self.at_home)
    }

    /// Whether the scheduler may be asked.
    ///
    /// # Errors
    /// `TimedOut` soon after it did not answer.
    pub(crate) fn check(&self) -> Result<()> {
        if self.clock.now() < lock(&self.state).rests_until {
            return Err(Error::new(ErrorKind::TimedOut, "the scheduler did not answer, and is left alone for a while"));
        }
        Ok(())
    }

    /// Asks for a job to be placed. [`Offloading::next`] says what became of it, within `patience`. A job that
    /// `must_not_wait` is placed at once or not at all: the caller is ready to run it.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or nobody schedules there: nothing was begun.
    pub(crate) fn prepare(
        &self,
        name: JobName,
        package: Package,
        patience: Duration,
        must_not_wait: bool,
    ) -> Result<()> {
        // It may also have something to say about other jobs.
        self.talk(Vec::new())?;
        let until = self.clock.now().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(Nanos::MAX));
        let active_threads = if must_not_wait { 0 } else { self.at_home.load(Ordering::Relaxed) };
        let home = Load { active_threads, threads: self.threads, ..Load::default() };
        let mut state = lock(&self.state);
        state.orders.insert(name, VecDeque::new());
        state.owner.prepare(name, package, home, until);
        state.act();
        Ok(())
    }

    /// Returns the next thing to do about a job.
    pub(crate) fn next(&self, name: JobName) -> Order {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let letters = {
                let mut state = lock(&self.state);
                if let Some(order) = state.orders.get_mut(&name).and_then(VecDeque::pop_front) {
                    if matches!(order, Order::FreeInputs(_) | Order::RunElsewhere(..)) {
                        state.orders.remove(&name);
                    }
                    return order;
                }
                std::mem::take(&mut state.letters)
            };
            // What could not be sent counts as a lost letter: time limits decide.
            let is_news = self.talk(letters);
            if !is_news.is_ok_and(|is_news| is_news) {
                self.clock.sleep(pause);
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }

    /// Notes that the outputs of an attempt were adopted.
    pub(crate) fn installed(&self, name: JobName) {
        self.decide(|owner| owner.installed(name));
    }

    /// Notes that the outputs of an attempt could not be adopted.
    pub(crate) fn refused(&self, name: JobName) {
        self.decide(|owner| owner.refused(name));
    }

    fn decide(&self, event: impl FnOnce(&mut Owner)) {
        let letters = {
            let mut state = lock(&self.state);
            event(&mut state.owner);
            state.act();
            std::mem::take(&mut state.letters)
        };
        if let Err(error) = self.talk(letters) {
            tracing::debug!(%error, "the scheduler is not told: it finds out by its time limits");
        }
    }

    /// Gives letters to the scheduler, and takes what it has for this database. Returns whether there was anything.
    fn talk(&self, letters: Vec<Letter>) -> Result<bool> {
        if let Err(error) = self.check() {
            let mut state = lock(&self.state);
            state.owner.tick(self.clock.now());
            state.act();
            return Err(error);
        }
        let begun = self.clock.now();
        let reached = self.scheduler.client();
        let exchanged = match &reached {
            Ok(client) => client.exchange(&letters).inspect_err(|error| {
                // Perhaps another scheduler has taken over.
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Fenced | ErrorKind::TimedOut) {
                    self.scheduler.forget(client);
                }
            }),
            Err(error) => Err(error.clone()),
        };
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let hangs = exchanged.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        if hangs {
            let waited = now.saturating_sub(begun);
            state.rests_until = now.saturating_add(waited.saturating_mul(REST));
        }
        let party = reached.as_ref().ok().map(|client| (client.node(), client.session()));
        if hangs || party.is_none() {
            state.owner.scheduler_lost();
        } else if std::mem::replace(&mut state.party, party) != party {
            state.owner.ask_again();
        }
        let result = exchanged.map(|(term, received)| {
            state.owner.meet(term);
            let is_news = !received.is_empty();
            for letter in received {
                if let Letter::Message(message) = letter {
                    state.owner.receive(&message);
                }
            }
            is_news
        });
        state.owner.tick(now);
        state.act();
        Ok(result?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::ManualClock;
    use forebay_memory_client::Error as ClientError;

    #[test]
    fn a_scheduler_that_does_not_answer_is_left_alone_for_a_while() {
        let (clock, asked) = (Arc::new(ManualClock::new()), Arc::new(AtomicU32::new(0)));
        let scheduler = {
            let (clock, asked) = (Arc::clone(&clock), Arc::clone(&asked));
            Reach::new(move || {
                clock.advance(Duration::from_secs(2));
                asked.fetch_add(1, Ordering::Relaxed);
                let message = "it hangs".to_owned();
                Err(ClientError::Unreachable { kind: ErrorKind::TimedOut, message })
            })
        };
        let offloading = Offloading {
            scheduler: Arc::new(scheduler),
            database: 1,
            clock: Arc::<ManualClock>::clone(&clock),
            threads: 1,
            at_home: AtomicU32::new(0),
            state: Mutex::default(),
        };
        let asked_by_talks = || {
            let before = asked.load(Ordering::Relaxed);
            (0..10).for_each(|_| assert_eq!(offloading.talk(Vec::new()).unwrap_err().kind(), ErrorKind::TimedOut));
            asked.load(Ordering::Relaxed) - before
        };
        assert_eq!(asked_by_talks(), 1);
        clock.advance(Duration::from_secs(7));
        assert!(offloading.check().is_err());
        assert_eq!(asked_by_talks(), 0);
        clock.advance(Duration::from_secs(1));
        offloading.check().unwrap();
        assert_eq!(asked_by_talks(), 1);
    }
}
