//! The cache of a process is out of date.

use crate::common::{Nodes, word};
use forebay_tree::{Range, Tree, TreeClient, TreeOptions};

/// Inserts ascending keys until there is another inner node. Returns the next key.
fn split_last_inner(client: &mut TreeClient, mut next: u64) -> u64 {
    let inner_nodes = client.verify().unwrap().inner_nodes;
    while client.verify().unwrap().inner_nodes == inner_nodes {
        for _ in 0..100 {
            assert!(client.insert(&word(next), b"12345678").unwrap());
            next += 1;
        }
    }
    next
}

fn last(client: &mut TreeClient, range: Range<'_>) -> Vec<u8> {
    let found = client.scan(Range { backward: true, limit: 1, ..range }).unwrap();
    found.into_iter().next().unwrap().0
}

#[test]
fn a_scan_backward_sees_what_was_split_off() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut writer = nodes.create(TreeOptions::default()).client().unwrap();
    writer.bulk_load((0..14_400).map(|number| (word(number), b"12345678"))).unwrap();
    let mut reader = nodes.open().client().unwrap();
    // It has cached only the root and the first inner node.
    assert!(reader.get(&word(0)).unwrap().is_some());
    let next = split_last_inner(&mut writer, 14_400);
    assert_eq!(last(&mut reader, Range::all()), word(next - 1));
    let all = reader.scan(Range { backward: true, ..Range::all() }).unwrap();
    assert!(all.len() as u64 == next && all.iter().rev().is_sorted());
}

/// A generation repeats where blocks are used again, at whichever node that is.
#[test]
fn a_cache_is_thrown_away_after_many_epochs_of_any_node() {
    let nodes = Nodes::start(2, 64 << 20);
    let mut writer = nodes.create(TreeOptions::default()).client().unwrap();
    assert!(writer.insert(&word(1), b"12345678").unwrap());
    let other = nodes.sessions();
    for busy in 0..2 {
        let sessions = nodes.sessions();
        let mut reader = Tree::open(&sessions, "tree", TreeOptions::default()).unwrap().client().unwrap();
        let reads = |reader: &mut TreeClient| {
            let before = reader.counts().reads;
            assert!(reader.get(&word(1)).unwrap().is_some());
            reader.counts().reads - before
        };
        reads(&mut reader);
        assert_eq!(reads(&mut reader), 1);
        for _ in 0..1030 {
            other[busy].pass_readers().unwrap();
            sessions[busy].renew().unwrap();
        }
        assert!(reads(&mut reader) > 1, "node {busy}");
        assert_eq!(reads(&mut reader), 1);
    }
}
