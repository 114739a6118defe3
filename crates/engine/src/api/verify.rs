//! Verifying an open database.

use crate::api::db::Db;
use crate::durable::findings::Mend;
use crate::inspect::report::{Report, Section, Step};
use crate::inspect::verify::{add_damage, verify_open};
use crate::terms::Result;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use std::sync::Arc;

impl Db {
    /// Reads all tables and segments of the database as they are now, wherever they are stored, and checks that indexes
    /// are in order and that every entry finds its record. If the database has copies in memory, it checks each copy,
    /// with its manifest and logs, and says whose copy is damaged. Writers and readers continue. Memtables are not
    /// read. `progress` is called from time to time.
    ///
    /// # Errors
    /// `Closed`; `Fenced` when another process took over, and what was read may be its own. Damage is not an error: it is in
    /// [`Report::problems`].
    pub fn verify(&self, progress: &mut dyn FnMut(Step)) -> Result<Report> {
        let trees: Vec<_> = self.shards().iter().map(|shard| Arc::clone(&shard.tree)).collect();
        trees.iter().try_for_each(|tree| tree.check_open())?;
        let mut report = verify_open(&trees, progress);
        self.look_at_copies(Mend::Look, &mut report, progress)?;
        self.stands(report)
    }

    /// Checks all copies in memory, and rewrites damaged data from a copy that has it whole. Reads do that with damage
    /// that they meet; this also finds damage that nobody reads. [`Report::notes`] has what was repaired, and
    /// [`Report::problems`] what no copy has whole. Does nothing if the database has no durability `memory`.
    ///
    /// # Errors
    /// `Closed`; `Fenced` as for [`Db::verify`]; `Unavailable` when a memory node cannot be reached.
    pub fn mend_copies(&self, progress: &mut dyn FnMut(Step)) -> Result<Report> {
        let mut report = Report::default();
        self.look_at_copies(Mend::Repair, &mut report, progress)?;
        self.stands(report)
    }

    /// Returns a report if its problems are those of this database. What could not be read may have been given back, or may
    /// be another process's by now.
    fn stands(&self, report: Report) -> Result<Report> {
        if !report.problems.is_empty() {
            self.shards().iter().for_each(|shard| shard.watch_owner());
            self.shards().iter().try_for_each(|shard| shard.tree.check_open())?;
            // With memory nodes of its own, a successor is seen in storage only.
            if let Err(error) = self.check_owner()
                && error.kind() == ErrorKind::Fenced
            {
                return Err(error);
            }
        }
        Ok(report)
    }

    fn look_at_copies(&self, mend: Mend, report: &mut Report, progress: &mut dyn FnMut(Step)) -> Result<()> {
        let names = &["copies_looked_at", "bytes_looked_at", "damaged", "mended"];
        let mut counts = [0; 4];
        let of_shard = |shard: &Arc<Shard>| {
            let bytes = shard.tree.view.load().version.segment_bytes();
            bytes.saturating_mul(shard.tree.remote.active().count() as u64)
        };
        let mut step = Step { bytes: 0, of_bytes: self.shards().iter().map(of_shard).sum() };
        let mut are_any = false;
        for (shard, number) in self.shards().iter().zip(0..) {
            let looked = shard.look_at_copies(mend, |bytes| {
                step.bytes += bytes;
                progress(step);
            });
            let Some(looked) = looked.map_err(|error| shard.tree.why_failed(error))? else { continue };
            are_any = true;
            let mended = looked.damaged.iter().filter(|damaged| damaged.is_mended).count() as u64;
            let found = [looked.copies, looked.bytes, looked.damaged.len() as u64, mended];
            counts.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            add_damage(report, number, looked);
        }
        if are_any {
            let mut section = Section::new("copies", names);
            section.rows.push(counts.map(Into::into).to_vec());
            report.sections.push(section);
        }
        Ok(())
    }
}
