//! What a build must understand of what others wrote, before it takes a database from them.
//!
//! A process that opens a database first looks at what can be read without owning it:
//!
//! ```text
//!   in storage     the commits; the logs that they name; the newest objects that they name, and the newest table image
//!   in memory      of each shard the root, the manifest, the newest table image
//! ```
//!
//! What a newer build wrote is refused, and nothing has changed: an owner that runs is not fenced. An owner writes
//! everything in one version, and understood all that it found, so the newest parts tell. Nothing else is judged here.
//! The owner may be replacing what is read, and recovery knows what damage means.

use crate::durable::database::{Committed, Place};
use crate::durable::recovery::{acquire_shard, read_version, reader, readers};
use crate::remote::objects::object_of;
use crate::remote::owner::Owner;
use crate::remote::pipeline::read_range;
use crate::remote::segment::place_of;
use crate::terms::{Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::thread::run_all;
use forebay_fabric::NodeIdentity;
use forebay_memory_client::{Epoch, ShardId, ShardKey, StoreHandle};
use forebay_storage::{BlockCache, BlockCacheOptions, ObjectName};
use forebay_table::{CachedTable, LogName, ManifestRoot};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of logs and objects that are looked at side by side; no more objects than that are looked at.
const AT_ONCE: usize = 16;

/// How often a root that an owner replaces again and again is looked at. Then the shard is taken as it is, and its
/// recovery shows what it is.
const MOST_LOOKS: usize = 16;

/// Why a database in storage is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To drop it. Its logs are sealed, and no object is read.
    Drop,
    /// To open it.
    Open { has_threads: bool },
}

/// A database in storage as it was found. This build can read what was looked at. A process looks before it changes
/// anything, also in memory.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) committed: Committed,
    /// The owner's epoch when the logs were looked at.
    epoch: u64,
    purpose: Purpose,
}

impl Known {
    /// # Errors
    /// `Unsupported` when a newer build wrote something that the commits name; those of the storage.
    pub(crate) fn new(place: &Place, committed: Committed, epoch: u64, purpose: Purpose) -> Result<Self> {
        check(place, parts(place, &committed, purpose, |_| true, |_| true), purpose)?;
        Ok(Self { committed, epoch, purpose })
    }

    /// Looks at what was named since. One process writes a log, and only later owners add its end: if none has, what
    /// was looked at is unchanged. An object is written once.
    ///
    /// # Errors
    /// As [`Known::new`].
    pub(crate) fn check_again(&self, place: &Place, now: &Committed, epoch: u64) -> Result<()> {
        let before = self.committed.objects();
        let is_new_log = |log: &LogName| epoch != self.epoch || !self.committed.logs.contains(log);
        check(place, parts(place, now, self.purpose, is_new_log, |object| !before.contains(object)), self.purpose)
    }
}

/// What is looked at in a database in storage.
#[derive(Debug)]
enum Part<'c> {
    Log(LogName),
    /// An object, and the place in its bytes of the tail of a table image, which is also looked at.
    Object(&'c str, Option<Range<u64>>),
}

/// The parts that are looked at: the logs, and as many of the newest objects as one round can take.
fn parts<'c>(
    place: &Place,
    committed: &'c Committed,
    purpose: Purpose,
    is_log: impl Fn(&LogName) -> bool,
    is_object: impl Fn(&str) -> bool,
) -> Vec<Part<'c>> {
    let mut parts: Vec<_> = committed.logs.iter().copied().filter(is_log).map(Part::Log).collect();
    if purpose == Purpose::Drop {
        return parts;
    }
    let mut objects = Vec::new();
    for version in &committed.versions {
        let images = version.levels().iter().flatten().map(|table| table.image);
        let mut tails: BTreeMap<_, _> = images.map(|of| (of.segment, of.tail_offset..of.length)).collect();
        for (id, entry) in version.segments() {
            if let Some(object) = object_of(&entry.info.placements).filter(|object| is_object(object)) {
                objects.push((object, tails.remove(id)));
            }
        }
    }
    objects.sort_by_cached_key(|(object, _)| Reverse(age(place, object)));
    objects.truncate(AT_ONCE.saturating_sub(parts.len()).max(1));
    let newest_image = objects.iter().position(|(_, tail)| tail.is_some());
    let part = |(at, (object, tail))| Part::Object(object, if Some(at) == newest_image { tail } else { None });
    parts.extend(objects.into_iter().enumerate().map(part));
    parts
}

/// The age of an object, by the owner's epoch and the number at the end of its name. Objects of other databases, which
/// a clone names, are older.
fn age(place: &Place, object: &str) -> (bool, [Option<String>; 2]) {
    let is_own = ObjectName::new(object).is_ok_and(|name| place.owns(&name));
    let mut from_end = object.rsplit('/').map(str::to_owned);
    let number = from_end.next();
    (is_own, [from_end.next(), number])
}

fn check(place: &Place, parts: Vec<Part<'_>>, purpose: Purpose) -> Result<()> {
    let at_once = if purpose == (Purpose::Open { has_threads: true }) { AT_ONCE } else { 1 };
    for some in parts.chunks(at_once) {
        let panicked = || Err(Error::panicked("looks at storage"));
        let checked = run_all(some.iter().collect(), |part| match part {
            Part::Log(log) => place.check_log(*log),
            Part::Object(object, tail) => unknown_alone(look_at_object(place, object, tail.as_ref())),
        });
        checked.into_iter().try_for_each(|checked| checked.unwrap_or_else(panicked))?;
    }
    Ok(())
}

