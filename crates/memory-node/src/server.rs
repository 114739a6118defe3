//! The node's loop: events of the fabric in, replies out.
//!
//! Calls are accepted as they come and wait for their turn, by tenant and link ([`forebay_fabric::turns`]). Control calls
//! (those that keep, end or look at a session) wait in a line of their own, not behind the other calls of their link, and
//! are charged in the same way. So do calls whose arguments have been pulled, because other calls may wait for the room
//! that these take up. The end of a link is charged to its tenant: all that its session had goes back then. Nothing here
//! waits for a client: arguments are pulled meanwhile, and a reply is posted. A link whose client does not take its
//! replies is not served, and is closed when that lasts for a lease. A call occupies its sender's room at the node until
//! it is served ([`forebay_fabric::Place`]), so a flood stays in the sender's own socket.

use crate::core::{CallError, Called, Core, Kept};
use crate::state::TenantId;
use crate::tenants::{Identify, TenantsOptions};
use crate::workers::{Caller, ThreadTime, Turn, Turns, Workers, has_room, refuse};
use crate::{Error, Options};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_env::sync::thread::yield_now;
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{HashMap, Nanos};
use forebay_fabric::{EndpointId, Event, Listener, NodeIdentity, Peer, PeerId, Place, rpc};
use forebay_offload::{Load, Term};
use forebay_proto::replies::{DoorFigures, Statistics, TenantFigures};
use forebay_proto::{Procedure, Request};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the loop sleeps when nothing happens.
const IDLE: Duration = Duration::from_millis(20);
/// As [`IDLE`], while keys are being revoked.
const IMPATIENT: Duration = Duration::from_millis(1);
/// Longest sleep while arguments are pulled or replies not taken.
const WATCHFUL: Duration = Duration::from_millis(2);
/// Events handled before a call is served.
const MOST_EVENTS: u32 = 16;
/// Calls of a link that may wait, so that no link takes all that its tenant may have.
const MOST_WAITING: u32 = 256;
/// Calls of a link that are refused, because too many wait, before the link is closed.
const MOST_CROWDING: u32 = 64;
/// Arguments on their way that a step checks, in turn. A large number of them must not hold up other work.
const MOST_POLLED: usize = 64;
/// Refused links that may wait for the answer to their first call, which says why. When there are more, the oldest is
/// closed.
const MOST_REFUSED: usize = 64;
/// Marks the line of a link's control calls, as opposed to that of its other calls. Links are numbered from one.
const CONTROL: u64 = 1 << 63;
/// Marks the line of a link's calls whose arguments have been pulled. They hold what other calls of the link may wait for,
/// so they wait behind none of those.
const PULLED: u64 = 1 << 62;
/// Steps between two looks at the clock.
const STEPS_PER_TICK: u32 = 64;
/// Steps with work after which other threads get the processor, if they wait for one. A system may let a thread run for
/// milliseconds, and the thread that serves one-sided operations may be the one that waits.
const STEPS_PER_YIELD: u32 = 16;
/// The least cost of a call and of the end of a link, and the cost of a call that is refused before its turn,
/// nanoseconds.
const LEAST_COST: u64 = 1000;
const REFUSAL_COST: u64 = 5000;
/// Messages that are not requests, before a link is closed.
const MAX_MALFORMED: u32 = 16;

/// A call that waits for its turn.
#[derive(Debug)]
struct Call {
    caller: Caller,
    /// Its arguments, if they had to be pulled and have arrived.
    pulled: Option<(Vec<u8>, Kept)>,
}

/// Arguments on their way.
#[derive(Debug)]
struct Pulling {
    caller: Caller,
    arguments: rpc::PulledArguments,
    kept: Kept,
    since: Nanos,
}

/// The loop's state of a link.
#[derive(Debug)]
struct LinkState {
    peer: Arc<dyn Peer>,
    tenant: TenantId,
    /// Number of messages that were not requests.
    malformed: u32,
    /// Number of calls that are not served yet.
    waiting: u32,
    /// Number of calls refused because too many wait, since one was last served.
    crowding: u32,
    /// An endpoint whose replies its client does not take, and since when.
    stuck: Option<(EndpointId, Nanos)>,
}

/// A link for which there is no room. Its client learns why from the answer to its first call.
#[derive(Debug)]
struct RefusedLink {
    peer: Arc<dyn Peer>,
    /// The reason, until the client was told.
    why: Option<CallError>,
}

