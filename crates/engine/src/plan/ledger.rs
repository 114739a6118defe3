//! Who may use the remote memory of a database: a ledger, with an account for each memory node.
//!
//! **Work that will need memory reserves it before it starts, so nothing that was begun fails because memory is
//! short.**
//!
//! 1. Each report tells an account what its node grants: free extents, except those that are left to other databases
//!    ([`Account::usable`]), and free pieces within other extents.
//! 2. Memtables reserve their flush when they are installed. A compaction reserves a bound of its outputs when it begins.
//! 3. A new reservation must find enough that its holder can use, beside all earlier reservations
//!    ([`Account::needed`]).
//! 4. Memtables leave a reserve to compactions. Only memtables that take nothing but deletions may use it.
//! 5. So while something is dead and no reader pins it, there is memory for a compaction that frees it.
//! 6. Returned memory goes to the writer that has waited longest. Later writers take only what it could not use.
//! 7. Writers are paced by the rate at which memory is returned (see [`pace`](crate::plan::pace)).
//!
//! `docs/concepts/space.md` gives the argument.
//!
//! # What can be used by whom
//!
//! Each column numbers what is used first to last. Memory that fewer can use comes first.
//!
//! | memory | flushes | compactions here | compactions near the data |
//! |---|---|---|---|
//! | free pieces of extents that the session leased | 1 | 1 | |
//! | free pieces of extents with outputs of the shard's jobs | 2, the node copies | | 1 |
//! | free extents | 3 | 2 | 2 |
//!
//! The session divides what it leased for each shard of a named database, or for all shards together. An early user may
//! take what another one needs more: a flush leases an extent whose rest no job can use (at most one for each shard),
//! or takes leased pieces although it could use others. The reserve makes up for that.
//!
//! A shard whose segments are on several nodes has a page in several accounts, and reserves the same in each.

use crate::plan::pace::ReturnPace;
use crate::plan::room::Room;
use crate::terms::planted::{Bug, planted};
use std::collections::BTreeMap;
use std::time::Duration;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Flushes of memtables.
    Flush,
    /// Outputs of a compaction that runs at the compute node.
    Here,
    /// Outputs of a compaction that runs near the data.
    Near,
}

/// A shard, as the ledger knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder(usize);

/// What was reserved for the outputs of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) place: Use,
    pub(crate) bytes: u64,
}

/// What a node grants, as a shard sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) extent_bytes: u64,
    /// Extents that are free at the node, or will be once they are cleaned.
    pub(crate) extents: u64,
    /// How many of these are left to other databases.
    pub(crate) withheld: u64,
    /// Bytes of one step that frees something. If need be, it takes extents that are left to others.
    pub(crate) step_bytes: u64,
    /// Bytes that memtables leave to compactions.
    pub(crate) reserve_bytes: u64,
    /// Bytes that the database owes to others.
    pub(crate) owed_bytes: u64,
    /// Free bytes in what the session leased, in pieces that a flush can use.
    pub(crate) leased_bytes: u64,
    /// Whether the leased bytes are for all shards.
    pub(crate) is_shared: bool,
    /// Free bytes in extents with outputs of the shard's jobs.
    pub(crate) outputs_bytes: u64,
    pub(crate) pool: Pool,
}

/// Whether other databases share a node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pool {
    /// They do.
    pub(crate) is_shared: bool,
    /// Some database is to give memory back to another. Soon the memory comes, or the call ends.
    pub(crate) is_called: bool,
}

/// The ledger of a database.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: BTreeMap<usize, Account>,
    /// The accounts that each holder has a page in.
    holders: Vec<Vec<usize>>,
    turns: u64,
}

/// The memory of one node.
#[derive(Debug, Default)]
struct Account {
    /// Zero until the node was asked.
    extent_bytes: u64,
    /// Extents that are free, and how many of these are left to other databases, except for what one step lacks.
    extents: u64,
    withheld: u64,
    step_bytes: u64,
    reserve_bytes: u64,
    /// Free bytes that the session leased for all shards; `None` when each shard has its own.
    shared_bytes: Option<u64>,
    pool: Pool,
    /// When the node last reported.
    reported_at: u64,
    pages: BTreeMap<Holder, Page>,
    /// Compactions under way.
    jobs: usize,
    returns: Returns,
    pace: ReturnPace,
}

/// How often something came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Returns {
    /// Memory: a node granted more than before.
    pub(crate) memory: u64,
    /// What a compaction had reserved.
    pub(crate) reservations: u64,
}

