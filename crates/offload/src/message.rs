//! What owners, schedulers and executors say to each other.
//!
//! ```text
//!  letter   0   4 "FBof"
//!           4   1 version (2)
//!           5   1 kind: 1 PREPARE, 2 ASSIGN, 3 ACCEPT, 4 COMMIT, 5 ABORT, 6 ACK, 7 beat
//!           6   2 bytes of the body
//!           8   4 term of the scheduler, as the sender knows it
//!          12   … body
//!           …   4 CRC32C of all that is before
//!
//!  body of  PREPARE  name, package, load          ASSIGN  name, attempt, package
//!           COMMIT   name, attempt, outcome       ABORT   name, attempt, 1 reason
//!           ACCEPT   name, attempt                ACK     name, attempt
//!           beat     load, 1 access to storage, 1 count, as often name and attempt: what it runs
//!
//!  name     16 database │ 4 shard │ 8 epoch │ 8 job
//!  attempt  4 term │ 4 number
//!  package  2 kind │ 1 need of storage │ ticket │ span of the arguments │ 8 bytes in memory │ 8 bytes in storage
//!  ticket   4 node │ 8 incarnation │ 8 job │ 16 secret
//!  span     4 extent │ 8 offset │ 8 length │ 4 CRC32C of the bytes
//!  need     0 none │ 1 access of the executor's own │ 2 names that the owner has signed
//!  access   bit 0 of the executor's own │ bit 1 by signed names
//!  load     4 active threads │ 4 threads │ 8 written a second │ 8 bandwidth a second │ 4 pending │ 4 queue limit
//!  outcome  span of the result │ 8 bytes read │ 8 bytes written
//! ```
//!
//! A PREPARE has [`PREPARE_BYTES`], where the paper's has 572: the arguments are in memory, where the executor reads
//! them. Several letters may follow one another. Purpose and golden test: `docs/formats/offload-letter.md`.

use crate::job::{Attempt, JobName, Outcome, Package, Reason, Span, StorageAccess, StorageNeed, Term, Ticket};
use crate::load::Load;
use forebay_base::{DecodeError, Reader, Writer, checksum};

const MAGIC: &[u8; 4] = b"FBof";
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
const NAME_BYTES: usize = 36;
const ATTEMPT_BYTES: usize = 8;
const SPAN_BYTES: usize = 24;
const PACKAGE_BYTES: usize = 3 + 36 + SPAN_BYTES + 16;
const LOAD_BYTES: usize = 32;
/// Length of a PREPARE in bytes.
pub const PREPARE_BYTES: usize = HEADER_BYTES + NAME_BYTES + PACKAGE_BYTES + LOAD_BYTES + CHECKSUM_BYTES;
/// Most jobs that a beat names.
pub const MAX_RUNNING: usize = 64;
/// Most letters that follow one another. A worker that has not reached the scheduler for a while has a quarter as many.
pub const MAX_LETTERS: usize = 1024;
/// Length of the longest letter in bytes: a beat with the most jobs.
pub const MOST_MESSAGE_BYTES: usize =
    HEADER_BYTES + LOAD_BYTES + 2 + MAX_RUNNING * (NAME_BYTES + ATTEMPT_BYTES) + CHECKSUM_BYTES;
const _: () = assert!(PREPARE_BYTES == 163 && PREPARE_BYTES < 572);

/// A message about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    /// The scheduler's term, as the sender knows it.
    pub term: Term,
    /// The job.
    pub name: JobName,
    /// The attempt; of a PREPARE, the default.
    pub attempt: Attempt,
    /// What the message says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Body {
    /// The owner wants the job placed.
    Prepare {
        /// The job.
        package: Package,
        /// How busy its owner is.
        home: Load,
    },
    /// The scheduler gives the job to an executor.
    Assign {
        /// The job.
        package: Package,
    },
    /// The executor runs it.
    Accept,
    /// The executor has run it; the scheduler tells the owner.
    Commit(Outcome),
    /// The attempt is not run, or not in the pool.
    Abort(Reason),
    /// The owner has installed it.
    Ack,
}

/// What an executor says of itself, at intervals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Beat {
    /// The highest term that it knows.
    pub term: Term,
    /// How busy it is.
    pub load: Load,
    /// How it reaches storage.
    pub storage: StorageAccess,
    /// The attempts that it runs: at most [`MAX_RUNNING`].
    pub running: Vec<(JobName, Attempt)>,
}

