//! The members of a shard: the memory nodes that hold copies of it (Tebis 3.1; `docs/decisions/0036`).
//!
//! ```text
//!            joins            has everything                register has it no more
//!   (none) ───────► joining ────────────────► active ──────────────────────────────► out
//!                      │                                                              ▲
//!                      └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! | member | gets what is written from now on | is read | is in the register |
//! |---|---|---|---|
//! | joining | tables, yes; the log, no | no | no |
//! | active | yes | yes | yes |
//! | out | no | no | no |
//!
//! All active members hold the same, so all of them are read: each thread reads at one of them ([`Members::reader`]).
//! One member *serves*: background work and new segments are there. When it is lost, another one serves at once. A lost
//! member is *left out*: the register names the others, and only then is anything acknowledged that the lost member
//! does not have. A member that comes back is a new member, over a new session. It must be given all that the others
//! have, unless no other member is left: then it has everything (`durable::regaining`).
//!
//! Once a member is left out, only the others are left. So a member is left out for its own failure only, and only once
//! another member has answered a call made after the failure. A live link proves nothing, as the link of a node that
//! hangs is up. If no member answers, none is left out, and what failed is tried again. Once another member has
//! answered, the failed one is *doubted*: no read begins there, even while the register cannot yet say that it is out.
//!
//! Members are only added, so a reference to one is valid as long as the shard.

use crate::remote::segment::{Node, Remote};
use crate::remote::serving::Serving;
use crate::terms::planted::{Bug, planted};
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_env::thread::turn;
use forebay_fabric::NodeIdentity;
use forebay_memory_client::{Epoch, MemoryClient, StoreHandle};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// The register of the members of a database's shards, which knows them whatever happens to any of them.
pub(crate) trait Membership: Debug + Send + Sync {
    /// Names the members of a shard. They are the members when this has returned.
    ///
    /// # Errors
    /// `Fenced` when another process took over: nothing has changed; others: it is unknown whether it has.
    fn name(&self, shard: usize, members: &[NodeIdentity]) -> Result<()>;

    /// Returns if no other process has taken the database over.
    ///
    /// # Errors
    /// `Fenced` when another process did; after others it is unknown.
    fn confirm(&self) -> Result<()>;
}

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    Joining = 0,
    Active = 1,
    Out = 2,
}

#[derive(Debug)]
struct Member {
    remote: Arc<Remote>,
    standing: AtomicU8,
    /// The member has failed, and another one has answered since: it should be left out.
    is_doubted: AtomicBool,
    next: OnceLock<Box<Member>>,
}

impl Member {
    const fn new(remote: Arc<Remote>, standing: Standing) -> Self {
        let (standing, is_doubted) = (AtomicU8::new(standing as u8), AtomicBool::new(false));
        Self { remote, standing, is_doubted, next: OnceLock::new() }
    }

    fn is(&self, standing: Standing) -> bool {
        self.standing.load(Ordering::Acquire) == standing as u8
    }

    fn set(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Release);
    }

    fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Acquire)
    }

    fn doubt(&self, is_doubted: bool) {
        self.is_doubted.store(is_doubted, Ordering::Release);
    }

    /// Whether reads may begin there.
    fn is_read(&self) -> bool {
        (self.is(Standing::Active) && !self.is_doubted()) || (self.is(Standing::Out) && planted(Bug::ReadLeftOut))
    }
}

/// A memory node that is reached again by another session, in the same life, and the member that it was.
#[derive(Debug)]
pub(crate) struct Former {
    /// The number of the member.
    pub(crate) member: usize,
    /// The last epoch of the shard there that was this process's.
    pub(crate) epoch: Epoch,
    pub(crate) node: Arc<Node>,
    pub(crate) store: StoreHandle,
}

/// What the members of a shard share.
#[derive(Debug, Clone)]
pub(crate) struct Several {
    /// The number of the shard.
    pub(crate) shard: usize,
    /// The register of the members.
    pub(crate) register: Arc<dyn Membership>,
    /// Where members may be.
    pub(crate) places: Arc<Places>,
}

