//! The simulated back end by itself: repeatability, virtual time, and what only it can do.

use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_fabric::rpc::{Client, Request, Style};
use forebay_fabric::sim::{Faults, Order, SimLink, SimListener, SimNetwork, SimOptions};
use forebay_fabric::{
    AccessKey, EndpointId, EndpointOptions, Error, Event, Link, Listener, Peer, Region, RevocationMode, Rights,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Setup {
    network: SimNetwork,
    listener: SimListener,
    link: Arc<SimLink>,
    peer: Arc<dyn Peer>,
    region: Region,
    key: AccessKey,
}

fn setup(seed: u64, options: SimOptions) -> Setup {
    let network = SimNetwork::new(seed, options);
    let mut listener = network.listen(1).unwrap();
    let link = network.connect(1).unwrap();
    let Some(Event::Joined(peer)) = listener.next(Duration::ZERO).unwrap() else { panic!("no link") };
    let region = listener.allocate(1 << 16).unwrap();
    let key = peer.grant(&region, 0, 1 << 16, Rights::ALL).unwrap();
    Setup { network, listener, link, peer, region, key }
}

/// What a run of random operations sees: outcomes in the order of their completion, the memory at
/// the end, and the hash of all steps.
fn run(seed: u64, options: SimOptions) -> (Vec<String>, Vec<u8>, u64) {
    let Setup { network, listener: _listener, link, peer: _, region, key } = setup(seed, options);
    let mut random = Random::seeded(seed);
    let mut seen = Vec::new();
    let mut endpoints: Vec<_> = (0..3).map(|_| link.endpoint(EndpointOptions::default()).unwrap()).collect();
    for _ in 0..if cfg!(miri) { 25 } else { 2000 } {
        let which = random.below(3) as usize;
        let endpoint = &mut endpoints[which];
        let at = key.at(random.below(1000) * 8);
        let posted = match random.below(4) {
            0 => endpoint.post_fetch_add(at, random.below(100)),
            1 => endpoint.post_message(&random.word().to_le_bytes()),
            kind => {
                let mut slot = endpoint.slot(random.below(500) as usize).unwrap();
                random.fill(&mut slot);
                if kind == 2 { endpoint.post_read(at, slot) } else { endpoint.post_write(at, slot) }
            }
        };
        if let Err(cause) = posted {
            seen.push(cause.kind().name().to_owned());
            if link.is_alive() {
                endpoints[which] = link.endpoint(EndpointOptions::default()).unwrap();
            }
            continue;
        }
        if endpoints[which].outstanding() > 20 {
            let completed = endpoints[which].wait().map(|completion| match completion.result {
                Ok(forebay_fabric::Outcome::Read(slot)) => format!("{:?} read {:?}", completion.id, &*slot),
                Ok(forebay_fabric::Outcome::Word(word)) => format!("{:?} word {word}", completion.id),
                Ok(forebay_fabric::Outcome::Done(_)) => format!("{:?} done", completion.id),
                Err(cause) => format!("{:?} {:?}", completion.id, cause.kind()),
            });
            seen.push(format!("{completed:?}"));
        }
    }
    drop(endpoints);
    network.settle();
    let mut memory = vec![0; 1 << 16];
    region.read(0, &mut memory).unwrap();
    (seen, memory, network.fingerprint())
}

#[test]
fn a_seed_gives_the_same_run() {
    let seeds = if cfg!(miri) { 2 } else { 10 };
    let faults = Faults { lose_completion: 2000, break_endpoint: 2000, close_link: 100, crash_node: 100 };
    for order in [Order::Total, Order::Writes, Order::None] {
        let options = SimOptions { order, faults, ..SimOptions::default() };
        let mut fingerprints = Vec::new();
        for seed in 0..seeds {
            let first = run(seed, options);
            assert!(first == run(seed, options), "seed {seed} with {order:?} gave two runs");
            fingerprints.push(first.2);
        }
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len() as u64, seeds, "seeds do not differ");
    }
}

#[test]
fn a_node_on_the_same_thread_is_served_by_the_hook() {
    let Setup { network, listener, link, .. } = setup(1, SimOptions::default());
    let listener = Mutex::new(listener);
    network.set_progress_hook(move || {
        // The code that it answers may wait: then the hook is called again.
        let Ok(mut listener) = listener.try_lock() else { return };
        while let Ok(Some(event)) = listener.next(Duration::ZERO) {
            let Event::Message { peer, endpoint, bytes, .. } = event else { continue };
            let request = Request::decode(&bytes).unwrap();
            let mut arguments = request.arguments(&*peer, endpoint).unwrap();
            arguments.reverse();
            request.reply(&*peer, endpoint, Ok(&arguments)).unwrap();
        }
    });
    let mut client = Client::new(link, EndpointOptions::default(), 100_000).unwrap();
    for length in [0, 10, 1000, if cfg!(miri) { 2000 } else { 50_000 }] {
        let arguments: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let expected: Vec<u8> = arguments.iter().rev().copied().collect();
        for style in [Style::Poll, Style::Sleep] {
            assert_eq!(client.call(1, &arguments, style, Duration::from_secs(1)).as_ref(), Ok(&expected));
        }
    }
    assert!(network.clock().now() < 1_000_000_000);
}

