//! Two tenants on one state, one of them hostile: it makes any call with any name (its own, the other's and invented
//! ones) over several links.
//!
//! After every event
//! - the counts by tenant match what exists and are within the limits ([`check_tenants`]),
//! - no session of one tenant has a key to memory of the other,
//! - the honest one's figures are what it did, and tell it nothing of the other one.
//!
//! The honest tenant makes progress: it stays within its part of the memory, and every call succeeds. However much work
//! of the hostile one waits, an honest call waits for at most two of its turns and the cost of one piece of its work.

use super::tests::{World, check_tenants, settings, text};
use super::*;
use crate::tenants::TenantRights;
use forebay_base::ErrorKind::AccessDenied as Denied;
use forebay_env::Random;
use forebay_fabric::PeerId;
use forebay_fabric::turns::{QUANTUM, Turn, Turns};
use forebay_proto::calls::*;
use forebay_proto::replies::{
    Credit, PoolPage, SessionOpened, ShardAcquired, Statistics, StoreOpened, StorePage, TicketOpened,
};
use forebay_proto::{Blob, Message, PROTOCOL_VERSION, Request, Rest, ShardId};

const HONEST: u64 = 1;
const EXTENTS: u32 = 24;
const EXTENT_BYTES: u64 = 64 << 10;
/// Headroom and extents kept for jobs, together.
const RESERVE: u64 = 6;
/// The limits of both. With the reserve they are all the memory.
const HONEST_EXTENTS: u64 = 8;
const HOSTILE_EXTENTS: u64 = 10;

fn identity(name: &str) -> Identity {
    Identity::new(name).unwrap()
}

/// The hostile one may have few of everything, so that it reaches its limits.
fn tenants() -> TenantsOptions {
    use crate::tenants::{Limits, TenantOptions};
    let few = Limits {
        memory_bytes: Some(HOSTILE_EXTENTS * EXTENT_BYTES),
        links: Some(6),
        endpoints: Some(6),
        sessions: Some(3),
        stores: Some(4),
        shards: Some(6),
        keys: Some(14),
        ranges: Some(5),
        jobs: Some(3),
        calls: Some(4),
    };
    let half = Limits { memory_bytes: Some(HONEST_EXTENTS * EXTENT_BYTES), ..Limits::default() };
    TenantsOptions {
        known: vec![
            TenantOptions { limits: half, ..TenantOptions::new("honest", vec![identity("secret:honest")]) },
            TenantOptions { limits: few, ..TenantOptions::new("hostile", vec![identity("secret:hostile")]) },
        ],
        others: Limits::default(),
    }
}

struct Arena {
    state: State,
    random: Random,
    now: Nanos,
    next_link: u64,
    links: Vec<u64>,
    jobs: Vec<JobId>,
    /// Commands not yet carried out.
    commands: Vec<Command>,
    /// What the honest tenant has.
    session: SessionId,
    store: StoreId,
    epoch: Epoch,
    ticket: u64,
    leased: Vec<ExtentId>,
    adopted: Vec<ExtentId>,
    /// Steps of both that wait for their turn, and what each costs.
    turns: Turns<TenantId, u64>,
}

/// Costs of the hostile one's steps, and of the honest one's.
const COSTS: [u64; 4] = [1_000, 20_000, 300_000, DEAREST];
const DEAREST: u64 = 5_000_000;

const SHARD: ShardId = ShardId(0);
/// The secret of all tickets: the hostile one knows it.
const SECRET: u128 = 0x5ec;

impl Arena {
    fn new(seed: u64) -> Self {
        let mut state = State::new(settings(EXTENTS, 3, 3), &tenants());
        state.link_opened(HONEST, &identity("secret:honest")).unwrap();
        let mut arena = Self {
            state,
            random: Random::seeded(seed),
            now: 0,
            next_link: 2,
            links: Vec::new(),
            jobs: Vec::new(),
            commands: Vec::new(),
            session: SessionId(0),
            store: StoreId(0),
            epoch: Epoch(0),
            ticket: 0,
            leased: Vec::new(),
            adopted: Vec::new(),
            turns: Turns::default(),
        };
        let open =
            OpenSession { protocol: PROTOCOL_VERSION, tenant: text("honest"), name: text("me"), capabilities: 0 };
        arena.session = SessionOpened::decode(&arena.honest(open)).unwrap().session;
        let session = arena.session;
        let create = CreateStore { session, name: text("db"), config: Blob::default() };
        arena.store = StoreOpened::decode(&arena.honest(create)).unwrap().store;
        let shard = arena.shard();
        let acquired = arena.honest(AcquireShard { session, shard, takeover: false });
        arena.epoch = ShardAcquired::decode(&acquired).unwrap().epoch;
        let epoch = arena.epoch;
        let opened = arena.honest(OpenTicket { session, shard, epoch, secret: SECRET });
        arena.ticket = TicketOpened::decode(&opened).unwrap().ticket;
        arena
    }

    fn shard(&self) -> ShardKey {
        ShardKey { store: self.store, shard: SHARD }
    }

