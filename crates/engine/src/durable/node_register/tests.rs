//! Nodes of a register hang, and come back by other sessions.

use super::*;
use crate::durable::log::tests::{World, start};
use crate::durable::named::open_copy;
use forebay_base::KeyOrder;
use forebay_env::Random;
use forebay_fabric::Traffic;
use forebay_fabric::sim::{Faults, SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_proto::calls::CloseSession;
use forebay_table::{CopiedDatabase, StoreConfig};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const NODES: [u32; 3] = [1, 2, 3];

fn first() -> MembersRecord {
    let (key_order, merge_operator) = (KeyOrder::default(), String::new());
    let config = StoreConfig {
        key_order,
        shards: 1,
        merge_operator,
        bounds: Vec::new(),
        part: None,
        copies: 2,
        to_finish: false,
    };
    let database = Some(CopiedDatabase { database: 7, copies: 2, config });
    MembersRecord { database, ..MembersRecord::default() }
}

/// A record that differs from those with other numbers.
fn record(number: u32) -> MembersRecord {
    MembersRecord { shards: vec![vec![MemberNode { node: number, incarnation: 1 }]], ..first() }
}

/// The database's part of a node, by a new session.
fn part(network: &SimNetwork, node: u32) -> Part {
    try_part(network, node, true).unwrap()
}

/// The same, for a node that may have come later and may not be there.
fn try_part(network: &SimNetwork, node: u32, is_first: bool) -> Option<Part> {
    let link = network.connect(node).ok()?;
    let options = ClientOptions {
        timeout: Duration::from_millis(50),
        renew: false,
        clock: network.clock(),
        ..ClientOptions::default()
    };
    let client = MemoryClient::connect(link, "owner", options).ok()?;
    open_copy(&client, "db", &first().database.unwrap(), is_first.then_some(NODES.len())).ok()
}

/// A process that has the register.
struct Owner {
    parts: Vec<Part>,
    register: Box<dyn Register>,
}

impl Owner {
    fn acquire(network: &SimNetwork, takeover: bool) -> (Vec<Part>, Result<Cells>) {
        let options = Options { takeover, clock: network.clock(), ..Options::default() };
        let parts: Vec<_> = NODES.iter().filter_map(|node| try_part(network, *node, true)).collect();
        let cells = Cells::acquire(parts.iter(), &options);
        (parts, cells)
    }

    fn new(network: &SimNetwork, takeover: bool) -> Self {
        let (parts, cells) = Self::acquire(network, takeover);
        Self { parts, register: cells.unwrap().claim(&first()).unwrap().0 }
    }

    /// The session at a node lapses.
    fn lapse(&self, at: usize) {
        let client = self.parts[at].store.client();
        client.call(&CloseSession { session: client.session() }).unwrap();
    }

    /// The node is back, by another session.
    fn returns(&mut self, network: &SimNetwork, at: usize) {
        self.parts[at] = try_part(network, NODES[at], false).unwrap();
        self.register.returned(&self.parts[at]);
    }
}

/// What a process that takes the register over finds.
fn said(network: &SimNetwork) -> MembersRecord {
    let (_parts, cells) = Owner::acquire(network, true);
    MembersRecord { ballot: None, ..cells.unwrap().said.clone() }
}

#[test]
fn sessions_at_all_nodes_lapse_one_after_the_other_and_writes_go_on() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    for round in 0..9 {
        let at = round as usize % NODES.len();
        owner.lapse(at);
        owner.register.write(&record(2 * round)).unwrap();
        owner.returns(&network, at);
        owner.register.write(&record(2 * round + 1)).unwrap();
    }
    assert_eq!(said(&network), record(17));
    // That process did not claim it.
    owner.register.write(&record(18)).unwrap();
    assert_eq!(said(&network), record(18));
    Owner::new(&network, true);
    assert_eq!(owner.register.write(&record(19)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(said(&network), record(18));
}

#[test]
fn a_register_that_most_nodes_have_left_waits_for_one_of_them() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.register.write(&record(1)).unwrap();
    (0..3).for_each(|at| owner.lapse(at));
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    owner.returns(&network, 2);
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    owner.returns(&network, 0);
    owner.register.write(&record(3)).unwrap();
    assert_eq!(said(&network), record(3));
}

#[test]
fn a_second_session_goes_on_where_the_first_one_ends() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    for (at, node) in NODES.into_iter().enumerate() {
        let second = part(&network, node);
        owner.register.returned(&second);
        owner.register.write(&record(7)).unwrap();
        second.store.acquire_shard(CELL, false).expect_err("the first one has it");
        owner.lapse(at);
        owner.parts[at] = second;
        owner.register.write(&record(at as u32)).unwrap();
    }
    assert_eq!(said(&network), record(2));
}

