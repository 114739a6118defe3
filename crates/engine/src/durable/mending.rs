//! Finds damaged copies, and repairs them from whole ones.
//!
//! ```text
//!   a read finds damage ──► another member serves, and the copies are suspected     (`remote::members`)
//!   the copies are checked, all or one after the other        segments side by side, manifests against what is known
//!        one has it whole        ──► the others get these bytes, in place, and are read again
//!        none has                ──► reported
//!        it does not keep them   ──► its memory is broken: once the others have got what they lack, the member is left out,
//!                                    and copies are made elsewhere
//! ```
//!
//! Segments do not change once they are written, except the part of the log that is being written to. That part is
//! checked while nothing is shipped. Only bytes that differ are written, by the memory node in the owner's epoch
//! (`Remote::mend`), so readers need not stop.
//!
//! A manifest says what this process knows. A damaged manifest is begun anew.

use crate::durable::commit::Commits;
use crate::durable::findings::{Damaged, Looked, Mend};
use crate::durable::log::Log;
use crate::durable::side_by_side::{Piece, SideBySide};
use crate::durable::used::Used;
use crate::durable::whole::Damage;
use crate::remote::pipeline::read_range;
use crate::remote::segment::Segment;
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use crate::tree::version::LiveVersion;
use forebay_base::{ErrorKind, SegmentId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The segments of a shard that can be checked, as of a moment.
pub(crate) struct Looking<'a> {
    tree: &'a Tree,
    mend: Mend,
    version: Arc<LiveVersion>,
    used: Used,
    /// The parts of the log. `closed` has those that are no longer written to.
    parts: BTreeSet<SegmentId>,
    closed: BTreeSet<SegmentId>,
}

impl<'a> Looking<'a> {
    pub(crate) fn new(tree: &'a Tree, log: &Log, mend: Mend) -> Self {
        // What is closed now stays so.
        let closed = log.closed_parts();
        let version = Arc::clone(&tree.view.load().version);
        let parts = version.version.log_parts().map(|part| part.segment).collect();
        let read = tree.versions_read();
        let used = Used::by(read.iter().chain([&version]).map(|version| &version.version));
        Self { tree, mend, version, used, parts, closed }
    }

    /// Returns the segments of the version, and those that readers of earlier versions need, ordered by number.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        let read = self.tree.segments_read(&self.version);
        let mut segments: Vec<_> = self.version.segments().chain(&read).filter(|of| !of.is_stored()).cloned().collect();
        segments.sort_unstable_by_key(|segment| segment.id());
        segments
    }

    /// Checks all copies of a segment.
    ///
    /// # Errors
    /// Those of members that cannot be read or written; of leaving one out.
    pub(crate) fn segment(&self, segment: &Segment, log: &Log, looked: &mut Looked) -> Result<()> {
        if self.parts.contains(&segment.id()) && !self.closed.contains(&segment.id()) {
            return log.at_rest(|_| self.at_rest(segment, looked));
        }
        self.at_rest(segment, looked)
    }

    fn at_rest(&self, segment: &Segment, looked: &mut Looked) -> Result<()> {
        let members = &self.tree.remote;
        let copies: Vec<_> = members.active().filter_map(|remote| segment.at_member(remote.member())).collect();
        looked.copies += copies.len() as u64;
        let failed = |(_, error)| error;
        let mut read = SideBySide::new(&copies, &self.used, 0).map_err(failed)?;
        while let Some(Piece { offset, bytes, damage }) = read.next().map_err(failed)? {
            looked.bytes += bytes.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
            for damage in damage {
                self.damaged(&copies, offset, &bytes, &damage, looked)?;
            }
        }
        Ok(())
    }

    /// Reports damage, and repairs it where possible.
    fn damaged(
        &self,
        copies: &[&Segment],
        offset: u64,
        bytes: &[Vec<u8>],
        damage: &Damage,
        looked: &mut Looked,
    ) -> Result<()> {
        let (start, end) = (offset + damage.at.start as u64, offset + damage.at.end as u64);
        for &number in &damage.copies {
            let (Some(copy), Some(bytes)) = (copies.get(number), bytes.get(number)) else { continue };
            let node = copy.remote().memory_node().client().node();
            let what = copy.id().to_string();
            let mut found =
                Damaged { what, node, is_mended: false, detail: format!("bytes {start} to {end} are damaged") };
            let whole = damage.whole.as_deref().filter(|_| self.mend == Mend::Repair);
            if let (Some(whole), Some(own)) = (whole, bytes.get(damage.at.clone())) {
                match self.write(copy, start, own, whole) {
                    Ok(()) => {
                        found.is_mended = true;
                        tracing::warn!(segment = %copy.id(), %node, start, end, "a damaged copy is whole again");
                    }
                    // The member is of no use, whatever the cause. But it may have whole what is damaged at others.
                    Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                        tracing::error!(segment = %copy.id(), %node, start, end, %error, "a damaged copy cannot be mended");
                        looked.useless.push((copy.remote().member(), error));
                    }
                    Err(error) => return Err(error),
                }
            } else if damage.whole.is_none() {
                found.detail.push_str(", and no copy has them whole");
                tracing::error!(segment = %copy.id(), %node, start, end, "no copy of these bytes is whole");
            }
            looked.add(found, &self.tree.counters);
        }
        Ok(())
    }

    /// Writes the bytes that differ, and reads them again.
    fn write(&self, copy: &Segment, start: u64, own: &[u8], whole: &[u8]) -> Result<()> {
        let differs = |(own, whole): (&u8, &u8)| own != whole;
        let first = own.iter().zip(whole).position(differs).unwrap_or(0);
        let last = own.iter().zip(whole).rposition(differs).map_or(whole.len(), |last| last + 1);
        let (at, bytes) = (start + first as u64, whole.get(first..last).unwrap_or_default());
        copy.remote().mend(copy, at, bytes)?;
        let now = read_range(&mut *copy.remote().background()?, copy.at(at)?, bytes.len() as u64)?;
        if now != bytes {
            return Err(Error::corrupt(format!("{} does not keep what is written to it", copy.id())));
        }
        Ok(())
    }
}

/// Checks all copies of a shard's segments and manifests. Members that do not keep what is written to them are left out at
/// the end. Calls `told` with the number of bytes read.
///
/// # Errors
/// As [`Looking::segment`]; `Closed`.
pub(crate) fn look(tree: &Tree, commits: &Commits, log: &Log, mend: Mend, mut told: impl FnMut(u64)) -> Result<Looked> {
    let mut looked = Looked::default();
    commits.look(tree, mend, &mut looked)?;
    let looking = Looking::new(tree, log, mend);
    for segment in looking.segments() {
        tree.check_open()?;
        let before = looked.bytes;
        looking.segment(&segment, log, &mut looked)?;
        told(looked.bytes - before);
    }
    for (member, failure) in std::mem::take(&mut looked.useless) {
        tree.remote.leave_out(member, &failure)?;
    }
    Ok(looked)
}

#[cfg(test)]
mod tests;
