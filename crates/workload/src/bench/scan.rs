//! The workloads that scan keys.

use super::settings::Inputs;
use crate::keys::KeyBuffer;
use crate::measure::{Call, Worker};
use crate::{Cursor, Error, Store};

pub(super) fn sequential<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut scan = Scan::new(inputs);
    let mut cursor = store.cursor().map_err(Error::store("opening an iterator"))?;
    cursor.seek_to_first().map_err(Error::store("seek to first"))?;
    let mut left = inputs.operations;
    while left > 0 && !worker.stopped() {
        let there = if inputs.settings.verify { scan.check(&cursor)?.is_some() } else { cursor.entry().is_some() };
        if !there {
            break;
        }
        worker.found += 1;
        left -= 1;
        // As in db_bench, an operation is a record and the step after it.
        cursor.next().map_err(Error::store("next"))?;
        worker.finish(Call::Next, 1)?;
    }
    Ok(())
}

/// Walks over all records, again and again, until the other threads are done.
pub(super) fn scan_meanwhile<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    while !worker.stopped() {
        let mut scan = Scan::new(inputs);
        let mut cursor = store.cursor().map_err(Error::store("opening an iterator"))?;
        cursor.seek_to_first().map_err(Error::store("seek to first"))?;
        while !worker.stopped() && scan.check(&cursor)?.is_some() {
            cursor.next().map_err(Error::store("next"))?;
            worker.finish(Call::Next, 1)?;
        }
    }
    Ok(())
}

pub(super) fn seek<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    for _ in 0..inputs.operations {
        if worker.stopped() {
            break;
        }
        let number = random.below(inputs.settings.num);
        let mut scan = Scan::new(inputs);
        let mut cursor = store.cursor().map_err(Error::store("opening an iterator"))?;
        cursor.seek(keys.set(number)).map_err(Error::store("seek"))?;
        let first = scan.check(&cursor)?;
        if first.is_some_and(|first| first < number) && inputs.settings.verify {
            return Err(Error::Scan { what: "seek", found: format!("key number {first:?} when looking for {number}") });
        }
        worker.found += u64::from(first == Some(number));
        for _ in 0..inputs.settings.seek_nexts {
            if cursor.entry().is_none() {
                break;
            }
            cursor.next().map_err(Error::store("next"))?;
            if inputs.settings.verify {
                scan.check(&cursor)?;
            }
        }
        worker.finish(Call::Seek, 1)?;
    }
    Ok(())
}

/// Checks that successive records are whole, and that their keys ascend.
struct Scan<'a> {
    inputs: &'a Inputs,
    keys: &'a KeyBuffer,
    last: Option<u64>,
}

impl<'a> Scan<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        Self { inputs, keys: &inputs.keys, last: None }
    }

    /// Checks the current record of `cursor`, if there is one, and returns its key's number.
    fn check(&mut self, cursor: &impl Cursor) -> Result<Option<u64>, Error> {
        let Some((key, value)) = cursor.entry() else { return Ok(None) };
        let Some(number) = self.keys.number_of(key) else {
            return Err(Error::Scan { what: "scan", found: format!("a key of {} bytes of somebody else", key.len()) });
        };
        if self.inputs.settings.verify {
            if self.last.is_some_and(|last| last >= number) {
                return Err(Error::Scan { what: "scan", found: format!("key {number} behind {:?}", self.last) });
            }
            self.last = Some(number);
            self.inputs.check_value("scan", number, value)?;
        }
        Ok(Some(number))
    }
}
