//! Keys that are moving from one shard to another. Nobody writes them meanwhile.

use crate::terms::routing::KeyRange;
use crate::terms::{Error, Result};
use crate::write::batch::{Write, WriteBatch};
use forebay_base::{KeyOrder, Kind};

/// Keys that nobody may write for now.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// The shard that they leave, or any if all keys are held.
    pub(crate) source: usize,
    /// The bound that would release them, if it is unknown whether it was recorded.
    pub(crate) undecided: Option<Undecided>,
}

/// A bound whose recording failed, and which may count, now or later.
#[derive(Debug, Clone)]
pub(crate) struct Undecided {
    /// The shard before the bound.
    pub(crate) at: usize,
    pub(crate) bound: Vec<u8>,
    pub(crate) error: Error,
}

impl Held {
    pub(crate) const fn new(lower: Option<Vec<u8>>, upper: Option<Vec<u8>>, source: usize) -> Self {
        Self { lower, upper, source, undecided: None }
    }

    pub(crate) fn range(&self) -> KeyRange<'_> {
        KeyRange { lower: self.lower.as_deref(), upper: self.upper.as_deref() }
    }

    pub(crate) fn holds(&self, order: KeyOrder, key: &[u8]) -> bool {
        self.range().contains(order, key)
    }

    /// Whether a batch writes any of these keys, or has a condition on one. When the keys are released, others write
    /// them in another shard. A condition that is judged in the shard that they leave would not see that.
    pub(crate) fn holds_any(&self, order: KeyOrder, batch: &WriteBatch) -> Result<bool> {
        if batch.conditions().iter().any(|condition| self.holds(order, &condition.key)) {
            return Ok(true);
        }
        for write in batch.iter() {
            let Write { kind, key, value, .. } = write?;
            let is_held = match kind {
                Kind::RangeDelete => {
                    let deleted = KeyRange { lower: Some(key), upper: Some(value) };
                    self.range().intersection(order, deleted).is_some()
                }
                _ => self.holds(order, key),
            };
            if is_held {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_asks_about_keys_waits_like_one_that_writes_them() {
        let held = Held::new(Some(b"g".to_vec()), Some(b"n".to_vec()), 0);
        let holds = |batch: &WriteBatch| held.holds_any(KeyOrder::Bytewise, batch).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"").delete_range(b"n", b"z").require_absent(b"n").require_present(b"a");
        assert!(!holds(&batch));
        assert!(holds(batch.clone().require_absent(b"g")));
        assert!(holds(batch.clone().put(b"m", b"")));
        assert!(holds(batch.delete_range(b"a", b"h")));
    }
}
