//! A database as it is on memory nodes, shown by a session that does not own it (`docs/decisions/0084`).
//!
//! ```text
//!   store at each node ─► root of each shard ─► manifest ─► version ─► images, records, parts of the log
//! ```
//!
//! A session that may open the store may read all of this. No shard is acquired, so an owner continues and notices
//! nothing. The owner may replace what is being read, and give the memory to something else. It sets a root before it
//! does, so if a root has changed meanwhile, all is read again.
//!
//! Several nodes may have a manifest of one shard, if the database has several copies. Only the register knows which of
//! them count. All are listed, and the one that went furthest is shown.

use crate::durable::named::{self, Part};
use crate::durable::recovery::{misplaced, read_part, read_version, reader};
use crate::durable::replay::{self, Part as LoggedPart};
use crate::inspect::remains::Remains;
use crate::inspect::report::{Cell, Report, Section};
use crate::inspect::rows::{
    push_limited, segment_kind, show_contents, show_image, show_properties, show_versions, yes_or_no,
};
use crate::inspect::show::Shown;
use crate::remote::objects::object_of;
use crate::remote::pipeline::read_range;
use crate::remote::segment::place_of;
use crate::terms::{Error, Options, Result};
use forebay_base::{ErrorKind, SegmentId, SequenceNumber};
use forebay_fabric::RemoteAddress;
use forebay_memory_client::{Epoch, ExtentRange, MemoryClient, ShardId, ShardKey};
use forebay_table::{LogPart, ManifestRoot, SegmentKind, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often all is read at most while the owner continues.
const MOST_LOOKS: usize = 16;

const STORES: &[&str] = &["node", "database", "place", "nodes", "copies", "shards", "key_order", "merge_operator"];
const MANIFESTS: &[&str] =
    &["node", "shard", "epoch", "bytes", "edits", "capacity", "extent", "offset", "shown", "state"];
const PARTS: &[&str] = &["shard", "segment", "bytes", "first", "last", "shipped", "needed"];
const SEGMENT: &[&str] = &["node", "shard", "segment", "kind", "bytes", "extent", "offset"];

/// A named database on memory nodes that is looked at, and not opened. No call on it changes anything, and its owner
/// may continue meanwhile.
#[derive(Debug)]
pub struct MemoryDatabase {
    name: String,
    parts: Vec<Part>,
    options: Options,
}

/// The roots of shards, each with its epoch, by the number of the node as it was named and the shard.
type Roots = BTreeMap<(usize, u64), (Epoch, Vec<u8>)>;

/// A shard's manifest at a node.
#[derive(Debug)]
struct Manifest<'a> {
    part: &'a Part,
    shard: u64,
    epoch: Epoch,
    root: Option<ManifestRoot>,
    version: Result<Version>,
    /// Whether this manifest is the one of its shard that is shown.
    is_shown: bool,
}

impl MemoryDatabase {
    /// The database `name` on these memory nodes. Other nodes may also have parts of it.
    ///
    /// # Errors
    /// `NotFound` when none of them has a part of it; `Invalid` when they have several of the name, or two of them are
    /// the same node; `Unavailable`.
    pub fn new(clients: &[Arc<MemoryClient>], name: &str) -> Result<Self> {
        named::check_differ(clients)?;
        Ok(Self { name: name.to_owned(), parts: named::parts(clients, name)?, options: Options::default() })
    }

    /// Checks that a database in memory, whichever it is, can have what `shown` names.
    ///
    /// # Errors
    /// `Invalid` for a log by its number, and for a segment whose name is not SHARD/SEGMENT.
    pub fn check(shown: &Shown) -> Result<()> {
        match shown {
            Shown::Log(Some(_)) => {
                Err(Error::invalid("a log in memory has no number: without one, those of all shards are shown"))
            }
            Shown::Segment(name) => segment_numbers(name).map(drop),
            Shown::Manifest | Shown::Log(None) | Shown::Table { .. } => Ok(()),
        }
    }