    /// A call of the honest tenant, which succeeds.
    fn honest(&mut self, request: impl Into<Request>) -> Vec<u8> {
        let request = request.into();
        let what = format!("{request:?}");
        let answer = self.state.call(self.now, PeerId(HONEST), request);
        self.collect();
        match answer.unwrap_or_else(|refusal| panic!("{what}: {refusal}")) {
            Answer::Reply(bytes) => bytes,
            Answer::Statistics { figures, .. } => figures.encode(),
            Answer::Grant(_, granted) => {
                self.leased.extend(granted.iter().map(|(extent, _)| extent));
                Vec::new()
            }
            other => panic!("{other:?}"),
        }
    }

    fn collect(&mut self) {
        self.commands.extend(self.state.take_commands());
    }

    fn carry_out_one(&mut self) {
        if self.commands.is_empty() {
            return;
        }
        let which = self.random.below(self.commands.len() as u64) as usize;
        match self.commands.swap_remove(which) {
            Command::Revoke { session, extent } => self.state.revoked(session, extent),
            Command::Zero { extent } => self.state.zeroed(extent),
            Command::EndKeys { job } => self.state.keys_ended(job),
            Command::Close { peer, .. } => {
                assert_ne!(peer, HONEST, "the honest link is closed");
                self.state.link_ended(peer);
                self.links.retain(|link| *link != peer);
            }
        }
        self.collect();
    }

    fn settle(&mut self) {
        while !self.commands.is_empty() {
            self.carry_out_one();
        }
    }

    /// A step of the honest one: it keeps its session, and turns over memory.
    fn honest_step(&mut self) {
        let (session, shard, epoch) = (self.session, self.shard(), self.epoch);
        self.honest(Renew { session, reading_epoch: u64::MAX });
        match self.random.below(6) {
            0 => {
                // Memory that is being cleaned becomes free again; no one else may delay that.
                self.settle();
                // The honest one gets all that it may have, and its share of the reserve on top.
                let (own, owed) = (self.state.own_memory(TenantId(1)), self.state.owed(TenantId(1)));
                if own < HONEST_EXTENTS {
                    self.honest(LeaseExtents { session, count: 1, purpose: Purpose::Flush });
                } else if owed < RESERVE / 2 {
                    self.honest(LeaseExtents { session, count: 1, purpose: Purpose::Collection });
                }
            }
            1 => {
                let extents = std::mem::take(&mut self.leased);
                self.honest(AdoptExtents { session, shard, epoch, extents: extents.clone() });
                self.adopted.extend(extents);
            }
            2 => {
                let extents = std::mem::take(&mut self.adopted);
                self.honest(ReleaseExtents { session, shard, epoch, extents });
            }
            3 => drop(self.honest(SetRoot { session, shard, epoch, root: Blob::new([7; 9]).unwrap() })),
            4 => {
                let listed = StorePage::decode(&self.honest(ListStores { session, after: text("") })).unwrap();
                assert_eq!(listed.stores.len(), 1);
            }
            _ => {
                let seen = Statistics::decode(&self.honest(GetStatistics { session })).unwrap();
                let counted = (seen.sessions, seen.stores, seen.shards, seen.owned_shards);
                assert_eq!(counted, (1, 1, 1, 1), "it sees what is not its own");
                assert_eq!(seen.leased_extents, self.leased.len() as u64);
                assert_eq!(seen.adopted_extents, self.adopted.len() as u64);
                assert_eq!((seen.lapsed_sessions, seen.refused_calls), (0, 0));
            }
        }
    }

    /// Queues steps of the hostile one, over any links.
    fn flood(&mut self) {
        for _ in 0..self.random.below(6) {
            let turn = Turn { party: TenantId(2), link: 2 + self.random.below(5) };
            let cost = COSTS[self.random.below(4) as usize];
            self.turns.push(turn, 1, cost);
        }
    }

    /// Gives the next one its turn. Returns who that was, and what the turn cost.
    fn take_turn(&mut self) -> Option<(TenantId, u64)> {
        let (turn, cost) = self.turns.next(|_, _| true)?;
        match turn.party {
            TenantId(1) => self.honest_step(),
            _ => self.hostile_step(),
        }
        self.turns.charge(turn, cost);
        Some((turn.party, cost))
    }

    /// Waits for the honest one's turn, which comes soon.
    fn honest_turn(&mut self) {
        let honest = Turn { party: TenantId(1), link: HONEST };
        self.turns.push(honest, 1, COSTS[0]);
        let mut ahead = 0;
        while let Some((party, cost)) = self.take_turn() {
            if party == honest.party {
                break;
            }
            ahead += cost;
            self.check();
        }
        let most = 2 * QUANTUM + DEAREST;
        assert!(ahead <= most, "{ahead} was done for the hostile one first, of at most {most}");
    }

