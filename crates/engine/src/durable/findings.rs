//! Damage that was found in copies in memory.

use crate::terms::Error;
use crate::terms::statistics::{Counters, add};
use forebay_fabric::NodeIdentity;

/// Whether damage is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    /// Damage is only reported.
    Look,
    Repair,
}

/// Damage that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    /// Where: a segment, or a manifest.
    pub(crate) what: String,
    /// Whose copy it is.
    pub(crate) node: NodeIdentity,
    pub(crate) is_mended: bool,
    pub(crate) detail: String,
}

/// What was checked.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Bytes of all copies.
    pub(crate) bytes: u64,
    pub(crate) copies: u64,
    pub(crate) damaged: Vec<Damaged>,
    /// Members that do not keep what is written to them, each with its failure.
    pub(crate) useless: Vec<(usize, Error)>,
}

impl Looked {
    /// Adds what was found, and counts it.
    pub(crate) fn add(&mut self, found: Damaged, counters: &Counters) {
        add(&counters.damaged_copies, 1);
        add(&counters.mended_copies, u64::from(found.is_mended));
        self.damaged.push(found);
    }
}