/// A memory node.
///
/// [`MemoryNode::start`] runs it on its own threads. [`MemoryNode::new`] and [`MemoryNode::step`]
/// run it on the caller's thread, for simulation.
pub struct MemoryNode {
    listener: Box<dyn Listener>,
    core: Arc<Core>,
    workers: Arc<Workers>,
    threads: Vec<JoinHandle<()>>,
    identify: Identify,
    links: HashMap<u64, LinkState>,
    refused: VecDeque<RefusedLink>,
    calls: Turns<Call>,
    pulling: VecDeque<Pulling>,
    /// Whether something was served in the last step: then there may be more.
    is_serving: bool,
    since_tick: u32,
    cpu: ThreadTime,
}

impl std::fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryNode").field("address", &self.listener.address()).finish_non_exhaustive()
    }
}

impl MemoryNode {
    /// A node without threads: the caller calls [`MemoryNode::step`].
    ///
    /// # Errors
    /// [`Error::Options`]; [`Error::Fabric`] when there is no memory to register.
    pub fn new(listener: Box<dyn Listener>, options: Options) -> Result<Self, Error> {
        Self::with_job_threads(listener, options, 0)
    }

    fn with_job_threads(listener: Box<dyn Listener>, options: Options, job_threads: usize) -> Result<Self, Error> {
        let settings = options.settings(listener.identity())?;
        let fabric = |what| move |cause| Error::Fabric { what, cause };
        let core = Core::new(&*listener, settings, &options.tenants, Arc::clone(&options.clock), options.whole_process)
            .map_err(fabric("registering memory"))?;
        if options.commit {
            core.commit().map_err(fabric("touching memory"))?;
        }
        let core = Arc::new(core);
        let workers = Arc::new(Workers::new(Arc::clone(&core), options.jobs, job_threads));
        Ok(Self {
            listener,
            core,
            workers,
            threads: Vec::new(),
            identify: options.identify,
            links: HashMap::default(),
            refused: VecDeque::new(),
            calls: Turns::default(),
            pulling: VecDeque::new(),
            is_serving: false,
            since_tick: 0,
            cpu: ThreadTime::default(),
        })
    }

    /// Starts a node on its own threads: one for the loop, one for upkeep, and [`Options::threads`]
    /// for jobs.
    ///
    /// # Errors
    /// As [`MemoryNode::new`]; [`Error::Thread`].
    pub fn start(listener: Box<dyn Listener>, options: Options) -> Result<Handle, Error> {
        let threads = options.threads;
        let mut node = Self::with_job_threads(listener, options, threads)?;
        let (address, identity) = (node.listener.address(), node.listener.identity());
        let core = Arc::clone(&node.core);
        let stop = Arc::new(AtomicBool::new(false));
        node.spawn_workers(threads)?;
        let flag = Arc::clone(&stop);
        let thread = spawn("memory-node", move || node.run(&flag)).map_err(|e| Error::Thread(e.to_string()))?;
        let statistics = core.statistics();
        tracing::info!(
            address,
            incarnation = identity.incarnation,
            extents = statistics.extents,
            extent_bytes = statistics.extent_bytes,
            headroom_extents = statistics.headroom_extents,
            kept_extents = statistics.kept_extents,
            "the memory node serves"
        );
        Ok(Handle { address, identity, core, stop, thread: Mutex::new(Some(thread)) })
    }

    fn spawn_workers(&mut self, jobs: usize) -> Result<(), Error> {
        for index in 0..=jobs {
            let workers = Arc::clone(&self.workers);
            let thread = match index {
                0 => spawn("memory-node-upkeep", move || workers.upkeep_thread()),
                _ => spawn(format!("memory-node-job-{index}"), move || workers.job_thread()),
            };
            self.threads.push(thread.map_err(|e| Error::Thread(e.to_string()))?);
        }
        Ok(())
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), Error> {
        let mut steps = 0;
        // Pairs with the store in `Handle::shutdown`; it orders nothing else.
        while !stop.load(Ordering::Relaxed) {
            let busy = self.step(if self.core.is_revoking() { IMPATIENT } else { IDLE })?;
            steps = if busy { steps + 1 } else { 0 };
            if steps >= STEPS_PER_YIELD {
                steps = 0;
                yield_now();
            }
        }
        Ok(())
    }

