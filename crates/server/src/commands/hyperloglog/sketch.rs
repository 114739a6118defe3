//! The string of a sketch.
//!
//! Described in `docs/formats/hyperloglog.md`. It is Redis's format, which has no version of its own.
//!
//! ```text
//!   offset  size
//!   0       4     "HYLL"
//!   4       1     form: 0 dense, 1 sparse
//!   5       3     zeros
//!   8       8     the latest estimate, little-endian; with the highest bit set, it is old
//!   16      …     dense:  16,384 registers of 6 bits, the lowest bits of a byte first: 12,288 bytes
//!                 sparse: stretches of registers with the same value
//!
//!   stretch       00nnnnnn             n + 1 zeros
//!                 01nnnnnn nnnnnnnn    n + 1 zeros, the high bits first
//!                 1vvvvvnn             n + 1 times the value v + 1
//! ```
//!
//! A sketch is sparse at first. It becomes dense when a value is above 32, or when it would be longer than
//! `hll-sparse-max-bytes`. Stretches are cut and joined as in Redis, so that the strings are equal.

use super::estimate::{self, RANKS, REGISTERS};
use crate::keyspace::failure::{Failure, Outcome};

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER_BYTES: usize = 16;
const REGISTER_BITS: usize = 6;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
const IS_OLD: u64 = 1 << 63;
/// The longest stretch of zeros in one byte.
const MAX_SHORT: usize = 64;
/// The longest stretch of a value.
const MAX_RUN: usize = 4;
/// The largest value of a stretch.
const MAX_SPARSE_VALUE: u8 = 32;
/// How many stretches are looked at for some that can be joined after a change.
const JOINED_STRETCHES: usize = 5;

/// The contents of the string are inconsistent.
const CORRUPTED: Failure = Failure::text("INVALIDOBJ Corrupted HLL object detected");
/// The string is no sketch.
const NO_SKETCH: Failure = Failure::text("WRONGTYPE Key is not a valid HyperLogLog string value.");

/// A form of the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Six bits each.
    Dense,
    /// Stretches.
    Sparse,
}

/// Registers with the same value, of a sparse sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stretch {
    /// Zeros in one byte.
    Short(usize),
    /// Zeros in two bytes.
    Long(usize),
    /// A value.
    Run(u8, usize),
}

impl Stretch {
    /// Returns the shortest form of this many zeros.
    const fn zeros(count: usize) -> Self {
        if count > MAX_SHORT { Self::Long(count) } else { Self::Short(count) }
    }

    /// Returns the stretch at the beginning of these bytes. After the last byte comes a zero.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (first, second) = (*bytes.first()?, bytes.get(1).copied().unwrap_or(0));
        Some(match first >> 6 {
            0 => Self::Short(usize::from(first & 0x3f) + 1),
            1 => Self::Long((usize::from(first & 0x3f) << 8 | usize::from(second)) + 1),
            _ => Self::Run((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1),
        })
    }

    fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Short(count) => bytes.push((count - 1) as u8),
            Self::Long(count) => bytes.extend_from_slice(&(0x4000 | (count - 1) as u16).to_be_bytes()),
            Self::Run(value, count) => bytes.push(0x80 | (value - 1) << 2 | (count - 1) as u8),
        }
    }

    /// Number of registers.
    pub(super) const fn count(self) -> usize {
        match self {
            Self::Short(count) | Self::Long(count) | Self::Run(_, count) => count,
        }
    }

    const fn value(self) -> u8 {
        match self {
            Self::Short(_) | Self::Long(_) => 0,
            Self::Run(value, _) => value,
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Short(_) | Self::Run(..) => 1,
            Self::Long(_) => 2,
        }
    }
}

/// A sketch: a string that has a header, and the right length if it is dense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sketch {
    bytes: Vec<u8>,
}

impl Sketch {
    /// Makes an empty sketch.
    pub(super) fn new() -> Self {
        let mut bytes = [&MAGIC[..], &[1], &[0; 11]].concat();
        Stretch::Long(REGISTERS).write(&mut bytes);
        Self { bytes }
    }

    /// The sketch in a string.
    pub(super) fn read(bytes: &[u8]) -> Outcome<Self> {
        let is_known = match (bytes.starts_with(MAGIC), bytes.get(4)) {
            (true, Some(0)) => bytes.len() == DENSE_BYTES,
            (true, Some(1)) => bytes.len() >= HEADER_BYTES,
            _ => false,
        };
        if is_known { Ok(Self { bytes: bytes.to_vec() }) } else { Err(NO_SKETCH) }
    }

    /// The string.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How registers are kept.
    pub(super) fn form(&self) -> Form {
        if self.bytes.get(4) == Some(&0) { Form::Dense } else { Form::Sparse }
    }

    fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// The stretches of a sparse sketch.
    pub(super) fn stretches(&self) -> impl Iterator<Item = Stretch> {
        let mut rest = self.body();
        std::iter::from_fn(move || {
            let stretch = Stretch::read(rest)?;
            rest = rest.get(stretch.len()..).unwrap_or_default();
            Some(stretch)
        })
    }

    /// The latest estimate, if nothing has changed since.
    pub(super) fn kept_estimate(&self) -> Option<u64> {
        let estimate = u64::from_le_bytes(*self.bytes.get(8..)?.first_chunk()?);
        (estimate & IS_OLD == 0).then_some(estimate)
    }

    fn set_estimate(&mut self, estimate: u64) {
        if let Some(place) = self.bytes.get_mut(8..HEADER_BYTES) {
            place.copy_from_slice(&estimate.to_le_bytes());
        }
    }

    /// Marks the kept estimate as old.
    pub(super) fn forget_estimate(&mut self) {
        if let Some(high) = self.bytes.get_mut(HEADER_BYTES - 1) {
            *high |= 0x80;
        }
    }

    /// Returns about how many different elements there are, and keeps that estimate.
    pub(super) fn estimate(&mut self) -> Outcome<u64> {
        let estimate = estimate_of(&self.registers()?);
        self.set_estimate(estimate);
        Ok(estimate)
    }

    /// All registers.
    pub(super) fn registers(&self) -> Outcome<Vec<u8>> {
        let mut registers = Vec::with_capacity(REGISTERS);
        match self.form() {
            Form::Dense => registers.extend((0..REGISTERS).map(|index| self.dense(index))),
            Form::Sparse => {
                for stretch in self.stretches() {
                    if registers.len() + stretch.count() > REGISTERS {
                        return Err(CORRUPTED);
                    }
                    registers.resize(registers.len() + stretch.count(), stretch.value());
                }
            }
        }
        if registers.len() == REGISTERS { Ok(registers) } else { Err(CORRUPTED) }
    }

    /// Adds an element. Returns true when something has changed.
    pub(super) fn add(&mut self, element: &[u8], max_sparse_bytes: usize) -> Outcome<bool> {
        let (index, rank) = estimate::place(element);
        self.raise(index, rank, max_sparse_bytes)
    }

    /// Raises a register to a value. Returns true when it was lower.
    pub(super) fn raise(&mut self, index: usize, value: u8, max_sparse_bytes: usize) -> Outcome<bool> {
        match self.form() {
            Form::Dense => {
                let is_lower = self.dense(index) < value;
                if is_lower {
                    self.set_dense(index, value);
                }
                Ok(is_lower)
            }
            Form::Sparse => self.raise_sparse(index, value, max_sparse_bytes),
        }
    }

    /// Makes the sketch dense, with six bits for each register. Returns false when it already is.
    pub(super) fn make_dense(&mut self) -> Outcome<bool> {
        if self.form() == Form::Dense {
            return Ok(false);
        }
        let registers = self.registers()?;
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.resize(DENSE_BYTES, 0);
        if let Some(form) = self.bytes.get_mut(4) {
            *form = 0;
        }
        for (index, &value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            self.set_dense(index, value);
        }
        Ok(true)
    }

    fn dense(&self, index: usize) -> u8 {
        let bit = index * REGISTER_BITS;
        let byte = |at: usize| u16::from(self.body().get(at).copied().unwrap_or(0));
        let word = byte(bit / 8) | byte(bit / 8 + 1) << 8;
        (word >> (bit % 8)) as u8 & (RANKS - 1) as u8
    }

    fn set_dense(&mut self, index: usize, value: u8) {
        let bit = index * REGISTER_BITS;
        let (mask, value) = (((RANKS - 1) as u16) << (bit % 8), u16::from(value) << (bit % 8));
        for (at, (mask, value)) in mask.to_le_bytes().into_iter().zip(value.to_le_bytes()).enumerate() {
            if let Some(byte) = self.bytes.get_mut(HEADER_BYTES + bit / 8 + at) {
                *byte = *byte & !mask | value;
            }
        }
    }

