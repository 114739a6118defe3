//! An endpoint's operations, from the post to the completion.
//!
//! An operation is written once, into a ring, and stays where it is: the back end carries it out
//! there and notes beside it how it ended, and the caller takes the outcome from there. A back end that does not work
//! in order takes operations away instead, and reports the end of each by number.
//!
//! ```text
//!  front                 next                rung          end
//!    ├── ended or away ────┼── to be done ─────┼── posted ───┤
//! ```
//!
//! Positions are work numbers, which ascend by one. `front` is the oldest operation in the ring whose outcome
//! nobody has taken; younger ones may have been taken already.
//!
//! A caller may leave an outcome untaken for long and continue, as a scan does with what it reads ahead. Such a
//! straggler would hold the ring's front while thousands of operations pass, and the ring would outgrow the caches. So
//! what is left over when the ring is full is set aside.

use crate::Error;
use crate::operation::{Completion, Operation, Outcome, Work, WorkId};
use std::collections::{BTreeMap, VecDeque};

/// Operations that an endpoint has room for at first. The room doubles when more than half of it is needed.
const FIRST_ROOM: usize = 16;

/// The operations of an endpoint.
#[derive(Debug)]
pub struct WorkQueue {
    /// A power of two of records: operation `n` has the record at `n` modulo their number.
    ring: Vec<Record>,
    /// Operations before `front` whose outcome was not taken.
    stragglers: BTreeMap<u64, Record>,
    front: u64,
    next: u64,
    rung: u64,
    end: u64,
    /// Operations whose outcome was not taken.
    outstanding: usize,
    /// Operations that were taken away and have ended, in the order of their ends.
    ended: VecDeque<WorkId>,
}

#[derive(Debug)]
struct Record {
    state: State,
    fenced: bool,
    /// None while nothing is posted here, while the operation is away, and when its outcome was taken.
    operation: Option<Operation>,
}

/// The progress of an operation.
#[derive(Debug)]
enum State {
    /// Nothing is posted here, or the outcome was taken.
    Free,
    /// It has not ended.
    Open,
    /// It was carried out in place; an atomic found this word.
    Done(u64),
    /// It failed, or was carried out elsewhere.
    Ended(Box<Result<Outcome, Error>>),
}

impl Record {
    const FREE: Self = Self { state: State::Free, fenced: false, operation: None };

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Done(_) | State::Ended(_))
    }
}

impl Default for WorkQueue {
    fn default() -> Self {
        let ring = (0..FIRST_ROOM).map(|_| Record::FREE).collect();
        let (stragglers, ended) = (BTreeMap::new(), VecDeque::new());
        Self { ring, stragglers, front: 1, next: 1, rung: 1, end: 1, outstanding: 0, ended }
    }
}

/// What the endpoint does.
impl WorkQueue {
    /// Appends an operation. The back end does not see it until the doorbell.
    #[inline]
    pub(crate) fn post(&mut self, operation: Operation, fenced: bool) -> WorkId {
        if self.end - self.front == self.ring.len() as u64 {
            self.make_room();
        }
        let id = self.end;
        self.end += 1;
        self.outstanding += 1;
        let record = self.record_mut(id);
        record.fenced = fenced;
        // The old contents are free and own nothing, so they need no drop. The compiler can then
        // write the new ones in place.
        std::mem::forget(std::mem::replace(&mut record.state, State::Open));
        std::mem::forget(record.operation.replace(operation));
        WorkId(id)
    }

