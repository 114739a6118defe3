use super::*;
use crate::plan::room::PLENTY;
use forebay_env::Random;

const EXTENT: u64 = 1000;
const NODE: usize = 7;

fn granted(extents: u64, outputs_bytes: u64) -> Granted {
    Granted {
        extent_bytes: EXTENT,
        extents,
        withheld: 0,
        step_bytes: 0,
        reserve_bytes: 2 * EXTENT,
        owed_bytes: 0,
        leased_bytes: 0,
        is_shared: true,
        outputs_bytes,
        pool: Pool::default(),
    }
}

/// A ledger of one node, which grants this to each shard.
fn ledger<const N: usize>(granted: [Granted; N]) -> (Ledger, [Holder; N]) {
    let mut ledger = Ledger::default();
    let holders = granted.map(|granted| {
        let holder = ledger.join(&[NODE]);
        ledger.report(holder, NODE, &granted, 0);
        holder
    });
    (ledger, holders)
}

#[test]
fn memtables_leave_the_reserve_to_compactions() {
    let (mut ledger, [shard]) = ledger([granted(5, 0)]);
    assert_eq!(
        ledger.room(shard, EXTENT),
        Room { memtables: 3, scratch_bytes: 5 * EXTENT, extent_bytes: EXTENT, is_wanted: false }
    );
    assert!((0..3).all(|_| ledger.admit(shard, EXTENT)));
    assert!(!ledger.admit(shard, 1), "the rest is the reserve");
    let step = ledger.begin(shard, 2 * EXTENT, true).expect("the reserve is for this");
    assert!(ledger.begin(shard, 1, true).is_none() && ledger.is_at_work(shard));
    ledger.end(shard, step, 0);
    assert!(ledger.begin(shard, 2 * EXTENT, false).is_some());
}

#[test]
fn a_compaction_under_way_takes_the_reserve_before_it_takes_from_memtables() {
    let (mut ledger, [shard]) = ledger([granted(6, 0)]);
    assert_eq!(ledger.room(shard, EXTENT).memtables, 4);
    let step = ledger.begin(shard, 2 * EXTENT, true).unwrap();
    assert_eq!(ledger.room(shard, EXTENT).memtables, 4);
    let another = ledger.begin(shard, EXTENT, true).unwrap();
    assert_eq!(ledger.room(shard, EXTENT).memtables, 3);
    // What was written is taken, and the rest of the reservation is free again.
    ledger.end(shard, step, EXTENT);
    ledger.end(shard, another, 0);
    assert_eq!(ledger.room(shard, EXTENT).memtables, 3);
}

/// A step may take some of what is left to others. When it ends without a result, that does not count as returned
/// memory. Otherwise what was tried in vain would be tried again and again.
#[test]
fn what_a_step_had_reserved_is_no_memory_that_came_back() {
    let lent = |extents, withheld| Granted { withheld, step_bytes: EXTENT, ..granted(extents, 0) };
    let (mut ledger, [shard]) = ledger([lent(3, 3)]);
    let seen = ledger.returns(shard).memory;
    for _ in 0..3 {
        let step = ledger.begin_with_all(shard, true);
        assert_eq!(step.bytes, EXTENT);
        ledger.report(shard, NODE, &lent(3, 3), 0);
        assert!(ledger.begin(shard, 1, true).is_none(), "the others have the rest");
        ledger.end(shard, step, 0);
        ledger.report(shard, NODE, &lent(3, 3), 0);
        assert_eq!(ledger.returns(shard).memory, seen);
    }
    for (extents, withheld) in [(4, 3), (4, 2)] {
        let before = ledger.returns(shard).memory;
        ledger.report(shard, NODE, &lent(extents, withheld), 0);
        assert_eq!(ledger.returns(shard).memory, before + 1, "{extents} {withheld}");
    }
}

#[test]
fn what_only_one_shard_can_use_is_not_granted_to_another() {
    let (mut ledger, [first, second]) = ledger([granted(3, 5 * EXTENT), granted(3, 0)]);
    assert_eq!(ledger.room(first, EXTENT).memtables, 6);
    assert_eq!(ledger.room(second, EXTENT).memtables, 1);
    assert!(ledger.begin(second, 3 * EXTENT, true).is_some());
    assert!(ledger.begin(first, 5 * EXTENT, true).is_some(), "its own pieces");
    assert!(ledger.begin(first, 1, true).is_none(), "the extents are taken");
}