/// The completion of a request may be lost although its reply is there. A caller that waits for the completion
/// leaves the reply alone, and time must pass nevertheless.
#[test]
fn an_arrival_that_is_left_alone_does_not_hold_time() {
    let mut timed_out = 0;
    for seed in 0..if cfg!(miri) { 4 } else { 40 } {
        let faults = Faults { lose_completion: 1_000_000, ..Faults::default() };
        let Setup { network, listener, link, .. } = setup(seed, SimOptions { faults, ..SimOptions::default() });
        let listener = Mutex::new(listener);
        let looks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&looks);
        network.set_progress_hook(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let Ok(mut listener) = listener.try_lock() else { return };
            while let Ok(Some(event)) = listener.next(Duration::ZERO) {
                let Event::Message { peer, endpoint, bytes, .. } = event else { continue };
                let _ = Request::decode(&bytes).unwrap().reply(&*peer, endpoint, Ok(&[1]));
            }
        });
        let endpoint = EndpointOptions { timeout: Duration::from_secs(1), ..EndpointOptions::default() };
        let mut client = Client::new(link, endpoint, 1000).unwrap();
        let called = client.call(1, &[7; 400], Style::Sleep, Duration::from_secs(1));
        timed_out += u64::from(matches!(called, Err(Error::TimedOut(_))));
        let looks = looks.load(Ordering::Relaxed);
        assert!(looks < 10_000, "seed {seed}: {looks} looks until {called:?}");
    }
    assert!(timed_out > 0);
}

#[test]
fn a_hook_and_the_node_in_it_live_as_long_as_anybody_can_wait() {
    let Setup { network, listener, link, peer, .. } = setup(1, SimOptions::default());
    let node = Arc::new(Mutex::new((listener, peer)));
    let served = Arc::downgrade(&node);
    network.set_progress_hook(move || {
        let _ = node.try_lock().map(|mut node| node.0.next(Duration::ZERO));
    });
    let endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    drop(network);
    drop(link);
    assert!(served.upgrade().is_some(), "an endpoint may still wait");
    drop(endpoint);
    assert!(served.upgrade().is_none(), "the node is never freed");
}

#[test]
fn a_hook_that_holds_the_network_is_taken_away() {
    let Setup { network, listener, .. } = setup(1, SimOptions::default());
    let node = Arc::new(Mutex::new(listener));
    let (served, held) = (Arc::downgrade(&node), network.clone());
    network.set_progress_hook(move || _ = (node.try_lock().is_ok(), held.steps()));
    network.clear_progress_hook();
    assert!(served.upgrade().is_none());
}

#[test]
fn large_writes_are_torn_and_words_are_not() {
    for line_bytes in [8, 64] {
        let options = SimOptions { line_bytes, ..SimOptions::default() };
        let Setup { network: _network, listener: _listener, link, key, .. } = setup(3, options);
        let mut writer = link.endpoint(EndpointOptions::default()).unwrap();
        let mut reader = link.endpoint(EndpointOptions::default()).unwrap();
        let mut torn = 0;
        let rounds = if cfg!(miri) { 40 } else { 200u8 };
        for round in 1..=rounds {
            let mut slot = writer.slot(256).unwrap();
            slot.fill(round);
            writer.post_write(key.at(0), slot).unwrap();
            writer.flush();
            let mut bytes = [0; 256];
            reader.read(key.at(0), &mut bytes).unwrap();
            for line in bytes.chunks(line_bytes) {
                assert!(line.iter().all(|byte| *byte == line[0]), "a torn line of {line_bytes} bytes");
            }
            torn += u32::from(bytes.iter().any(|byte| *byte != bytes[0]));
            writer.wait().unwrap().result.unwrap();
        }
        assert!(
            torn > u32::from(rounds / 10),
            "only {torn} of {rounds} reads of a range that is being written were torn"
        );
    }
}

#[test]
fn a_partition_ends_in_a_virtual_time_out() {
    let Setup { network, listener: _listener, link, key, .. } = setup(4, SimOptions::default());
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    network.partition(1);
    assert_eq!(endpoint.write(key.at(0), &[1; 8]), Err(Error::TimedOut(Duration::from_secs(10))));
    assert!(network.clock().now() >= 10_000_000_000);
    assert_eq!(network.connect(1).unwrap_err().kind(), ErrorKind::Unavailable);
    network.heal(1);
    link.endpoint(EndpointOptions::default()).unwrap().write(key.at(0), &[1; 8]).unwrap();
}