    /// Rings the doorbell. Returns the last operation that it announces, or `None` when there is
    /// none.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<WorkId> {
        if self.rung == self.end {
            return None;
        }
        self.rung = self.end;
        Some(WorkId(self.end - 1))
    }

    /// Operations whose outcome was not taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Of the operations whose outcome was not taken, the one that ended first.
    #[inline]
    pub(crate) fn first_ended(&mut self) -> Option<WorkId> {
        if !self.ended.is_empty()
            && let Some(id) = self.first_ended_away()
        {
            return Some(id);
        }
        let oldest = WorkId(self.stragglers.first_key_value().map_or(self.front, |(&id, _)| id));
        self.has_ended(oldest).then_some(oldest)
    }

    #[cold]
    fn first_ended_away(&mut self) -> Option<WorkId> {
        while let Some(&id) = self.ended.front() {
            if self.has_ended(id) {
                return Some(id);
            }
            self.ended.pop_front();
        }
        None
    }

    /// Whether an operation has ended and its outcome was not taken.
    #[inline]
    pub(crate) fn has_ended(&self, id: WorkId) -> bool {
        if id.0 < self.front {
            return self.stragglers.get(&id.0).is_some_and(Record::has_ended);
        }
        id.0 < self.next && self.record(id.0).has_ended()
    }

    /// Takes the outcome of an operation that was carried out in place: the common case, in which no
    /// error is carried about.
    #[inline]
    pub(crate) fn take_done(&mut self, id: WorkId) -> Option<Outcome> {
        if id.0 < self.front {
            return self.take_done_straggler(id);
        }
        if id.0 >= self.next {
            return None;
        }
        let record = self.record_mut(id.0);
        let State::Done(before) = record.state else { return None };
        let outcome = outcome(record.operation.take(), before);
        std::mem::forget(std::mem::replace(&mut record.state, State::Free));
        self.outstanding -= 1;
        self.pass_free();
        Some(outcome)
    }

    #[cold]
    fn take_done_straggler(&mut self, id: WorkId) -> Option<Outcome> {
        let State::Done(before) = self.stragglers.get(&id.0)?.state else { return None };
        self.outstanding -= 1;
        Some(outcome(self.stragglers.remove(&id.0)?.operation, before))
    }

    /// Takes the outcome of an operation that has ended.
    #[inline]
    pub(crate) fn take(&mut self, id: WorkId) -> Option<Result<Outcome, Error>> {
        if !self.has_ended(id) {
            return None;
        }
        if let Some(outcome) = self.take_done(id) {
            return Some(Ok(outcome));
        }
        // A slot of an operation that failed goes back to its arena by itself.
        let state = match self.stragglers.remove(&id.0) {
            Some(straggler) => straggler.state,
            None => std::mem::replace(self.record_mut(id.0), Record::FREE).state,
        };
        self.outstanding -= 1;
        self.pass_free();
        if let State::Ended(result) = state { Some(*result) } else { None }
    }

    #[inline]
    fn pass_free(&mut self) {
        while self.front < self.next && matches!(self.record(self.front).state, State::Free) {
            self.front += 1;
        }
    }

    #[inline]
    fn place(&self, id: u64) -> usize {
        id as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn record(&self, id: u64) -> &Record {
        &self.ring[self.place(id)]
    }

    #[inline]
    fn record_mut(&mut self, id: u64) -> &mut Record {
        let place = self.place(id);
        &mut self.ring[place]
    }

    /// Sets aside what is left of the older half of a full ring, or doubles it when the half would not do.
    #[cold]
    fn make_room(&mut self) {
        let half = self.ring.len() / 2;
        if self.outstanding - self.stragglers.len() > half {
            return self.grow();
        }
        // At most half of the ring is yet to be done, because all of that is outstanding. So all of the older
        // half was done.
        for id in self.front..self.front + half as u64 {
            let record = std::mem::replace(self.record_mut(id), Record::FREE);
            if !matches!(record.state, State::Free) {
                self.stragglers.insert(id, record);
            }
        }
        self.front += half as u64;
        self.pass_free();
    }

    fn grow(&mut self) {
        let mut old = std::mem::take(&mut self.ring);
        let mask = old.len() - 1;
        self.ring = (0..2 * old.len()).map(|_| Record::FREE).collect();
        for id in self.front..self.end {
            *self.record_mut(id) = std::mem::replace(&mut old[id as usize & mask], Record::FREE);
        }
    }
}

