//! Group commit: one of the threads that wait for the same thing does it for all of them.
//!
//! The thread that comes first is the *leader* and carries out a *turn*. A thread that comes during a turn waits for
//! the next turn, because the current one may miss its work. The next turn serves all such threads. The first of them
//! is *elected* to lead it. The end of a turn wakes the elected thread and the threads that the turn served. Nobody has
//! to be woken between a write and its round trip.
//!
//! Sleeping and being woken takes longer than a round trip to a memory node. So where turns are that short, a waiting
//! thread watches for their end a while before it sleeps.

use crate::terms::Result;
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock, relax};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a thread that waits for a short turn looks whether it has ended, before it sleeps: a few microseconds, and
/// then a few times after others had the core.
const LOOKS: u32 = 72;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    turns: Mutex<Turns>,
    /// How often a waiting thread looks before it sleeps.
    looks: u32,
    /// Whether a turn is under way: a hint for threads that look.
    is_busy: AtomicBool,
    /// Where the elected thread waits: never more than one.
    elected: Condvar,
    /// Where threads wait that want a turn of their own.
    apart: Condvar,
    /// Where threads wait that a turn serves, by whether its number is even or odd.
    served: [Condvar; 2],
}

/// What was decided about turns. It knows no threads.
#[derive(Debug, Default)]
struct Turns {
    /// The number of turns that have ended, which is the number of the last one.
    ended: u64,
    /// Whether a turn is under way, or offered.
    is_led: bool,
    /// To whom the next turn is offered, if it has not begun.
    offered: Option<Offer>,
    is_elected: bool,
    /// How many threads want a turn of their own.
    apart: usize,
    /// How many wait to be served, by whether the turn is even or odd.
    served: [usize; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    ToElected,
    ToOneApart,
}

/// What a thread does that wants a turn.
#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    Leads,
    /// Waits until the turn is offered to the elected one.
    IsElected,
    /// Waits until this turn has ended.
    WaitsFor(u64),
}

/// Whom the end of a turn wakes.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    offered: Option<Offer>,
    /// The place of the threads that were served, if there were any.
    served: Option<usize>,
}

const fn place(turn: u64) -> usize {
    (turn % 2) as usize
}

impl Turns {
    /// A thread wants to be served.
    fn arrive(&mut self) -> Arrival {
        if !self.is_led {
            self.is_led = true;
            return Arrival::Leads;
        }
        if !self.is_elected {
            self.is_elected = true;
            return Arrival::IsElected;
        }
        // A turn that is under way may have seen too little.
        let begins_with_it = self.offered == Some(Offer::ToElected);
        let turn = self.ended + if begins_with_it { 1 } else { 2 };
        self.served[place(turn)] += 1;
        Arrival::WaitsFor(turn)
    }

    /// Begins the turn if it is offered to such a thread: the elected one, or one that wants a turn of its own. Returns
    /// whether it did.
    fn take(&mut self, offer: Offer) -> bool {
        let takes = self.offered == Some(offer);
        if takes {
            self.offered = None;
            match offer {
                Offer::ToElected => self.is_elected = false,
                Offer::ToOneApart => self.apart -= 1,
            }
        }
        takes
    }

    /// Whether others wait for the turn that is under way.
    fn serves_others(&self) -> bool {
        self.served[place(self.ended + 1)] > 0
    }

    /// The turn that is under way has ended.
    fn end(&mut self) -> Ended {
        self.ended += 1;
        self.offered = if self.apart > 0 {
            Some(Offer::ToOneApart)
        } else if self.is_elected {
            Some(Offer::ToElected)
        } else {
            None
        };
        self.is_led = self.offered.is_some();
        let place = place(self.ended);
        let served = (std::mem::take(&mut self.served[place]) > 0).then_some(place);
        Ended { offered: self.offered, served }
    }
}

/// Ends the turn of the leading thread, even when it fails.
struct Leader<'a>(&'a Lead);

impl Leader<'_> {
    fn serves_others(&self) -> bool {
        lock(&self.0.turns).serves_others()
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let ended = {
            let mut turns = lock(&self.0.turns);
            self.0.is_busy.store(false, Ordering::Relaxed);
            turns.end()
        };
        // The next turn begins while those who were served come back.
        match ended.offered {
            Some(Offer::ToElected) => self.0.elected.notify_one(),
            Some(Offer::ToOneApart) => self.0.apart.notify_all(),
            None => {}
        }
        if let Some(place) = ended.served {
            self.0.served[place].notify_all();
        }
    }
}