    fn any_session(&mut self) -> SessionId {
        let known: Vec<_> = self.state.sessions.iter().map(|(id, _)| id).collect();
        match self.random.below(4) {
            0 => SessionId(self.random.below(1000)),
            _ => known[self.random.below(known.len() as u64) as usize],
        }
    }

    fn any_extents(&mut self) -> Vec<ExtentId> {
        let count = self.random.below(4);
        (0..count).map(|_| ExtentId(self.random.below(u64::from(EXTENTS) + 2) as u32)).collect()
    }

    fn any_ranges(&mut self) -> Vec<ExtentRange> {
        let mut ranges: Vec<_> = (0..self.random.below(3))
            .map(|_| ExtentRange {
                extent: ExtentId(self.random.below(u64::from(EXTENTS)) as u32),
                offset: self.random.below(3) * 4096,
                length: 4096,
            })
            .collect();
        let shards = self.state.directory.iter().map(|(shard, _)| shard);
        if let Some(range) = shards.flat_map(|shard| self.state.outputs.settled_of_shard(shard)).next() {
            ranges.push(range);
        }
        ranges
    }

    /// Any call with any name.
    fn any_call(&mut self, link: u64) -> Request {
        // Mostly its own session, so that it gets further.
        let own = self.state.sessions.of_peer(link);
        let session = match own {
            Some(own) if self.random.one_in(9, 10) => own,
            _ => self.any_session(),
        };
        let store = StoreId(self.random.below(12));
        let shard = ShardKey { store, shard: ShardId(self.random.below(4) as u32) };
        let epoch = Epoch(self.random.below(4));
        let name = text(["db", "x", "y", "", "a\nb"][self.random.below(5) as usize]);
        let extents = self.any_extents();
        let ranges = self.any_ranges();
        let reading_epoch = [0, 3, u64::MAX][self.random.below(3) as usize];
        let (ticket, attempt) = (1 + self.random.below(6), self.random.below(5));
        match self.random.below(37) {
            0 => {
                let tenant = text(["", "hostile", "honest", "secret:honest"][self.random.below(4) as usize]);
                OpenSession { protocol: PROTOCOL_VERSION, tenant, name: text("\u{1b}[2J\nforged"), capabilities: 0 }
                    .into()
            }
            1 => Renew { session, reading_epoch }.into(),
            2 => PassReaders { session, reading_epoch }.into(),
            3 if self.random.one_in(1, 4) => CloseSession { session }.into(),
            3..=6 => {
                let purpose = [Purpose::Flush, Purpose::Collection][self.random.below(2) as usize];
                LeaseExtents { session, count: self.random.below(130) as u32, purpose }.into()
            }
            7 => ReturnExtents { session, extents }.into(),
            8 => MapExtents { session, shard, write: true, extents }.into(),
            9 => AdoptExtents { session, shard, epoch, extents }.into(),
            10 => ReleaseExtents { session, shard, epoch, extents }.into(),
            11 => ListExtents { session, shard, from: ExtentId(0) }.into(),
            12 => AdoptRanges { session, shard, epoch, ranges }.into(),
            13 => FreeBatch { session, shard, epoch, ranges }.into(),
            14 => ListRanges { session, shard, from: ExtentId(0), offset: 0 }.into(),
            15 => ShareExtents { session, shard, extents }.into(),
            16 => CreateStore { session, name, config: Blob::new([1; 4096]).unwrap() }.into(),
            17 => OpenStore { session, name }.into(),
            18 => DropStore { session, store }.into(),
            19 => AcquireShard { session, shard, takeover: true }.into(),
            20 => SetRoot { session, shard, epoch, root: Blob::new([1; 4096]).unwrap() }.into(),
            35 => AcquireSeen { session, shard, takeover: true, epoch, root: Blob::default() }.into(),
            21 => ReleaseShard { session, shard, epoch }.into(),
            22 => ListTenants { session, after: text("") }.into(),
            23 | 24 => OpenTicket { session, shard, epoch, secret: SECRET }.into(),
            25 => CloseTicket { session, shard, epoch, ticket }.into(),
            26 | 27 => JoinTicket { session, ticket, secret: SECRET, attempt }.into(),
            28 => ReadForTicket { session, ticket, attempt, ranges }.into(),
            29 | 30 => AllocateForTicket { session, ticket, attempt, length: 1 + attempt * 9000 }.into(),
            31 => FinishTicket { session, ticket, attempt, well: attempt < 3 }.into(),
            33 => GetCredit { session, database: name, share: [0, 1, u32::MAX][self.random.below(3) as usize] }.into(),
            34 => ListPool { session, skip: self.random.below(3) as u32 }.into(),
            32 => Exchange { session, letters: Rest(vec![1; attempt as usize]) }.into(),
            _ => {
                let attempt = self.random.below(6);
                SubmitJob { session, shard, epoch, attempt, kind: 1, arguments: Rest(Vec::new()) }.into()
            }
        }
    }

