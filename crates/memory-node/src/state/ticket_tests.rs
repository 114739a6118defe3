//! Tickets: who gets keys, until when, and what happens to outputs. Also random runs in which keys are revoked
//! late.

use super::tests::{check_tenants, settings, text};
use super::*;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_fabric::{NodeIdentity, PeerId};
use forebay_proto::calls::*;
use forebay_proto::replies::*;
use forebay_proto::{Message, PROTOCOL_VERSION, Request, ShardId};

const OWNER: u64 = 1;
const SECRET: u128 = 0x5ec;

/// A state, and the keys that it lent.
struct World {
    state: State,
    sessions: BTreeMap<u64, SessionId>,
    shard: ShardKey,
    epoch: Epoch,
    lent: Vec<(JobId, ExtentRange, bool)>,
    commands: Vec<Command>,
}

impl World {
    /// An owner of a shard with an adopted extent, and sessions that could run its jobs.
    fn new(executors: u64) -> (Self, ExtentId) {
        let mut world = Self {
            state: State::new(settings(16, 2, 2), &TenantsOptions::default()),
            sessions: BTreeMap::new(),
            shard: ShardKey { store: StoreId(0), shard: ShardId(0) },
            epoch: Epoch(0),
            lent: Vec::new(),
            commands: Vec::new(),
        };
        (OWNER..=OWNER + executors).for_each(|peer| world.open(peer));
        let session = world.sessions[&OWNER];
        let create = CreateStore { session, name: text("db"), config: forebay_proto::Blob::default() };
        world.shard.store = StoreOpened::decode(&world.reply(OWNER, create)).unwrap().store;
        world.acquire();
        let lease = LeaseExtents { session, count: 1, purpose: Purpose::Flush };
        let Ok(Answer::Grant(_, leased)) = world.call(OWNER, lease) else { panic!("no extent") };
        let extent = leased[0].0;
        let (shard, epoch) = (world.shard, world.epoch);
        world.reply(OWNER, AdoptExtents { session, shard, epoch, extents: vec![extent] });
        (world, extent)
    }

