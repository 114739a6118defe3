//! Replaces `traces` in a build without the feature of this name: there are no flags, and no traces.

use crate::failure::Failure;
use tracing_subscriber::layer::Identity;

/// No flags.
#[derive(Debug, Clone, clap::Args)]
pub struct TraceArguments {}

/// Nothing.
#[derive(Debug)]
pub struct Traces;

impl TraceArguments {
    /// Nothing.
    ///
    /// # Errors
    /// None.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub const fn start(&self, _: &'static str) -> Result<Option<(Identity, Traces)>, Failure> {
        Ok(None)
    }
}
