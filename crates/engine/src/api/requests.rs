//! Requests: writes that may be tried again and take effect once (`docs/formats/requests.md`, `docs/decisions/0083`).
//!
//! A table has one entry for each client: the number of its last request that was written, and the answer. The entry is
//! part of the request's own batch, so both exist or neither does, wherever the batch goes.
//!
//! ```text
//!   loop   snapshot, and the client's entry as of it
//!            its number is the request's   it was written: answer what the entry says, once that is durable
//!            its number is a later one     Invalid: the client has moved on
//!            else                          batch and entry, if nobody has written the entry since the snapshot
//!                                            written      answer
//!                                            conflict     over the entry: again; else it is the batch's own
//!
//!  key    the table's prefix
//!         the client
//!
//!  value  u8 format, 1
//!         u64 number of the request, little-endian
//!         the answer
//! ```
//!
//! # Invariants
//!
//! 1. Two tries of one request are both on the condition that nobody has written the entry, so at most one is written
//!    (`docs/decisions/0038`), whichever threads or processes make them.
//! 2. A reader that finds the entry finds the whole batch: a snapshot covers a batch in all shards or in none.
//! 3. A repeated answer is as durable as the write was to be, even if the first try ended before it was durable.

use crate::api::db::Db;
use crate::terms::{Error, Result, WriteOptions};
use crate::write::batch::WriteBatch;
use forebay_base::{ErrorKind, Reader};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

const FORMAT: u8 = 1;
/// Maximum length of a client's name, in bytes.
const MAX_CLIENT_BYTES: usize = 255;

/// A table of the answers to clients' requests. A write that names its request can be retried after an error, by any
/// process that has the database open, and takes effect once. Cheap to clone; all tables at one place of a database are
/// the same one.
///
/// The table is part of the database. It survives what the writes survive, is in checkpoints and dumps, and has one record for
/// each client, which expires ([`Requests::LIFETIME`]).
#[derive(Debug, Clone)]
pub struct Requests {
    db: Db,
    prefix: Arc<[u8]>,
    lifetime: Duration,
}

/// Names a write of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request<'a> {
    /// Names the client among all that use the table, in 1 to 255 bytes. A client that has forgotten its numbers takes
    /// another name.
    pub client: &'a [u8],
    /// Grows from each request of the client to the next. A client begins a request once it has the outcome of the one before,
    /// or has given that up.
    pub number: u64,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The result given by the try that was written.
    pub result: Vec<u8>,
    /// Whether an earlier try was written, and this one wrote nothing.
    pub is_repeated: bool,
}

impl Requests {
    /// How long an entry lives after its request unless [`Requests::with_lifetime`] says otherwise: a day.
    pub const LIFETIME: Duration = Duration::from_hours(24);

    /// The table whose keys begin with `prefix`, in a database without keyspaces. The caller keeps other keys out of
    /// this range, and finds the table's keys when it reads the range. In a database of several shards, writes cost
    /// least if the table is in the shard that they write to.
    ///
    /// A database with keyspaces has a table that none of them shows: [`Keyspaces::requests`](crate::Keyspaces::requests).
    #[must_use]
    pub fn under(db: &Db, prefix: &[u8]) -> Self {
        Self { db: db.clone(), prefix: prefix.into(), lifetime: Self::LIFETIME }
    }

    /// Sets how long entries live after their requests. A request that is tried again later takes effect again. The
    /// time is the database's ([`Db::time_ms`]).
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// Writes a batch as a request, or finds that it was written. If this try is written, `result` is in the answer to
    /// it and to every later try; a caller that needs none passes an empty one.
    ///
    /// A batch with conditions that do not hold is not written, and its request stays open: the next try is judged
    /// anew. Once a try was written, what a later try would write does not count, so it may be another batch.
    ///
    /// # Errors
    /// `Invalid` for a name that no client can have, and for a number before that of a request of the client that was
    /// written: the outcome of the earlier request is no longer known; `Conflict` when a condition of the batch does
    /// not hold; `Corrupt` and `Unsupported` when the client's key holds something other than an entry; as for
    /// [`Db::get`] and [`Db::write`]. After any error but `Invalid`, the call can be repeated, here or where the
    /// database is open next.
    pub fn write(&self, request: Request<'_>, batch: &WriteBatch, result: &[u8]) -> Result<Answer> {
        self.write_with(request, batch, result, &WriteOptions::default())
    }

