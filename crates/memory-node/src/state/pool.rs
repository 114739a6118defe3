//! The databases of a tenant, what they hold, and their credit: the node's side of [`credits`](super::credits).
//!
//! A session declares its database. The database holds what its sessions lease, and the memory of the stores whose
//! shards they own. A store counts once: if several databases own shards of it, it counts for the owner of the first.
//! So the node remembers nothing of a database except what its sessions have declared, and nothing can be left over.

use super::credits::{Division, Holding};
use super::directory;
use super::sessions::Declared;
use super::{Answer, Refusal, State, TenantId};
use forebay_env::Nanos;
use forebay_proto::calls::{GetCredit, ListPool};
use forebay_proto::replies::{Credit, PoolEntry, PoolPage, Statistics};
use forebay_proto::{Message, SessionId, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Databases per page: this many fit into a reply buffer of 64 KiB.
const DATABASES_IN_PAGE: usize = 64;

/// A database's name. A database without a name belongs to its session alone.
type Key = (Text, Option<SessionId>);

/// A database, as derived from its sessions and the extents.
#[derive(Debug, Default)]
pub(super) struct Database {
    sessions: Vec<SessionId>,
    /// The weight that its latest session declared.
    weight: u32,
    pub(super) held: u64,
}

fn key(session: SessionId, declared: &Declared) -> Key {
    let is_unnamed = declared.database.as_str().is_empty();
    (declared.database.clone(), is_unnamed.then_some(session))
}

/// The index of the database with this key.
fn place_in(databases: &BTreeMap<Key, Database>, key: &Key) -> usize {
    databases.keys().position(|other| other == key).unwrap_or(usize::MAX)
}

impl State {
    /// The databases of a tenant.
    pub(super) fn databases(&self, tenant: TenantId) -> BTreeMap<Key, Database> {
        let mut databases: BTreeMap<Key, Database> = BTreeMap::new();
        for (id, declared) in self.sessions.declared(tenant) {
            let database = databases.entry(key(id, declared)).or_default();
            database.sessions.push(id);
            database.weight = declared.weight;
            database.held += self.extents.of_session(id);
        }
        let mut counted = BTreeSet::new();
        for (shard, state) in self.directory.shards_of_tenant(tenant) {
            let owner = state.owner.and_then(|owner| Some((owner, self.sessions.of_database(owner)?)));
            if let Some(database) = owner.and_then(|(owner, declared)| databases.get_mut(&key(owner, declared)))
                && counted.insert(shard.store)
            {
                database.held += self.extents.of_store(shard.store);
            }
        }
        databases
    }

    /// The tenant's memory, divided among its databases.
    fn division(&self, tenant: TenantId, figures: &Statistics, databases: &BTreeMap<Key, Database>) -> Division {
        let unused = figures.free_extents + figures.recycling_extents;
        let headroom = figures.headroom_extents.min(unused);
        let free = unused - headroom;
        // Bounded by its limit, against which extents that are being cleaned still count.
        let free = free.min(self.left_of_memory(tenant) + self.extents.of_tenant(tenant).recycling);
        let holding = |database: &Database| Holding { weight: database.weight, held: database.held };
        let holdings: Vec<Holding> = databases.values().map(holding).collect();
        Division::new(&holdings, free, headroom)
    }

    /// Whether the tenant's loans are called now.
    fn is_called(&mut self, tenant: TenantId, division: &Division, now: Nanos) -> bool {
        let recall = self.recalls.entry(tenant).or_default();
        recall.look(division.lacking(), now);
        let is_open = recall.is_open(now, self.settings.lease);
        if recall.is_over() {
            self.recalls.remove(&tenant);
        }
        is_open
    }

    /// Whether the session's database leaves all that is free to others.
    pub(super) fn leaves_all(&self, tenant: TenantId, session: SessionId) -> bool {
        let Some(declared) = self.sessions.of_database(session) else { return false };
        let databases = self.databases(tenant);
        let at = place_in(&databases, &key(session, declared));
        self.division(tenant, &self.figures_for(tenant), &databases).may_take(at) == 0
    }

    /// Checks whether loans that were called are still called.
    pub(super) fn look_at_loans(&mut self, now: Nanos) {
        let tenants: Vec<TenantId> = self.recalls.keys().copied().collect();
        for tenant in tenants {
            let division = self.division(tenant, &self.figures_for(tenant), &self.databases(tenant));
            self.is_called(tenant, &division, now);
        }
    }

    pub(super) fn get_credit(&mut self, now: Nanos, tenant: TenantId, call: GetCredit) -> Result<Answer, Refusal> {
        if !directory::is_name(&call.database) {
            return Err(Refusal::Name(call.database.as_str().into()));
        }
        let declared = Declared { database: call.database, weight: call.share.max(1) };
        let key = key(call.session, &declared);
        self.sessions.declare(call.session, declared);
        let (figures, databases) = (self.figures_for(tenant), self.databases(tenant));
        let division = self.division(tenant, &figures, &databases);
        let is_called = self.is_called(tenant, &division, now);
        let at = place_in(&databases, &key);
        let credit = division.credit(at, is_called);
        let credit = Credit {
            free_extents: figures.free_extents + figures.recycling_extents + figures.kept_extents,
            headroom_extents: figures.headroom_extents,
            withheld_extents: credit.withheld,
            owed_extents: credit.owed,
            share_extents: credit.share,
            held_extents: databases.get(&key).map_or(0, |database| database.held),
            databases: u32::try_from(databases.len()).unwrap_or(u32::MAX),
            is_called,
        };
        Ok(Answer::Reply(credit.encode()))
    }

    pub(super) fn list_pool(&mut self, now: Nanos, tenant: TenantId, call: &ListPool) -> Answer {
        let mut tenants = vec![tenant];
        if self.administers(tenant) {
            tenants = self.tenants.iter().map(|(id, _)| id).collect();
            tenants.sort_by_cached_key(|id| self.tenants.get(*id).map(|tenant| tenant.name.clone()));
        }
        let mut entries = Vec::new();
        tenants.retain(|tenant| self.sessions.declared(*tenant).next().is_some());
        for tenant in tenants {
            let databases = self.databases(tenant);
            let division = self.division(tenant, &self.figures_for(tenant), &databases);
            let is_called = self.is_called(tenant, &division, now);
            let name = self.tenants.get(tenant).map(|tenant| tenant.name.clone()).unwrap_or_default();
            for (at, ((database, _), of)) in databases.into_iter().enumerate() {
                let credit = division.credit(at, is_called);
                let session = of.sessions.first().copied().unwrap_or_default();
                entries.push(PoolEntry {
                    tenant: name.clone(),
                    database,
                    process: self.sessions.name(session),
                    session,
                    sessions: u32::try_from(of.sessions.len()).unwrap_or(u32::MAX),
                    weight: of.weight,
                    share_extents: credit.share,
                    held_extents: of.held,
                    owed_extents: credit.owed,
                });
            }
        }
        let figures = self.visible_figures(tenant);
        let given_out = figures.leased_extents + figures.adopted_extents + figures.job_extents;
        let held: u64 = entries.iter().map(|entry| entry.held_extents).sum();
        let skip = usize::try_from(call.skip).unwrap_or(usize::MAX);
        let more = entries.len() > skip.saturating_add(DATABASES_IN_PAGE);
        let databases = entries.into_iter().skip(skip).take(DATABASES_IN_PAGE).collect();
        let free_extents = figures.free_extents + figures.recycling_extents + figures.kept_extents;
        let page = PoolPage { databases, more, free_extents, other_extents: given_out.saturating_sub(held) };
        Answer::Reply(page.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outputs::JobId;
    use super::super::tests::{EXTENT_BYTES, LEASE, SECOND, World, settings, text};
    use super::*;
    use forebay_base::ErrorKind;
    use forebay_proto::calls::{AdoptExtents, CloseSession, Renew, ReturnExtents, SubmitJob};
    use forebay_proto::{Epoch, Purpose, Request, Rest, ShardId, ShardKey};

    impl World {
        fn credit(&mut self, peer: u64, database: &str, share: u32) -> Credit {
            let call = GetCredit { session: self.sessions[&peer], database: text(database), share };
            let Ok(Answer::Reply(bytes)) = self.call(peer, call) else { panic!("no credit") };
            Credit::decode(&bytes).unwrap()
        }

        fn pool(&mut self, peer: u64) -> PoolPage {
            let call = ListPool { session: self.sessions[&peer], skip: 0 };
            let Ok(Answer::Reply(bytes)) = self.call(peer, call) else { panic!("no pool") };
            PoolPage::decode(&bytes).unwrap()
        }

        /// A shard of a store of this name, which the session owns.
        fn shard(&mut self, peer: u64, store: &str) -> (ShardKey, Epoch) {
            let shard = ShardKey { store: self.store(peer, store), shard: ShardId(0) };
            (shard, self.acquire(peer, shard, false).unwrap())
        }

        fn submit(&mut self, peer: u64, (shard, epoch): (ShardKey, Epoch), attempt: u64) -> JobId {
            let session = self.sessions[&peer];
            let submit = SubmitJob { session, shard, epoch, attempt, kind: 1, arguments: Rest(Vec::new()) };
            let Ok(Answer::Job(job)) = self.call(peer, submit) else { panic!("no job") };
            job.id
        }

        /// Leases what a database may take, and no more.
        fn borrow(&mut self, peer: u64, database: &str) -> Vec<forebay_proto::ExtentId> {
            let credit = self.credit(peer, database, 1);
            // Two are kept for jobs, and the headroom is for collection.
            let may_take = credit.free_extents - credit.headroom_extents.max(credit.withheld_extents) - 2;
            if may_take == 0 { Vec::new() } else { self.lease(peer, may_take as u32, Purpose::Flush).unwrap() }
        }
    }

    /// 44 extents, of which 2 are headroom and 2 are kept for jobs: 40 are shared.
    fn world() -> World {
        let mut world = World::new(settings(44, 2, 2));
        for peer in 1..=3 {
            world.open(peer);
        }
        world
    }

    #[test]
    fn a_database_alone_sees_the_whole_node() {
        let mut world = world();
        let alone = world.credit(1, "a", 7);
        let whole = world.state.statistics();
        assert_eq!(alone.free_extents, whole.free_extents + whole.recycling_extents + whole.kept_extents);
        assert_eq!((alone.headroom_extents, alone.withheld_extents, alone.owed_extents), (2, 0, 0));
        assert_eq!((alone.share_extents, alone.databases, alone.is_called), (40, 1, false));
        world.lease(1, 40, Purpose::Flush).unwrap();
        let full = world.credit(1, "a", 7);
        assert_eq!((full.withheld_extents, full.owed_extents, full.held_extents), (0, 0, 40));
        // A session that has declared nothing belongs to no database.
        assert_eq!(world.pool(2).databases.len(), 1);
    }

    #[test]
    fn loans_are_called_and_end_when_paid() {
        let mut world = world();
        let loan = world.borrow(1, "a");
        assert_eq!(loan.len(), 40);
        let back = world.credit(2, "b", 1);
        assert_eq!((back.share_extents, back.is_called), (20, true));
        let owing = world.credit(1, "a", 1);
        assert_eq!((owing.share_extents, owing.owed_extents, owing.withheld_extents), (20, 5, 2));
        let session = world.sessions[&1];
        world.call(1, ReturnExtents { session, extents: loan[..5].to_vec() }).unwrap();
        // Not clean yet, but counted as free.
        assert!(!world.credit(2, "b", 1).is_called);
        assert_eq!(world.credit(1, "a", 1).owed_extents, 0);
        world.settle();
        assert_eq!(world.borrow(2, "b").len(), 5);
        assert!(world.borrow(1, "a").is_empty());
    }

    #[test]
    fn who_cannot_pay_within_a_lease_owes_nothing_more() {
        let mut world = world();
        world.borrow(1, "a");
        assert!(world.credit(2, "b", 1).is_called);
        for second in 1..=12 {
            world.now = second * SECOND;
            for peer in 1..=3 {
                let session = world.sessions[&peer];
                world.call(peer, Renew { session, reading_epoch: u64::MAX }).unwrap();
            }
            world.state.tick(world.now);
            let is_called = world.now < LEASE;
            assert_eq!(world.credit(2, "b", 1).is_called, is_called, "second {second}");
            assert_eq!(world.credit(1, "a", 1).owed_extents, if is_called { 5 } else { 0 });
        }
    }

    #[test]
    fn what_a_dead_borrower_held_comes_back() {
        let mut world = world();
        world.borrow(1, "a");
        assert!(world.credit(2, "b", 1).is_called);
        world.cut(1);
        world.settle();
        let alone = world.credit(2, "b", 1);
        assert_eq!((alone.share_extents, alone.databases, alone.is_called), (40, 1, false));
        assert!(world.state.recalls.is_empty());
    }

    #[test]
    fn sessions_of_one_database_owe_each_other_nothing() {
        let mut world = world();
        world.credit(3, "b", 1);
        world.borrow(1, "a");
        let held = world.credit(1, "a", 1).held_extents;
        let taker = world.credit(2, "a", 1);
        assert_eq!((taker.databases, taker.held_extents, taker.owed_extents), (2, held, 0));
        let pool = world.pool(1);
        assert_eq!(pool.databases.iter().map(|database| database.sessions).collect::<Vec<_>>(), [2, 1]);
        // Without a name, each session is a database by itself.
        let [one, other] = [1, 2].map(|peer| world.credit(peer, "", 1));
        assert_eq!((one.held_extents, other.held_extents, other.databases), (held, 0, 3));
    }

    #[test]
    fn memory_of_stores_is_of_who_owns_their_shards() {
        let mut world = world();
        let session = world.sessions[&1];
        let (shard, epoch) = world.shard(1, "db-part");
        let extents = world.lease(1, 3, Purpose::Flush).unwrap();
        world.call(1, AdoptExtents { session, shard, epoch, extents: extents[..2].to_vec() }).unwrap();
        let job = world.submit(1, (shard, epoch), 5);
        world.state.job_allocate(job, EXTENT_BYTES).unwrap();
        assert_eq!(world.credit(1, "db", 1).held_extents, 4);
        // Taken over by another session of the database; the lease is still the first one's.
        world.store(2, "db-part");
        world.acquire(2, shard, true).unwrap();
        assert_eq!(world.credit(2, "db", 1).held_extents, 4);
        world.call(1, CloseSession { session }).unwrap();
        assert_eq!(world.credit(2, "db", 1).held_extents, 3);
        // Nobody has it open, so it belongs to no database that shares.
        world.cut(2);
        let pool = world.pool(3);
        assert_eq!((pool.databases, pool.other_extents), (vec![], 3));
    }

    #[test]
    fn a_job_keeps_to_its_pieces_while_others_are_left_all() {
        let mut world = world();
        let shard = world.shard(1, "a-part");
        // It has the whole node, or is within its share.
        world.credit(1, "a", 1);
        let alone = world.submit(1, shard, 1);
        world.credit(2, "b", 1);
        let within = world.submit(1, shard, 2);
        world.state.job_allocate(alone, EXTENT_BYTES * 3 / 4).unwrap();
        assert!(!world.borrow(1, "a").is_empty());
        world.lease(1, 1, Purpose::Flush).unwrap();
        assert!(world.state.statistics().free_extents > 0);
        let borrower = world.submit(1, shard, 3);
        let longest = [alone, within, borrower].map(|job| world.state.job_longest_piece(job, EXTENT_BYTES));
        assert_eq!(longest, [EXTENT_BYTES, EXTENT_BYTES, EXTENT_BYTES / 4]);
        // An output that fits into none of them takes an extent nevertheless: a job that has begun does
        // not fail.
        world.state.job_allocate(borrower, EXTENT_BYTES / 2).unwrap();
    }

    #[test]
    fn names_are_those_of_stores() {
        let mut world = world();
        let session = world.sessions[&1];
        let wrong: Request = GetCredit { session, database: text("a\nb"), share: 1 }.into();
        assert_eq!(world.call(1, wrong).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(world.credit(1, "a", 0).databases, 1);
        assert_eq!(world.pool(1).databases[0].weight, 1);
    }
}