/// What a back end does, in order, with operations whose doorbell was rung.
impl WorkQueue {
    /// The number of pending operations.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> usize {
        (self.rung - self.next) as usize
    }

    /// The operation to be done after `skipped` others.
    #[inline]
    #[must_use]
    pub fn peek(&self, skipped: usize) -> Option<(WorkId, &Operation)> {
        let id = self.next + skipped as u64;
        if id >= self.rung {
            return None;
        }
        Some((WorkId(id), self.record(id).operation.as_ref()?))
    }

    /// The operation to be done now, in place.
    #[inline]
    pub fn current(&mut self) -> Option<(WorkId, &mut Operation)> {
        if self.next == self.rung {
            return None;
        }
        let id = self.next;
        Some((WorkId(id), self.record_mut(id).operation.as_mut()?))
    }

    /// Records that the current operation was carried out in place and, if it is atomic, found this
    /// word.
    #[inline]
    pub fn finish(&mut self, before: u64) {
        self.end_current(State::Done(before));
    }

    /// Records that the current operation has failed.
    #[cold]
    pub fn fail(&mut self, cause: Error) {
        self.end_current(State::Ended(Box::new(Err(cause))));
    }

    #[inline]
    fn end_current(&mut self, state: State) {
        if self.next < self.rung {
            self.record_mut(self.next).state = state;
            self.next += 1;
        }
    }

    /// Fails every pending operation.
    pub fn fail_pending(&mut self, cause: &Error) {
        while self.pending() > 0 {
            self.fail(cause.clone());
        }
    }

    /// Takes the current operation away; [`WorkQueue::conclude`] reports how it ended.
    pub fn take_away(&mut self) -> Option<Work> {
        if self.next == self.rung {
            return None;
        }
        let id = self.next;
        self.next += 1;
        let record = self.record_mut(id);
        Some(Work { id: WorkId(id), fenced: record.fenced, operation: record.operation.take()? })
    }

    /// Reports the end of an operation that was taken away. Does nothing when that was reported
    /// before.
    pub fn conclude(&mut self, completion: Completion) {
        let Completion { id, result } = completion;
        if id.0 >= self.next {
            return;
        }
        let record = match self.stragglers.get_mut(&id.0) {
            Some(straggler) => straggler,
            None if id.0 >= self.front => self.record_mut(id.0),
            None => return,
        };
        if let State::Open = record.state {
            record.state = State::Ended(Box::new(result));
            // What was taken by number need not be remembered.
            self.first_ended_away();
            self.ended.push_back(id);
        }
    }
}