    fn raise_sparse(&mut self, index: usize, value: u8, max_sparse_bytes: usize) -> Outcome<bool> {
        if value > MAX_SPARSE_VALUE {
            return self.raise_densely(index, value);
        }
        let (mut at, mut before, mut first, mut found) = (HEADER_BYTES, HEADER_BYTES, 0, None);
        for stretch in self.stretches() {
            if index < first + stretch.count() {
                found = Some(stretch);
                break;
            }
            before = at;
            at += stretch.len();
            first += stretch.count();
        }
        let stretch = found.ok_or(CORRUPTED)?;
        if stretch.value() >= value {
            return Ok(false);
        }
        let mut new = Vec::with_capacity(5);
        let part = |count: usize| match stretch {
            Stretch::Run(value, _) => Stretch::Run(value, count),
            Stretch::Short(_) | Stretch::Long(_) => Stretch::zeros(count),
        };
        let (left, right) = (index - first, first + stretch.count() - 1 - index);
        if left > 0 {
            part(left).write(&mut new);
        }
        Stretch::Run(value, 1).write(&mut new);
        if right > 0 {
            part(right).write(&mut new);
        }
        if new.len() > stretch.len() && self.bytes.len() + new.len() - stretch.len() > max_sparse_bytes {
            return self.raise_densely(index, value);
        }
        self.bytes.splice(at..(at + stretch.len()).min(self.bytes.len()), new);
        self.join(before);
        self.forget_estimate();
        Ok(true)
    }

    fn raise_densely(&mut self, index: usize, value: u8) -> Outcome<bool> {
        self.make_dense()?;
        self.set_dense(index, value);
        Ok(true)
    }

    /// Joins neighbouring stretches of a value, from a place on.
    fn join(&mut self, mut at: usize) {
        let mut looks = 0;
        while looks < JOINED_STRETCHES {
            looks += 1;
            let Some(stretch) = self.bytes.get(at..).and_then(Stretch::read) else { return };
            let next = self.bytes.get(at + stretch.len()..).and_then(Stretch::read);
            if let (Stretch::Run(value, count), Some(Stretch::Run(other, more))) = (stretch, next)
                && value == other
                && count + more <= MAX_RUN
            {
                let mut joined = Vec::new();
                Stretch::Run(value, count + more).write(&mut joined);
                self.bytes.splice(at..at + 2, joined);
            } else {
                at += stretch.len();
            }
        }
    }
}

/// Returns about how many different elements there are, from the values of all registers.
pub(super) fn estimate_of(registers: &[u8]) -> u64 {
    let mut histogram = [0; RANKS];
    for &value in registers {
        if let Some(count) = histogram.get_mut(usize::from(value)) {
            *count += 1;
        }
    }
    estimate::cardinality(&histogram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(sketch: &Sketch) -> String {
        sketch.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes_of_sketches() {
        let mut sketch = Sketch::new();
        assert_eq!(hex(&sketch), "48594c4c0100000000000000000000007fff");
        for (index, value) in [(100, 1), (101, 1), (16_383, 32), (0, 2)] {
            assert!(sketch.raise(index, value, 3000).unwrap());
        }
        assert_eq!(hex(&sketch), "48594c4c010000000000000000000080844062817f98fc");
        sketch.estimate().unwrap();
        assert_eq!(hex(&sketch), "48594c4c010000000400000000000000844062817f98fc");
        assert!(sketch.make_dense().unwrap());
        assert_eq!(sketch.bytes.len(), 12_304);
        assert_eq!(sketch.bytes[..HEADER_BYTES + 1], *b"HYLL\0\0\0\0\x04\0\0\0\0\0\0\0\x02");
        assert_eq!(sketch.bytes[HEADER_BYTES + 75..HEADER_BYTES + 77], [0x41, 0]);
        assert_eq!(sketch.bytes[12_303], 0x80);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_forms_hold_the_same(changes in prop::collection::vec((0..REGISTERS, 1_u8..51), 1..200), most in 18_usize..200) {
            let (mut sparse, mut dense) = (Sketch::new(), Sketch::new());
            dense.make_dense().unwrap();
            for (index, value) in changes {
                let index = if value % 2 == 0 { index % 300 } else { index };
                let was = dense.raise(index, value, 0).unwrap();
                prop_assert_eq!(sparse.raise(index, value, most).unwrap(), was);
            }
            prop_assert_eq!(sparse.registers().unwrap(), dense.registers().unwrap());
            prop_assert_eq!(sparse.estimate().unwrap(), dense.estimate().unwrap());
            prop_assert_eq!(sparse.kept_estimate(), dense.kept_estimate());
        }

        #[test]
        fn any_stretches_give_registers_or_an_error(body in prop::collection::vec(any::<u8>(), 0..300), index in 0..REGISTERS) {
            let bytes = [&Sketch::new().bytes[..HEADER_BYTES], &body[..]].concat();
            let mut sketch = Sketch::read(&bytes).unwrap();
            let _ = sketch.registers();
            let _ = sketch.estimate();
            let _ = sketch.raise(index, 7, 3000);
            let _ = sketch.make_dense();
        }
    }
}