    /// Shows a part of the database. Long lists end after `limit` rows, which is noted.
    ///
    /// # Errors
    /// Those of [`MemoryDatabase::check`]; `NotFound` for a table or a segment that is not there; `Busy` when the owner
    /// changes it again and again, and something else seems to be wrong; `Unavailable`. Damage is not an error but a
    /// problem of the report.
    pub fn show(&self, shown: &Shown, limit: usize) -> Result<Report> {
        Self::check(shown)?;
        let mut looked = Ok(Report::default());
        for _ in 0..MOST_LOOKS {
            let roots = self.roots()?;
            let mut report = Report::default();
            looked = self.show_at(&roots, shown, limit, &mut report).map(|()| report);
            if self.roots()? == roots {
                return looked;
            }
        }
        match looked {
            Ok(mut report) if report.problems.is_empty() => {
                report.note(
                    self.name.as_str(),
                    "its owner changed it each time that it was read: it may be of several moments",
                );
                Ok(report)
            }
            _ => {
                let message = format!("{:?} was changed each time that it was read: try again", self.name);
                Err(Error::new(ErrorKind::Busy, message))
            }
        }
    }

    /// Number of shards of the database, at most as many as there can be.
    fn shards(part: &Part) -> u64 {
        part.config.shards.min(Options::MAX_SHARDS as u64)
    }

    /// The roots that the nodes have now.
    fn roots(&self) -> Result<Roots> {
        let mut roots = Roots::new();
        for (part, at) in self.parts.iter().zip(0..) {
            for shard in 0..Self::shards(part) {
                match part.store.root(ShardId(shard as u32)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    root => roots.extend(root?.map(|root| ((at, shard), root))),
                }
            }
        }
        Ok(roots)
    }

    fn show_at(&self, roots: &Roots, shown: &Shown, limit: usize, report: &mut Report) -> Result<()> {
        let read = |(&(at, shard), (epoch, root)): (&(usize, u64), &(Epoch, Vec<u8>))| {
            Some(Manifest::read(self.parts.get(at)?, shard, *epoch, root, &self.options))
        };
        let mut manifests: Vec<_> = roots.iter().filter_map(read).collect();
        choose(&mut manifests);
        self.note(&manifests, report);
        match shown {
            Shown::Manifest => self.show_manifests(&manifests, report),
            Shown::Log(_) => self.show_logs(&manifests, limit, report)?,
            Shown::Table { shard, table } => self.show_table(&manifests, *shard, *table, limit, report)?,
            Shown::Segment(name) => self.show_segment(&manifests, name, limit, report)?,
        }
        Ok(())
    }