    /// Handles pending events, waiting for one for at most `limit`, serves a call, and lets time pass.
    /// Without threads, also does some upkeep and runs a job. Returns whether anything was done.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the node can no longer serve.
    pub fn step(&mut self, limit: Duration) -> Result<bool, Error> {
        let mut busy = self.take_events(limit)?;
        busy |= self.poll_pulled();
        self.is_serving = self.serve();
        busy |= self.is_serving;
        self.since_tick += 1;
        if !busy || self.since_tick >= STEPS_PER_TICK {
            self.since_tick = 0;
            // They end only when the node does, or by a panic.
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err(Error::Panicked);
            }
            self.core.tick(self.listener.admission_counts());
            self.close_stuck();
            // Without threads the processor time is the caller's, whatever else the caller does.
            if !self.threads.is_empty() {
                self.cpu.report(&self.core.cpu_nanos);
            }
        }
        if self.threads.is_empty() {
            busy |= self.workers.upkeep();
            busy |= self.workers.run_job();
        } else if self.core.has_zeroing() {
            self.workers.wake();
        }
        Ok(busy)
    }

    /// Handles pending events. Sleeps only when there is nothing else to do.
    fn take_events(&mut self, limit: Duration) -> Result<bool, Error> {
        let waits = !self.pulling.is_empty() || !self.calls.is_empty();
        let mut limit = match (self.is_serving, waits) {
            (true, _) => Duration::ZERO,
            (false, true) => limit.min(self.watchful()),
            (false, false) => limit,
        };
        for taken in 0..MOST_EVENTS {
            let event = self.listener.next(limit).map_err(|cause| Error::Fabric { what: "serving", cause })?;
            let Some(event) = event else { return Ok(taken > 0) };
            self.handle(event);
            limit = Duration::ZERO;
        }
        Ok(true)
    }

    /// The longest sleep while it waits for others: the more recent the wait, the shorter the sleep.
    fn watchful(&self) -> Duration {
        let now = self.core.now();
        let youngest = self.pulling.iter().map(|pulling| now.saturating_sub(pulling.since)).min();
        let patience = Duration::from_nanos(youngest.unwrap_or(Nanos::MAX) / 8);
        patience.clamp(Duration::from_micros(20), WATCHFUL)
    }

    /// The node's figures.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// The figures of the node's tenants.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantFigures> {
        self.core.tenants()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Joined(peer) => {
                let identity = self.identify.of(&*peer);
                tracing::debug!(peer = peer.id().0, %identity, source = %peer.origin().source, "a link was opened");
                match self.core.link_opened(&peer, &identity) {
                    Ok(tenant) => {
                        let number = peer.id().0;
                        let link = LinkState { peer, tenant, malformed: 0, waiting: 0, crowding: 0, stuck: None };
                        self.links.insert(number, link);
                    }
                    Err(why) => self.refuse_link(peer, why),
                }
            }
            // From a link that was refused, or sent before the link was closed.
            Event::Message { peer, endpoint, bytes, .. } if !self.links.contains_key(&peer.id().0) => {
                self.tell_refused(&*peer, endpoint, &bytes);
            }
            Event::Message { peer, endpoint, bytes, place } => match rpc::Request::decode(&bytes) {
                Ok(request) => self.accept((peer, endpoint), request, place),
                Err(error) => self.malformed(&*peer, &error),
            },
            Event::Left { peer, cause } => {
                tracing::debug!(peer = peer.0, %cause, "a link ended");
                self.refused.retain(|refused| refused.peer.id() != peer);
                self.forget(peer);
                let began = self.core.now();
                if let Some(party) = self.core.link_ended(peer) {
                    let took = self.core.now().saturating_sub(began);
                    self.calls.charge(Turn { party, link: peer.0 }, took.saturating_add(LEAST_COST));
                }
            }
        }
    }

    /// Refuses a link for which there is no room. The link ends once its client has heard why. The client may never
    /// ask.
    fn refuse_link(&mut self, peer: Arc<dyn Peer>, why: CallError) {
        if self.refused.len() >= MOST_REFUSED
            && let Some(oldest) = self.refused.pop_front()
        {
            oldest.peer.close();
        }
        self.refused.push_back(RefusedLink { peer, why: Some(why) });
    }

    /// Answers the first call of a link that was refused. A link that makes further calls is closed.
    fn tell_refused(&mut self, peer: &dyn Peer, endpoint: EndpointId, bytes: &[u8]) {
        let Some(link) = self.refused.iter_mut().find(|link| link.peer.id() == peer.id()) else { return };
        match (link.why.take(), rpc::Request::decode(bytes)) {
            (Some(why), Ok(request)) => refuse_call(peer, endpoint, &request, &why),
            _ => peer.close(),
        }
    }

    /// Drops everything that waits for a link that has ended or is being closed. The link keeps what it was granted
    /// until it has left.
    fn forget(&mut self, peer: PeerId) {
        if let Some(LinkState { tenant, .. }) = self.links.remove(&peer.0) {
            let turn = Turn { party: tenant, link: peer.0 };
            let is_gone = |pulling: &Pulling| pulling.caller.peer.id() == peer;
            let (gone, left): (VecDeque<_>, _) = std::mem::take(&mut self.pulling).into_iter().partition(is_gone);
            self.pulling = left;
            let lines = [turn, control(turn), pulled(turn)];
            let waited: usize = lines.map(|line| self.calls.forget(line).len()).iter().sum();
            for _ in 0..gone.len() + waited {
                self.core.with_state(|state| state.call_taken(tenant));
            }
            self.workers.link_ended(turn);
        }
        self.workers.wake();
    }

    /// Counts a refused call. Returns whether the link has had too many calls refused, since one was last served, to
    /// be heard any more.
    fn is_flooding(&mut self, peer: PeerId) -> bool {
        self.links.get_mut(&peer.0).is_none_or(|link| {
            link.crowding += 1;
            link.crowding > MOST_CROWDING
        })
    }

    /// Queues a call for its turn.
    fn accept(&mut self, (peer, endpoint): (Arc<dyn Peer>, EndpointId), request: rpc::Request, place: Place) {
        let Some(link) = self.links.get_mut(&peer.id().0) else { return };
        let turn = Turn { party: link.tenant, link: peer.id().0 };
        let waits = match link.waiting {
            MOST_WAITING.. => {
                self.core.count(peer.id(), |figures| {
                    figures.calls += 1;
                    figures.refused_calls += 1;
                    figures.limited += 1;
                });
                let message = format!("the link has its most waiting calls: {MOST_WAITING}");
                Err(CallError { kind: ErrorKind::Busy, message })
            }
            _ => self.core.call_waits(peer.id()),
        };
        match waits {
            Ok(waiting) => {
                link.waiting += 1;
                let is_control = is_control(&request);
                let caller = Caller { peer, endpoint, request, waiting, place };
                let turn = if is_control { control(turn) } else { turn };
                self.calls.push(turn, waiting.weight, Call { caller, pulled: None });
            }
            // Refusing costs as much as serving. A link that causes many refusals, or reads none, is a flood.
            Err(_) if self.is_flooding(peer.id()) || peer.unsent(endpoint) > 0 => {
                self.core.close_link(&*peer, "it sends more calls than may wait");
                self.forget(peer.id());
            }
            Err(error) => {
                self.calls.charge(turn, REFUSAL_COST);
                refuse_call(&*peer, endpoint, &request, &error);
            }
        }
    }

    /// Serves the call whose turn it is. False when none could be served.
    fn serve(&mut self) -> bool {
        let Self { links, calls, core, .. } = self;
        let Some((turn, call)) = calls.next(|turn, call| is_ready(core, links, turn.party, call)) else { return false };
        let began = self.core.now();
        let moved = self.serve_one(call);
        let took = self.core.now().saturating_sub(began);
        self.calls.charge(turn, took.max(moved).saturating_add(LEAST_COST));
        self.core.with_state(|state| {
            state.count(turn.party, |figures| {
                figures.moved_bytes += moved;
                figures.busy_nanos += took;
            });
        });
        true
    }

    /// Serves a call, or begins to pull its arguments. Returns the bytes that this moved.
    fn serve_one(&mut self, call: Call) -> u64 {
        let Call { mut caller, pulled } = call;
        let bytes = caller.request.argument_bytes() as u64;
        let (arguments, kept) = match (pulled, caller.request.inline_arguments()) {
            (Some((arguments, kept)), _) => (arguments, Some(kept)),
            (None, Some(arguments)) => (arguments.to_vec(), None),
            (None, None) => {
                self.pull(caller, bytes);
                return 0;
            }
        };
        self.call_taken(&mut caller);
        let procedure = Procedure::from_number(caller.request.procedure);
        let called = procedure
            .ok_or_else(|| CallError {
                kind: ErrorKind::Unsupported,
                message: format!("there is no procedure {}", caller.request.procedure),
            })
            .and_then(|procedure| {
                Request::decode(procedure, &arguments).map_err(|error| CallError {
                    kind: ErrorKind::Invalid,
                    message: format!("{}: {error}", procedure.name()),
                })
            });
        drop(arguments);
        match called {
            Err(error) => {
                refuse(&self.core, &caller, &error);
                bytes
            }
            Ok(request) => match self.core.call(&caller.peer, request) {
                Ok(Called::Reply(reply)) => {
                    caller.reply(Ok(&reply));
                    bytes + reply.len() as u64
                }
                Ok(Called::Job(mut job)) => {
                    // A result follows the version byte of its message.
                    job.most_result_bytes = caller.request.most_result_bytes().saturating_sub(1);
                    self.workers.accept(caller, job, kept);
                    bytes
                }
                Err(error) => {
                    caller.reply(Err((error.kind, &error.message)));
                    bytes
                }
            },
        }
    }

    /// Notes that a call waits no longer.
    fn call_taken(&mut self, caller: &mut Caller) {
        caller.place = Place::default();
        if let Some(link) = self.links.get_mut(&caller.peer.id().0) {
            link.waiting = link.waiting.saturating_sub(1);
            link.crowding = 0;
        }
        self.core.with_state(|state| state.call_taken(caller.waiting.tenant));
    }

    /// Fails a call because of its arguments, before it is examined.
    fn refuse(&mut self, mut caller: Caller, error: &CallError) {
        self.call_taken(&mut caller);
        refuse(&self.core, &caller, error);
    }

    /// Begins to pull a call's arguments. The call still waits, but takes up none of its sender's room, because the
    /// arguments must come through that room.
    fn pull(&mut self, mut caller: Caller, bytes: u64) {
        caller.place = Place::default();
        let kept = match self.core.keep_arguments(caller.waiting.tenant, bytes) {
            Ok(kept) => kept,
            Err(error) => return self.refuse(caller, &error),
        };
        match caller.request.pull_arguments(&*caller.peer, caller.endpoint) {
            Ok(Some(arguments)) => {
                let since = self.core.now();
                self.poll(Pulling { caller, arguments, kept, since });
            }
            Ok(None) => self.call_taken(&mut caller),
            Err(error) => self.refuse(caller, &pull_failed(&error)),
        }
    }

    /// Accepts arguments that have arrived.
    fn poll_pulled(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..self.pulling.len().min(MOST_POLLED) {
            if let Some(pulling) = self.pulling.pop_front() {
                worked |= self.poll(pulling);
            }
        }
        worked
    }

    /// Accepts arguments if they have arrived; false if they have not. A link that does not let them be pulled within
    /// a lease is closed: it must not hold memory for good.
    fn poll(&mut self, mut pulling: Pulling) -> bool {
        match pulling.arguments.poll() {
            Some(Ok(arguments)) => {
                let Pulling { caller, kept, .. } = pulling;
                let (turn, weight) = (pulled(caller.turn()), caller.waiting.weight);
                self.calls.push(turn, weight, Call { caller, pulled: Some((arguments, kept)) });
            }
            Some(Err(error)) => self.refuse(pulling.caller, &pull_failed(&error)),
            None if self.core.now().saturating_sub(pulling.since) > self.core.lease() => {
                let peer = Arc::clone(&pulling.caller.peer);
                self.pulling.push_back(pulling);
                self.core.close_link(&*peer, "its arguments cannot be pulled");
                self.forget(peer.id());
            }
            None => {
                self.pulling.push_back(pulling);
                return false;
            }
        }
        true
    }

    /// Closes the links that have not taken their replies for a lease.
    fn close_stuck(&mut self) {
        let (now, lease) = (self.core.now(), self.core.lease());
        let is_stuck = |link: &LinkState| link.stuck.is_some_and(|(_, since)| now.saturating_sub(since) > lease);
        let stuck: Vec<_> =
            self.links.values().filter(|link| is_stuck(link)).map(|link| Arc::clone(&link.peer)).collect();
        for peer in stuck {
            self.core.close_link(&*peer, "it does not take its replies");
        }
    }

    /// Handles a message that is not a request, which cannot be answered. A link that sends many does not run our
    /// client.
    fn malformed(&mut self, peer: &dyn Peer, error: &forebay_base::DecodeError) {
        self.core.count(peer.id(), |figures| figures.malformed_messages += 1);
        let Some(link) = self.links.get_mut(&peer.id().0) else { return };
        link.malformed += 1;
        let strikes = link.malformed;
        tracing::debug!(peer = peer.id().0, %error, "a message that is no request");
        if strikes == MAX_MALFORMED {
            self.core.close_link(peer, "too many messages that are no requests");
        }
    }
}

