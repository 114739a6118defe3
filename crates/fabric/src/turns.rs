//! Fair scheduling: waiting work is taken in turns among parties, and among the links of each party, by what it costs.
//!
//! Deficit round robin, at both levels. A *party* is the owner of its links: an identity, a tenant. A turn gives its
//! holder credit for [`QUANTUM`] times its weight. The holder is served while it has credit; then the next one has its
//! turn. The cost of work is known only when the work is done, so it is charged afterwards. A party that took more
//! than its credit waits until it has earned that back.
//!
//! What holds, for each party and for each link among those of its party:
//!
//! - **Credit is bounded.** It never exceeds one turn's, and nobody gathers credit while none of its work can be done.
//! - **Debt is bounded**: serving leaves no more of it than one piece of work costs, because only a party with credit is
//!   served. What is charged without a turn, such as a refusal or the end of a link, comes on top.
//! - **Debt is paid by the rounds of others**, whether or not the debtor waits meanwhile. While nobody else waits,
//!   debt does not count.
//! - **Nobody starves.** A party that becomes ready waits for a bounded time. Each other party takes at most two turns
//!   before it: the rest of its current turn, and its next one. Added to that is what that party's last piece of work
//!   costs beyond its credit, and one more turn for each turn that the newcomer owes.
//!
//! A cost is in nanoseconds or bytes, whichever are more. A user of this module may count in other units if one turn's
//! worth takes about as long.

use std::collections::VecDeque;

/// Credit for a turn.
pub const QUANTUM: u64 = 16 << 10;

/// Whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn<P> {
    /// The owner of the link.
    pub party: P,
    /// The link.
    pub link: u64,
}

/// What may wait.
trait Waits {
    fn is_idle(&self) -> bool;
}

/// The work of a link, in order.
type Line<T> = VecDeque<T>;

impl<T> Waits for Line<T> {
    fn is_idle(&self) -> bool {
        self.is_empty()
    }
}

/// Those who take turns, the next one in front.
#[derive(Debug)]
struct Ring<K, V>(VecDeque<Entry<K, V>>);

impl<K, V: Waits> Waits for Ring<K, V> {
    fn is_idle(&self) -> bool {
        self.0.iter().all(|entry| entry.value.is_idle())
    }
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    weight: u32,
    credit: i64,
    /// Whether it has work that can be done in this round.
    is_ready: bool,
    value: V,
}

impl<K, V> Entry<K, V> {
    /// Credit that it earns in a turn.
    fn earns(&self) -> i64 {
        i64::from(self.weight.max(1)).saturating_mul(QUANTUM as i64)
    }

    /// The number of turns until it has credit.
    fn turns_to_wait(&self) -> i64 {
        self.credit.min(0).saturating_neg() / self.earns() + 1
    }

    fn charge(&mut self, cost: i64) {
        self.credit = self.credit.saturating_sub(cost);
    }
}

impl<K: PartialEq, V: Waits> Ring<K, V> {
    const fn new() -> Self {
        Self(VecDeque::new())
    }

    fn find(&mut self, key: K) -> Option<&mut Entry<K, V>> {
        self.0.iter_mut().find(|entry| entry.key == key)
    }

