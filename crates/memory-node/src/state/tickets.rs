//! Tickets: jobs of a shard that other sessions of the tenant run (O3-LSM 4.3).
//!
//! ```text
//!            join                 finish, well         adopted by the owner
//!   open ───────────► attempt ───────────────────► made ─────────────────────► the shard's
//!    ▲                   │ failed, superseded,      │ superseded, ticket ended
//!    │                   │ session or ticket ended  │
//!    └───── keys gone, outputs freed ◄──────────────┘
//! ```
//!
//! An attempt is a job whose keys a session has. Its memory stays in place, and its outputs are neither kept nor freed,
//! until all of these keys are revoked: it *ends* from [`Command::EndKeys`] to [`State::keys_ended`].
//!
//! # Invariants
//! - A ticket has at most one attempt that has not ended, the last one that joined.
//! - An attempt's outputs are pending, unless the owner adopted them after the attempt ended well.
//! - Each ticket, and each attempt, counts as a job of the tenant; each key of an attempt as one of its keys.

use super::active::ActiveJob;
use super::outputs::JobId;
use super::resources::{Resource, TenantId};
use super::ticket::{Attempt, Ticket};
use super::{Answer, Command, Refusal, State};
use forebay_fabric::{AccessKey, Rights};
use forebay_proto::calls::{
    AllocateForTicket, CloseTicket, FinishTicket, JoinTicket, MAX_RANGES, OpenTicket, ReadForTicket,
};
use forebay_proto::replies::{Done, TicketJoined, TicketOpened};
use forebay_proto::{Message, SessionId, ShardKey};
use std::collections::BTreeSet;

impl State {
    pub(super) fn open_ticket(&mut self, tenant: TenantId, call: &OpenTicket) -> Result<Answer, Refusal> {
        self.check_owner(call.shard, call.session, call.epoch)?;
        self.tenants.check(tenant, Resource::Jobs, 1)?;
        self.tenants.take(tenant, Resource::Jobs, 1);
        self.tickets.next += 1;
        let number = self.tickets.next;
        let ticket = Ticket {
            session: call.session,
            tenant,
            shard: call.shard,
            secret: call.secret,
            last: None,
            running: None,
            made: BTreeSet::new(),
        };
        self.tickets.all.insert(number, ticket);
        Ok(Answer::Reply(TicketOpened { ticket: number }.encode()))
    }

    /// Ends the owner's ticket. A ticket that has ended already is not an error.
    pub(super) fn close_ticket(&mut self, call: &CloseTicket) -> Result<Answer, Refusal> {
        self.check_owner(call.shard, call.session, call.epoch)?;
        let is_own = |ticket: &Ticket| ticket.session == call.session && ticket.shard == call.shard;
        if self.tickets.all.get(&call.ticket).is_some_and(is_own) {
            self.end_ticket(call.ticket);
        }
        Ok(Answer::Reply(Done {}.encode()))
    }

    pub(super) fn join_ticket(&mut self, tenant: TenantId, call: &JoinTicket) -> Result<Answer, Refusal> {
        let is_open = |ticket: &&mut Ticket| {
            ticket.tenant == tenant
                && AccessKey::new(0, ticket.secret).same_secret(&AccessKey::new(0, call.secret))
                && ticket.last < Some(call.attempt)
        };
        self.tenants.check(tenant, Resource::Jobs, 1)?;
        let ticket = self.tickets.all.get_mut(&call.ticket).filter(is_open).ok_or(Refusal::JobFenced)?;
        ticket.last = Some(call.attempt);
        let (owner, shard) = (ticket.session, ticket.shard);
        let (earlier, made) = (ticket.running.take(), std::mem::take(&mut ticket.made));
        if let Some(earlier) = earlier {
            self.end_attempt(earlier, false);
        }
        made.into_iter().for_each(|range| self.free_range(shard, range));
        self.tenants.take(tenant, Resource::Jobs, 1);
        let id = self.jobs.activate(ActiveJob::of_ticket(owner, tenant, shard));
        let attempt =
            Attempt { ticket: call.ticket, number: call.attempt, session: call.session, tenant, keys: 0, ended: None };
        self.tickets.attempts.insert(id, attempt);
        if let Some(ticket) = self.tickets.all.get_mut(&call.ticket) {
            ticket.running = Some(id);
        }
        let longest_bytes = self.job_longest_piece(id, u64::MAX);
        Ok(Answer::Reply(TicketJoined { longest_bytes }.encode()))
    }

