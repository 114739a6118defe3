//! The workloads on single keys.

use super::settings::Inputs;
use crate::measure::{Call, Worker};
use crate::{Error, Store};

/// The order in which keys are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Random,
}

pub(super) fn write<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs, order: Order) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    let mut value = inputs.values.buffer();
    for operation in 0..inputs.operations {
        worker.keep_rate(inputs.settings.write_rate, operation);
        if worker.stopped() {
            break;
        }
        let number = match order {
            Order::Ascending => operation % inputs.settings.num,
            Order::Random => random.below(inputs.settings.num),
        };
        put(store, worker, inputs, (number, keys.set(number)), operation, &mut value)?;
    }
    Ok(())
}

/// Writes keys drawn at random until the other threads are done.
pub(super) fn write_meanwhile<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    let mut value = inputs.values.buffer();
    for operation in 0.. {
        worker.keep_rate(inputs.settings.write_rate, operation);
        if worker.stopped() {
            break;
        }
        let number = random.below(inputs.settings.num);
        put(store, worker, inputs, (number, keys.set(number)), operation, &mut value)?;
    }
    Ok(())
}

/// Writes a record. A value is generated for its key only if it will be verified.
#[inline]
fn put<S: Store>(
    store: &S,
    worker: &mut Worker,
    inputs: &Inputs,
    (number, key): (u64, &[u8]),
    operation: u64,
    buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let value = if inputs.settings.verify {
        inputs.values.fill(number, inputs.version(worker.index, operation), buffer);
        buffer.as_slice()
    } else {
        inputs.values.unverified(operation)
    };
    store.put(key, value).map_err(Error::store("put"))?;
    worker.finish(Call::Put, 1)
}

pub(super) fn read<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    for _ in 0..inputs.operations {
        if worker.stopped() {
            break;
        }
        let number = random.below(inputs.settings.num);
        get(store, worker, inputs, number, keys.set(number))?;
    }
    Ok(())
}

#[inline]
fn get<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs, number: u64, key: &[u8]) -> Result<(), Error> {
    let checked = store.get_with(key, |value| inputs.check_value("get", number, value));
    if let Some(checked) = checked.map_err(Error::store("get"))? {
        checked?;
        worker.found += 1;
    }
    worker.finish(Call::Get, 1)
}

pub(super) fn read_missing<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    let mut longer = Vec::with_capacity(inputs.settings.key_size + 1);
    for _ in 0..inputs.operations {
        if worker.stopped() {
            break;
        }
        let number = random.below(inputs.settings.num);
        longer.clear();
        longer.extend_from_slice(keys.set(number));
        longer.push(b'.');
        if store.get(&longer).map_err(Error::store("get"))?.is_some() {
            worker.found += 1;
            if inputs.settings.verify {
                let found = "a value under a key that was never written".into();
                return Err(Error::Verification { what: "get", key: number, found });
            }
        }
        worker.finish(Call::Get, 1)?;
    }
    Ok(())
}

pub(super) fn multi_read<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let settings = &inputs.settings;
    let mut random = inputs.random(worker.index);
    let mut keys = vec![inputs.keys.clone(); settings.batch_size];
    let mut numbers = vec![0; settings.batch_size];
    let mut left = inputs.operations;
    while left > 0 && !worker.stopped() {
        let batch = left.min(settings.batch_size as u64) as usize;
        let mut number = random.below(settings.num);
        let mut wanted = Vec::with_capacity(batch);
        for (place, key) in keys.iter_mut().take(batch).enumerate() {
            if place > 0 {
                number = match settings.multiread_stride {
                    0 => random.below(settings.num),
                    stride => number.wrapping_add(stride) % settings.num,
                };
            }
            numbers[place] = number;
            wanted.push(key.set(number));
        }
        let values = if settings.multiread_batched {
            store.multi_get(&wanted)
        } else {
            wanted.iter().map(|key| store.get(key)).collect()
        };
        let values = values.map_err(Error::store("multiget"))?;
        if values.len() != batch {
            let found = format!("{} values for {batch} keys", values.len());
            return Err(Error::Verification { what: "multiget", key: numbers[0], found });
        }
        for (&number, value) in numbers.iter().zip(&values) {
            if let Some(value) = value {
                inputs.check_value("multiget", number, value)?;
                worker.found += 1;
            }
        }
        worker.finish(Call::MultiGet, batch as u64)?;
        left -= batch as u64;
    }
    Ok(())
}

pub(super) fn read_and_write<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let settings = &inputs.settings;
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    let mut value = inputs.values.buffer();
    for operation in 0..inputs.operations {
        if worker.stopped() {
            break;
        }
        let number = random.below(settings.num);
        let key = keys.set(number);
        if operation % 100 < u64::from(settings.read_write_percent) {
            get(store, worker, inputs, number, key)?;
        } else {
            put(store, worker, inputs, (number, key), operation, &mut value)?;
        }
    }
    Ok(())
}

pub(super) fn delete<S: Store>(store: &S, worker: &mut Worker, inputs: &Inputs) -> Result<(), Error> {
    let mut random = inputs.random(worker.index);
    let mut keys = inputs.keys.clone();
    for _ in 0..inputs.operations {
        if worker.stopped() {
            break;
        }
        let number = random.below(inputs.settings.num);
        store.delete(keys.set(number)).map_err(Error::store("delete"))?;
        worker.finish(Call::Delete, 1)?;
    }
    Ok(())
}
