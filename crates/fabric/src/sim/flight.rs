//! One operation in flight, and the order in which its lines land.

use super::options::{Plant, SimOptions};
use crate::grants::Granted;
use crate::transport::{Operation, Outcome, Payload, Work, WorkId};
use crate::{Error, Region, RemoteAddress, Rights};
use forebay_env::Random;

/// Longest line that lands in one step.
pub(super) const MAX_LINE_BYTES: usize = 64;

/// An operation between its doorbell and its completion.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: WorkId,
    pub(super) fenced: bool,
    pub(super) operation: Operation,
    pub(super) state: State,
    /// A fault: lines after which nothing more is heard of the operation.
    pub(super) lost_after: Option<u32>,
    /// Whether a planted bug has given its completion already.
    pub(super) told: bool,
    /// Where a planted bug continues to write after the key was revoked.
    remembered: Option<(Region, u64)>,
}

/// The progress of an operation.
#[derive(Debug)]
pub(super) enum State {
    /// It has not started.
    Waiting,
    /// Some of its lines have landed, or none yet.
    Moving(Lines),
    /// It has taken effect; an atomic found this word.
    Done(u64),
}

/// What a step of an operation did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A line landed, and others are missing.
    Moved,
    /// The operation has taken effect.
    Done,
    /// The operation has reached the point where the fault plan loses it.
    Lost,
}

/// How fast operations in flight land.
#[derive(Debug)]
pub(super) struct Pace {
    line_bytes: usize,
    single_lines: u32,
    plant: Option<Plant>,
    /// Number of steps that may be made at once, at least one.
    most: u64,
    /// Steps that were made.
    pub(super) made: u64,
}

impl Pace {
    pub(super) fn new(options: &SimOptions, most: u64) -> Self {
        let SimOptions { line_bytes, single_lines, plant, .. } = *options;
        // Planted bugs are drawn for each step.
        let most = if plant.is_some() { 1 } else { most };
        Self { line_bytes, single_lines: single_lines.max(1), plant, most, made: 1 }
    }

    /// Begins another step, if one may be made.
    fn goes_on(&mut self) -> bool {
        let goes_on = self.made < self.most;
        self.made += u64::from(goes_on);
        goes_on
    }
}

/// The lines of an operation that have not landed yet.
#[derive(Debug)]
pub(super) struct Lines {
    /// Length of the first line: up to the first boundary in the target's memory.
    first: usize,
    line_bytes: usize,
    length: usize,
    count: u32,
    left: u32,
    /// A bit for each missing line, when there are at most 64.
    mask: u64,
    /// The missing lines, when there are more.
    list: Vec<u32>,
}

impl Lines {
    pub(super) fn new(base: u64, length: usize, line_bytes: usize) -> Self {
        let first = line_bytes - (base % line_bytes as u64) as usize;
        let count = if length == 0 { 0 } else { 1 + length.saturating_sub(first).div_ceil(line_bytes) as u32 };
        let mask = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        let list = if count > 64 { (0..count).collect() } else { Vec::new() };
        Self { first, line_bytes, length, count, left: count, mask, list }
    }

    /// How many lines the next step lands: one, or a small share of a large operation.
    fn at_once(&self, pace: &Pace) -> u32 {
        1 + self.left / pace.single_lines
    }

    /// Lands the lines of one step with `land`, and of more steps as far as the pace allows. Returns whether
    /// all have landed.
    ///
    /// # Errors
    /// That of `land`.
    fn step(
        &mut self,
        random: &mut Random,
        pace: &mut Pace,
        mut land: impl FnMut(usize, usize) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        loop {
            for _ in 0..self.at_once(pace) {
                let Some((start, end)) = self.take(random) else { break };
                land(start, end)?;
            }
            if self.left == 0 || !pace.goes_on() {
                return Ok(self.left == 0);
            }
        }
    }

