//! Objects: each exists as a whole or not at all, and everything acknowledged exists.

use super::World;
use crate::{Finding, check};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{ObjectName, PutMode};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Act {
    Put(usize, Bytes, PutMode),
    Stream(usize, Vec<Bytes>),
    Delete(usize),
}

fn names() -> Vec<ObjectName> {
    ["a", "table/1", "table/2", "table/old/1"].map(|text| ObjectName::new(text).expect("it is a name")).to_vec()
}

fn script(random: &mut Random) -> Vec<Act> {
    let bytes = |random: &mut Random, most: u64| {
        let mut bytes = vec![0; random.below(most) as usize];
        random.fill(&mut bytes);
        Bytes::from(bytes)
    };
    (0..14)
        .map(|_| {
            let name = random.below(4) as usize;
            match random.below(8) {
                0 => Act::Delete(name),
                1 | 2 => Act::Stream(name, (0..random.below(4)).map(|_| bytes(random, 900)).collect()),
                3 | 4 => Act::Put(name, bytes(random, 2000), PutMode::Replace),
                _ => Act::Put(name, bytes(random, 2000), PutMode::IfAbsent),
            }
        })
        .collect()
}

/// The states that each object can be in. `None` means absent.
type May = BTreeMap<ObjectName, States>;

#[derive(Debug, Clone)]
struct States {
    now: Vec<Option<Bytes>>,
    /// States that it may reach later, because a request may arrive late.
    later: Vec<Option<Bytes>>,
}

impl States {
    fn contains(&self, state: &Option<Bytes>) -> bool {
        self.now.contains(state) || self.later.contains(state)
    }
}

/// Runs the script. Returns the possible states of each object afterwards.
fn run<W: World>(world: &W, acts: &[Act]) -> Result<May, Finding> {
    let storage = world.storage();
    let objects = storage.objects();
    let names = names();
    let mut may: May = names.iter().map(|name| (name.clone(), States { now: vec![None], later: Vec::new() })).collect();
    for act in acts {
        let (name, value, mode) = match act {
            Act::Put(name, bytes, mode) => (*name, Some(bytes.clone()), *mode),
            Act::Stream(name, pieces) => (*name, Some(Bytes::from(pieces.concat())), PutMode::Replace),
            Act::Delete(name) => (*name, None, PutMode::Replace),
        };
        let name = &names[name];
        let states = may.get_mut(name).ok_or("no such name")?;
        let done = match act {
            Act::Put(_, bytes, mode) => objects.put(name, bytes.clone(), *mode),
            Act::Stream(_, pieces) => objects.writer(name).and_then(|mut writer| {
                pieces.iter().try_for_each(|piece| writer.write(piece.clone()))?;
                writer.finish()
            }),
            Act::Delete(_) => objects.delete(name),
        };
        match done {
            // A deletion may come undone.
            Ok(()) if value.is_none() => states.now.push(None),
            Ok(()) => {
                check(mode != PutMode::IfAbsent || states.contains(&None), || format!("{name} was put twice"))?;
                states.now = vec![value];
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                check(
                    mode == PutMode::IfAbsent && states.now.iter().chain(&states.later).any(Option::is_some),
                    || format!("{name} is there?"),
                )?;
                states.now.retain(Option::is_some);
            }
            Err(error) if W::IS_LATE && error.is_undecided() => states.later.push(value),
            Err(_) => states.now.push(value),
        }
    }
    Ok(may)
}

fn judge<W: World>(world: &W, may: &May) -> Result<(), Finding> {
    let storage = world.handle().storage();
    // Late requests arrive first.
    (0..8).for_each(|_| drop(storage.objects().list(None)));
    let listed = storage.objects().list(None).map_err(|error| format!("they cannot be listed: {error}"))?;
    for object in &listed {
        let size = storage.objects().get(&object.name).map(|bytes| bytes.len() as u64);
        check(size.as_ref().ok() == Some(&object.size_bytes), || {
            format!("{} is listed, and is {size:?}", object.name)
        })?;
        check(may.contains_key(&object.name), || format!("{} was never put", object.name))?;
    }
    for (name, states) in may {
        let found = match storage.objects().get(name) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        check(listed.iter().any(|object| object.name == *name) == found.is_some(), || format!("{name} is not listed"))?;
        check(states.contains(&found), || {
            format!("{name} is something else than was put: {:?}", found.map(|f| f.len()))
        })?;
    }
    Ok(())
}

/// Runs a seed's script with each kind of crash and fault at each step. Returns the number of runs.
///
/// # Errors
/// What is wrong, and where.
pub fn objects<W: World>(seed: u64) -> Result<u64, Finding> {
    let mut random = Random::seeded(seed);
    let acts = script(&mut random);
    let world = W::default();
    judge(&world, &run(&world, &acts)?)?;
    let mut runs = 0;
    for step in 0..world.steps() {
        for what in 0..=W::FAULTS {
            let at = |finding| format!("{} objects, seed {seed}, case {what} at step {step}: {finding}", W::NAME);
            let world = W::default();
            match what.checked_sub(1) {
                None => world.end_at(step),
                Some(fault) => world.fail_at(step, fault),
            }
            let may = run(&world, &acts).map_err(at)?;
            // Images of what exists before a list: a list makes what it shows survive.
            for _ in 0..3 {
                let image = world.duplicate();
                image.lose_power(&mut random);
                judge(&image, &may).map_err(at)?;
            }
            judge(&world, &may).map_err(at)?;
            runs += 1;
        }
    }
    Ok(runs)
}