impl Lead {
    /// For turns that take about as long as a round trip to a memory node.
    pub(crate) fn of_short_turns() -> Self {
        Self { looks: LOOKS, ..Self::default() }
    }

    /// Returns when `is_reached`. Until then leads, with `step`, or calls `waits` and waits for the leading thread.
    ///
    /// # Errors
    /// Those of a step that this call led for itself.
    pub(crate) fn reach(
        &self,
        is_reached: impl Fn() -> bool,
        waits: impl Fn(),
        step: impl Fn() -> Result<()>,
    ) -> Result<()> {
        loop {
            let mut round = 0;
            while round < self.looks && self.is_busy.load(Ordering::Relaxed) && !is_reached() {
                relax(&mut round);
            }
            if is_reached() {
                return Ok(());
            }
            let Some(leader) = self.lead_or_wait(&waits) else { continue };
            if !is_reached() {
                step()?;
            } else if leader.serves_others() {
                // The previous turn has also served the elected thread. An error is for the threads that are left: they
                // lead next.
                let _others = step();
            }
        }
    }

    fn lead_or_wait(&self, waits: impl Fn()) -> Option<Leader<'_>> {
        let mut turns = lock(&self.turns);
        match turns.arrive() {
            Arrival::Leads => {}
            Arrival::IsElected => {
                waits();
                drop(wait(&self.elected, turns, |turns| turns.take(Offer::ToElected)));
            }
            Arrival::WaitsFor(turn) => {
                waits();
                drop(wait(&self.served[place(turn)], turns, |turns| turns.ended >= turn));
                return None;
            }
        }
        Some(self.begin())
    }

    /// Begins the turn of the leading thread.
    fn begin(&self) -> Leader<'_> {
        self.is_busy.store(true, Ordering::Relaxed);
        Leader(self)
    }

    /// Runs `body` while nobody else leads.
    pub(crate) fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        let mut turns = lock(&self.turns);
        if turns.is_led {
            turns.apart += 1;
            drop(wait(&self.apart, turns, |turns| turns.take(Offer::ToOneApart)));
        } else {
            turns.is_led = true;
            drop(turns);
        }
        let _leader = self.begin();
        body()
    }
}

