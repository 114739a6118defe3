//! One attempt at a job: joins the ticket, runs the job, and leaves the result in memory.

use crate::Error;
use crate::io::RemoteIo;
use crate::stored::{Reached, Stored};
use forebay_base::checksum;
use forebay_fabric::EndpointOptions;
use forebay_memory_client::{ExtentId, ExtentRange, MemoryClient};
use forebay_offload::{Attempt, Outcome, Package, Span, StorageAccess, StorageNeed, StoredPlace};
use forebay_proto::job_kind;
use forebay_table::job::{CompactionJob, CopyJob, run_compaction};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the attempt at the node of its ticket. When this fails, nothing is left of it.
pub(crate) fn run(
    client: &Arc<MemoryClient>,
    endpoint: EndpointOptions,
    attempt: Attempt,
    package: &Package,
    storage: Option<&Reached>,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    let job = match package.kind {
        job_kind::COMPACTION => compact,
        job_kind::COPY => copy,
        _ => return Err(not_run(package.kind)),
    };
    if !storage.map_or_else(StorageAccess::default, Reached::access).suffices_for(package.storage) {
        return Err(not_run(package.kind));
    }
    let joined = client.join_ticket(package.ticket.job, package.ticket.secret, attempt.as_u64())?;
    let endpoint = client.link().endpoint(endpoint)?;
    let mut io = RemoteIo::new(client.node(), client.extent_bytes(), joined, endpoint, stop);
    let Span { extent, offset, length, checksum: expected } = package.arguments;
    let arguments = io.read_range(ExtentRange { extent: ExtentId(extent), offset, length })?;
    if checksum(&arguments) != expected {
        return Err(Error::Corrupt("the arguments are not those that the package names".into()));
    }
    let mut arguments = arguments.as_slice();
    if let Some(storage) = storage.filter(|_| package.storage != StorageNeed::None) {
        let (place, length) = StoredPlace::decode(arguments).map_err(|error| Error::Corrupt(error.to_string()))?;
        arguments = arguments.get(length..).unwrap_or_default();
        io.stored = Some(Stored::new(storage, &place)?);
    }
    let result = job(&mut io, attempt, arguments)?;
    let RemoteIo { joined, read_bytes, written_bytes, .. } = io;
    joined.finish()?;
    Ok(Outcome { result, read_bytes, written_bytes })
}

fn not_run(kind: u16) -> Error {
    Error::Unsupported(format!("jobs of kind {kind} are not run here"))
}

/// Runs a compaction. Returns where its result is.
fn compact(io: &mut RemoteIo<'_>, attempt: Attempt, arguments: &[u8]) -> Result<Span, Error> {
    let job = CompactionJob::decode(arguments)?;
    io.take_inputs(&job.segments, attempt.numbers(&job.output_segments))?;
    let made = run_compaction(&job, io)?;
    let mut result = Vec::new();
    made.encode(&mut result)?;
    let ExtentRange { extent, offset, length } = io.write_output(&result)?;
    Ok(Span { extent: extent.0, offset, length, checksum: checksum(&result) })
}

/// Makes copies under names that their owner knows.
fn copy(io: &mut RemoteIo<'_>, _: Attempt, arguments: &[u8]) -> Result<Span, Error> {
    let job = CopyJob::decode(arguments)?;
    io.take_inputs(&job.segments, 0..0)?;
    for (&id, info) in &job.segments {
        io.copy(id, info.length)?;
    }
    Ok(Span::default())
}
