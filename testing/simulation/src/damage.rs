//! Damage: bytes that are not what was written, in storage, on their way from it, or in one of several copies in
//! memory.
//!
//! One place is damaged at a time: one or a few bits are flipped, or a short stretch is zeroed or overwritten with
//! other bytes.
//!
//! | where | how long | what is found meanwhile | afterwards |
//! |---|---|---|---|
//! | an object or a file at rest in storage | until it is undone, at the latest when the database does not open | what was written, or an error that reports damage; opening fails with an error that names the object, and a verification finds the damage | all works again |
//! | what one read of storage returns | once | the same | all works again |
//! | the memory of one node of a database with copies | until the copies are looked at | what was written, and no error: another copy is whole | no copy is damaged, and no other node is needed |
//!
//! While a copy is damaged, no other node is lost: two failures are one more than two copies survive. So the network
//! breaks no links of such a database by chance: only the run does.
//!
//! # What cannot be told from a torn write
//!
//! A frame of a log in files counts as damaged only if a later frame says that it was durable. The frames of the last
//! group have no later frame, so damage to them looks like a power failure in the middle of them
//! (`docs/formats/log.md`, decision 0033). Then the last group is cut, although it was acknowledged, and opening says
//! so (`Recovery::cuts`), unless a table holds some of that group (decision 0035): then it does not open. A database may
//! lack nothing else. It may lack this group only if the damage is in a log in
//! files and stays: see [`Damage::may_take_a_group`]. A log in objects has no such end, because an object exists as a
//! whole or not at all. A log in memory has marks (`docs/formats/log-mark.md`), and another copy. Frames are aligned to
//! 8 bytes, and at most one frame is damaged at a time, so at most one group is.

use crate::draw::{Drawn, Kept};
use crate::store::Store;
use crate::swarm::{Event, Swarm};
use forebay_base::ErrorKind;
use forebay_engine::Error;
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::NodeIdentity;
use forebay_memory_client::ExtentId;
use forebay_memory_node::MemoryNode;
use std::ops::Range;

/// Maximum number of waits before something is damaged.
const SOON: u64 = 60;
/// Maximum number of reads of storage before one that is damaged.
const READS: u64 = 20;
/// Frames of a log begin at multiples of this many bytes.
const FRAME_ALIGNMENT: usize = 8;
/// Maximum bytes of a damaged stretch elsewhere.
const STRETCH_BYTES: u64 = 64;
/// Bytes before a damaged place by which it is recognised. What follows it may be appended later.
const BEFORE_BYTES: usize = 16;
/// Bytes at the written end of an object or a file, where more is decided than elsewhere.
const END_BYTES: usize = 200;
/// Tries to find bytes that are not zero: most zeros were never written.
const TRIES: usize = 16;
/// Memory is in use, or not, in units of this many bytes.
const LINE_BYTES: usize = 64;

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DamageCounts {
    /// Places damaged at rest in storage.
    pub stored: u64,
    /// Reads of storage that returned a flipped bit.
    pub reads: u64,
    /// Places damaged in copies in memory.
    pub copies: u64,
    /// How many damaged places and reads of storage failed a call or an opening.
    pub met: u64,
    /// Openings that cut a group that was acknowledged, and said so.
    pub cut: u64,
    /// Damaged places of copies that the database found.
    pub found: u64,
    /// How many of these the database repaired.
    pub mended: u64,
}

impl DamageCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.reads += other.reads;
        self.copies += other.copies;
        self.met += other.met;
        self.cut += other.cut;
        self.found += other.found;
        self.mended += other.mended;
    }
}

/// What is damaged now.
enum Episode {
    /// Bytes of an object or a file.
    Stored(Spot),
    /// One read of this handle.
    Read(Store),
    /// Memory of a node in one of its lives.
    Copy(NodeIdentity),
}

/// Bytes that were damaged, with some around them.
struct Spot {
    name: String,
    offset: u64,
    sound: Vec<u8>,
    damaged: Vec<u8>,
}

struct State {
    random: Random,
    /// Waits before something is damaged.
    due_after: Option<u64>,
    /// Nothing is damaged any more.
    is_over: bool,
    episode: Option<Episode>,
    /// The damage has failed a call or an opening.
    is_met: bool,
    counts: DamageCounts,
}

/// See the module.
pub(crate) struct Damage {
    kept: Kept,
    swarm: Swarm,
    state: Mutex<State>,
}

impl Damage {
    pub(crate) fn new(drawn: &Drawn, random: Random) -> Self {
        let counts = DamageCounts::default();
        let state = State { random, due_after: None, is_over: false, episode: None, is_met: false, counts };
        Self { kept: drawn.kept, swarm: drawn.habits.swarm, state: Mutex::new(state) }
    }

    /// Plans that something is damaged after some more waits.
    pub(crate) fn come_soon(&self) {
        let mut state = lock(&self.state);
        state.due_after = Some(state.random.below(SOON));
    }