/// What a shard may use alone, and what it has reserved.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    leased_bytes: u64,
    outputs_bytes: u64,
    flush: u64,
    here: u64,
    near: u64,
    /// Writers wait for a memtable.
    waits: Option<Wait>,
    /// There was no room for another memtable when it was last asked.
    lacks: bool,
}

/// What writers of a shard wait for, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    turn: u64,
    /// Most bytes that the flush of a memtable takes. One for a long batch takes more than others.
    bytes: u64,
}

/// Memory that one allocator divides, and what is to be taken from it.
#[derive(Debug, Clone, Copy, Default)]
struct Division {
    free: u64,
    here: u64,
    flush: u64,
    /// Bytes of flushes that the node may store instead.
    near: u64,
}

impl Page {
    fn reserved(&mut self, place: Use) -> &mut u64 {
        match place {
            Use::Flush => &mut self.flush,
            Use::Here => &mut self.here,
            Use::Near => &mut self.near,
        }
    }
}

impl Division {
    const fn join(self, other: Self) -> Self {
        Self {
            free: self.free.saturating_add(other.free),
            here: self.here.saturating_add(other.here),
            flush: self.flush.saturating_add(other.flush),
            near: self.near.saturating_add(other.near),
        }
    }

    /// Bytes for which whole extents are to be leased. Flushes take leased pieces before others, including those of an
    /// extent that a compaction has just leased. So beside a compaction here, the others do not count.
    const fn over(self) -> u64 {
        let over = self.flush.saturating_add(self.here).saturating_sub(self.free);
        if self.here == 0 { over.saturating_sub(self.near) } else { over }
    }
}

impl Account {
    const fn is_known(&self) -> bool {
        self.extent_bytes > 0
    }

    /// Extents that all reservations of these pages take beyond free pieces. If there are this many, all reservations
    /// can be met at once.
    fn needed(&self, pages: impl Iterator<Item = Page>) -> u64 {
        let extent_bytes = self.extent_bytes.max(1);
        let in_extents = |bytes: u64| bytes.div_ceil(extent_bytes);
        let mut needed = 0u64;
        let of_page = |page: Page| {
            // Jobs near the data take extents for their shard alone.
            let extents = in_extents(page.near.saturating_sub(page.outputs_bytes));
            needed = needed.saturating_add(extents);
            let left =
                page.outputs_bytes.saturating_add(extents.saturating_mul(extent_bytes)).saturating_sub(page.near);
            Division { free: page.leased_bytes, here: page.here, flush: page.flush, near: left.min(page.flush) }
        };
        let each = pages.map(of_page);
        let divisions = match self.shared_bytes {
            Some(free) => vec![each.fold(Division { free, ..Division::default() }, Division::join)],
            None => each.collect(),
        };
        for division in divisions {
            needed = needed.saturating_add(in_extents(division.over()));
        }
        needed
    }

    fn needed_with(&self, holder: Holder, place: Use, more: u64) -> u64 {
        self.needed(self.pages.iter().map(|(id, page)| {
            let mut page = *page;
            if *id == holder {
                *page.reserved(place) = page.reserved(place).saturating_add(more);
            }
            page
        }))
    }

    /// The most bytes that a holder could reserve now. If the others have reserved more than there is, because the node
    /// granted more before, this is what only this holder can use.
    fn available(&self, holder: Holder, place: Use) -> u64 {
        self.most(|more| self.needed_with(holder, place, more))
    }

    /// What flushes of a holder could use if there were no compactions.
    fn left_by_memtables(&self, holder: Holder) -> u64 {
        self.most(|more| {
            self.needed(self.pages.iter().map(|(id, page)| {
                let more = if *id == holder { more } else { 0 };
                Page { here: 0, near: 0, flush: page.flush.saturating_add(more), ..*page }
            }))
        })
    }

    /// The most bytes that need no more extents than there are, or than are needed anyway.
    fn most(&self, needed: impl Fn(u64) -> u64) -> u64 {
        let most_extents = self.usable().max(needed(0));
        let (mut most, mut beyond) = (0, self.bytes_in(most_extents).saturating_add(1));
        while beyond - most > 1 {
            let middle = u64::midpoint(most, beyond);
            if needed(middle) <= most_extents { most = middle } else { beyond = middle }
        }
        most
    }

    /// Bytes of this many extents, and of all free pieces.
    fn bytes_in(&self, extents: u64) -> u64 {
        extents.saturating_mul(self.extent_bytes).saturating_add(self.pieces())
    }