#[test]
fn what_another_process_has_claimed_meanwhile_is_not_taken_back() {
    // Whether it has ended since.
    for has_ended in [false, true] {
        let network = start(&NODES);
        let mut owner = Owner::new(&network, false);
        (0..3).for_each(|at| owner.lapse(at));
        let mut other = Owner::new(&network, false);
        other.register.write(&record(1)).unwrap();
        if has_ended {
            other.register.release();
        }
        owner.returns(&network, 1);
        for _ in 0..2 {
            assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Fenced);
        }
        if !has_ended {
            other.register.write(&record(3)).unwrap();
        }
        assert_eq!(said(&network), record(if has_ended { 1 } else { 3 }));
        // Nothing is kept from others.
        drop(other);
        Owner::acquire(&network, true).1.map(drop).unwrap();
        Owner::new(&network, false);
    }
}

#[test]
fn a_cell_that_another_process_has_acquired_is_waited_for() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.lapse(0);
    let others = part(&network, NODES[0]);
    let others = others.store.acquire_shard(CELL, false).unwrap();
    owner.returns(&network, 0);
    owner.register.write(&record(1)).unwrap();
    others.check().unwrap();
    owner.lapse(1);
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    others.check().unwrap();
    others.release().unwrap();
    owner.register.write(&record(3)).unwrap();
    assert_eq!(said(&network), record(3));
}

/// Two nodes have the last write, and then one of them gets the write before it.
#[test]
fn a_write_that_comes_late_is_refused() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    network.partition(NODES[0]);
    owner.register.write(&record(1)).unwrap();
    network.heal(NODES[0]);
    owner.lapse(2);
    owner.register.write(&record(2)).unwrap();
    network.settle();
    let says = |at: usize| owner.parts[at].store.root(CELL).unwrap().unwrap().1;
    assert_eq!(says(0), says(1));
    assert_eq!(said(&network), record(2));
}

/// The node is waited for once, and not by every write.
#[test]
fn a_node_that_hangs_is_not_asked_until_it_answers_again() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    let asked = |owner: &Owner, at: usize| {
        let link = owner.parts[at].store.client().link();
        [Traffic::Foreground, Traffic::Background].map(|traffic| link.counts(traffic).messages).iter().sum::<u64>()
    };
    let renew = |owner: &Owner| owner.parts.iter().for_each(|part| drop(part.store.client().renew()));
    let says = |owner: &Owner, at: usize| {
        let said = MembersRecord::decode(&owner.parts[at].store.root(CELL).unwrap().unwrap().1).unwrap();
        MembersRecord { ballot: None, ..said }
    };
    for (round, hung) in [0, 1, 2, 1].into_iter().enumerate() {
        let number = 100 * round as u32;
        network.partition(NODES[hung]);
        let before = asked(&owner, hung);
        owner.register.write(&record(number)).unwrap();
        assert_eq!(asked(&owner, hung), before + 1);
        for more in 1..10 {
            owner.register.write(&record(number + more)).unwrap();
            owner.register.check().unwrap();
        }
        assert_eq!(asked(&owner, hung), before + 1, "it hangs still");
        // Calls that were on their way arrive.
        network.heal(NODES[hung]);
        network.settle();
        assert_eq!(said(&network), record(number + 9));
        renew(&owner);
        owner.register.write(&record(number + 10)).unwrap();
        (0..NODES.len()).for_each(|at| assert_eq!(says(&owner, at), record(number + 10)));
        // The node counts.
        owner.register.write(&record(number + 11)).unwrap();
        network.partition(NODES[(hung + 1) % NODES.len()]);
        owner.register.write(&record(number + 12)).unwrap();
        network.heal(NODES[(hung + 1) % NODES.len()]);
        assert_eq!(said(&network), record(number + 12));
        renew(&owner);
        owner.register.write(&record(number + 13)).unwrap();
    }
}

