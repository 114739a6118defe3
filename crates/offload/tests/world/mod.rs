//! Owners, schedulers, executors and a memory node, with a network between them, in one value: what may happen next is
//! a list of [`Step`]s, and taking one gives the next world. [`World::broken`] says which promise does not hold.

use forebay_offload::planted::{Bug, Planted};
use forebay_offload::{
    Attempt, Body, Election, Executor, JobName, Letter, Load, Message, Order, Outcome, Owner, Package, Party, Policy,
    Question, Scheduler, Span, StorageAccess, StorageNeed, Task, Term, Ticket,
};
use std::collections::{BTreeMap, BTreeSet};

/// Longer than any patience.
const LONG: u64 = 60_000_000_000;
const LEASE: u64 = 3_000_000_000;
const SPAN: Span = Span { extent: 0, offset: 0, length: 8, checksum: 0 };

/// Who sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    Owner(usize),
    Scheduler(usize),
    Executor(usize),
}

/// A message on its way. The numbers of lives keep a message that was sent before a crash from the process that starts
/// after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    from: (End, u64),
    to: (End, u64),
    message: Message,
}

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Want(usize),
    Deliver(usize),
    Lose(usize),
    Double(usize),
    Beat(usize),
    Join(usize, JobName),
    Finish(usize, JobName),
    Fail(usize, JobName),
    Install(usize, JobName),
    Elect(usize),
    Look(End),
    Crash(End),
    Return(End),
    /// The memory node ends the session of a party, which may be alive and not know.
    Lapse(End),
    Pass,
}

/// The size of the world, and how much may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    pub owners: usize,
    pub jobs: u64,
    pub executors: usize,
    pub schedulers: usize,
    pub faults: u32,
    pub passes: u32,
    pub bug: Option<Bug>,
}

