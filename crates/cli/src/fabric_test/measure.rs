//! Runs the cells.

use forebay_env::{Clock, Random, SystemClock};
use forebay_fabric::{Endpoint, EndpointOptions, Error, Link, Outcome, RemoteAddress};
use forebay_workload::Latencies;
use std::sync::Arc;
use std::time::Duration;

/// One batch in this many is timed separately.
const SAMPLE_EVERY: u32 = 16;
/// Turns of each target in a cell: other load on the machine must weigh on all targets alike.
const TURNS: u32 = 10;
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
    /// Returns its name on the command line and in reports.
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
    /// Time for each cell, of all targets together.
    pub time: Duration,
}

impl Plan {
    fn shapes(&self) -> Vec<Shape> {
        let mut shapes = Vec::new();
        for &operation in &self.operations {
            let sizes: &[usize] = if operation.has_size() { &self.sizes } else { &[8] };
            for &size in sizes {
                // An RPC client has one call in flight at a time.
                let depths = self.depths.iter().filter(|depth| operation != Operation::Message || **depth == 1);
                shapes.extend(depths.map(|&depth| Shape { operation, size, depth }));
            }
        }
        shapes
    }
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
    /// An RPC.
    pub ping: Ping,
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

/// Runs the plan's cells in order, each at all targets in turn, and passes its results to `tell`, one for each target.
///
/// # Errors
/// The error of the first failed operation, and errors of `tell`.
pub fn run<E: From<Error>>(
    targets: &mut [&mut Target],
    plan: &Plan,
    tell: &mut dyn FnMut(Vec<Cell>) -> Result<(), E>,
) -> Result<(), E> {
    let clock = SystemClock::shared();
    let shapes = plan.shapes();
    for target in targets.iter() {
        if let Some(shape) = shapes.iter().find(|shape| shape.size as u64 > target.length) {
            let (size, length) = (shape.size, target.length);
            let wrong = format!("operations of {size} bytes: an extent of the memory node has {length}");
            return Err(Error::Invalid(wrong).into());
        }
        touch(target)?;
    }
    let turn = plan.time / (TURNS * targets.len().max(1) as u32);
    for shape in shapes {
        let measuring = targets.iter_mut().map(|target| Measuring::new(target, shape));
        let mut measuring = measuring.collect::<Result<Vec<_>, _>>()?;
        for _ in 0..TURNS {
            measuring.iter_mut().try_for_each(|one| one.go_on(&*clock, turn))?;
        }
        tell(measuring.iter().map(Measuring::cell).collect())?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    operation: Operation,
    size: usize,
    depth: usize,
}

/// A cell of one target while it is measured.
struct Measuring<'a> {
    shape: Shape,
    ping: &'a mut Ping,
    endpoint: Endpoint,
    addresses: Vec<RemoteAddress>,
    latencies: Latencies,
    batches: u64,
    elapsed_ns: u64,
}

impl<'a> Measuring<'a> {
    fn new(target: &'a mut Target, shape: Shape) -> Result<Self, Error> {
        let mut measuring = Self {
            shape,
            endpoint: target.link.endpoint(EndpointOptions::default())?,
            addresses: draw(target, shape.size),
            ping: &mut target.ping,
            latencies: Latencies::new().map_err(|e| Error::Invalid(e.to_string()))?,
            batches: 0,
            elapsed_ns: 0,
        };
        // This maps memory, makes buffers and trains branches before the clock starts.
        (0..u64::from(SAMPLE_EVERY)).try_for_each(|first| measuring.batch(first))?;
        Ok(measuring)
    }

    /// Does batches for this time.
    fn go_on(&mut self, clock: &dyn Clock, time: Duration) -> Result<(), Error> {
        let (start, limit) = (clock.now(), time.as_nanos() as u64);
        loop {
            let before = clock.now();
            self.next_batch()?;
            let after = clock.now();
            self.latencies.record(after - before);
            if after - start >= limit {
                self.elapsed_ns += after - start;
                return Ok(());
            }
            (1..SAMPLE_EVERY).try_for_each(|_| self.next_batch())?;
        }
    }

    fn next_batch(&mut self) -> Result<(), Error> {
        self.batch(self.batches)?;
        self.batches += 1;
        Ok(())
    }