/// The node has answered nothing since it hung, and too few decide without it.
#[test]
fn a_node_that_was_silent_is_asked_where_too_few_others_answer() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    network.partition(NODES[0]);
    owner.register.write(&record(1)).unwrap();
    network.heal(NODES[0]);
    network.partition(NODES[1]);
    owner.register.write(&record(2)).unwrap();
    network.partition(NODES[2]);
    assert_eq!(owner.register.write(&record(3)).unwrap_err().kind(), ErrorKind::Unavailable);
    network.heal(NODES[1]);
    owner.register.write(&record(4)).unwrap();
    network.heal(NODES[2]);
    assert_eq!(said(&network), record(4));
}

/// Another process acquired the cells, found no claim, and may complete the creation with other cells.
#[test]
fn a_first_claim_does_not_acquire_again() {
    let network = start(&NODES);
    let (_parts, slow) = Owner::acquire(&network, false);
    let (_others, other) = Owner::acquire(&network, true);
    assert!(other.unwrap().said.database.is_none());
    assert_eq!(slow.unwrap().claim(&first()).unwrap_err().kind(), ErrorKind::Fenced);
    Owner::new(&network, false);
}

#[test]
fn a_first_claim_needs_all_founders() {
    let network = start(&NODES);
    let (parts, cells) = Owner::acquire(&network, false);
    let client = parts[1].store.client();
    client.call(&CloseSession { session: client.session() }).unwrap();
    assert_eq!(cells.unwrap().claim(&first()).unwrap_err().kind(), ErrorKind::Unavailable);
    // More than half of the nodes say so, and that counts.
    assert!(said(&network).database.is_some());
}

