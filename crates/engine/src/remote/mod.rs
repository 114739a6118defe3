//! Remote memory as this process uses it: nodes, endpoints, segments, the shard's owner, cached point indexes, and
//! the objects in storage that hold copies of segments.
//!
//! A segment is freed when nothing holds it. A node's part holds the outputs of a shard's own jobs. May use
//! [`terms`](crate::terms). Never here: a table, a version, or knowledge of what the bytes mean.

pub(crate) mod endpoints;
pub(crate) mod index_cache;
pub(crate) mod kept;
pub(crate) mod members;
pub(crate) mod memory_floor;
pub(crate) mod node_part;
pub(crate) mod objects;
pub(crate) mod offloading;
pub(crate) mod owner;
pub(crate) mod pipeline;
pub(crate) mod private_store;
pub(crate) mod searches;
pub(crate) mod segment;
pub(crate) mod serving;
pub(crate) mod spot;
pub(crate) mod stored;