/// Anything that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letter {
    /// About a job.
    Message(Message),
    /// About an executor.
    Beat(Beat),
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Prepare { .. } => 1,
            Self::Assign { .. } => 2,
            Self::Accept => 3,
            Self::Commit(_) => 4,
            Self::Abort(_) => 5,
            Self::Ack => 6,
        }
    }
}

const BEAT: u8 = 7;

impl Letter {
    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.put_u8(VERSION);
        let (kind, term) = match self {
            Self::Message(message) => (message.body.kind(), message.term),
            Self::Beat(beat) => (BEAT, beat.term),
        };
        out.put_u8(kind);
        let mut body = Vec::new();
        match self {
            Self::Message(message) => put_message(&mut body, message),
            Self::Beat(beat) => put_beat(&mut body, beat),
        }
        out.put_u16(body.len() as u16);
        out.put_u32(term.0);
        out.extend_from_slice(&body);
        let checksum = checksum(out.get(start..).unwrap_or_default());
        out.put_u32(checksum);
    }

    /// Decodes all letters of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`], also when bytes are left over, or when there are more than [`MAX_LETTERS`].
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut letters = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            if letters.len() == MAX_LETTERS {
                let what = "number of letters that follow one another";
                return Err(DecodeError::BadValue { what, found: MAX_LETTERS as u64 + 1 });
            }
            let (letter, length) = Self::decode(rest)?;
            letters.push(letter);
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(letters)
    }

    /// Decodes the first letter of `bytes`. Returns it with its length.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let bad = |what, found: u64| DecodeError::BadValue { what, found };
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes(MAGIC.len())?;
        if magic != MAGIC {
            return Err(bad("magic of a letter", magic.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))));
        }
        let (version, kind, length, term) = (reader.u8()?, reader.u8()?, reader.u16()?, Term(reader.u32()?));
        if version != VERSION {
            return Err(bad("version of a letter", version.into()));
        }
        let mut body = Reader::new(reader.bytes(length.into())?);
        let covered = HEADER_BYTES + usize::from(length);
        let expected = reader.u32()?;
        if checksum(bytes.get(..covered).unwrap_or_default()) != expected {
            return Err(bad("checksum of a letter", expected.into()));
        }
        let letter = match kind {
            BEAT => Self::Beat(take_beat(&mut body, term)?),
            kind => Self::Message(take_message(&mut body, kind, term)?),
        };
        body.finish()?;
        Ok((letter, covered + CHECKSUM_BYTES))
    }
}

fn put_message(out: &mut Vec<u8>, message: &Message) {
    put_name(out, &message.name);
    if !matches!(message.body, Body::Prepare { .. }) {
        put_attempt(out, message.attempt);
    }
    match &message.body {
        Body::Prepare { package, home } => {
            put_package(out, package);
            put_load(out, home);
        }
        Body::Assign { package } => put_package(out, package),
        Body::Commit(outcome) => {
            put_span(out, &outcome.result);
            out.put_u64(outcome.read_bytes);
            out.put_u64(outcome.written_bytes);
        }
        Body::Abort(reason) => out.put_u8(*reason as u8),
        Body::Accept | Body::Ack => {}
    }
}

fn take_message(reader: &mut Reader<'_>, kind: u8, term: Term) -> Result<Message, DecodeError> {
    let name = take_name(reader)?;
    let attempt = if kind == 1 { Attempt::default() } else { take_attempt(reader)? };
    let body = match kind {
        1 => Body::Prepare { package: take_package(reader)?, home: take_load(reader)? },
        2 => Body::Assign { package: take_package(reader)? },
        3 => Body::Accept,
        4 => {
            let result = take_span(reader)?;
            Body::Commit(Outcome { result, read_bytes: reader.u64()?, written_bytes: reader.u64()? })
        }
        5 => {
            let number = reader.u8()?;
            let unknown = DecodeError::BadValue { what: "reason", found: number.into() };
            Body::Abort(Reason::from_number(number).ok_or(unknown)?)
        }
        6 => Body::Ack,
        kind => return Err(DecodeError::BadValue { what: "kind of a letter", found: kind.into() }),
    };
    Ok(Message { term, name, attempt, body })
}

fn put_beat(out: &mut Vec<u8>, beat: &Beat) {
    put_load(out, &beat.load);
    out.put_u8(u8::from(beat.storage.own) | u8::from(beat.storage.signed) << 1);
    let running = beat.running.get(..MAX_RUNNING).unwrap_or(&beat.running);
    out.put_u8(running.len() as u8);
    for (name, attempt) in running {
        put_name(out, name);
        put_attempt(out, *attempt);
    }
}

