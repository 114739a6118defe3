//! How a tenant's memory is divided: each of its databases has a share, and may borrow what others leave.
//!
//! The *whole* is what the tenant's databases hold and what they could get, in extents. It is shared by weight. A
//! database that holds more than its share has a *loan*. It may take what is free as long as enough is *kept* for the
//! others: for each database below its share, a quarter of that share, or what the database still needs to reach its share,
//! if that is less. So a database that becomes active again finds memory at once. A borrower also leaves the owners'
//! reserve of two headrooms. Owners' puts leave this reserve to collections, so without it owners could not use what is
//! kept. When less is free than is kept, loans are *called*: each borrower owes its part of the shortage.
//!
//! # Invariants
//! 1. A database alone may take all that is free, and owes nothing.
//! 2. A database below its share may take what is free, whatever others hold.
//! 3. A borrower leaves free what is kept for others, and their reserve.
//! 4. No database owes more than its loan, and none owes anything unless there is a shortage. When all debts are paid, the
//!    shortage is over.
//! 5. A call ends when the shortage is over, or after a lease of the node. A database that has not paid by then cannot pay:
//!    it is dead and its session has lapsed, or all that it holds is live. It owes nothing again until a shortage has been
//!    over in between. So no database waits longer than that for another.
//! 6. Sessions of one database owe each other nothing: they count as one here.
//!
//! The node only tells databases their credit, and their ledgers keep to it. The node does not refuse: a flush that a
//! ledger has admitted gets its memory. Databases of one tenant trust each other this far; among tenants, quotas hold.

use forebay_env::Nanos;

/// One part in this many of a share is kept free for a database that does not use it.
const KEPT_PARTS: u64 = 4;

/// Puts of a database leave this many headrooms to collections.
const RESERVE_HEADROOMS: u64 = 2;

/// What a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The weight of its share relative to the others.
    pub weight: u32,
    /// Extents that it holds.
    pub held: u64,
}

/// What a database may take, and what it owes, in extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// Its share of the whole.
    pub share: u64,
    /// Free extents that it must leave to others, including those of the headroom.
    pub withheld: u64,
    /// What it owes, if loans are called.
    pub owed: u64,
}

/// A tenant's memory, divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    free: u64,
    headroom: u64,
    parts: Vec<Part>,
    /// What is kept for all databases together.
    kept: u64,
    loans: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    share: u64,
    held: u64,
    kept: u64,
}

impl Part {
    const fn left(self) -> u64 {
        self.share.saturating_sub(self.held)
    }

    const fn loan(self) -> u64 {
        self.held.saturating_sub(self.share)
    }
}

impl Division {
    /// Divides what these databases hold and what is free beyond the headroom.
    pub fn new(holdings: &[Holding], free: u64, headroom: u64) -> Self {
        let sum = |of: fn(&Holding) -> u64| holdings.iter().map(of).fold(0, u64::saturating_add);
        let (whole, weights) = (sum(|holding| holding.held).saturating_add(free), sum(|holding| holding.weight.into()));
        let part = |holding: &Holding| {
            let share = u128::from(whole) * u128::from(holding.weight) / u128::from(weights.max(1));
            let part = Part { share: u64::try_from(share).unwrap_or(u64::MAX), held: holding.held, kept: 0 };
            Part { kept: part.left().min(part.share.div_ceil(KEPT_PARTS)), ..part }
        };
        let parts: Vec<Part> = holdings.iter().map(part).collect();
        let sum = |of: fn(&Part) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
        let (kept, loans) = (sum(|part| part.kept), sum(|part| part.loan()));
        Self { free, headroom, parts, kept, loans }
    }

    /// The shortage: how much of what should be kept is not free.
    pub const fn lacking(&self) -> u64 {
        self.kept.saturating_sub(self.free)
    }

    /// All that is free.
    const fn all(&self) -> u64 {
        self.free.saturating_add(self.headroom)
    }

    /// How much of the free memory one database may take.
    pub fn may_take(&self, at: usize) -> u64 {
        let Some(part) = self.parts.get(at) else { return self.all() };
        let all = self.all();
        let beyond_share = match self.kept - part.kept {
            0 => all,
            others => all.saturating_sub(others.saturating_add(RESERVE_HEADROOMS.saturating_mul(self.headroom))),
        };
        let left = part.left().min(self.free).saturating_add(self.headroom);
        let within_share = if part.left() > 0 { left } else { 0 };
        beyond_share.max(within_share)
    }

