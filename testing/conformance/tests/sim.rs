//! The suite over the simulated back end, in its milder and its harsher modes.

use forebay_conformance::{Node, Target, conformance_tests};
use forebay_fabric::sim::{Order, SimNetwork, SimOptions, Time};
use forebay_fabric::{Error, Link, RevocationMode};
use std::sync::Arc;

fn target(name: &'static str, seed: u64, options: SimOptions) -> Target {
    let start = move |again: Option<&str>| {
        let network = SimNetwork::new(seed + u64::from(again.is_some()), options);
        let listener = network.listen(1).expect("a node");
        let connect = move || -> Result<Arc<dyn Link>, Error> { Ok(network.connect(1)?) };
        Node { listener: Box::new(listener), connect: Arc::new(connect) }
    };
    Target { name, start: Arc::new(start) }
}

fn threaded() -> SimOptions {
    SimOptions { time: Time::Real, ..SimOptions::default() }
}

mod ordered {
    use super::*;
    conformance_tests!(target("sim, ordered", 1, SimOptions { order: Order::Total, ..threaded() }));
}

mod as_verbs {
    use super::*;
    conformance_tests!(target("sim, as verbs", 2, threaded()));
}

mod harsh {
    use super::*;
    conformance_tests!(target(
        "sim, harsh",
        3,
        SimOptions { order: Order::None, line_bytes: 8, revocation: RevocationMode::Cooperative, ..threaded() }
    ));
}