fn take_beat(reader: &mut Reader<'_>, term: Term) -> Result<Beat, DecodeError> {
    let (load, storage, count) = (take_load(reader)?, take_access(reader)?, usize::from(reader.u8()?));
    if count > MAX_RUNNING {
        return Err(DecodeError::BadValue { what: "jobs of a beat", found: count as u64 });
    }
    let running = (0..count).map(|_| Ok((take_name(reader)?, take_attempt(reader)?))).collect::<Result<_, _>>()?;
    Ok(Beat { term, load, storage, running })
}

fn put_name(out: &mut Vec<u8>, name: &JobName) {
    out.put_u128(name.database);
    out.put_u32(name.shard);
    out.put_u64(name.epoch);
    out.put_u64(name.job);
}

fn take_name(reader: &mut Reader<'_>) -> Result<JobName, DecodeError> {
    Ok(JobName { database: reader.u128()?, shard: reader.u32()?, epoch: reader.u64()?, job: reader.u64()? })
}

fn put_attempt(out: &mut Vec<u8>, attempt: Attempt) {
    out.put_u32(attempt.term.0);
    out.put_u32(attempt.number);
}

fn take_attempt(reader: &mut Reader<'_>) -> Result<Attempt, DecodeError> {
    Ok(Attempt { term: Term(reader.u32()?), number: reader.u32()? })
}

fn put_span(out: &mut Vec<u8>, span: &Span) {
    out.put_u32(span.extent);
    out.put_u64(span.offset);
    out.put_u64(span.length);
    out.put_u32(span.checksum);
}

fn take_span(reader: &mut Reader<'_>) -> Result<Span, DecodeError> {
    Ok(Span { extent: reader.u32()?, offset: reader.u64()?, length: reader.u64()?, checksum: reader.u32()? })
}

fn put_package(out: &mut Vec<u8>, package: &Package) {
    out.put_u16(package.kind);
    out.put_u8(package.storage as u8);
    let Ticket { node, incarnation, job, secret } = package.ticket;
    out.put_u32(node);
    out.put_u64(incarnation);
    out.put_u64(job);
    out.put_u128(secret);
    put_span(out, &package.arguments);
    out.put_u64(package.memory_bytes);
    out.put_u64(package.storage_bytes);
}

fn take_package(reader: &mut Reader<'_>) -> Result<Package, DecodeError> {
    let (kind, storage) = (reader.u16()?, take_need(reader)?);
    let ticket = Ticket { node: reader.u32()?, incarnation: reader.u64()?, job: reader.u64()?, secret: reader.u128()? };
    let arguments = take_span(reader)?;
    let (memory_bytes, storage_bytes) = (reader.u64()?, reader.u64()?);
    Ok(Package { kind, storage, ticket, arguments, memory_bytes, storage_bytes })
}

fn put_load(out: &mut Vec<u8>, load: &Load) {
    out.put_u32(load.active_threads);
    out.put_u32(load.threads);
    out.put_u64(load.written_per_second);
    out.put_u64(load.bandwidth_per_second);
    out.put_u32(load.pending);
    out.put_u32(load.queue_limit);
}

fn take_load(reader: &mut Reader<'_>) -> Result<Load, DecodeError> {
    Ok(Load {
        active_threads: reader.u32()?,
        threads: reader.u32()?,
        written_per_second: reader.u64()?,
        bandwidth_per_second: reader.u64()?,
        pending: reader.u32()?,
        queue_limit: reader.u32()?,
    })
}

fn take_need(reader: &mut Reader<'_>) -> Result<StorageNeed, DecodeError> {
    let found = reader.u8()?;
    let unknown = DecodeError::BadValue { what: "need of storage", found: found.into() };
    StorageNeed::from_number(found).ok_or(unknown)
}