/// Waits at `condition` until `is_over`.
fn wait<'a>(
    condition: &Condvar,
    turns: MutexGuard<'a, Turns>,
    mut is_over: impl FnMut(&mut Turns) -> bool,
) -> MutexGuard<'a, Turns> {
    condition.wait_while(turns, |turns| !is_over(turns)).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Error;
    use forebay_env::Random;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    #[test]
    fn the_end_of_a_turn_wakes_whom_it_served_and_who_leads_next() {
        let mut turns = Turns::default();
        assert_eq!(turns.arrive(), Arrival::Leads);
        assert_eq!(turns.arrive(), Arrival::IsElected);
        assert_eq!(turns.arrive(), Arrival::WaitsFor(2));
        assert_eq!(turns.end(), Ended { offered: Some(Offer::ToElected), served: None });
        // A thread that comes before the turn begins is served by it.
        assert_eq!(turns.arrive(), Arrival::WaitsFor(2));
        assert!(!turns.take(Offer::ToOneApart));
        assert!(turns.take(Offer::ToElected) && turns.serves_others());
        assert_eq!(turns.arrive(), Arrival::IsElected);
        assert_eq!(turns.arrive(), Arrival::WaitsFor(3));
        turns.apart += 1;
        assert_eq!(turns.end(), Ended { offered: Some(Offer::ToOneApart), served: Some(place(2)) });
        assert_eq!(turns.arrive(), Arrival::WaitsFor(4));
        assert!(!turns.take(Offer::ToElected) && turns.take(Offer::ToOneApart));
        assert_eq!(turns.end(), Ended { offered: Some(Offer::ToElected), served: Some(place(3)) });
        assert!(turns.take(Offer::ToElected));
        assert_eq!(turns.end(), Ended { offered: None, served: Some(place(4)) });
        assert_eq!(turns.arrive(), Arrival::Leads);
    }

    /// Somebody in a schedule of [`nobody_waits_for_ever`].
    #[derive(Debug, Clone, Copy)]
    enum Actor {
        Away,
        Leads,
        IsElected,
        IsApart,
        WaitsFor(u64),
    }

    #[test]
    fn nobody_waits_for_ever() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let mut turns = Turns::default();
            let mut actors = [Actor::Away; 6];
            // Who may run: all but those that wait and were not woken.
            let mut awake = [true; 6];
            let mut served = 0;
            for round in 0..2000 {
                let candidates: Vec<_> = (0..actors.len()).filter(|&actor| awake[actor]).collect();
                assert!(!candidates.is_empty(), "seed {seed}, round {round}: all sleep, {actors:?} {turns:?}");
                let at = candidates[random.below(candidates.len() as u64) as usize];
                actors[at] = match actors[at] {
                    Actor::Away if random.below(20) == 0 && turns.is_led => {
                        turns.apart += 1;
                        Actor::IsApart
                    }
                    Actor::Away => match turns.arrive() {
                        Arrival::Leads => Actor::Leads,
                        Arrival::IsElected => Actor::IsElected,
                        Arrival::WaitsFor(turn) => Actor::WaitsFor(turn),
                    },
                    Actor::Leads => {
                        let ended = turns.end();
                        for (actor, awake) in actors.iter().zip(&mut awake) {
                            *awake |= match actor {
                                Actor::IsElected => ended.offered == Some(Offer::ToElected),
                                Actor::IsApart => ended.offered == Some(Offer::ToOneApart),
                                Actor::WaitsFor(turn) => ended.served == Some(place(*turn)),
                                Actor::Away | Actor::Leads => false,
                            };
                        }
                        Actor::Away
                    }
                    Actor::IsElected if turns.take(Offer::ToElected) => Actor::Leads,
                    Actor::IsApart if turns.take(Offer::ToOneApart) => Actor::Leads,
                    Actor::WaitsFor(turn) if turns.ended >= turn => {
                        served += 1;
                        Actor::Away
                    }
                    waiting => waiting,
                };
                awake[at] = matches!(actors[at], Actor::Away | Actor::Leads);
                let leaders = actors.iter().filter(|actor| matches!(actor, Actor::Leads)).count();
                assert!(leaders <= 1, "seed {seed}, round {round}: {actors:?}");
            }
            assert!(served > 100, "seed {seed}: {served} were served");
        }
    }

    #[test]
    fn threads_share_turns() {
        const THREADS: u64 = 8;
        const EACH: u64 = 2000;
        let lead = Lead::default();
        let (published, durable, steps) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let step = || {
            let number = published.load(Ordering::SeqCst);
            std::thread::yield_now();
            steps.fetch_add(1, Ordering::SeqCst);
            durable.store(number, Ordering::SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for at in 0..EACH {
                        let number = published.fetch_add(1, Ordering::SeqCst) + 1;
                        let is_reached = || durable.load(Ordering::SeqCst) >= number;
                        if at % 100 == 0 {
                            lead.alone(step).unwrap();
                        }
                        lead.reach(is_reached, || (), step).unwrap();
                        assert!(is_reached());
                    }
                });
            }
        });
        assert!(steps.load(Ordering::SeqCst) <= THREADS * EACH * 101 / 100);
    }

    #[test]
    fn a_step_that_fails_is_an_error_for_who_led_it_and_tried_again_for_the_others() {
        let lead = Lead::default();
        let is_done = AtomicU64::new(0);
        let (began, begins) = mpsc::channel();
        let (fail, fails) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (lead, is_done) = (&lead, &is_done);
            let first = scope.spawn(move || {
                let step = || {
                    began.send(()).unwrap();
                    fails.recv().unwrap();
                    Err(Error::invalid("it fails"))
                };
                lead.reach(|| false, || (), step)
            });
            begins.recv().unwrap();
            let others: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(move || {
                        let is_reached = || is_done.load(Ordering::SeqCst) > 0;
                        let step = || {
                            is_done.store(1, Ordering::SeqCst);
                            Ok(())
                        };
                        lead.reach(is_reached, || (), step)
                    })
                })
                .collect();
            while {
                let turns = lock(&lead.turns);
                usize::from(turns.is_elected) + turns.served[0] < 3
            } {
                std::thread::yield_now();
            }
            fail.send(()).unwrap();
            assert!(first.join().unwrap().is_err());
            for other in others {
                assert!(other.join().unwrap().is_ok());
            }
        });
    }
}