/// Answers a call that is not served.
fn refuse_call(peer: &dyn Peer, endpoint: EndpointId, request: &rpc::Request, why: &CallError) {
    if let Err(error) = request.reply(peer, endpoint, Err((why.kind, &why.message))) {
        tracing::debug!(peer = peer.id().0, %error, "a reply could not be delivered");
    }
}

/// Whether the call keeps, ends or looks at a session, by its procedure number.
fn is_control(request: &rpc::Request) -> bool {
    let control = [Procedure::Renew, Procedure::CloseSession, Procedure::GetStatistics, Procedure::GetLoad];
    request.inline_arguments().is_some()
        && Procedure::from_number(request.procedure).is_some_and(|procedure| control.contains(&procedure))
}

/// The line in which the control calls of a link wait.
fn control(turn: Turn) -> Turn {
    Turn { link: turn.link | CONTROL, ..turn }
}

/// The line in which the calls of a link wait whose arguments have been pulled.
fn pulled(turn: Turn) -> Turn {
    Turn { link: turn.link | PULLED, ..turn }
}

/// Whether the call can be served now: its link takes replies, and there is room for its arguments.
fn is_ready(core: &Core, links: &mut HashMap<u64, LinkState>, tenant: TenantId, call: &Call) -> bool {
    let takes = has_room(&call.caller);
    if let Some(link) = links.get_mut(&call.caller.peer.id().0) {
        let endpoint = call.caller.endpoint;
        match link.stuck {
            // Whether another endpoint takes its replies says nothing about this one, whose call still waits.
            Some((stuck, _)) if stuck != endpoint => {}
            Some(_) if takes => link.stuck = None,
            None if !takes => link.stuck = Some((endpoint, core.now())),
            _ => {}
        }
    }
    let is_here = call.pulled.is_some() || call.caller.request.inline_arguments().is_some();
    let bytes = call.caller.request.argument_bytes() as u64;
    takes && (is_here || core.with_state(|state| state.may_keep_bytes(tenant, bytes)))
}