/// Where a call found damage or no copy, and why it continued.
#[derive(Debug, Default)]
pub(crate) struct Tried(Vec<Trial>);

#[derive(Debug)]
struct Trial {
    member: usize,
    node: NodeIdentity,
    failure: Error,
}

impl Tried {
    /// Returns how often the call tried a member.
    fn times(&self, member: usize) -> usize {
        self.0.iter().filter(|trial| trial.member == member).count()
    }

    /// Returns the failure of the call, naming all nodes whose copies are damaged.
    #[cold]
    pub(crate) fn told(&self, failure: Error) -> Error {
        // The last failure at each member.
        let found = self.0.iter().filter(|trial| trial.failure.kind() == ErrorKind::Corrupt);
        let found: BTreeMap<_, _> = found.map(|trial| (trial.member, trial)).collect();
        if failure.kind() != ErrorKind::Corrupt || found.len() < 2 {
            return failure;
        }
        let told: Vec<_> = found.values().map(|trial| format!("at {}: {}", trial.node, trial.failure)).collect();
        Error::corrupt(format!("all copies are damaged: {}", told.join("; ")))
    }
}

/// The memory nodes that may hold copies, each with the store of the database there.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<(Arc<Node>, StoreHandle)>>);

impl Places {
    pub(crate) fn new(places: Vec<(Arc<Node>, StoreHandle)>) -> Self {
        Self(Mutex::new(places))
    }

    /// Adds a node.
    pub(crate) fn add(&self, node: Arc<Node>, store: StoreHandle) {
        lock(&self.0).push((node, store));
    }

    /// Whether a session is one of the nodes' sessions.
    pub(crate) fn have(&self, client: &Arc<MemoryClient>) -> bool {
        lock(&self.0).iter().any(|(node, _)| Arc::ptr_eq(node.client(), client))
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.0).iter().map(|(node, _)| Arc::clone(node)).collect()
    }
}

/// See the module. Derefs to the part of the member that serves.
#[derive(Debug)]
pub(crate) struct Members {
    first: Member,
    serving: Arc<Serving>,
    /// What the members share if there may be several; `None` for one copy.
    several: Option<Several>,
    /// A member has joined that the register may not name yet.
    is_unnamed: AtomicBool,
    /// Held while a member's standing changes.
    changing: Mutex<()>,
    /// Held while members that are all lost are got back.
    regaining: Mutex<()>,
    /// The database is closed: what fails is not tried again, and no member is left out for it.
    is_closed: AtomicBool,
}

impl Deref for Members {
    type Target = Arc<Remote>;

    #[inline]
    fn deref(&self) -> &Arc<Remote> {
        let serving = self.serving.get();
        match self.first.remote.member() == serving {
            true => &self.first.remote,
            false => self.at(serving).map_or(&self.first.remote, |at| &at.remote),
        }
    }
}

impl Members {
    /// The only copy of a shard.
    pub(crate) fn only(remote: Arc<Remote>) -> Arc<Self> {
        Arc::new(Self::with(remote, None))
    }

    /// The first member of a shard that may have several.
    pub(crate) fn first(remote: Arc<Remote>, several: Several) -> Self {
        Self::with(remote, Some(several))
    }

    fn with(remote: Arc<Remote>, several: Option<Several>) -> Self {
        let serving = Arc::clone(remote.serving());
        serving.set(remote.member());
        let (first, changing) = (Member::new(remote, Standing::Active), Mutex::default());
        let (is_unnamed, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { first, serving, several, is_unnamed, changing, regaining: Mutex::default(), is_closed }
    }

    fn all(&self) -> impl Iterator<Item = &Member> {
        std::iter::successors(Some(&self.first), |member| member.next.get().map(|next| &**next))
    }

    fn at(&self, number: usize) -> Option<&Member> {
        self.all().find(|member| member.remote.member() == number)
    }

    /// The members that hold everything.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.all().filter(|member| member.is(Standing::Active)).map(|member| &member.remote)
    }

