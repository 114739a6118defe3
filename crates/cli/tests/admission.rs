//! Memory nodes that ask who connects, as processes.

use crate::common::{Ended, FreshPath, Running, fresh_path, places, run, socket_path, start_node};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const ALICE: &str = "alice 0123456789abcdef0123456789abcdef\n";
const BOB: &str = "bob fedcba9876543210fedcba9876543210\n";
const QUICK: &str = "fabric-test --seconds 0.01 --sizes 64,65536 --depths 1,16 --format json";

fn file(suffix: &str, text: &str) -> FreshPath {
    let path = fresh_path(suffix);
    replace(&path, text);
    path
}

fn replace(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// An authority's file, and how it signs.
fn authority() -> (FreshPath, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let path = file(".pem", &params.self_signed(&key).unwrap().pem());
    (path, Issuer::new(params, key))
}

/// A new certificate and its key.
struct Certified {
    certificate: FreshPath,
    key: FreshPath,
}

impl std::fmt::Display for Certified {
    /// As flags.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--tls-certificate {} --tls-key {}", self.certificate.display(), self.key.display())
    }
}

fn certificate(issuer: &Issuer<'static, KeyPair>, name: &str) -> Certified {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
    Certified { certificate: file(".pem", &made.pem()), key: file(".key", &key.serialize_pem()) }
}

#[track_caller]
fn turned_away(line: &str, hint: &str) -> Ended {
    let ended = run(line).expect(1);
    assert!(ended.error.contains(hint), "{}", ended.error);
    ended
}

#[test]
fn certificates_on_both_sides() {
    let (authority, issuer) = authority();
    let authority = authority.display();
    let own = certificate(&issuer, "127.0.0.1");
    let flags = format!("--memory 256MiB --lazy {own} --tls-client-authority {authority}");
    let (node, address) = start_node("tcp://127.0.0.1:0", &flags);
    let shown = certificate(&issuer, "db-1");
    let client = format!("--memory {address} --tls-authority {authority} {shown}");
    let cells = run(&format!("{QUICK} {client}")).expect(0).json();
    assert_eq!(cells["back_end"], "tcp");
    let bench = run(&format!("bench --num 2000 --benchmarks fillrandom,compact,readrandom {client}"));
    bench.expect(0);
    run(&format!("ycsb --engine tree --records 500 --operations 500 --warm-up 0 {client}")).expect(0);
    turned_away(&format!("{QUICK} --memory {address}"), "serves TLS only");
    turned_away(&format!("{QUICK} --memory {address} --tls-authority {authority}"), "asks for a certificate");
    let (other, _) = self::authority();
    turned_away(&format!("{QUICK} --memory {address} --tls-authority {}", other.display()), "not trusted");
    turned_away(&format!("{QUICK} {client} --tls-name elsewhere"), "not valid for name");
    node.signal(Signal::TERM);
    node.wait_stopped();
}

#[test]
fn a_secret_that_is_taken_away_while_the_node_runs() {
    let secrets = file(".secrets", &format!("{ALICE}{BOB}"));
    let (node, address) =
        start_node("tcp://127.0.0.1:0", &format!("--memory 256MiB --lazy --secrets-file {}", secrets.display()));
    let (alice, bob) = (file(".secret", ALICE), file(".secret", BOB));
    let with = |secret: &Path| format!("{QUICK} --memory {address} --secret-file {}", secret.display());
    run(&with(&alice)).expect(0);
    run(&with(&bob)).expect(0);
    turned_away(&format!("{QUICK} --memory {address}"), "asks for a secret");
    replace(&secrets, BOB);
    node.signal(Signal::HUP);
    let refused = (0..100).any(|_| {
        node.pause(Duration::from_millis(20));
        run(&with(&alice)).code == Some(1)
    });
    assert!(refused);
    let ended = turned_away(&with(&alice), "does not take this process's name and secret");
    assert!(!ended.error.contains("0123456789"), "{}", ended.error);
    run(&with(&bob)).expect(0);
    // A node without certificates speaks TLS with nobody.
    let (authority, _) = authority();
    turned_away(&format!("{QUICK} --memory {address} --tls-authority {}", authority.display()), "does not serve TLS");
    node.signal(Signal::TERM);
    node.wait_stopped();
}

#[test]
fn users_of_shared_memory() {
    let own = rustix::process::getuid().as_raw();
    for (uid, code) in [(own, 0), (own + 1, 1)] {
        let listen = format!("shm:{}", socket_path().display());
        let (node, address) = start_node(&listen, &format!("--memory 256MiB --lazy --allow-uid {uid}"));
        let ended = run(&format!("{QUICK} --memory {address}")).expect(code);
        assert_eq!(ended.error.contains("does not let in user"), code == 1, "{}", ended.error);
        stop(node);
    }
}

fn stop(node: Running) {
    node.signal(Signal::TERM);
    node.wait_stopped();
}

#[test]
fn a_node_that_asks_nobody_goes_on_after_a_hangup() {
    let (node, address) = start_node("tcp://127.0.0.1:0", "--memory 256MiB --lazy");
    node.signal(Signal::HUP);
    node.until_told("nothing to read again");
    run(&format!("{QUICK} --memory {address}")).expect(0);
    stop(node);
}

#[test]
fn a_limit_of_the_node_reaches_its_clients() {
    let tenants = file(".json", r#"{"tenants": [], "others": {"links": 3}}"#);
    for listen in places() {
        let flags = format!("--memory 128MiB --tenants {}", tenants.display());
        let (_node, address) = start_node(&listen, &flags);
        let line = format!("ycsb --engine tree --records 500 --operations 500 --warm-up 0 --memory {address}");
        let refused = run(&format!("{line} --clients 5")).expect(5);
        assert!(refused.error.contains("tenant anonymous has its most links: 3; 1 more asked for: "), "{refused:?}");
        run(&format!("{line} --clients 3")).expect(0);
    }
}
