//! What was denied lately, for `ACL LOG`.

use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::VecDeque;

/// Denials of the same kind within this time are one.
const SAME_MS: u64 = 60_000;
/// Longest kept name of what was denied, in bytes.
const MAX_OBJECT_BYTES: usize = 1024;

/// Something that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// How often.
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key or channel.
    pub object: Bytes,
    /// The user.
    pub user: Bytes,
    /// When it was denied for the last time: milliseconds since 1970.
    pub at_ms: u64,
    /// The client's line.
    pub client: String,
}

/// What was denied lately, the latest first.
#[derive(Debug, Default)]
pub struct Denials(Mutex<VecDeque<Denial>>);

impl Denials {
    /// Adds a denial, and keeps the latest `most`.
    pub fn add(&self, mut denial: Denial, most: usize) {
        denial.object.truncate(MAX_OBJECT_BYTES);
        denial.user.truncate(MAX_OBJECT_BYTES);
        let mut denials = lock(&self.0);
        let is_same = |other: &Denial| {
            (other.reason, other.context) == (denial.reason, denial.context)
                && (&other.object, &other.user) == (&denial.object, &denial.user)
                && denial.at_ms.saturating_sub(other.at_ms) <= SAME_MS
        };
        if let Some(same) = denials.iter().position(is_same).and_then(|place| denials.remove(place)) {
            denial.count += same.count;
        }
        denials.push_front(denial);
        denials.truncate(most);
    }

    /// Returns the latest denials.
    pub fn latest(&self, most: usize) -> Vec<Denial> {
        lock(&self.0).iter().take(most).cloned().collect()
    }

    /// Forgets all denials.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}
