//! The scheduler: places jobs, and passes on what executors made.
//!
//! ```text
//!            PREPARE              executor found             ACCEPT              COMMIT
//!   (none) ─────────► waiting ───────────────────► assigned ───────► running ───────────► made ──ACK──► (none)
//!                       ▲  │ home or near is best      │ too late       │ silent, ABORT
//!                       │  └─► ABORT to the owner      │                │
//!                       └──────────────────────────────┴────────────────┘ next attempt, or ABORT to the owner
//! ```
//!
//! All that a scheduler knows was told to it and can be told again: the owner repeats a PREPARE when it hears of another
//! term, and each beat says what runs. So a new scheduler begins with nothing. A job that it learns of from an executor
//! has no owner until the PREPARE comes.

use crate::job::{Attempt, JobName, Life, Outcome, Package, Reason, StorageAccess, StorageNeed, Term};
use crate::line::Line;
use crate::load::{Load, Policy};
use crate::message::{Beat, Body, Letter, Message};
use forebay_env::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// The party at the other end: an owner or an executor, as the scheduler's transport numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub u64);

/// An executor, as its last beat says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Member {
    load: Load,
    storage: StorageAccess,
    heard: Nanos,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Waiting { since: Nanos },
    Assigned { to: Party, attempt: Attempt, until: Nanos },
    Running { on: Party, attempt: Attempt },
    Made { attempt: Attempt, outcome: Outcome, until: Nanos },
}

/// A job, as the scheduler knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tracked {
    /// Who asked, and what it said; `None` as yet for a job that an executor told of.
    asked: Option<(Party, Package, Load)>,
    stage: Stage,
    attempts: u32,
    /// Whether an executor may have begun with it.
    has_run: bool,
    /// The executor that lost the job last.
    avoid: Option<Party>,
}

