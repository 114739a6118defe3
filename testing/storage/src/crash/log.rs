//! Logs: everything acknowledged is recovered, nothing is invented, and a deposed writer acknowledges nothing more.

use super::{DiskWorld, ObjectWorld, World};
use crate::{Finding, check};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{Disk, Frame, Log, LogReader, ObjectName, Position, Recovery, Storage};
use std::sync::{Arc, Mutex};

/// An action of a writer.
#[derive(Debug, Clone)]
enum Act {
    Append(Bytes),
    Sync,
    /// Trims half of what is durable.
    Trim,
}

fn script(random: &mut Random) -> Vec<Act> {
    let act = |random: &mut Random| match random.below(10) {
        0 => Act::Trim,
        1..=3 => Act::Sync,
        _ => {
            let mut payload = vec![0; random.below(200) as usize];
            random.fill(&mut payload);
            Act::Append(payload.into())
        }
    };
    let mut acts: Vec<_> = (0..24).map(|_| act(random)).collect();
    acts.push(Act::Sync);
    acts
}

/// What a writer did, and the answers that it got.
#[derive(Debug, Default, Clone)]
struct Written {
    /// Each frame that the writer tried to append, and whether that succeeded.
    attempts: Vec<(Frame, bool)>,
    acknowledged: Position,
    trimmed: Position,
    errors: Vec<ErrorKind>,
}

fn name() -> ObjectName {
    ObjectName::new("log/1").expect("it is a name")
}

/// Writes the script's log through `storage`, to its end, whatever fails.
fn write(storage: &Storage, acts: &[Act]) -> Written {
    let mut written = Written::default();
    let log = match storage.create_log(&name(), 0x1234) {
        Ok(log) => log,
        Err(error) => {
            written.errors.push(error.kind());
            return written;
        }
    };
    for (mark, act) in (0..).zip(acts) {
        let done = match act {
            Act::Append(payload) => append(&*log, mark, payload, &mut written),
            Act::Sync => {
                let end = log.end();
                log.sync(end).map(|()| written.acknowledged = written.acknowledged.max(end))
            }
            Act::Trim => {
                let position = written.acknowledged / 2;
                written.trimmed = written.trimmed.max(position);
                log.trim(position).map(|_| ())
            }
        };
        written.errors.extend(done.err().map(|error| error.kind()));
    }
    written
}

fn append(log: &dyn Log, mark: u64, payload: &Bytes, written: &mut Written) -> forebay_storage::Result<()> {
    let frame = Frame { position: log.end(), stream: mark as u32 % 3, mark, payload: payload.clone() };
    let appended = log.append(frame.stream, mark, payload);
    // Room may be made meanwhile; once is enough here.
    let appended = match appended {
        Err(error) if error.kind() == ErrorKind::Full => log.append(frame.stream, mark, payload),
        appended => appended,
    };
    written.attempts.push((frame, appended.is_ok()));
    appended.map(|_| ())
}

/// Checks what was recovered against what was written.
fn judge(reader: &LogReader, written: &Written) -> Result<Vec<Frame>, Finding> {
    let frames = frames_of(reader)?;
    judge_frames(reader, &frames, written)?;
    Ok(frames)
}

fn frames_of(reader: &LogReader) -> Result<Vec<Frame>, Finding> {
    reader.frames().map_err(|error| format!("the log cannot be read: {error}"))
}

fn judge_frames(reader: &LogReader, frames: &[Frame], written: &Written) -> Result<(), Finding> {
    check(reader.begin() <= written.trimmed, || {
        format!("the log begins at {}, and was trimmed up to {} only", reader.begin(), written.trimmed)
    })?;
    check(reader.end() >= written.acknowledged, || {
        format!("the log ends at {}, and was acknowledged up to {}", reader.end(), written.acknowledged)
    })?;
    // The writer may have trimmed more since the log was opened.
    let mut position = frames.first().map_or(reader.end(), |frame| frame.position);
    check(position == reader.begin() || reader.begin() < position && position <= written.trimmed, || {
        format!(
            "the first frame is at {position}; the log begins at {}, and was trimmed up to {}",
            reader.begin(),
            written.trimmed
        )
    })?;
    for frame in frames {
        check(frame.position == position, || format!("a frame at {} where {position} is next", frame.position))?;
        let mut same = written.attempts.iter().filter(|(attempt, _)| attempt == frame);
        check(same.clone().next().is_some(), || format!("a frame at {position} that nobody wrote"))?;
        check(position >= written.acknowledged || same.any(|(_, is_appended)| *is_appended), || {
            format!("the frame at {position} is one whose append failed, and another one was acknowledged there")
        })?;
        position += (56 + frame.payload.len().next_multiple_of(8)) as u64;
    }
    check(position == reader.end(), || format!("frames end at {position}, and the log at {}", reader.end()))
}