    /// Takes a random missing line: where in the operation it starts and ends.
    pub(super) fn take(&mut self, random: &mut Random) -> Option<(usize, usize)> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let line = if self.count > 64 {
            self.list.swap_remove(random.below(self.list.len() as u64) as usize)
        } else {
            let turn = random.below(u64::from(self.count)) as u32;
            let from_turn = self.mask >> turn;
            let line = if from_turn != 0 { turn + from_turn.trailing_zeros() } else { self.mask.trailing_zeros() };
            self.mask &= !(1 << line);
            line
        };
        let boundary = |line: u32| if line == 0 { 0 } else { self.first + (line as usize - 1) * self.line_bytes };
        Some((boundary(line), boundary(line + 1).min(self.length)))
    }
}

impl Flight {
    pub(super) fn new(work: Work) -> Self {
        let Work { id, fenced, operation } = work;
        Self { id, fenced, operation, state: State::Waiting, lost_after: None, told: false, remembered: None }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.state, State::Moving(_))
    }

    /// Whether the operation changes the target's memory.
    pub(super) fn changes_memory(&self) -> bool {
        !matches!(self.operation, Operation::Read { .. } | Operation::Message(_))
    }

    /// Whether it is a write or a message: these are ordered among themselves wherever anything is.
    pub(super) fn is_write_or_message(&self) -> bool {
        matches!(self.operation, Operation::Write { .. } | Operation::Message(_))
    }

    pub(super) fn is_message(&self) -> bool {
        matches!(self.operation, Operation::Message(_))
    }

    /// Where a one-sided operation goes, how long it is, and what right it needs.
    pub(super) fn target(&self) -> Option<(RemoteAddress, u64, Rights)> {
        match &self.operation {
            Operation::Read { from, into } => Some((*from, into.len() as u64, Rights::READ)),
            Operation::Write { to, payload, .. } => Some((*to, payload.length() as u64, Rights::WRITE)),
            Operation::CompareSwap { at, .. } | Operation::FetchAdd { at, .. } => Some((*at, 8, Rights::ATOMIC)),
            Operation::Message(_) => None,
        }
    }

    /// Most lines that an operation of this length has.
    pub(super) fn lines_at_most(&self, line_bytes: usize) -> u32 {
        self.target().map_or(1, |(_, length, _)| (length as usize / line_bytes) as u32 + 2)
    }

    /// Makes one or more steps of a one-sided operation. Each step makes the target's checks and lands one
    /// line.
    ///
    /// # Errors
    /// What the target's check says.
    pub(super) fn step(&mut self, granted: &Granted<'_>, random: &mut Random, pace: &mut Pace) -> Result<Step, Error> {
        let Some((address, length, rights)) = self.target() else { return Ok(Step::Done) };
        let Pace { line_bytes, plant, .. } = *pace;
        let remembered;
        let (region, base) = match granted.check(address, length, rights) {
            Ok(found) => found,
            Err(_) if self.is_moving() && self.remembered.is_some() => {
                remembered = self.remembered.clone().ok_or(Error::AccessDenied)?;
                (&remembered.0, remembered.1)
            }
            Err(cause) => return Err(cause),
        };
        if plant == Some(Plant::WriteAfterRevoke) && self.remembered.is_none() {
            self.remembered = Some((region.clone(), base));
        }
        if let State::Waiting = self.state {
            let is_write = matches!(self.operation, Operation::Write { .. });
            let line_bytes = if is_write && plant == Some(Plant::TornWord) { 4 } else { line_bytes };
            self.state = State::Moving(Lines::new(base, length as usize, line_bytes));
        }
        if let Some(left) = &mut self.lost_after {
            if *left == 0 {
                return Ok(Step::Lost);
            }
            *left -= 1;
            pace.most = 1;
        }
        self.land(region, base, random, pace)
    }

    /// Lands a line, or the atomic.
    fn land(&mut self, region: &Region, base: u64, random: &mut Random, pace: &mut Pace) -> Result<Step, Error> {
        let plant = pace.plant;
        let twice = plant == Some(Plant::ApplyTwice) && random.one_in(1, 64);
        let lose = plant == Some(Plant::LostWrite) && random.one_in(1, 256);
        let State::Moving(lines) = &mut self.state else { return Ok(Step::Done) };
        let mut word = 0;
        match &mut self.operation {
            Operation::CompareSwap { expected, new, .. } => word = region.compare_swap(base, *expected, *new)?,
            Operation::FetchAdd { delta, .. } => {
                word = region.fetch_add(base, *delta)?;
                if twice {
                    region.fetch_add(base, *delta)?;
                }
            }
            Operation::Read { into, .. } => {
                let land =
                    |start: usize, end| region.read(base + start as u64, into.get_mut(start..end).unwrap_or_default());
                if !lines.step(random, pace, land)? {
                    return Ok(Step::Moved);
                }
            }
            Operation::Write { payload, .. } => {
                let mut is_lost = lose;
                let land = |start, end| match std::mem::take(&mut is_lost) {
                    true => Ok(()),
                    false => write_part(region, base, payload, start, end),
                };
                if !lines.step(random, pace, land)? {
                    return Ok(Step::Moved);
                }
            }
            Operation::Message(_) => {}
        }
        self.state = State::Done(word);
        // An operation can lose its completion even when its every line has landed.
        Ok(if self.lost_after.is_some() { Step::Lost } else { Step::Done })
    }

    /// What the completion gives.
    pub(super) fn into_outcome(self) -> Outcome {
        let State::Done(word) = self.state else { return Outcome::Done(None) };
        match self.operation {
            Operation::Read { into, .. } => Outcome::Read(into),
            Operation::Write { payload, .. } => Outcome::Done(payload.into_slot()),
            Operation::Message(slot) => Outcome::Done(Some(slot)),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => Outcome::Word(word),
        }
    }
}