    pub(super) fn read_for_ticket(&mut self, call: &ReadForTicket) -> Result<Answer, Refusal> {
        let job = self.tickets.attempt(call.session, call.ticket, call.attempt)?;
        if let Some(&range) = call.ranges.get(MAX_RANGES) {
            return Err(Refusal::Range(range));
        }
        let more = call.ranges.len() as u64;
        self.check_keys(job, more)?;
        call.ranges.iter().try_for_each(|&range| self.job_reads(job, range))?;
        self.take_keys(job, more);
        let wanted = call.ranges.iter().map(|&range| (range, Rights::READ)).collect();
        Ok(Answer::Lend { job, wanted, longest_bytes: None })
    }

    pub(super) fn allocate_for_ticket(&mut self, call: &AllocateForTicket) -> Result<Answer, Refusal> {
        let job = self.tickets.attempt(call.session, call.ticket, call.attempt)?;
        self.check_keys(job, 1)?;
        let range = self.job_allocate(job, call.length)?;
        self.take_keys(job, 1);
        let longest_bytes = Some(self.job_longest_piece(job, u64::MAX));
        Ok(Answer::Lend { job, wanted: vec![(range, Rights::WRITE)], longest_bytes })
    }

    pub(super) fn finish_ticket(&mut self, call: &FinishTicket) -> Result<Answer, Refusal> {
        let job = self.tickets.attempt(call.session, call.ticket, call.attempt)?;
        self.end_attempt(job, call.well);
        Ok(Answer::Reply(Done {}.encode()))
    }

    fn check_keys(&self, job: JobId, more: u64) -> Result<(), Refusal> {
        let attempt = self.tickets.attempts.get(&job).ok_or(Refusal::JobFenced)?;
        self.tenants.check(attempt.tenant, Resource::Keys, more)
    }

    /// Counts keys of an attempt, which has them until it has ended.
    fn take_keys(&mut self, job: JobId, more: u64) {
        if let Some(attempt) = self.tickets.attempts.get_mut(&job) {
            self.tenants.take(attempt.tenant, Resource::Keys, more);
            attempt.keys += more;
        }
    }

    /// Begins to end an attempt. Its job does not continue from now on.
    fn end_attempt(&mut self, job: JobId, well: bool) {
        let Some(attempt) = self.tickets.attempts.get_mut(&job).filter(|attempt| attempt.ended.is_none()) else {
            return;
        };
        attempt.ended = Some(well);
        self.commands.push(Command::EndKeys { job });
    }

    /// Finishes an attempt whose keys no longer open anything.
    pub fn keys_ended(&mut self, job: JobId) {
        let Some(attempt) = self.tickets.attempts.remove(&job) else { return };
        self.tenants.give(attempt.tenant, Resource::Keys, attempt.keys);
        let made = self.outputs.of_job(job);
        let ticket = self.tickets.all.get_mut(&attempt.ticket).filter(|ticket| ticket.running == Some(job));
        let is_wanted = ticket.is_some();
        if let Some(ticket) = ticket {
            ticket.running = None;
        }
        let counts = self.job_ended(job, attempt.ended == Some(true) && is_wanted);
        if counts {
            self.tickets.keep(attempt.ticket, made.into_iter().map(|(_, range)| range));
        }
    }

    fn end_ticket(&mut self, number: u64) {
        let Some(ticket) = self.tickets.all.remove(&number) else { return };
        self.tenants.give(ticket.tenant, Resource::Jobs, 1);
        if let Some(job) = ticket.running {
            self.jobs.fence_one(job);
            self.end_attempt(job, false);
        }
        ticket.made.into_iter().for_each(|range| self.free_range(ticket.shard, range));
    }

    /// Ends the tickets that `chosen` (shard, session of the owner) selects.
    pub(super) fn end_tickets(&mut self, chosen: impl Fn(ShardKey, SessionId) -> bool) {
        let ended = self.tickets.all.iter().filter(|(_, ticket)| chosen(ticket.shard, ticket.session));
        let ended: Vec<u64> = ended.map(|(&number, _)| number).collect();
        ended.into_iter().for_each(|number| self.end_ticket(number));
    }

    /// Ends the attempts that a session runs.
    pub(super) fn end_attempts_of(&mut self, session: SessionId) {
        let ended = self.tickets.attempts.iter().filter(|(_, attempt)| attempt.session == session);
        let ended: Vec<JobId> = ended.map(|(&job, _)| job).collect();
        ended.into_iter().for_each(|job| self.end_attempt(job, false));
    }
}
