//! The suite over shared memory. Node and clients are one process here; the back end's own tests
//! check that two processes behave the same.

use forebay_conformance::{Node, Target, conformance_tests};
use forebay_fabric::shm;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn target() -> Target {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Target {
        name: "shm",
        start: Arc::new(|again| {
            let path = again.and_then(|address| address.strip_prefix("shm:")).map_or_else(
                || {
                    let name = format!("forebay-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
                    std::env::temp_dir().join(name)
                },
                PathBuf::from,
            );
            let listener = shm::listen(&path, 1).expect("a node");
            Node { listener: Box::new(listener), connect: Arc::new(move || shm::connect(&path)) }
        }),
    }
}

conformance_tests!(target());
