//! The session: opening, renewal, end.
//!
//! The client renews the session three times per lease. The session ends here, before it can end at the node, when no
//! renewal succeeded for a whole lease: the node then counts as gone. It ends at once when the link or the node says
//! so.

use crate::Error;
use crate::callers::Callers;
use crate::keys::KeyTable;
use crate::options::ClientOptions;
use forebay_base::{DecodeError, ErrorKind};
use forebay_env::Nanos;
use forebay_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::rpc::Style;
use forebay_fabric::{Link, Traffic};
use forebay_proto::calls::{CloseSession, OpenSession, PassReaders, Renew};
use forebay_proto::replies::{Renewed, SessionOpened};
use forebay_proto::{Call, MAX_EXTENTS, PROTOCOL_VERSION, SessionId, Text, gather};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Room for the longest reply except a job's: a page of the directory.
const REPLY_BYTES: usize = 64 << 10;
/// How often the renewing thread checks that the link exists.
const WATCH: Duration = Duration::from_millis(200);
/// How long closing a session may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// A session at a node.
#[derive(Debug)]
pub(crate) struct Session {
    link: Arc<dyn Link>,
    options: ClientOptions,
    opened: SessionOpened,
    callers: Callers,
    jobs: Callers,
    /// Connections for calls that readers wait for.
    gathers: Callers,
    pub keys: KeyTable,
    reading: Reading,
    renewed: AtomicU64,
    /// Number of calls that the node has answered.
    answers: AtomicU64,
    /// Whether the last call that has ended was not answered.
    is_silent: AtomicBool,
    ended: OnceLock<Error>,
    stopping: Mutex<bool>,
    stop: Condvar,
}

impl Session {
    pub fn open(link: Arc<dyn Link>, name: &str, options: ClientOptions) -> Result<Self, Error> {
        let text = |what, text: &str| {
            Text::new(text).ok_or_else(|| Error::Invalid(format!("the {what} {text:?} is longer than 255 bytes")))
        };
        let call = OpenSession {
            protocol: PROTOCOL_VERSION,
            tenant: text("tenant", &options.tenant)?,
            name: text("name", name)?,
            capabilities: 0,
        };
        let callers = |traffic, bytes| Callers::new(Arc::clone(&link), Arc::clone(&options.clock), traffic, bytes);
        let gathers = callers(Traffic::Foreground, gather::MAX_BYTES + 1);
        let jobs = callers(Traffic::Background, options.job_reply_bytes);
        let callers = callers(Traffic::Background, REPLY_BYTES);
        let now = options.clock.now();
        let opened = callers.call(&call, Style::Poll, options.timeout).map_err(not_ready)?;
        if opened.extents > MAX_EXTENTS {
            let found = opened.extents.into();
            return Err(DecodeError::BadValue { what: "the node's number of extents", found }.into());
        }
        Ok(Self {
            keys: KeyTable::new(opened.extents),
            reading: Reading::new(opened.reading_epoch, options.foreign_reads),
            renewed: AtomicU64::new(now),
            answers: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            ended: OnceLock::new(),
            stopping: Mutex::new(false),
            stop: Condvar::new(),
            link,
            options,
            opened,
            callers,
            jobs,
            gathers,
        })
    }

    pub fn id(&self) -> SessionId {
        self.opened.session
    }

    pub fn opened(&self) -> &SessionOpened {
        &self.opened
    }

    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Why the session ended, if it did.
    pub fn check(&self) -> Result<(), Error> {
        match self.ended.get() {
            Some(cause) => Err(cause.clone()),
            None => Ok(()),
        }
    }

