//! What changes while the node runs.

use super::authority::Validity;
use super::hostile::{CONTROL, answer_challenge, dial, frame, raw_prove, receive, tls_client};
use super::{ALICE, BOB, SOON, Site, connect, denied, joined, node_with, with_secret};
use forebay_fabric::admission::{AccessOptions, Admission, AdmissionOptions};
use forebay_fabric::tcp::{Options, TcpListener};
use forebay_fabric::{Denial, EndpointOptions, Event, Listener, PeerId};
use rustls::pki_types::UnixTime;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

fn reloadable(options: AdmissionOptions) -> (TcpListener, Arc<Admission>) {
    let admission = Arc::new(Admission::load(options).unwrap());
    (node_with(Options { admission: Some(Arc::clone(&admission)), ..Options::default() }), admission)
}

fn left(node: &mut TcpListener) -> PeerId {
    match node.next(SOON).unwrap() {
        Some(Event::Left { peer, .. }) => peer,
        other => panic!("nobody left but {other:?}"),
    }
}

#[test]
fn secrets_come_and_go_while_the_node_runs() {
    let site = Site::new();
    let file = site.folder.write("secrets", &format!("{ALICE}\n"));
    let (mut node, admission) =
        reloadable(AdmissionOptions { secret_file: Some(file.clone()), ..AdmissionOptions::default() });
    let alice = connect(&node, with_secret(ALICE)).unwrap();
    let alice_peer = joined(&mut node);
    assert_eq!(denied(&node, with_secret(BOB)), Denial::Secret);

    site.folder.write("secrets", &format!("{ALICE}\n{BOB}\n"));
    admission.reload().unwrap();
    let bob = connect(&node, with_secret(BOB)).unwrap();
    let bob_peer = joined(&mut node);
    assert!(alice.is_alive() && alice_peer.is_alive());

    // A file that makes no sense changes nothing.
    site.folder.write("secrets", "alice short\n");
    assert!(admission.reload().unwrap_err().to_string().contains("line 1"));
    assert!(connect(&node, with_secret(ALICE)).is_ok());
    joined(&mut node);
    left(&mut node);

    // Another secret under the same name is another secret.
    site.folder.write("secrets", &format!("alice {}\n{BOB}\n", "9".repeat(32)));
    admission.reload().unwrap();
    assert_eq!(left(&mut node), alice_peer.id());
    assert!(alice.endpoint(EndpointOptions::default()).is_err() && !alice_peer.is_alive());
    assert_eq!(denied(&node, with_secret(ALICE)), Denial::Secret);
    assert!(bob.is_alive() && bob_peer.is_alive());
    assert_eq!(node.admission_counts().withdrawn, 1);
}

#[test]
fn a_revoked_certificate_loses_its_link() {
    let site = Site::new();
    let list = site.folder.write("revoked", &site.authority.revocations(&[900_001]));
    let (mut node, admission) = reloadable(AdmissionOptions { client_revocations: Some(list), ..site.node() });
    let client = |number| {
        let (certificate, key) = site.authority.issue_numbered(&site.folder, &["db"], Validity::Good, number);
        AccessOptions { certificate: Some(certificate), key: Some(key), ..site.trusting() }
    };
    let revoked = |denial| match denial {
        Denial::Certificate(text) => assert!(text.contains("Revoked"), "{text}"),
        other => panic!("{other:?}"),
    };
    revoked(denied(&node, client(900_001)));
    let access = client(900_002);
    let link = connect(&node, access.clone()).unwrap();
    let first = joined(&mut node);
    let other = connect(&node, client(900_003)).unwrap();
    let second = joined(&mut node);

    site.folder.write("revoked", &site.authority.revocations(&[900_001, 900_002]));
    admission.reload().unwrap();
    assert_eq!(left(&mut node), first.id());
    assert!(link.endpoint(EndpointOptions::default()).is_err());
    assert!(other.is_alive() && second.is_alive());
    revoked(denied(&node, access));
}