    /// Ends new damage: what is not damaged stays so.
    pub(crate) fn come_no_more(&self) {
        let mut state = lock(&self.state);
        (state.due_after, state.is_over) = (None, true);
    }

    /// Counts a wait. Returns whether it is time to damage something.
    pub(crate) fn is_due(&self) -> bool {
        let mut state = lock(&self.state);
        let due = state.due_after == Some(0);
        state.due_after = state.due_after.and_then(|waits| waits.checked_sub(1));
        due
    }

    /// Whether something is damaged, or will be.
    pub(crate) fn is_under_way(&self) -> bool {
        let state = lock(&self.state);
        state.episode.is_some() || state.due_after.is_some()
    }

    /// The node whose memory is damaged.
    pub(crate) fn node(&self) -> Option<NodeIdentity> {
        match lock(&self.state).episode {
            Some(Episode::Copy(life)) => Some(life),
            _ => None,
        }
    }

    /// Whether damage to storage explains a failure. If so, notes that the damage was met.
    pub(crate) fn explains(&self, kind: ErrorKind) -> bool {
        let mut state = lock(&self.state);
        let is_stored = match &state.episode {
            Some(Episode::Stored(_)) => true,
            Some(Episode::Read(store)) => !store.rotten_reads().is_empty(),
            _ => false,
        };
        // The damaged bytes may be those that name a format's version, hence `Unsupported`.
        let explains = is_stored && matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported);
        state.is_met |= explains;
        explains
    }

    /// Whether opening may have taken a group of acknowledged writes for a torn one: see the module.
    pub(crate) fn may_take_a_group(&self) -> bool {
        let is_of_log = |name: &str| self.kept == Kept::OnDisk && name.contains("/log/");
        matches!(&lock(&self.state).episode, Some(Episode::Stored(spot)) if is_of_log(&spot.name))
    }

    /// Notes that an opening cut such a group.
    pub(crate) fn group_was_cut(&self) {
        lock(&self.state).counts.cut += 1;
    }

    /// Chooses whether storage is damaged, if the database has storage, or its copies.
    pub(crate) fn chooses_storage(&self) -> bool {
        match self.kept {
            Kept::InCopies { is_registered: true } => lock(&self.state).random.one_in(1, 4),
            kept => kept.is_stored(),
        }
    }

    /// Damages something in storage, or one of the next reads of storage by `reader`.
    pub(crate) fn damage_storage(&self, store: &Store, reader: Option<&Store>) {
        let mut state = lock(&self.state);
        if state.episode.is_some() {
            return;
        }
        let is_of_read = state.random.one_in(1, 2);
        match reader.filter(|_| is_of_read) {
            Some(reader) => {
                reader.rot_read(state.random.below(READS), state.random.word());
                state.begin(Episode::Read(reader.clone()));
            }
            None => {
                let Some(spot) = state.damage_object(store) else { return };
                state.counts.stored += 1;
                state.begin(Episode::Stored(spot));
            }
        }
    }

    /// Damages storage, or a read, now and then when a process opens the database.
    pub(crate) fn damage_opening(&self, store: &Store, reader: Option<&Store>) {
        let mut state = lock(&self.state);
        let comes =
            state.episode.is_none() && !state.is_over && self.swarm.happens(Event::DamageOfOpening, &mut state.random);
        drop(state);
        if comes {
            self.damage_storage(store, reader);
        }
    }

    /// Damages memory of a node that is used.
    pub(crate) fn damage_node(&self, node: &MemoryNode, life: NodeIdentity) {
        let mut state = lock(&self.state);
        if state.episode.is_some() {
            return;
        }
        for extent in used_extents(node, &mut state.random) {
            let bytes = node.bytes_of(extent);
            let is_used = |line: &&[u8]| line.iter().any(|byte| *byte != 0);
            let lines: Vec<usize> =
                bytes.chunks(LINE_BYTES).enumerate().filter(|(_, line)| is_used(line)).map(|(at, _)| at).collect();
            if lines.is_empty() {
                continue;
            }
            let start = lines[state.random.below(lines.len() as u64) as usize] * LINE_BYTES;
            let at = start + state.random.below(LINE_BYTES as u64) as usize;
            let stretch = state.stretch(at, bytes.len().min(start + LINE_BYTES));
            let damaged = damaged(&mut state.random, &bytes[stretch.clone()]);
            for (offset, (sound, damaged)) in stretch.clone().zip(bytes[stretch].iter().zip(damaged)) {
                node.rot(extent, offset as u64, sound ^ damaged).expect("the node has this memory");
            }
            state.counts.copies += 1;
            state.begin(Episode::Copy(life));
            return;
        }
    }

    /// Ends the damage: restores what is damaged in storage, unless it was written anew or deleted. `store` is a handle
    /// on the storage.
    pub(crate) fn end(&self, store: Option<&Store>) {
        let mut state = lock(&self.state);
        state.due_after = None;
        match state.episode.take() {
            Some(Episode::Stored(Spot { name, offset, sound, damaged })) => {
                if let Some(store) = store {
                    store.rot(&name, offset, &damaged, &sound);
                }
            }
            Some(Episode::Read(store)) => {
                store.rot_read(u64::MAX, 0);
                state.counts.reads += store.rotten_reads().len() as u64;
            }
            Some(Episode::Copy(_)) | None => {}
        }
        state.counts.met += u64::from(std::mem::take(&mut state.is_met));
    }

    /// Whether something is damaged in storage, or on its way from it.
    pub(crate) fn is_of_storage(&self) -> bool {
        matches!(lock(&self.state).episode, Some(Episode::Stored(_) | Episode::Read(_)))
    }

    /// Whether the damage stays until it is undone.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(lock(&self.state).episode, Some(Episode::Stored(_)))
    }

    /// The object that is damaged.
    pub(crate) fn object(&self) -> Option<String> {
        match &lock(&self.state).episode {
            Some(Episode::Stored(spot)) => Some(spot.name.clone()),
            Some(Episode::Read(store)) => store.rotten_reads().pop(),
            _ => None,
        }
    }

    pub(crate) fn counts(&self) -> DamageCounts {
        lock(&self.state).counts
    }

    /// Checks that an opening that failed for damage says what is damaged.
    pub(crate) fn expect_named(&self, error: &Error) {
        if let Some(name) = self.object() {
            let told = error.to_string();
            assert!(told.contains(&name), "an error does not name what is damaged, {name}: {told}");
        }
    }
}

