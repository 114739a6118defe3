//! Who schedules, as a directory or a bucket knows it: for a pool that may lose any of its memory nodes.
//!
//! It is the register that durability uses ([`CommitRegister`]). A claim begins a term, and each renewal is a commit
//! that says where the scheduler is. When a candidate has seen the same last commit for as long as a term lasts, it
//! claims the next term, and fences the scheduler of the term before. Clocks of two processes are never compared.

use crate::Error;
use forebay_base::ErrorKind;
use forebay_env::{Clock, Nanos, Random};
use forebay_offload::{Register, Term};
use forebay_storage::{CommitKind, CommitRegister, History, ObjectName, Storage};
use std::sync::Arc;

/// Where the commits are stored.
const NAME: &str = "forebay.scheduler/term";
/// How many times a candidate looks during a term.
const LOOKS: u64 = 6;

/// See the module.
#[derive(Debug)]
pub struct StoredRegister {
    storage: Storage,
    prefix: ObjectName,
    address: String,
    clock: Arc<dyn Clock>,
    lease: Nanos,
    held: Option<CommitRegister>,
    /// The number of the last commit, and when this candidate first saw it; zero for none.
    seen: (u64, Nanos),
    next_look: Nanos,
}

impl StoredRegister {
    /// Makes the register in a storage, for a scheduler that is reached at `address`. A term lasts for `lease` unless
    /// it is renewed.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub fn new(storage: Storage, address: String, lease: Nanos, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let prefix = ObjectName::new(NAME)?;
        Ok(Self { storage, prefix, address, clock, lease, held: None, seen: (0, 0), next_look: 0 })
    }

    /// Whether the term of the last commit has passed.
    fn has_passed(&mut self, now: Nanos) -> Result<bool, Error> {
        let history = History::read(&**self.storage.objects(), &self.prefix)?;
        let last = history.last().map_or(0, |commit| commit.number);
        if last != self.seen.0 {
            self.seen = (last, now);
        }
        Ok(last == 0 || now.saturating_sub(self.seen.1) >= self.lease)
    }
}

impl Register for StoredRegister {
    type Error = Error;

    fn claim(&mut self) -> Result<Option<Term>, Error> {
        let now = self.clock.now();
        if now < self.next_look {
            return Ok(None);
        }
        self.next_look = now.saturating_add(self.lease / LOOKS);
        if !self.has_passed(now)? {
            return Ok(None);
        }
        let failed = |kind, detail: &str| forebay_storage::Error::new(kind, "claim", NAME, detail);
        let writer = Random::secret().map_err(|error| failed(ErrorKind::Io, &error.to_string()))?;
        let claimed = CommitRegister::claim(Arc::clone(self.storage.objects()), &self.prefix, writer, |history| {
            match history.last() {
                Some(last) if last.number != self.seen.0 => Err(failed(ErrorKind::Busy, "somebody was faster")),
                _ => Ok((CommitKind::Snapshot, self.address.clone().into())),
            }
        });
        match claimed {
            Ok((register, _)) => {
                let term = Term(u32::try_from(register.epoch()).unwrap_or(u32::MAX));
                self.held = Some(register);
                Ok(Some(term))
            }
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn renew(&mut self, term: Term) -> Result<Option<Term>, Error> {
        let Some(register) = &mut self.held else { return Ok(None) };
        match register.commit(CommitKind::Snapshot, self.address.clone().into()) {
            Ok(_) => {
                if let Err(error) = register.prune() {
                    // The next renewal deletes them.
                    tracing::debug!(%error, "earlier commits of schedulers are not deleted");
                }
                Ok(Some(term))
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                self.held = None;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