/// A store that was made again at a node that forgot what it had said.
#[test]
fn a_node_that_came_later_does_not_vote() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.lapse(0);
    let other = part(&network, NODES[0]);
    let client = other.store.client();
    client.drop_store(other.store.id()).unwrap();
    let later = open_copy(client, "db", &first().database.unwrap(), None).unwrap();
    owner.register.returned(&later);
    owner.register.write(&record(1)).unwrap();
    assert_eq!(later.store.root(CELL).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Starts a node again, and lets a process see that.
fn restart(world: &World, owner: &mut Owner, at: usize) {
    world.restart(NODES[at]);
    owner.returns(&world.network, at);
}

/// Who votes, according to a node.
fn ballot(owner: &Owner, at: usize) -> Ballot {
    let root = owner.parts[at].store.root(CELL).unwrap().unwrap().1;
    MembersRecord::decode(&root).unwrap().ballot.unwrap()
}

fn votes_everywhere(world: &World, owner: &Owner) -> bool {
    let running: BTreeSet<_> = NODES.iter().map(|node| member(world.network.running(*node).unwrap())).collect();
    (0..NODES.len())
        .map(|at| ballot(owner, at))
        .all(|ballot| ballot.before.is_empty() && ballot.voters.iter().copied().collect::<BTreeSet<_>>() == running)
}

#[test]
fn all_nodes_are_started_again_one_after_the_other_and_writes_go_on() {
    let world = World::new(3);
    let mut owner = Owner::new(&world.network, false);
    for round in 0..9 {
        let at = round as usize % NODES.len();
        world.network.crash(NODES[at]);
        owner.register.write(&record(2 * round)).unwrap();
        world.start(NODES[at]);
        owner.returns(&world.network, at);
        owner.register.write(&record(2 * round + 1)).unwrap();
        assert!(votes_everywhere(&world, &owner));
        // Another process finds it, with any two of the nodes.
        if round % 2 == 0 {
            for cut_off in NODES {
                world.network.partition(cut_off);
                assert_eq!(said(&world.network), record(2 * round + 1));
                world.network.heal(cut_off);
            }
        }
    }
    Owner::new(&world.network, true);
    assert_eq!(owner.register.write(&record(19)).unwrap_err().kind(), ErrorKind::Fenced);
}

/// The node is started a second time before its first new life could vote.
#[test]
fn a_node_that_is_started_again_twice_votes() {
    let world = World::new(3);
    let mut owner = Owner::new(&world.network, false);
    restart(&world, &mut owner, 0);
    restart(&world, &mut owner, 0);
    owner.register.write(&record(1)).unwrap();
    assert!(votes_everywhere(&world, &owner));
    restart(&world, &mut owner, 0);
    owner.register.write(&record(2)).unwrap();
    restart(&world, &mut owner, 1);
    owner.register.write(&record(3)).unwrap();
    assert!(votes_everywhere(&world, &owner));
    assert_eq!(said(&world.network), record(3));
}

/// A register that most of the nodes have forgotten is lost, and is not taken for one that says nothing.
#[test]
fn two_nodes_that_are_started_again_at_once_decide_nothing() {
    let world = World::new(3);
    let mut owner = Owner::new(&world.network, false);
    owner.register.write(&record(1)).unwrap();
    restart(&world, &mut owner, 0);
    restart(&world, &mut owner, 1);
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(Owner::acquire(&world.network, true).1.unwrap_err().kind(), ErrorKind::Unavailable);
    // Nor are those that have never voted.
    world.restart(NODES[2]);
    assert_eq!(Owner::acquire(&world.network, true).1.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Processes that own the register one after another, and do not know of each other, and nodes with several lives.
mod seeded {
    use super::*;

    const SLOTS: u32 = 3;
    /// Lives of a node have numbers that differ by multiples of this.
    const LIVES: u32 = 10;

    /// What a record says.
    fn number(record: &MembersRecord) -> u32 {
        record.shards.first().and_then(|members| members.first()).map_or(0, |node| node.node)
    }

    struct Process {
        register: NodeRegister,
        /// Counts the processes that have claimed the register.
        claim: u32,
    }

    struct Run {
        seed: u64,
        world: World,
        random: Random,
        /// The lives of each node that have not ended. All but the last one hang, or nobody asks them.
        lives: Vec<Vec<u32>>,
        hung: BTreeSet<u32>,
        processes: Vec<Process>,
        claims: u32,
        written: u32,
        /// The last write that was acknowledged, with its claim, and those that may have been made since.
        acknowledged: (u32, u32),
        unknown: Vec<(u32, u32)>,
        /// A node hangs once the network has made this many steps.
        hangs: Arc<(AtomicU64, AtomicU32)>,
    }

    impl Run {
        fn new(seed: u64) -> Self {
            let faults = Faults { lose_completion: 5000, ..Faults::default() };
            let network = SimNetwork::new(seed, SimOptions { faults, ..SimOptions::default() });
            let world = World::with(network, SLOTS);
            let hangs = Arc::new((AtomicU64::new(u64::MAX), AtomicU32::new(0)));
            let (network, at) = (world.network.clone(), Arc::clone(&hangs));
            world.before_steps(move || {
                if network.steps() >= at.0.load(Ordering::Relaxed) {
                    network.partition(at.1.load(Ordering::Relaxed));
                }
            });
            Self {
                seed,
                world,
                random: Random::seeded(seed),
                lives: (1..=SLOTS).map(|node| vec![node]).collect(),
                hung: BTreeSet::new(),
                processes: Vec::new(),
                claims: 0,
                written: 0,
                acknowledged: (0, 0),
                unknown: Vec::new(),
                hangs,
            }
        }

        fn below(&mut self, bound: usize) -> usize {
            self.random.below(bound as u64) as usize
        }

        fn any_life(&mut self) -> u32 {
            let lives: Vec<_> = self.lives.iter().flatten().copied().collect();
            let at = self.below(lives.len());
            lives[at]
        }

        fn part(&self, life: u32) -> Option<Part> {
            try_part(&self.world.network, life, life <= SLOTS && self.claims == 0)
        }

        fn hang(&mut self, life: u32) {
            self.world.network.partition(life);
            self.hung.insert(life);
        }

        fn heal(&mut self) {
            self.hangs.0.store(u64::MAX, Ordering::Relaxed);
            self.lives.iter().flatten().for_each(|life| self.world.network.heal(*life));
            self.hung.clear();
        }

        /// Another process opens the database, at some of the nodes.
        fn open(&mut self, some: &[u32], takeover: bool) -> Result<()> {
            let parts: Vec<_> = some.iter().filter_map(|life| self.part(*life)).collect();
            let options = Options { takeover, clock: self.world.network.clock(), ..Options::default() };
            let mut cells = Cells::acquire(parts.iter(), &options)?;
            cells.add(parts.iter());
            let (register, said) = cells.claim_with(&first(), |one, other| one.node % LIVES == other.node % LIVES)?;
            let (found, (last, by)) = (number(&said), self.acknowledged);
            let is_later = |&(write, claim): &(u32, u32)| write == found && write > last && claim >= by;
            let is_right = found == last || self.unknown.iter().any(is_later);
            assert!(is_right, "seed {}: {found} is found, and {last} was acknowledged", self.seed);
            self.claims += 1;
            self.acknowledged = (found, self.claims);
            self.unknown.clear();
            self.processes.push(Process { register, claim: self.claims });
            Ok(())
        }

        fn write(&mut self, at: usize) -> Result<()> {
            self.written += 1;
            let process = &mut self.processes[at];
            let write = (self.written, process.claim);
            let result = process.register.write(&record(self.written));
            if result.is_ok() {
                assert_eq!(
                    process.claim, self.claims,
                    "seed {}: another process has claimed the register since",
                    self.seed
                );
                self.acknowledged = write;
                self.unknown.clear();
            } else {
                self.unknown.push(write);
            }
            result
        }

        /// Lets time pass, in which processes renew their sessions.
        fn pass(&self, steps: usize) {
            for _ in 0..steps {
                self.world.network.clock().sleep(Duration::from_secs(3));
                let cells = self.processes.iter().flat_map(|process| &process.register.cells);
                cells.for_each(|cell| drop(cell.store.client().renew()));
            }
        }

        /// A node hangs after some more steps of the network.
        fn hang_soon(&mut self, life: u32, steps: usize) {
            let after = self.world.network.steps() + self.random.below(steps as u64);
            self.hung.insert(life);
            self.hangs.1.store(life, Ordering::Relaxed);
            self.hangs.0.store(after, Ordering::Relaxed);
        }

        /// A node hangs, and its next life takes its place while another node also hangs. Then the first one is back.
        fn take_over_from_one_that_hangs(&mut self) {
            let (slot, last) = (self.below(self.lives.len()), self.processes.len() - 1);
            let (first, other) = (self.lives[slot][0], self.below(self.lives.len()));
            self.start_next(slot);
            self.hang(first);
            self.pass(4);
            if let Some(part) = self.part(*self.lives[slot].last().unwrap()) {
                self.processes[last].register.returned(&part);
            }
            self.hang_soon(self.lives[other][0], 300);
            let _ = self.write(last);
            self.hangs.0.store(u64::MAX, Ordering::Relaxed);
            self.world.network.heal(first);
            self.hung.remove(&first);
        }

        fn start_next(&mut self, slot: usize) {
            let next = self.lives[slot].last().unwrap() + LIVES;
            if self.lives[slot].len() < 3 {
                self.world.start(next);
                self.lives[slot].push(next);
            }
        }

        /// What the highest ballot says at the nodes.
        fn highest(&self) -> Option<Ballot> {
            let parts = self.lives.iter().flatten().filter_map(|life| self.part(*life));
            let said = parts.filter_map(|part| Cell::new(&part).said().ok().flatten()?.ballot);
            said.max_by_key(|ballot| (ballot.epoch, ballot.write))
        }

        fn nodes(&self) -> Vec<MemberNode> {
            let lives = self.lives.iter().flatten();
            lives.filter_map(|life| self.world.network.running(*life)).map(member).collect()
        }

        /// Ends a node's earliest life, if more than half of the voters live on.
        fn end(&mut self, slot: usize) {
            if self.lives[slot].len() < 2 {
                return;
            }
            let hung = self.hung.clone();
            self.heal();
            let highest = self.highest();
            let first = self.lives[slot].remove(0);
            let is_decided = highest.is_some_and(|ballot| {
                let rest: Vec<_> = self.nodes();
                ballot.is_decided_by(&rest)
            });
            match is_decided {
                true => self.world.network.crash(first),
                false => self.lives[slot].insert(0, first),
            }
            hung.into_iter().filter(|life| *life != first).for_each(|life| self.hang(life));
        }

        fn step(&mut self) {
            match self.below(20) {
                0..8 if !self.processes.is_empty() => {
                    // Rather the last one.
                    let last = self.processes.len() - 1;
                    let at = if self.below(3) > 0 { last } else { self.below(last + 1) };
                    if self.below(4) == 0 {
                        let life = self.any_life();
                        self.hang_soon(life, 400);
                    }
                    let _ = self.write(at);
                    self.hangs.0.store(u64::MAX, Ordering::Relaxed);
                }
                8..10 => {
                    let all: Vec<_> = self.lives.iter().flatten().copied().collect();
                    let some: Vec<_> = all.into_iter().filter(|_| self.random.below(4) > 0).collect();
                    let takeover = self.below(4) > 0;
                    let _ = self.open(&some, takeover);
                }
                10..12 => {
                    let life = self.any_life();
                    self.hang(life);
                }
                12 => self.heal(),
                13 if !self.processes.is_empty() => self.take_over_from_one_that_hangs(),
                14 | 15 => {
                    let slot = self.below(self.lives.len());
                    self.start_next(slot);
                }
                16 => {
                    let slot = self.below(self.lives.len());
                    self.end(slot);
                }
                17 | 18 if !self.processes.is_empty() => {
                    let (life, at) = (self.any_life(), self.below(self.processes.len()));
                    if let Some(part) = self.part(life) {
                        self.processes[at].register.returned(&part);
                    }
                }
                _ => {
                    // Some processes stand still meanwhile.
                    let steps = 1 + self.below(4);
                    if self.below(3) > 0 {
                        self.pass(steps);
                    } else {
                        self.world.network.clock().sleep(Duration::from_secs(3 * steps as u64));
                    }
                }
            }
            if self.processes.len() > 3 {
                // A killed process keeps what it has until its sessions lapse.
                self.processes.remove(0);
            }
        }

        /// Whatever has happened, the register is back once the nodes are.
        fn finish(&mut self) {
            self.heal();
            self.world.network.clock().sleep(Duration::from_secs(30));
            let all: Vec<_> = self.lives.iter().flatten().copied().collect();
            let mut opened = self.open(&all, true);
            for _ in 0..20 {
                opened = opened.or_else(|_| self.open(&all, true));
            }
            assert!(opened.is_ok(), "seed {}: {opened:?}", self.seed);
            for _ in 0..20 {
                self.world.network.clock().sleep(Duration::from_secs(2));
                let cells = self.processes.last().into_iter().flat_map(|process| &process.register.cells);
                cells.for_each(|cell| drop(cell.store.client().renew()));
                for life in &all {
                    let part = self.part(*life);
                    part.iter().for_each(|part| self.processes.last_mut().unwrap().register.returned(part));
                }
                let last = self.processes.len() - 1;
                let _ = self.write(last);
            }
            let last = self.processes.last_mut().unwrap();
            let seed = self.seed;
            let (ballot, nodes) = (last.register.ballot.clone(), self.nodes());
            assert!(ballot.before.is_empty() && ballot.voters.len() == SLOTS as usize, "seed {seed}: {ballot:?}");
            assert!(ballot.voters.iter().all(|voter| nodes.contains(voter)), "seed {seed}: {ballot:?} of {nodes:?}");
        }
    }

    #[test]
    fn nothing_that_counts_is_lost_whoever_votes() {
        // The last seed loses a write if a change of who votes needs only those that vote then.
        for seed in (0..40).chain([341]) {
            let mut run = Run::new(seed);
            let all: Vec<_> = (1..=SLOTS).collect();
            while run.open(&all, true).is_err() {}
            (0..150).for_each(|_| run.step());
            run.finish();
            run.world.network.clear_progress_hook();
        }
    }
}
