//! The log of a shard: writes reach remote memory before they are acknowledged (`docs/decisions/0034`).
//!
//! ```text
//!   memtables' blocks   [ records ▸ … shipped │ published │ reserved ]
//!                                     │  one-sided writes, without a copy
//!   parts               [ part ][ part ][ part ▸ used │ zeros │ mark ]  named by the version
//! ```
//!
//! A *part* is a segment of zeroed memory that a version names before anything is written to it. Records are stored in
//! it as in the block, one after the other. The numbers of a part have no gap. A part ends when the next records do not
//! fit, or when numbers before them were flushed without being shipped. Each group also says how far it goes
//! ([`mark`]).
//!
//! The first thread that waits for a number ships all that is published, for all that wait ([`Lead`]). Making a part
//! takes calls to the node, which zeroes it, and a commit. So [`SPARES`] of them are made ahead, beside the writers,
//! and a writer that takes one says so ([`Log::wants_parts`]).
//!
//! # Invariants
//!
//! 1. The durable number only grows. All records up to it have reached parts that a version names, or tables.
//! 2. A part is ended by a commit whose tables hold all of its numbers, and by no other.
//! 3. What was shipped of a memtable stays where it is, so its table may name it there ([`Log::block`]).
//! 4. A write that failed may still reach its part at that member. So the part's memory there is not used again, and
//!    while it is not known that the same bytes are there, nothing else is written to it.

use crate::durable::commit::Commits;
use crate::durable::copies;
use crate::durable::lead::Lead;
use crate::durable::mark;
use crate::durable::shipping::whole_records;
use crate::remote::endpoints::Taken;
use crate::remote::segment::{Remote, Segment};
use crate::terms::planted::{Bug, instead_when_planted, planted};
use crate::terms::statistics::{add, add_alone};
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::Tree;
use crate::tree::version::Change;
use forebay_base::{ErrorKind, RecordHeader, SegmentId, SequenceNumber};
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::{Endpoint, Outcome, Word};
use forebay_memory_client::Purpose;
use forebay_table::{LogPart, SegmentKind};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a part, unless one record needs more: a quarter of a memtable, within these bounds.
const PART_BYTES: RangeInclusive<u64> = 4 << 10..=8 << 20;
/// Parts that are made ahead.
const SPARES: usize = 4;
/// Bytes of one write.
const PIECE_BYTES: u64 = 1 << 20;
/// How often a ship opens another endpoint in the place of one that broke.
const REOPENS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    /// All records up to this number are durable.
    durable: AtomicU64,
    /// The number after which the log began: where earlier records are was not noted.
    begun_behind: SequenceNumber,
    lead: Lead,
    shipping: Mutex<Shipping>,
    /// Parts that nothing is written to yet.
    spares: Mutex<Vec<Arc<Segment>>>,
    /// Something was shipped. The thread that makes parts ahead does not ask `shipping`, which writers hold nearly all
    /// the time.
    is_in_use: AtomicBool,
    /// A part was taken, or missing, since this was last reported.
    wants_parts: AtomicBool,
    /// Bytes of parts that were made since this was last reported.
    made_bytes: AtomicU64,
}

/// The parts of the log, and how far it is shipped.
#[derive(Debug)]
struct Shipping {
    at: Position,
    /// The part that is written to.
    open: Option<Arc<Segment>>,
    /// Parts that are no longer written to, oldest first, each with its last number.
    closed: Vec<(Arc<Segment>, SequenceNumber)>,
    /// Where the records of memtables are that are not flushed, oldest first.
    blocks: Vec<ShippedBlock>,
    /// Empty except while something is shipped. Kept for its capacity.
    cargo: Cargo,
}

/// What was shipped of a memtable's block, from its start on.
#[derive(Debug)]
struct ShippedBlock {
    /// The memtable's base.
    base: SequenceNumber,
    stretches: Vec<Stretch>,
}

