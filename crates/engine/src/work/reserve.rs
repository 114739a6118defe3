//! Memory that a shard holds while memory is short.

use crate::remote::segment::Segment;
use std::sync::Arc;

/// Memory that a shard holds while memory is short, so that there is a piece of the right length however the rest is
/// divided.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// For the flush of deletions.
    pub(crate) flush: Option<Arc<Segment>>,
    /// For neighbours of level 0 that are merged: a page for their index, and one for their records.
    pub(crate) join: Vec<Arc<Segment>>,
}