/// Recovers the log as an owner does, who looks at a torn end before it is cut. Some of it may be trimmed late, after it is
/// opened and before it is read.
fn recover<W: World>(world: &W) -> Result<LogReader, Finding> {
    let storage = world.storage();
    let open = |how| storage.open_log(&name(), how).map_err(|error| format!("recovery failed: {error}"));
    let mut reader = open(Recovery::SealUnlessTorn)?;
    if reader.cut().is_some() {
        reader = open(Recovery::Seal)?;
    }
    (0..8).for_each(|_| drop(storage.objects().list(None)));
    Ok(reader)
}

/// Runs a seed's script with each kind of crash, fault and takeover at each step. Returns the number
/// of runs.
///
/// # Errors
/// What is wrong, and where.
pub fn log<W: World>(seed: u64) -> Result<u64, Finding> {
    let mut random = Random::seeded(seed);
    let acts = script(&mut random);
    let world = W::default();
    let written = write(&world.storage(), &acts);
    check(written.errors.is_empty(), || format!("errors without a fault: {:?}", written.errors))?;
    judge(&recover(&world.handle())?, &written)?;
    overtaken_before_it_began::<W>(&acts)?;
    let mut runs = 2 + recovered_by_two::<W>(seed)?;
    for step in 0..world.steps() {
        let at = |what: &str, finding| format!("{} log, seed {seed}, {what} at step {step}: {finding}", W::NAME);
        ended::<W>(&acts, step, &mut random).map_err(|finding| at("end", finding))?;
        for fault in 0..W::FAULTS {
            failed::<W>(&acts, step, fault, &mut random).map_err(|finding| at(&format!("fault {fault}"), finding))?;
        }
        for deletes in [false, true] {
            overtaken::<W>(&acts, step, deletes).map_err(|finding| at("takeover", finding))?;
        }
        runs += 3 + W::FAULTS as u64;
    }
    Ok(runs)
}

/// The process ends at a step.
fn ended<W: World>(acts: &[Act], step: u64, random: &mut Random) -> Result<(), Finding> {
    let world = W::default();
    world.end_at(step);
    let written = write(&world.storage(), acts);
    images(&world, &written, random)
}

/// An operation fails, and the writer continues as far as it can.
fn failed<W: World>(acts: &[Act], step: u64, fault: usize, random: &mut Random) -> Result<(), Finding> {
    let world = W::default();
    world.fail_at(step, fault);
    let written = write(&world.storage(), acts);
    check(!written.errors.contains(&ErrorKind::Fenced), || "fenced, and nobody took over".to_owned())?;
    images(&world, &written, random)
}

/// Recovers images of what a writer left: with and without power lost, and with a recovery that is itself interrupted.
fn images<W: World>(world: &W, written: &Written, random: &mut Random) -> Result<(), Finding> {
    for image in 0..3 {
        let image_world = world.duplicate();
        if image > 0 {
            image_world.lose_power(random);
        }
        if image > 1 {
            let first = image_world.handle();
            first.end_at(random.below(30));
            let told = first.storage().open_log(&name(), Recovery::Seal).ok().filter(|reader| reader.frames().is_ok());
            first.end_at(u64::MAX);
            let told = told.map(|reader| judge(&reader, written)).transpose()?;
            image_world.lose_power(random);
            let frames = judge(&recover(&image_world.handle())?, written)?;
            let is_same = told.is_none_or(|told| told == frames);
            check(is_same, || "a second recovery, after a power failure, finds something else".to_owned())?;
        }
        let frames = judge(&recover(&image_world.handle())?, written)?;
        image_world.lose_power(random);
        let again = judge(&recover(&image_world.handle())?, written)?;
        check(frames == again, || "what was recovered did not survive a power failure".to_owned())?;
    }
    Ok(())
}

/// What another process found when it took over.
type Found = Arc<Mutex<Option<Result<(LogReader, Vec<Frame>), Finding>>>>;