    fn pieces(&self) -> u64 {
        let pieces = self.pages.values().map(|page| page.leased_bytes.saturating_add(page.outputs_bytes));
        pieces.fold(self.shared_bytes.unwrap_or(0), u64::saturating_add)
    }

    /// Bytes that are free, less those that are left to others. Reserving or releasing here does not change this.
    fn balance(&self) -> i128 {
        let extents = i128::from(self.extents) - i128::from(self.withheld);
        extents * i128::from(self.extent_bytes) + i128::from(self.pieces())
    }

    /// Bytes of memtables that a holder may still install.
    fn for_memtables(&self, holder: Holder) -> u64 {
        if !self.is_known() {
            return u64::MAX;
        }
        let left = self.left_by_memtables(holder).saturating_sub(self.reserve_bytes);
        left.min(self.available(holder, Use::Flush))
    }

    /// Bytes that a compaction of the holder may reserve.
    fn for_outputs(&self, holder: Holder, place: Use) -> u64 {
        if self.is_known() { self.available(holder, place) } else { u64::MAX }
    }

    /// Extents of the reserve that are needed when a holder has reserved this many more bytes for outputs at a place.
    fn taken_of_reserve(&self, holder: Holder, place: Use, bytes: u64) -> u64 {
        let reserve = self.reserve_bytes / self.extent_bytes.max(1);
        self.needed_with(holder, place, bytes).saturating_sub(self.usable().saturating_sub(reserve))
    }

    /// Whether a holder may take this many bytes for a memtable, for which another one may have waited longer.
    fn is_its_turn(&self, holder: Holder, bytes: u64) -> bool {
        let turn_of = |page: &Page| page.waits.map_or(u64::MAX, |wait| wait.turn);
        let turn = self.pages.get(&holder).map_or(u64::MAX, turn_of);
        let waits_longer = |(id, page): (&Holder, &Page)| *id != holder && turn_of(page) < turn;
        let takes_own = || {
            self.shared_bytes.is_none()
                && self.needed_with(holder, Use::Flush, bytes) == self.needed_with(holder, Use::Flush, 0)
        };
        !self.pages.iter().any(waits_longer) || takes_own()
    }

    fn report(&mut self, holder: Holder, granted: &Granted, now: u64) {
        let before = self.balance();
        let was_known = self.is_known();
        self.extent_bytes = granted.extent_bytes;
        self.reserve_bytes = granted.reserve_bytes.saturating_add(granted.owed_bytes);
        self.shared_bytes = granted.is_shared.then_some(granted.leased_bytes);
        (self.pool, self.reported_at) = (granted.pool, now);
        let page = self.pages.entry(holder).or_default();
        page.leased_bytes = if granted.is_shared { 0 } else { granted.leased_bytes };
        page.outputs_bytes = granted.outputs_bytes;
        (self.extents, self.withheld, self.step_bytes) = (granted.extents, granted.withheld, granted.step_bytes);
        if was_known && self.balance() > before {
            self.returns.memory += 1;
        }
        self.pace.report(self.bytes_in(self.usable()), now);
    }

    /// Extents that the database may use. It leaves others theirs, except for what one step lacks beside free pieces
    /// and what running compactions have reserved. Without this exception, nothing could free what is dead or take
    /// deletions, and borrowed memory would not come back.
    fn usable(&self) -> u64 {
        let reserved = self.pages.values().map(|page| page.here.saturating_add(page.near));
        let own = reserved.fold(self.pieces(), u64::saturating_add);
        let lacking = self.step_bytes.saturating_sub(own).div_ceil(self.extent_bytes.max(1));
        self.extents.saturating_sub(self.withheld).max(self.extents.min(lacking))
    }

    /// Subtracts what was written from what was reported, until the next report.
    fn spend(&mut self, holder: Holder, place: Use, bytes: u64) {
        let (extent_bytes, extents) = (self.extent_bytes.max(1), self.extents);
        let Some(page) = self.pages.get_mut(&holder) else { return };
        let pieces = match (place, &mut self.shared_bytes) {
            (Use::Near, _) => &mut page.outputs_bytes,
            (_, Some(shared)) => shared,
            (_, None) => &mut page.leased_bytes,
        };
        let taken = bytes.saturating_sub(*pieces).div_ceil(extent_bytes).min(extents);
        *pieces = pieces.saturating_add(taken.saturating_mul(extent_bytes)).saturating_sub(bytes);
        self.extents -= taken;
    }
}