    /// Does the batch with this number: posts it, rings one doorbell and waits for all operations.
    fn batch(&mut self, number: u64) -> Result<(), Error> {
        let Shape { operation, size, depth } = self.shape;
        if operation == Operation::Message {
            return (self.ping)();
        }
        let endpoint = &mut self.endpoint;
        for place in 0..depth {
            let Some(&at) = self.addresses.get((number as usize * depth + place) % ADDRESSES) else { continue };
            match operation {
                Operation::Read => {
                    let slot = endpoint.slot(size)?;
                    endpoint.post_read(at, slot)?;
                }
                Operation::Write => {
                    let slot = endpoint.slot(size)?;
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

    fn cell(&self) -> Cell {
        let Shape { operation, size, depth } = self.shape;
        let operations = self.batches * depth as u64;
        Cell {
            operation,
            size,
            depth,
            p50_us: self.latencies.quantile_us(0.5),
            p99_us: self.latencies.quantile_us(0.99),
            ops_per_second: operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64,
            operations,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::inprocess::InProcessListener as Node;
    use forebay_fabric::{Event, Listener, Rights, inprocess};

    fn target() -> (Node, Target) {
        let (mut node, connector) = inprocess::listen(1).unwrap();
        let link = connector.connect().unwrap();
        let region = node.allocate(1 << 16).unwrap();
        let Some(Event::Joined(peer)) = node.next(Duration::from_secs(1)).unwrap() else { panic!("nobody joined") };
        let start = peer.grant(&region, 0, 1 << 16, Rights::ALL).unwrap().at(0);
        (node, Target { link, starts: vec![start], length: 1 << 16, ping: Box::new(|| Ok(())) })
    }

    #[test]
    fn every_cell_is_run_and_counted() {
        let (_node, mut target) = target();
        use Operation::{Cas, Faa, Message, Read, Write};
        let plan = Plan {
            operations: vec![Read, Write, Cas, Faa, Message],
            sizes: vec![8, 100],
            depths: vec![1, 16],
            time: Duration::from_millis(1),
        };
        let mut cells = Vec::new();
        run::<Error>(&mut [&mut target], &plan, &mut |cell| {
            cells.extend(cell);
            Ok(())
        })
        .unwrap();
        assert_eq!(cells.len(), 2 * 2 * 2 + 2 * 2 + 1);
        assert!(cells.iter().all(|cell| cell.ops_per_second > 0.0 && cell.p50_us <= cell.p99_us));
        let done = |wanted: &[Operation]| {
            let of = cells.iter().filter(|cell| wanted.contains(&cell.operation));
            of.map(|cell| cell.operations + u64::from(SAMPLE_EVERY) * cell.depth as u64).sum::<u64>()
        };
        let counts = target.link.counts(forebay_fabric::Traffic::Foreground);
        assert_eq!((counts.reads, counts.writes, counts.atomics), (done(&[Read]), done(&[Write]), done(&[Cas, Faa])));
        let batches: u64 = cells
            .iter()
            .filter(|cell| cell.operation != Message)
            .map(|cell| cell.operations / cell.depth as u64 + u64::from(SAMPLE_EVERY))
            .sum();
        assert_eq!(counts.round_trips, batches, "one round trip a batch");
    }

    #[test]
    fn targets_are_measured_by_turns() {
        let ((_one, mut one), (_other, mut other)) = (target(), target());
        let plan = Plan {
            operations: vec![Operation::Read, Operation::Message],
            sizes: vec![64],
            depths: vec![1, 4],
            time: Duration::from_millis(2),
        };
        let mut told = Vec::new();
        run::<Error>(&mut [&mut one, &mut other], &plan, &mut |cells| {
            told.push(cells);
            Ok(())
        })
        .unwrap();
        assert_eq!(told.len(), 3);
        for cells in &told {
            let [one, other] = &cells[..] else { panic!("{cells:?}") };
            assert_eq!((one.operation, one.size, one.depth), (other.operation, other.size, other.depth));
            assert!(one.operations >= u64::from(TURNS) && other.operations >= u64::from(TURNS));
        }
        assert!(
            [&one, &other].map(|target| target.link.counts(forebay_fabric::Traffic::Foreground).reads > 0) == [true; 2]
        );
    }

    #[test]
    fn what_is_longer_than_an_extent_is_refused() {
        let (_node, mut target) = target();
        let plan = Plan {
            operations: vec![Operation::Read],
            sizes: vec![8, 1 << 17],
            depths: vec![1],
            time: Duration::from_millis(1),
        };
        let mut told = 0;
        let refused = run::<Error>(&mut [&mut target], &plan, &mut |_| {
            told += 1;
            Ok(())
        });
        assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("131072")), "{refused:?}");
        assert_eq!(told, 0);
    }
}
