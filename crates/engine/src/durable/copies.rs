//! Copies of segments at all members of a shard (Tebis 3.3; `docs/decisions/0036`).
//!
//! A version names a segment only once all members hold it. This process reads what one member holds, and writes it to
//! the others. It copies an index unchanged, since addresses are logical (Tebis' Send-Index without its rewriting).
//!
//! Records are still written to a new part of the log, and only active members get it. So a joining member has no copy
//! of that part, until it gets the part with what was written (`joining`).
//!
//! Two members take part in a copy, and either can fail. [`NotHeld`] says which: a member is left out for its own
//! failure only. If a segment cannot be read, the work that made it makes it again, at the member that serves by then.
//!
//! Damaged bytes are not copied if another copy has them whole ([`copy_into`]).

use crate::durable::side_by_side::SideBySide;
use crate::durable::used::Used;
use crate::remote::members::Members;
use crate::remote::pipeline::Pipeline;
use crate::remote::segment::{Remote, Segment};
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics::add;
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use crate::tree::version::Change;
use forebay_base::ErrorKind;
use forebay_memory_client::Purpose;
use std::sync::Arc;

/// Why a member does not hold what it should hold.
#[derive(Debug)]
pub(crate) enum NotHeld {
    /// The member failed.
    Itself(Error),
    /// Another member or the register failed, or the database is closed. The member may be well.
    Another(Error),
}

/// Segments, each with its copy at another member, which does not count yet.
pub(crate) type Copied = Vec<(Arc<Segment>, Arc<Segment>)>;

impl From<NotHeld> for Error {
    fn from(cause: NotHeld) -> Self {
        match cause {
            NotHeld::Itself(error) | NotHeld::Another(error) => error,
        }
    }
}

/// Copies the segments that a change adds to all members, and adds these placements to the change.
///
/// # Errors
/// `Full` when a member has no room; those of the fabric, when a segment cannot be read; those of leaving a member out.
pub(crate) fn spread(tree: &Tree, change: &mut Change) -> Result<()> {
    if !tree.remote.are_several() {
        return Ok(());
    }
    let used = Used::by_change(change);
    spread_by(&tree.remote, change, |segment, remote| {
        let copied = copy(segment, remote, &used, IfDamaged::Fail)?;
        add(&tree.counters.replicated_bytes, segment.info().length);
        Ok(copied)
    })
}

/// Does the same for segments that hold nothing yet: the memory at the members is zeroed.
///
/// # Errors
/// As [`spread`].
pub(crate) fn spread_zeroed(tree: &Tree, change: &mut Change) -> Result<()> {
    spread_by(&tree.remote, change, zeroed)
}

fn spread_by(
    members: &Members,
    change: &mut Change,
    copy: impl Fn(&Segment, &Arc<Remote>) -> Result<Arc<Segment>, NotHeld>,
) -> Result<()> {
    if !members.are_several() || planted(Bug::OneCopy) {
        return Ok(());
    }
    for segment in change.segments.iter().filter(|segment| !segment.is_stored()) {
        let is_log = change.edit.log_parts.iter().any(|part| part.segment == segment.id());
        let gets_it = |remote: &&Arc<Remote>| {
            segment.at_member(remote.member()).is_none() && (!is_log || members.is_active(remote.member()))
        };
        for remote in members.written().filter(gets_it) {
            match copy(segment, remote) {
                Ok(copy) => segment.add_copy(copy),
                Err(NotHeld::Itself(error)) if error.kind() != ErrorKind::Full => {
                    members.leave_out(remote.member(), &error)?;
                }
                Err(cause) => return Err(Error::from(cause).during("copying a segment")),
            }
        }
        if let Some(added) = change.edit.added_segment(segment.id()) {
            added.placements = segment.placements(|member| members.is_written(member));
        }
    }
    Ok(())
}

fn allocate(segment: &Segment, remote: &Arc<Remote>) -> Result<Arc<Segment>> {
    let allocate = |purpose| remote.allocate(segment.id(), segment.info().kind, segment.info().length, purpose);
    match allocate(Purpose::Flush) {
        Err(error) if error.kind() == ErrorKind::Full => allocate(Purpose::Collection),
        allocated => allocated,
    }
}

/// Allocates zeroed memory for a copy of a segment at a member.
pub(crate) fn zeroed(segment: &Segment, remote: &Arc<Remote>) -> Result<Arc<Segment>, NotHeld> {
    let copy = allocate(segment, remote).map_err(NotHeld::Itself)?;
    remote.zero(&copy).map_err(NotHeld::Itself)?;
    Ok(copy)
}

/// What is done about bytes that no copy has whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfDamaged {
    /// Fail: the work that has just made them makes them again.
    Fail,
    /// Copy them as they are, as everything else would be missing otherwise. A later read of them finds the damage.
    Copy,
}

/// Copies a segment to a member, from the member that serves.
pub(crate) fn copy(
    segment: &Segment,
    remote: &Arc<Remote>,
    used: &Used,
    if_damaged: IfDamaged,
) -> Result<Arc<Segment>, NotHeld> {
    let copy = allocate(segment, remote).map_err(NotHeld::Itself)?;
    copy_into(segment, &copy, None, used, if_damaged)?;
    Ok(copy)
}

/// Copies a segment into `copy`, from the member that serves. Bytes that are damaged there come from another copy,
/// `left` included, if one has them whole. When this has returned, either no write to `copy` is under way, or the
/// result says that the member of `copy` failed.
pub(crate) fn copy_into(
    segment: &Segment,
    copy: &Arc<Segment>,
    left: Option<&Segment>,
    used: &Used,
    if_damaged: IfDamaged,
) -> Result<(), NotHeld> {
    // Another member may serve before all is read.
    let source = segment.served();
    let mut others: Vec<_> = segment.copies().filter(|other| !std::ptr::eq(*other, source)).chain(left).collect();
    let mut sources = vec![source];
    if used.is_log(segment.id()) {
        // Alone, a log with a damaged record looks like one that ends there.
        sources.append(&mut others);
    }
    let mut to = Pipeline::new(copy.remote().background().map_err(NotHeld::Itself)?);
    let mut from = SideBySide::new(&sources, used, 0);
    let mut done = 0;
    let read = loop {
        let piece = match from.as_mut().map_err(|(number, error)| (*number, error.clone())).and_then(SideBySide::next) {
            Ok(Some(piece)) => piece,
            Ok(None) => break Ok(()),
            Err((0, error)) => break Err(error),
            // A source failed that only helps with damage.
            Err((number, _)) => {
                sources.remove(number);
                from = SideBySide::new(&sources, used, done);
                continue;
            }
        };
        if piece.is_damaged() {
            segment.remote().serving().suspect();
            if !others.is_empty() {
                sources.append(&mut others);
                from = SideBySide::new(&sources, used, done);
                continue;
            }
        }
        let (bytes, lost) = piece.mended();
        if let Some(lost) = lost.first() {
            let what = format!("{} is damaged from byte {} to {}, in all copies", segment.id(), lost.start, lost.end);
            if if_damaged == IfDamaged::Fail {
                break Err(Error::corrupt(what));
            }
            tracing::error!("{what}: it is copied as it is");
        }
        to.write(copy, done, &bytes).map_err(NotHeld::Itself)?;
        done += bytes.len() as u64;
    };
    to.drain().map_err(NotHeld::Itself)?;
    read.map_err(NotHeld::Another)
}

#[cfg(test)]
mod tests;
