//! Tickets and letters: jobs that other sessions run (O3-LSM 4.3).
//!
//! The owner [opens](ShardHandle::open_ticket) a ticket. A session that runs an attempt
//! [joins](MemoryClient::join_ticket) the ticket, and gets keys to only the memory that the job may touch, until the
//! attempt ends.

use crate::{Error, MemoryClient, ShardHandle};
use forebay_base::DecodeError;
use forebay_fabric::{AccessKey, RemoteAddress};
use forebay_offload::{Letter, Term};
use forebay_proto::calls::{
    AllocateForTicket, CloseTicket, Exchange, FinishTicket, JoinTicket, MAX_RANGES, OpenTicket, ReadForTicket,
};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_proto::{ExtentId, ExtentRange, Rest};
use std::sync::Arc;

impl ShardHandle {
    /// Opens a ticket. A session of the same tenant that knows `secret` may join it as long as it is open.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when the tenant has as many jobs as it may.
    pub fn open_ticket(&self, secret: u128) -> Result<u64, Error> {
        let (session, shard, epoch) = self.names();
        Ok(self.client().call(&OpenTicket { session, shard, epoch, secret })?.ticket)
    }

    /// Ends a ticket: from now on nobody else has keys for it, and outputs that the shard did not adopt are freed.
    ///
    /// # Errors
    /// [`Error`].
    pub fn close_ticket(&self, ticket: u64) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        self.client().call(&CloseTicket { session, shard, epoch, ticket }).map(drop)
    }
}

impl MemoryClient {
    /// Joins a ticket as an attempt, which ends earlier ones.
    ///
    /// # Errors
    /// Of kind [`Fenced`](forebay_base::ErrorKind::Fenced) when the ticket has ended, or a later attempt has joined.
    pub fn join_ticket(self: &Arc<Self>, ticket: u64, secret: u128, attempt: u64) -> Result<JoinedTicket, Error> {
        let joined = self.call(&JoinTicket { session: self.session(), ticket, secret, attempt })?;
        let longest_bytes = joined.longest_bytes;
        Ok(JoinedTicket { client: Arc::clone(self), ticket, attempt, longest_bytes, is_over: false })
    }

    /// Gives letters to the scheduler at this node. Returns its term and the letters for this session.
    ///
    /// # Errors
    /// Of kind [`Unavailable`](forebay_base::ErrorKind::Unavailable) when no scheduler runs there.
    pub fn exchange(&self, letters: &[Letter]) -> Result<(Term, Vec<Letter>), Error> {
        let mut bytes = Vec::new();
        letters.iter().for_each(|letter| letter.encode(&mut bytes));
        let exchanged = self.call(&Exchange { session: self.session(), letters: Rest(bytes) })?;
        Ok((Term(exchanged.term), Letter::decode_all(&exchanged.letters.0)?))
    }
}

/// An attempt at a job of another session. If it is dropped before [`JoinedTicket::finish`], it has failed.
#[derive(Debug)]
pub struct JoinedTicket {
    client: Arc<MemoryClient>,
    ticket: u64,
    attempt: u64,
    longest_bytes: u64,
    is_over: bool,
}

impl JoinedTicket {
    /// Bytes of the longest output that fitted into one free piece when the node was last asked.
    #[must_use]
    pub fn longest_bytes(&self) -> u64 {
        self.longest_bytes
    }

    /// Gets keys to read ranges: for each, the address of its start.
    ///
    /// # Errors
    /// Of kind [`Invalid`](forebay_base::ErrorKind::Invalid) for memory that the job may not touch;
    /// [`Fenced`](forebay_base::ErrorKind::Fenced) when the attempt has ended.
    pub fn read(&self, ranges: &[ExtentRange]) -> Result<Vec<RemoteAddress>, Error> {
        let mut addresses = Vec::with_capacity(ranges.len());
        for page in ranges.chunks(MAX_RANGES) {
            let ranges = page.iter().map(|&range| whole_pages(range)).collect::<Result<Vec<_>, _>>()?;
            let asked = ranges.len();
            let (session, ticket, attempt) = self.names();
            let keys = self.client.call(&ReadForTicket { session, ticket, attempt, ranges })?.keys;
            if keys.len() != asked {
                return Err(DecodeError::BadValue { what: "number of keys", found: keys.len() as u64 }.into());
            }
            addresses.extend(keys.iter().map(|key: &AccessKey| key.at(0)));
        }
        Ok(addresses)
    }

    /// Allocates an output, and gets the address of its start, to write it.
    ///
    /// # Errors
    /// Of kind [`Full`](forebay_base::ErrorKind::Full) when there is no room;
    /// [`Fenced`](forebay_base::ErrorKind::Fenced) when the attempt has ended.
    pub fn allocate(&mut self, length: u64) -> Result<(ExtentRange, RemoteAddress), Error> {
        let (session, ticket, attempt) = self.names();
        let output = self.client.call(&AllocateForTicket { session, ticket, attempt, length })?;
        self.longest_bytes = output.longest_bytes;
        Ok((output.range, output.key.at(0)))
    }

    /// Ends a successful attempt: all writes to its outputs have completed.
    ///
    /// # Errors
    /// Of kind [`Fenced`](forebay_base::ErrorKind::Fenced) when it had ended before.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end(true)
    }

    fn end(&mut self, well: bool) -> Result<(), Error> {
        self.is_over = true;
        let (session, ticket, attempt) = self.names();
        self.client.call(&FinishTicket { session, ticket, attempt, well }).map(drop)
    }

    fn names(&self) -> (forebay_proto::SessionId, u64, u64) {
        (self.client.session(), self.ticket, self.attempt)
    }
}

impl Drop for JoinedTicket {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.end(false)
        {
            tracing::debug!(%error, "an attempt had ended already");
        }
    }
}

/// The pages that contain a range. An allocation shares its pages with no other.
fn whole_pages(range: ExtentRange) -> Result<ExtentRange, Error> {
    let ExtentRange { extent: ExtentId(_), offset, length } = range;
    let length = length.max(1).checked_next_multiple_of(GRANULARITY_BYTES);
    match length.filter(|_| offset.is_multiple_of(GRANULARITY_BYTES)) {
        Some(length) => Ok(ExtentRange { length, ..range }),
        None => Err(Error::Invalid(format!("{range} does not begin with a page"))),
    }
}
