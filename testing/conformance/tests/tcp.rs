//! The suite over TCP on loopback.

use forebay_conformance::{Node, Target, conformance_tests};
use forebay_fabric::{Listener, tcp};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

fn target() -> Target {
    Target {
        name: "tcp",
        start: Arc::new(|again| {
            let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let place = again.and_then(|address| address.strip_prefix("tcp://")?.parse().ok()).unwrap_or(anywhere);
            let listener = tcp::listen(place, 1, tcp::Options::default()).expect("a node");
            let address = listener.address();
            let connect = move || tcp::connect(&address, tcp::Options::default());
            Node { listener: Box::new(listener), connect: Arc::new(connect) }
        }),
    }
}

conformance_tests!(target());