/// The outcome of an operation that was carried out in place.
#[inline]
fn outcome(operation: Option<Operation>, before: u64) -> Outcome {
    match operation {
        Some(Operation::Read { into, .. }) => Outcome::Read(into),
        Some(Operation::Write { payload, .. }) => Outcome::Done(payload.into_slot()),
        Some(Operation::CompareSwap { .. } | Operation::FetchAdd { .. }) => Outcome::Word(before),
        Some(Operation::Message(slot)) => Outcome::Done(Some(slot)),
        None => Outcome::Done(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessKey;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn add(delta: u64) -> Operation {
        Operation::FetchAdd { at: AccessKey::new(0, 0).at(0), delta }
    }

    fn word(result: Result<Outcome, Error>) -> Option<u64> {
        match result {
            Ok(Outcome::Word(word)) => Some(word),
            _ => None,
        }
    }

    #[test]
    fn only_what_was_rung_is_to_be_done() {
        let mut queue = WorkQueue::default();
        assert!(queue.ring().is_none() && queue.current().is_none() && queue.first_ended().is_none());
        let first = queue.post(add(1), false);
        assert!(queue.current().is_none() && queue.peek(0).is_none() && queue.pending() == 0);
        assert_eq!(queue.ring(), Some(first));
        let second = queue.post(add(2), true);
        assert_eq!((queue.pending(), queue.peek(1).is_none()), (1, true));
        queue.finish(7);
        queue.finish(8);
        assert!(!queue.has_ended(second));
        assert_eq!(queue.ring(), Some(second));
        let work = queue.take_away().unwrap();
        assert!(work.fenced && work.id == second && queue.take_away().is_none());
        assert_eq!(queue.first_ended(), Some(first));
        queue.conclude(Completion { id: second, result: Err(Error::Flushed) });
        queue.conclude(Completion { id: second, result: Err(Error::AccessDenied) });
        assert_eq!(queue.first_ended(), Some(second), "of what was taken away, the first to end");
        assert_eq!(word(queue.take(first).unwrap()), Some(7));
        assert_eq!(queue.take(second).unwrap().unwrap_err(), Error::Flushed);
        assert!(queue.take(second).is_none() && queue.first_ended().is_none());
        assert_eq!(queue.outstanding(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        /// Posts, doorbells, ends in order and takes of any, against a map.
        #[test]
        fn every_operation_ends_once(steps in proptest::collection::vec((0u8..5, any::<u64>()), 0..if cfg!(miri) { 60 } else { 400 })) {
            let mut queue = WorkQueue::default();
            let (mut posted, mut rung, mut done) = (0u64, 0u64, 0u64);
            let mut ended: BTreeMap<u64, u64> = BTreeMap::new();
            for (step, value) in steps {
                match step {
                    0 | 1 => {
                        posted += 1;
                        prop_assert_eq!(queue.post(add(value), false).0, posted);
                    }
                    2 => {
                        queue.ring();
                        rung = posted;
                    }
                    3 => {
                        queue.finish(value);
                        if done < rung {
                            done += 1;
                            ended.insert(done, value);
                        }
                    }
                    _ => {
                        let id = ended.keys().nth(value as usize % ended.len().max(1)).copied().unwrap_or(posted + 1);
                        let found = queue.take(WorkId(id)).and_then(word);
                        prop_assert_eq!(found, ended.remove(&id));
                    }
                }
                prop_assert_eq!(queue.first_ended().map(|id| id.0), ended.keys().next().copied());
                prop_assert_eq!(queue.outstanding() as u64, posted - done + ended.len() as u64);
                prop_assert_eq!(queue.pending() as u64, rung - done);
            }
        }

        /// The same, where one of eight operations that were carried out elsewhere is left out, and ends
        /// late.
        #[test]
        fn stragglers_take_no_room_in_the_ring(rounds in 1u64..200, is_away: bool) {
            let mut queue = WorkQueue::default();
            let mut left = Vec::new();
            for round in 0..rounds {
                let ids: Vec<_> = (0..8).map(|at| queue.post(add(8 * round + at), false)).collect();
                queue.ring();
                for (&id, found) in ids.iter().zip(8 * round..) {
                    if is_away {
                        prop_assert_eq!(queue.take_away().unwrap().id, id);
                    } else {
                        queue.finish(found);
                    }
                }
                let (&first, others) = ids.split_first().unwrap();
                left.push(first);
                for (&id, found) in others.iter().zip(8 * round + 1..) {
                    if is_away {
                        queue.conclude(Completion { id, result: Ok(Outcome::Word(found)) });
                    }
                    prop_assert_eq!(word(queue.take(id).unwrap()), Some(found));
                }
                prop_assert_eq!(queue.outstanding(), left.len());
            }
            prop_assert_eq!(queue.ring.len(), FIRST_ROOM);
            for (round, id) in left.into_iter().enumerate() {
                prop_assert_eq!(queue.has_ended(id), !is_away);
                if is_away {
                    prop_assert!(queue.take(id).is_none());
                    queue.conclude(Completion { id, result: Ok(Outcome::Word(8 * round as u64)) });
                }
                prop_assert_eq!(queue.first_ended(), Some(id));
                prop_assert_eq!(word(queue.take(id).unwrap()), Some(8 * round as u64));
                prop_assert!(queue.take(id).is_none());
            }
            prop_assert_eq!(queue.outstanding(), 0);
        }
    }
}
