//! The suite over the in-process back end.

use forebay_conformance::{Node, Target, conformance_tests};
use forebay_fabric::inprocess;
use std::sync::Arc;

fn target() -> Target {
    Target {
        name: "inprocess",
        start: Arc::new(|_| {
            let (listener, connector) = inprocess::listen(1).expect("a node");
            Node { listener: Box::new(listener), connect: Arc::new(move || connector.connect()) }
        }),
    }
}

conformance_tests!(target());
