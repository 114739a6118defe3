//! The bytes of segments, wherever they are stored.

use crate::remote::objects::{Objects, object_of};
use crate::remote::pipeline::read_spot;
use crate::remote::segment::Remote;
use crate::terms::{Error, Result};
use crate::tree::version::LiveVersion;
use forebay_base::SegmentId;
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::NodeIdentity;
use forebay_storage::BlockObject;
use forebay_table::Version;
use std::fmt::Display;
use std::sync::Arc;

/// Segments of a shard that can be read.
pub(crate) trait Segments {
    /// Bytes of a segment from `offset`.
    ///
    /// # Errors
    /// `Corrupt` when they are not there, or damaged; those of storage and fabric.
    fn read(&self, segment: SegmentId, offset: u64, length: u64) -> Result<Vec<u8>>;

    /// What a segment is called in messages.
    fn name(&self, segment: SegmentId) -> String;
}

/// Segments of a version, read from their objects.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) version: &'a Version,
    pub(crate) objects: &'a Objects,
    open: Mutex<HashMap<SegmentId, Arc<BlockObject>>>,
}

impl<'a> Stored<'a> {
    pub(crate) fn new(version: &'a Version, objects: &'a Objects) -> Self {
        Self { version, objects, open: Mutex::default() }
    }

    fn object(&self, id: SegmentId) -> Result<Arc<BlockObject>> {
        if let Some(object) = lock(&self.open).get(&id) {
            return Ok(Arc::clone(object));
        }
        let info = self.version.segment(id).ok_or_else(|| Error::corrupt(format!("no version names {id}")))?;
        let name = object_of(&info.placements).ok_or_else(|| Error::corrupt(format!("{id} has no object")))?;
        let object = Arc::new(self.objects.open(name, info.length)?);
        lock(&self.open).insert(id, Arc::clone(&object));
        Ok(object)
    }
}

impl Segments for Stored<'_> {
    fn read(&self, segment: SegmentId, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.object(segment)?.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn name(&self, segment: SegmentId) -> String {
        let info = self.version.segment(segment);
        let object = info.and_then(|info| object_of(&info.placements));
        object.map_or_else(|| segment.to_string(), str::to_owned)
    }
}

/// What a copy is called in messages.
pub(crate) fn at_node(what: &dyn Display, node: NodeIdentity) -> String {
    format!("{what} at {node}")
}

/// Segments of the version of an open shard, as a member of it holds them.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    pub(crate) version: &'a LiveVersion,
    pub(crate) remote: &'a Remote,
    /// Whether messages say which member it is.
    pub(crate) is_told: bool,
}

impl Segments for Live<'_> {
    fn read(&self, segment: SegmentId, offset: u64, length: u64) -> Result<Vec<u8>> {
        let held = self.version.segment(segment);
        let held = held.ok_or_else(|| Error::corrupt(format!("no version names {segment}")))?;
        let copy = if held.is_stored() { held } else { held.at_member(self.remote.member()).unwrap_or(held) };
        read_spot(&mut *self.remote.background()?, &copy.own_spot(offset), length)
    }

    fn name(&self, segment: SegmentId) -> String {
        match self.is_told {
            true => at_node(&segment, self.remote.memory_node().client().node()),
            false => segment.to_string(),
        }
    }
}