fn pull_failed(error: &forebay_fabric::Error) -> CallError {
    CallError { kind: ErrorKind::Invalid, message: format!("pulling the arguments: {error}") }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.workers.stop();
        self.core.with_state(crate::state::State::stop_jobs);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the memory node ended by a panic");
            }
        }
    }
}

/// A running node. Dropping it shuts the node down.
#[derive(Debug)]
pub struct Handle {
    address: String,
    identity: NodeIdentity,
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

impl Handle {
    /// The address for opening links.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The node's identity.
    #[must_use]
    pub fn identity(&self) -> NodeIdentity {
        self.identity
    }

    /// The node's statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// The figures of its tenants.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantFigures> {
        self.core.tenants()
    }

    /// The counts of connections to the node.
    #[must_use]
    pub fn door(&self) -> DoorFigures {
        self.core.door()
    }

    /// Makes the node schedule in this term from now on, or not at all. The node forgets any other term.
    pub fn schedule(&self, term: Option<Term>) {
        self.core.with_state(|state| state.schedule(term));
    }

    /// Tells the scheduler here how busy the threads of another memory node are, or that this is unknown.
    pub fn know(&self, node: NodeIdentity, load: Option<Load>) {
        self.core.with_state(|state| state.know(node, load));
    }

    /// Applies other tenants or limits from now on. A tenant that has more than it may keeps what it has. Links
    /// end whose identities now belong to another tenant.
    ///
    /// # Errors
    /// [`Error::Options`]; then everything stays as it was.
    pub fn configure(&self, tenants: &TenantsOptions) -> Result<(), Error> {
        tenants.check()?;
        self.core.configure(tenants);
        Ok(())
    }

    /// False when the node has stopped, by itself or because it was told to.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.thread).as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the node: jobs are told to stop, links end, memory is freed. Returns when all that is done.
    ///
    /// # Errors
    /// The reason why the node had stopped by itself, if it had.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        match lock(&self.thread).take() {
            Some(thread) => thread.join().unwrap_or(Err(Error::Panicked)),
            None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!(%error, "the memory node stopped");
        }
    }
}

#[cfg(any(test, feature = "rot"))]
mod rot;
#[cfg(test)]
mod tests;