#[test]
fn a_client_stops_at_any_step_and_wakes_up() {
    let mut landed = std::collections::BTreeSet::new();
    for stop in 0..40 {
        let Setup { network, listener: _listener, link, region, key, .. } = setup(5, SimOptions::default());
        let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        link.stop_after(stop);
        let stopped = (0..3).any(|i| endpoint.write(key.at(i * 256), &[1; 256]).is_err());
        assert_eq!(link.steps(), if stopped { stop } else { link.steps() });
        let mut memory = [0; 768];
        region.read(0, &mut memory).unwrap();
        landed.insert(memory.iter().filter(|byte| **byte == 1).count());
        // Asleep, nothing of it moves; awake, what it had begun may land.
        let before = network.steps();
        network.settle();
        assert_eq!(network.steps(), if stopped { before } else { network.steps() });
        link.resume();
        network.settle();
        region.read(0, &mut memory).unwrap();
        assert!(memory.iter().filter(|byte| **byte == 1).count().is_multiple_of(256));
    }
    assert_eq!(landed.into_iter().collect::<Vec<_>>(), (0..=12).map(|line| line * 64).collect::<Vec<_>>());
}

#[test]
fn a_frozen_endpoint_stands_still_alone() {
    let Setup { network: _network, listener: _listener, link, key, .. } = setup(6, SimOptions::default());
    let mut first = link.endpoint(EndpointOptions::default()).unwrap();
    let mut second = link.endpoint(EndpointOptions::default()).unwrap();
    link.freeze(EndpointId(1));
    let slot = first.slot(8).unwrap();
    first.post_write(key.at(0), slot).unwrap();
    first.flush();
    for _ in 0..100 {
        second.fetch_add(key.at(8), 1).unwrap();
    }
    assert!(first.poll().is_none());
    link.thaw(EndpointId(1));
    first.wait().unwrap().result.unwrap();
}

#[test]
fn a_write_overtakes_a_read_unless_fenced() {
    let overtaken = |fenced: bool| {
        (0..if cfg!(miri) { 10 } else { 100 }).any(|seed| {
            let Setup { network: _network, listener: _listener, link, key, .. } = setup(seed, SimOptions::default());
            let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
            let into = endpoint.slot(8).unwrap();
            let read = endpoint.post_read(key.at(0), into).unwrap();
            if fenced {
                endpoint.fence();
            }
            let mut from = endpoint.slot(8).unwrap();
            from.fill(7);
            endpoint.post_write(key.at(0), from).unwrap();
            let forebay_fabric::Outcome::Read(slot) = endpoint.wait_for(read).unwrap() else { panic!("no read") };
            slot[0] == 7
        })
    };
    assert!(overtaken(false));
    assert!(!overtaken(true));
}

#[test]
fn a_cooperative_revocation_takes_time_and_then_holds() {
    let options = SimOptions { revocation: RevocationMode::Cooperative, ..SimOptions::default() };
    for seed in 0..if cfg!(miri) { 4 } else { 50 } {
        let Setup { network, listener: _listener, link, peer, region, key } = setup(seed, options);
        let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        for i in 0..4 {
            let mut slot = endpoint.slot(1024).unwrap();
            slot.fill(9);
            endpoint.post_write(key.at(i * 1024), slot).unwrap();
        }
        endpoint.flush();
        let revocation = peer.revoke(key).unwrap();
        assert_eq!(peer.revoke(key).err(), Some(Error::AccessDenied));
        while !revocation.is_complete() {
            endpoint.poll();
        }
        region.zero(0, 4096).unwrap();
        network.settle();
        let mut memory = [1; 4096];
        region.read(0, &mut memory).unwrap();
        assert!(memory.iter().all(|byte| *byte == 0), "seed {seed}: a write landed after its key was revoked");
    }
}

#[test]
fn a_crash_ends_links_and_a_restart_knows_no_key() {
    let Setup { network, mut listener, link, key, .. } = setup(8, SimOptions::default());
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    let before = listener.identity();
    assert!(network.listen(1).is_err());
    network.crash(1);
    assert!(listener.next(Duration::ZERO).is_err());
    assert!(matches!(endpoint.write(key.at(0), &[1; 8]), Err(Error::PeerLost { .. })));
    let mut again = network.listen(1).unwrap();
    assert_ne!(again.identity().incarnation, before.incarnation);
    let link = network.connect(1).unwrap();
    assert!(matches!(again.next(Duration::ZERO), Ok(Some(Event::Joined(_)))));
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    assert_eq!(endpoint.write(key.at(0), &[1; 8]), Err(Error::AccessDenied));
    drop(listener);
    assert!(link.is_alive(), "the end of an earlier life is none of the next");
}
