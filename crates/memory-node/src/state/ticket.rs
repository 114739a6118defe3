//! Existing tickets and attempts; see [`tickets`](super::tickets) for what happens to them.

use super::outputs::JobId;
use super::refusal::Refusal;
use super::resources::TenantId;
use forebay_env::HashMap;
use forebay_proto::{ExtentRange, SessionId, ShardKey};
use std::collections::{BTreeMap, BTreeSet};

/// A job that others may run.
#[derive(Debug)]
pub struct Ticket {
    /// Its owner's session.
    pub session: SessionId,
    pub tenant: TenantId,
    pub shard: ShardKey,
    pub secret: u128,
    /// The last attempt that joined.
    pub last: Option<u64>,
    /// That attempt's job, while it has not ended.
    pub running: Option<JobId>,
    /// The outputs of that attempt, if it ended well, that the owner has neither adopted nor freed.
    pub made: BTreeSet<ExtentRange>,
}

/// An attempt that runs or is ending.
#[derive(Debug)]
pub struct Attempt {
    pub ticket: u64,
    pub number: u64,
    /// The session that runs it.
    pub session: SessionId,
    pub tenant: TenantId,
    pub keys: u64,
    /// Whether it ended well; `None` while it runs.
    pub ended: Option<bool>,
}

/// All tickets and attempts.
#[derive(Debug, Default)]
pub struct Tickets {
    pub all: BTreeMap<u64, Ticket>,
    pub attempts: BTreeMap<JobId, Attempt>,
    pub next: u64,
    /// The ticket that has each range among what it made: ranges are freed by the thousand, and most are no ticket's.
    pub made_by: HashMap<ExtentRange, u64>,
}

impl Tickets {
    /// The attempt that the session runs.
    pub fn attempt(&self, session: SessionId, ticket: u64, number: u64) -> Result<JobId, Refusal> {
        let id = self.all.get(&ticket).and_then(|ticket| ticket.running);
        let is_this =
            |attempt: &&Attempt| attempt.session == session && attempt.number == number && attempt.ended.is_none();
        let found = id.and_then(|id| Some((id, self.attempts.get(&id)?)));
        found.filter(|(_, attempt)| is_this(attempt)).map(|(id, _)| id).ok_or(Refusal::JobFenced)
    }

    /// Whether the keys of the session that runs the job are being revoked.
    pub fn is_ending(&self, job: JobId) -> bool {
        self.attempts.get(&job).is_some_and(|attempt| attempt.ended.is_some())
    }

    /// Gives a ticket what an attempt made, if the ticket has not ended.
    pub fn keep(&mut self, number: u64, made: impl IntoIterator<Item = ExtentRange>) {
        let Some(ticket) = self.all.get_mut(&number) else { return };
        for range in made {
            ticket.made.insert(range);
            self.made_by.insert(range, number);
        }
    }

    /// Forgets a range, which a ticket will no longer free.
    pub fn forget(&mut self, range: ExtentRange) {
        let number = self.made_by.remove(&range);
        if let Some(ticket) = number.and_then(|number| self.all.get_mut(&number)) {
            ticket.made.remove(&range);
        }
    }

    /// How many jobs of the tenant are tickets, and how many keys its attempts have.
    #[cfg(test)]
    pub fn of_tenant(&self, tenant: TenantId) -> (usize, usize) {
        let tickets = self.all.values().filter(|ticket| ticket.tenant == tenant).count();
        let keys = self.attempts.values().filter(|attempt| attempt.tenant == tenant).map(|attempt| attempt.keys);
        (tickets, keys.sum::<u64>() as usize)
    }
}