    fn find_or_add(&mut self, key: K, weight: u32, value: impl FnOnce() -> V) -> Option<&mut Entry<K, V>> {
        let at = self.0.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            self.0.push_back(Entry { key, weight, credit: 0, is_ready: false, value: value() });
            self.0.len() - 1
        });
        self.0.get_mut(at)
    }

    /// Brings the next entry to the front and returns it. Only entries whose turn it may be are asked whether
    /// they are ready.
    fn next(&mut self, mut is_ready: impl FnMut(&mut Entry<K, V>) -> bool) -> Option<&mut Entry<K, V>> {
        // An entry whose turn has ended goes to the back.
        if self.0.front().is_some_and(|entry| entry.credit <= 0) {
            self.0.rotate_left(1);
        }
        let with_credit = self.0.iter_mut().position(|entry| {
            let is_next = entry.credit > 0 && is_ready(entry);
            if !is_next {
                entry.credit = entry.credit.min(0);
            }
            is_next
        });
        let at = match with_credit {
            Some(at) => at,
            None => self.begin_round(is_ready)?,
        };
        self.0.rotate_left(at);
        self.0.front_mut()
    }

    /// Begins a round when nobody has credit: all earn the fewest turns that give a ready entry credit. Returns
    /// the index of that entry.
    fn begin_round(&mut self, mut is_ready: impl FnMut(&mut Entry<K, V>) -> bool) -> Option<usize> {
        self.0.retain(|entry| entry.credit < 0 || !entry.value.is_idle());
        for entry in &mut self.0 {
            entry.is_ready = is_ready(entry);
        }
        let fewest = self.0.iter().filter(|entry| entry.is_ready).map(Entry::turns_to_wait).min()?;
        for entry in &mut self.0 {
            entry.credit = entry.credit.saturating_add(entry.earns().saturating_mul(fewest));
            if !entry.is_ready {
                entry.credit = entry.credit.min(0);
            }
        }
        self.0.iter().position(|entry| entry.is_ready && entry.credit > 0)
    }
}

/// Work that waits for its turn.
#[derive(Debug)]
pub struct Turns<P, T> {
    parties: Ring<P, Ring<u64, Line<T>>>,
    waiting: usize,
}

impl<P, T> Default for Turns<P, T> {
    fn default() -> Self {
        Self { parties: Ring(VecDeque::new()), waiting: 0 }
    }
}

impl<P: Copy + PartialEq, T> Turns<P, T> {
    /// How much waits.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Queues work after what already waits for the same link. `weight` is the party's from now on.
    pub fn push(&mut self, turn: Turn<P>, weight: u32, work: T) {
        let Some(party) = self.parties.find_or_add(turn.party, weight, Ring::new) else { return };
        party.weight = weight;
        let Some(line) = party.value.find_or_add(turn.link, 1, VecDeque::new) else { return };
        line.value.push_back(work);
        self.waiting += 1;
    }

    /// Takes the next work, among the links whose first piece of work `is_ready`. The caller charges its cost.
    pub fn next(&mut self, mut is_ready: impl FnMut(Turn<P>, &T) -> bool) -> Option<(Turn<P>, T)> {
        if self.waiting == 0 {
            return None;
        }
        let party = self.parties.next(|entry| {
            let party = entry.key;
            let first = entry.value.next(|line| {
                let turn = Turn { party, link: line.key };
                line.value.front().is_some_and(|work| is_ready(turn, work))
            });
            first.is_some()
        })?;
        // The party's next link has been in front since the party was asked.
        let line = party.value.0.front_mut()?;
        let work = line.value.pop_front()?;
        self.waiting -= 1;
        Some((Turn { party: party.key, link: line.key }, work))
    }

    /// Charges `cost` for the work taken in that turn. If nothing waited for the link, or the link has ended, only the
    /// party pays.
    pub fn charge(&mut self, turn: Turn<P>, cost: u64) {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        // Its link may have been forgotten meanwhile; the party's debt is not.
        let Some(party) = self.parties.find_or_add(turn.party, 1, Ring::new) else { return };
        party.charge(cost);
        if let Some(line) = party.value.find(turn.link) {
            line.charge(cost);
        }
    }

    /// Forgets a link that has ended, and returns what waited. Its party's debt stays.
    pub fn forget(&mut self, turn: Turn<P>) -> Vec<T> {
        let Some(party) = self.parties.find(turn.party) else { return Vec::new() };
        let Some(at) = party.value.0.iter().position(|line| line.key == turn.link) else { return Vec::new() };
        let waited: Vec<T> = party.value.0.remove(at).into_iter().flat_map(|line| line.value).collect();
        self.waiting -= waited.len();
        waited
    }
}

#[cfg(test)]
mod tests;
