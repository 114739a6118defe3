//! Who takes up the node's loop: peers that answer nothing.

use super::*;
use crate::fakes::{FakeListener, FakePeer};
use forebay_proto::Procedure;
use std::sync::atomic::Ordering::Relaxed;

fn node() -> (FakeListener, MemoryNode) {
    let listener = FakeListener::default();
    let options = Options { extent_bytes: Some(64 << 10), ..Options::with_memory(1 << 20) };
    let node = MemoryNode::new(Box::new(listener.clone()), options).unwrap();
    (listener, node)
}

#[test]
fn calls_whose_arguments_do_not_come_are_counted_until_they_do() {
    let (listener, mut node) = node();
    let peer = FakePeer::new(1);
    listener.joined(&peer);
    let length = rpc::MAX_INLINE_BYTES as u32 + 1;
    for number in 0..u64::from(MOST_WAITING) {
        listener.request(&peer, Procedure::SubmitJob, number, Err(length));
    }
    while peer.pulls.load(Relaxed) < MOST_WAITING as usize {
        node.step(Duration::ZERO).unwrap();
    }
    // Each step looks at some of them only, however many there are.
    peer.polls.store(0, Relaxed);
    node.step(Duration::ZERO).unwrap();
    assert_eq!(peer.polls.load(Relaxed), MOST_POLLED);
    // The link has its most waiting calls, so no more are pulled.
    let refused = u64::from(MOST_CROWDING);
    for number in 0..refused {
        listener.request(&peer, Procedure::SubmitJob, 1000 + number, Err(length));
    }
    while !listener.is_idle() {
        node.step(Duration::ZERO).unwrap();
    }
    assert_eq!(peer.pulls.load(Relaxed), MOST_WAITING as usize);
    let busy = |&(number, status): &(u64, u8)| number >= 1000 && status == ErrorKind::Busy.code();
    assert_eq!(lock(&peer.replies).iter().filter(|it| busy(it)).count() as u64, refused);
    assert_eq!(node.tenants()[0].waiting_calls, u64::from(MOST_WAITING));
    // One more is a flood. Nothing of it is left when the link is closed.
    listener.request(&peer, Procedure::SubmitJob, 2000, Err(length));
    node.step(Duration::ZERO).unwrap();
    assert!(peer.is_closed.load(Relaxed));
    assert_eq!((peer.pulls.load(Relaxed), node.tenants()[0].waiting_calls), (0, 0));
}