impl State {
    fn begin(&mut self, episode: Episode) {
        (self.episode, self.is_met) = (Some(episode), false);
    }

    /// Damages an object or a file. Returns `None` when there is none that has bytes.
    fn damage_object(&mut self, store: &Store) -> Option<Spot> {
        let mut names = store.names();
        // Commits and logs are few and small beside segments.
        let folders = ["/commit/", "/log/", "/segment/", "/"];
        let folder = folders[self.random.below(folders.len() as u64) as usize];
        if names.iter().any(|name| name.contains(folder)) {
            names.retain(|name| name.contains(folder));
        }
        let name = names.get(self.random.below(names.len().max(1) as u64) as usize)?.clone();
        let bytes = store.bytes(&name).filter(|bytes| !bytes.is_empty())?;
        let at = self.place(&bytes);
        let frame_end = (at / FRAME_ALIGNMENT + 1) * FRAME_ALIGNMENT;
        let end = if name.contains("/log/") { frame_end.min(bytes.len()) } else { bytes.len() };
        let stretch = self.stretch(at, end);
        let known = stretch.start.saturating_sub(BEFORE_BYTES);
        let sound = bytes[known..stretch.end].to_vec();
        let damaged = [&bytes[known..stretch.start], &damaged(&mut self.random, &bytes[stretch])].concat();
        let offset = known as u64;
        store.rot(&name, offset, &sound, &damaged).then_some(Spot { name, offset, sound, damaged })
    }

    /// Returns the place of a byte that is not zero, if one is found, anywhere in the bytes or near their written end.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1);
        let from = if self.random.one_in(1, 3) { written.saturating_sub(END_BYTES) } else { 0 };
        let mut at = from;
        for _ in 0..TRIES {
            at = from + self.random.below((written - from) as u64) as usize;
            if bytes[at] != 0 {
                break;
            }
        }
        at
    }

    /// Returns the range of one byte, or of a stretch that begins with it and ends at `end` at the latest.
    fn stretch(&mut self, at: usize, end: usize) -> Range<usize> {
        let length = if self.random.one_in(1, 2) { 1 } else { 1 + self.random.below(STRETCH_BYTES) as usize };
        at..(at + length).min(end)
    }
}

/// Returns other bytes in place of `sound`: with flipped bits, zeros, or any bytes.
fn damaged(random: &mut Random, sound: &[u8]) -> Vec<u8> {
    let mut damaged = sound.to_vec();
    match random.below(4) {
        0 => damaged.fill(0),
        1 => random.fill(&mut damaged),
        _ => {
            for _ in 0..=random.below(2) {
                flip(random, &mut damaged);
            }
        }
    }
    if damaged == sound {
        flip(random, &mut damaged);
    }
    damaged
}

fn flip(random: &mut Random, bytes: &mut [u8]) {
    let bit = random.below(bytes.len() as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// The extents of a node, in any order.
fn used_extents(node: &MemoryNode, random: &mut Random) -> Vec<ExtentId> {
    let mut extents: Vec<_> = (0..node.statistics().extents as u32).map(ExtentId).collect();
    random.shuffle(&mut extents);
    extents
}