/// Looks at an object. Costs two requests, and one or two more for a tail.
fn look_at_object(place: &Place, object: &str, tail: Option<&Range<u64>>) -> Result<()> {
    let (storage, name) = (place.storage.objects(), ObjectName::new(object)?);
    let cache = BlockCache::new(BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() })?;
    let opened = cache.open(storage.open(&name)?, object, storage.size(&name)?, name.identity())?;
    let is_there = |tail: &&Range<u64>| tail.start <= tail.end && tail.end <= opened.directory().length();
    if let Some(tail) = tail.filter(is_there) {
        let mut bytes = vec![0; (tail.end - tail.start) as usize];
        opened.read_at(tail.start, &mut bytes)?;
        CachedTable::parse(&bytes).map_err(|error| Error::from(error).during(&format!("reading {object}")))?;
    }
    Ok(())
}

/// A shard's root, and the epoch that set it; `None` when none did.
type Root = Option<(Epoch, Vec<u8>)>;

/// The roots of shards in memory as they were when they were looked at.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<(NodeIdentity, ShardId), Root>);

impl Seen {
    /// Checks that this build understands what earlier owners wrote of shards in memory, before it takes any of them.
    /// Changes nothing, except that this session may read what it has read.
    ///
    /// # Errors
    /// `Unsupported` when a newer build wrote it.
    pub(crate) fn look(shards: &[(&StoreHandle, ShardId)], options: &Options) -> Result<Self> {
        let mut seen = Self::default();
        for some in shards.chunks(readers(options).max(1)) {
            let panicked = || Err(Error::panicked("looks at a shard"));
            let looked = run_all(some.to_vec(), |(store, id)| look_at_shard(store, id, options));
            for ((store, id), looked) in some.iter().zip(looked) {
                let root = looked.unwrap_or_else(panicked)?;
                seen.0.extend(root.map(|root| ((store.client().node(), *id), root)));
            }
        }
        Ok(seen)
    }

    /// Becomes the owner of a shard of a store. If its root was replaced since it was looked at, the new one is looked
    /// at first. So an owner whose data is not understood continues. All shards of a database are acquired before any
    /// of them is recovered. No earlier owner can then change any of them, so everything that is read belongs to one
    /// moment.
    /// # Errors
    /// `Busy` when another process has it open and `takeover` is not set; `Unsupported` when a newer build wrote it; `Unavailable`.
    pub(crate) fn acquire(&self, store: &StoreHandle, id: ShardId, options: &Options) -> Result<Arc<Owner>> {
        let mut seen = self.0.get(&(store.client().node(), id)).cloned();
        for _ in 0..MOST_LOOKS {
            let Some(root) = &seen else { break };
            match acquire_shard(store, options, || store.acquire_seen(id, root.as_ref(), options.takeover)) {
                Err(error) if error.kind() == ErrorKind::Conflict => seen = look_at_shard(store, id, options)?,
                // An older node.
                Err(error) if error.kind() == ErrorKind::Unsupported => break,
                shard => return Ok(Arc::new(Owner::new(store.clone(), shard?))),
            }
        }
        let shard = acquire_shard(store, options, || store.acquire_shard(id, options.takeover))?;
        Ok(Arc::new(Owner::new(store.clone(), shard)))
    }
}

/// The root that was looked at; `None` if it could not be read.
fn look_at_shard(store: &StoreHandle, id: ShardId, options: &Options) -> Result<Option<Root>> {
    let root = match store.root(id) {
        // Nobody has owned it.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => return Ok(None),
        Ok(root) => root,
    };
    if let Some((_, root)) = &root {
        let during = |error: Error| error.during(&format!("reading shard {} of {:?}", id.0, store.name()));
        unknown_alone(look_at_version(store, id, root, options)).map_err(during)?;
    }
    Ok(Some(root))
}

fn look_at_version(store: &StoreHandle, id: ShardId, root: &[u8], options: &Options) -> Result<()> {
    let (client, key) = (store.client(), ShardKey { store: store.id(), shard: id });
    let version = read_version(client, key, &ManifestRoot::decode(root)?, options)?;
    let Some(newest) = version.levels().iter().flatten().max_by_key(|table| table.id) else { return Ok(()) };
    let image = newest.image;
    let is_there = image.tail_offset <= image.length;
    let range = version.segment(image.segment).filter(|info| is_there && image.length <= info.length);
    let Some(range) = range.and_then(|info| place_of(client, info)) else { return Ok(()) };
    client.map_to_read(key, &[range.extent])?;
    let from = client.resolve(range.extent, range.offset + image.tail_offset)?;
    let tail = read_range(&mut reader(client, options)?, from, image.length - image.tail_offset)?;
    CachedTable::parse(&tail)?;
    Ok(())
}

/// Passes on only that something is not understood.
fn unknown_alone(looked: Result<()>) -> Result<()> {
    looked.or_else(|error| if error.kind() == ErrorKind::Unsupported { Err(error) } else { Ok(()) })
}
