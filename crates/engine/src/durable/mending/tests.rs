//! Memory that does not keep what is written to it.

use super::*;
use crate::durable::log::tests::{VALUE, nodes_of, open, shard, step};
use forebay_env::sync::lock;
use forebay_fabric::sim::{SimNetwork, SimOptions};
use forebay_memory_client::ExtentId;
use forebay_table::SegmentKind;

const NODES: [u32; 2] = [1, 2];
/// A bit of the first index block of an image.
const OFFSET: u64 = 8;
const MASK: u8 = 1;

/// Where a member has a byte of an image.
fn place(segment: &Segment, member: usize) -> (ExtentId, u64) {
    let copy = segment.at_member(member).unwrap();
    let range = copy.remote().place_of(copy.info()).unwrap();
    (range.extent, range.offset + OFFSET)
}

#[test]
fn a_member_whose_memory_is_broken_is_left_out_once_others_have_what_it_has_whole() {
    let network = SimNetwork::new(1, SimOptions::default());
    let nodes = Arc::new(nodes_of(&network, &NODES));
    let served = Arc::clone(&nodes);
    network.set_progress_hook(move || step(&served));
    let db = open(&network, &NODES);
    for key in [b"a", b"b"] {
        db.put(key, &VALUE).unwrap();
        db.flush().unwrap();
    }
    let (shard, log, commits) = shard(&db);
    let tree = &shard.tree;
    let segments = Looking::new(tree, log, Mend::Look).segments();
    let images: Vec<_> = segments.iter().filter(|of| of.info().kind == SegmentKind::TableImage).collect();
    let [first, second] = images[..] else { panic!("two tables") };

    // The first member does not keep a bit of the first image, and the other one lost a bit of the second image.
    let (extent, offset) = place(first, 0);
    let good = lock(&nodes[0]).bytes_of(extent)[offset as usize];
    let served = Arc::clone(&nodes);
    network.set_progress_hook(move || {
        step(&served);
        if let Ok(node) = served[0].try_lock()
            && node.bytes_of(extent)[offset as usize] == good
        {
            node.rot(extent, offset, MASK).unwrap();
        }
    });
    let (extent, offset) = place(second, 1);
    lock(&nodes[1]).rot(extent, offset, MASK).unwrap();

    let looked = look(tree, commits, log, Mend::Repair, |_| ()).unwrap();
    let mended: Vec<_> = looked.damaged.iter().map(|damaged| damaged.is_mended).collect();
    assert_eq!(mended, [false, true], "{looked:?}");
    assert_eq!(tree.remote.active().map(|remote| remote.member()).collect::<Vec<_>>(), [1]);
    assert!(look(tree, commits, log, Mend::Look, |_| ()).unwrap().damaged.is_empty());
}