#[test]
fn extents_are_taken_whole() {
    let (mut ledger, [first, second]) = ledger([granted(2, 0), granted(2, 0)]);
    assert!(ledger.begin(first, 1, true).is_some());
    assert!(ledger.begin(second, EXTENT + 1, true).is_none());
    assert!(ledger.begin(second, EXTENT, true).is_some());
    assert!(ledger.begin(first, EXTENT - 1, true).is_some(), "the rest of its extent");
}

#[test]
fn a_compaction_runs_where_its_outputs_have_memory() {
    let leased = Granted { leased_bytes: 3 * EXTENT, reserve_bytes: 0, ..granted(1, 10) };
    let (mut ledger, [shard]) = ledger([leased]);
    let place = |ledger: &mut Ledger, bytes, can_be_near| {
        let reservation = ledger.begin(shard, bytes, can_be_near)?;
        ledger.end(shard, reservation, 0);
        Some(reservation.place)
    };
    assert_eq!(place(&mut ledger, EXTENT, true), Some(Use::Near));
    assert_eq!(place(&mut ledger, EXTENT, false), Some(Use::Here));
    assert_eq!(place(&mut ledger, 2 * EXTENT, true), Some(Use::Here));
    assert_eq!(place(&mut ledger, 5 * EXTENT, true), None);
    let mut reservation = ledger.begin_with_all(shard, true);
    assert_eq!(reservation, Reservation { place: Use::Here, bytes: 4 * EXTENT });
    ledger.end(shard, reservation, 0);
    reservation = ledger.begin(shard, EXTENT + 10, true).unwrap();
    assert!(reservation.place == Use::Near && ledger.bring_here(shard, &mut reservation));
    assert_eq!(reservation, Reservation { place: Use::Here, bytes: EXTENT + 10 });
}

/// Near the data, two shards took the last extents for outputs that left most of them empty. No other shard could get a
/// memtable any more, although most of its own extent was free.
#[test]
fn outputs_take_no_extent_of_the_reserve_where_other_memory_is_free() {
    let own = |extents| Granted { is_shared: false, leased_bytes: EXTENT, ..granted(extents, 0) };
    for (extents, near) in [(2, Use::Here), (3, Use::Near)] {
        let (mut ledger, [one, two]) = ledger([own(extents), own(extents)]);
        let step = ledger.begin(one, EXTENT / 2, true).unwrap();
        assert_eq!(step.place, near);
        ledger.end(one, step, EXTENT / 2);
        assert!(ledger.admit(two, EXTENT), "from its own extent");
    }
}

#[test]
fn what_is_returned_goes_to_who_waits_longest() {
    let (mut ledger, [first, second]) = ledger([granted(2, 0), granted(2, 0)]);
    for shard in [first, second] {
        assert!(!ledger.admit(shard, EXTENT));
        ledger.waits(shard, EXTENT);
    }
    let seen = ledger.returns(first);
    ledger.report(second, NODE, &granted(3, 0), 1);
    assert!(ledger.returns(first).memory > seen.memory);
    assert!(!ledger.admit(second, EXTENT), "the first one waits longer");
    assert!(ledger.room(second, EXTENT).is_wanted);
    assert!(ledger.admit(first, EXTENT));
    ledger.report(second, NODE, &granted(4, 0), 2);
    assert!(ledger.admit(second, EXTENT));
}

#[test]
fn who_waits_holds_up_nobody_who_takes_what_it_could_not_use() {
    let named = |outputs_bytes| Granted { is_shared: false, ..granted(2, outputs_bytes) };
    let (mut ledger, [first, second]) = ledger([named(0), named(4 * EXTENT)]);
    assert!(!ledger.admit(first, EXTENT));
    ledger.waits(first, EXTENT);
    assert!(ledger.admit(second, EXTENT));
    ledger.waits_no_more(first);
}