/// Records of a memtable's block that are in a part as they are in the block.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    /// Bytes from the block's start.
    pub(crate) from: u64,
    pub(crate) length: u64,
    pub(crate) segment: Arc<Segment>,
    /// Bytes from the part's start.
    pub(crate) to: u64,
}

/// What is shipped at once.
#[derive(Debug, Default)]
struct Cargo {
    /// Memtables that are not yet shipped as far as they are published, oldest first.
    buffers: Vec<Arc<Buffer>>,
    shipments: Vec<Shipment>,
}

/// How far the log is shipped.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// The number of the record that was shipped last.
    reached: SequenceNumber,
    /// The base of the memtable that was shipped last, and how many bytes of its block were.
    block: (SequenceNumber, u64),
    /// Bytes that are used of the open part.
    used_bytes: u64,
}

/// Bytes of a memtable's block, and where in a part they go.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Bytes from the block's start.
    from: u64,
    length: u64,
    /// Bytes from the part's start.
    to: u64,
    /// The part's mark.
    mark: u64,
}

/// Bytes of a memtable's block on their way to a part.
#[derive(Debug)]
struct Shipment {
    /// The place of the memtable in the cargo.
    buffer: usize,
    /// Bytes from the block's start.
    from: u64,
    length: u64,
    segment: Arc<Segment>,
    /// Bytes from the part's start.
    to: u64,
    /// The number of the last of these records.
    last: SequenceNumber,
}

impl Log {
    /// A log that begins after `reached`. An earlier owner left these parts, oldest first, each with its last number.
    pub(crate) fn new(reached: SequenceNumber, closed: Vec<(Arc<Segment>, SequenceNumber)>) -> Self {
        let at = Position { reached, block: (reached, 0), used_bytes: 0 };
        Self {
            durable: AtomicU64::new(reached.0),
            begun_behind: reached,
            lead: Lead::of_short_turns(),
            shipping: Mutex::new(Shipping { at, open: None, closed, blocks: Vec::new(), cargo: Cargo::default() }),
            spares: Mutex::default(),
            is_in_use: AtomicBool::new(false),
            wants_parts: AtomicBool::new(false),
            made_bytes: AtomicU64::new(0),
        }
    }

    /// The number up to which all records are durable.
    pub(crate) fn durable(&self) -> SequenceNumber {
        // Acquire: pairs with the release in `ship`.
        SequenceNumber(self.durable.load(Ordering::Acquire))
    }

    /// Returns when all records up to `number`, which is published, are durable.
    ///
    /// # Errors
    /// Those of the fabric and of a commit; `Full` when there is no memory for the log. The records may be durable all
    /// the same.
    pub(crate) fn make_durable(&self, tree: &Tree, commits: &Commits, number: SequenceNumber) -> Result<()> {
        instead_when_planted!(Bug::AcknowledgeBeforeShipped, Ok(()));
        let waits = || add(&tree.counters.log_waits, 1);
        self.lead.reach(|| self.durable() >= number, waits, || self.ship(tree, commits))
    }

    /// Ships all that is published. When that fails, the next ship begins at the same record, in another part.
    fn ship(&self, tree: &Tree, commits: &Commits) -> Result<()> {
        let mut shipping = lock(&self.shipping);
        if self.ship_on(&mut shipping, tree) {
            return Ok(());
        }
        let mut cargo = std::mem::take(&mut shipping.cargo);
        let shipped = self.ship_with(&mut cargo, &mut shipping, tree, commits);
        if shipped.is_err() {
            // The next ship may find other places for these records.
            let reached = shipping.at.reached;
            shipping.close(reached);
        }
        cargo.buffers.clear();
        cargo.shipments.clear();
        shipping.cargo = cargo;
        shipped
    }

