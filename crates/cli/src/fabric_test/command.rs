//! The command line of the fabric test.

use super::{Cell, Compared, Operation, Plan, loopback, render, run, target};
use crate::arguments::MemoryArguments;
use crate::failure::{Failure, Stage};
use crate::nodes;
use crate::output::{self, Format};
use crate::units;
use std::time::Duration;

/// Bytes of the longest measured operation.
const MAX_SIZE: usize = 16 << 20;
/// Maximum number of operations in flight.
const MAX_DEPTH: usize = 4096;

/// The measurements and their place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Measure what TLS costs: TCP on loopback in plain and within TLS, by turns, with memory nodes of this process.
    #[arg(long, conflicts_with_all = ["memory", "local_memory_size"])]
    tls_cost: bool,
    /// Sizes of reads and writes.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,4096", value_parser = units::length)]
    sizes: Vec<usize>,
    /// Operations in flight: posted together, one doorbell, all waited for.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    depths: Vec<usize>,
    /// Operations to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "read,write,cas,faa,message")]
    operations: Vec<Operation>,
    /// Time for each line of the result, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Arguments {
    fn plan(&self) -> Result<Plan, Failure> {
        if let Some(size) = self.sizes.iter().find(|size| !(1..=MAX_SIZE).contains(*size)) {
            return Err(Failure::usage(format_args!("--sizes: {size} bytes; 1 to {MAX_SIZE} are possible")));
        }
        if let Some(depth) = self.depths.iter().find(|depth| !(1..=MAX_DEPTH).contains(*depth)) {
            return Err(Failure::usage(format_args!("--depths: {depth}; 1 to {MAX_DEPTH} are possible")));
        }
        if !(0.001..=3600.0).contains(&self.seconds) {
            return Err(Failure::usage(format_args!("--seconds: {}; 0.001 to 3600 are possible", self.seconds)));
        }
        Ok(Plan {
            operations: self.operations.clone(),
            sizes: self.sizes.clone(),
            depths: self.depths.clone(),
            time: Duration::from_secs_f64(self.seconds),
        })
    }
}

/// Runs the plan and prints its results.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    if arguments.tls_cost { cost_of_tls(arguments, &plan) } else { measure(arguments, &plan) }
}

fn measure(arguments: &Arguments, plan: &Plan) -> Result<(), Failure> {
    let MemoryArguments { memory, local_memory_size, .. } = &arguments.memory;
    let mut leased = target::lease(nodes::reach(memory.only("which is to be measured")?, *local_memory_size)?)?;
    let back_end = leased.target.link.capabilities().name;
    let table = arguments.format == Format::Table;
    if table {
        output::line(&format!("back end {back_end}, memory: {memory}\n\n{}", render::header()))?;
    }
    let mut all = Vec::new();
    run(&mut [&mut leased.target], plan, &mut |cells| {
        if table {
            cells.iter().try_for_each(|cell| output::line(&render::row(cell)))?;
        }
        all.extend(cells);
        Ok::<_, Failure>(())
    })?;
    if table { Ok(()) } else { output::json(&render::report(back_end, &all)) }
}

fn cost_of_tls(arguments: &Arguments, plan: &Plan) -> Result<(), Failure> {
    let mut plain = target::lease(loopback::plain()?)?;
    let mut encrypted = target::lease(loopback::within_tls()?)?;
    let back_end = plain.target.link.capabilities().name;
    let table = arguments.format == Format::Table;
    if table {
        let header = render::compared_header();
        output::line(&format!("back end {back_end} on loopback, plain and within TLS by turns\n\n{header}"))?;
    }
    let mut all = Vec::new();
    run(&mut [&mut plain.target, &mut encrypted.target], plan, &mut |cells| {
        let Ok([plain, encrypted]) = <[Cell; 2]>::try_from(cells) else { return Ok(()) };
        let compared = Compared { plain, encrypted };
        if table {
            output::line(&render::compared_row(&compared))?;
        }
        all.push(compared);
        Ok::<_, Failure>(())
    })?;
    if table { Ok(()) } else { output::json(&render::comparison(back_end, &all)) }
}

impl From<forebay_fabric::Error> for Failure {
    fn from(error: forebay_fabric::Error) -> Self {
        Self::fabric(Stage::Running)(error)
    }
}
