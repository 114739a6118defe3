//! Whether the memory nodes can hold what the memtables of all shards need at once.

use crate::plan::ledger::{Granted, Ledger, Pool};
use crate::plan::planner::Planner;
use crate::plan::room::reserve_bytes;
use crate::terms::{Error, Options, Result};
use forebay_memory_client::MemoryClient;
use std::sync::Arc;

/// Refuses to create a database that could flush nothing, however empty its nodes are: once each shard has its first
/// memtable, none would get another. An existing database is opened all the same, because deletions and reads still
/// work, and the log says so. Shard `i` is on node `i` modulo the number of nodes.
///
/// # Errors
/// `Invalid` for a new database.
pub(super) fn check(clients: &[Arc<MemoryClient>], options: &Options, is_new: bool) -> Result<()> {
    for (at, client) in clients.iter().enumerate() {
        let shards = options.shards.saturating_sub(at).div_ceil(clients.len());
        let granted = whole(client, options);
        if fit(&granted, shards, options) {
            continue;
        }
        let most = (1..shards).rev().find(|&fewer| fit(&granted, fewer, options)).unwrap_or(0);
        let problem = format!(
            "memory {} has {} extents of {} bytes: too little for the memtables of {shards} shards, of {} bytes each, and what \
             is left to compactions. It has room for {most} shards",
            client.described(),
            granted.extents,
            granted.extent_bytes,
            options.write_buffer_bytes,
        );
        let advice = if options.name.is_some() {
            "create it with fewer shards, on nodes with more memory or shorter extents (each shard takes extents of its own), or \
             with smaller memtables"
        } else {
            "create it with fewer shards or smaller memtables, or on nodes with more memory"
        };
        if is_new {
            return Err(Error::invalid(format!("{problem}: {advice}")));
        }
        tracing::warn!(
            "{problem}: writes may be refused soon. A database with fewer shards, into which this one is restored, has more room"
        );
    }
    Ok(())
}

/// What a node would grant if nothing were on it.
fn whole(client: &MemoryClient, options: &Options) -> Granted {
    let extent_bytes = client.extent_bytes();
    Granted {
        extent_bytes,
        extents: client.extents().into(),
        withheld: 0,
        step_bytes: 0,
        reserve_bytes: reserve_bytes(client.headroom_extents().into(), extent_bytes),
        owed_bytes: 0,
        leased_bytes: 0,
        is_shared: options.name.is_none(),
        outputs_bytes: 0,
        pool: Pool::default(),
    }
}

/// Whether the ledger grants one of `shards` shards another memtable when each has one.
fn fit(granted: &Granted, shards: usize, options: &Options) -> bool {
    /// The account of the node.
    const NODE: usize = 0;
    let (mut ledger, memtable_bytes) = (Ledger::default(), Planner::first_memtable_bytes(options));
    let mut last = None;
    for _ in 0..shards {
        let holder = ledger.join(&[NODE]);
        ledger.report(holder, NODE, granted, 0);
        ledger.installed(holder, memtable_bytes);
        last = Some(holder);
    }
    last.is_none_or(|holder| !ledger.room(holder, memtable_bytes).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The most shards that fit on a node of `mib` MiB in 16 extents, one of them headroom, with memtables of 2 MiB.
    fn most(mib: u64, name: Option<&str>) -> usize {
        let extent_bytes = mib * MIB / 16;
        let options = Options { name: name.map(str::to_owned), write_buffer_bytes: 2 << 20, ..Options::default() };
        let granted = Granted {
            extent_bytes,
            extents: 16,
            withheld: 0,
            step_bytes: 0,
            reserve_bytes: reserve_bytes(1, extent_bytes),
            owed_bytes: 0,
            leased_bytes: 0,
            is_shared: name.is_none(),
            outputs_bytes: 0,
            pool: Pool::default(),
        };
        let fits: Vec<bool> = (1..=Options::MAX_SHARDS).map(|shards| fit(&granted, shards, &options)).collect();
        let most = fits.iter().take_while(|fits| **fits).count();
        assert!(fits.iter().skip(most).all(|fits| !fits), "more shards need more memory");
        most
    }

    #[test]
    fn as_many_shards_fit_as_get_another_memtable() {
        // A memtable and an eighth for each shard and one more, beside two headrooms.
        assert_eq!(most(512, None), 198);
        assert_eq!(most(1024, None), 256);
        // An extent for each shard, and the headrooms less what is left in the extent.
        assert_eq!(most(512, Some("db")), 14);
        assert_eq!(most(4096, Some("db")), 14);
    }
}