    /// Reports which manifests cannot be read, which shards are at none of these nodes, and which at several.
    fn note(&self, manifests: &[Manifest<'_>], report: &mut Report) {
        for manifest in manifests {
            if let Err(error) = &manifest.version {
                report.problem(manifest.named(), error.kind(), error);
            }
        }
        for shard in 0..self.parts.first().map_or(0, Self::shards) {
            match manifests.iter().filter(|manifest| manifest.shard == shard).count() {
                0 => report.note(format!("shard {shard}"), "it lies at none of these memory nodes: name the others"),
                1 => {}
                _ => report.note(format!("shard {shard}"), "it lies at several nodes: what went furthest is shown"),
            }
        }
    }

    fn show_manifests(&self, manifests: &[Manifest<'_>], report: &mut Report) {
        let mut stores = Section::new("stores", STORES);
        for Part { store, config } in &self.parts {
            stores.rows.push(vec![
                store.client().described().into(),
                config.part.map(|part| format!("{:#018x}", part.database)).into(),
                config.part.map(|part| u64::from(part.place)).into(),
                config.part.map(|part| u64::from(part.nodes)).into(),
                u64::from(config.copies.max(1)).into(),
                config.shards.into(),
                config.key_order.name().into(),
                config.merge_operator.as_str().into(),
            ]);
        }
        let mut section = Section::new("manifests", MANIFESTS);
        for manifest in manifests {
            let of_root = |number: fn(&ManifestRoot) -> u64| Cell::from(manifest.root.as_ref().map(number));
            let state = manifest.version.as_ref().map_or_else(ToString::to_string, |_| "whole".to_owned());
            section.rows.push(vec![
                manifest.node().into(),
                manifest.shard.into(),
                manifest.epoch.0.into(),
                of_root(|root| root.length),
                of_root(|root| root.edits),
                of_root(|root| root.capacity),
                of_root(|root| root.extent.into()),
                of_root(|root| root.offset),
                yes_or_no(manifest.is_shown).into(),
                state.into(),
            ]);
        }
        report.sections.extend([stores, section]);
        let shown = manifests.iter().filter(|manifest| manifest.is_shown);
        show_versions(shown.filter_map(|of| Some((of.shard, of.version.as_ref().ok()?))), report);
    }

    fn show_logs(&self, manifests: &[Manifest<'_>], limit: usize, report: &mut Report) -> Result<()> {
        let mut section = Section::new("parts", PARTS);
        for manifest in manifests.iter().filter(|manifest| manifest.is_shown) {
            let version = manifest.version()?;
            let parts = version.log_parts().map(|part| manifest.read_log(part, &self.options));
            let parts = parts.collect::<Result<Vec<_>>>();
            let (parts, found) = match parts.and_then(|parts| {
                let found = replay::replay(&parts, version.last_sequence(), SequenceNumber::MAX)?;
                Ok((parts, found))
            }) {
                Ok(read) => read,
                Err(error) => {
                    report.problem(manifest.named(), error.kind(), format!("the log: {error}"));
                    continue;
                }
            };
            if let Some((reached, shipped)) = found.lacks {
                let (reached, shipped) = (reached.0, shipped.0);
                let detail = format!("the log is damaged behind number {reached}, and was shipped up to {shipped}");
                report.problem(manifest.named(), ErrorKind::Corrupt, detail);
            }
            for part in &parts {
                let bytes = version.segment(part.segment).map(|info| info.length);
                let numbers = part.numbers();
                section.rows.push(vec![
                    manifest.shard.into(),
                    part.segment.into(),
                    bytes.into(),
                    numbers.map(|(first, _)| first.0).into(),
                    numbers.map(|(_, last)| last.0).into(),
                    part.shipped().map(|shipped| shipped.0).into(),
                    yes_or_no(!found.ended.contains(&part.segment)).into(),
                ]);
            }
        }
        push_limited(section, limit, report);
        Ok(())
    }

    fn show_table(
        &self,
        manifests: &[Manifest<'_>],
        shard: u64,
        number: u64,
        limit: usize,
        report: &mut Report,
    ) -> Result<()> {
        let manifest = self.of_shard(manifests, shard, report)?;
        let tables = manifest.version()?.levels().iter().flatten();
        let table = tables.into_iter().find(|table| table.id.0 == number);
        let table = table.ok_or_else(|| self.missing(shard, &format!("table {number}")))?;
        show_properties(&table.properties, report);
        let image = table.image.segment;
        if let Some(remains) = self.remains_of(manifest, image, report)? {
            show_image(&remains, limit, &segment_name(shard, image), report);
        }
        Ok(())
    }

    fn show_segment(&self, manifests: &[Manifest<'_>], name: &str, limit: usize, report: &mut Report) -> Result<()> {
        let (shard, id) = segment_numbers(name)?;
        let manifest = self.of_shard(manifests, shard, report)?;
        let Some(remains) = self.remains_of(manifest, id, report)? else { return Ok(()) };
        let is_image = manifest.version()?.segment(id).is_some_and(|info| info.kind == SegmentKind::TableImage);
        if is_image && !matches!(remains.table(), Some(Ok(_))) {
            show_image(&remains, limit, name, report);
        } else {
            show_contents(&remains, limit, name, report);
        }
        Ok(())
    }

    /// The manifest of a shard that is shown.
    fn of_shard<'m, 'a>(&self, manifests: &'m [Manifest<'a>], shard: u64, report: &Report) -> Result<&'m Manifest<'a>> {
        let found = manifests.iter().find(|manifest| manifest.is_shown && manifest.shard == shard);
        found.ok_or_else(|| match report.problems.first() {
            Some(problem) => Error::new(problem.kind, format!("{}: {}", problem.object, problem.detail)),
            None => Error::new(
                ErrorKind::NotFound,
                format!(
                    "these memory nodes have no shard {shard} of {}: forebay inspect manifest lists them",
                    self.name
                ),
            ),
        })
    }

    fn missing(&self, shard: u64, what: &str) -> Error {
        let message = format!("shard {shard} of {} has no {what}: forebay inspect manifest lists them", self.name);
        Error::new(ErrorKind::NotFound, message)
    }

    /// Reads a segment, and tells where it is; `None` when it cannot be read, which is a problem.
    fn remains_of(&self, manifest: &Manifest<'_>, id: SegmentId, report: &mut Report) -> Result<Option<Remains>> {
        let (shard, name) = (manifest.shard, segment_name(manifest.shard, id));
        let info = manifest.version()?.segment(id);
        let info = info.ok_or_else(|| self.missing(shard, &format!("segment {}", id.0)))?;
        let Some(range) = place_of(manifest.client(), info) else {
            report.problem(
                name,
                ErrorKind::NotFound,
                match object_of(&info.placements) {
                    Some(object) => format!("it lies in storage: forebay inspect segment --storage URL {object}"),
                    None => "it does not lie in this memory node".to_owned(),
                },
            );
            return Ok(None);
        };
        let mut about = Section::new("segment", SEGMENT);
        about.rows.push(vec![
            manifest.node().into(),
            shard.into(),
            id.into(),
            segment_kind(info.kind).into(),
            info.length.into(),
            u64::from(range.extent.0).into(),
            range.offset.into(),
        ]);
        report.sections.push(about);
        let read = || {
            let base = manifest.base_of(range)?;
            read_range(&mut reader(manifest.client(), &self.options)?, base, info.length)
        };
        match read() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                report.problem(name, error.kind(), error);
                Ok(None)
            }
            bytes => bytes.map(|bytes| Some(Remains::whole(bytes))),
        }
    }
}

/// For each shard, chooses the manifest that is shown: the one that went furthest, and of several, the one at the first
/// node.
fn choose(manifests: &mut [Manifest<'_>]) {
    let mut furthest = BTreeMap::new();
    for (manifest, at) in manifests.iter().zip(0_usize..) {
        let Some(reached) = manifest.reached() else { continue };
        let chosen = furthest.entry(manifest.shard).or_insert((reached, at));
        if reached > chosen.0 {
            *chosen = (reached, at);
        }
    }
    for (_, at) in furthest.into_values() {
        if let Some(manifest) = manifests.get_mut(at) {
            manifest.is_shown = true;
        }
    }
}

fn segment_name(shard: u64, id: SegmentId) -> String {
    format!("{shard}/{}", id.0)
}

/// The shard and the segment that a name names.
fn segment_numbers(name: &str) -> Result<(u64, SegmentId)> {
    let numbers = name.split_once('/').and_then(|(shard, id)| Some((shard.parse().ok()?, SegmentId(id.parse().ok()?))));
    numbers.ok_or_else(|| Error::invalid("a segment in memory is SHARD/SEGMENT, such as 0/12"))
}

impl<'a> Manifest<'a> {
    fn read(part: &'a Part, shard: u64, epoch: Epoch, root: &[u8], options: &Options) -> Self {
        let key = ShardKey { store: part.store.id(), shard: ShardId(shard as u32) };
        let root = ManifestRoot::decode(root).map_err(Error::from);
        let version = match &root {
            Ok(root) => read_version(part.store.client(), key, root, options),
            Err(error) => Err(error.clone()),
        };
        Self { part, shard, epoch, root: root.ok(), version, is_shown: false }
    }

    fn client(&self) -> &Arc<MemoryClient> {
        self.part.store.client()
    }

    fn node(&self) -> String {
        self.client().described()
    }

    /// The manifest's name in messages.
    fn named(&self) -> String {
        format!("shard {} at {}", self.shard, self.node())
    }

    fn version(&self) -> Result<&Version> {
        self.version.as_ref().map_err(Error::clone)
    }

    /// How far the manifest went: numbers that grow from each version to the next.
    fn reached(&self) -> Option<(Epoch, [u64; 3])> {
        let version = self.version.as_ref().ok()?;
        Some((self.epoch, [version.next_segment(), version.next_table(), version.last_sequence().0]))
    }

    /// The address of memory of the shard, once it may be read.
    fn base_of(&self, range: ExtentRange) -> Result<RemoteAddress> {
        let key = ShardKey { store: self.part.store.id(), shard: ShardId(self.shard as u32) };
        self.client().map_to_read(key, &[range.extent]).map_err(|error| misplaced(error.into()))?;
        Ok(self.client().resolve(range.extent, range.offset)?)
    }

    fn read_log(&self, part: LogPart, options: &Options) -> Result<LoggedPart> {
        let version = self.version()?;
        let missing = || Error::corrupt(format!("{} of the log is not there", part.segment));
        let info = version.segment(part.segment).ok_or_else(missing)?;
        let base = self.base_of(place_of(self.client(), info).ok_or_else(missing)?)?;
        read_part(&mut reader(self.client(), options)?, base, part, info.length, version.last_sequence())
    }
}