#[test]
fn a_node_gets_another_certificate() {
    let site = Site::new();
    let options = AdmissionOptions { client_authority: None, ..site.node() };
    let (certificate, key) = (options.certificate.clone().unwrap(), options.key.clone().unwrap());
    let (mut node, admission) = reloadable(options);
    let link = connect(&node, site.trusting()).unwrap();
    joined(&mut node);
    // By another authority: old links stand, new ones trust that one.
    let other = super::Authority::new("other");
    let (new_certificate, new_key) = other.issue(&site.folder, super::NODE, Validity::Good);
    std::fs::rename(new_certificate, certificate).unwrap();
    std::fs::rename(new_key, key).unwrap();
    admission.reload().unwrap();
    assert!(link.is_alive());
    assert!(matches!(denied(&node, site.trusting()), Denial::NodeCertificate(_)));
    let access = AccessOptions { authority: Some(other.file(&site.folder)), ..AccessOptions::default() };
    connect(&node, access).unwrap();
}

/// A stranger that has got a challenge.
fn challenged(node: &TcpListener) -> (TcpStream, Vec<u8>) {
    let mut socket = dial(node);
    socket.write_all(&frame(1, &CONTROL)).unwrap();
    let (kind, challenge) = receive(&mut socket);
    assert_eq!(kind, 12);
    (socket, challenge)
}

/// The node's word on the proof of a secret: the last frame's kind, and its body.
fn answer((socket, challenge): &mut (TcpStream, Vec<u8>), secret: &str) -> (u8, Vec<u8>) {
    answer_challenge(socket, secret, challenge, &CONTROL)
}

#[test]
fn who_waits_at_the_door_is_judged_by_what_holds_when_it_comes_in() {
    let site = Site::new();
    let file = site.folder.write("secrets", &format!("{ALICE}\n{BOB}\n"));
    let (mut node, admission) =
        reloadable(AdmissionOptions { secret_file: Some(file.clone()), ..AdmissionOptions::default() });
    let (mut alice, mut bob, mut silent) = (challenged(&node), challenged(&node), dial(&node));
    let new_alice = format!("alice {}", "9".repeat(32));
    let carol = format!("carol {}", "8".repeat(32));
    site.folder.write("secrets", &format!("{new_alice}\n{BOB}\n{carol}\n"));
    admission.reload().unwrap();
    // A client that came under the old rules stays outside if the new rules took away its secret.
    let (kind, failure) = answer(&mut alice, ALICE);
    assert_eq!((kind, failure[0]), (11, 6));
    let (kind, failure) = raw_prove(&mut silent, ALICE, &CONTROL);
    assert_eq!((kind, failure[0]), (11, 6));
    // A secret that both rules accept is accepted, and newcomers need what holds now.
    assert_eq!(answer(&mut bob, BOB).0, 2);
    assert_eq!(joined(&mut node).origin().identity.to_string(), "secret:bob");
    // Links that stay: the end of one would interfere.
    let mut links = Vec::new();
    for secret in [&new_alice, &carol] {
        let link = connect(&node, with_secret(secret)).unwrap();
        let peer = joined(&mut node);
        assert!(link.is_alive() && peer.is_alive());
        links.push(link);
    }
    let counts = node.admission_counts();
    assert_eq!((counts.admitted, counts.refused, counts.withdrawn), (3, 2, 0));
}