    /// Number of calls that the node has answered, refusals included.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Whether the last call that has ended was not answered.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    fn count_answer<T>(&self, result: &Result<T, Error>) {
        let is_answered = result.as_ref().map_or_else(Error::is_refusal, |_| true);
        self.answers.fetch_add(u64::from(is_answered), Ordering::Relaxed);
        self.is_silent.store(!is_answered, Ordering::Relaxed);
    }

    /// Makes a call.
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.check()?;
        self.noticing(self.callers.call(call, Style::Poll, self.options.timeout))
    }

    /// Makes a call that takes the node longer than a thread should spin for: the reply wakes this thread.
    pub fn call_asleep<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.check()?;
        self.noticing(self.callers.call(call, Style::Sleep, self.options.timeout))
    }

    /// Makes a call for data that a reader waits for.
    pub fn call_to_read<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.check()?;
        self.noticing(self.gathers.call(call, Style::Poll, self.options.timeout))
    }

    /// Makes a call that may take long, with a long reply (dLSM X-D2).
    pub fn call_slowly<C: Call>(&self, call: &C, limit: Duration) -> Result<C::Reply, Error> {
        self.check()?;
        self.noticing(self.jobs.call(call, Style::Sleep, limit))
    }

    /// Ends the session when a call shows that the node is gone, or that the session is.
    fn noticing<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        self.count_answer(&result);
        match result {
            // Either the shard's epoch has passed or the session has ended; the node knows which.
            Err(error) if error.kind() == ErrorKind::Fenced => match self.renew() {
                Err(ended @ Error::Lapsed { .. }) => Err(ended),
                _ => Err(error),
            },
            Err(error) if error.kind() == ErrorKind::Unavailable && !self.link.is_alive() => {
                Err(self.end(Error::Lost(error.to_string())))
            }
            result => result,
        }
    }

    /// Ends the session on this side, and returns the first cause of its end.
    fn end(&self, cause: Error) -> Error {
        let first = self.ended.get_or_init(|| {
            tracing::warn!(session = self.id().0, %cause, "the session at the memory node ended");
            cause
        });
        self.keys.clear_all();
        first.clone()
    }

    /// Renews the session once.
    pub fn renew(&self) -> Result<(), Error> {
        self.renew_by(|call| self.callers.call(call, Style::Poll, self.options.timeout.min(self.lease())))
    }

    /// As [`Session::renew`], within `limit`.
    pub fn renew_soon(&self, limit: Duration) -> Result<(), Error> {
        self.renew_by(|call| self.callers.ask(call, limit))
    }

    fn renew_by(&self, renew: impl FnOnce(&Renew) -> Result<Renewed, Error>) -> Result<(), Error> {
        self.check()?;
        let now = self.options.clock.now();
        if !self.link.is_alive() {
            return Err(self.end(Error::Lost(format!("the connection to {} ended", self.link.node()))));
        }
        let renewed = renew(&Renew { session: self.id(), reading_epoch: self.reading.oldest() });
        self.count_answer(&renewed);
        match renewed {
            Ok(renewed) => {
                self.renewed.fetch_max(now, Ordering::Relaxed);
                self.reading.advance(renewed.reading_epoch);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                Err(self.end(Error::Lapsed { node: self.link.node().to_string(), cause: error.to_string() }))
            }
            Err(error) if !self.link.is_alive() => Err(self.end(Error::Lost(error.to_string()))),
            Err(error) if self.is_overdue() => {
                Err(self.end(Error::Lost(format!("the session could not be renewed for a whole lease: {error}"))))
            }
            Err(error) => Err(error),
        }
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.opened.lease_ms.max(1).into())
    }

    fn since_renewal(&self) -> Duration {
        let now: Nanos = self.options.clock.now();
        Duration::from_nanos(now.saturating_sub(self.renewed.load(Ordering::Relaxed)))
    }

    fn is_overdue(&self) -> bool {
        self.since_renewal() >= self.lease()
    }

    /// The body of the thread that renews the session, until it ends or [`Session::stop`].
    pub fn keep(&self) {
        let interval = self.lease() / 3;
        let mut stopping = lock(&self.stopping);
        while !*stopping && self.ended.get().is_none() {
            let nap = WATCH.min(interval);
            (stopping, _) = self.stop.wait_timeout(stopping, nap).unwrap_or_else(PoisonError::into_inner);
            if *stopping {
                return;
            }
            drop(stopping);
            if self.since_renewal() >= interval || !self.link.is_alive() {
                // A failure that ends the session is remembered. Any other failure is retried at the next renewal.
                let _ = self.renew();
            }
            stopping = lock(&self.stopping);
        }
    }

    /// Ends [`Session::keep`].
    pub fn stop(&self) {
        *lock(&self.stopping) = true;
        self.stop.notify_all();
    }

    /// Closes the session at the node.
    pub fn close(&self) {
        if self.ended.get().is_none() && self.link.is_alive() {
            let limit = FAREWELL.min(self.options.timeout);
            if let Err(error) = self.callers.call(&CloseSession { session: self.id() }, Style::Poll, limit) {
                tracing::debug!(%error, "the session could not be closed and will lapse");
            }
        }
        let _ = self.ended.set(Error::Lost("the session was closed".into()));
        self.keys.clear_all();
    }

    /// A reader of memory that others may free.
    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader { session: Arc::clone(self), cell: self.reading.register() }
    }

    /// Begins a new reading epoch. Returns the epoch that ended and the oldest epoch in which anybody reads.
    pub fn pass_readers(&self) -> Result<(u64, u64), Error> {
        let reading_epoch = self.reading.oldest();
        let passed = self.call(&PassReaders { session: self.id(), reading_epoch })?;
        self.reading.advance(passed.reading_epoch);
        Ok((passed.ended_epoch, passed.oldest_epoch))
    }

    /// Begins a read of memory that others may free.
    pub fn begin_read(self: &Arc<Self>) -> ReadGuard {
        ReadGuard { session: Arc::clone(self), epoch: self.reading.begin() }
    }
}

