//! A process looks at a database in storage while its owner continues.

use crate::common::eventually;
use crate::common::process::Process;
use crate::common::stored::{of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error, Options, SalvagedEntry, ShardBounds, Step, StoredDatabase, Syncing};
use forebay_storage::{MemoryObjects, ObjectName, ObjectStorage, PutMode};
use std::collections::BTreeSet;

const KEYS: u64 = 400;

/// The owner of a database of two shards. `a` is in the first one.
struct Owner {
    objects: MemoryObjects,
    db: Db,
    _process: Process,
}

impl Owner {
    fn new() -> Self {
        let objects = MemoryObjects::new();
        let bounds = ShardBounds::Given(vec![b"b".to_vec()]);
        let storage = of_objects(&objects.handle());
        let options = Options { shards: 2, shard_bounds: bounds, ..options(&storage, Syncing::Flush) };
        let process = Process::with_empty_memory();
        let owner = Self { objects, db: process.open(options), _process: process };
        owner.rewrite("a");
        owner.rewrite("b");
        owner
    }

    fn stored(&self) -> StoredDatabase {
        StoredDatabase::new(&of_objects(&self.objects.handle()), "db").unwrap()
    }

    fn segments(&self) -> BTreeSet<ObjectName> {
        let segments = ObjectName::new("db/segment").unwrap();
        self.objects.list(Some(&segments)).unwrap().into_iter().map(|object| object.name).collect()
    }

    /// Writes the keys of a shard once more, and returns when none of the shard's earlier objects is left.
    fn rewrite(&self, shard: &str) {
        let before = self.segments();
        (0..KEYS).for_each(|number| self.db.put(format!("{shard}{number:05}").as_bytes(), &[7; 100]).unwrap());
        self.db.flush().unwrap();
        self.db.compact_range(None, None).unwrap();
        let number = if shard == "a" { 0 } else { 1 };
        let prefix = format!("db/segment/{number:020}/");
        let is_its = |name: &&ObjectName| name.as_str().starts_with(&prefix);
        eventually("what was replaced is deleted", || {
            let now = self.segments();
            now.iter().any(|name| is_its(&name)) && before.iter().filter(is_its).all(|name| !now.contains(name))
        });
    }
}

/// Calls `act` at the first step of each of the first `passes` passes.
fn at_first_steps(passes: &mut usize, mut act: impl FnMut()) -> impl FnMut(Step) {
    let mut last = u64::MAX;
    move |step| {
        if step.bytes < last && *passes > 0 {
            *passes -= 1;
            act();
        }
        last = step.bytes;
    }
}

#[test]
fn what_the_owner_replaces_is_not_damaged() {
    let owner = Owner::new();
    let mut passes = 3;
    let report = owner.stored().verify(&mut at_first_steps(&mut passes, || owner.rewrite("a"))).unwrap();
    assert_eq!(report.problems, []);
    assert!(passes < 2, "the first pass has found something missing");
}

#[test]
fn what_is_damaged_is_told_whatever_the_owner_does() {
    let owner = Owner::new();
    let damaged = owner.segments().pop_last().unwrap();
    owner.objects.flip(&damaged, 40, 1).unwrap();
    for mut passes in [2, 1000] {
        let report = owner.stored().verify(&mut at_first_steps(&mut passes, || owner.rewrite("a"))).unwrap();
        assert!(!report.problems.is_empty());
        assert!(report.problems.iter().all(|problem| problem.object == damaged.as_str()), "{:?}", report.problems);
    }
}

#[test]
fn nothing_is_saved_from_under_an_owner_who_goes_on() {
    let owner = Owner::new();
    let mut passes = 1;
    let busy = owner.stored().salvage(&mut at_first_steps(&mut passes, || owner.rewrite("a"))).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    // The owner continues when all is found, and not yet read.
    let salvage = owner.stored().salvage(&mut |_| ()).unwrap();
    owner.rewrite("b");
    let busy = salvage.save(|_: SalvagedEntry<'_>| Ok::<_, Error>(())).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    let mut saved = 0;
    let count = |_: SalvagedEntry<'_>| {
        saved += 1;
        Ok::<_, Error>(())
    };
    let report = owner.stored().salvage(&mut |_| ()).unwrap().save(count).unwrap();
    assert_eq!((report.problems, saved), (vec![], 2 * KEYS));
}

/// Also objects that nothing names, of shards that do not exist.
#[test]
fn objects_are_listed_together_whichever_shards_they_are_of() {
    let owner = Owner::new();
    owner.db.close().unwrap();
    let look = || {
        let handle = owner.objects.handle();
        let database = StoredDatabase::new(&of_objects(&handle), "db").unwrap();
        let begun = handle.steps();
        database.salvage(&mut |_: Step| ()).unwrap();
        let salvaged = handle.steps();
        let notes = database.verify(&mut |_: Step| ()).unwrap().notes.len();
        ([salvaged - begun, handle.steps() - salvaged], notes)
    };
    let (steps, notes) = look();
    for shard in 10..18 {
        let name = ObjectName::new(format!("db/segment/{shard:020}/{:020}/{:020}", 1, 1)).unwrap();
        owner.objects.put(&name, vec![7; 100].into(), PutMode::Replace).unwrap();
    }
    assert_eq!(look(), (steps, notes + 8));
}