    fn hostile_step(&mut self) {
        match self.random.below(20) {
            0 | 1 => {
                let link = self.next_link;
                self.next_link += 1;
                if self.state.link_opened(link, &identity("secret:hostile")).is_ok() {
                    self.links.push(link);
                }
                self.collect();
            }
            2 if !self.links.is_empty() => {
                let link = self.links.swap_remove(self.random.below(self.links.len() as u64) as usize);
                self.state.link_ended(link);
                // The fabric forgets a link's keys with it.
                self.collect();
            }
            3..=5 if !self.jobs.is_empty() => {
                let job = self.jobs[self.random.below(self.jobs.len() as u64) as usize];
                let length = 1 + self.random.below(EXTENT_BYTES);
                let _ = self.state.job_allocate(job, length);
                let extent = ExtentId(self.random.below(u64::from(EXTENTS)) as u32);
                let reads = self.state.job_reads(job, ExtentRange { extent, offset: 0, length: 8 });
                let foreign = self.leased.contains(&extent) || self.adopted.contains(&extent);
                assert!(reads.is_err() || !foreign, "a job of the hostile one reads {extent}");
            }
            6 if !self.jobs.is_empty() => {
                let job = self.jobs.swap_remove(self.random.below(self.jobs.len() as u64) as usize);
                self.state.job_ended(job, true);
                self.collect();
            }
            7 => drop(self.state.call_waits(self.next_link - 1)),
            _ => {
                let link = match self.links.is_empty() {
                    true => self.next_link,
                    false => self.links[self.random.below(self.links.len() as u64) as usize],
                };
                let request = self.any_call(link);
                let list = matches!(request, Request::ListTenants(_));
                let honest_ticket = matches!(&request, Request::JoinTicket(call) if call.ticket == self.ticket);
                let answer = self.state.call(self.now, PeerId(link), request);
                self.collect();
                match answer {
                    Ok(Answer::Job(job)) => self.jobs.push(job.id),
                    Ok(Answer::Grant(_, granted)) => {
                        let foreign =
                            granted.iter().any(|(it, _)| self.leased.contains(it) || self.adopted.contains(it));
                        assert!(!foreign, "the hostile one got a key to memory of the honest one");
                    }
                    Ok(Answer::Lend { wanted, .. }) => {
                        let is_foreign = |extent| self.leased.contains(extent) || self.adopted.contains(extent);
                        let foreign = wanted.iter().any(|(range, _)| is_foreign(&range.extent));
                        assert!(!foreign, "the hostile one was lent memory of the honest one");
                    }
                    Ok(_) => {
                        assert!(!list, "it does not administer the node");
                        assert!(!honest_ticket, "it runs a job of the honest one");
                    }
                    Err(_) => {}
                }
            }
        }
    }

    fn check(&self) {
        check_tenants(&self.state);
        for (id, found) in self.state.extents.iter() {
            let is_honest = |session: SessionId| session == self.session;
            let owner = found.tenant();
            for holder in &found.holders {
                let other = if is_honest(holder.session) { TenantId(2) } else { TenantId(1) };
                assert_ne!(owner, Some(other), "{id} has a key of the other tenant");
                assert!(self.state.extents.held_by(holder.session).contains(&id), "the end would not find the key");
            }
        }
        for extent in &self.leased {
            assert_eq!(self.state.place(*extent), Some(Place::Leased(self.session)));
        }
        for extent in &self.adopted {
            assert_eq!(self.state.place(*extent), Some(Place::Adopted(self.shard())));
        }
        let shard = self.state.directory.shard(self.shard()).unwrap();
        assert_eq!((shard.owner, shard.epoch), (Some(self.session), self.epoch));
    }
}

fn run(seed: u64) {
    let mut arena = Arena::new(seed);
    for step in 0..400 {
        match arena.random.below(8) {
            0 => arena.honest_turn(),
            1 | 2 => arena.carry_out_one(),
            3 if step % 5 == 0 => {
                arena.now += 1_000_000_000;
                let ended = arena.state.tick(arena.now);
                assert!(ended.iter().all(|ended| ended.session != arena.session), "the honest session lapsed");
                arena.collect();
                arena.honest(Renew { session: arena.session, reading_epoch: u64::MAX });
            }
            _ => {
                arena.flood();
                arena.take_turn();
            }
        }
        arena.check();
    }
    // Whatever share the hostile one claims, the honest one has its own memory to itself.
    let credit = GetCredit { session: arena.session, database: text("db"), share: 1 };
    let credit = Credit::decode(&arena.honest(credit)).unwrap();
    assert_eq!((credit.databases, credit.withheld_extents, credit.owed_extents), (1, 0, 0));
    // When the hostile one has left, all that it had comes back.
    for link in 2..arena.next_link {
        arena.state.link_ended(link);
    }
    for job in std::mem::take(&mut arena.jobs) {
        arena.state.job_ended(job, true);
    }
    arena.collect();
    arena.settle();
    let stores: Vec<StoreId> = arena.state.directory.stores().filter(|store| *store != arena.store).collect();
    stores.into_iter().for_each(|store| arena.state.remove_store(store));
    arena.collect();
    arena.settle();
    arena.check();
    let left = arena.state.extents.of_tenant(TenantId(2));
    assert_eq!(left, Counts::default(), "memory that the hostile one left behind");
    let counts = arena.state.extents.counts();
    let own = (arena.leased.len() + arena.adopted.len()) as u64;
    assert_eq!(counts.free + counts.kept + own, u64::from(EXTENTS));
}

