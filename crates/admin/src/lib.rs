//! What an operator looks at: metrics, health and a page, over HTTP.
//!
//! ```text
//!   a process ──► Status ──┬──► metrics   /metrics      for Prometheus
//!                          ├──► JSON      /api/status   for `forebay top` and for programs
//!                          └──► page      /             for people
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`status`] | what a process says of itself, at one moment |
//! | `gather` | where that comes from |
//! | [`metrics`] | the one table of metrics: name, help, and where it is in the status |
//! | `client` | asks another process for its status |
//! | `http` | who may ask, what for, and the limits |
//! | [`rates`] | what happens now: the difference of two statuses |
//! | `page` | the files of the page |
//!
//! Nothing is gathered unless somebody asks, and nothing here is on the data path. The asking process computes rates
//! from two answers ([`rates`]): everything that a status counts only grows.

#![forbid(unsafe_code)]

mod client;
mod error;
mod gather;
mod http;
pub mod metrics;
mod page;
pub mod rates;
pub mod status;

pub use client::{exchange, fetch};
pub use error::Error;
pub use gather::Settings;
pub use http::Admin;
pub use rates::Rates;
pub use status::Status;