/// The writer is stopped at a step, another process recovers its log (and deletes it), and the writer continues.
fn overtaken<W: World>(acts: &[Act], step: u64, deletes: bool) -> Result<(), Finding> {
    let world = W::default();
    let other = world.handle();
    let (slot, taker) = (Found::default(), other.clone());
    let found = Arc::clone(&slot);
    world.interrupt_at(step, move || {
        let taken = recover(&taker).and_then(|reader| {
            let frames = frames_of(&reader)?;
            if deletes {
                taker.storage().delete_log(&name()).map_err(|error| format!("deleting failed: {error}"))?;
            }
            Ok((reader, frames))
        });
        *slot.lock().expect("no panic") = Some(taken);
    });
    let written = write(&world.storage(), acts);
    let Some(taken) = found.lock().expect("no panic").take() else { return Ok(()) };
    let (reader, frames) = taken?;
    judge_frames(&reader, &frames, &written)?;
    if deletes {
        return Ok(());
    }
    let again = judge(&recover(&other)?, &written)?;
    // What the writer trims later is missing.
    check(frames.ends_with(&again), || "a second recovery finds something else".to_owned())
}

/// Another process recovers and deletes a log that its writer had not begun yet.
fn overtaken_before_it_began<W: World>(acts: &[Act]) -> Result<(), Finding> {
    for deletes in [false, true] {
        let world = W::default();
        let reader = recover(&world.handle())?;
        check(frames_of(&reader)?.is_empty(), || "a log that was never begun has frames".to_owned())?;
        if deletes {
            world.handle().storage().delete_log(&name()).map_err(|error| format!("deleting failed: {error}"))?;
        }
        let written = write(&world.storage(), acts);
        check(written.acknowledged == 0, || format!("acknowledged up to {}, and nobody reads", written.acknowledged))?;
        check(frames_of(&recover(&world.handle())?)?.is_empty(), || "it has frames now".to_owned())?;
    }
    Ok(())
}

/// A process that recovers is stopped at each step; the writer appends more, another process recovers, and the first one
/// continues. Both find the same.
fn recovered_by_two<W: World>(seed: u64) -> Result<u64, Finding> {
    for step in 0.. {
        let at =
            |finding| format!("{} log, seed {seed}, second recovery at step {step} of the first: {finding}", W::NAME);
        let world = W::default();
        let unexpected = |error: forebay_storage::Error| at(error.to_string());
        let log = world.storage().create_log(&name(), seed).map_err(unexpected)?;
        let append = |mark| log.append(0, mark, &[mark as u8; 50]);
        let end = (0..4).try_fold(0, |_, mark| append(mark)).map_err(unexpected)?;
        log.sync(end).map_err(unexpected)?;
        append(4).map_err(unexpected)?;
        let first = world.handle();
        let (second, writer, slot) = (world.handle(), Arc::clone(&log), Found::default());
        let found = Arc::clone(&slot);
        first.interrupt_at(step, move || {
            // It may be fenced by now.
            let _ = writer.append(0, 5, &[5; 50]);
            let both = recover(&second).and_then(|reader| frames_of(&reader).map(|frames| (reader, frames)));
            *slot.lock().expect("no panic") = Some(both);
        });
        let frames = frames_of(&recover(&first).map_err(at)?).map_err(at)?;
        let Some(other) = found.lock().expect("no panic").take() else { return Ok(step) };
        let (_, others) = other.map_err(at)?;
        check(frames == others, || at(format!("{} frames, and {} for the other", frames.len(), others.len())))?;
        check(frames.len() >= 4, || at("an acknowledged frame is missing".to_owned()))?;
    }
    Ok(0)
}

/// Flips each byte of a seed's log in turn: what is read is a prefix of what was written, and what was known to be durable is
/// either there or reported as damaged. Returns the number of flips.
///
/// # Errors
/// What is wrong, and where.
pub fn damaged_log<W: World>(seed: u64) -> Result<u64, Finding> {
    let mut random = Random::seeded(seed);
    let acts: Vec<Act> = script(&mut random).into_iter().filter(|act| !matches!(act, Act::Trim)).collect();
    let world = W::default();
    let written = write(&world.storage(), &acts);
    let whole = world.storage().open_log(&name(), Recovery::Look).map_err(|error| error.to_string())?;
    let frames = judge(&whole, &written)?;
    // The last frame says what was durable when it was written; a log in objects is either whole or damaged.
    let known = if W::NAME == "objects" { whole.end() } else { known_durable(&acts) };
    let mut flips = 0;
    for (object, size) in world.list("log/1") {
        for offset in 0..size {
            let damaged = world.duplicate();
            damaged.flip(&object, offset, 1 << random.below(8));
            flips += 1;
            let read = damaged.storage().open_log(&name(), Recovery::Look).and_then(|reader| reader.frames());
            let at = |finding: &str| format!("{} log, seed {seed}, byte {offset} of {object}: {finding}", W::NAME);
            match read {
                Err(error) => check(error.kind() == ErrorKind::Corrupt, || at(&error.to_string()))?,
                Ok(read) => {
                    check(frames.starts_with(&read), || at("other frames than were written"))?;
                    let end = read.last().map_or(0, |last| last.position + 1);
                    let is_whole = frames.len() == read.len() || end > known;
                    let is_last_known = frames.get(read.len()).is_none_or(|next| next.position >= known);
                    check(is_whole || is_last_known, || {
                        at(&format!("frames before {known} are missing, and no error"))
                    })?;
                }
            }
        }
    }
    Ok(flips)
}