fn take_access(reader: &mut Reader<'_>) -> Result<StorageAccess, DecodeError> {
    match reader.u8()? {
        bits @ 0..=3 => Ok(StorageAccess { own: bits & 1 != 0, signed: bits & 2 != 0 }),
        found => Err(DecodeError::BadValue { what: "access to storage", found: found.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: JobName = JobName { database: 0x11, shard: 2, epoch: 3, job: 4 };
    const ATTEMPT: Attempt = Attempt { term: Term(5), number: 6 };
    const SPAN: Span = Span { extent: 7, offset: 0x100, length: 0x200, checksum: 0xaabb_ccdd };
    const LOAD: Load = Load {
        active_threads: 1,
        threads: 2,
        written_per_second: 3,
        bandwidth_per_second: 4,
        pending: 5,
        queue_limit: 6,
    };
    const PACKAGE: Package = Package {
        kind: 16,
        storage: StorageNeed::Signed,
        ticket: Ticket { node: 1, incarnation: 2, job: 3, secret: 4 },
        arguments: SPAN,
        memory_bytes: 8,
        storage_bytes: 9,
    };

    fn encoded(letter: &Letter) -> Vec<u8> {
        let mut out = Vec::new();
        letter.encode(&mut out);
        out
    }

    fn message(body: Body) -> Letter {
        let attempt = if matches!(body, Body::Prepare { .. }) { Attempt::default() } else { ATTEMPT };
        Letter::Message(Message { term: Term(5), name: NAME, attempt, body })
    }

    fn letters() -> Vec<Letter> {
        let outcome = Outcome { result: SPAN, read_bytes: 10, written_bytes: 11 };
        let beat = Beat {
            term: Term(5),
            load: LOAD,
            storage: StorageAccess { own: true, signed: true },
            running: vec![(NAME, ATTEMPT)],
        };
        let bodies = [
            Body::Prepare { package: PACKAGE, home: LOAD },
            Body::Assign { package: PACKAGE },
            Body::Accept,
            Body::Commit(outcome),
            Body::Abort(Reason::Lost),
            Body::Ack,
        ];
        bodies.into_iter().map(message).chain([Letter::Beat(beat)]).collect()
    }

    #[test]
    fn golden_letters() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let name = "11000000000000000000000000000000 02000000 0300000000000000 0400000000000000";
        let attempt = "05000000 06000000";
        let span = "07000000 0001000000000000 0002000000000000 ddccbbaa";
        let load = "01000000 02000000 0300000000000000 0400000000000000 05000000 06000000";
        let ticket = "01000000 0200000000000000 0300000000000000 04000000000000000000000000000000";
        let package = format!("1000 02 {ticket} {span} 0800000000000000 0900000000000000");
        let bodies = [
            format!("01 9300 05000000 {name} {package} {load}"),
            format!("02 7b00 05000000 {name} {attempt} {package}"),
            format!("03 2c00 05000000 {name} {attempt}"),
            format!("04 5400 05000000 {name} {attempt} {span} 0a00000000000000 0b00000000000000"),
            format!("05 2d00 05000000 {name} {attempt} 05"),
            format!("06 2c00 05000000 {name} {attempt}"),
            format!("07 4e00 05000000 {load} 03 01 {name} {attempt}"),
        ];
        let letters = letters();
        assert_eq!(letters.len(), bodies.len());
        for (letter, body) in letters.iter().zip(bodies) {
            let bytes = encoded(letter);
            let (covered, sum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
            assert_eq!(hex(covered), format!("46426f6602{}", body.replace(' ', "")));
            assert_eq!(sum, checksum(covered).to_le_bytes());
            assert_eq!(Letter::decode(&bytes).unwrap(), (letter.clone(), bytes.len()));
        }
        assert_eq!(encoded(&letters[0]).len(), PREPARE_BYTES);
        let all: Vec<u8> = letters.iter().flat_map(encoded).collect();
        assert_eq!(Letter::decode_all(&all).unwrap(), letters);
    }

    #[test]
    fn a_changed_bit_is_seen() {
        for letter in letters() {
            let bytes = encoded(&letter);
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(Letter::decode_all(&changed).is_err(), "bit {bit} of {letter:?}");
            }
            assert!(Letter::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_beat_names_no_more_than_it_may() {
        let running = vec![(NAME, ATTEMPT); MAX_RUNNING + 1];
        let beat = Letter::Beat(Beat { term: Term(0), load: LOAD, storage: StorageAccess::default(), running });
        let bytes = encoded(&beat);
        assert_eq!(bytes.len(), MOST_MESSAGE_BYTES);
        let Letter::Beat(beat) = Letter::decode(&bytes).unwrap().0 else { panic!("no beat") };
        assert_eq!(beat.running.len(), MAX_RUNNING);
    }

    proptest! {
        #[test]
        fn any_bytes_are_letters_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..9) {
            let _ = Letter::decode_all(&bytes);
            // And bytes that get as far as the body.
            let mut framed = Vec::from(*MAGIC);
            framed.extend_from_slice(&[VERSION, kind]);
            framed.put_u16(bytes.len() as u16);
            framed.put_u32(1);
            framed.extend_from_slice(&bytes);
            let sum = checksum(&framed);
            framed.put_u32(sum);
            if let Ok((letter, length)) = Letter::decode(&framed) {
                prop_assert_eq!(encoded(&letter), framed[..length].to_vec());
            }
        }
    }
}
