//! Moving bounds so that neighbouring shards hold about the same amount.
//!
//! Of all neighbouring pairs where the larger shard holds more than twice as much as the smaller one, the pair with the
//! largest difference comes first. The bound between the two moves to where both hold half. The size of a shard is what
//! its tables hold of its keys, according to their indexes; memtables count at the next look. Keys move to neighbours
//! only, so a database with all its keys in one shard needs a few rounds.

use crate::sharding::router::Router;
use crate::terms::Result;
use crate::terms::routing::KeyRange;
use crate::work::shard::Shard;
use crate::work::ticker::Ticker;
use forebay_base::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// One of two neighbours may hold this many times more than the other.
const RATIO: u64 = 2;
/// No bound moves for a difference of less than this many memtables.
const SLACK_BUFFERS: u64 = 4;

/// A bound and its new place.
#[derive(Debug)]
struct Shift {
    at: usize,
    to: Vec<u8>,
}

impl Router {
    /// Moves bounds until no two neighbours differ too much, at most once per shard. Returns how many bounds were
    /// moved.
    ///
    /// # Errors
    /// As [`Router::move_bound`].
    pub(crate) fn rebalance(&self) -> Result<usize> {
        for moves in 0..self.shards().len() {
            let Some(shift) = self.next_shift()? else { return Ok(moves) };
            tracing::info!(bound = shift.at, "moving a bound between shards");
            self.move_bound(shift.at, &shift.to)?;
        }
        Ok(self.shards().len())
    }

    fn next_shift(&self) -> Result<Option<Shift>> {
        let routing = self.routing();
        let size = |(at, shard): (usize, &Arc<Shard>)| {
            let mut bytes = 0;
            let range = routing.range(at)?;
            shard.tree.weigh_tables(range, &mut |_, weight| bytes += weight);
            Some(bytes)
        };
        let sizes: Vec<u64> = self.shards().iter().enumerate().map(|shard| size(shard).unwrap_or(0)).collect();
        // Beyond the last bound, at most one shard can be given keys.
        let bounds = (routing.bounds().len() + 1).min(sizes.len() - 1);
        let differ = |pair: &(usize, u64, u64)| {
            let buffers = self.shard(pair.0).map_or(0, |shard| shard.tree.options.write_buffer_bytes as u64);
            let allowed = pair.1.min(pair.2).saturating_mul(RATIO).saturating_add(SLACK_BUFFERS * buffers);
            pair.1.max(pair.2) > allowed
        };
        let pairs = sizes.windows(2).enumerate().take(bounds).filter_map(|(at, pair)| match pair {
            [before, behind] => Some((at, *before, *behind)),
            _ => None,
        });
        let most = pairs.filter(differ).max_by_key(|(_, before, behind)| before.abs_diff(*behind));
        let Some((at, before, behind)) = most else { return Ok(None) };
        let source = if before > behind { at } else { at + 1 };
        let shard = self.shard(source)?;
        let Some(range) = routing.range(source) else { return Ok(None) };
        let share = before.abs_diff(behind) / 2;
        let to = key_at(shard, range, share, source > at)?;
        Ok(to.filter(|to| routing.bounds().get(at) != Some(to)).map(|to| Shift { at, to }))
    }
}

/// The key that cuts off about `share` bytes at the start or end of a shard's range.
fn key_at(shard: &Shard, range: KeyRange<'_>, share: u64, at_start: bool) -> Result<Option<Vec<u8>>> {
    let weights = shard.tree.weights(range, false)?;
    let whole: u64 = weights.iter().map(|(_, bytes)| bytes).sum();
    let before = if at_start { share } else { whole.saturating_sub(share) };
    let mut sum = 0;
    let found = weights.into_iter().find(|(_, bytes)| {
        sum += bytes;
        sum >= before
    });
    Ok(found.map(|(key, _)| key).filter(|key| range.lower != Some(key)))
}

/// Begins to rebalance the shards every `pause`, in a thread of its own.
///
/// # Errors
/// `Io` when the system cannot start a thread.
pub(crate) fn start(router: Arc<Router>, pause: Duration) -> Result<Ticker> {
    let balance = move || {
        if let Err(error) = router.rebalance()
            && error.kind() != ErrorKind::Closed
        {
            tracing::warn!(%error, "balancing shards");
        }
    };
    Ticker::start("forebay-rebalance", pause, &Arc::default(), balance)
}