/// Current reads of memory that others may free.
#[derive(Debug)]
struct Reading {
    foreign: bool,
    state: Mutex<ReadingState>,
    /// The node's reading epoch as last reported, as in the state, for readers without a lock.
    known: AtomicU64,
}

#[derive(Debug)]
struct ReadingState {
    /// The node's reading epoch as last reported.
    known: u64,
    /// Reads by the epoch in which they began.
    active: BTreeMap<u64, u64>,
    /// Readers' cells: the epoch in which a read began, or [`IDLE`].
    readers: Vec<Weak<AtomicU64>>,
}

/// The value in the cell of a reader that is not reading.
const IDLE: u64 = u64::MAX;

impl Reading {
    fn new(known: u64, foreign: bool) -> Self {
        let state = ReadingState { known, active: BTreeMap::new(), readers: Vec::new() };
        Self { foreign, state: Mutex::new(state), known: AtomicU64::new(known) }
    }

    fn begin(&self) -> u64 {
        let mut state = lock(&self.state);
        let epoch = state.known;
        *state.active.entry(epoch).or_default() += 1;
        epoch
    }

    fn end(&self, epoch: u64) {
        let mut state = lock(&self.state);
        if let Some(count) = state.active.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                state.active.remove(&epoch);
            }
        }
    }

    fn advance(&self, known: u64) {
        let mut state = lock(&self.state);
        state.known = state.known.max(known);
        // Sequentially consistent, like all accesses to it and to the readers' cells: see `Reader::begin`.
        self.known.store(state.known, Ordering::SeqCst);
    }

    fn register(&self) -> Arc<AtomicU64> {
        let cell = Arc::new(AtomicU64::new(IDLE));
        let mut state = lock(&self.state);
        state.readers.retain(|other| other.strong_count() > 0);
        state.readers.push(Arc::downgrade(&cell));
        cell
    }

    /// The epoch to announce. A session that reads foreign memory announces the last known epoch even when it is not
    /// reading, because a read may begin before the next renewal.
    fn oldest(&self) -> u64 {
        let state = lock(&self.state);
        let idle = if self.foreign { state.known } else { u64::MAX };
        let readers = state.readers.iter().filter_map(Weak::upgrade);
        let oldest = readers.map(|cell| cell.load(Ordering::SeqCst)).min().unwrap_or(IDLE);
        state.active.keys().next().copied().unwrap_or(idle).min(oldest)
    }
}

/// Begins and ends reads like [`ReadGuard`], many times and without a lock, for one thread.
#[derive(Debug)]
pub struct Reader {
    session: Arc<Session>,
    cell: Arc<AtomicU64>,
}

impl Reader {
    /// Begins a read, and returns the reading epoch in which it began. Memory that is not freed yet is not reused until
    /// [`Reader::end`].
    #[inline]
    pub fn begin(&self) -> u64 {
        let known = &self.session.reading.known;
        loop {
            let epoch = known.load(Ordering::SeqCst);
            self.cell.store(epoch, Ordering::SeqCst);
            // If the known epoch has not moved, the store precedes the arrival of any later epoch. So a thread that
            // announces a later epoch sees this cell.
            if known.load(Ordering::SeqCst) == epoch {
                return epoch;
            }
        }
    }

    /// Ends the read.
    #[inline]
    pub fn end(&self) {
        self.cell.store(IDLE, Ordering::SeqCst);
    }

    /// Leaves the read open while the session lives, even after the reader is gone. An operation posted in it failed,
    /// and may land at any time until the session's keys are revoked.
    pub fn abandon(&self) {
        let epoch = self.cell.load(Ordering::SeqCst);
        if epoch != IDLE {
            *lock(&self.session.reading.state).active.entry(epoch).or_default() += 1;
            self.end();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

/// A read of memory that others may free. Memory that was not freed before the read began is not reused while this
/// lives.
#[derive(Debug)]
pub struct ReadGuard {
    session: Arc<Session>,
    epoch: u64,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.session.reading.end(self.epoch);
    }
}

/// Explains a first call that was not answered in time.
fn not_ready(error: Error) -> Error {
    let kind = error.kind();
    let Error::Fabric(forebay_fabric::Error::TimedOut(timeout)) = error else { return error };
    let message = format!(
        "the memory node opened no session within {timeout:?}: it answers once it has said `ready`, which takes longer the more memory it offers"
    );
    Error::Unreachable { kind, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::inprocess;

    #[test]
    fn a_node_that_is_not_ready_is_told_from_others() {
        let (_listener, connector) = inprocess::listen(1).unwrap();
        let options = ClientOptions { timeout: Duration::from_millis(1), ..ClientOptions::default() };
        let error = Session::open(connector.connect().unwrap(), "early", options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("`ready`"), "{error}");
    }
}