    /// Ships what is new in the memtable that was shipped last, as one piece after the last one, if this thread can do
    /// that by a copy: most groups are that. Nothing is allocated, and no reference is counted. Returns whether all
    /// members have it. If not, nothing is noted, and the same bytes go to the same places again: nothing of this is
    /// under way any more.
    fn ship_on(&self, shipping: &mut Shipping, tree: &Tree) -> bool {
        let (view, number) = tree.present();
        let (buffer, before) = (&*view.active, shipping.at);
        let (base, from) = before.block;
        let Some((part, stretch)) = shipping.goes_on().filter(|_| buffer.memtable.base() == base) else { return false };
        let Ok(inserted) = buffer.memtable.inserted(number) else { return false };
        let length = inserted.bytes.saturating_sub(from);
        if length == 0 || length > PIECE_BYTES.min(room(part, before.used_bytes)) {
            return false;
        }
        let reached = SequenceNumber(base.0.saturating_add(inserted.count));
        let piece = Piece { from, length, to: before.used_bytes, mark: mark::encode(part.id(), reached) };
        if !receivers(tree).all(|member| copied(member, buffer, part, piece)) {
            return false;
        }
        stretch.length += length;
        shipping.at = Position { reached, block: (base, from + length), used_bytes: piece.to + length };
        self.shipped(before, shipping.at, number, length, tree);
        true
    }

    fn ship_with(&self, cargo: &mut Cargo, shipping: &mut Shipping, tree: &Tree, commits: &Commits) -> Result<()> {
        let mut at = shipping.at;
        let reached = at.reached;
        let (view, number) = tree.present();
        let is_left = |buffer: &&Arc<Buffer>| {
            let is_shipped = buffer.memtable.last_sequence().is_some_and(|last| last <= reached);
            buffer.memtable.base() < number && !is_shipped
        };
        cargo.buffers.extend(view.buffers().filter(is_left).cloned());
        drop(view);
        cargo.buffers.reverse();
        for (place, buffer) in cargo.buffers.iter().enumerate() {
            let base = buffer.memtable.base();
            let inserted = buffer.memtable.inserted(number)?;
            let last = SequenceNumber(base.0.saturating_add(inserted.count));
            let bytes = buffer.memtable.inserted_prefix().get(..inserted.bytes as usize).unwrap_or_default();
            let mut from = if at.block.0 == base { at.block.1 } else { 0 };
            if from == 0 && base > at.reached {
                // What is between was flushed before it was shipped: a part has no gap.
                shipping.close(at.reached);
            }
            while let Some(rest) = bytes.get(from as usize..).filter(|rest| !rest.is_empty()) {
                let (segment, length, reached) = self.place(shipping, &mut at, rest, last, tree, commits)?;
                let to = at.used_bytes;
                cargo.shipments.push(Shipment { buffer: place, from, length, segment, to, last: reached });
                from += length;
                at = Position { reached, block: (base, from), used_bytes: to + length };
            }
        }
        send(tree, cargo)?;
        shipping.note(cargo);
        let before = std::mem::replace(&mut shipping.at, at);
        self.shipped(before, at, number, cargo.shipments.iter().map(|shipment| shipment.length).sum(), tree);
        Ok(())
    }