    fn open(&mut self, peer: u64) {
        self.state.link_opened(peer, &Identity::anonymous()).unwrap();
        let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text("test"), capabilities: 0 };
        let opened = SessionOpened::decode(&self.reply(peer, call)).unwrap();
        self.sessions.insert(peer, opened.session);
    }

    fn acquire(&mut self) {
        let call = AcquireShard { session: self.sessions[&OWNER], shard: self.shard, takeover: true };
        self.epoch = ShardAcquired::decode(&self.reply(OWNER, call)).unwrap().epoch;
    }

    fn call(&mut self, peer: u64, request: impl Into<Request>) -> Result<Answer, Refusal> {
        let answer = self.state.call(0, PeerId(peer), request.into());
        if let Ok(Answer::Lend { job, wanted, .. }) = &answer {
            for &(range, rights) in wanted {
                let writes = rights.contain(Rights::WRITE);
                let overlaps = |of: &ExtentRange| {
                    let is_before_end = of.offset < range.offset + range.length;
                    of.extent == range.extent && is_before_end && range.offset < of.offset + of.length
                };
                let clashes =
                    |(of, lent, also): &(JobId, ExtentRange, bool)| of != job && (writes || *also) && overlaps(lent);
                assert!(!self.lent.iter().any(clashes), "{range} has a writer and another one");
                self.lent.push((*job, range, writes));
            }
        }
        self.commands.extend(self.state.take_commands());
        answer
    }

    fn reply(&mut self, peer: u64, request: impl Into<Request>) -> Vec<u8> {
        match self.call(peer, request).unwrap() {
            Answer::Reply(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Carries out a command.
    fn carry_out(&mut self, which: usize) {
        let command = self.commands.swap_remove(which % self.commands.len());
        match command {
            Command::Revoke { session, extent } => self.state.revoked(session, extent),
            Command::Zero { extent } => {
                assert!(
                    !self.lent.iter().any(|(_, range, _)| range.extent == extent),
                    "{extent} is zeroed under a key"
                );
                self.state.zeroed(extent);
            }
            Command::EndKeys { job } => {
                self.lent.retain(|(of, ..)| *of != job);
                self.state.keys_ended(job);
            }
            Command::Close { .. } => panic!("a link is closed"),
        }
        self.commands.extend(self.state.take_commands());
    }

    fn settle(&mut self) {
        while !self.commands.is_empty() {
            self.carry_out(0);
        }
    }

    fn ticket(&mut self) -> u64 {
        let (shard, epoch) = (self.shard, self.epoch);
        let call = OpenTicket { session: self.sessions[&OWNER], shard, epoch, secret: SECRET };
        TicketOpened::decode(&self.reply(OWNER, call)).unwrap().ticket
    }

    fn join(&mut self, peer: u64, ticket: u64, attempt: u64) -> Result<Answer, Refusal> {
        self.call(peer, JoinTicket { session: self.sessions[&peer], ticket, secret: SECRET, attempt })
    }

    fn allocate(&mut self, peer: u64, ticket: u64, attempt: u64) -> Result<ExtentRange, Refusal> {
        let call = AllocateForTicket { session: self.sessions[&peer], ticket, attempt, length: 5000 };
        match self.call(peer, call)? {
            Answer::Lend { wanted, .. } => Ok(wanted[0].0),
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, peer: u64, ticket: u64, attempt: u64, well: bool) -> Result<Answer, Refusal> {
        self.call(peer, FinishTicket { session: self.sessions[&peer], ticket, attempt, well })
    }

    fn adopt(&mut self, range: ExtentRange) -> Result<Answer, Refusal> {
        let (session, shard, epoch) = (self.sessions[&OWNER], self.shard, self.epoch);
        self.call(OWNER, AdoptRanges { session, shard, epoch, ranges: vec![range] })
    }

    fn close(&mut self, ticket: u64) {
        let (session, shard, epoch) = (self.sessions[&OWNER], self.shard, self.epoch);
        self.reply(OWNER, CloseTicket { session, shard, epoch, ticket });
    }

    fn outputs(&self) -> usize {
        self.state.outputs.count(self.shard)
    }
}

#[test]
fn an_attempt_has_keys_until_it_ends_and_its_owner_adopts() {
    let (mut world, extent) = World::new(1);
    let ticket = world.ticket();
    world.join(2, ticket, 1).unwrap();
    let read = |length| ReadForTicket {
        session: SessionId(2),
        ticket,
        attempt: 1,
        ranges: vec![ExtentRange { extent, offset: 4096, length }],
    };
    assert!(matches!(world.call(2, read(4096)), Ok(Answer::Lend { .. })));
    assert_eq!(world.call(2, read(1 << 30)).unwrap_err().kind(), ErrorKind::Invalid);
    let output = world.allocate(2, ticket, 1).unwrap();
    assert_eq!(world.lent.len(), 2);
    // Not before it has ended; and not while its keys are being revoked.
    assert_eq!(world.adopt(output).unwrap_err().kind(), ErrorKind::Invalid);
    world.finish(2, ticket, 1, true).unwrap();
    assert_eq!(world.adopt(output).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(world.allocate(2, ticket, 1).unwrap_err().kind(), ErrorKind::Fenced);
    world.settle();
    assert_eq!(world.lent, []);
    world.adopt(output).unwrap();
    world.close(ticket);
    assert_eq!((world.outputs(), world.join(2, ticket, 9).unwrap_err().kind()), (1, ErrorKind::Fenced));
    world.close(ticket);
    check_tenants(&world.state);
}

#[test]
fn a_later_attempt_ends_the_earlier_one() {
    let (mut world, _) = World::new(2);
    let ticket = world.ticket();
    world.join(2, ticket, 1).unwrap();
    let first = world.allocate(2, ticket, 1).unwrap();
    world.join(3, ticket, 7).unwrap();
    assert_eq!(world.allocate(2, ticket, 1).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(world.finish(2, ticket, 1, true).unwrap_err().kind(), ErrorKind::Fenced);
    // Nobody else gets its memory before its keys are gone.
    let second = world.allocate(3, ticket, 7).unwrap();
    assert_ne!(first, second);
    for late in [1, 6, 7] {
        assert_eq!(world.join(2, ticket, late).unwrap_err().kind(), ErrorKind::Fenced);
    }
    world.settle();
    assert_eq!(world.outputs(), 1);
    world.finish(3, ticket, 7, true).unwrap();
    world.settle();
    // Outputs are also freed when another attempt joins before they are adopted.
    world.join(2, ticket, 8).unwrap();
    assert_eq!((world.outputs(), world.adopt(second).unwrap_err().kind()), (0, ErrorKind::Invalid));
    check_tenants(&world.state);
}

#[test]
fn an_output_that_is_freed_before_it_is_adopted_is_freed_once() {
    for end in 0..2 {
        let (mut world, _) = World::new(2);
        let ticket = world.ticket();
        world.join(2, ticket, 1).unwrap();
        let freed = world.allocate(2, ticket, 1).unwrap();
        world.finish(2, ticket, 1, true).unwrap();
        world.settle();
        let (owner, reader) = (world.sessions[&OWNER], world.sessions[&3]);
        let (shard, epoch) = (world.shard, world.epoch);
        world.reply(3, OpenStore { session: reader, name: text("db") });
        let extents = vec![freed.extent];
        world.call(3, MapExtents { session: reader, shard, write: false, extents }).unwrap();
        world.reply(3, Renew { session: reader, reading_epoch: 0 });
        world.reply(OWNER, FreeBatch { session: owner, shard, epoch, ranges: vec![freed] });
        match end {
            0 => world.close(ticket),
            _ => world.acquire(),
        }
        world.settle();
        assert_eq!(world.outputs(), 1, "somebody may still read it");
        let ticket = world.ticket();
        world.join(2, ticket, 1).unwrap();
        let other = world.allocate(2, ticket, 1).unwrap();
        world.reply(3, Renew { session: reader, reading_epoch: u64::MAX });
        assert!(world.state.outputs.contains(shard, other), "the end of a read freed what a job writes");
        assert_eq!(world.outputs(), 1);
        check_tenants(&world.state);
    }
}

#[test]
fn only_who_knows_the_secret_joins() {
    let (mut world, _) = World::new(1);
    let ticket = world.ticket();
    let session = world.sessions[&2];
    let guessed = world.call(2, JoinTicket { session, ticket, secret: SECRET + 1, attempt: 1 });
    assert_eq!(guessed.unwrap_err().kind(), ErrorKind::Fenced);
    world.state.link_opened(9, &Identity::new("user:9").unwrap()).unwrap();
    let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text("stranger"), capabilities: 0 };
    let stranger = SessionOpened::decode(&world.reply(9, call)).unwrap().session;
    let foreign = world.call(9, JoinTicket { session: stranger, ticket, secret: SECRET, attempt: 1 });
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::Fenced, "another tenant's ticket");
}

#[test]
fn tickets_end_with_the_epoch_and_with_either_session() {
    for end in 0..3 {
        let (mut world, _) = World::new(1);
        let ticket = world.ticket();
        world.join(2, ticket, 1).unwrap();
        world.allocate(2, ticket, 1).unwrap();
        match end {
            0 => world.acquire(),
            1 => drop(world.reply(2, CloseSession { session: world.sessions[&2] })),
            _ => drop(world.reply(OWNER, CloseSession { session: world.sessions[&OWNER] })),
        }
        assert!(end == 1 || world.allocate(2, ticket, 1).is_err());
        world.settle();
        assert_eq!((world.outputs(), world.lent.len()), (0, 0));
        check_tenants(&world.state);
    }
}

#[test]
fn tickets_end_with_their_store() {
    let (mut world, _) = World::new(1);
    let (session, store) = (world.sessions[&OWNER], world.shard.store);
    let ticket = world.ticket();
    // A store is in use while an attempt runs.
    world.join(2, ticket, 1).unwrap();
    assert_eq!(world.call(OWNER, DropStore { session, store }), Err(Refusal::StoreInUse(store)));
    world.finish(2, ticket, 1, false).unwrap();
    world.settle();
    world.reply(OWNER, DropStore { session, store });
    assert_eq!(world.join(2, ticket, 2).unwrap_err().kind(), ErrorKind::Fenced);
    let tenant = world.state.tenant_of(OWNER).and_then(|tenant| world.state.tenant(tenant));
    assert_eq!(tenant.unwrap().used.of(Resource::Jobs), 0);
}

#[test]
fn letters_go_through_the_scheduler_of_the_tenant_and_the_term() {
    use forebay_offload::{
        Attempt, Beat, Body, JobName, Letter, Load, Message as Said, Package, Reason, Span, StorageAccess, StorageNeed,
        Term, Ticket,
    };
    let (mut world, _) = World::new(1);
    let exchange = |world: &mut World, peer: u64, letter: Option<Letter>| {
        let mut letters = Vec::new();
        letter.iter().for_each(|letter| letter.encode(&mut letters));
        let session = world.sessions[&peer];
        let answer = world.call(peer, Exchange { session, letters: forebay_proto::Rest(letters) })?;
        let Answer::Reply(bytes) = answer else { panic!("{answer:?}") };
        let Exchanged { term, letters } = Exchanged::decode(&bytes).unwrap();
        Ok::<_, Refusal>((Term(term), Letter::decode_all(&letters.0).unwrap()))
    };
    let idle = Load { threads: 1, ..Load::default() };
    let beat = Letter::Beat(Beat { term: Term(0), load: idle, storage: StorageAccess::default(), running: Vec::new() });
    let span = Span { extent: 0, offset: 0, length: 1, checksum: 0 };
    let ticket = Ticket { node: 9, incarnation: 1, job: 1, secret: 1 };
    let package =
        Package { kind: 16, storage: StorageNeed::None, ticket, arguments: span, memory_bytes: 1, storage_bytes: 0 };
    let name = JobName { database: 1, shard: 0, epoch: 1, job: 1 };
    let body = Body::Prepare { package, home: Load::default() };
    let prepare = Letter::Message(Said { term: Term(0), name, attempt: Attempt::default(), body });
    exchange(&mut world, 2, Some(beat.clone())).unwrap();
    exchange(&mut world, OWNER, Some(prepare.clone())).unwrap();
    let (term, letters) = exchange(&mut world, 2, None).unwrap();
    let attempt = Attempt { term: Term(0), number: 1 };
    let assigned = Letter::Message(Said { term: Term(0), name, attempt, body: Body::Assign { package } });
    assert_eq!((term, letters), (Term(0), vec![assigned]));
    // A job whose ticket is at another memory node runs there while that node says that it is idle.
    let package = Package { ticket: Ticket { node: 7, ..ticket }, ..package };
    let idle_elsewhere = Load { threads: 2, queue_limit: 4, ..Load::default() };
    let elsewhere = |number| NodeIdentity { node: number, incarnation: 1 };
    for (job, known, expected) in [(2, Some(idle_elsewhere), Some(Reason::Near)), (3, None, None)] {
        let name = JobName { job, ..name };
        let body = Body::Prepare { package, home: Load { active_threads: 1, threads: 1, ..Load::default() } };
        world.state.know(elsewhere(7), known);
        world.state.know(elsewhere(8), Some(idle_elsewhere));
        let prepare = Said { term: Term(0), name, attempt: Attempt::default(), body };
        let (_, letters) = exchange(&mut world, OWNER, Some(Letter::Message(prepare))).unwrap();
        let said = letters.iter().find_map(|letter| match letter {
            Letter::Message(Said { name: of, body: Body::Abort(reason), .. }) if *of == name => Some(*reason),
            _ => None,
        });
        assert_eq!(said, expected, "job {job}");
    }
    // Another term begins with nothing, and without a term nobody schedules.
    world.state.schedule(Some(Term(4)));
    assert_eq!(exchange(&mut world, 2, None).unwrap(), (Term(4), Vec::new()));
    world.state.schedule(None);
    assert_eq!(exchange(&mut world, 2, Some(beat)).unwrap_err().kind(), ErrorKind::Unavailable);
    let session = world.sessions[&2];
    let wrong = world.call(2, Exchange { session, letters: forebay_proto::Rest(vec![1]) });
    world.state.schedule(Some(Term(5)));
    let nonsense = world.call(2, Exchange { session, letters: forebay_proto::Rest(vec![1]) });
    assert_eq!((wrong.is_err(), nonsense.unwrap_err().kind()), (true, ErrorKind::Invalid));
}

/// The time limits of jobs are seconds, and the node ticks after every few calls.
#[test]
fn a_scheduler_is_not_told_of_every_tick() {
    use forebay_offload::{
        Attempt, Beat, Body, JobName, Letter, Load, Message as Said, Package, Span, StorageAccess, StorageNeed, Term,
        Ticket,
    };
    let (mut world, _) = World::new(1);
    let exchange = |world: &mut World, peer: u64, letter: Option<Letter>| {
        let mut letters = Vec::new();
        letter.iter().for_each(|letter| letter.encode(&mut letters));
        let session = world.sessions[&peer];
        let bytes = world.reply(peer, Exchange { session, letters: forebay_proto::Rest(letters) });
        Letter::decode_all(&Exchanged::decode(&bytes).unwrap().letters.0).unwrap()
    };
    // An executor that has no room, and is then silent for longer than the five seconds that it may be.
    let full = Load { active_threads: 1, threads: 1, ..Load::default() };
    let beat = Beat { term: Term(0), load: full, storage: StorageAccess::default(), running: Vec::new() };
    exchange(&mut world, 2, Some(Letter::Beat(beat)));
    let arguments = Span { extent: 0, offset: 0, length: 1, checksum: 0 };
    let ticket = Ticket { node: 9, incarnation: 1, job: 1, secret: 1 };
    let package =
        Package { kind: 16, storage: StorageNeed::None, ticket, arguments, memory_bytes: 1, storage_bytes: 0 };
    let name = JobName { database: 1, shard: 0, epoch: 1, job: 1 };
    let body = Body::Prepare { package, home: full };
    let prepare = Letter::Message(Said { term: Term(0), name, attempt: Attempt::default(), body });
    assert_eq!(exchange(&mut world, OWNER, Some(prepare)), []);
    let mut told = |milliseconds: u64| {
        world.state.tick(milliseconds * 1_000_000);
        exchange(&mut world, OWNER, None).len()
    };
    assert_eq!([4950, 5001, 5049].map(&mut told), [0, 0, 0]);
    assert_eq!(told(5050), 1);
}

#[test]
fn a_call_has_a_most_of_letters() {
    use forebay_offload::{Attempt, Body, JobName, Letter, MAX_LETTERS, Message as Said, Term};
    let (mut world, _) = World::new(1);
    let session = world.sessions[&OWNER];
    let mut exchange = |count: usize| {
        let mut letters = Vec::new();
        for job in 0..count as u64 {
            let name = JobName { database: 1, shard: 0, epoch: 1, job };
            let ack = Said { term: Term(0), name, attempt: Attempt::default(), body: Body::Ack };
            Letter::Message(ack).encode(&mut letters);
        }
        world.call(OWNER, Exchange { session, letters: forebay_proto::Rest(letters) })
    };
    assert_eq!(exchange(10_000).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(exchange(MAX_LETTERS + 1).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(exchange(MAX_LETTERS).is_ok());
}

/// Whatever is called in whatever order, and however late keys are revoked: no memory goes to another user while a key
/// of an attempt opens it, and nothing is left in the end.
#[test]
fn random_runs() {
    for seed in 0..2000 {
        let mut random = Random::seeded(seed);
        let (mut world, extent) = World::new(3);
        let (mut tickets, mut outputs) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let peer = OWNER + 1 + random.below(3);
            let ticket = tickets.get(random.below(tickets.len().max(1) as u64) as usize).copied().unwrap_or(1);
            let attempt = random.below(6);
            match random.below(10) {
                0 => tickets.push(world.ticket()),
                1 | 2 => drop(world.join(peer, ticket, attempt)),
                3 | 4 => outputs.extend(world.allocate(peer, ticket, attempt)),
                5 => {
                    let ranges = vec![ExtentRange { extent, offset: 0, length: 4096 }];
                    drop(world.call(peer, ReadForTicket { session: world.sessions[&peer], ticket, attempt, ranges }));
                }
                6 => drop(world.finish(peer, ticket, attempt, random.below(4) > 0)),
                7 => {
                    for range in std::mem::take(&mut outputs) {
                        if world.adopt(range).is_ok() && random.below(2) == 0 {
                            let (session, shard, epoch) = (world.sessions[&OWNER], world.shard, world.epoch);
                            drop(world.call(OWNER, FreeBatch { session, shard, epoch, ranges: vec![range] }));
                        }
                    }
                }
                8 if random.below(4) == 0 => world.acquire(),
                8 => world.close(ticket),
                _ if world.commands.is_empty() => {}
                _ => world.carry_out(random.below(64) as usize),
            }
            check_tenants(&world.state);
            let Tickets { all, made_by, .. } = &world.state.tickets;
            assert!(made_by.iter().all(|(range, number)| all[number].made.contains(range)), "seed {seed}");
            let made = all.values().map(|ticket| ticket.made.len()).sum::<usize>();
            assert_eq!(made_by.len(), made, "seed {seed}");
        }
        tickets.into_iter().for_each(|ticket| world.close(ticket));
        world.settle();
        assert_eq!(world.lent, [], "seed {seed}");
        assert_eq!(world.state.outputs.bytes().pending, 0, "seed {seed}: outputs are left");
    }
}
