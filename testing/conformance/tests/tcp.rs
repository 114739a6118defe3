//! The suite over TCP on loopback.

use forebay_conformance::{Node, Target, conformance_tests};
use forebay_fabric::Listener;
use forebay_fabric::tcp::{self, Options};
use std::sync::Arc;

fn target() -> Target {
    Target {
        name: "tcp",
        start: Arc::new(|again| {
            let place = again.and_then(|address| address.strip_prefix("tcp://")).unwrap_or("127.0.0.1:0");
            let listener = tcp::listen(place.parse().expect("an address"), 1, Options::default()).expect("a node");
            let address = listener.address();
            Node { listener: Box::new(listener), connect: Arc::new(move || tcp::connect(&address, Options::default())) }
        }),
    }
}

conformance_tests!(target());
