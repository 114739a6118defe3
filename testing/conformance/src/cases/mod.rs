//! The cases, by topic.

pub mod access;
pub mod concurrency;
pub mod counting;
pub mod failure;
pub mod messages;
pub mod operations;
pub mod order;
pub mod rpc;

use crate::Case;

/// All cases.
pub const GROUPS: &[&[Case]] = &[
    operations::CASES,
    order::CASES,
    concurrency::CASES,
    messages::CASES,
    rpc::CASES,
    access::CASES,
    failure::CASES,
    counting::CASES,
];
