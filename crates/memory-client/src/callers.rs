//! RPC connections to the node. One thread at a time uses a connection; it is kept for the next.
//!
//! Calls of several threads do not wait for each other, so a job that runs for seconds delays no
//! renewal. A connection whose call timed out is dropped, because its late reply may still come.

use crate::Error;
use forebay_env::Clock;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::rpc::{self, Style};
use forebay_fabric::{EndpointOptions, Link, Traffic};
use forebay_proto::{Call, Message};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of idle connections.
const KEPT: usize = 8;

/// A pool of RPC connections.
#[derive(Debug)]
pub(crate) struct Callers {
    link: Arc<dyn Link>,
    clock: Arc<dyn Clock>,
    traffic: Traffic,
    reply_bytes: usize,
    idle: Mutex<Vec<rpc::Client>>,
}

impl Callers {
    pub fn new(link: Arc<dyn Link>, clock: Arc<dyn Clock>, traffic: Traffic, reply_bytes: usize) -> Self {
        Self { link, clock, traffic, reply_bytes, idle: Mutex::new(Vec::new()) }
    }

    /// Makes a call.
    pub fn call<C: Call>(&self, call: &C, style: Style, limit: Duration) -> Result<C::Reply, Error> {
        let _traced = tracing::trace_span!(target: "forebay_trace", "call", procedure = ?C::PROCEDURE).entered();
        // A separate statement: the lock must not be held while a connection is opened.
        let idle = lock(&self.idle).pop();
        let mut client = match idle {
            Some(client) => client,
            None => self.open(limit)?,
        };
        let result = client.call(C::PROCEDURE as u16, &call.encode(), style, limit);
        if client.endpoint().failure().is_none() {
            let mut idle = lock(&self.idle);
            if idle.len() < KEPT {
                idle.push(client);
            }
        }
        Ok(C::Reply::decode(&result?)?)
    }

    /// Makes a call over a new connection, so it meets the node as it is now. No step of it takes longer than `limit`.
    pub fn ask<C: Call>(&self, call: &C, limit: Duration) -> Result<C::Reply, Error> {
        let reply = self.open(limit)?.call(C::PROCEDURE as u16, &call.encode(), Style::Poll, limit)?;
        Ok(C::Reply::decode(&reply)?)
    }

    fn open(&self, timeout: Duration) -> Result<rpc::Client, Error> {
        let options = EndpointOptions { traffic: self.traffic, timeout, clock: Arc::clone(&self.clock) };
        Ok(rpc::Client::new(Arc::clone(&self.link), options, self.reply_bytes)?)
    }
}