    /// How many copies of all that was acknowledged a successor would find.
    pub(crate) fn copies(&self) -> usize {
        self.active().count().saturating_sub(usize::from(self.is_unnamed.load(Ordering::Acquire)))
    }

    /// The member that joins, if one does.
    pub(crate) fn joining(&self) -> Option<&Arc<Remote>> {
        self.all().find(|member| member.is(Standing::Joining)).map(|member| &member.remote)
    }

    /// The members that get what is written to tables.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.all().filter(|member| !member.is(Standing::Out)).map(|member| &member.remote)
    }

    pub(crate) fn is_active(&self, member: usize) -> bool {
        self.at(member).is_some_and(|at| at.is(Standing::Active))
    }

    pub(crate) fn is_written(&self, member: usize) -> bool {
        self.at(member).is_some_and(|at| !at.is(Standing::Out))
    }

    /// Whether the shard may have several copies.
    pub(crate) const fn are_several(&self) -> bool {
        self.several.is_some()
    }

    /// Returns where another member may be, if there are fewer than `copies`, with the number that it would have. A
    /// session at a node is a member at most once: its earlier writes as a member may still arrive, until the node
    /// refuses them.
    pub(crate) fn candidate(&self, copies: usize) -> Option<(Arc<Node>, StoreHandle, usize)> {
        let several = self.several.as_ref()?;
        if self.written().count() >= copies {
            return None;
        }
        let places = lock(&several.places.0);
        let start = several.shard % places.len().max(1);
        let mut in_turn = places.iter().cycle().skip(start).take(places.len());
        let was_member = |node: &Arc<Node>| self.all().any(|at| Arc::ptr_eq(at.remote.memory_node(), node));
        let is_member = |node: &Node| self.written().any(|at| at.memory_node().client().node() == node.client().node());
        let (node, store) = in_turn.find(|(node, _)| node.lost().is_none() && !was_member(node) && !is_member(node))?;
        Some((Arc::clone(node), store.clone(), self.next_number()))
    }

    /// The number that another member would have.
    pub(crate) fn next_number(&self) -> usize {
        self.all().map(|member| member.remote.member() + 1).max().unwrap_or(0)
    }

    /// Returns a guard that allows one thread to get back members that are all lost; `None` while another thread does
    /// so, or when not all are lost.
    pub(crate) fn regaining(&self) -> Option<MutexGuard<'_, ()>> {
        self.regaining.try_lock().ok().filter(|_| self.are_all_lost())
    }

    /// Returns the members that are of no more use and whose nodes are reached again.
    pub(crate) fn formers(&self) -> Vec<Former> {
        let Some(several) = &self.several else { return Vec::new() };
        let places = lock(&several.places.0);
        let was_member = |node: &Arc<Node>| self.all().any(|at| Arc::ptr_eq(at.remote.memory_node(), node));
        let former = |remote: &Arc<Remote>| {
            let before = remote.memory_node().client().node();
            let is_again =
                |node: &Arc<Node>| node.client().node() == before && node.lost().is_none() && !was_member(node);
            let (node, store) = places.iter().find(|(node, _)| is_again(node))?;
            let epoch = remote.owner()?.shard().epoch();
            Some(Former { member: remote.member(), epoch, node: Arc::clone(node), store: store.clone() })
        };
        self.active().filter_map(former).collect()
    }

    /// Whether there are fewer than `copies`, and a node has none because the copy of this session was left out.
    pub(crate) fn lacks(&self, copies: usize, client: &Arc<MemoryClient>) -> bool {
        self.written().count() < copies
            && self.all().any(|member| member.is(Standing::Out) && member.remote.is_of(client))
            && !self.written().any(|remote| remote.memory_node().client().node() == client.node())
    }

    /// Whether a member is at this session.
    pub(crate) fn uses(&self, client: &Arc<MemoryClient>) -> bool {
        self.written().any(|remote| remote.is_of(client))
    }

    /// Whether no member is of use to this process any more. Then the process acknowledges nothing again.
    pub(crate) fn are_all_lost(&self) -> bool {
        self.are_several() && self.active().all(|remote| remote.memory_node().lost().is_some())
    }

    /// The number of the shard.
    pub(crate) fn shard(&self) -> usize {
        self.several.as_ref().map_or(0, |several| several.shard)
    }

    /// Asks the register whether another process took over.
    ///
    /// # Errors
    /// As [`Membership::confirm`].
    pub(crate) fn confirm(&self) -> Result<()> {
        self.several.as_ref().map_or(Ok(()), |several| several.register.confirm())
    }

    /// Adds a member with the next number.
    pub(crate) fn add(&self, remote: Arc<Remote>, standing: Standing) {
        let _changing = lock(&self.changing);
        let mut member = Box::new(Member::new(remote, standing));
        for last in self.all() {
            match last.next.set(member) {
                Ok(()) => return,
                Err(other) => member = other,
            }
        }
    }

    /// Makes a member that now has everything active, and names it in the register.
    ///
    /// # Errors
    /// Those of the register, which may or may not name the member then; [`Members::name_joined`] names it again.
    pub(crate) fn activate(&self, number: usize) -> Result<()> {
        {
            let _changing = lock(&self.changing);
            let Some(member) = self.at(number) else { return Ok(()) };
            if !member.is(Standing::Joining) {
                return Err(Error::new(ErrorKind::Unavailable, "a memory node was lost while it joined"));
            }
            // The member gets what is written from here on: whatever happens now, the register may name it.
            self.is_unnamed.store(true, Ordering::Release);
            member.set(Standing::Active);
        }
        self.name_joined()
    }

    /// Names the active members in the register, if one of them has joined and may not be named yet.
    ///
    /// # Errors
    /// Those of the register.
    pub(crate) fn name_joined(&self) -> Result<()> {
        let _changing = lock(&self.changing);
        match self.is_unnamed.load(Ordering::Acquire) {
            true => self.name(&self.active().collect::<Vec<_>>()),
            false => Ok(()),
        }
    }

    /// Names these members in the register. They are all that are active from now on.
    fn name(&self, members: &[&Arc<Remote>]) -> Result<()> {
        let Some(several) = &self.several else { return Ok(()) };
        let mut named = Vec::with_capacity(members.len());
        for node in members.iter().map(|remote| remote.memory_node().client().node()) {
            // A node that this process has got back is two members until the former one is left out.
            if !named.contains(&node) {
                named.push(node);
            }
        }
        several.register.name(several.shard, &named)?;
        self.is_unnamed.store(false, Ordering::Release);
        Ok(())
    }

    /// Leaves out a member that was lost because of `cause`, its own failure. Another one serves in its place at once.
    ///
    /// # Errors
    /// `Unavailable`, or `Fenced` if that is the cause, when no other member answers; `Closed`; `Fenced` when another process took
    /// over; others of the register. The member is not left out then.
    pub(crate) fn leave_out(&self, number: usize, cause: &Error) -> Result<()> {
        let Some(member) = self.at(number) else { return Err(cause.clone()) };
        loop {
            // Asking may take long, so it does not keep other threads from changing members.
            let asked =
                member.is(Standing::Active).then(|| self.others(number).find(|remote| remote.memory_node().answers()));
            let _changing = lock(&self.changing);
            if member.is(Standing::Out) {
                return Ok(());
            }
            if self.is_closed() {
                return Err(Error::closed());
            }
            if member.is(Standing::Active) {
                // The member has become active only now.
                let Some(answering) = asked else { continue };
                // If none answers, this process is probably cut off, or all of them hang.
                let Some(next) = answering else { return Err(unanswered(cause)) };
                let others: Vec<_> = self.others(number).collect();
                // The member that answered was itself left out meanwhile.
                if !others.iter().any(|remote| Arc::ptr_eq(remote, next)) {
                    continue;
                }
                if !planted(Bug::ReadLeftOut) {
                    self.go_over(member, next);
                }
                if !planted(Bug::LeaveOutUnrecorded) {
                    self.name(&others).map_err(|error| error.during("leaving a copy out"))?;
                }
            }
            member.set(Standing::Out);
            let node = member.remote.memory_node().client().node();
            tracing::warn!(%node, copies = self.active().count(), %cause, "a memory node is left out");
            return Ok(());
        }
    }

    /// Makes no read begin at a member that failed, as another one has answered.
    fn go_over(&self, member: &Member, next: &Remote) {
        if self.serving.get() == member.remote.member() {
            self.serving.set(next.member());
        }
        member.doubt(true);
        self.at(next.member()).into_iter().for_each(|next| next.doubt(false));
    }

    /// Returns the active members except this one.
    fn others(&self, number: usize) -> impl Iterator<Item = &Arc<Remote>> {
        self.active().filter(move |remote| remote.member() != number)
    }

    /// Returns the part of the member that serves now, for work that must not switch to another one.
    pub(crate) fn pinned(&self) -> &Arc<Remote> {
        self
    }

    /// The member that serves.
    #[inline]
    pub(crate) fn server(&self) -> usize {
        self.serving.get()
    }

    /// Returns the member where this thread reads, which stays the same while the members do. So a thread that waits
    /// for a node that hangs delays no thread that reads elsewhere. Shards with the same members give a thread the same
    /// member. So a call that reads several of them goes to as few nodes as if the first member served each shard
    /// (`docs/decisions/0087`).
    #[inline]
    pub(crate) fn reader(&self) -> &Arc<Remote> {
        self.reader_but(&Tried::default())
    }

    #[inline]
    fn reader_but(&self, tried: &Tried) -> &Arc<Remote> {
        if self.are_several() { self.reader_after(tried) } else { &self.first.remote }
    }

    /// Returns the one of several members where a call has tried least, this thread's first.
    fn reader_after(&self, tried: &Tried) -> &Arc<Remote> {
        let read = || self.all().filter(|member| member.is_read()).map(|member| &member.remote);
        let turn = turn().checked_rem(read().count()).unwrap_or(0);
        let in_turn = read().skip(turn).chain(read().take(turn));
        in_turn.min_by_key(|remote| tried.times(remote.member())).unwrap_or_else(|| self.pinned())
    }

    /// Whether reads may begin at a member.
    pub(crate) fn reads_at(&self, member: usize) -> bool {
        !self.are_several() || self.at(member).is_some_and(Member::is_read)
    }

    /// Leaves out the member that serves, if the failure says that it is lost. Returns whether the failed call may
    /// succeed now. `before` is the member that served when the call began.
    #[cold]
    pub(crate) fn serves_again(&self, failure: &Error, before: usize) -> bool {
        self.goes_over(failure, before, || self.serving.get() != before)
    }

    /// Does the same for a read at a member: returns whether it may succeed at another one.
    #[cold]
    pub(crate) fn reads_again(&self, failure: &Error, at: usize) -> bool {
        self.goes_over(failure, at, || !self.reads_at(at))
    }

    /// Leaves out a member where a call failed, if the failure says that the member is lost. Returns whether the call
    /// may succeed now. It may if `has_gone`: it would not go to that member again.
    fn goes_over(&self, failure: &Error, before: usize, has_gone: impl Fn() -> bool) -> bool {
        // Once another process took over, no copy serves this one any more. The register refuses a call whichever
        // member serves.
        if !self.are_several() || self.is_closed() || failure.is_of_register() {
            return false;
        }
        let lost = self.at(before).and_then(|member| member.remote.memory_node().lost());
        let failure = lost.as_ref().unwrap_or(failure);
        if failure.kind() == ErrorKind::Fenced {
            return false;
        }
        if has_gone() {
            return true;
        }
        if !matches!(failure.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut) {
            return false;
        }
        match self.leave_out(before, failure) {
            Err(error) if error.kind() == ErrorKind::Fenced => return false,
            Err(error) => tracing::debug!(%error, "leaving out a memory node where something failed"),
            Ok(()) => {}
        }
        has_gone()
    }

    /// As [`Members::reads_again`], also for a call that found damage in what it read: then it continues at another
    /// member, and the copies are checked soon. A call that found no copy also continues. A call that finds damage at
    /// all members, twice each, fails with it.
    ///
    /// `failure` was judged at that member ([`Members::judged_at`]), because memory with unexpected content may be
    /// another owner's by now. It is judged once: if another process takes over later, the next member says so.
    #[cold]
    pub(crate) fn goes_on(&self, failure: &Error, at: usize, tried: &mut Tried) -> bool {
        let is_damage = failure.kind() == ErrorKind::Corrupt && !failure.is_of_storage();
        if !is_damage && !failure.is_not_held() {
            return self.reads_again(failure, at);
        }
        let Some(member) = self.at(at).filter(|_| self.are_several() && !self.is_closed()) else { return false };
        if is_damage {
            self.serving.suspect();
        }
        let node = member.remote.memory_node().client().node();
        tried.0.push(Trial { member: at, node, failure: failure.clone() });
        let active = self.active().count();
        if active < 2 || tried.0.len() >= 2 * active {
            return false;
        }
        tracing::debug!(%failure, %node, "reading another copy");
        true
    }

    /// Makes another member serve if background work found damage at the one that serves. Returns whether the work may
    /// succeed now.
    pub(crate) fn serves_around_damage(&self, failure: &Error) -> bool {
        let before = self.serving.get();
        if failure.kind() != ErrorKind::Corrupt || !self.goes_on(failure, before, &mut Tried::default()) {
            return false;
        }
        let _changing = lock(&self.changing);
        if self.serving.get() == before {
            let active: Vec<_> = self.active().map(|remote| remote.member()).collect();
            let at = active.iter().position(|active| *active == before).unwrap_or(0);
            let next = active.iter().cycle().skip(at + 1).find(|next| **next != before);
            next.into_iter().for_each(|next| self.serving.set(*next));
        }
        true
    }

    /// Does a read at the member where this thread reads, and again at others as long as that may help.
    #[inline]
    pub(crate) fn wherever<'m, T>(&'m self, read: impl FnMut(&'m Arc<Remote>) -> Result<T>) -> Result<T> {
        let mut tried = Tried::default();
        self.wherever_else(&mut tried, read).map_err(|error| tried.told(error))
    }

    /// Does the same for a call that has already tried some members.
    #[inline]
    pub(crate) fn wherever_else<'m, T>(
        &'m self,
        tried: &mut Tried,
        mut read: impl FnMut(&'m Arc<Remote>) -> Result<T>,
    ) -> Result<T> {
        let mut at = self.reader_but(tried);
        loop {
            match read(at) {
                Err(error) if self.goes_on(&error, at.member(), tried) => at = self.reader_after(tried),
                result => return result,
            }
        }
    }

    /// Whether a copy seems to be damaged.
    pub(crate) fn are_suspected(&self) -> bool {
        self.are_several() && self.serving.is_suspected()
    }

    /// Whether the failed operation of background work may succeed if it is made again.
    pub(crate) fn may_retry(&self, error: &Error) -> bool {
        let serving = self.serving.get();
        !self.is_closed() && (self.may_retry_at(self.pinned(), error) || self.serves_again(error, serving))
    }

    /// Whether a read that failed at a member may succeed there if it is made again.
    pub(crate) fn may_read_again(&self, at: &Remote, error: &Error) -> bool {
        !self.is_closed() && self.reads_at(at.member()) && self.may_retry_at(at, error)
    }

    /// Whether what failed at a member may succeed there if it is made again. If another member has everything, a call
    /// does not wait again for a node that does not answer.
    pub(crate) fn may_retry_at(&self, member: &Remote, error: &Error) -> bool {
        member.may_retry(error)
            && (error.kind() != ErrorKind::TimedOut
                || self.others(member.member()).next().is_none()
                || member.memory_node().answers_soon())
    }

    /// Leaves out the member that serves, if work failed there again and again and it does not answer. Returns whether another one
    /// serves now.
    pub(crate) fn serves_elsewhere(&self, error: &Error) -> bool {
        let serving = self.pinned();
        self.are_several() && !serving.memory_node().answers() && self.serves_again(error, serving.member())
    }

    /// Returns what a failure at a member means, as [`Remote::judged`] does. If a shard has several copies, the
    /// register says whether another process took over.
    pub(crate) fn judged_at(&self, at: &Remote, error: Error) -> Error {
        if !self.are_several() {
            return at.judged(error);
        }
        // The register has the last word, whatever the node says.
        if error.is_of_register() {
            return error;
        }
        let judged = at.judged(error);
        if judged.kind() != ErrorKind::Fenced {
            return judged;
        }
        let judged = at.memory_node().lost().unwrap_or(judged);
        match self.leave_out(at.member(), &judged) {
            Ok(()) => Error::new(ErrorKind::Unavailable, judged.to_string()),
            Err(error) => error,
        }
    }

    /// Asks all members whether another process took over, and leaves out those that are lost.
    ///
    /// # Errors
    /// `Fenced` when one did.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if !self.are_several() {
            return self.deref().check_owner();
        }
        for member in self.all().filter(|member| member.is(Standing::Active)) {
            let remote = &member.remote;
            let checked = remote.check_owner();
            if let Some(cause) = remote.memory_node().lost().or(checked.err()) {
                self.leave_out_if_possible(remote, &cause)?;
            } else if member.is_doubted() && remote.memory_node().answers_soon() {
                // The register could not say that the member is out, and the member is back.
                member.doubt(false);
            }
        }
        Ok(())
    }

    /// Leaves out the members that are of no use to this process any more, without asking them.
    ///
    /// # Errors
    /// `Fenced` when another process took over.
    pub(crate) fn leave_out_lost(&self) -> Result<()> {
        for remote in self.written() {
            if let Some(cause) = remote.memory_node().lost() {
                self.leave_out_if_possible(remote, &cause)?;
            }
        }
        Ok(())
    }

    /// As [`Members::leave_out`]. If it fails now, the next check tries again.
    fn leave_out_if_possible(&self, remote: &Remote, cause: &Error) -> Result<()> {
        match self.leave_out(remote.member(), cause) {
            Err(error) if error.kind() == ErrorKind::Fenced => Err(error),
            Err(error) => {
                tracing::debug!(%error, "leaving out a memory node that is lost");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// As [`Remote::has_frees`], of all members.
    pub(crate) fn has_frees(&self) -> bool {
        self.written().any(|remote| remote.has_frees())
    }

    /// As [`Remote::send_frees`], of all members.
    pub(crate) fn send_frees(&self, fewest: usize) {
        self.written().for_each(|remote| remote.send_frees(fewest));
    }

    /// As [`Remote::give_back`], of all members.
    pub(crate) fn give_back(&self) {
        self.written().for_each(|remote| remote.give_back());
    }

    /// Notes that the database is being closed. What it gives back and ends from here on makes other calls fail.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Releases the shard at all members.
    pub(crate) fn release(&self) {
        self.written().for_each(|remote| remote.release());
    }
}

/// Returns the failure of a member when no other one answers. The member is not known to be lost, so the failure is
/// final only if another process took over.
fn unanswered(cause: &Error) -> Error {
    let kind = if cause.kind() == ErrorKind::Fenced { ErrorKind::Fenced } else { ErrorKind::Unavailable };
    Error::new(kind, format!("{cause}; and no other memory node with a copy answers"))
}
