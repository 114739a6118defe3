//! A server in this process, and clients of it.

#![allow(dead_code, reason = "each test program uses a part")]

use forebay::{Options, Store};
use forebay_env::{Clock, SystemClock};
use forebay_redis_differential::client::Client;
use forebay_server::{Server, ServerOptions};
use std::net::SocketAddr;
use std::time::Duration;

/// Time between two checks for something that must happen.
const INTERVAL: Duration = Duration::from_millis(5);
/// Most checks: builds share the machine.
const LOOKS: usize = 12_000;

/// An empty server at a free port.
pub fn serve(threads: usize) -> Server {
    let store = Store::embedded(256 << 20, Options::default()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(store, ServerOptions { address, threads, ..ServerOptions::default() }).unwrap()
}

pub fn connect(server: &Server) -> Client {
    Client::connect(server.address().port()).unwrap()
}

/// The reply to a request, as text.
pub fn said(client: &mut Client, words: &[&str]) -> String {
    client.call(words).unwrap().to_string()
}

/// Sends a request without waiting for the reply.
pub fn ask(client: &mut Client, words: &[&str]) {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    client.send([&words[..]]).unwrap();
}

/// Checks until `done`.
#[track_caller]
pub fn until(mut done: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..LOOKS {
        if done() {
            return;
        }
        clock.sleep(INTERVAL);
    }
    panic!("it does not happen");
}
