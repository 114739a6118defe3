//! The command line of the fabric test.

use super::{Cell, Operation, Plan, header, row, run, target, to_json};
use crate::arguments::MemoryArguments;
use crate::failure::{Failure, Stage};
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
    /// Sizes of reads and writes.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,4096", value_parser = units::length)]
    sizes: Vec<usize>,
    /// Operations in flight: posted together, one doorbell, all waited for.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    depths: Vec<usize>,
    /// Operations to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "read,write,cas,faa,message")]
    operations: Vec<Operation>,
    /// Time for each line of the result.
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
    let mut leased = target::lease(&arguments.memory)?;
    let back_end = leased.target.link.capabilities().name;
    let table = arguments.format == Format::Table;
    if table {
        output::line(&format!("back end {back_end}, memory: {}\n\n{}", arguments.memory.memory, header()))?;
    }
    let mut cells: Vec<Cell> = Vec::new();
    run(&mut leased.target, &plan, &mut |cell| {
        if table {
            output::line(&row(&cell))?;
        }
        cells.push(cell);
        Ok::<_, Failure>(())
    })?;
    if table {
        return Ok(());
    }
    let json = to_json(back_end, &cells);
    output::line(&json.map_err(|error| Failure::io("printing the report")(error.into()))?)
}

impl From<forebay_fabric::Error> for Failure {
    fn from(error: forebay_fabric::Error) -> Self {
        Self::fabric(Stage::Running)(error)
    }
}