/// A job's ticket at the memory node, as an attempt holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Open {
    last: Option<Attempt>,
    /// Keys: whose, for which attempt.
    keys: BTreeSet<(usize, Attempt)>,
    /// Outputs, and whether they are complete.
    outputs: BTreeMap<Attempt, bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OwnerSide {
    life: u64,
    decider: Option<Owner>,
    wanted: u64,
    installing: BTreeMap<JobName, Attempt>,
    lapsed: bool,
    looked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ExecutorSide {
    life: u64,
    decider: Option<Executor>,
    /// What the executor runs, and whether it has joined.
    running: BTreeMap<JobName, (Attempt, bool)>,
    heard: Term,
    lapsed: bool,
    beaten: Option<(usize, u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SchedulerSide {
    life: u64,
    election: Option<Election>,
    decider: Option<Scheduler>,
    looked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub settings: Settings,
    now: u64,
    owners: Vec<OwnerSide>,
    executors: Vec<ExecutorSide>,
    schedulers: Vec<SchedulerSide>,
    /// The register: the last term, its holder, and when it ends.
    register: (Term, Option<usize>, u64),
    tickets: BTreeMap<JobName, Open>,
    network: Vec<Packet>,
    decided: BTreeSet<JobName>,
    /// How often each job was done: in the pool, and elsewhere.
    pub done: BTreeMap<JobName, (u32, u32)>,
    acknowledged: BTreeSet<JobName>,
    messages: BTreeMap<JobName, u32>,
    went_wrong: bool,
    pub broken: Option<&'static str>,
}

fn package(name: JobName) -> Package {
    let ticket = Ticket { node: 1, incarnation: 1, job: name.job, secret: 9 };
    Package { kind: 16, storage: StorageNeed::None, ticket, arguments: SPAN, memory_bytes: 1000, storage_bytes: 0 }
}

/// How busy owners are: so busy that an idle executor has the least cost.
const BUSY: Load =
    Load { active_threads: 1, threads: 1, written_per_second: 0, bandwidth_per_second: 0, pending: 0, queue_limit: 1 };

impl World {
    pub fn new(settings: Settings) -> Self {
        let planted = Planted(settings.bug);
        let owner = OwnerSide {
            life: 1,
            decider: Some(Owner::with(planted)),
            wanted: 0,
            installing: BTreeMap::new(),
            lapsed: false,
            looked: 0,
        };
        let executor = ExecutorSide {
            life: 1,
            decider: Some(Executor::new(1, 1).with(planted)),
            running: BTreeMap::new(),
            heard: Term(0),
            lapsed: false,
            beaten: None,
        };
        let election = Some(Election::new(LEASE).with(planted));
        let scheduler = SchedulerSide { life: 1, election, decider: None, looked: 0 };
        Self {
            settings,
            now: 1,
            owners: vec![owner; settings.owners],
            executors: vec![executor; settings.executors],
            schedulers: vec![scheduler; settings.schedulers],
            register: (Term(0), None, 0),
            tickets: BTreeMap::new(),
            network: Vec::new(),
            decided: BTreeSet::new(),
            done: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            messages: BTreeMap::new(),
            went_wrong: false,
            broken: None,
        }
    }

    /// Returns all that may happen next.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let may_fail = self.settings.faults > 0;
        for (i, packet) in self.network.iter().enumerate() {
            if self.network.iter().position(|other| other == packet) != Some(i) {
                continue;
            }
            steps.push(Step::Deliver(i));
            if may_fail {
                steps.extend([Step::Lose(i), Step::Double(i)]);
            }
        }
        for (i, owner) in self.owners.iter().enumerate() {
            let end = End::Owner(i);
            if owner.decider.is_some() {
                if owner.wanted < self.settings.jobs && self.leader().is_some() {
                    steps.push(Step::Want(i));
                }
                steps.extend(owner.installing.keys().map(|&name| Step::Install(i, name)));
                if owner.looked < self.now {
                    steps.push(Step::Look(end));
                }
            }
            self.faults_of(end, owner.decider.is_some(), owner.lapsed, &mut steps);
        }
        for (i, executor) in self.executors.iter().enumerate() {
            if executor.decider.is_some() {
                if self.leader().is_some_and(|s| executor.beaten != Some((s, self.schedulers[s].life, self.now))) {
                    steps.push(Step::Beat(i));
                }
                for (&name, &(_, joined)) in &executor.running {
                    steps.push(if joined { Step::Finish(i, name) } else { Step::Join(i, name) });
                    if joined && may_fail {
                        steps.push(Step::Fail(i, name));
                    }
                }
            }
            self.faults_of(End::Executor(i), executor.decider.is_some(), executor.lapsed, &mut steps);
        }
        for (i, scheduler) in self.schedulers.iter().enumerate() {
            match &scheduler.election {
                Some(election) => {
                    if scheduler.looked < self.now && scheduler.decider.is_some() {
                        steps.push(Step::Look(End::Scheduler(i)));
                    }
                    let is_free = self.register.1.is_none() || self.register.2 <= self.now;
                    if is_free && election.leads(self.now).is_none() {
                        steps.push(Step::Elect(i));
                    }
                    if may_fail {
                        steps.push(Step::Crash(End::Scheduler(i)));
                    }
                }
                None => steps.push(Step::Return(End::Scheduler(i))),
            }
        }
        if self.settings.passes > 0 {
            steps.push(Step::Pass);
        }
        steps
    }

    fn faults_of(&self, end: End, is_up: bool, lapsed: bool, steps: &mut Vec<Step>) {
        match (is_up, lapsed) {
            (true, false) if self.settings.faults > 0 => steps.extend([Step::Crash(end), Step::Lapse(end)]),
            // A party that has crashed lapses in the end, and then comes back. So does a party that finds that it has
            // lapsed.
            (false, false) => steps.push(Step::Lapse(end)),
            (_, true) => steps.push(Step::Return(end)),
            _ => {}
        }
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::Lose(_) | Step::Double(_) | Step::Fail(..) | Step::Crash(_) => self.fail(),
            Step::Lapse(end) if self.is_up(end) => self.fail(),
            _ => {}
        }
        match step {
            Step::Want(i) => self.want(i),
            Step::Deliver(i) => {
                let packet = self.network.remove(i);
                self.deliver(packet);
            }
            Step::Lose(i) => drop(self.network.remove(i)),
            Step::Double(i) => self.network.push(self.network[i]),
            Step::Beat(i) => self.beat(i),
            Step::Join(i, name) => self.join(i, name),
            Step::Finish(i, name) => self.finish(i, name, true),
            Step::Fail(i, name) => self.finish(i, name, false),
            Step::Install(i, name) => self.install(i, name),
            Step::Elect(i) => self.elect(i),
            Step::Look(end) => self.look(end),
            Step::Crash(end) => self.crash(end),
            Step::Return(end) => self.come_back(end),
            Step::Lapse(end) => self.lapse(end),
            Step::Pass => {
                self.now += LONG;
                self.settings.passes -= 1;
                self.went_wrong = true;
            }
        }
        self.network.sort_by_cached_key(|packet| format!("{packet:?}"));
    }

    fn fail(&mut self) {
        self.settings.faults -= 1;
        self.went_wrong = true;
    }

    fn is_up(&self, end: End) -> bool {
        match end {
            End::Owner(i) => self.owners[i].decider.is_some(),
            End::Executor(i) => self.executors[i].decider.is_some(),
            End::Scheduler(i) => self.schedulers[i].election.is_some(),
        }
    }

    fn life(&self, end: End) -> u64 {
        match end {
            End::Owner(i) => self.owners[i].life,
            End::Executor(i) => self.executors[i].life,
            End::Scheduler(i) => self.schedulers[i].life,
        }
    }

    fn party(&self, end: End) -> Party {
        match end {
            End::Owner(i) => Party(self.life(end) * 100 + i as u64),
            End::Executor(i) | End::Scheduler(i) => Party(self.life(end) * 100 + 50 + i as u64),
        }
    }

    fn end_of(&self, party: Party) -> (End, u64) {
        let (life, place) = (party.0 / 100, (party.0 % 100) as usize);
        (if place < 50 { End::Owner(place) } else { End::Executor(place - 50) }, life)
    }

    /// Returns the scheduler that the register names.
    fn leader(&self) -> Option<usize> {
        self.register.1
    }

    fn require(&mut self, holds: bool, promise: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(promise);
        }
    }

    fn send(&mut self, from: End, to: (End, u64), message: Message) {
        let sent = self.messages.entry(message.name).or_default();
        *sent += 1;
        let few = *sent <= 6 || self.went_wrong;
        self.require(few, "a job takes at most six messages");
        self.network.push(Packet { from: (from, self.life(from)), to, message });
    }

    fn send_to_scheduler(&mut self, from: End, message: Message) {
        if let Some(leader) = self.leader() {
            let to = End::Scheduler(leader);
            self.send(from, (to, self.life(to)), message);
        }
    }

    fn want(&mut self, i: usize) {
        let owner = &mut self.owners[i];
        owner.wanted += 1;
        let name = JobName { database: i as u128, shard: 0, epoch: owner.life, job: owner.wanted };
        if !owner.lapsed {
            self.tickets.insert(name, Open::default());
        }
        let heard = self.register.0;
        if let Some(decider) = &mut owner.decider {
            // A party that reaches a scheduler knows its term.
            decider.meet(heard);
            decider.prepare(name, package(name), BUSY, self.now + LONG / 2);
        }
        self.owner_acts(i);
    }

    fn owner_acts(&mut self, i: usize) {
        let Some(decider) = &mut self.owners[i].decider else { return };
        let mut just_decided = Vec::new();
        for order in decider.take_orders() {
            match order {
                Order::Send(message) => {
                    if message.body == Body::Ack {
                        self.acknowledged.insert(message.name);
                    }
                    self.send_to_scheduler(End::Owner(i), message);
                }
                Order::Install { name, attempt, .. } => {
                    self.require(!self.decided.contains(&name), "a job is decided once");
                    self.owners[i].installing.insert(name, attempt);
                }
                Order::EndKeys(name) => drop(self.tickets.remove(&name)),
                Order::FreeInputs(name) => {
                    let is_read = self.tickets.get(&name).is_some_and(|open| !open.keys.is_empty());
                    let is_acknowledged = self.acknowledged.contains(&name);
                    self.require(is_acknowledged && !is_read, "inputs are freed behind the ACK, when nobody has keys");
                }
                Order::RunElsewhere(name, _) => {
                    self.decide(name);
                    self.done.entry(name).or_default().1 += 1;
                    just_decided.push(name);
                }
            }
        }
        for name in just_decided {
            self.check_closed(name);
        }
    }

    fn decide(&mut self, name: JobName) {
        let is_first = self.decided.insert(name);
        self.require(is_first, "a job is decided once");
    }

    fn check_closed(&mut self, name: JobName) {
        let is_closed = !self.tickets.contains_key(&name);
        self.require(is_closed, "keys end with the job");
    }

    fn install(&mut self, i: usize, name: JobName) {
        let Some(attempt) = self.owners[i].installing.remove(&name) else { return };
        let open = self.tickets.get_mut(&name);
        let is_made = open.is_some_and(|open| {
            open.outputs.get(&attempt) == Some(&true) && {
                open.outputs.remove(&attempt);
                true
            }
        });
        if is_made {
            self.decide(name);
            let done = self.done.entry(name).or_default();
            done.0 += 1;
            let once = done.0 + done.1 == 1;
            self.require(once, "a job is done once");
        }
        let Some(decider) = &mut self.owners[i].decider else { return };
        if is_made {
            decider.installed(name);
        } else {
            decider.refused(name);
        }
        self.owner_acts(i);
        if is_made {
            self.check_closed(name);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let Packet { from, to: (to, life), message } = packet;
        if self.life(to) != life {
            return;
        }
        match to {
            End::Owner(i) => {
                if let Some(decider) = &mut self.owners[i].decider {
                    decider.receive(&message);
                    self.owner_acts(i);
                }
            }
            End::Executor(i) => {
                if let Some(decider) = &mut self.executors[i].decider {
                    decider.receive(&message);
                    self.executor_acts(i);
                    self.executors[i].heard = self.executors[i].heard.max(message.term);
                }
            }
            End::Scheduler(i) => {
                let party = Party(from.1 * 100 + self.party(from.0).0 % 100);
                let now = self.now;
                self.resign_if_late(i);
                if let Some(decider) = &mut self.schedulers[i].decider {
                    decider.receive(now, party, &[Letter::Message(message)]);
                    self.scheduler_acts(i);
                }
            }
        }
    }

    /// A scheduler that has slept through its lease is none any more.
    fn resign_if_late(&mut self, i: usize) {
        let side = &mut self.schedulers[i];
        if side.election.as_ref().is_none_or(|election| election.leads(self.now).is_none()) {
            side.decider = None;
        }
    }

    fn scheduler_acts(&mut self, i: usize) {
        let Some(decider) = &mut self.schedulers[i].decider else { return };
        for (party, message) in decider.take_messages() {
            let to = self.end_of(party);
            self.send(End::Scheduler(i), to, message);
        }
    }

    fn executor_acts(&mut self, i: usize) {
        let Some(decider) = &mut self.executors[i].decider else { return };
        for task in decider.take_tasks() {
            match task {
                Task::Send(message) => self.send_to_scheduler(End::Executor(i), message),
                Task::Run { name, attempt, .. } => {
                    let is_current = attempt.term >= self.executors[i].heard;
                    self.require(is_current, "nobody works for a scheduler that was deposed");
                    self.executors[i].running.insert(name, (attempt, false));
                }
                Task::Stop(name, attempt) => {
                    // It gives back what it has keys to.
                    if let Some(open) = self.tickets.get_mut(&name) {
                        open.keys.remove(&(i, attempt));
                        open.outputs.retain(|of, made| *of != attempt || *made);
                    }
                    self.executors[i].running.remove(&name);
                }
            }
        }
    }

    fn beat(&mut self, i: usize) {
        let Some(leader) = self.leader() else { return };
        self.executors[i].beaten = Some((leader, self.schedulers[leader].life, self.now));
        self.resign_if_late(leader);
        let (party, now) = (self.party(End::Executor(i)), self.now);
        let Some(decider) = &mut self.schedulers[leader].decider else { return };
        let Some(executor) = &mut self.executors[i].decider else { return };
        decider.receive(now, party, &[Letter::Beat(executor.beat(0, 0, StorageAccess { own: true, signed: false }))]);
        executor.meet(decider.term());
        self.executors[i].heard = self.executors[i].heard.max(decider.term());
        self.scheduler_acts(leader);
    }

    fn join(&mut self, i: usize, name: JobName) {
        let Some(&(attempt, _)) = self.executors[i].running.get(&name) else { return };
        let lapsed = self.executors[i].lapsed;
        let open = self.tickets.get_mut(&name).filter(|open| !lapsed && open.last < Some(attempt));
        match open {
            Some(open) => {
                *open = Open { last: Some(attempt), ..Open::default() };
                open.keys.insert((i, attempt));
                open.outputs.insert(attempt, false);
                self.executors[i].running.insert(name, (attempt, true));
            }
            None => self.done(i, name, attempt, false),
        }
    }

    fn finish(&mut self, i: usize, name: JobName, well: bool) {
        let Some(&(attempt, _)) = self.executors[i].running.get(&name) else { return };
        let mut made = false;
        if let Some(open) = self.tickets.get_mut(&name)
            && open.keys.remove(&(i, attempt))
        {
            made = well;
            if well {
                open.outputs.insert(attempt, true);
            } else {
                open.outputs.remove(&attempt);
            }
        }
        self.done(i, name, attempt, made);
    }

    fn done(&mut self, i: usize, name: JobName, attempt: Attempt, well: bool) {
        self.executors[i].running.remove(&name);
        let outcome = Outcome { result: SPAN, read_bytes: 0, written_bytes: 0 };
        if let Some(decider) = &mut self.executors[i].decider {
            decider.done(name, attempt, if well { Ok(outcome) } else { Err(forebay_offload::Reason::Failed) });
        }
        self.executor_acts(i);
    }

    fn elect(&mut self, i: usize) {
        let (term, holder, until) = self.register;
        let Some(election) = &mut self.schedulers[i].election else { return };
        if election.question(self.now) != Some(Question::Claim) || holder.is_some() && until > self.now {
            return;
        }
        let term = Term(term.0 + 1);
        self.register = (term, Some(i), self.now + LEASE);
        election.answered(self.now, Some(term));
        self.schedulers[i].decider = Some(Scheduler::new(term, Policy::default()));
        self.schedulers[i].looked = self.now;
    }

    fn look(&mut self, end: End) {
        match end {
            End::Owner(i) => {
                self.owners[i].looked = self.now;
                let heard = self.register.0;
                if let Some(decider) = &mut self.owners[i].decider {
                    decider.tick(self.now);
                    decider.meet(heard);
                    self.owner_acts(i);
                }
            }
            End::Scheduler(i) => {
                self.schedulers[i].looked = self.now;
                self.resign_if_late(i);
                if let Some(decider) = &mut self.schedulers[i].decider {
                    decider.tick(self.now);
                    self.scheduler_acts(i);
                }
            }
            End::Executor(_) => {}
        }
    }

    fn crash(&mut self, end: End) {
        match end {
            End::Owner(i) => self.owners[i].decider = None,
            End::Executor(i) => self.executors[i].decider = None,
            End::Scheduler(i) => {
                (self.schedulers[i].election, self.schedulers[i].decider) = (None, None);
                if self.register.1 == Some(i) {
                    self.register.1 = None;
                }
            }
        }
    }

    fn come_back(&mut self, end: End) {
        let planted = Planted(self.settings.bug);
        match end {
            End::Owner(i) => {
                let OwnerSide { life, wanted, looked, .. } = self.owners[i];
                let decider = Some(Owner::with(planted));
                let installing = BTreeMap::new();
                self.owners[i] = OwnerSide { life: life + 1, decider, wanted, installing, lapsed: false, looked };
            }
            End::Executor(i) => {
                self.executors[i] = ExecutorSide {
                    life: self.executors[i].life + 1,
                    decider: Some(Executor::new(1, 1).with(planted)),
                    running: BTreeMap::new(),
                    heard: Term(0),
                    lapsed: false,
                    beaten: None,
                };
            }
            End::Scheduler(i) => {
                let side = &mut self.schedulers[i];
                side.life += 1;
                side.election = Some(Election::new(LEASE).with(planted));
            }
        }
    }

    /// The memory node and the scheduler give a party up.
    fn lapse(&mut self, end: End) {
        match end {
            End::Owner(i) => {
                self.owners[i].lapsed = true;
                self.tickets.retain(|name, _| name.database != i as u128);
            }
            End::Executor(i) => {
                self.executors[i].lapsed = true;
                for open in self.tickets.values_mut() {
                    let lost: Vec<_> = open.keys.iter().filter(|(of, _)| *of == i).copied().collect();
                    for key in lost {
                        open.keys.remove(&key);
                        open.outputs.remove(&key.1);
                    }
                }
            }
            End::Scheduler(_) => {}
        }
        let (party, now) = (self.party(end), self.now);
        if let Some(leader) = self.leader() {
            self.resign_if_late(leader);
            if let Some(decider) = &mut self.schedulers[leader].decider {
                decider.left(now, party);
                self.scheduler_acts(leader);
            }
        }
    }

    /// Lets everything go well until nothing is left to do. Then nothing may be left anywhere.
    #[allow(dead_code, reason = "one of the tests with worlds does not sweep")]
    pub fn settle(&mut self) {
        self.settings.faults = 0;
        self.settings.passes = 0;
        self.went_wrong = true;
        for _ in 0..3 {
            for _ in 0..10_000 {
                let steps = self.steps();
                let Some(&step) = steps.first() else { break };
                self.take(step);
            }
            self.now += LONG;
        }
        let owners_wait = self.owners.iter().filter_map(|owner| owner.decider.as_ref()).any(|owner| owner.jobs() > 0);
        self.require(!owners_wait, "every job is decided in the end");
        let is_swept = self.tickets.is_empty();
        self.require(is_swept, "nothing is left after the sweep");
        let scheduled: usize = self.schedulers.iter().filter_map(|it| it.decider.as_ref()).map(Scheduler::jobs).sum();
        self.require(scheduled == 0, "schedulers forget what is done");
    }
}
