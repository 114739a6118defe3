//! Whose turn it is: waiting work, taken in turns among tenants and among the links of each, by what it costs.
//!
//! Deficit round robin, at both levels. A turn gives its holder credit for [`QUANTUM`] times its weight; it is served
//! while it has credit, and then it is the next one's turn. What something costs is known only when it is done, so it
//! is charged behind, and who has taken more than its credit waits until it has earned that again. Nobody gathers
//! credit while nothing of it waits. Debt counts as long as somebody else waits too.
//!
//! A cost is in nanoseconds or bytes, whichever are more.

use super::resources::TenantId;
use std::collections::VecDeque;

/// Credit for a turn.
pub const QUANTUM: u64 = 16 << 10;

/// Whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The tenant.
    pub tenant: TenantId,
    /// Its link.
    pub link: u64,
}

/// Those who take turns, the next one in front.
#[derive(Debug)]
struct Ring<K, V>(VecDeque<Entry<K, V>>);

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    weight: u32,
    credit: i64,
    /// It has something that can be done now.
    ready: bool,
    value: V,
}

impl<K, V> Entry<K, V> {
    fn earns(&self) -> i64 {
        i64::from(self.weight.max(1)).saturating_mul(QUANTUM as i64)
    }
}

impl<K: PartialEq, V> Ring<K, V> {
    const fn new() -> Self {
        Self(VecDeque::new())
    }

    fn find(&mut self, key: &K) -> Option<&mut Entry<K, V>> {
        self.0.iter_mut().find(|entry| entry.key == *key)
    }

    fn find_or_add(&mut self, key: K, weight: u32, value: impl FnOnce() -> V) -> Option<&mut Entry<K, V>> {
        let at = self.0.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            self.0.push_back(Entry { key, weight, credit: 0, ready: false, value: value() });
            self.0.len() - 1
        });
        self.0.get_mut(at)
    }

    /// Whoever is next, of those that are ready.
    fn next(&mut self) -> Option<&mut Entry<K, V>> {
        // Whose turn has ended goes behind the others.
        if self.0.front().is_some_and(|entry| entry.credit <= 0) {
            self.0.rotate_left(1);
        }
        let has_credit = |entry: &Entry<K, V>| entry.ready && entry.credit > 0;
        if !self.0.iter().any(has_credit) {
            // All wait as many turns as the first one must to have credit.
            let turns = |entry: &Entry<K, V>| entry.credit.saturating_neg() / entry.earns() + 1;
            let fewest = self.0.iter().filter(|entry| entry.ready).map(turns).min()?;
            for entry in self.0.iter_mut().filter(|entry| entry.ready) {
                entry.credit = entry.credit.saturating_add(entry.earns().saturating_mul(fewest));
            }
        }
        for entry in self.0.iter_mut().filter(|entry| !entry.ready) {
            entry.credit = entry.credit.min(0);
        }
        let at = self.0.iter().position(has_credit)?;
        self.0.rotate_left(at);
        self.0.front_mut()
    }
}

type Line<T> = VecDeque<T>;

/// Work that waits for its turn.
#[derive(Debug)]
pub struct Turns<T> {
    tenants: Ring<TenantId, Ring<u64, Line<T>>>,
    waiting: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { tenants: Ring::new(), waiting: 0 }
    }
}

impl<T> Turns<T> {
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

    /// Lets something wait, behind what waits of the same link.
    pub fn push(&mut self, turn: Turn, weight: u32, work: T) {
        let Some(share) = self.tenants.find_or_add(turn.tenant, weight, Ring::new) else { return };
        share.weight = weight;
        let Some(line) = share.value.find_or_add(turn.link, 1, VecDeque::new) else { return };
        line.value.push_back(work);
        self.waiting += 1;
    }

    /// Takes what is next, of the links whose first piece of work `is_ready`.
    pub fn next(&mut self, mut is_ready: impl FnMut(Turn, &T) -> bool) -> Option<(Turn, T)> {
        if self.waiting == 0 {
            return None;
        }
        for share in &mut self.tenants.0 {
            share.ready = false;
            for line in &mut share.value.0 {
                let turn = Turn { tenant: share.key, link: line.key };
                line.ready = line.value.front().is_some_and(|work| is_ready(turn, work));
                share.ready |= line.ready;
            }
        }
        let share = self.tenants.next()?;
        let tenant = share.key;
        let line = share.value.next()?;
        let link = line.key;
        let work = line.value.pop_front()?;
        self.waiting -= 1;
        Some((Turn { tenant, link }, work))
    }

    /// What was taken in that turn has cost so much.
    pub fn charge(&mut self, turn: Turn, cost: u64) {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        let Some(share) = self.tenants.find(&turn.tenant) else { return };
        share.credit = share.credit.saturating_sub(cost);
        if let Some(line) = share.value.find(&turn.link) {
            line.credit = line.credit.saturating_sub(cost);
        }
    }