fn write_part(region: &Region, base: u64, payload: &Payload, start: usize, end: usize) -> Result<(), Error> {
    match payload {
        Payload::Slot(slot) => region.write(base + start as u64, slot.get(start..end).unwrap_or_default()),
        Payload::Sealed { region: source, offset, .. } => {
            let mut line = [0; MAX_LINE_BYTES];
            let line = line.get_mut(..end - start).unwrap_or_default();
            source.read(offset + start as u64, line)?;
            region.write(base + start as u64, line)
        }
    }
}

/// A write or a message of the node on its way to a client's endpoint.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Bytes and where they go; a message has no address.
    pub(super) to: Option<RemoteAddress>,
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<u32>,
    pub(super) lines: Option<Lines>,
}

impl Inbound {
    /// Makes one or more steps of a write. True when all its lines have landed.
    ///
    /// # Errors
    /// What the client's check says.
    pub(super) fn step(&mut self, granted: &Granted<'_>, random: &mut Random, pace: &mut Pace) -> Result<bool, Error> {
        let Some(to) = self.to else { return Ok(true) };
        let (region, base) = granted.check(to, self.bytes.len() as u64, Rights::WRITE)?;
        let lines = self.lines.get_or_insert_with(|| Lines::new(base, self.bytes.len(), pace.line_bytes));
        let bytes = &self.bytes;
        lines.step(random, pace, |start, end| {
            region.write(base + start as u64, bytes.get(start..end).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_line_and_no_word_in_two() {
        let mut random = Random::seeded(1);
        for line_bytes in [8, 64] {
            for base in [0, 1, 7, 8, 63, 64, 100] {
                // Longer ones take an interpreter minutes.
                let longest = if cfg!(miri) { 65 } else { 5000 };
                let lengths = [0, 1, 7, 8, 9, 63, 64, 65, 500, 4096, 5000];
                for length in lengths.into_iter().filter(|length| *length <= longest) {
                    let mut lines = Lines::new(base, length, line_bytes);
                    let mut seen = vec![0; length];
                    while let Some((start, end)) = lines.take(&mut random) {
                        assert!(start < end && end - start <= line_bytes, "{start}..{end} of {length} at {base}");
                        seen[start..end].iter_mut().for_each(|count| *count += 1);
                        assert!(start == 0 || (base + start as u64).is_multiple_of(line_bytes as u64));
                    }
                    assert!(seen.iter().all(|count| *count == 1), "{length} bytes at {base} in lines of {line_bytes}");
                }
            }
        }
    }
}
