//! Commands about sketches.

use super::sketch::{self, Form, Sketch, Stretch};
use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ADMIN, DENYOOM, FAST, MAY_REPLICATE, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::text::shown;

const FAMILY: Family = Family::HyperLogLog;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "pfadd", -2, WRITE | DENYOOM | FAST, pfadd)
        .keys(1, 1, 1)
        .doc("2.8.9", "Adds elements to a sketch."),
    // It may write, because it stores the estimate.
    Command::new(FAMILY, "pfcount", -2, READONLY | MAY_REPLICATE, pfcount)
        .keys(1, -1, 1)
        .doc("2.8.9", "Estimates the number of different elements."),
    Command::new(FAMILY, "pfdebug", 3, WRITE | DENYOOM | ADMIN, pfdebug)
        .keys(2, 2, 1)
        .doc("2.8.9", "Shows what a sketch is made of."),
    Command::new(FAMILY, "pfmerge", -2, WRITE | DENYOOM, pfmerge)
        .keys(1, -1, 1)
        .doc("2.8.9", "Merges sketches into the first one."),
    Command::new(FAMILY, "pfselftest", 1, ADMIN, pfselftest)
        .doc("2.8.9", "Replies that sketches are right, which tests verify."),
];

fn max_sparse_bytes(cx: &Context<'_, '_>) -> usize {
    usize::try_from(cx.shared.config.number("hll-sparse-max-bytes")).unwrap_or(0)
}

fn sketch(cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome<Option<Sketch>> {
    cx.string(key)?.map(|bytes| Sketch::read(&bytes)).transpose()
}

fn pfadd(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (key, most) = (arguments.at(1), max_sparse_bytes(cx));
    let found = sketch(cx, key)?;
    let mut is_changed = found.is_none();
    let mut sketch = found.unwrap_or_else(Sketch::new);
    for element in arguments.from(2) {
        is_changed |= sketch.add(element, most)?;
    }
    if is_changed {
        sketch.forget_estimate();
        cx.set_string(key, sketch.into_bytes())?;
        cx.notify(Class::STRING, "pfadd", key);
    }
    cx.out.integer(i64::from(is_changed));
    Ok(())
}

/// Returns the largest value of each register over several sketches, and whether one of them is dense.
fn union(cx: &mut Context<'_, '_>, keys: &[&[u8]]) -> Outcome<(Vec<u8>, bool)> {
    let (mut largest, mut is_dense) = (Sketch::new().registers()?, false);
    for key in keys {
        let Some(sketch) = sketch(cx, key)? else { continue };
        is_dense |= sketch.form() == Form::Dense;
        for (largest, value) in largest.iter_mut().zip(sketch.registers()?) {
            *largest = value.max(*largest);
        }
    }
    Ok((largest, is_dense))
}

fn pfcount(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let keys = arguments.from(1);
    let estimate = match keys {
        [key] => match sketch(cx, key)? {
            None => 0,
            Some(mut sketch) => match sketch.kept_estimate() {
                Some(estimate) => estimate,
                None => {
                    let estimate = sketch.estimate()?;
                    cx.set_string(key, sketch.into_bytes())?;
                    estimate
                }
            },
        },
        _ => sketch::estimate_of(&union(cx, keys)?.0),
    };
    cx.out.integer(estimate as i64);
    Ok(())
}

fn pfmerge(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (registers, is_dense) = union(cx, arguments.from(1))?;
    let (key, most) = (arguments.at(1), max_sparse_bytes(cx));
    let mut target = sketch(cx, key)?.unwrap_or_else(Sketch::new);
    if is_dense {
        target.make_dense()?;
    }
    for (index, &value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        target.raise(index, value, most)?;
    }
    target.forget_estimate();
    cx.set_string(key, target.into_bytes())?;
    cx.notify(Class::STRING, "pfadd", key);
    cx.out.ok();
    Ok(())
}

fn pfdebug(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(2);
    let found = sketch(cx, key)?;
    let mut sketch = found.ok_or(Failure::text("ERR The specified key does not exist"))?;
    match () {
        () if arguments.is(1, "GETREG") => {
            let registers = sketch.registers()?;
            if sketch.make_dense()? {
                cx.set_string(key, sketch.into_bytes())?;
            }
            cx.out.array(registers.len());
            registers.iter().for_each(|&value| cx.out.integer(i64::from(value)));
        }
        () if arguments.is(1, "DECODE") => {
            if sketch.form() == Form::Dense {
                return Err(Failure::text("ERR HLL encoding is not sparse"));
            }
            let shown: Vec<String> = sketch.stretches().map(shown_stretch).collect();
            cx.out.bulk(shown.join(" "));
        }
        () if arguments.is(1, "ENCODING") => cx.out.simple(match sketch.form() {
            Form::Dense => "dense",
            Form::Sparse => "sparse",
        }),
        () if arguments.is(1, "TODENSE") => {
            let is_changed = sketch.make_dense()?;
            if is_changed {
                cx.set_string(key, sketch.into_bytes())?;
            }
            cx.out.integer(i64::from(is_changed));
        }
        () => {
            let name = shown::short(arguments.at(1), 128);
            return Err(Failure::new(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
        }
    }
    Ok(())
}

fn shown_stretch(stretch: Stretch) -> String {
    match stretch {
        Stretch::Short(count) => format!("z:{count}"),
        Stretch::Long(count) => format!("Z:{count}"),
        Stretch::Run(value, count) => format!("v:{value},{count}"),
    }
}

fn pfselftest(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.ok();
    Ok(())
}
