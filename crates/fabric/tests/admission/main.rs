//! Who is admitted, and who is not: real TLS and real sockets over loopback.

// Miri has no such sockets.
#![cfg(not(miri))]

mod authority;
mod hostile;
mod reload;
mod users;

use authority::{Authority, Folder, NODE, Validity};
use forebay_base::ErrorKind;
use forebay_fabric::admission::{Access, AccessOptions, Admission, AdmissionOptions, Identity, Secrets, Source};
use forebay_fabric::tcp::{self, Options, TcpListener};
use forebay_fabric::{Counts, Denial, EndpointOptions, Error, Event, Incoming, Link, Listener, Peer, Rights, Traffic};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const ALICE: &str = "alice 0123456789abcdef0123456789abcdef";
const BOB: &str = "bob fedcba9876543210fedcba9876543210";

fn secrets(text: &str) -> Secrets {
    Secrets::parse(text, "test").unwrap()
}

fn with_secret(text: &str) -> AccessOptions {
    AccessOptions { secret: secrets(text).only().cloned(), ..AccessOptions::default() }
}

fn node(options: AdmissionOptions) -> TcpListener {
    node_with(Options { admission: Some(Arc::new(Admission::load(options).unwrap())), ..Options::default() })
}

fn node_with(options: Options) -> TcpListener {
    tcp::listen("127.0.0.1:0".parse().unwrap(), 7, options).unwrap()
}

fn connect(node: &TcpListener, access: AccessOptions) -> Result<Arc<dyn Link>, Error> {
    tcp::connect(&node.address(), Options { access: Access::load(&access)?, ..Options::default() })
}

fn denied(node: &TcpListener, access: AccessOptions) -> Denial {
    match connect(node, access) {
        Err(error @ Error::NotAdmitted { .. }) => {
            assert!(matches!(error.kind(), ErrorKind::AccessDenied | ErrorKind::Busy));
            let Error::NotAdmitted { cause, .. } = error else { unreachable!() };
            cause
        }
        other => panic!("not denied: {other:?}"),
    }
}

fn joined(node: &mut TcpListener) -> Arc<dyn Peer> {
    match node.next(SOON).unwrap() {
        Some(Event::Joined(peer)) => peer,
        other => panic!("no link but {other:?}"),
    }
}

/// A folder with all that both sides need.
struct Site {
    folder: Folder,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        Self { folder: Folder::new(), authority: Authority::new("good") }
    }

    fn node(&self) -> AdmissionOptions {
        let (certificate, key) = self.authority.issue(&self.folder, NODE, Validity::Good);
        let client_authority = Some(self.authority.file(&self.folder));
        AdmissionOptions { certificate: Some(certificate), key: Some(key), client_authority, ..Default::default() }
    }

    fn client(&self, names: &[&str], validity: Validity) -> AccessOptions {
        let (certificate, key) = self.authority.issue(&self.folder, names, validity);
        let authority = Some(self.authority.file(&self.folder));
        AccessOptions { authority, certificate: Some(certificate), key: Some(key), ..Default::default() }
    }

    /// Without a certificate.
    fn trusting(&self) -> AccessOptions {
        AccessOptions { authority: Some(self.authority.file(&self.folder)), ..Default::default() }
    }
}

