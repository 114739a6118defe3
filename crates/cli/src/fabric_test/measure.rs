//! Runs the cells.

use forebay_env::{Clock, Random, SystemClock};
use forebay_fabric::{Endpoint, EndpointOptions, Error, Link, Outcome, RemoteAddress};
use forebay_workload::Latencies;
use std::sync::Arc;
use std::time::Duration;

/// One batch in this many is timed separately.
const SAMPLE_EVERY: u32 = 16;
/// Number of addresses drawn in advance.
const ADDRESSES: usize = 1 << 14;

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Operation {
    /// One-sided read.
    Read,
    /// One-sided write.
    Write,
    /// Compare-and-swap.
    Cas,
    /// Fetch-and-add.
    Faa,
    /// A message to the node and its reply, which the node writes into this side's memory (RPC).
    Message,
}

impl Operation {
    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Cas => "cas",
            Self::Faa => "faa",
            Self::Message => "message",
        }
    }

    const fn has_size(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The cells to run, and the time for each.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Operations.
    pub operations: Vec<Operation>,
    /// Sizes of reads and writes in bytes.
    pub sizes: Vec<usize>,
    /// Operations per batch.
    pub depths: Vec<usize>,
    /// Time for each cell.
    pub time: Duration,
}

/// Calls a procedure of the node that does almost nothing.
pub type Ping = Box<dyn FnMut() -> Result<(), Error>>;

/// Writable remote memory, and how to reach it.
pub struct Target {
    /// The link.
    pub link: Arc<dyn Link>,
    /// The start of each range.
    pub starts: Vec<RemoteAddress>,
    /// Length of each range in bytes.
    pub length: u64,
    /// An RPC, if the node answers them.
    pub ping: Option<Ping>,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The operation.
    pub operation: Operation,
    /// Bytes of each operation.
    pub size: usize,
    /// Operations per batch.
    pub depth: usize,
    /// Median time of a batch in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the time of a batch in microseconds.
    pub p99_us: f64,
    /// Operations per second.
    pub ops_per_second: f64,
    /// Number of operations done.
    pub operations: u64,
}

