//! `BITFIELD`: a string as an array of integers of any width.

use crate::commands::arguments::Arguments;
use crate::commands::bitmaps::bit_offset;
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::text::number;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(Family::Bitmap, "bitfield", -2, WRITE | DENYOOM, bitfield)
        .keys(1, 1, 1)
        .doc("3.2.0", "Reads and changes integers in a string."),
    Command::new(Family::Bitmap, "bitfield_ro", -2, READONLY | FAST, bitfield_ro)
        .keys(1, 1, 1)
        .doc("6.0.0", "Reads integers in a string."),
];

const INVALID_TYPE: Failure =
    Failure::text("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");

/// The type of an integer in a string.
#[derive(Clone, Copy)]
struct Integer {
    is_signed: bool,
    bits: u32,
}

impl Integer {
    fn parse(text: &[u8]) -> Outcome<Self> {
        let (sign, bits) = text.split_first().ok_or(INVALID_TYPE)?;
        let is_signed = match sign {
            b'i' => true,
            b'u' => false,
            _ => return Err(INVALID_TYPE),
        };
        let most = if is_signed { 64 } else { 63 };
        let bits = number::integer(bits).filter(|bits| (1..=most).contains(bits)).ok_or(INVALID_TYPE)?;
        Ok(Self { is_signed, bits: bits as u32 })
    }

    const fn limits(self) -> (i128, i128) {
        if self.is_signed { (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) } else { (0, (1 << self.bits) - 1) }
    }

    /// The value in the low bits of `raw`.
    const fn value(self, raw: u64) -> i64 {
        let unused = 64 - self.bits;
        if self.is_signed { (raw << unused) as i64 >> unused } else { raw as i64 }
    }

    fn read(self, bytes: &[u8], offset: u64) -> i64 {
        let mut raw = 0;
        for at in offset..offset + u64::from(self.bits) {
            let byte = usize::try_from(at >> 3).ok().and_then(|byte| bytes.get(byte)).copied().unwrap_or(0);
            raw = raw << 1 | u64::from(byte >> (7 - (at & 7)) & 1);
        }
        self.value(raw)
    }

    fn write(self, bytes: &mut [u8], offset: u64, value: i64) {
        for bit in 0..u64::from(self.bits) {
            let at = offset + bit;
            let is_set = value as u64 >> (u64::from(self.bits) - 1 - bit) & 1;
            let shift = 7 - (at & 7);
            if let Some(byte) = usize::try_from(at >> 3).ok().and_then(|byte| bytes.get_mut(byte)) {
                *byte = *byte & !(1 << shift) | (is_set as u8) << shift;
            }
        }
    }

    /// Returns the value that is stored for `wanted`.
    fn fit(self, wanted: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.limits();
        if (least..=most).contains(&wanted) {
            return i64::try_from(wanted).ok();
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => i64::try_from(wanted.clamp(least, most)).ok(),
            Overflow::Wrap => {
                let mask = if self.bits == 64 { u64::MAX } else { (1 << self.bits) - 1 };
                Some(self.value(wanted as u64 & mask))
            }
        }
    }
}

/// What happens with a value that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

struct Step {
    action: Action,
    integer: Integer,
    offset: u64,
    overflow: Overflow,
}

fn steps(cx: &Context<'_, '_>, arguments: Arguments<'_>) -> Outcome<Vec<Step>> {
    let mut words = arguments.words(2);
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let Some(word) = words.word() {
        let is = |name: &str, more: usize| word.eq_ignore_ascii_case(name.as_bytes()) && words.left() >= more;
        let kind = match () {
            () if is("GET", 2) => 0,
            () if is("SET", 3) => 1,
            () if is("INCRBY", 3) => 2,
            () if is("OVERFLOW", 1) => {
                overflow = match words.word().unwrap_or_default() {
                    name if name.eq_ignore_ascii_case(b"WRAP") => Overflow::Wrap,
                    name if name.eq_ignore_ascii_case(b"SAT") => Overflow::Saturate,
                    name if name.eq_ignore_ascii_case(b"FAIL") => Overflow::Fail,
                    _ => return Err(Failure::text("ERR Invalid OVERFLOW type specified")),
                };
                continue;
            }
            () => return Err(Failure::SYNTAX),
        };
        let integer = Integer::parse(words.word().unwrap_or_default())?;
        let offset = field_offset(cx, words.word().unwrap_or_default(), integer)?;
        let mut value = || words.word().and_then(number::integer).ok_or(Failure::NOT_INTEGER);
        let action = match kind {
            0 => Action::Get,
            1 => Action::Set(value()?),
            _ => Action::Increment(value()?),
        };
        steps.push(Step { action, integer, offset, overflow });
    }
    Ok(steps)
}

/// `#3` is the place of the fourth integer of this type.
fn field_offset(cx: &Context<'_, '_>, text: &[u8], integer: Integer) -> Outcome<u64> {
    let Some(number) = text.strip_prefix(b"#") else { return bit_offset(cx, text) };
    let bits = number::integer(number).and_then(|number| number.checked_mul(i64::from(integer.bits)));
    bit_offset(cx, &bits.map(number::integer_text).unwrap_or_default())
}

fn bitfield(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let steps = steps(cx, arguments)?;
    carry_out(cx, arguments.at(1), &steps)
}

fn bitfield_ro(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let steps = steps(cx, arguments)?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(Failure::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    carry_out(cx, arguments.at(1), &steps)
}

fn carry_out(cx: &mut Context<'_, '_>, key: &[u8], steps: &[Step]) -> Outcome {
    let former = cx.string(key)?;
    let mut is_longer = former.is_none();
    let mut bytes = former.unwrap_or_default().to_vec();
    let writing = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let needed = writing.map(|step| (step.offset + u64::from(step.integer.bits)).div_ceil(8)).max();
    if let Some(needed) = needed {
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        if needed > bytes.len() {
            crate::commands::strings::check_length(cx, needed as u64)?;
            bytes.resize(needed, 0);
            is_longer = true;
        }
    }
    is_longer &= needed.is_some();
    let mut is_changed = false;
    cx.out.array(steps.len());
    for step in steps {
        let former = step.integer.read(&bytes, step.offset);
        let (value, reply) = match step.action {
            Action::Get => (None, Some(former)),
            Action::Set(value) => {
                // A negative value of an unsigned integer is the large number with these bits.
                let wanted = if step.integer.is_signed { i128::from(value) } else { i128::from(value as u64) };
                let value = step.integer.fit(wanted, step.overflow);
                (value, value.map(|_| former))
            }
            Action::Increment(by) => {
                let value = step.integer.fit(i128::from(former) + i128::from(by), step.overflow);
                (value, value)
            }
        };
        if let Some(value) = value {
            step.integer.write(&mut bytes, step.offset, value);
            is_changed |= is_longer || value != former;
        }
        match reply {
            Some(reply) => cx.out.integer(reply),
            None => cx.out.null(),
        }
    }
    // The string grows even if no value fits.
    if is_changed || is_longer {
        cx.set_string(key, bytes)?;
        if is_changed {
            cx.notify(Class::STRING, "setbit", key);
        }
    }
    Ok(())
}