/// Ways to be admitted, and the identity that each gives.
fn ways(site: &Site) -> Vec<(AdmissionOptions, AccessOptions, &'static str)> {
    let both = AdmissionOptions { secrets: secrets(&format!("{ALICE}\n{BOB}")), ..site.node() };
    let secret_only = AdmissionOptions { secrets: secrets(ALICE), ..Default::default() };
    let encrypted = AdmissionOptions { client_authority: None, ..site.node() };
    vec![
        (AdmissionOptions::default(), AccessOptions::default(), "anonymous"),
        (encrypted, site.trusting(), "anonymous"),
        (site.node(), site.client(&["db-1.example"], Validity::Good), "certificate:db-1.example"),
        (secret_only, with_secret(ALICE), "secret:alice"),
        (both.clone(), AccessOptions { authority: site.trusting().authority, ..with_secret(BOB) }, "secret:bob"),
        (both, site.client(&["db-2.example"], Validity::Good), "certificate:db-2.example"),
    ]
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Does some of everything, large and small, and returns what was counted.
fn exercise(node: &mut TcpListener, link: &Arc<dyn Link>, peer: &Arc<dyn Peer>) -> Counts {
    const BYTES: usize = 3 << 20;
    let region = node.allocate(BYTES).unwrap();
    let key = peer.grant(&region, 0, BYTES as u64, Rights::ALL).unwrap();
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    let all = pattern(BYTES);
    endpoint.write(key.at(0), &all).unwrap();
    let mut back = vec![0; BYTES];
    endpoint.read(key.at(0), &mut back).unwrap();
    assert!(back == all);
    for length in [0, 1, 64, 16 << 10, (16 << 10) + 1, 65_536] {
        let mut back = vec![0; length];
        endpoint.read(key.at(3), &mut back).unwrap();
        assert!(back == all[3..3 + length]);
    }
    assert_eq!(endpoint.fetch_add(key.at(8), 0).unwrap(), endpoint.compare_swap(key.at(8), 1, 2).unwrap());
    for round in 0..50 {
        let ids: Vec<_> = (0..64)
            .map(|i| {
                let slot = endpoint.slot(100).unwrap();
                endpoint.post_read(key.at(i * 100 + round), slot).unwrap()
            })
            .collect();
        for id in ids {
            endpoint.wait_for(id).unwrap();
        }
    }
    let id = endpoint.post_message(b"to the node").unwrap();
    endpoint.wait_for(id).unwrap();
    let Some(Event::Message { peer: from, endpoint: at, bytes, .. }) = node.next(SOON).unwrap() else { panic!() };
    assert_eq!((from.id(), from.origin(), &bytes[..]), (peer.id(), peer.origin(), &b"to the node"[..]));
    // The node's side: it reads and writes the client's memory while the client waits.
    let local = link.allocate(BYTES).unwrap();
    let local_key = link.grant(&local, 0, BYTES as u64, Rights::ALL).unwrap();
    local.write(0, &all).unwrap();
    let caller = std::thread::scope(|scope| {
        let caller = std::thread::Builder::new().spawn_scoped(scope, || {
            let mut pulled = vec![0; BYTES];
            from.read(at, local_key.at(0), &mut pulled).unwrap();
            from.write(at, local_key.at(0), &vec![9; BYTES], Some(5)).unwrap();
            pulled
        });
        assert_eq!(endpoint.wait_receive(SOON).unwrap(), Some(Incoming::Immediate(5)));
        caller.unwrap().join().unwrap()
    });
    assert!(caller == all);
    let mut pushed = vec![0; BYTES];
    local.read(0, &mut pushed).unwrap();
    assert!(pushed.iter().all(|byte| *byte == 9));
    link.counts(Traffic::Foreground)
}

#[test]
fn all_ways_in_and_the_same_counts_on_each() {
    let site = Site::new();
    let mut counts = Vec::new();
    for (admission, access, identity) in ways(&site) {
        let mut node = node(admission);
        let link = connect(&node, access).unwrap_or_else(|error| panic!("{identity}: {error}"));
        let peer = joined(&mut node);
        assert_eq!(peer.origin().identity.to_string(), identity);
        assert!(matches!(peer.origin().source, Source::Network(from) if from.ip().is_loopback()));
        counts.push(exercise(&mut node, &link, &peer));
        assert_eq!(node.admission_counts().admitted, 2, "{identity}");
        drop(link);
        assert!(matches!(node.next(SOON).unwrap(), Some(Event::Left { .. })), "{identity}");
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn a_small_socket_carries_as_much() {
    let site = Site::new();
    let small = |options: Options| Options { socket_bytes: Some(16 << 10), ..options };
    let admission = Some(Arc::new(Admission::load(site.node()).unwrap()));
    let mut node = node_with(small(Options { admission, ..Options::default() }));
    let access = Access::load(&site.client(&["a"], Validity::Good)).unwrap();
    let link = tcp::connect(&node.address(), small(Options { access, ..Options::default() })).unwrap();
    let peer = joined(&mut node);
    exercise(&mut node, &link, &peer);
}

#[test]
fn certificates_that_are_not_taken() {
    let site = Site::new();
    let mut node = node(site.node());
    let certificate = |denial: Denial, hint: &str| match denial {
        Denial::Certificate(text) => assert!(text.contains(hint), "{text}"),
        other => panic!("{other:?}"),
    };
    let other = Authority::new("other");
    let (foreign, key) = other.issue(&site.folder, &["db"], Validity::Good);
    let foreign = AccessOptions { certificate: Some(foreign), key: Some(key), ..site.trusting() };
    certificate(denied(&node, foreign), "UnknownCA");
    certificate(denied(&node, site.client(&["db"], Validity::Past)), "CertificateExpired");
    certificate(denied(&node, site.client(&["db"], Validity::Future)), "CertificateExpired");
    certificate(denied(&node, site.client(&["a", "b"], Validity::Good)), "one DNS name");
    certificate(denied(&node, site.client(&["*.example"], Validity::Good)), "one DNS name");
    assert_eq!(denied(&node, site.trusting()), Denial::CertificateMissing);
    assert_eq!(node.next(Duration::ZERO).unwrap().map(|event| format!("{event:?}")), None, "nobody joined");
    assert_eq!(node.admission_counts().admitted, 0);
    connect(&node, site.client(&["db"], Validity::Good)).unwrap();
    // TLS tells a client before the refusal is counted. It has been counted once another client is
    // admitted.
    assert_eq!(node.admission_counts().refused, 6);
}

#[test]
fn nodes_that_are_not_trusted() {
    let site = Site::new();
    let untrusted = |admission: AdmissionOptions, access: AccessOptions, hint: &str| {
        let node = node(AdmissionOptions { client_authority: None, ..admission });
        match denied(&node, access) {
            Denial::NodeCertificate(text) => assert!(text.to_lowercase().contains(hint), "{text}"),
            other => panic!("{other:?}"),
        }
    };
    let with = |(certificate, key): (PathBuf, PathBuf)| AdmissionOptions {
        certificate: Some(certificate),
        key: Some(key),
        ..Default::default()
    };
    let issue = |names: &[&str], validity| with(site.authority.issue(&site.folder, names, validity));
    untrusted(issue(NODE, Validity::Past), site.trusting(), "expired");
    untrusted(issue(&["another.example"], Validity::Good), site.trusting(), "not valid for name");
    untrusted(
        with(Authority::new("other").issue(&site.folder, NODE, Validity::Good)),
        site.trusting(),
        "unknownissuer",
    );
    // The name that is asked for may be another than that of the address.
    let named = AccessOptions { node_name: Some("another.example".into()), ..site.trusting() };
    connect(&node(issue(&["another.example"], Validity::Good)), named.clone()).unwrap();
    untrusted(issue(NODE, Validity::Good), named, "not valid for name");
}

#[test]
fn secrets_that_are_not_taken() {
    let node = node(AdmissionOptions { secrets: secrets(ALICE), ..Default::default() });
    let wrong = [BOB, "alice fedcba9876543210fedcba9876543210", "eve 0123456789abcdef0123456789abcdef"];
    for text in wrong {
        assert_eq!(denied(&node, with_secret(text)), Denial::Secret);
    }
    assert_eq!(denied(&node, AccessOptions::default()), Denial::SecretMissing);
    assert_eq!(node.admission_counts().refused, 3);
    connect(&node, with_secret(ALICE)).unwrap();
}

#[test]
fn neither_side_is_talked_out_of_what_it_was_told() {
    let site = Site::new();
    let (open, encrypted) = (node(AdmissionOptions::default()), node(site.node()));
    assert_eq!(denied(&encrypted, AccessOptions::default()), Denial::Plain);
    assert_eq!(denied(&encrypted, with_secret(ALICE)), Denial::Plain);
    assert_eq!(denied(&open, site.trusting()), Denial::Tls);
    assert_eq!(denied(&open, site.client(&["db"], Validity::Good)), Denial::Tls);
    // A node that does not ask for the secret may belong to anybody.
    assert_eq!(denied(&open, with_secret(ALICE)), Denial::NodeSecret);
    let anonymous = node(AdmissionOptions { client_authority: None, ..site.node() });
    let both = AccessOptions { authority: site.trusting().authority, ..with_secret(ALICE) };
    assert_eq!(denied(&anonymous, both), Denial::NodeSecret);
}

#[test]
fn connections_of_one_identity_are_bounded() {
    let admission = AdmissionOptions { secrets: secrets(&format!("{ALICE}\n{BOB}")), ..Default::default() };
    let admission = Some(Arc::new(Admission::load(admission).unwrap()));
    let mut node =
        node_with(Options { admission, max_connections: 4, max_connections_of_one: 3, ..Options::default() });
    let alice = connect(&node, with_secret(ALICE)).unwrap();
    let endpoints = [(); 2].map(|()| alice.endpoint(EndpointOptions::default()).unwrap());
    let told =
        |refused: Error| (refused.kind(), refused.to_string().split(": ").skip(1).collect::<Vec<_>>().join(": "));
    let busy = |text: &str| (ErrorKind::Busy, text.to_owned());
    let refused = connect(&node, with_secret(ALICE)).unwrap_err();
    assert_eq!(told(refused), busy("secret:alice has its most connections: 3"));
    let bob = connect(&node, with_secret(BOB)).unwrap();
    let refused = bob.endpoint(EndpointOptions::default()).unwrap_err();
    assert_eq!(told(refused), busy("the node has its most connections: 4"));
    assert_eq!(node.admission_counts().crowded, 2);
    drop((endpoints, alice));
    let alice_left = |node: &mut TcpListener| matches!(node.next(SOON).unwrap(), Some(Event::Left { .. }));
    assert!((0..3).any(|_| alice_left(&mut node)));
    // The endpoints' ends are noticed a moment later than the link's.
    let again = (0..100).find_map(|_| connect(&node, with_secret(ALICE)).ok()).expect("room again");
    assert_eq!(again.node(), node.identity());
}

#[test]
fn the_last_connections_are_for_those_who_have_few() {
    let admission = AdmissionOptions { secrets: secrets(&format!("{ALICE}\n{BOB}")), ..Default::default() };
    let admission = Some(Arc::new(Admission::load(admission).unwrap()));
    let node = node_with(Options { admission, max_connections: 40, max_connections_of_one: 20, ..Options::default() });
    let [alice, bob] = [ALICE, BOB].map(|secret| connect(&node, with_secret(secret)).unwrap());
    let more = |link: &Arc<dyn Link>, count| {
        (0..count).map(|_| link.endpoint(EndpointOptions::default())).collect::<Result<Vec<_>, _>>()
    };
    let _alices = more(&alice, 18).unwrap();
    let _bobs = more(&bob, 15).unwrap();
    // There are 35, and each has 16 and more.
    for link in [&alice, &bob] {
        let refused = more(link, 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.to_string().ends_with("nobody gets more than 16 now"), "{refused}");
    }
}

#[test]
fn who_listens_beyond_loopback() {
    let site = Site::new();
    let listen = |admission: Option<AdmissionOptions>, allow_remote| {
        let admission = admission.map(|options| Arc::new(Admission::load(options).unwrap()));
        tcp::listen("0.0.0.0:0".parse().unwrap(), 1, Options { admission, allow_remote, ..Options::default() })
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let anonymous = AdmissionOptions { client_authority: None, ..site.node() };
    let unencrypted = AdmissionOptions { secrets: secrets(ALICE), ..Default::default() };
    for (admission, hint) in
        [(None, "not encrypted"), (Some(anonymous.clone()), "prove who they are"), (Some(unencrypted), "not encrypted")]
    {
        let said = listen(admission.clone(), false).unwrap_err();
        assert!(said.contains(hint) && said.contains("--allow-remote"), "{said}");
        listen(admission, true).unwrap();
    }
    listen(Some(site.node()), false).unwrap();
    listen(Some(AdmissionOptions { secrets: secrets(ALICE), ..anonymous }), false).unwrap();
}

#[test]
fn files_that_do_not_fit() {
    let site = Site::new();
    let good = site.node();
    let text = site.folder.write("text", "nothing of use\n");
    let public = site.folder.write("public", &format!("{ALICE}\n"));
    site.folder.set_mode(&public, 0o644);
    let open_key = site.folder.copy(good.key.as_ref().unwrap(), "open-key");
    site.folder.set_mode(&open_key, 0o604);
    let two = site.folder.write("two", &format!("{ALICE}\n{BOB}\n"));
    let other_key = site.authority.issue(&site.folder, NODE, Validity::Good).1;
    let none = site.folder.path("none");
    let none_at = |change: fn(&mut AdmissionOptions)| {
        let mut options = good.clone();
        change(&mut options);
        options
    };
    let set = |change: &dyn Fn(&mut AdmissionOptions)| {
        let mut options = good.clone();
        change(&mut options);
        options
    };
    let nodes = [
        (none_at(|o| o.key = None), "key"),
        (none_at(|o| o.certificate = None), "certificate"),
        (none_at(|o| (o.key, o.certificate) = (None, None)), "within TLS only"),
        (none_at(|o| (o.client_authority, o.client_revocations) = (None, Some("x".into()))), "only with an authority"),
        (set(&|o| o.certificate = Some(none.clone())), "No such file"),
        (set(&|o| o.certificate = Some(text.clone())), "no certificate in PEM"),
        (set(&|o| o.key = Some(text.clone())), "no private key in PEM"),
        (set(&|o| o.key = Some(open_key.clone())), "mode 604"),
        (set(&|o| o.key = Some(other_key.clone())), "KeyMismatch"),
        (set(&|o| o.client_authority = Some(text.clone())), "no certificate in PEM"),
        (set(&|o| o.client_revocations = Some(text.clone())), "no revocation list in PEM"),
        (set(&|o| o.secret_file = Some(public.clone())), "chmod 600"),
        (set(&|o| o.secret_file = Some("/".into())), "not a file"),
    ];
    for (options, hint) in nodes {
        let error = Admission::load(options).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(hint), "{hint}: {error}");
    }
    let client = site.client(&["db"], Validity::Good);
    let clients = [
        (AccessOptions { authority: None, ..client.clone() }, "authority of the node's certificate"),
        (AccessOptions { node_name: Some("a".into()), ..Default::default() }, "within TLS only"),
        (AccessOptions { node_name: Some("a b".into()), ..client.clone() }, "neither a DNS name"),
        (AccessOptions { key: None, ..client.clone() }, "key"),
        (AccessOptions { secret: secrets(ALICE).only().cloned(), ..client }, "one of them"),
        (AccessOptions { secret_file: Some(two), ..Default::default() }, "several"),
        (AccessOptions { secret_file: Some(public), ..Default::default() }, "chmod 600"),
        (AccessOptions { secret_file: Some("x".into()), ..with_secret(ALICE) }, "one of them"),
    ];
    for (options, hint) in clients {
        let error = Access::load(&options).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(hint), "{hint}: {error}");
    }
}

#[test]
fn nothing_prints_a_secret_or_a_key() {
    let site = Site::new();
    let admission = AdmissionOptions { secrets: secrets(ALICE), ..site.node() };
    let access = Access::load(&with_secret(ALICE)).unwrap();
    let loaded = Admission::load(admission.clone()).unwrap();
    let certified = Access::load(&site.client(&["db"], Validity::Good)).unwrap();
    let printed = format!("{admission:?} {loaded:?} {access:?} {certified:?} {:?}", with_secret(ALICE));
    assert!(!printed.contains("0123456789"), "{printed}");
    let key = std::fs::read_to_string(admission.key.unwrap()).unwrap();
    let line = key.lines().nth(1).unwrap();
    assert!(!printed.contains(&line[..16]), "{printed}");
}

#[test]
fn identities_of_the_other_back_ends() {
    let (mut node, connector) = forebay_fabric::inprocess::listen(1).unwrap();
    let _link = connector.connect().unwrap();
    let Some(Event::Joined(peer)) = node.next(SOON).unwrap() else { panic!("no link") };
    assert_eq!((peer.origin().identity, peer.origin().source), (Identity::Process, Source::Here));
}