impl Ledger {
    /// Gives a shard a page in the accounts of its nodes.
    pub(crate) fn join(&mut self, nodes: &[usize]) -> Holder {
        let holder = Holder(self.holders.len());
        for node in nodes {
            self.accounts.entry(*node).or_default().pages.insert(holder, Page::default());
        }
        self.holders.push(nodes.to_vec());
        holder
    }

    fn accounts(&self, holder: Holder) -> impl Iterator<Item = &Account> {
        self.holders.get(holder.0).into_iter().flatten().filter_map(|node| self.accounts.get(node))
    }

    fn each_account(&mut self, holder: Holder, mut change: impl FnMut(&mut Account)) {
        for node in self.holders.get(holder.0).into_iter().flatten() {
            if let Some(account) = self.accounts.get_mut(node) {
                change(account);
            }
        }
    }

    fn each_page(&mut self, holder: Holder, mut change: impl FnMut(&mut Page)) {
        self.each_account(holder, |account| {
            if let Some(page) = account.pages.get_mut(&holder) {
                change(page);
            }
        });
    }

    /// Notes what a node grants.
    pub(crate) fn report(&mut self, holder: Holder, node: usize, granted: &Granted, now: u64) {
        if let Some(account) = self.accounts.get_mut(&node) {
            account.report(holder, granted, now);
        }
    }

    /// Notes what the flushes of all memtables that a shard has installed take.
    pub(crate) fn installed(&mut self, holder: Holder, bytes: u64) {
        self.each_page(holder, |page| page.flush = bytes);
    }

    /// Notes that a flush has taken `taken` bytes for a table of `bytes`. What the log has of the table was taken
    /// before.
    pub(crate) fn flushed(&mut self, holder: Holder, taken: u64, bytes: u64) {
        self.each_account(holder, |account| {
            account.spend(holder, Use::Flush, taken);
            account.pace.flushed(bytes);
        });
    }

    /// Notes what the log in memory has taken.
    pub(crate) fn logged(&mut self, holder: Holder, bytes: u64) {
        self.each_account(holder, |account| account.spend(holder, Use::Flush, bytes));
    }

    /// Reserves memory for another memtable's flush, if there is enough.
    pub(crate) fn admit(&mut self, holder: Holder, bytes: u64) -> bool {
        let may_have = |account: &Account| account.for_memtables(holder) >= bytes && account.is_its_turn(holder, bytes);
        let is_admitted = self.accounts(holder).all(may_have);
        if is_admitted {
            self.each_page(holder, |page| {
                page.flush = page.flush.saturating_add(bytes);
                page.waits = None;
            });
        }
        is_admitted
    }

    /// Notes that a writer of a shard waits for a memtable whose flush takes `bytes`.
    pub(crate) fn waits(&mut self, holder: Holder, bytes: u64) {
        self.turns += 1;
        let turn = self.turns;
        self.each_page(holder, |page| {
            let wait = page.waits.get_or_insert(Wait { turn, bytes });
            wait.bytes = wait.bytes.max(bytes);
        });
    }

    /// Notes that no writer of the shard waits any more.
    pub(crate) fn waits_no_more(&mut self, holder: Holder) {
        self.each_page(holder, |page| page.waits = None);
    }

    /// How long a writer that was just admitted pauses.
    pub(crate) fn pause(&mut self, holder: Holder, memtable_bytes: u64, now: u64) -> Duration {
        let room = self.room(holder, memtable_bytes);
        let mut longest = Duration::ZERO;
        self.each_account(holder, |account| longest = longest.max(account.pace.pause(room, memtable_bytes, now)));
        longest
    }

    /// Reserves `bytes` for the outputs of a compaction, at the place that takes least of the reserve; near the data if
    /// both take the same. Outputs in an extent of the reserve stay there, and memtables leave as much again.
    pub(crate) fn begin(&mut self, holder: Holder, bytes: u64, can_be_near: bool) -> Option<Reservation> {
        let has_room = |place: &Use| self.accounts(holder).all(|account| account.for_outputs(holder, *place) >= bytes);
        let of_reserve = |place: &Use| {
            self.accounts(holder).map(|account| account.taken_of_reserve(holder, *place, bytes)).max().unwrap_or(0)
        };
        let places = [Use::Near, Use::Here].into_iter().skip(usize::from(!can_be_near));
        let place = places.filter(has_room).min_by_key(of_reserve)?;
        Some(self.reserve(holder, Reservation { place, bytes }))
    }