#[test]
fn a_shard_with_several_placements_reserves_in_all_accounts() {
    let mut ledger = Ledger::default();
    let (both, one) = (ledger.join(&[0, 1]), ledger.join(&[1]));
    for (shard, node, extents) in [(both, 0, 9), (both, 1, 4), (one, 1, 4)] {
        ledger.report(shard, node, &granted(extents, 0), 0);
    }
    assert_eq!(ledger.room(both, EXTENT).memtables, 2);
    assert!(ledger.admit(one, 2 * EXTENT));
    assert!(!ledger.admit(both, EXTENT), "the second node has no memory left");
    assert!(ledger.begin(both, 2 * EXTENT, true).is_some());
    assert!(ledger.begin(one, 1, true).is_none());
}

#[test]
fn nothing_is_refused_before_the_node_was_asked() {
    let mut ledger = Ledger::default();
    let shard = ledger.join(&[0]);
    assert!(ledger.admit(shard, u64::MAX / 2) && ledger.begin(shard, u64::MAX / 2, true).is_some());
    assert_eq!(ledger.room(shard, EXTENT).memtables, PLENTY);
}

/// Memory as a node and a session divide it, in bytes.
struct Memory {
    extents: u64,
    leased: Vec<u64>,
    outputs: Vec<u64>,
}

impl Memory {
    /// Takes a byte for a shard as the module says. False if it cannot.
    fn take(&mut self, shard: usize, session: usize, place: Use) -> bool {
        let own = |pieces: &mut u64| pieces.checked_sub(1).map(|left| *pieces = left).is_some();
        let extent = |memory: &mut Self| memory.extents.checked_sub(1).map(|left| memory.extents = left).is_some();
        match place {
            Use::Near if own(&mut self.outputs[shard]) => true,
            Use::Near => {
                extent(self) && {
                    self.outputs[shard] += EXTENT - 1;
                    true
                }
            }
            _ if own(&mut self.leased[session]) => true,
            Use::Flush if own(&mut self.outputs[shard]) => true,
            _ => {
                extent(self) && {
                    self.leased[session] += EXTENT - 1;
                    true
                }
            }
        }
    }
}

/// All that was reserved is available, in whatever order it is taken.
#[test]
fn all_reservations_can_be_met_at_once() {
    let mut granted_bytes = 0;
    for seed in 0..300 {
        let mut random = Random::seeded(seed);
        let shards = 1 + random.below(4) as usize;
        // A shared session divides its memory for all shards.
        let is_shared = random.one_in(1, 2);
        let extents = random.below(8);
        let mut memory = Memory { extents, leased: Vec::new(), outputs: Vec::new() };
        let mut ledger = Ledger::default();
        let holders: Vec<_> = (0..shards).map(|_| ledger.join(&[NODE])).collect();
        let shared_bytes = random.below(2 * EXTENT);
        for holder in &holders {
            let leased_bytes = if is_shared { shared_bytes } else { random.below(2 * EXTENT) };
            let outputs_bytes = random.below(3 * EXTENT);
            let granted = Granted { leased_bytes, is_shared, outputs_bytes, ..granted(extents, 0) };
            ledger.report(*holder, NODE, &Granted { reserve_bytes: random.below(EXTENT), ..granted }, 0);
            memory.leased.push(leased_bytes);
            memory.outputs.push(outputs_bytes);
        }
        // The reserve makes up for who came first.
        memory.extents += shards as u64;
        memory.extents += if is_shared && shards > 1 { shared_bytes.div_ceil(EXTENT) } else { 0 };
        let mut left = Vec::new();
        for _ in 0..20 {
            let (shard, bytes) = (random.below(shards as u64) as usize, random.below(EXTENT * 3 / 2));
            if random.one_in(1, 2) {
                if ledger.admit(holders[shard], bytes) {
                    left.push((shard, Use::Flush, bytes));
                }
            } else if let Some(reservation) = ledger.begin(holders[shard], bytes, random.one_in(1, 2)) {
                left.push((shard, reservation.place, bytes));
            }
        }
        while !left.is_empty() {
            let next = random.below(left.len() as u64) as usize;
            let (shard, place, bytes) = left[next];
            let run = bytes.min(random.below(200));
            let session = if is_shared { 0 } else { shard };
            for _ in 0..run {
                assert!(memory.take(shard, session, place), "seed {seed}: no byte of {bytes} for {place:?}");
            }
            granted_bytes += run;
            left[next].2 -= run;
            left.retain(|(.., bytes)| *bytes > 0);
        }
    }
    assert!(granted_bytes > 300 * EXTENT, "{granted_bytes}");
}
