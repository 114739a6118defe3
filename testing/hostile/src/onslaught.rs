//! The continuous attacks. Each is repeated until the node has stopped.

use crate::field::HOSTILE;
use forebay_raw_client::body::{Range, Shard};
use forebay_raw_client::client::RawLink;
use forebay_raw_client::socket::{connect, read_frame};
use forebay_raw_client::wire::{self, Arguments};
use forebay_raw_client::{calls, door, jobs};
use std::io::{Result, Write};

/// An attack.
#[derive(Debug)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Number of simultaneous attackers.
    pub attackers: usize,
    /// Makes the attack once, on the node at an address. Fails when the node ends the connection.
    pub once: fn(&str) -> Result<()>,
}

/// All of them.
pub const ALL: [Attack; 10] = [
    Attack { name: "unread", attackers: 3, once: unread },
    Attack { name: "never-pulled", attackers: 2, once: never_pulled },
    Attack { name: "gathers", attackers: 1, once: gathers },
    Attack { name: "unread-gathers", attackers: 1, once: unread_gathers },
    Attack { name: "idle-links", attackers: 1, once: idle_links },
    Attack { name: "leases", attackers: 1, once: leases },
    Attack { name: "shards", attackers: 1, once: shards },
    Attack { name: "names", attackers: 1, once: names },
    Attack { name: "half-handshakes", attackers: 1, once: half_handshakes },
    Attack { name: "forgeries", attackers: 1, once: forgeries },
];

fn link(address: &str) -> Result<RawLink> {
    RawLink::open_as(address, HOSTILE)
}

/// Calls whose replies nobody reads.
fn unread(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    loop {
        endpoint.flood(&calls::get_statistics(1), 4096)?;
    }
}

/// Jobs whose arguments never come.
fn never_pulled(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    for _ in 0..8 {
        endpoint.post(calls::SUBMIT_JOB, Arguments::Announced(1500))?;
    }
    // Until the node gives up.
    while read_frame(&mut endpoint.stream).is_ok() {}
    Ok(())
}

/// Gathers of 2 MiB, one after the other.
fn gathers(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let shard = endpoint.shard()?;
    let arguments = jobs::gather(&[Range { extent: shard.extent.extent, offset: 0, length: 2 << 20 }]);
    for round in 0.. {
        for attempt in 0..32 {
            endpoint.send_call(&shard.job(round * 32 + attempt, jobs::GATHER, &arguments))?;
        }
        for _ in 0..32 {
            endpoint.reply()?;
        }
    }
    Ok(())
}

/// Gathers of 2 MiB over many endpoints, whose results nobody reads.
fn unread_gathers(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut first = link.endpoint()?;
    let shard = first.shard()?;
    let arguments = jobs::gather(&[Range { extent: shard.extent.extent, offset: 0, length: 2 << 20 }]);
    let mut endpoints = Vec::new();
    for attempt in 0..64 {
        let mut endpoint = link.endpoint()?;
        endpoint.send_call(&shard.job(attempt, jobs::GATHER, &arguments))?;
        endpoints.push(endpoint);
    }
    // They last as long as the session is kept.
    for _ in 0..100 {
        first.must(&calls::renew(shard.session, u64::MAX))?;
    }
    Ok(())
}

/// More links than allowed.
fn idle_links(address: &str) -> Result<()> {
    (0..1024).map(|_| link(address)).collect::<Result<Vec<_>>>().map(drop)
}

/// Leases of all memory, supposedly for garbage collection.
fn leases(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let session = endpoint.session()?;
    let lease = calls::lease_extents(session, 128, calls::COLLECTION);
    while endpoint.call(&lease)?.is_ok() {}
    Ok(())
}

/// All shards.
fn shards(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let session = endpoint.session()?;
    let store = endpoint.must(&calls::create_store(session, "", b""))?.store;
    for number in 0..16_384 {
        let shard = Shard { store, shard: number };
        let refused = endpoint.call(&calls::acquire_shard(session, shard, false))?.is_err();
        if refused {
            break;
        }
    }
    Ok(())
}

/// Names of another tenant, or with characters that act on a terminal.
fn names(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J";
    for tenant in ["honest", "secret:honest", forged] {
        // The name belongs to another tenant.
        let _ = endpoint.call(&calls::open_session(tenant, forged))?;
    }
    let session = endpoint.must(&calls::open_session("", forged))?.session;
    for name in ["db", forged] {
        let _ = endpoint.call(&calls::open_store(session, name))?;
    }
    // The link ends, and the session lapses with its name.
    Ok(())
}

/// Strangers who send half of what they should.
fn half_handshakes(address: &str) -> Result<()> {
    let strangers = (0..100).map(|at| {
        let mut socket = connect(address)?;
        socket.write_all(wire::hello(None).get(..at % 48).unwrap_or_default())?;
        Ok(socket)
    });
    strangers.collect::<Result<Vec<_>>>().map(drop)
}

/// Forged proofs of another tenant's secret.
fn forgeries(address: &str) -> Result<()> {
    let request = door::request(None);
    for at in 0..100 {
        let (mut stream, challenge) = door::challenged(address, &request)?;
        let nonce = [at; 32];
        let proof = door::proof(("honest", HOSTILE.1), "client", &challenge, &nonce, &request);
        stream.write_all(&door::proof_frame(&nonce, &proof, "honest"))?;
        read_frame(&mut stream)?;
    }
    Ok(())
}