/// Where a job goes.
enum Place {
    To(Party),
    Not(Reason),
    Wait,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scheduler {
    term: Term,
    policy: Policy,
    members: BTreeMap<Party, Member>,
    /// Memory nodes whose own threads run jobs, by number.
    near: BTreeMap<Life, Load>,
    line: Line,
    /// Jobs whose owners have a thread for them. They need not wait, so they do not stand in the line behind jobs that
    /// must.
    ready: Vec<JobName>,
    jobs: BTreeMap<JobName, Tracked>,
    /// Attempts that executors were told to stop, until their beats no longer name them. An executor names an attempt once
    /// more before it gets the ABORT, and then says nothing about it.
    stopped: BTreeSet<(Party, JobName, Attempt)>,
    out: Vec<(Party, Message)>,
}

impl Scheduler {
    /// Makes a scheduler that knows nothing yet.
    #[must_use]
    pub fn new(term: Term, policy: Policy) -> Self {
        let (members, near, jobs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (line, ready) = (Line::new(policy.most_ahead_bytes), Vec::new());
        Self { term, policy, members, near, line, ready, jobs, stopped: BTreeSet::new(), out: Vec::new() }
    }

    /// Returns the scheduler's term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Returns how many executors it knows.
    #[must_use]
    pub fn executors(&self) -> usize {
        self.members.len()
    }

    /// Returns how many jobs it has not finished with.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Takes the messages to send, each with its receiver.
    pub fn take_messages(&mut self) -> Vec<(Party, Message)> {
        std::mem::take(&mut self.out)
    }

    /// Takes how busy the memory nodes' own threads are. No jobs run at a memory node that is not among these.
    pub fn near(&mut self, loads: &BTreeMap<Life, Load>) {
        self.near.clone_from(loads);
    }

    /// Handles letters. Waiting jobs are placed after all letters were read, so that not every letter looks at many jobs.
    /// Then new jobs that have no place even in the line are refused. Of several beats only the last one counts, as each
    /// is complete.
    pub fn receive(&mut self, now: Nanos, from: Party, letters: &[Letter]) {
        let last_beat = letters.iter().rposition(|letter| matches!(letter, Letter::Beat(_)));
        let mut came = BTreeMap::<u128, usize>::new();
        for (at, letter) in letters.iter().enumerate() {
            match letter {
                Letter::Message(message) => {
                    if self.read(now, from, message) {
                        *came.entry(message.name.database).or_default() += 1;
                    }
                }
                Letter::Beat(beat) if last_beat == Some(at) => self.beat(now, from, beat),
                Letter::Beat(_) => {}
            }
        }
        self.place(now);
        came.into_iter().for_each(|(database, count)| self.refuse_last(database, count));
    }

    /// Refuses the last jobs of a database, at most `count` of them, if too many wait.
    fn refuse_last(&mut self, database: u128, count: usize) {
        let excess = self.line.waiting_of(database).saturating_sub(self.policy.most_waiting);
        for _ in 0..excess.min(count) {
            let Some(name) = self.line.take_last(database) else { return };
            self.turn_away(name, Reason::Busy);
        }
    }

    /// Takes an executor's beat.
    fn beat(&mut self, now: Nanos, from: Party, beat: &Beat) {
        let runs = |name: &JobName| beat.running.iter().any(|(running, _)| running == name);
        // Nobody asked for such a job, and its end is not always told: letters may be lost.
        self.jobs.retain(|name, it| it.asked.is_some() || it.stage.party() != Some(from) || runs(name));
        let mut load = beat.load;
        for (name, tracked) in &self.jobs {
            if tracked.stage.party() == Some(from) && !runs(name) {
                load = load.and_one();
            }
        }
        self.members.insert(from, Member { load, storage: beat.storage, heard: now });
        let is_named = |name, attempt| beat.running.contains(&(name, attempt));
        self.stopped.retain(|&(executor, name, attempt)| executor != from || is_named(name, attempt));
        for &(name, attempt) in &beat.running {
            // Nobody would run the job, if its owner asked again.
            if self.stopped.contains(&(from, name, attempt)) {
                continue;
            }
            if self.jobs.len() >= self.policy.most_jobs {
                break;
            }
            // The job was learnt from an executor: its owner will ask again.
            self.jobs.entry(name).or_insert(Tracked {
                asked: None,
                stage: Stage::Running { on: from, attempt },
                attempts: 1,
                has_run: true,
                avoid: None,
            });
        }
    }

    /// Reads a message; returns whether another job waits.
    fn read(&mut self, now: Nanos, from: Party, message: &Message) -> bool {
        let Message { name, attempt, .. } = *message;
        match message.body {
            Body::Prepare { package, home } => return self.prepare(now, from, name, package, home),
            Body::Accept => self.accepted(from, name, attempt),
            Body::Commit(outcome) => self.made(now, from, name, attempt, outcome),
            Body::Abort(reason) => self.aborted(now, from, name, attempt, reason),
            Body::Ack => {
                if self.is_owner(from, name) {
                    self.forget(name);
                }
            }
            // Only schedulers send this.
            Body::Assign { .. } => {}
        }
        false
    }

    /// Records that a party is gone: the jobs that it ran are placed anew, and those that it asked for are stopped.
    pub fn left(&mut self, now: Nanos, party: Party) {
        self.lose_member(now, party);
        for name in self.names(|tracked| tracked.asked.is_some_and(|(owner, ..)| owner == party)) {
            self.stop(name);
        }
        self.place(now);
    }

    /// Forgets an executor. The jobs that it ran are lost.
    fn lose_member(&mut self, now: Nanos, party: Party) {
        self.members.remove(&party);
        self.stopped.retain(|&(executor, ..)| executor != party);
        let lost = self.names(|tracked| tracked.stage.party() == Some(party));
        lost.into_iter().for_each(|name| self.lose(now, name, Reason::Lost));
    }

    /// Tells the time.
    pub fn tick(&mut self, now: Nanos) {
        let silence = self.policy.silence;
        let silent = |member: &Member| now.saturating_sub(member.heard) > silence;
        let gone: Vec<_> = self.members.iter().filter(|(_, it)| silent(it)).map(|(&party, _)| party).collect();
        gone.into_iter().for_each(|party| self.lose_member(now, party));
        for name in self.names(|tracked| matches!(tracked.stage, Stage::Assigned { until, .. } if until <= now)) {
            self.lose(now, name, Reason::Lost);
        }
        for name in self.names(|tracked| matches!(tracked.stage, Stage::Made { until, .. } if until <= now)) {
            self.forget(name);
        }
        self.place(now);
    }

    /// Takes a job; returns whether the job is new.
    fn prepare(&mut self, now: Nanos, from: Party, name: JobName, package: Package, home: Load) -> bool {
        let asked = Some((from, package, home));
        if let Some(tracked) = self.jobs.get_mut(&name) {
            tracked.asked = asked;
            if let Stage::Made { attempt, outcome, .. } = tracked.stage {
                self.send(from, name, attempt, Body::Commit(outcome));
            }
            return false;
        }
        if self.jobs.len() >= self.policy.most_jobs {
            self.send(from, name, Attempt::default(), Body::Abort(Reason::Busy));
            return false;
        }
        let stage = Stage::Waiting { since: now };
        self.jobs.insert(name, Tracked { asked, stage, attempts: 0, has_run: false, avoid: None });
        self.queue(name, &package, &home)
    }

    /// Queues a job to be placed; returns whether it stands in the line.
    fn queue(&mut self, name: JobName, package: &Package, home: &Load) -> bool {
        if home.is_busy() {
            self.line.push(name, package.bytes());
        } else {
            self.ready.push(name);
        }
        home.is_busy()
    }

    fn accepted(&mut self, from: Party, name: JobName, attempt: Attempt) {
        let Some(tracked) = self.jobs.get_mut(&name) else { return };
        if let Stage::Assigned { to, attempt: assigned, .. } = tracked.stage
            && (to, assigned) == (from, attempt)
        {
            tracked.stage = Stage::Running { on: from, attempt };
        }
    }

    fn made(&mut self, now: Nanos, from: Party, name: JobName, attempt: Attempt, outcome: Outcome) {
        if self.jobs.len() >= self.policy.most_jobs && !self.jobs.contains_key(&name) {
            return;
        }
        let until = now.saturating_add(self.policy.patience);
        let made = Stage::Made { attempt, outcome, until };
        let unknown = Tracked { asked: None, stage: made, attempts: 1, has_run: true, avoid: None };
        let tracked = self.jobs.entry(name).or_insert(unknown);
        // The result of a superseded attempt does not exist any more.
        let is_last = match tracked.stage {
            Stage::Assigned { to, attempt: last, .. } | Stage::Running { on: to, attempt: last } => {
                (to, last) == (from, attempt)
            }
            Stage::Made { attempt: last, .. } => last == attempt,
            Stage::Waiting { .. } => false,
        };
        if !is_last {
            return;
        }
        let was_made = matches!(tracked.stage, Stage::Made { .. }) && tracked.asked.is_some();
        tracked.stage = made;
        if let Some((owner, ..)) = tracked.asked
            && !was_made
        {
            self.send(owner, name, attempt, Body::Commit(outcome));
        }
    }

    fn aborted(&mut self, now: Nanos, from: Party, name: JobName, attempt: Attempt, reason: Reason) {
        if self.is_owner(from, name) {
            return self.stop(name);
        }
        let running = self.jobs.get(&name).and_then(|tracked| tracked.stage.attempt());
        if running == Some((from, attempt)) {
            self.lose(now, name, reason);
        }
    }

    /// Records that an attempt is lost: the job waits for another attempt, if it may have one.
    fn lose(&mut self, now: Nanos, name: JobName, reason: Reason) {
        let most = self.policy.attempts;
        let Some(tracked) = self.jobs.get_mut(&name) else { return };
        let Some((_, package, home)) = tracked.asked else { return self.forget(name) };
        // An executor that has no room for a job does not begin with it.
        tracked.has_run |= !matches!((tracked.stage, reason), (Stage::Assigned { .. }, Reason::Busy));
        if tracked.attempts >= most {
            return self.turn_away(name, reason);
        }
        tracked.avoid = tracked.stage.party();
        tracked.stage = Stage::Waiting { since: now };
        self.queue(name, &package, &home);
    }

    /// Stops a job that its owner no longer wants.
    fn stop(&mut self, name: JobName) {
        let attempt = self.jobs.get(&name).and_then(|tracked| tracked.stage.attempt());
        self.forget(name);
        if let Some((executor, attempt)) = attempt {
            if self.stopped.len() < self.policy.most_jobs {
                self.stopped.insert((executor, name, attempt));
            }
            self.send(executor, name, attempt, Body::Abort(Reason::Ended));
        }
    }

    /// Places waiting jobs as far as possible. Placing a job only takes room away from others, so a job that must wait
    /// is not looked at again.
    fn place(&mut self, now: Nanos) {
        for name in std::mem::take(&mut self.ready) {
            self.place_one(now, name);
        }
        let mut waits = Vec::new();
        while let Some(name) = self.line.take() {
            if !self.place_one(now, name) {
                waits.push(name.database);
            }
        }
        waits.into_iter().for_each(|database| self.line.put_back(database));
    }

    /// Places a job, or tells its owner why not; returns false when the job has to wait.
    fn place_one(&mut self, now: Nanos, name: JobName) -> bool {
        match self.place_of(now, name) {
            Place::To(executor) => {
                self.line.remove(name, true);
                self.assign(now, name, executor);
            }
            Place::Not(reason) => self.turn_away(name, reason),
            Place::Wait => return false,
        }
        true
    }

    /// Tells the owner of a job why nobody runs it. If an attempt may have run, the owner must know that, because the
    /// attempt may have left objects in storage. Jobs that a memory node can run leave none.
    fn turn_away(&mut self, name: JobName, reason: Reason) {
        let asked = self.jobs.get(&name).and_then(|tracked| Some((tracked.asked?.0, tracked.has_run)));
        self.forget(name);
        let Some((owner, has_run)) = asked else { return };
        let reason = match reason {
            Reason::Home | Reason::Busy if has_run => Reason::Lost,
            _ => reason,
        };
        self.send(owner, name, Attempt::default(), Body::Abort(reason));
    }

    /// Returns the greedy choice: least cost. A busy owner is asked to run its job itself only after the job has waited
    /// in vain. The job of an owner that is not busy never waits.
    fn place_of(&self, now: Nanos, name: JobName) -> Place {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        let Some((tracked, (_, package, home))) = self.jobs.get(&name).and_then(|it| Some((it, it.asked?))) else {
            return Place::Not(Reason::Lost);
        };
        let Stage::Waiting { since } = tracked.stage else { return Place::Wait };
        let weights = &self.policy.weights;
        let cost = |moved, load: &Load| weights.cost(package.bytes(), moved, load);
        let may_run = |member: &Member| member.storage.suffices_for(package.storage);
        let able = || self.members.iter().filter(|(_, member)| may_run(member));
        let others = able().filter(|(party, member)| !member.load.is_full() && tracked.avoid != Some(**party));
        // At equal cost, an executor with a free thread comes first.
        let others = others
            .map(|(&party, member)| ((cost(package.bytes(), &member.load), member.load.is_busy()), Place::To(party)));
        let is_in_memory = package.storage == StorageNeed::None && package.storage_bytes == 0;
        let near = self.near.get(&package.ticket.life()).filter(|load| is_in_memory && !load.is_full());
        let near = near.map(|load| ((cost(0, load), load.is_busy()), Place::Not(Reason::Near)));
        let at_home = Some(home).filter(|home| !home.is_busy());
        let cost_at_home = |home| weights.cost_at_home(package.bytes(), &home);
        let at_home = at_home.map(|home| ((cost_at_home(home), false), Place::Not(Reason::Home)));
        // Then nearer places come first: `min_by_key` gives the first.
        match near.into_iter().chain(at_home).chain(others).min_by_key(|(cost, _)| *cost) {
            Some((_, place)) => place,
            None if able().next().is_some() && now.saturating_sub(since) < self.policy.patience => Place::Wait,
            None => Place::Not(Reason::Busy),
        }
    }

    fn assign(&mut self, now: Nanos, name: JobName, to: Party) {
        let until = now.saturating_add(self.policy.accept);
        let Some(tracked) = self.jobs.get_mut(&name) else { return };
        let Some((_, package, _)) = tracked.asked else { return };
        tracked.attempts += 1;
        let attempt = Attempt { term: self.term, number: tracked.attempts };
        tracked.stage = Stage::Assigned { to, attempt, until };
        if let Some(member) = self.members.get_mut(&to) {
            member.load = member.load.and_one();
        }
        self.send(to, name, attempt, Body::Assign { package });
    }

    fn forget(&mut self, name: JobName) {
        self.line.remove(name, false);
        self.jobs.remove(&name);
    }

    fn is_owner(&self, party: Party, name: JobName) -> bool {
        self.jobs.get(&name).and_then(|tracked| tracked.asked).is_some_and(|(owner, ..)| owner == party)
    }

    fn names(&self, chosen: impl Fn(&Tracked) -> bool) -> Vec<JobName> {
        self.jobs.iter().filter(|(_, tracked)| chosen(tracked)).map(|(&name, _)| name).collect()
    }

    fn send(&mut self, to: Party, name: JobName, attempt: Attempt, body: Body) {
        self.out.push((to, Message { term: self.term, name, attempt, body }));
    }
}

impl Stage {
    /// Returns who has the job, and as which attempt.
    fn attempt(&self) -> Option<(Party, Attempt)> {
        match *self {
            Self::Assigned { to, attempt, .. } | Self::Running { on: to, attempt } => Some((to, attempt)),
            Self::Waiting { .. } | Self::Made { .. } => None,
        }
    }

