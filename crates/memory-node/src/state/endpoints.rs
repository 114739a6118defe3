//! The endpoints of a tenant, over all of its links. The fabric counts them as they come and go, so the state is not
//! involved.

use super::refusal::Refusal;
use super::resources::Resource;
use forebay_env::sync::lock;
use forebay_proto::Text;
use std::sync::Mutex;

/// A tenant's endpoints.
#[derive(Debug)]
pub struct Endpoints {
    tenant: Text,
    count: Mutex<Count>,
}

/// How many endpoints there are, may be, and were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many exist.
    pub used: u64,
    /// How many may exist.
    pub most: u64,
    /// How many were refused.
    pub refused: u64,
}

impl Endpoints {
    /// A count of zero that allows no endpoints yet.
    pub fn new(tenant: Text) -> Self {
        Self { tenant, count: Mutex::default() }
    }

    /// Allows `most` endpoints from now on. Existing ones stay.
    pub(super) fn bound(&self, most: u64) {
        lock(&self.count).most = most;
    }

    /// Counts another one.
    ///
    /// # Errors
    /// [`Refusal::Limit`], and how often an endpoint was refused by now.
    pub fn take(&self) -> Result<(), (Refusal, u64)> {
        let mut count = lock(&self.count);
        if count.used < count.most {
            count.used += 1;
            return Ok(());
        }
        count.refused += 1;
        let (tenant, resource) = (self.tenant.clone(), Resource::Endpoints);
        Err((Refusal::Limit { tenant, resource, most: count.most, asked: 1 }, count.refused))
    }

    /// Counts one less.
    pub fn give_back(&self) {
        let mut count = lock(&self.count);
        debug_assert!(count.used > 0, "an endpoint given back twice");
        count.used = count.used.saturating_sub(1);
    }

    /// How many there are now.
    pub fn count(&self) -> Count {
        *lock(&self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;

    #[test]
    fn a_bound_that_is_lowered_takes_nothing_away() {
        let endpoints = Endpoints::new(Text::new("reports").unwrap());
        endpoints.bound(2);
        assert!(endpoints.take().is_ok() && endpoints.take().is_ok());
        endpoints.bound(1);
        let (refusal, refused) = endpoints.take().unwrap_err();
        assert_eq!((refusal.kind(), refused), (ErrorKind::Busy, 1));
        assert_eq!(endpoints.count(), Count { used: 2, most: 1, refused: 1 });
        let said = refusal.to_string();
        let named = said.contains("tenant reports has its most endpoints: 1;") && said.contains("\"endpoints\"");
        assert!(named && said.len() <= 256, "{said}");
        endpoints.give_back();
        assert!(endpoints.take().is_err());
        endpoints.give_back();
        assert!(endpoints.take().is_ok());
    }
}