#[test]
fn a_hostile_tenant_harms_nobody() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed} failed");
    }
}

#[test]
fn the_oldest_link_without_a_session_makes_room() {
    let mut state = State::new(settings(EXTENTS, 3, 3), &tenants());
    for link in 1..=6 {
        state.link_opened(link, &identity("secret:hostile")).unwrap();
    }
    let open =
        |tenant| OpenSession { protocol: PROTOCOL_VERSION, tenant: text(tenant), name: text(""), capabilities: 0 };
    state.call(0, PeerId(1), open("").into()).unwrap();
    state.link_opened(7, &identity("secret:hostile")).unwrap();
    assert!(matches!(state.take_commands()[..], [Command::Close { peer: 2, tenant: TenantId(2), .. }]));
    assert_eq!(state.call(0, PeerId(2), open("").into()), Err(Refusal::NoLink));
    // Another tenant's identity is not theirs.
    state.link_opened(8, &identity("secret:honest")).unwrap();
    assert!(state.take_commands().is_empty());
    let denied = state.call(0, PeerId(7), open("honest").into()).unwrap_err();
    assert_eq!(denied, Refusal::OtherTenant { is: text("hostile") });
    for link in 3..=4 {
        state.call(0, PeerId(link), open("hostile").into()).unwrap();
    }
    let full = state.call(0, PeerId(5), open("").into()).unwrap_err();
    assert_eq!(
        full.to_string(),
        "tenant hostile has its most sessions: 3; 1 more asked for: let go of some, or have the node's operator raise \"sessions\" of this tenant"
    );
    // Links with sessions are kept: where all links have one, none is closed.
    let mut few = tenants();
    few.known[1].limits.links = Some(3);
    state.configure(&few);
    for link in 5..=7 {
        state.link_ended(link);
    }
    let full = state.link_opened(9, &identity("secret:hostile")).unwrap_err();
    assert!(full.to_string().starts_with("tenant hostile has its most links: 3; 1 more asked for: "), "{full}");
    assert_eq!(full.kind(), forebay_base::ErrorKind::Full);
}

#[test]
fn the_reserve_is_shared_and_only_for_who_has_something_to_collect() {
    let all = crate::tenants::Limits { memory_bytes: Some(u64::MAX), ..Default::default() };
    let mut state = State::new(settings(20, 4, 2), &TenantsOptions { known: Vec::new(), others: all });
    let mut open = |link, name: &str| {
        state.link_opened(link, &identity(name)).unwrap();
        let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text(""), capabilities: 0 };
        let Ok(Answer::Reply(bytes)) = state.call(0, PeerId(link), call.into()) else { panic!("no session") };
        SessionOpened::decode(&bytes).unwrap().session
    };
    let (greedy, other) = (open(1, "secret:greedy"), open(2, "secret:other"));
    let mut lease = |link, session, count, purpose| match state.call(
        0,
        PeerId(link),
        LeaseExtents { session, count, purpose }.into(),
    ) {
        Ok(Answer::Grant(_, granted)) => Ok(granted.len()),
        Ok(answer) => panic!("{answer:?}"),
        Err(refusal) => Err(refusal.to_string()),
    };
    // 14 are for anybody. Of a reserve of six, each of two tenants owes at most two, because another
    // one may come.
    assert_eq!(lease(2, other, 1, Purpose::Flush), Ok(1));
    assert_eq!(lease(1, greedy, 128, Purpose::Collection), Ok(13 + 2));
    let refused = lease(1, greedy, 1, Purpose::Collection).unwrap_err();
    assert!(refused.contains("tenant secret:greedy has its share"), "{refused}");
    assert_eq!(lease(2, other, 128, Purpose::Collection), Ok(1), "what is left, and it has one to collect");
}