    /// The credit of one database.
    pub fn credit(&self, at: usize, is_called: bool) -> Credit {
        let Some(part) = self.parts.get(at) else { return Credit::default() };
        // Rounded up: when all have paid, the shortage is over.
        let part_of_lacking = u128::from(self.lacking()) * u128::from(part.loan());
        let owed = part_of_lacking.div_ceil(u128::from(self.loans.max(1)));
        Credit {
            share: part.share,
            withheld: self.all() - self.may_take(at),
            owed: if is_called { u64::try_from(owed).unwrap_or(u64::MAX).min(part.loan()) } else { 0 },
        }
    }
}

/// Whether a tenant's loans are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recall {
    /// Since when there has been a shortage.
    since: Option<Nanos>,
}

impl Recall {
    /// Notes the present shortage.
    pub fn look(&mut self, lacking: u64, now: Nanos) {
        self.since = if lacking > 0 { Some(self.since.unwrap_or(now)) } else { None };
    }

    /// Whether loans are called at this time, given the length of a lease.
    pub fn is_open(self, now: Nanos, lease: Nanos) -> bool {
        self.since.is_some_and(|since| now.saturating_sub(since) < lease)
    }

    /// Whether there is no shortage.
    pub const fn is_over(self) -> bool {
        self.since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Nanos = 10;

    fn holdings(of: &[(u32, u64)]) -> Vec<Holding> {
        of.iter().map(|&(weight, held)| Holding { weight, held }).collect()
    }

    fn credits_beside(of: &[(u32, u64)], free: u64, headroom: u64) -> Vec<Credit> {
        let division = Division::new(&holdings(of), free, headroom);
        (0..of.len()).map(|at| division.credit(at, true)).collect()
    }

    fn credits(of: &[(u32, u64)], free: u64) -> Vec<Credit> {
        credits_beside(of, free, 0)
    }

    #[test]
    fn a_burst_takes_what_is_free_and_gives_it_back() {
        // Three of four are idle: a quarter of the share of each is kept.
        let rest = [(1, 5), (1, 5), (1, 5), (1, 25)];
        assert_eq!(credits(&rest, 60)[3], Credit { share: 25, withheld: 21, owed: 0 });
        // It has taken what it may. One of the others becomes active, and finds memory at once.
        let burst = [(1, 5), (1, 5), (1, 5), (1, 64)];
        assert_eq!(credits(&burst, 21)[3], Credit { share: 25, withheld: 21, owed: 0 });
        assert_eq!(credits(&burst, 21)[0], Credit { share: 25, withheld: 1, owed: 0 });
        // What it took is owed.
        let back = [(1, 15), (1, 5), (1, 5), (1, 64)];
        assert_eq!(credits(&back, 11)[3], Credit { share: 25, withheld: 11, owed: 10 });
        assert_eq!(credits(&back, 11)[1].withheld, 0);
    }

    #[test]
    fn a_borrower_leaves_a_reserve_with_what_is_kept() {
        let withheld = |held, free| {
            credits_beside(&[(1, held), (1, 0)], free, 3).iter().map(|credit| credit.withheld).collect::<Vec<_>>()
        };
        // The other one's share is 20, of which 5 are kept.
        assert_eq!(withheld(28, 12), [11, 0]);
        assert_eq!(withheld(32, 8), [11, 0]);
        // However little is left, the borrower gets no part of it.
        assert_eq!(withheld(35, 5), [8, 0]);
        assert_eq!(withheld(39, 1), [4, 0]);
        assert_eq!(withheld(40, 0), [3, 0]);
        // Alone it may have all of it.
        assert_eq!(credits_beside(&[(1, 40)], 0, 3)[0].withheld, 0);
    }

    #[test]
    fn weights_make_shares() {
        let shares: Vec<u64> = credits(&[(3, 0), (1, 10)], 90).iter().map(|credit| credit.share).collect();
        assert_eq!(shares, [75, 25]);
        assert_eq!(credits(&[(0, 3), (0, 4)], 5).iter().map(|credit| credit.share).sum::<u64>(), 0);
    }

    #[test]
    fn a_call_ends_with_what_lacks_or_with_time() {
        let mut call = Recall::default();
        call.look(0, 5);
        assert!(!call.is_open(5, LEASE) && call.is_over());
        call.look(3, 6);
        call.look(2, 15);
        assert!(call.is_open(15, LEASE));
        call.look(2, 16);
        assert!(!call.is_open(16, LEASE) && !call.is_over(), "who has not paid by now cannot");
        call.look(9, 1000);
        assert!(!call.is_open(1000, LEASE), "it is the same call");
        call.look(0, 1001);
        call.look(1, 1002);
        assert!(call.is_open(1002, LEASE), "another one");
    }

    fn any_holdings() -> impl Strategy<Value = Vec<(u32, u64)>> {
        proptest::collection::vec((0..5u32, prop_oneof![0..4u64, 0..100u64]), 1..6)
    }

    proptest! {
        #[test]
        fn a_database_alone_has_all(weight in 1..u32::MAX, held in 0..1000u64, free in 0..1000u64, headroom in 0..9u64) {
            let alone = credits_beside(&[(weight, held)], free, headroom);
            prop_assert_eq!(alone, [Credit { share: held + free, withheld: 0, owed: 0 }]);
        }

        #[test]
        fn credits_keep_to_their_invariants(of in any_holdings(), free in 0..200u64, headroom in 0..9u64) {
            let division = Division::new(&holdings(&of), free, headroom);
            let all = credits_beside(&of, free, headroom);
            let whole = free + of.iter().map(|(_, held)| held).sum::<u64>();
            prop_assert!(all.iter().map(|credit| credit.share).sum::<u64>() <= whole);
            let kept = |(credit, (_, held)): (&Credit, &(u32, u64))| {
                credit.share.saturating_sub(*held).min(credit.share.div_ceil(4))
            };
            let all_kept: u64 = all.iter().zip(&of).map(kept).sum();
            for (credit, holding) in all.iter().zip(&of) {
                let (may_take, held) = (free + headroom - credit.withheld, holding.1);
                let left = credit.share.saturating_sub(held);
                prop_assert!(left == 0 || may_take >= left.min(free) + headroom);
                prop_assert!(credit.owed <= held.saturating_sub(credit.share));
                prop_assert!(credit.owed == 0 || division.lacking() > 0 && may_take == 0);
                // A take beyond its share leaves what is kept for others, and their reserve.
                let others = all_kept - kept((credit, holding));
                if left == 0 || may_take > left + headroom {
                    let leaves = if others == 0 { 0 } else { (others + 2 * headroom).min(free + headroom) };
                    prop_assert_eq!(credit.withheld, leaves);
                }
            }
            prop_assert!((0..of.len()).all(|at| division.credit(at, false).owed == 0));
        }

        /// When all pay what they owe, the call ends, and none is asked for more than its loan on the way.
        #[test]
        fn what_is_owed_is_what_lacks(mut of in any_holdings(), free in 0..50u64) {
            let paid = credits(&of, free);
            of.iter_mut().zip(&paid).for_each(|((_, held), credit)| *held -= credit.owed);
            let free = free + paid.iter().map(|credit| credit.owed).sum::<u64>();
            let weights: u32 = of.iter().map(|(weight, _)| weight).sum();
            prop_assert!(weights == 0 || Division::new(&holdings(&of), free, 0).lacking() == 0);
        }

        /// Whatever borrowers do, after at most one lease owners get what they need within their shares, or no call is
        /// open.
        #[test]
        fn nobody_waits_for_longer_than_a_lease(
            steps in proptest::collection::vec((0..3usize, 0..8u64, any::<bool>()), 1..60),
            pays in any::<bool>(),
        ) {
            let (mut held, mut free, mut call) = ([0u64; 3], 40u64, Recall::default());
            let mut waits_since = None;
            for (now, (who, extents, takes)) in (0..).zip(steps) {
                let of: Vec<_> = held.iter().map(|&held| (1, held)).collect();
                let division = Division::new(&holdings(&of), free, 0);
                call.look(division.lacking(), now);
                let is_called = call.is_open(now, LEASE);
                waits_since = if is_called { Some(waits_since.unwrap_or(now)) } else { None };
                prop_assert!(waits_since.is_none_or(|since| now - since < LEASE));
                let credit = division.credit(who, is_called);
                if takes {
                    let taken = extents.min(free - credit.withheld);
                    held[who] += taken;
                    free -= taken;
                } else if pays || credit.owed == 0 {
                    let given = extents.max(credit.owed).min(held[who]);
                    held[who] -= given;
                    free += given;
                }
            }
        }
    }
}