/// Runs the plan's cells in order and passes each result to `tell`.
///
/// # Errors
/// The error of the first failed operation, and errors of `tell`.
pub fn run<E: From<Error>>(
    target: &mut Target,
    plan: &Plan,
    tell: &mut dyn FnMut(Cell) -> Result<(), E>,
) -> Result<(), E> {
    let clock = SystemClock::shared();
    touch(target)?;
    for &operation in &plan.operations {
        let sizes: &[usize] = if operation.has_size() { &plan.sizes } else { &[8] };
        for &size in sizes {
            for &depth in &plan.depths {
                let shape = Shape { operation, size, depth };
                if operation == Operation::Message {
                    // One call is in flight at a time on an RPC client.
                    if let Some(ping) = target.ping.as_mut().filter(|_| depth == 1) {
                        tell(time_batches(&*clock, plan.time, shape, &mut |_| ping())?)?;
                    }
                    continue;
                }
                let mut endpoint = target.link.endpoint(EndpointOptions::default())?;
                let addresses = draw(target, size);
                let mut batch = |first: usize| one_batch(&mut endpoint, shape, &addresses, first);
                tell(time_batches(&*clock, plan.time, shape, &mut batch)?)?;
            }
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    operation: Operation,
    size: usize,
    depth: usize,
}

/// Random addresses, so that neither a cache nor a prefetcher of the target helps.
fn draw(target: &Target, size: usize) -> Vec<RemoteAddress> {
    let mut random = Random::seeded(size as u64);
    let step = size.next_multiple_of(8).max(8) as u64;
    let places = (target.length / step).max(1);
    let mut draw = || {
        let start = target.starts.get(random.below(target.starts.len() as u64) as usize)?;
        Some(start.add(random.below(places) * step))
    };
    (0..ADDRESSES).filter_map(|_| draw()).collect()
}

/// Writes the whole target once, so that no cell pays for memory that was never touched.
fn touch(target: &Target) -> Result<(), Error> {
    let mut endpoint = target.link.endpoint(EndpointOptions::background())?;
    let piece = (1 << 20).min(target.length) as usize;
    for start in &target.starts {
        for offset in (0..target.length).step_by(piece) {
            let length = piece.min((target.length - offset) as usize);
            endpoint.write(start.add(offset), &vec![0; length])?;
        }
    }
    Ok(())
}

fn time_batches(
    clock: &dyn Clock,
    time: Duration,
    shape: Shape,
    batch: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<Cell, Error> {
    let mut latencies = Latencies::new().map_err(|e| Error::Invalid(e.to_string()))?;
    let limit = time.as_nanos() as u64;
    // Maps memory, makes buffers and trains branches before the clock starts.
    for first in 0..SAMPLE_EVERY as usize {
        batch(first)?;
    }
    let (start, mut batches) = (clock.now(), 0_u64);
    let elapsed = loop {
        let before = clock.now();
        batch(batches as usize)?;
        let after = clock.now();
        latencies.record(after - before);
        batches += 1;
        if after - start >= limit {
            break after - start;
        }
        for _ in 1..SAMPLE_EVERY {
            batch(batches as usize)?;
            batches += 1;
        }
    };
    let operations = batches * shape.depth as u64;
    Ok(Cell {
        operation: shape.operation,
        size: shape.size,
        depth: shape.depth,
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        ops_per_second: operations as f64 * 1e9 / elapsed.max(1) as f64,
        operations,
    })
}

/// Posts a batch, rings one doorbell and waits for all of it.
fn one_batch(endpoint: &mut Endpoint, shape: Shape, addresses: &[RemoteAddress], first: usize) -> Result<(), Error> {
    for place in 0..shape.depth {
        let Some(&at) = addresses.get((first * shape.depth + place) % ADDRESSES) else { continue };
        match shape.operation {
            Operation::Read => {
                let slot = endpoint.slot(shape.size)?;
                endpoint.post_read(at, slot)?;
            }
            Operation::Write => {
                let slot = endpoint.slot(shape.size)?;
                endpoint.post_write(at, slot)?;
            }
            Operation::Cas => {
                endpoint.post_compare_swap(at, 0, 1)?;
            }
            Operation::Faa | Operation::Message => {
                endpoint.post_fetch_add(at, 1)?;
            }
        }
    }
    endpoint.wait_all(|_, outcome| match outcome {
        Outcome::Read(slot) => Some(slot),
        Outcome::Done(slot) => slot,
        Outcome::Word(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::{Event, Listener, Rights, inprocess};

    #[test]
    fn every_cell_is_run_and_counted() {
        let (mut node, connector) = inprocess::listen(1).unwrap();
        let link = connector.connect().unwrap();
        let region = node.allocate(1 << 16).unwrap();
        let Some(Event::Joined(peer)) = node.next(Duration::from_secs(1)).unwrap() else { panic!("nobody joined") };
        let start = peer.grant(&region, 0, 1 << 16, Rights::ALL).unwrap().at(0);
        let ping: Ping = Box::new(|| Ok(()));
        let mut target = Target { link: Arc::clone(&link), starts: vec![start], length: 1 << 16, ping: Some(ping) };
        use Operation::{Cas, Faa, Message, Read, Write};
        let plan = Plan {
            operations: vec![Read, Write, Cas, Faa, Message],
            sizes: vec![8, 100],
            depths: vec![1, 16],
            time: Duration::from_millis(1),
        };
        let mut cells = Vec::new();
        run::<Error>(&mut target, &plan, &mut |cell| {
            cells.push(cell);
            Ok(())
        })
        .unwrap();
        assert_eq!(cells.len(), 2 * 2 * 2 + 2 * 2 + 1);
        assert!(cells.iter().all(|cell| cell.ops_per_second > 0.0 && cell.p50_us <= cell.p99_us));
        let done = |wanted: &[Operation]| {
            let of = cells.iter().filter(|cell| wanted.contains(&cell.operation));
            of.map(|cell| cell.operations + u64::from(SAMPLE_EVERY) * cell.depth as u64).sum::<u64>()
        };
        let counts = link.counts(forebay_fabric::Traffic::Foreground);
        assert_eq!((counts.reads, counts.writes, counts.atomics), (done(&[Read]), done(&[Write]), done(&[Cas, Faa])));
        let batches: u64 = cells
            .iter()
            .filter(|cell| cell.operation != Message)
            .map(|cell| cell.operations / cell.depth as u64 + u64::from(SAMPLE_EVERY))
            .sum();
        assert_eq!(counts.round_trips, batches, "one round trip a batch");
    }
}
