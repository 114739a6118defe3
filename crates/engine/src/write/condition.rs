//! What must hold for a batch to be written.

use crate::read::found::KeyState;
use crate::terms::time::ReadTime;
use crate::terms::{Error, Result, Stamp};
use forebay_base::{ErrorKind, SequenceNumber};
use std::fmt;

/// What a batch asks of a key at the moment at which it is written.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) key: Vec<u8>,
    pub(crate) demand: Demand,
}

/// See [`Condition`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Demand {
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
    /// This write gave the key the value that it has.
    Stamp(Stamp),
    /// Nobody has written the key since a moment, and its value has not expired since.
    Unchanged(Past),
}

/// A moment as a condition on one key needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    /// The shard that the key belonged to.
    pub(crate) shard: u32,
    pub(crate) number: SequenceNumber,
    pub(crate) time_ms: u64,
}

impl Condition {
    /// Checks the demand on a key of a shard.
    ///
    /// # Errors
    /// `Conflict`.
    pub(crate) fn check(&self, shard: u32, state: KeyState, time: ReadTime<'_>) -> Result<()> {
        let has_value = state.sets && !time.is_past(state.expiry_ms);
        let holds = match self.demand {
            Demand::Absent => !has_value,
            Demand::Present => has_value,
            Demand::Stamp(stamp) => has_value && stamp == Stamp { shard, sequence: state.newest },
            Demand::Unchanged(past) => {
                let had_value = state.sets && !ReadTime::At(past.time_ms).is_past(state.expiry_ms);
                past.shard == shard && state.newest <= past.number && had_value == has_value
            }
        };
        if holds { Ok(()) } else { Err(self.conflict()) }
    }

    #[cold]
    fn conflict(&self) -> Error {
        let key = self.key.escape_ascii();
        let message = format!("the key \"{key}\" {}: nothing was written, read it again and decide anew", self.demand);
        Error::new(ErrorKind::Conflict, message)
    }
}

/// What is true of the key when the demand is not met.
impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "has a value",
            Self::Present => "has no value",
            Self::Stamp(_) => "does not have the value of that stamp any more",
            Self::Unchanged(_) => "was written, has moved or has expired since that snapshot",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: u64) -> SequenceNumber {
        SequenceNumber(number)
    }

    #[test]
    fn demands() {
        let set = KeyState { newest: sequence(5), sets: true, merges: false, expiry_ms: Some(100) };
        let deleted = KeyState { newest: sequence(5), sets: false, merges: false, expiry_ms: None };
        let never = KeyState { newest: SequenceNumber::ZERO, ..deleted };
        let stamp = |shard, number| Demand::Stamp(Stamp { shard, sequence: sequence(number) });
        let since = |shard, number, time_ms| Demand::Unchanged(Past { shard, number: sequence(number), time_ms });
        let holds = |demand, state, time_ms| {
            let checked = Condition { key: b"k\0".to_vec(), demand }.check(1, state, ReadTime::At(time_ms));
            assert!(checked.as_ref().is_ok_and(|()| true) || checked.unwrap_err().to_string().contains(r"k\x00"));
            Condition { key: Vec::new(), demand }.check(1, state, ReadTime::At(time_ms)).is_ok()
        };
        for (demand, expected) in [
            (Demand::Absent, [false, true, true, true]),
            (Demand::Present, [true, false, false, false]),
            (stamp(1, 5), [true, false, false, false]),
            (stamp(1, 4), [false; 4]),
            (stamp(0, 5), [false; 4]),
            (since(1, 5, 90), [true, false, true, true]),
            (since(1, 5, 101), [false, true, true, true]),
            (since(1, 4, 90), [false, false, false, true]),
            (since(0, 5, 90), [false; 4]),
        ] {
            let found = [(set, 90), (set, 101), (deleted, 90), (never, 90)].map(|(state, ms)| holds(demand, state, ms));
            assert_eq!(found, expected, "{demand:?}");
        }
    }
}