    fn party(&self) -> Option<Party> {
        self.attempt().map(|(party, _)| party)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Span;
    use crate::load::Weights;
    use crate::tests::package;
    use std::cell::Cell;

    /// The memory node of all jobs.
    const LIFE: Life = (7, 1);

    thread_local! {
        /// How often the scheduler chose a place for a job.
        pub(super) static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    const OWNER: Party = Party(1);
    const SECOND: Nanos = 1_000_000_000;

    fn load(active_threads: u32, threads: u32) -> Load {
        Load { active_threads, threads, queue_limit: 1, ..Load::default() }
    }

    fn beat(load: Load) -> Beat {
        Beat { term: Term(0), load, storage: StorageAccess::default(), running: Vec::new() }
    }

    fn name(job: u64) -> JobName {
        JobName { database: 1, shard: 0, epoch: 1, job }
    }

    fn prepare(scheduler: &mut Scheduler, now: Nanos, job: u64, package: Package, home: Load) {
        let body = Body::Prepare { package, home };
        say(scheduler, now, OWNER, Message { term: Term(0), name: name(job), attempt: Attempt::default(), body });
    }

    fn say(scheduler: &mut Scheduler, now: Nanos, from: Party, message: Message) {
        scheduler.receive(now, from, &[Letter::Message(message)]);
    }

    fn beats(scheduler: &mut Scheduler, now: Nanos, from: Party, beat: Beat) {
        scheduler.receive(now, from, &[Letter::Beat(beat)]);
    }

    /// Returns who is told what about the job.
    fn told(scheduler: &mut Scheduler) -> Vec<(Party, Body)> {
        scheduler.take_messages().into_iter().map(|(party, message)| (party, message.body)).collect()
    }

    fn place(weights: Weights, near: Load, far: Load, home: Load) -> (Party, Body) {
        let mut scheduler = Scheduler::new(Term(0), Policy { weights, ..Policy::default() });
        scheduler.near(&[(LIFE, near)].into());
        beats(&mut scheduler, 0, Party(10), beat(far));
        prepare(&mut scheduler, 0, 1, package(64_000_000, 0), home);
        told(&mut scheduler).pop().unwrap()
    }

    #[test]
    fn three_modes_by_cost() {
        let job = package(64_000_000, 0);
        let busy = load(2, 2);
        let near = (OWNER, Body::Abort(Reason::Near));
        assert_eq!(place(Weights::PAPER, load(0, 2), load(1, 2), busy), near);
        assert_eq!(place(Weights::PAPER, busy, load(1, 2), load(0, 2)), (OWNER, Body::Abort(Reason::Home)));
        assert_eq!(place(Weights::SPARING, busy, load(1, 2), load(0, 2)).0, Party(10));
        assert_eq!(place(Weights::PAPER, busy, load(1, 2), busy), (Party(10), Body::Assign { package: job }));
        // At equal cost, the nearest.
        assert_eq!(place(Weights::PAPER, load(0, 2), load(0, 2), load(0, 2)), near);
    }

    /// The paper's policy sends a job to an idle node. The other policy keeps the job with the data unless the wait
    /// costs more than moving the data.
    #[test]
    fn policies_differ_where_bytes_have_to_move() {
        let busy = load(4, 4);
        for active in 0..4 {
            let near = load(active, 4);
            let is_near = |weights| place(weights, near, load(0, 4), busy).1 == Body::Abort(Reason::Near);
            assert_eq!(is_near(Weights::PAPER), active == 0, "{active} of 4 threads run");
            assert!(is_near(Weights::MOVING), "{active} of 4 threads run");
        }
        // Moved bytes over a run of jobs, each placed where it costs least.
        let moved = |weights| {
            let mut scheduler = Scheduler::new(Term(0), Policy { weights, ..Policy::default() });
            let (mut near, mut moved) = (Load { queue_limit: 4, ..load(0, 2) }, 0);
            beats(&mut scheduler, 0, Party(10), beat(Load { queue_limit: 8, ..load(0, 2) }));
            for job in 0..8 {
                scheduler.near(&[(LIFE, near)].into());
                prepare(&mut scheduler, 0, job, package(1000, 0), busy);
                match told(&mut scheduler).pop().unwrap().1 {
                    Body::Abort(Reason::Near) => near = near.and_one(),
                    _ => moved += 1000,
                }
            }
            moved
        };
        assert!(moved(Weights::MOVING) < moved(Weights::PAPER));
    }

    #[test]
    fn a_busy_owner_waits_for_an_executor_but_not_for_ever() {
        let mut scheduler = Scheduler::new(Term(0), Policy { silence: 100 * SECOND, ..Policy::default() });
        let (full, busy) = (Load { pending: 1, ..load(1, 1) }, load(1, 1));
        // There is no executor at all.
        prepare(&mut scheduler, 0, 1, package(100, 0), busy);
        assert_eq!(told(&mut scheduler), [(OWNER, Body::Abort(Reason::Busy))]);
        beats(&mut scheduler, 0, Party(10), beat(full));
        prepare(&mut scheduler, 0, 2, package(100, 0), busy);
        assert_eq!(told(&mut scheduler), []);
        scheduler.tick(9 * SECOND);
        assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![], 1));
        scheduler.tick(10 * SECOND);
        assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, Body::Abort(Reason::Busy))], 0));
        // A job with data in storage never goes to an executor that does not reach the storage.
        beats(&mut scheduler, 0, Party(10), beat(load(0, 1)));
        prepare(&mut scheduler, 0, 3, package(100, 1), busy);
        assert_eq!(told(&mut scheduler), [(OWNER, Body::Abort(Reason::Busy))]);
    }

    /// For example a flush, whose thread has nothing else to do until the job is decided.
    #[test]
    fn what_its_owner_can_run_now_waits_behind_nothing() {
        let mut scheduler = Scheduler::new(Term(0), Policy::default());
        let (idle, busy) = (load(0, 2), load(2, 2));
        beats(&mut scheduler, 0, Party(10), beat(Load { queue_limit: 8, ..load(0, 1) }));
        scheduler.near(&[(LIFE, Load { queue_limit: 8, ..load(1, 1) })].into());
        prepare(&mut scheduler, 0, 1, package(100, 0), idle);
        assert!(matches!(told(&mut scheduler)[..], [(Party(10), Body::Assign { .. })]), "it is idle");
        // Not at the memory node, and not after a running job: both cost as much as at home, and the job would have to
        // wait.
        prepare(&mut scheduler, 0, 2, package(100, 0), idle);
        assert_eq!(told(&mut scheduler), [(OWNER, Body::Abort(Reason::Home))]);
        // Jobs of the same owner wait, since executors are full.
        scheduler.near(&[(LIFE, load(1, 1).and_one())].into());
        beats(&mut scheduler, 0, Party(10), beat(load(1, 1).and_one()));
        prepare(&mut scheduler, 0, 3, package(100, 0), busy);
        assert_eq!(told(&mut scheduler), []);
        prepare(&mut scheduler, 0, 4, package(100, 0), idle);
        assert_eq!(told(&mut scheduler), [(OWNER, Body::Abort(Reason::Home))]);
    }

    #[test]
    fn a_job_that_is_not_accepted_goes_to_another_one() {
        let mut scheduler = Scheduler::new(Term(3), Policy::default());
        let busy = load(1, 1);
        for party in 10..13 {
            beats(&mut scheduler, 0, Party(party), beat(load(0, 1)));
        }
        prepare(&mut scheduler, 0, 1, package(100, 0), busy);
        let mut asked = Vec::new();
        for step in 0..4 {
            for party in 10..13 {
                beats(&mut scheduler, step * 3 * SECOND, Party(party), beat(load(0, 1)));
            }
            scheduler.tick(step * 3 * SECOND);
            asked.extend(scheduler.take_messages().into_iter().map(|(to, message)| (to, message.attempt)));
        }
        let attempts: Vec<_> = asked.iter().map(|(_, attempt)| (attempt.term, attempt.number)).collect();
        assert_eq!(attempts[..3], [(Term(3), 1), (Term(3), 2), (Term(3), 3)]);
        assert!(asked[0].0 != asked[1].0 && asked[1].0 != asked[2].0);
        // After the last attempt its owner runs the job.
        assert_eq!((asked[3].0, asked.len(), scheduler.jobs()), (OWNER, 4, 0));
    }

    /// It then looks for what the attempt may have left.
    #[test]
    fn an_owner_is_told_that_there_was_an_attempt() {
        for home in [load(1, 1), load(0, 2)] {
            let mut scheduler = Scheduler::new(Term(0), Policy::default());
            beats(&mut scheduler, 0, Party(10), beat(load(0, 1)));
            prepare(&mut scheduler, 0, 1, package(100, 0), home);
            assert!(matches!(told(&mut scheduler)[..], [(Party(10), Body::Assign { .. })]));
            // There may be more attempts, and there is nobody for them.
            scheduler.left(0, Party(10));
            assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, Body::Abort(Reason::Lost))], 0));
        }
        // The last attempt was refused, and not the one before.
        let mut scheduler = Scheduler::new(Term(0), Policy { attempts: 2, ..Policy::default() });
        for party in [10, 11] {
            beats(&mut scheduler, 0, Party(party), beat(load(0, 1)));
        }
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        for reason in [Reason::Failed, Reason::Busy] {
            let asked = scheduler.take_messages();
            let [(to, Message { attempt, .. })] = asked[..] else { panic!("{asked:?}") };
            let body = Body::Abort(reason);
            say(&mut scheduler, 0, to, Message { term: Term(0), name: name(1), attempt, body });
        }
        assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, Body::Abort(Reason::Lost))], 0));
        // There was one, and another job took the last place in the line.
        let mut scheduler = Scheduler::new(Term(0), Policy { most_waiting: 1, ..Policy::default() });
        beats(&mut scheduler, 0, Party(10), beat(Load { queue_limit: 0, ..load(0, 1) }));
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        let asked = scheduler.take_messages();
        let [(_, Message { attempt, .. })] = asked[..] else { panic!("{asked:?}") };
        let lost = Message { term: Term(0), name: name(1), attempt, body: Body::Abort(Reason::Failed) };
        let body = Body::Prepare { package: package(100, 0), home: load(1, 1) };
        let next = Message { term: Term(0), name: name(2), attempt: Attempt::default(), body };
        scheduler.receive(0, Party(10), &[next, lost].map(Letter::Message));
        assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, Body::Abort(Reason::Lost))], 1));
    }

    #[test]
    fn who_refuses_a_job_has_not_begun_with_it() {
        for reason in [Reason::Busy, Reason::Failed] {
            let mut scheduler = Scheduler::new(Term(0), Policy { attempts: 1, ..Policy::default() });
            beats(&mut scheduler, 0, Party(10), beat(load(0, 1)));
            prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
            let asked = scheduler.take_messages();
            let [(to, Message { attempt, .. })] = asked[..] else { panic!("{asked:?}") };
            let body = Body::Abort(reason);
            say(&mut scheduler, 0, to, Message { term: Term(0), name: name(1), attempt, body });
            assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, body)], 0));
        }
    }

    #[test]
    fn what_a_scheduler_forgot_it_is_told_again() {
        let mut scheduler = Scheduler::new(Term(2), Policy::default());
        let attempt = Attempt { term: Term(1), number: 1 };
        let running = Beat { running: vec![(name(1), attempt)], ..beat(load(1, 1)) };
        beats(&mut scheduler, 0, Party(10), running);
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        assert_eq!(told(&mut scheduler), []);
        let result = Span { extent: 0, offset: 0, length: 1, checksum: 0 };
        let made = Body::Commit(Outcome { result, read_bytes: 1, written_bytes: 1 });
        say(&mut scheduler, 0, Party(10), Message { term: Term(1), name: name(1), attempt, body: made });
        assert_eq!(told(&mut scheduler), [(OWNER, made)]);
        // And a COMMIT that comes before its owner asks.
        say(&mut scheduler, 0, Party(10), Message { term: Term(1), name: name(2), attempt, body: made });
        prepare(&mut scheduler, 0, 2, package(100, 0), load(1, 1));
        assert_eq!(told(&mut scheduler), [(OWNER, made)]);
    }

    /// A scheduler that told an executor of `threads` threads to stop the first job, because its owner left; the executor,
    /// and the attempt.
    fn with_a_stopped_job(threads: u32) -> (Scheduler, Party, Attempt) {
        let mut scheduler = Scheduler::new(Term(0), Policy::default());
        beats(&mut scheduler, 0, Party(10), beat(load(0, threads)));
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        let asked = scheduler.take_messages();
        let [(to, Message { attempt, .. })] = asked[..] else { panic!("{asked:?}") };
        say(&mut scheduler, 0, to, Message { term: Term(0), name: name(1), attempt, body: Body::Accept });
        scheduler.left(0, OWNER);
        assert_eq!(told(&mut scheduler), [(to, Body::Abort(Reason::Ended))]);
        (scheduler, to, attempt)
    }

    /// The beat that comes before the executor gets the ABORT still names the job.
    #[test]
    fn a_job_that_was_stopped_takes_no_room_at_its_executor() {
        let (mut scheduler, to, attempt) = with_a_stopped_job(1);
        beats(&mut scheduler, 0, to, Beat { running: vec![(name(1), attempt)], ..beat(load(1, 1)) });
        beats(&mut scheduler, 0, to, beat(load(0, 1)));
        assert_eq!(scheduler.jobs(), 0);
        // One of these runs, and one waits there.
        (2..=3).for_each(|job| prepare(&mut scheduler, 0, job, package(100, 0), load(1, 1)));
        let assigned = Body::Assign { package: package(100, 0) };
        assert_eq!(told(&mut scheduler), [(to, assigned), (to, assigned)]);
    }

    /// Its owner reaches the scheduler over another connection. The executor says no more about the attempt.
    #[test]
    fn a_job_that_was_stopped_and_is_asked_for_again_is_placed_again() {
        let (mut scheduler, to, attempt) = with_a_stopped_job(2);
        // The executor gets the ABORT in answer to this.
        beats(&mut scheduler, 0, to, Beat { running: vec![(name(1), attempt)], ..beat(load(1, 2)) });
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        assert_eq!(told(&mut scheduler), [(to, Body::Assign { package: package(100, 0) })]);
        assert_eq!(scheduler.stopped.len(), 1);
        beats(&mut scheduler, 0, to, beat(load(0, 2)));
        assert!(scheduler.stopped.is_empty());
    }

    #[test]
    fn a_database_has_a_most_of_waiting_jobs() {
        let mut scheduler = Scheduler::new(Term(0), Policy { most_waiting: 2, ..Policy::default() });
        beats(&mut scheduler, 0, Party(10), beat(Load { pending: 1, ..load(1, 1) }));
        (1..=3).for_each(|job| prepare(&mut scheduler, 0, job, package(100, 0), load(1, 1)));
        assert_eq!((told(&mut scheduler), scheduler.jobs()), (vec![(OWNER, Body::Abort(Reason::Busy))], 2));
        scheduler.left(0, OWNER);
        assert_eq!(scheduler.jobs(), 0);
    }

    #[test]
    fn a_burst_waits_only_for_what_executors_have_no_place_for() {
        let mut scheduler = Scheduler::new(Term(0), Policy { most_waiting: 64, ..Policy::default() });
        beats(&mut scheduler, 0, Party(10), beat(load(0, 100)));
        let letters: Vec<_> = (0..200)
            .map(|job| {
                let body = Body::Prepare { package: package(100, 0), home: load(1, 1) };
                Letter::Message(Message { term: Term(0), name: name(job), attempt: Attempt::default(), body })
            })
            .collect();
        scheduler.receive(0, OWNER, &letters);
        let (assigned, refused): (Vec<_>, Vec<_>) =
            scheduler.take_messages().into_iter().partition(|(to, _)| *to == Party(10));
        // One more job than the executor has threads.
        assert_eq!((assigned.len(), refused.len(), scheduler.jobs()), (101, 200 - 101 - 64, 101 + 64));
        assert!(refused.iter().all(|(_, message)| message.body == Body::Abort(Reason::Busy)));
        let first_refused = refused.iter().map(|(_, message)| message.name).min();
        assert_eq!(first_refused, Some(name(101 + 64)), "who came last is refused");
    }

    #[test]
    fn letters_do_not_each_look_at_all_jobs_that_wait() {
        const JOBS: u64 = 200;
        let of = |job: u64| JobName { database: job.into(), ..name(job) };
        let letter =
            |job, body| Letter::Message(Message { term: Term(0), name: of(job), attempt: Attempt::default(), body });
        let asks = |job: u64| {
            let package = package(100, u64::from(job <= JOBS / 2));
            letter(job, Body::Prepare { package, home: load(1, 1) })
        };
        let asked = |scheduler: &mut Scheduler, from, letters: &[Letter]| {
            ASKED.set(0);
            scheduler.receive(0, from, letters);
            ASKED.get()
        };
        let mut scheduler = Scheduler::new(Term(0), Policy::default());
        for (party, own) in [(10, false), (11, true)] {
            let full = Load { pending: 1, ..load(1, 1) };
            beats(
                &mut scheduler,
                0,
                Party(party),
                Beat { storage: StorageAccess { own, signed: false }, ..beat(full) },
            );
        }
        let letters: Vec<_> = (1..=JOBS).map(asks).collect();
        assert_eq!(asked(&mut scheduler, OWNER, &letters), JOBS as usize);
        let letters: Vec<_> = (0..1000).map(|job| letter(1000 + job, Body::Ack)).collect();
        assert_eq!(asked(&mut scheduler, OWNER, &letters), JOBS as usize);
        // The first jobs wait for storage. The others are placed, each without looking at the first ones again.
        let room = [Letter::Beat(beat(load(0, 1000)))];
        assert_eq!(asked(&mut scheduler, Party(10), &room), JOBS as usize);
        assert_eq!(told(&mut scheduler).len() as u64, JOBS / 2);
        assert_eq!(scheduler.jobs() as u64, JOBS);
        // The jobs that waited have not lost their place.
        let room = [Letter::Beat(Beat { storage: StorageAccess { own: true, signed: false }, ..beat(load(0, 1000)) })];
        assert_eq!(asked(&mut scheduler, Party(11), &room) as u64, JOBS / 2);
        assert_eq!(told(&mut scheduler).len() as u64, JOBS / 2);
    }

    #[test]
    fn a_job_goes_to_whoever_reaches_the_storage_as_it_needs() {
        use StorageNeed::{None, Own, Signed};
        let access = |own, signed| StorageAccess { own, signed };
        let cases = [
            (access(false, false), vec![None]),
            (access(false, true), vec![None, Signed]),
            (access(true, false), vec![None, Own, Signed]),
            (access(true, true), vec![None, Own, Signed]),
        ];
        for (storage, runs) in cases {
            for need in [None, Own, Signed] {
                let mut scheduler = Scheduler::new(Term(0), Policy::default());
                beats(&mut scheduler, 0, Party(10), Beat { storage, ..beat(load(0, 1)) });
                // An idle memory node reaches no storage, even where all inputs are in memory.
                scheduler.near(&[(LIFE, load(0, 8))].into());
                let package = Package { storage: need, ..package(100, 0) };
                prepare(&mut scheduler, 0, 1, package, load(1, 1));
                let is_sent = told(&mut scheduler) == [(Party(10), Body::Assign { package })];
                assert_eq!(is_sent, need != None && runs.contains(&need), "{storage:?} {need:?}");
            }
        }
    }

    #[test]
    fn of_several_beats_the_last_one_counts() {
        let mut scheduler = Scheduler::new(Term(0), Policy::default());
        let full = Load { pending: 1, ..load(1, 1) };
        let beats = [full, load(0, 1), full].map(|load| Letter::Beat(beat(load)));
        scheduler.receive(0, Party(10), &beats);
        prepare(&mut scheduler, 0, 1, package(100, 0), load(1, 1));
        assert_eq!((told(&mut scheduler), scheduler.executors()), (vec![], 1));
    }
}
