//! Verifying an open database.

use crate::api::db::Db;
use crate::inspect::report::{Report, Step};
use crate::inspect::verify::verify_open;
use crate::terms::Result;
use std::sync::Arc;

impl Db {
    /// Reads all tables and segments of the database as they are now, wherever they lie, and checks that indexes are in order
    /// and that every entry finds its record. Writers and readers go on. What is in memtables is not read. `progress` is
    /// told from time to time.
    ///
    /// # Errors
    /// `Closed`. Damage is no error, but in [`Report::problems`].
    pub fn verify(&self, progress: &mut dyn FnMut(Step)) -> Result<Report> {
        let trees: Vec<_> = self.shards().iter().map(|shard| Arc::clone(&shard.tree)).collect();
        trees.iter().try_for_each(|tree| tree.check_open())?;
        Ok(verify_open(&trees, progress))
    }
}