    /// Reserves all that there is for the outputs of a compaction that wants more, at the place that has most.
    pub(crate) fn begin_with_all(&mut self, holder: Holder, can_be_near: bool) -> Reservation {
        let most = |place| {
            let bytes = self.accounts(holder).map(|account| account.for_outputs(holder, place)).min().unwrap_or(0);
            Reservation { place, bytes }
        };
        let (near, here) = (most(Use::Near), most(Use::Here));
        self.reserve(holder, if can_be_near && near.bytes >= here.bytes { near } else { here })
    }

    fn reserve(&mut self, holder: Holder, reservation: Reservation) -> Reservation {
        self.each_account(holder, |account| {
            account.jobs += 1;
            if let Some(page) = account.pages.get_mut(&holder) {
                *page.reserved(reservation.place) += reservation.bytes;
            }
        });
        reservation
    }

    /// Moves a compaction that was refused near the data to here, if there is memory for it.
    pub(crate) fn bring_here(&mut self, holder: Holder, reservation: &mut Reservation) -> bool {
        if reservation.place == Use::Here {
            return true;
        }
        self.end(holder, *reservation, 0);
        let here = self.begin(holder, reservation.bytes, false);
        let is_there = here.is_some();
        *reservation = here.unwrap_or_else(|| self.reserve(holder, Reservation { bytes: 0, ..*reservation }));
        is_there
    }

    /// Notes that a compaction has ended, and what it has written.
    pub(crate) fn end(&mut self, holder: Holder, reservation: Reservation, written: u64) {
        self.each_account(holder, |account| {
            account.jobs -= 1;
            account.returns.reservations += 1;
            if let Some(page) = account.pages.get_mut(&holder)
                && !planted(Bug::LeakCredits)
            {
                *page.reserved(reservation.place) -= reservation.bytes;
            }
            account.spend(holder, reservation.place, written);
        });
    }

    /// Whether other databases share the memory of the shard's nodes.
    pub(crate) fn is_pooled(&self, holder: Holder) -> bool {
        self.accounts(holder).any(|account| account.pool.is_shared)
    }

    /// Whether memory of the shard's nodes that one database has lent to another is called back.
    pub(crate) fn is_called(&self, holder: Holder) -> bool {
        self.accounts(holder).any(|account| account.pool.is_called)
    }

    /// Whether a node that other databases share was last asked this many nanoseconds ago, or earlier.
    pub(crate) fn is_stale(&self, holder: Holder, nanos: u64, now: u64) -> bool {
        let is_old = |account: &Account| now.saturating_sub(account.reported_at) >= nanos;
        self.accounts(holder).any(|account| account.pool.is_shared && is_old(account))
    }

    /// Whether a compaction that may return memory of the nodes is under way.
    pub(crate) fn is_at_work(&self, holder: Holder) -> bool {
        self.accounts(holder).any(|account| account.jobs > 0)
    }

    /// How often something came back to the shard's nodes.
    pub(crate) fn returns(&self, holder: Holder) -> Returns {
        self.accounts(holder).fold(Returns::default(), |sum, account| Returns {
            memory: sum.memory + account.returns.memory,
            reservations: sum.reservations + account.returns.reservations,
        })
    }

    /// The room of a shard whose memtables take `memtable_bytes` each, or as much as a writer waits for.
    pub(crate) fn room(&mut self, holder: Holder, memtable_bytes: u64) -> Room {
        let mut room = Room::default();
        let mut is_first = true;
        self.each_account(holder, |account| {
            if !account.is_known() {
                return;
            }
            let waited_for = account.pages.get(&holder).and_then(|page| page.waits).map_or(0, |wait| wait.bytes);
            let memtables = account.for_memtables(holder) / memtable_bytes.max(waited_for).max(1);
            let near = account.available(holder, Use::Near);
            let scratch_bytes = near.max(account.available(holder, Use::Here));
            let is_wanted = |(id, page): (&Holder, &Page)| *id != holder && (page.lacks || page.waits.is_some());
            let is_wanted = account.pages.iter().any(is_wanted);
            room = Room {
                memtables: if is_first { memtables } else { room.memtables.min(memtables) },
                scratch_bytes: room.scratch_bytes.min(scratch_bytes),
                extent_bytes: account.extent_bytes,
                is_wanted: room.is_wanted || is_wanted,
            };
            is_first = false;
            if let Some(page) = account.pages.get_mut(&holder) {
                page.lacks = memtables == 0;
            }
        });
        room
    }
}

#[cfg(test)]
mod tests;