#[test]
fn a_certificate_that_is_revoked_in_the_handshake_is_not_let_in() {
    let site = Site::new();
    let list = site.folder.write("revoked", &site.authority.revocations(&[900_001]));
    let (node, admission) = reloadable(AdmissionOptions { client_revocations: Some(list), ..site.node() });
    let (certificate, key) = site.authority.issue_numbered(&site.folder, &["db"], Validity::Good, 900_002);
    let mut tls = tls_client(&site, &certificate, &key, false);
    let mut socket = dial(&node);
    // As far as the node's certificate; what the client says to that stays with it.
    tls.write_tls(&mut socket).unwrap();
    while tls.is_handshaking() {
        tls.read_tls(&mut socket).unwrap();
        tls.process_new_packets().unwrap();
    }
    site.folder.write("revoked", &site.authority.revocations(&[900_001, 900_002]));
    admission.reload().unwrap();
    let (kind, failure) = {
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        stream.write_all(&frame(1, &CONTROL)).unwrap();
        receive(&mut stream)
    };
    assert_eq!((kind, failure[0]), (11, 10));
    let counts = node.admission_counts();
    assert_eq!((counts.admitted, counts.refused), (0, 1));
}

#[test]
fn reloads_while_strangers_come_leave_nobody_in_who_should_not_be() {
    let site = Site::new();
    let with = |text: &str| format!("{ALICE}\n{text}\n");
    let file = site.folder.write("secrets", &with(BOB));
    let (mut node, admission) =
        reloadable(AdmissionOptions { secret_file: Some(file.clone()), ..AdmissionOptions::default() });
    let other_bob = format!("bob {}", "7".repeat(32));
    let mut peers = Vec::new();
    std::thread::scope(|scope| {
        let node = &node;
        let mut threads = Vec::new();
        for secret in [ALICE, BOB] {
            let come = move || (0..60).map(|_| connect(node, with_secret(secret)).ok()).collect::<Vec<_>>();
            threads.push(std::thread::Builder::new().spawn_scoped(scope, come).unwrap());
        }
        // The last one takes bob's secret away.
        for round in 0..40 {
            let text = if round % 2 == 0 { with(BOB) } else { with(&other_bob) };
            site.folder.write("next", &text);
            std::fs::rename(site.folder.path("next"), &file).unwrap();
            admission.reload().unwrap();
            // Silent strangers are present all the time.
            drop(challenged(node));
        }
        let mut links = threads.into_iter().map(|thread| thread.join().unwrap());
        let (alice, bob) = (links.next().unwrap(), links.next().unwrap());
        assert!(alice.iter().all(|link| link.as_ref().is_some_and(|link| link.is_alive())), "alice was always let in");
        peers.extend([alice, bob]);
    });
    // The node sees the end of each link that it ended.
    let (mut alive, mut waits) = (forebay_env::HashMap::default(), 0);
    while waits < 3 {
        match node.next(Duration::from_millis(300)).unwrap() {
            Some(Event::Joined(peer)) => drop(alive.insert(peer.id(), peer)),
            Some(Event::Left { peer, .. }) => drop(alive.remove(&peer)),
            Some(other) => panic!("{other:?}"),
            None => waits += 1,
        }
    }
    let of = |name: &str| alive.values().filter(|peer| peer.origin().identity.to_string() == name).count();
    assert_eq!((of("secret:alice"), of("secret:bob")), (60, 0));
}

#[test]
fn a_link_ends_when_its_certificate_expires() {
    let site = Site::new();
    let (mut node, _) = reloadable(site.node());
    let lasting = connect(&node, site.client(&["lasting"], Validity::Good)).unwrap();
    let lasting_peer = joined(&mut node);
    // On a slow machine a certificate of a few seconds expires before the link is open.
    let (link, peer) = [2, 4, 8, 16, 32]
        .into_iter()
        .find_map(|seconds| {
            let until = UnixTime::now().as_secs() + seconds;
            let link = connect(&node, site.client(&["short"], Validity::Until(until))).ok()?;
            Some((link, joined(&mut node)))
        })
        .unwrap();
    let ended = (0..20).find_map(|_| node.next(SOON).unwrap());
    assert!(matches!(ended, Some(Event::Left { peer: ended, .. }) if ended == peer.id()), "{ended:?}");
    assert!(!peer.is_alive() && link.endpoint(EndpointOptions::default()).is_err());
    assert!(lasting.is_alive() && lasting_peer.is_alive());
    assert_eq!(node.admission_counts().withdrawn, 1);
}
