//! What operators get over HTTP.

mod common;
mod http;
mod metrics;
