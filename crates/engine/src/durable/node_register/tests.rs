//! Nodes of a register hang, and come back by other sessions.

use super::*;
use crate::durable::log::tests::{connect, start};
use crate::durable::named::open_copy;
use forebay_base::KeyOrder;
use forebay_fabric::sim::SimNetwork;
use forebay_proto::calls::CloseSession;
use forebay_table::{CopiedDatabase, StoreConfig};

const NODES: [u32; 3] = [1, 2, 3];

fn first() -> MembersRecord {
    let (key_order, merge_operator) = (KeyOrder::default(), String::new());
    let config = StoreConfig {
        key_order,
        shards: 1,
        merge_operator,
        bounds: Vec::new(),
        part: None,
        copies: 2,
        to_finish: false,
    };
    let database = Some(CopiedDatabase { database: 7, copies: 2, config });
    MembersRecord { database, ..MembersRecord::default() }
}

/// A record that differs from those of other numbers.
fn record(number: u32) -> MembersRecord {
    MembersRecord { shards: vec![vec![MemberNode { node: number, incarnation: 1 }]], ..first() }
}

/// The database's part of a node, by a new session.
fn part(network: &SimNetwork, node: u32) -> Part {
    open_copy(&connect(network, node), "db", &first().database.unwrap(), Some(NODES.len())).unwrap()
}

/// A process that has the register.
struct Owner {
    parts: Vec<Part>,
    register: Box<dyn Register>,
}

impl Owner {
    fn acquire(network: &SimNetwork, takeover: bool) -> (Vec<Part>, Result<Cells>) {
        let options = Options { takeover, clock: network.clock(), ..Options::default() };
        let parts: Vec<_> = NODES.map(|node| part(network, node)).into();
        let cells = Cells::acquire(parts.iter(), &options);
        (parts, cells)
    }

    fn new(network: &SimNetwork, takeover: bool) -> Self {
        let (parts, cells) = Self::acquire(network, takeover);
        Self { parts, register: cells.unwrap().claim(&first()).unwrap().0 }
    }

    /// The session at a node lapses.
    fn lapse(&self, at: usize) {
        let client = self.parts[at].store.client();
        client.call(&CloseSession { session: client.session() }).unwrap();
    }

    /// The node is there again, by another session.
    fn returns(&mut self, network: &SimNetwork, at: usize) {
        self.parts[at] = part(network, NODES[at]);
        self.register.returned(&self.parts[at]);
    }
}

/// What a process finds that takes the register over.
fn said(network: &SimNetwork) -> MembersRecord {
    let (_parts, cells) = Owner::acquire(network, true);
    MembersRecord { ballot: None, ..cells.unwrap().said.clone() }
}

#[test]
fn sessions_at_all_nodes_lapse_one_after_the_other_and_writes_go_on() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    for round in 0..9 {
        let at = round as usize % NODES.len();
        owner.lapse(at);
        owner.register.write(&record(2 * round)).unwrap();
        owner.returns(&network, at);
        owner.register.write(&record(2 * round + 1)).unwrap();
    }
    assert_eq!(said(&network), record(17));
    // That process did not claim it.
    owner.register.write(&record(18)).unwrap();
    assert_eq!(said(&network), record(18));
    Owner::new(&network, true);
    assert_eq!(owner.register.write(&record(19)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(said(&network), record(18));
}

#[test]
fn a_register_that_most_nodes_have_left_waits_for_one_of_them() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.register.write(&record(1)).unwrap();
    (0..3).for_each(|at| owner.lapse(at));
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    owner.returns(&network, 2);
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    owner.returns(&network, 0);
    owner.register.write(&record(3)).unwrap();
    assert_eq!(said(&network), record(3));
}

#[test]
fn a_second_session_goes_on_where_the_first_one_ends() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    for (at, node) in NODES.into_iter().enumerate() {
        let second = part(&network, node);
        owner.register.returned(&second);
        owner.register.write(&record(7)).unwrap();
        second.store.acquire_shard(CELL, false).expect_err("the first one has it");
        owner.lapse(at);
        owner.parts[at] = second;
        owner.register.write(&record(at as u32)).unwrap();
    }
    assert_eq!(said(&network), record(2));
}

#[test]
fn what_another_process_has_claimed_meanwhile_is_not_taken_back() {
    // Whether it has ended since.
    for has_ended in [false, true] {
        let network = start(&NODES);
        let mut owner = Owner::new(&network, false);
        (0..3).for_each(|at| owner.lapse(at));
        let mut other = Owner::new(&network, false);
        other.register.write(&record(1)).unwrap();
        if has_ended {
            other.register.release();
        }
        owner.returns(&network, 1);
        for _ in 0..2 {
            assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Fenced);
        }
        if !has_ended {
            other.register.write(&record(3)).unwrap();
        }
        assert_eq!(said(&network), record(if has_ended { 1 } else { 3 }));
        // Nothing is kept from others.
        drop(other);
        Owner::acquire(&network, true).1.map(drop).unwrap();
        Owner::new(&network, false);
    }
}

#[test]
fn a_cell_that_another_process_has_acquired_is_waited_for() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.lapse(0);
    let others = part(&network, NODES[0]);
    let others = others.store.acquire_shard(CELL, false).unwrap();
    owner.returns(&network, 0);
    owner.register.write(&record(1)).unwrap();
    others.check().unwrap();
    owner.lapse(1);
    assert_eq!(owner.register.write(&record(2)).unwrap_err().kind(), ErrorKind::Unavailable);
    others.check().unwrap();
    others.release().unwrap();
    owner.register.write(&record(3)).unwrap();
    assert_eq!(said(&network), record(3));
}

/// Two nodes have the last write, and then one of them gets the write before it.
#[test]
fn a_write_that_comes_late_is_refused() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    network.partition(NODES[0]);
    owner.register.write(&record(1)).unwrap();
    network.heal(NODES[0]);
    owner.lapse(2);
    owner.register.write(&record(2)).unwrap();
    network.settle();
    let says = |at: usize| owner.parts[at].store.root(CELL).unwrap().unwrap().1;
    assert_eq!(says(0), says(1));
    assert_eq!(said(&network), record(2));
}

/// A store that was made again at a node that forgot what it had said.
#[test]
fn a_node_that_came_later_does_not_vote() {
    let network = start(&NODES);
    let mut owner = Owner::new(&network, false);
    owner.lapse(0);
    let other = part(&network, NODES[0]);
    let client = other.store.client();
    client.drop_store(other.store.id()).unwrap();
    let later = open_copy(client, "db", &first().database.unwrap(), None).unwrap();
    owner.register.returned(&later);
    owner.register.write(&record(1)).unwrap();
    assert_eq!(later.store.root(CELL).unwrap_err().kind(), ErrorKind::NotFound);
}