    /// As [`Requests::write`], with options.
    ///
    /// # Errors
    /// See [`Requests::write`] and [`Db::write_with`].
    pub fn write_with(
        &self,
        request: Request<'_>,
        batch: &WriteBatch,
        result: &[u8],
        options: &WriteOptions,
    ) -> Result<Answer> {
        request.check()?;
        let key = [&self.prefix[..], request.client].concat();
        let value = encode(request.number, result);
        loop {
            let snapshot = self.db.snapshot();
            let found = self.db.get_entry_at(&key, &snapshot)?;
            if let Some(found) = &found {
                let (number, result) = decode(&found.value)?;
                match number.cmp(&request.number) {
                    Ordering::Less => {}
                    Ordering::Equal => {
                        self.make_durable(options)?;
                        return Ok(Answer { result: result.to_vec(), is_repeated: true });
                    }
                    Ordering::Greater => return Err(request.passed(number)),
                }
            }
            let mut whole = batch.clone();
            whole.put_expiring(&key, &value, self.expiry_ms()).require_unchanged(&key, &snapshot);
            match self.db.write_with(&whole, options) {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let stamp = found.map(|found| found.stamp);
                    if batch.is_conditional() && self.db.get_entry(&key)?.map(|now| now.stamp) == stamp {
                        return Err(error);
                    }
                }
                written => return written.map(|()| Answer { result: result.to_vec(), is_repeated: false }),
            }
        }
    }

    /// When an entry that is written now expires.
    fn expiry_ms(&self) -> u64 {
        let lifetime_ms = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        self.db.time_ms().saturating_add(lifetime_ms)
    }

    /// Returns once earlier writes are as durable as a write with these options.
    fn make_durable(&self, options: &WriteOptions) -> Result<()> {
        if self.db.is_durable(options)? {
            self.db.sync().map_err(Error::of_published)?;
        }
        Ok(())
    }
}

impl Request<'_> {
    fn check(&self) -> Result<()> {
        let bytes = self.client.len();
        if (1..=MAX_CLIENT_BYTES).contains(&bytes) {
            return Ok(());
        }
        Err(Error::invalid(format!("{bytes} bytes name no client of a request: use 1 to {MAX_CLIENT_BYTES}")))
    }

    #[cold]
    fn passed(&self, later: u64) -> Error {
        Error::invalid(format!(
            "request {} of the client \"{}\" comes after its request {later}: a client's numbers grow, and one that has forgotten them takes another name",
            self.number,
            self.client.escape_ascii()
        ))
    }
}

fn encode(number: u64, result: &[u8]) -> Vec<u8> {
    [&[FORMAT][..], &number.to_le_bytes(), result].concat()
}

/// The number of a request, and its result.
fn decode(value: &[u8]) -> Result<(u64, &[u8])> {
    let mut reader = Reader::new(value);
    let damaged = |what: &dyn std::fmt::Display| Error::corrupt(format!("an entry of a table of requests: {what}"));
    match reader.u8().map_err(|error| damaged(&error))? {
        FORMAT => {}
        format => {
            let message =
                format!("a table of requests of format {format}, and this build knows {FORMAT}: use a newer one");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let number = reader.u64().map_err(|error| damaged(&error))?;
    Ok((number, reader.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        let entry = encode(0x0102, b"ok");
        assert_eq!(entry, *b"\x01\x02\x01\0\0\0\0\0\0ok");
        assert_eq!(decode(&entry).unwrap(), (0x0102, &b"ok"[..]));
        assert_eq!(decode(&encode(u64::MAX, b"")).unwrap(), (u64::MAX, &b""[..]));
    }

    #[test]
    fn what_is_no_entry_is_an_error() {
        for length in 0..9 {
            assert_eq!(decode(&encode(7, b"")[..length]).unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
        }
        assert_eq!(decode(b"\x02").unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn clients_have_names() {
        let check = |client: &[u8]| Request { client, number: 1 }.check();
        assert!(check(b"a").is_ok() && check(&[0; 255]).is_ok());
        for client in [&b""[..], &[0; 256]] {
            assert_eq!(check(client).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