/// Cuts off each file of a seed's log at each length, and removes it. Everything written is read, or damage is reported, or
/// the reader sees that the log begins later or not at all. Returns the number of files and lengths.
///
/// # Errors
/// What is wrong, and where.
pub fn cut_log(seed: u64) -> Result<u64, Finding> {
    let mut random = Random::seeded(seed);
    let acts: Vec<Act> = script(&mut random).into_iter().filter(|act| !matches!(act, Act::Trim)).collect();
    let world = DiskWorld::default();
    let written = write(&world.storage(), &acts);
    let whole = world.storage().open_log(&name(), Recovery::Look).map_err(|error| error.to_string())?;
    let frames = judge(&whole, &written)?;
    let mut cuts = 0;
    for (path, size) in world.list("log/1") {
        for length in (0..size).map(Some).chain([None]) {
            let cut = world.duplicate();
            let done = match length {
                Some(length) => cut.0.open(&path, true).and_then(|file| file.truncate(length)),
                None => cut.0.remove(&path),
            };
            done.map_err(|error| error.to_string())?;
            cuts += 1;
            let at = |finding: &str| format!("seed {seed}, {path} cut to {length:?} of {size} bytes: {finding}");
            let opened = cut.storage().open_log(&name(), Recovery::Look);
            match opened.and_then(|reader| Ok((reader.frames()?, reader))) {
                Err(error) => check(error.kind() == ErrorKind::Corrupt, || at(&error.to_string()))?,
                Ok((read, reader)) => check(read == frames || reader.segments() == 0 || reader.begin() > 0, || {
                    at(&format!("{} of {} frames, and no error", read.len(), frames.len()))
                })?,
            }
        }
    }
    Ok(cuts)
}

/// Recovers a seed's log from a service that, at a step and some steps after it, says that what is asked for does not exist.
/// Everything written is read, or the error says that the storage contradicts itself. Returns the number of runs.
///
/// # Errors
/// What is wrong, and where.
pub fn not_found_log(seed: u64) -> Result<u64, Finding> {
    let mut random = Random::seeded(seed);
    let world = ObjectWorld::default();
    let written = write(&world.storage(), &script(&mut random));
    let frames = judge(&recover(&world.duplicate())?, &written)?;
    let mut runs = 0;
    for answers in 1..=4 {
        for step in 0.. {
            let at = |finding| format!("seed {seed}, {answers} times not found at step {step}: {finding}");
            let world = world.duplicate();
            let handle = world.handle();
            handle.find_nothing(step..step + answers);
            let opened = handle.storage().open_log(&name(), Recovery::Seal);
            match opened.and_then(|reader| reader.frames()) {
                Ok(read) => check(read == frames, || at(format!("{} of {} frames", read.len(), frames.len())))?,
                Err(error) => check(error.kind() == ErrorKind::Unavailable, || at(error.to_string()))?,
            }
            let again = judge(&recover(&world.handle()).map_err(at)?, &written).map_err(at)?;
            check(again == frames, || at("another recovery finds something else".to_owned()))?;
            runs += 1;
            if handle.steps() <= step {
                break;
            }
        }
    }
    Ok(runs)
}

/// Up to where the log was durable when its last frame was appended.
fn known_durable(acts: &[Act]) -> Position {
    let (mut end, mut durable, mut known) = (0, 0, 0);
    for act in acts {
        match act {
            Act::Append(payload) => {
                known = durable;
                end += (56 + payload.len().next_multiple_of(8)) as u64;
            }
            Act::Sync => durable = end,
            Act::Trim => {}
        }
    }
    known
}
