//! The attacks that last. Each is carried out again and again, until the node has stopped.

use crate::client::{HOSTILE, RawLink};
use crate::door;
use crate::socket::{connect, read_frame};
use crate::wire::{self, Arguments};
use forebay_proto::calls::{AcquireShard, CreateStore, GetStatistics, LeaseExtents, OpenSession, OpenStore, Renew};
use forebay_proto::{
    Blob, ExtentRange, Message, PROTOCOL_VERSION, Procedure, Purpose, SessionId, ShardId, ShardKey, Text, gather,
    job_kind,
};
use std::io::{Result, Write};

/// An attack.
#[derive(Debug)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// How many do it at a time.
    pub attackers: usize,
    /// Does it once, to the node at an address. It fails when the node puts an end to it.
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

/// Calls of which nobody reads the replies.
fn unread(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let call = GetStatistics { session: SessionId(1) }.encode();
    loop {
        endpoint.flood(Procedure::GetStatistics as u16, &call, 4096)?;
    }
}

/// Jobs whose arguments never come.
fn never_pulled(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    for _ in 0..8 {
        endpoint.post(Procedure::SubmitJob as u16, Arguments::Announced(1500))?;
    }
    // Until the node gives up.
    while read_frame(&mut endpoint.stream).is_ok() {}
    Ok(())
}

/// Gathers of 2 MiB, one behind the other.
fn gathers(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let shard = endpoint.shard()?;
    let range = ExtentRange { extent: shard.extent.extent, offset: 0, length: 2 << 20 };
    for round in 0.. {
        for attempt in 0..32 {
            let call = shard.job(round * 32 + attempt, job_kind::GATHER, gather::encode(&[range])).encode();
            endpoint.post(Procedure::SubmitJob as u16, Arguments::Inline(&call))?;
        }
        for _ in 0..32 {
            endpoint.reply()?;
        }
    }
    Ok(())
}

/// Gathers of 2 MiB over many endpoints, of which nobody reads the results.
fn unread_gathers(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut first = link.endpoint()?;
    let shard = first.shard()?;
    let range = ExtentRange { extent: shard.extent.extent, offset: 0, length: 2 << 20 };
    let mut endpoints = Vec::new();
    for attempt in 0..64 {
        let mut endpoint = link.endpoint()?;
        let call = shard.job(attempt, job_kind::GATHER, gather::encode(&[range])).encode();
        endpoint.post(Procedure::SubmitJob as u16, Arguments::Inline(&call))?;
        endpoints.push(endpoint);
    }
    // As long as its session is kept, so are they.
    for _ in 0..100 {
        first.must(&Renew { session: shard.session, reading_epoch: u64::MAX })?;
    }
    Ok(())
}

/// More links than there may be.
fn idle_links(address: &str) -> Result<()> {
    (0..1024).map(|_| link(address)).collect::<Result<Vec<_>>>().map(drop)
}

/// All memory, for garbage collection as it says.
fn leases(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let session = endpoint.session()?;
    let lease = LeaseExtents { session, count: 128, purpose: Purpose::Collection };
    while endpoint.call(&lease)?.is_ok() {}
    Ok(())
}

/// All shards.
fn shards(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let session = endpoint.session()?;
    let opened = endpoint.must(&CreateStore { session, name: Text::default(), config: Blob::default() })?;
    for number in 0..16_384 {
        let shard = ShardKey { store: opened.store, shard: ShardId(number) };
        let refused = endpoint.call(&AcquireShard { session, shard, takeover: false })?.is_err();
        if refused {
            break;
        }
    }
    Ok(())
}

/// Names that are another one's, or that a terminal would obey.
fn names(address: &str) -> Result<()> {
    let link = link(address)?;
    let mut endpoint = link.endpoint()?;
    let text = |text: &str| Text::new(text).unwrap_or_default();
    let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J";
    for tenant in ["honest", "secret:honest", forged] {
        let open =
            OpenSession { protocol: PROTOCOL_VERSION, tenant: text(tenant), name: text(forged), capabilities: 0 };
        // It is another tenant's.
        let _ = endpoint.call(&open)?;
    }
    let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: Text::default(), name: text(forged), capabilities: 0 };
    let session = endpoint.must(&open)?.session;
    for name in ["db", forged] {
        let _ = endpoint.call(&OpenStore { session, name: text(name) })?;
    }
    // The link ends, and the session lapses with its name.
    Ok(())
}

/// Strangers who say half of what they should.
fn half_handshakes(address: &str) -> Result<()> {
    let strangers = (0..100).map(|at| {
        let mut socket = connect(address)?;
        socket.write_all(wire::hello(None).get(..at % 48).unwrap_or_default())?;
        Ok(socket)
    });
    strangers.collect::<Result<Vec<_>>>().map(drop)
}

/// Proofs of another one's secret.
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
