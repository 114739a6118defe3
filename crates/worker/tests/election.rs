//! Candidates for scheduling, elected by the directory of a memory node.

use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient, Reach, ShardId};
use forebay_memory_node::{MemoryNode, Options};
use forebay_offload::{Election, Register, Term};
use forebay_worker::NodeRegister;
use std::sync::{Arc, Mutex};

type Client = Arc<Mutex<Option<Arc<MemoryClient>>>>;

/// A candidate's register, and its session.
fn candidate(connector: &inprocess::Connector, address: &str) -> (NodeRegister, Client) {
    let (connector, client) = (connector.clone(), Client::default());
    let kept = Arc::clone(&client);
    let reach = Reach::new(move || {
        let client = MemoryClient::connect(connector.connect()?, "candidate", ClientOptions::default())?;
        *kept.lock().unwrap() = Some(Arc::clone(&client));
        Ok(client)
    });
    (NodeRegister::new(reach, address.into()), client)
}

#[test]
fn one_at_a_time_and_each_with_a_later_term() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), Options::with_memory(16 << 20)).unwrap();
    let (mut first, client) = candidate(&connector, "first");
    let (mut second, _) = candidate(&connector, "second");
    let mut elections = [Election::new(300), Election::new(300)];
    elections[0].ask(0, &mut first).unwrap();
    elections[1].ask(0, &mut second).unwrap();
    assert_eq!(elections.each_ref().map(|election| election.leads(1)), [Some(Term(1)), None]);
    elections[0].ask(250, &mut first).unwrap();
    elections[1].ask(250, &mut second).unwrap();
    assert_eq!(elections.each_ref().map(|election| election.leads(500)), [Some(Term(1)), None]);
    // The first one's link ends without its knowing.
    client.lock().unwrap().take().unwrap().link().close();
    while second.claim().unwrap() != Some(Term(2)) {}
    assert!(first.renew(Term(1)).is_err());
    // It is a candidate again, with a new session.
    assert_eq!(first.claim().unwrap(), None);
    assert_eq!(second.renew(Term(2)).unwrap(), Some(Term(2)));
    // Whoever looks for the scheduler finds it.
    let client = MemoryClient::connect(connector.connect().unwrap(), "reader", ClientOptions::default()).unwrap();
    let root = client.open_store("forebay.scheduler").unwrap().root(ShardId(0)).unwrap();
    assert_eq!(root.map(|(_, address)| address).as_deref(), Some(&b"second"[..]));
}