    /// Forgets a link that has ended, and returns what waited. The tenant's debt stays.
    pub fn forget(&mut self, turn: Turn) -> Vec<T> {
        let Some(share) = self.tenants.find(&turn.tenant) else { return Vec::new() };
        let Some(at) = share.value.0.iter().position(|line| line.key == turn.link) else { return Vec::new() };
        let waited: Vec<T> = share.value.0.remove(at).into_iter().flat_map(|line| line.value).collect();
        if share.value.0.is_empty() && share.credit >= 0 {
            self.tenants.0.retain(|entry| entry.key != turn.tenant);
        }
        self.waiting -= waited.len();
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COSTS: [u64; 4] = [1_000, 20_000, 300_000, 5_000_000];

    fn turn(tenant: u32, link: u64) -> Turn {
        Turn { tenant: TenantId(tenant), link }
    }

    /// Serves `rounds` times and returns what each tenant was charged.
    fn serve(turns: &mut Turns<u64>, rounds: usize, mut refill: impl FnMut(&mut Turns<u64>, Turn)) -> [u64; 4] {
        let mut charged = [0; 4];
        for _ in 0..rounds {
            let Some((turn, cost)) = turns.next(|_, _| true) else { break };
            turns.charge(turn, cost);
            charged[turn.tenant.0 as usize] += cost;
            refill(turns, turn);
        }
        charged
    }

    #[test]
    fn one_call_among_a_flood_is_next() {
        let mut turns = Turns::default();
        for _ in 0..10_000 {
            turns.push(turn(1, 1), 1, COSTS[0]);
        }
        let flood = serve(&mut turns, 100, |_, _| {});
        assert_eq!(flood[1], 100_000);
        turns.push(turn(2, 2), 1, COSTS[0]);
        let mut ahead = 0;
        loop {
            let (next, cost) = turns.next(|_, _| true).unwrap();
            turns.charge(next, cost);
            if next.tenant == TenantId(2) {
                break;
            }
            ahead += cost;
        }
        assert!(ahead <= QUANTUM + COSTS[0], "{ahead} ahead");
    }

    #[test]
    fn links_of_a_tenant_share_its_turns() {
        let mut turns = Turns::default();
        (0..1000).for_each(|_| turns.push(turn(1, 1), 1, COSTS[1]));
        turns.push(turn(1, 2), 1, COSTS[0]);
        turns.push(turn(2, 3), 1, COSTS[0]);
        let first: Vec<u64> = (0..6)
            .map(|_| {
                let (next, cost) = turns.next(|_, _| true).unwrap();
                turns.charge(next, cost);
                next.link
            })
            .collect();
        assert!(first.contains(&2) && first.contains(&3), "{first:?}");
    }

    #[test]
    fn what_is_not_ready_holds_up_nobody() {
        let mut turns = Turns::default();
        turns.push(turn(1, 1), 1, 1);
        turns.push(turn(1, 2), 1, 2);
        turns.push(turn(2, 3), 1, 3);
        let mut served: Vec<u64> =
            std::iter::from_fn(|| turns.next(|turn, _| turn.link != 1).map(|(_, it)| it)).collect();
        served.sort_unstable();
        assert_eq!(served, [2, 3]);
        assert_eq!(turns.len(), 1);
        assert_eq!(turns.forget(turn(1, 1)), [1]);
        assert!(turns.is_empty());
        assert!(turns.forget(turn(1, 1)).is_empty());
    }

    proptest! {
        /// Tenants that always have work get time by their weights, whatever their work costs and however many
        /// links they have, but for what one turn and one piece of work may be off.
        #[test]
        fn time_is_shared_by_weight(
            weights in proptest::array::uniform3(1..5u32),
            links in proptest::array::uniform3(1..20u64),
            costs in proptest::array::uniform3(0..4usize),
        ) {
            let mut turns = Turns::default();
            for tenant in 0..3 {
                for link in 0..links[tenant] {
                    turns.push(turn(tenant as u32, link), weights[tenant], COSTS[costs[tenant]]);
                }
            }
            let charged = serve(&mut turns, 30_000, |turns, turn| {
                let tenant = turn.tenant.0 as usize;
                turns.push(turn, weights[tenant], COSTS[costs[tenant]]);
            });
            let shares: Vec<f64> = (0..3).map(|at| charged[at] as f64 / f64::from(weights[at])).collect();
            let slack = 2.0 * (*COSTS.last().unwrap() + 5 * QUANTUM) as f64;
            for pair in shares.windows(2) {
                prop_assert!((pair[0] - pair[1]).abs() <= slack, "{shares:?}");
            }
        }

        /// Nothing is lost, doubled or reordered within a link.
        #[test]
        fn all_that_waits_is_served_once_and_in_order(
            work in proptest::collection::vec((0..3u32, 0..4u64, 0..4usize), 0..200),
        ) {
            let mut turns = Turns::default();
            for (at, &(tenant, link, _)) in work.iter().enumerate() {
                turns.push(turn(tenant, link), 1, at);
            }
            let mut served = Vec::new();
            while let Some((turn, at)) = turns.next(|_, _| true) {
                turns.charge(turn, COSTS[work[at].2]);
                prop_assert_eq!((turn.tenant.0, turn.link), (work[at].0, work[at].1));
                served.push((turn.tenant, turn.link, at));
            }
            prop_assert_eq!(served.len(), work.len());
            let mut sorted = served.clone();
            sorted.sort_by_key(|&(tenant, link, at)| (tenant, link, at));
            served.sort_by_key(|&(tenant, link, _)| (tenant, link));
            prop_assert_eq!(served, sorted);
        }
    }
}
