//! The account on which the fabric counts a tenant's endpoints.

use crate::state::Endpoints;
use crate::telling::is_told;
use forebay_fabric::{Account, Error};
use std::sync::Arc;

/// A tenant's endpoints, as the fabric counts them.
#[derive(Debug)]
pub(crate) struct EndpointAccount(pub Arc<Endpoints>);

impl Account for EndpointAccount {
    fn take(&self) -> Result<(), Error> {
        self.0.take().map_err(|(refusal, refused)| {
            if is_told(refused) {
                tracing::warn!(%refusal, refused, "an endpoint is refused");
            }
            Error::Remote { kind: refusal.kind(), message: refusal.to_string() }
        })
    }

    fn give_back(&self) {
        self.0.give_back();
    }
}