    /// Counts a group, which goes from one position to another, and says that all up to `number` is durable. Only one
    /// thread ships at a time.
    fn shipped(&self, before: Position, at: Position, number: SequenceNumber, bytes: u64, tree: &Tree) {
        add_alone(&tree.counters.log_groups, 1);
        add_alone(&tree.counters.log_records, at.reached.0.saturating_sub(before.reached.0));
        add_alone(&tree.counters.log_bytes, bytes);
        // Release: a thread that learns of the number may tell it to others.
        self.durable.store(number.0.max(self.durable.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Finds a place for the records at the front of `bytes`, which end with number `last`, after what the open part
    /// holds, or in a new part. Returns the part, the length of the records that it has room for, and the last number
    /// of these.
    fn place(
        &self,
        shipping: &mut Shipping,
        at: &mut Position,
        bytes: &[u8],
        last: SequenceNumber,
        tree: &Tree,
        commits: &Commits,
    ) -> Result<(Arc<Segment>, u64, SequenceNumber)> {
        loop {
            if let Some(open) = &shipping.open {
                let room = room(open, at.used_bytes);
                if bytes.len() as u64 <= room {
                    return Ok((Arc::clone(open), bytes.len() as u64, last));
                }
                if let Some((length, last)) = whole_records(bytes, room)? {
                    return Ok((Arc::clone(open), length, last));
                }
                shipping.close(at.reached);
            }
            let first = RecordHeader::decode(bytes)?.padded_length() as u64;
            shipping.open = Some(self.next_part(first + mark::BYTES, tree, commits)?);
            at.used_bytes = 0;
        }
    }

    /// A spare part, or else a new one, of at least `least` bytes.
    fn next_part(&self, least: u64, tree: &Tree, commits: &Commits) -> Result<Arc<Segment>> {
        let spare = {
            let mut spares = lock(&self.spares);
            let place = spares.iter().position(|spare| spare.info().length >= least);
            place.map(|place| spares.remove(place))
        };
        self.is_in_use.store(true, Ordering::Relaxed);
        self.wants_parts.store(true, Ordering::Relaxed);
        spare.map_or_else(|| self.make_part(least, &[Purpose::Flush, Purpose::Collection], tree, commits), Ok)
    }

    /// As [`make_part`].
    fn make_part(&self, least: u64, purposes: &[Purpose], tree: &Tree, commits: &Commits) -> Result<Arc<Segment>> {
        let part = make_part(least, purposes, tree, commits)?;
        self.made_bytes.fetch_add(part.info().length, Ordering::Relaxed);
        Ok(part)
    }

    /// Bytes of memory of the parts that were made since the last call.
    pub(crate) fn take_made_bytes(&self) -> u64 {
        // Every write asks: zero is only read.
        if self.made_bytes.load(Ordering::Relaxed) == 0 { 0 } else { self.made_bytes.swap(0, Ordering::Relaxed) }
    }

    /// Whether parts are to be made ahead and nobody was told so yet.
    pub(crate) fn wants_parts(&self) -> bool {
        // Every write asks: what is false is only read.
        self.wants_parts.load(Ordering::Relaxed) && self.wants_parts.swap(false, Ordering::Relaxed)
    }

    /// Makes a part ahead, if too few spare ones exist and the log is in use. Returns whether it did. Only one thread
    /// does this.
    ///
    /// # Errors
    /// As [`Log::make_durable`].
    pub(crate) fn prepare(&self, tree: &Tree, commits: &Commits) -> Result<bool> {
        if !self.is_in_use.load(Ordering::Relaxed) || lock(&self.spares).len() >= SPARES {
            return Ok(false);
        }
        // Memory that is kept for deletions and compactions is not for parts that may be needed later.
        let part = self.make_part(part_bytes(tree) / 8, &[Purpose::Flush], tree, commits)?;
        lock(&self.spares).push(part);
        Ok(true)
    }

    /// The parts that are no longer written to.
    pub(crate) fn closed_parts(&self) -> BTreeSet<SegmentId> {
        lock(&self.shipping).closed.iter().map(|(part, _)| part.id()).collect()
    }

    /// Calls `body` with the parts that may be written to, while nothing is shipped.
    pub(crate) fn at_rest<T>(&self, body: impl FnOnce(&[SegmentId]) -> T) -> T {
        let shipping = lock(&self.shipping);
        let spares = lock(&self.spares);
        let open: Vec<_> = shipping.open.iter().chain(spares.iter()).map(|part| part.id()).collect();
        body(&open)
    }

    /// What was shipped of the block of the memtable that begins after `base`, from its start on.
    pub(crate) fn block(&self, base: SequenceNumber) -> Vec<Stretch> {
        let shipping = lock(&self.shipping);
        let block = shipping.blocks.iter().find(|block| block.base == base);
        block.map(|block| block.stretches.clone()).unwrap_or_default()
    }

    /// Whether the places of all records were noted of a memtable that begins after `base` and ends with `last`.
    pub(crate) fn has_all(&self, base: SequenceNumber, last: SequenceNumber) -> bool {
        base >= self.begun_behind && last <= self.durable()
    }

    /// The parts that nobody needs once all records up to `flushed` are in tables.
    pub(crate) fn ended_by(&self, flushed: SequenceNumber) -> Vec<SegmentId> {
        let shipping = lock(&self.shipping);
        let ended = shipping.closed.iter().filter(|(_, last)| *last <= flushed || planted(Bug::EndPartsEarly));
        ended.map(|(segment, _)| segment.id()).collect()
    }

    /// Releases parts that ended, now that all records up to `flushed`, if that is known, are in tables.
    pub(crate) fn forget(&self, ended: &[SegmentId], flushed: Option<SequenceNumber>) {
        let mut shipping = lock(&self.shipping);
        shipping.closed.retain(|(segment, _)| !ended.contains(&segment.id()));
        shipping.blocks.retain(|block| flushed.is_none_or(|flushed| block.base >= flushed));
    }

    /// Releases all parts: the version of a closed tree names them.
    pub(crate) fn clear(&self) {
        self.is_in_use.store(false, Ordering::Relaxed);
        let mut shipping = lock(&self.shipping);
        (shipping.open, shipping.closed, shipping.blocks) = (None, Vec::new(), Vec::new());
        drop(shipping);
        lock(&self.spares).clear();
    }
}

impl Shipping {
    /// The open part, and the stretch that notes what it holds of the memtable that was shipped last, if the next
    /// records continue there.
    fn goes_on(&mut self) -> Option<(&Segment, &mut Stretch)> {
        let Self { at: Position { block: (base, _), used_bytes, .. }, open, blocks, .. } = self;
        let open = open.as_ref()?;
        let block = blocks.last_mut().filter(|block| block.base == *base)?;
        let stretch = block.stretches.last_mut()?;
        (Arc::ptr_eq(&stretch.segment, open) && stretch.to + stretch.length == *used_bytes).then_some((open, stretch))
    }

    /// Closes the open part, if there is one, whose last number is `last` at most.
    fn close(&mut self, last: SequenceNumber) {
        self.closed.extend(self.open.take().map(|open| (open, last)));
    }

    /// Notes where shipped records are.
    fn note(&mut self, cargo: &Cargo) {
        for Shipment { buffer, from, length, segment, to, .. } in &cargo.shipments {
            let Some(buffer) = cargo.buffers.get(*buffer) else { continue };
            let base = buffer.memtable.base();
            if self.blocks.last().is_none_or(|block| block.base != base) {
                self.blocks.push(ShippedBlock { base, stretches: Vec::new() });
            }
            let Some(ShippedBlock { stretches, .. }) = self.blocks.last_mut() else { continue };
            match stretches.last_mut() {
                Some(last) if last.to + last.length == *to && Arc::ptr_eq(&last.segment, segment) => {
                    last.length += length;
                }
                _ => stretches.push(Stretch { from: *from, length: *length, segment: Arc::clone(segment), to: *to }),
            }
        }
    }
}

fn part_bytes(tree: &Tree) -> u64 {
    (tree.options.write_buffer_bytes as u64 / 4).clamp(*PART_BYTES.start(), *PART_BYTES.end())
}

/// Bytes for records that a part still has when `used_bytes` are used.
fn room(part: &Segment, used_bytes: u64) -> u64 {
    mark::place(part.info().length).saturating_sub(used_bytes)
}

/// Memory for a part of at least `least` bytes: as long as parts are, or, if memory is fragmented, as long as there is
/// a piece. It is taken for the first of these purposes that has some.
fn allocate_part(least: u64, purposes: &[Purpose], tree: &Tree) -> Result<Arc<Segment>> {
    let mut bytes = part_bytes(tree).max(least);
    loop {
        let mut full = None;
        for purpose in purposes {
            match tree.remote.allocate(tree.next_segment(), SegmentKind::MemtableBlock, bytes, *purpose) {
                Err(error) if error.kind() == ErrorKind::Full => full = Some(error),
                allocated => return allocated,
            }
        }
        match full {
            Some(error) if bytes <= least => return Err(error),
            _ => bytes = (bytes / 2).max(least),
        }
    }
}

/// A new part of the log, zeroed, which the version names.
fn make_part(least: u64, purposes: &[Purpose], tree: &Tree, commits: &Commits) -> Result<Arc<Segment>> {
    let segment = allocate_part(least, purposes, tree)?;
    segment.remote().zero(&segment)?;
    let mut change = Change { segments: vec![Arc::clone(&segment)], ..Change::default() };
    change.edit.added_segments = vec![(segment.id(), segment.info().clone())];
    change.edit.log_parts = vec![LogPart { segment: segment.id(), last: None }];
    copies::spread_zeroed(tree, &mut change)?;
    commits.commit(tree, change, &[])?;
    Ok(segment)
}

/// Sends records to their parts at all members of the shard. Returns when all of them have the records, or are left out.
fn send(tree: &Tree, cargo: &Cargo) -> Result<()> {
    if cargo.shipments.is_empty() {
        return Ok(());
    }
    let mut failed = Vec::new();
    let members = send_beyond(None, tree, cargo, &mut failed);
    match failed.first() {
        // More likely this process is cut off: nobody is left out.
        Some((_, error)) if failed.len() == members => Err(error.clone()),
        _ => failed.iter().try_for_each(|(member, error)| tree.remote.leave_out(*member, error)),
    }
}

/// The members that get what is shipped.
fn receivers(tree: &Tree) -> impl Iterator<Item = &Arc<Remote>> {
    tree.remote.active().take(if planted(Bug::AcknowledgeAtFirstCopy) { 1 } else { usize::MAX })
}

/// Copies a piece of a memtable's block to a part at a member, and the part's mark, if that is done at once. Returns
/// whether both are there, confirmed.
fn copied(member: &Remote, buffer: &Buffer, part: &Segment, Piece { from, length, to, mark }: Piece) -> bool {
    let copy = || -> Result<bool> {
        let Some(part) = part.at_member(member.member()) else { return Ok(false) };
        let (target, mut endpoint) = (part.at(to)?, member.foreground().take()?);
        let mark = Word { at: part.at(mark::place(part.info().length))?, value: mark };
        let Buffer { block, memtable, .. } = buffer;
        Ok(block.write_at_once(memtable, &mut endpoint, target, from as usize, length as usize, Some(mark))?)
    };
    // Sending it again says why it failed.
    copy().unwrap_or(false)
}

/// Sends to those members whose memory nodes have higher numbers than `beyond`. All are under way before the first is
/// waited for, so the waits share one round trip. As with readers of several nodes, no thread holds an endpoint of one
/// node while it waits for one of an earlier node. Returns how many members these are, and adds those that failed.
fn send_beyond(beyond: Option<(usize, usize)>, tree: &Tree, cargo: &Cargo, failed: &mut Vec<(usize, Error)>) -> usize {
    let number = |member: &&Arc<Remote>| (member.memory_node().number(), member.member());
    let Some(member) = receivers(tree).filter(|member| Some(number(member)) > beyond).min_by_key(number) else {
        return 0;
    };
    let posted = post(member, cargo);
    let others = send_beyond(Some(number(&member)), tree, cargo, failed);
    let sent = posted.and_then(|mut endpoint| arrive(&mut endpoint, member, cargo));
    let sent = sent.or_else(|error| {
        cargo.abandon_at(member);
        send_again(tree, member, cargo, error)
    });
    failed.extend(sent.err().map(|error| (member.member(), error)));
    1 + others
}

/// Sends again, over other endpoints, what failed over one that broke. Nobody knows what arrived, or will: it is the
/// same bytes at the same places, as long as nothing else is sent.
fn send_again(tree: &Tree, member: &Remote, cargo: &Cargo, mut error: Error) -> Result<()> {
    for _ in 0..REOPENS {
        if !tree.remote.may_retry_at(member, &error) {
            break;
        }
        tracing::debug!(%error, "shipping the log again over a new endpoint");
        let sent = post(member, cargo).and_then(|mut endpoint| arrive(&mut endpoint, member, cargo));
        match sent {
            Ok(()) => return Ok(()),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Posts records to their parts at a member, each part's followed by its mark, with one doorbell.
fn post<'m>(member: &'m Remote, cargo: &Cargo) -> Result<Taken<'m>> {
    let mut endpoint = member.foreground().take()?;
    for (number, shipment) in cargo.shipments.iter().enumerate() {
        let Shipment { buffer, from, length, segment, to, last } = shipment;
        let buffer = cargo.buffers.get(*buffer);
        let buffer = buffer.ok_or_else(|| Error::invalid("a shipment of a memtable that is not in the cargo"))?;
        let mut done = 0;
        while done < *length {
            let piece = (*length - done).min(PIECE_BYTES);
            let target = shipment.part_at(member)?.at(to + done)?;
            buffer.block.post(&buffer.memtable, &mut endpoint, target, (from + done) as usize, piece as usize)?;
            done += piece;
        }
        let next = cargo.shipments.get(number + 1);
        if next.is_none_or(|next| !Arc::ptr_eq(&next.segment, segment)) {
            post_mark(&mut endpoint, shipment.part_at(member)?, *last)?;
        }
    }
    endpoint.flush();
    Ok(endpoint)
}

/// Posts the mark of a part's copy, after the records that were posted.
fn post_mark(endpoint: &mut Endpoint, part: &Segment, last: SequenceNumber) -> Result<()> {
    let mut slot = endpoint.slot(mark::BYTES as usize)?;
    slot.copy_from_slice(&mark::encode(part.id(), last).to_le_bytes());
    if !endpoint.capabilities().ordered {
        endpoint.fence();
    }
    endpoint.post_write(part.at(mark::place(part.info().length))?, slot)?;
    Ok(())
}

/// Waits until what was posted has arrived.
fn arrive(endpoint: &mut Endpoint, member: &Remote, cargo: &Cargo) -> Result<()> {
    endpoint.wait_all(|_, outcome| if let Outcome::Done(slot) = outcome { slot } else { None })?;
    // A process that took over may have read these parts before this thread, which stood still, ended its copy.
    for shipment in &cargo.shipments {
        endpoint.confirm(&shipment.part_at(member)?.at(0)?.key)?;
    }
    if let Some(last @ Shipment { length, to, .. }) = cargo.shipments.last() {
        // Whatever is shipped next goes after it.
        endpoint.approach(last.part_at(member)?.at(to + length)?, *length as usize);
    }
    Ok(())
}

impl Cargo {
    /// Keeps the memory of the parts at a member from being used again.
    fn abandon_at(&self, member: &Remote) {
        self.shipments.iter().filter_map(|shipment| shipment.part_at(member).ok()).for_each(Segment::abandon_here);
    }
}

impl Shipment {
    /// The part's copy at a member.
    fn part_at(&self, member: &Remote) -> Result<&Segment> {
        let lacks = || Error::corrupt(format!("a member of the shard has no copy of {}", self.segment.id()));
        self.segment.at_member(member.member()).ok_or_else(lacks)
    }
}

#[cfg(test)]
pub(crate) mod tests;