/// Each comes with an identity of its own, has memory until its link ends, and leaves nothing.
#[test]
fn tenants_that_have_nothing_left_make_room_for_others() {
    let most = crate::tenants::MAX_TENANTS;
    let last = most as u64;
    let mut state = State::new(settings(EXTENTS, 3, 3), &tenants());
    for link in 1..=2 * last {
        state.link_opened(link, &identity(&format!("secret:{link}"))).unwrap();
        let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text(""), capabilities: 0 };
        let Ok(Answer::Reply(bytes)) = state.call(0, PeerId(link), open.into()) else { panic!("no session") };
        let session = SessionOpened::decode(&bytes).unwrap().session;
        let lease = LeaseExtents { session, count: 1, purpose: Purpose::Flush };
        assert!(matches!(state.call(0, PeerId(link), lease.into()), Ok(Answer::Grant(..))));
        state.link_ended(link);
        for command in state.take_commands() {
            match command {
                Command::Zero { extent } => state.zeroed(extent),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(state.all_tenants().len() <= most);
    // Tenants that have a link stay, as do the two that are listed.
    let mut state = State::new(settings(EXTENTS, 3, 3), &tenants());
    for link in 1..=last - 2 {
        state.link_opened(link, &identity(&format!("secret:{link}"))).unwrap();
    }
    let late = identity("secret:late");
    let full = Refusal::TooMany { what: "tenants of the node", most };
    assert_eq!(state.link_opened(last, &late), Err(full));
    state.link_ended(1);
    state.link_opened(last, &late).unwrap();
    assert_eq!(state.all_tenants().len(), most);
}

/// A state in which link 1 belongs to the honest tenant and link 2 to the hostile one, each with a
/// session.
fn two_sessions(options: &TenantsOptions) -> (State, [SessionId; 2]) {
    let mut state = State::new(settings(EXTENTS, 3, 3), options);
    let sessions = [(1, "secret:honest"), (2, "secret:hostile")].map(|(link, name)| {
        state.link_opened(link, &identity(name)).unwrap();
        let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text(""), capabilities: 0 };
        let Ok(Answer::Reply(bytes)) = state.call(0, PeerId(link), call.into()) else { panic!("no session") };
        SessionOpened::decode(&bytes).unwrap().session
    });
    (state, sessions)
}

#[test]
fn who_has_reached_its_limit_may_still_collect_and_repays() {
    let (mut state, [session, _]) = two_sessions(&tenants());
    let mut leased = Vec::new();
    let mut lease = |state: &mut State, count, purpose| match state.call(
        0,
        PeerId(1),
        LeaseExtents { session, count, purpose }.into(),
    ) {
        Ok(Answer::Grant(_, granted)) => {
            leased.extend(granted.iter().map(|(extent, _)| *extent));
            Ok(granted.len())
        }
        Ok(answer) => panic!("{answer:?}"),
        Err(refusal) => Err(refusal.to_string()),
    };
    assert_eq!(lease(&mut state, 128, Purpose::Flush), Ok(8));
    let full = lease(&mut state, 1, Purpose::Flush).unwrap_err();
    assert!(full.starts_with("tenant honest has its most extents: 8; 1 more asked for: "), "{full}");
    assert_eq!(lease(&mut state, 128, Purpose::Collection), Ok(3));
    let full = lease(&mut state, 1, Purpose::Collection).unwrap_err();
    assert!(full.contains("tenant honest has its share of the memory kept"), "{full}");
    assert_eq!((state.own_memory(TenantId(1)), state.owed(TenantId(1))), (8, 3));
    // What it frees first repays its debt; only then does it have less of its own.
    let mut give_back = |state: &mut State| {
        let extents = vec![leased.pop().unwrap()];
        state.call(0, PeerId(1), ReturnExtents { session, extents }.into()).unwrap();
        for _ in 0..2 {
            for command in state.take_commands() {
                match command {
                    Command::Revoke { session, extent } => state.revoked(session, extent),
                    Command::Zero { extent } => state.zeroed(extent),
                    Command::Close { .. } | Command::EndKeys { .. } => panic!("a link is closed"),
                }
            }
        }
        (state.own_memory(TenantId(1)), state.owed(TenantId(1)))
    };
    assert_eq!([0; 4].map(|_| give_back(&mut state)), [(8, 2), (8, 1), (8, 0), (7, 0)]);
    check_tenants(&state);
}

/// Each job of a database asks how the tenant's memory is divided.
#[test]
fn a_job_costs_no_more_if_another_tenant_has_many_shards() {
    let (mut state, [session, other]) = two_sessions(&TenantsOptions::default());
    let mut reply = |link, request: Request| match state.call(0, PeerId(link), request) {
        Ok(Answer::Reply(bytes)) => bytes,
        answer => panic!("{answer:?}"),
    };
    let [store, others] = [(1, session), (2, other)].map(|(link, session)| {
        let create = CreateStore { session, name: text("db"), config: Blob::default() };
        StoreOpened::decode(&reply(link, create.into())).unwrap().store
    });
    let shard = ShardKey { store, shard: SHARD };
    let acquired = reply(1, AcquireShard { session, shard, takeover: false }.into());
    let epoch = ShardAcquired::decode(&acquired).unwrap().epoch;
    reply(1, GetCredit { session, database: text("db"), share: 1 }.into());
    for number in 0..1000 {
        let shard = ShardKey { store: others, shard: ShardId(number) };
        reply(2, AcquireShard { session: other, shard, takeover: false }.into());
    }
    directory::VISITED.set(0);
    let job = SubmitJob { session, shard, epoch, attempt: 1, kind: 1, arguments: Rest(Vec::new()) };
    assert!(matches!(state.call(0, PeerId(1), job.into()), Ok(Answer::Job(_))));
    // Once to see which database holds its memory, and once for the figures.
    assert_eq!(directory::VISITED.get(), 2);
}

/// A node has tens of thousands of extents. A store may have thousands of shards, and a session a thousand stores.
#[test]
fn the_end_of_a_store_or_session_looks_only_at_its_own_extents() {
    let (mut state, [session, other]) = two_sessions(&TenantsOptions::default());
    let visited = |state: &mut State, link, request: Request| {
        extents::VISITED.set(0);
        let answer = state.call(0, PeerId(link), request).unwrap();
        (answer, extents::VISITED.get())
    };
    visited(&mut state, 2, LeaseExtents { session: other, count: 5, purpose: Purpose::Flush }.into());
    let lease = LeaseExtents { session, count: 3, purpose: Purpose::Flush };
    let (Answer::Grant(_, leased), _) = visited(&mut state, 1, lease.into()) else { panic!("no lease") };
    let leased: Vec<_> = leased.into_iter().map(|(extent, _)| extent).collect();
    let mut stores = Vec::new();
    for name in ["db", "", "", ""] {
        let create = CreateStore { session, name: text(name), config: Blob::default() };
        let (Answer::Reply(bytes), _) = visited(&mut state, 1, create.into()) else { panic!("no store") };
        let store = StoreOpened::decode(&bytes).unwrap().store;
        stores.push(store);
        for number in 0..100 {
            let shard = ShardKey { store, shard: ShardId(number) };
            let acquire = AcquireShard { session, shard, takeover: false };
            assert_eq!(visited(&mut state, 1, acquire.into()).1, 0);
        }
    }
    let shard = ShardKey { store: stores[0], shard: SHARD };
    let adopt = AdoptExtents { session, shard, epoch: Epoch(1), extents: leased[..2].to_vec() };
    visited(&mut state, 1, adopt.into());
    assert_eq!(visited(&mut state, 1, DropStore { session, store: stores[0] }.into()).1, 2);
    // It has three keys, of which two are being revoked, and leases one extent. Its private stores have none.
    assert_eq!(visited(&mut state, 1, CloseSession { session }.into()).1, 3 + 1);
    assert_eq!(state.extents.held_by(other).len(), 5);
    check_tenants(&state);
}

/// Who releases no key may open and close sessions without end.
#[test]
fn an_extent_has_a_bounded_number_of_keys_that_are_not_released() {
    let mut world = World::new(settings(8, 1, 1));
    let session = world.open(1);
    let shard = ShardKey { store: world.store(1, "db"), shard: SHARD };
    let epoch = world.acquire(1, shard, false).unwrap();
    let extents = world.lease(1, 1, Purpose::Flush).unwrap();
    world.call(1, AdoptExtents { session, shard, epoch, extents: extents.clone() }).unwrap();
    let open = |world: &mut World| {
        let session = world.open(2);
        world.store(2, "db");
        session
    };
    let map = |world: &mut World, session| {
        world.call(2, MapExtents { session, shard, write: false, extents: extents.clone() })
    };
    // The owner has one.
    for _ in 1..MOST_HOLDERS {
        let session = open(&mut world);
        map(&mut world, session).unwrap();
        world.call(2, CloseSession { session }).unwrap();
    }
    let session = open(&mut world);
    assert_eq!(map(&mut world, session).unwrap_err().kind(), forebay_base::ErrorKind::Busy);
    world.settle();
    map(&mut world, session).unwrap();
}

/// Databases of two tenants with one name are two, each with its own memory.
#[test]
fn a_database_of_another_tenant_with_the_same_name_counts_for_nobody_else() {
    let (mut state, sessions) = two_sessions(&tenants());
    let mut reply = |link, request: Request| match state.call(0, PeerId(link), request) {
        Ok(Answer::Reply(bytes)) => bytes,
        Ok(Answer::Grant(_, granted)) => granted.iter().flat_map(|(extent, _)| extent.0.to_le_bytes()).collect(),
        other => panic!("{other:?}"),
    };
    let held = [(1, sessions[0], 2), (2, sessions[1], 5)].map(|(link, session, count)| {
        let create = CreateStore { session, name: text("db"), config: Blob::default() };
        let store = StoreOpened::decode(&reply(link, create.into())).unwrap().store;
        let shard = ShardKey { store, shard: SHARD };
        let acquired = reply(link, AcquireShard { session, shard, takeover: false }.into());
        let epoch = ShardAcquired::decode(&acquired).unwrap().epoch;
        let leased = reply(link, LeaseExtents { session, count, purpose: Purpose::Flush }.into());
        let (leased, _) = leased.as_chunks();
        let extents: Vec<ExtentId> = leased.iter().map(|id| ExtentId(u32::from_le_bytes(*id))).collect();
        reply(link, AdoptExtents { session, shard, epoch, extents }.into());
        (link, session)
    });
    let credits = [0, 1, 0].map(|at: usize| {
        let (link, session) = held[at];
        let credit = reply(link, GetCredit { session, database: text("db"), share: 1 }.into());
        let credit = Credit::decode(&credit).unwrap();
        (credit.held_extents, credit.databases)
    });
    assert_eq!(credits, [(2, 1), (5, 1), (2, 1)]);
}

/// A database plans with what its tenant may have, whatever else it may see.
#[test]
fn databases_of_who_administers_are_told_of_their_own_memory() {
    let told = |rights| {
        let mut options = tenants();
        options.known[0].rights = rights;
        let (mut state, [session, other]) = two_sessions(&options);
        state.call(0, PeerId(2), LeaseExtents { session: other, count: 4, purpose: Purpose::Flush }.into()).unwrap();
        let Ok(Answer::Statistics { figures, node_time }) = state.call(0, PeerId(1), GetStatistics { session }.into())
        else {
            panic!("no figures")
        };
        let credit = match state.call(0, PeerId(1), GetCredit { session, database: text("db"), share: 1 }.into()) {
            Ok(Answer::Reply(bytes)) => Some(Credit::decode(&bytes).unwrap().free_extents),
            _ => None,
        };
        let Ok(Answer::Reply(pool)) = state.call(0, PeerId(1), ListPool { session, skip: 0 }.into()) else {
            panic!("no pool")
        };
        let pool = PoolPage::decode(&pool).unwrap();
        (figures.extents, figures.leased_extents, node_time, credit, pool.other_extents)
    };
    let [both, data, administer] =
        [(true, true), (true, false), (false, true)].map(|(data, administer)| TenantRights { data, administer });
    // Its limit, and its share of the reserve.
    let credit = Some(HONEST_EXTENTS + RESERVE / 2);
    assert_eq!(told(data), (HONEST_EXTENTS, 0, false, credit, 0));
    assert_eq!(told(both), (HONEST_EXTENTS, 0, true, credit, 4));
    assert_eq!(told(administer), (EXTENTS.into(), 4, true, None, 4));
}

#[test]
fn an_identity_that_is_of_another_tenant_now_loses_its_links() {
    let (mut state, [_, hostile]) = two_sessions(&tenants());
    let mut moved = tenants();
    moved.known[1].identities = vec![identity("secret:somebody")];
    moved.known[0].identities.push(identity("secret:hostile"));
    let ended = state.configure(&moved);
    assert_eq!(ended.iter().map(|ended| ended.session).collect::<Vec<_>>(), [hostile]);
    assert!(matches!(state.take_commands()[..], [Command::Close { peer: 2, tenant: TenantId(2), .. }]));
    let refused = state.call(0, PeerId(2), GetStatistics { session: hostile }.into());
    assert_eq!(refused, Err(Refusal::NoLink));
    assert_eq!(state.link_opened(3, &identity("secret:hostile")), Ok(TenantId(1)));
    // An identity that keeps its tenant stays.
    assert!(state.configure(&moved).is_empty() && state.take_commands().is_empty());
    assert_eq!(state.tenant_of(1), Some(TenantId(1)));
}

#[test]
fn new_limits_hold_at_once_for_those_who_are_not_listed() {
    let mut state = State::new(settings(EXTENTS, 3, 3), &TenantsOptions::default());
    let stranger = state.link_opened(1, &identity("secret:stranger")).unwrap();
    let anonymous = state.link_opened(2, &Identity::anonymous()).unwrap();
    let most = |state: &State, of| state.tenant(of).unwrap().limits.of(Resource::Extents);
    assert_eq!((most(&state, stranger), most(&state, anonymous)), (u64::from(EXTENTS) / 2, EXTENTS.into()));
    let none = crate::tenants::Limits { memory_bytes: Some(0), ..Default::default() };
    state.configure(&TenantsOptions { known: Vec::new(), others: none });
    assert_eq!((most(&state, stranger), most(&state, anonymous)), (0, 0));
    assert!(state.administers(anonymous) && !state.administers(stranger));
}

#[test]
fn rights_say_what_a_tenant_may_do() {
    let mut options = tenants();
    options.known[0].rights = TenantRights { data: false, administer: true };
    let (mut state, [session, other]) = two_sessions(&options);
    let name = || text("x");
    for denied in [
        Request::from(CreateStore { session, name: name(), config: Blob::default() }),
        OpenStore { session, name: name() }.into(),
        LeaseExtents { session, count: 1, purpose: Purpose::Flush }.into(),
    ] {
        let refusal = state.call(0, PeerId(1), denied).unwrap_err();
        assert_eq!((refusal.to_string().as_str(), refusal.kind()), ("tenant honest has no right to data", Denied));
    }
    assert!(state.call(0, PeerId(1), ListTenants { session, after: text("") }.into()).is_ok());
    assert!(state.call(0, PeerId(1), Renew { session, reading_epoch: 0 }.into()).is_ok());
    let refusal = state.call(0, PeerId(2), ListTenants { session: other, after: text("") }.into()).unwrap_err();
    assert_eq!(refusal.to_string(), "tenant hostile has no right to administer the node");
    let denied = [1, 2].map(|id| state.tenant(TenantId(id)).unwrap().figures.denied);
    assert_eq!(denied, [3, 1]);
}
