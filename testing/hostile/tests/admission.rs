//! Attacks on admission, beside an honest tenant that continues. They count events: the only clock is that of a
//! certificate.

use forebay_base::ErrorKind;
use forebay_fabric::admission::{Access, AccessOptions, Admission, AdmissionOptions, Secrets};
use forebay_fabric::{EndpointOptions, Link, Listener, tcp};
use forebay_hostile::arena::{code, eventually};
use forebay_hostile::field::{HONEST, HOSTILE};
use forebay_memory_client::{ClientOptions, ExtentId, MemoryClient, Purpose};
use forebay_memory_node::{Handle, Identity, Limits, MemoryNode, Options, TenantOptions, TenantsOptions};
use forebay_raw_client::calls::{self, FLUSH, get_statistics, open_session};
use forebay_raw_client::client::{RawEndpoint, RawLink};
use forebay_raw_client::door::{self, Papers};
use forebay_raw_client::socket::read_frame;
use forebay_raw_client::wire::{self, kind};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);
/// The secret of another identity of the hostile tenant.
const ACCOMPLICE: (&str, &str) = ("accomplice", "aaaaaaaabbbbbbbbccccccccdddddddd");
/// The code in a failure frame that means: the sender is not admitted.
const NOT_ADMITTED: u8 = 6;

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a name with this serial number, until this year, and its key.
    fn issue(&self, names: &[&str], number: u64, until: i32) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(number));
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn revocations(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-hostile-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tenants(hostile_memory: u64) -> TenantsOptions {
    tenants_with(Limits { memory_bytes: Some(hostile_memory), ..Limits::default() })
}

fn tenants_with(hostile: Limits) -> TenantsOptions {
    let tenant = |name: &str, identities: &[&str], limits| {
        let identities = identities.iter().map(|identity| Identity::new(identity).unwrap()).collect();
        TenantOptions { limits, ..TenantOptions::new(name, identities) }
    };
    let honest = Limits { memory_bytes: Some(32 << 20), ..Limits::default() };
    TenantsOptions {
        known: vec![
            tenant("honest", &["secret:honest", "certificate:honest"], honest),
            tenant("hostile", &["secret:hostile", "secret:accomplice", "certificate:hostile"], hostile),
        ],
        others: Limits { memory_bytes: Some(0), ..Limits::default() },
    }
}

/// A node that asks for proof, and an honest tenant who is admitted.
struct Site {
    folder: Folder,
    authority: Authority,
    admission: Arc<Admission>,
    node: Handle,
    access: AccessOptions,
    victim: Arc<MemoryClient>,
}

impl Site {
    fn start(tls: bool) -> Self {
        let (folder, authority) = (Folder::new(), Authority::new());
        let mut options = AdmissionOptions::default();
        let mut access = AccessOptions::default();
        if tls {
            let (certificate, key) = authority.issue(&["localhost", "127.0.0.1"], 1, 4000);
            options.certificate = Some(folder.write("node.pem", &certificate));
            options.key = Some(folder.write("node.key", &key));
            options.client_authority = Some(folder.write("authority.pem", &authority.pem));
            options.client_revocations = Some(folder.write("revoked.pem", &authority.revocations(&[9])));
            let (certificate, key) = authority.issue(&["honest"], 2, 4000);
            access.authority.clone_from(&options.client_authority);
            access.certificate = Some(folder.write("honest.pem", &certificate));
            access.key = Some(folder.write("honest.key", &key));
        } else {
            let line = |(name, value): (&str, &str)| format!("{name} {value}\n");
            options.secrets = Secrets::parse(&[HONEST, HOSTILE, ACCOMPLICE].map(line).concat(), "test").unwrap();
            access.secret = Secrets::parse(&line(HONEST), "test").unwrap().only().cloned();
        }
        let admission = Arc::new(Admission::load(options).unwrap());
        let listen = tcp::Options { admission: Some(Arc::clone(&admission)), ..tcp::Options::default() };
        let listener = tcp::listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1, listen).unwrap();
        let address = listener.address();
        let options = Options {
            extent_bytes: Some(2 << 20),
            lease: LONG,
            tenants: tenants(24 << 20),
            ..Options::with_memory(64 << 20)
        };
        let node = MemoryNode::start(Box::new(listener), options).unwrap();
        let victim = client(&address, &access);
        Self { folder, authority, admission, node, access, victim }
    }

    fn address(&self) -> &str {
        self.node.address()
    }

    fn papers(&self, (certificate, key): (String, String)) -> Papers {
        Papers { certificate, key, authority: self.authority.pem.clone() }
    }

    /// Makes the honest one continue, and connects another process of it.
    fn use_it(&self) {
        self.victim.renew().unwrap();
        let leased = self.victim.lease(1, Purpose::Flush).unwrap();
        self.victim.return_extents(&leased).unwrap();
        client(self.address(), &self.access).renew().unwrap();
        let honest = self.node.tenants().into_iter().find(|it| it.name.as_str() == "honest").unwrap();
        assert_eq!((honest.lapsed_sessions, honest.limited_calls, honest.denied_calls), (0, 0, 0));
    }

    /// The node's count of sessions: only those who proved themselves have any.
    fn sessions_of(&self, name: &str) -> u64 {
        self.node.tenants().iter().filter(|it| it.name.as_str() == name).map(|it| it.sessions).sum()
    }
}

fn client(address: &str, access: &AccessOptions) -> Arc<MemoryClient> {
    let options = tcp::Options { access: Access::load(access).unwrap(), ..tcp::Options::default() };
    let link: Arc<dyn Link> = tcp::connect(address, options).unwrap();
    let patient = ClientOptions { timeout: Duration::from_secs(60), ..ClientOptions::default() };
    MemoryClient::connect(link, "honest", patient).unwrap()
}

/// The code of the failure with which a connection is turned away; `None` when it just ends.
fn turned_away(stream: &mut impl Read) -> Option<u8> {
    match read_frame(stream) {
        Ok((kind::FAILED, _, body)) => body.get(wire::CHECKSUM_BYTES).copied(),
        Ok((found, ..)) => panic!("a frame of kind {found}"),
        Err(_) => None,
    }
}

#[test]
fn a_forged_identity() {
    let site = Site::start(false);
    let request = door::request(None);
    let nonce = [1; 32];
    // Another one's name with its own secret, and with the right length of noise.
    for (value, name) in [(HOSTILE.1, "honest"), (HONEST.1, "nobody"), (&HONEST.1[1..], "honest")] {
        let (mut stream, challenge) = door::challenged(site.address(), &request).unwrap();
        let proof = door::proof((name, value), "client", &challenge, &nonce, &request);
        stream.write_all(&door::proof_frame(&nonce, &proof, name)).unwrap();
        assert_eq!(turned_away(&mut stream), Some(NOT_ADMITTED), "{name}");
    }
    // A link of the honest one: its number and token are visible on the wire, but useless to another
    // identity.
    let (link, welcome) = door::prove(site.address(), HONEST, None).unwrap();
    let of = wire::welcomed(&(kind::WELCOME, 0, welcome)).unwrap();
    assert!(door::prove(site.address(), HOSTILE, Some(of)).is_err());
    door::prove(site.address(), HONEST, Some(of)).unwrap();
    // Only a proof makes a session belong to that tenant.
    let (_control, welcome) = door::prove(site.address(), HOSTILE, None).unwrap();
    let of = wire::welcomed(&(kind::WELCOME, 0, welcome)).unwrap();
    let mut endpoint = RawEndpoint::over(door::prove(site.address(), HOSTILE, Some(of)).unwrap().0);
    let (refused, _) = endpoint.call(&open_session("honest", "")).unwrap().unwrap_err();
    assert_eq!(refused, code(ErrorKind::AccessDenied));
    let stolen = get_statistics(site.victim.session().0);
    assert_eq!(endpoint.call(&stolen).unwrap().unwrap_err().0, code(ErrorKind::Fenced));
    site.use_it();
    link.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(site.sessions_of("hostile"), 0);
}

#[test]
fn a_replayed_challenge() {
    let site = Site::start(false);
    let request = door::request(None);
    let nonce = [2; 32];
    // The honest one's words from one connection, replayed in others: each connection has another
    // challenge.
    let (mut first, challenge) = door::challenged(site.address(), &request).unwrap();
    let right = door::proof_frame(&nonce, &door::proof(HONEST, "client", &challenge, &nonce, &request), "honest");
    for _ in 0..50 {
        let (mut other, another) = door::challenged(site.address(), &request).unwrap();
        assert_ne!(challenge, another);
        other.write_all(&right).unwrap();
        assert_eq!(turned_away(&mut other), Some(NOT_ADMITTED));
    }
    first.write_all(&right).unwrap();
    assert_eq!(read_frame(&mut first).unwrap().0, kind::PROVEN);
    assert_eq!(read_frame(&mut first).unwrap().0, kind::WELCOME);
    site.use_it();
}

#[test]
fn a_hello_that_asks_for_less() {
    // Where secrets are required, anything except a proof ends the connection.
    let site = Site::start(false);
    for frame in [
        wire::checked(kind::WELCOME, 0, &[0; 40]),
        wire::checked(kind::MESSAGE, 0, b"hello"),
        wire::checked(kind::PROVEN, 0, &[0; 32]),
        wire::hello(None),
    ] {
        let (mut stream, _) = door::challenged(site.address(), &door::request(None)).unwrap();
        stream.write_all(&frame).unwrap();
        assert_eq!(turned_away(&mut stream), None);
    }
    site.use_it();
    // Where TLS is required, nothing else is accepted, nor an older version.
    let site = Site::start(true);
    let mut plain = TcpStream::connect(site.address().trim_start_matches("tcp://")).unwrap();
    plain.write_all(&wire::hello(None)).unwrap();
    assert_eq!(turned_away(&mut plain), Some(7), "TLS is needed");
    let mut old = TcpStream::connect(site.address().trim_start_matches("tcp://")).unwrap();
    old.write_all(&client_hello_of_1_2()).unwrap();
    let mut answer = Vec::new();
    let _ = old.read_to_end(&mut answer);
    // An alert: fatal, protocol version.
    assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 70]);
    site.use_it();
}

/// A client's hello of TLS 1.2, which does not say that it also speaks 1.3.
fn client_hello_of_1_2() -> Vec<u8> {
    let extensions = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3];
    let mut hello = vec![3, 3];
    hello.extend([9; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0, 0, extensions.len() as u8]);
    hello.extend(extensions);
    let handshake = [&[1, 0, 0, hello.len() as u8][..], &hello].concat();
    [&[0x16, 3, 1, 0, handshake.len() as u8][..], &handshake].concat()
}

#[test]
fn certificates_that_do_not_hold() {
    let site = Site::start(true);
    let other = Authority::new();
    let wrong = [
        site.papers(site.authority.issue(&["hostile"], 3, 2021)),
        site.papers(site.authority.issue(&["hostile"], 9, 4000)),
        site.papers(other.issue(&["honest"], 4, 4000)),
        site.papers((site.authority.issue(&["honest"], 5, 4000).0, KeyPair::generate().unwrap().serialize_pem())),
    ];
    for (at, papers) in wrong.iter().enumerate() {
        // Expired, revoked, of another authority, and without its key.
        let came = door::tls_endpoint(site.address(), papers);
        assert!(came.is_err(), "{at}");
    }
    // Two names do not count as a name.
    let two = site.papers(site.authority.issue(&["hostile", "honest"], 6, 4000));
    let mut stream = door::tls(site.address(), &two).unwrap();
    stream.write_all(&wire::hello(None)).unwrap();
    assert_eq!(turned_away(&mut stream), Some(10));
    // A certificate that is revoked while its link is open: only that link ends.
    let papers = site.papers(site.authority.issue(&["hostile"], 7, 4000));
    let (mut control, endpoint) = door::tls_endpoint(site.address(), &papers).unwrap();
    let mut endpoint = RawEndpoint::over(endpoint);
    let opened = endpoint.call(&open_session("", "")).unwrap().unwrap();
    assert_eq!(site.sessions_of("hostile"), 1);
    site.folder.write("revoked.pem", &site.authority.revocations(&[9, 7]));
    site.admission.reload().unwrap();
    assert!(read_frame(&mut control).is_err());
    assert!(endpoint.call(&get_statistics(opened.session)).is_err());
    eventually("its session has ended", || site.sessions_of("hostile") == 0);
    assert!(door::tls_endpoint(site.address(), &papers).is_err());
    site.use_it();
}

#[test]
fn a_key_after_the_quota_was_cut() {
    let site = Site::start(false);
    let (_control, welcome) = door::prove(site.address(), HOSTILE, None).unwrap();
    let of = wire::welcomed(&(kind::WELCOME, 0, welcome)).unwrap();
    let mut endpoint = RawEndpoint::over(door::prove(site.address(), HOSTILE, Some(of)).unwrap().0);
    let opened = endpoint.call(&open_session("", "")).unwrap().unwrap();
    let session = opened.session;
    let lease = calls::lease_extents(session, 12, FLUSH);
    let granted = endpoint.call(&lease).unwrap().unwrap().extents;
    assert_eq!(granted.len(), 12);
    // The operator cuts the quota: the tenant gets no more, and keeps what it has until it releases it.
    site.node.configure(&tenants(0)).unwrap();
    let (refused, text) = endpoint.call(&lease).unwrap().unwrap_err();
    assert_eq!(refused, code(ErrorKind::Full));
    assert!(text.starts_with("tenant hostile has its most extents: 0; 12 more asked for"), "{text}");
    let extents: Vec<u32> = granted.iter().map(|granted| granted.extent).collect();
    endpoint.call(&calls::return_extents(session, &extents)).unwrap().unwrap();
    let all = || site.node.tenants().iter().map(|it| it.extents).sum::<u64>();
    eventually("all is clean", || all() == 0);
    // Now the same memory belongs to the honest one, who writes to all of it. The hostile one's keys open
    // nothing.
    let mut leased = Vec::new();
    while let Ok(more) = site.victim.lease(1, Purpose::Flush) {
        leased.extend(more);
    }
    let mut writer = site.victim.link().endpoint(EndpointOptions::default()).unwrap();
    for extent in &leased {
        writer.write(site.victim.resolve(*extent, 0).unwrap(), &[7; 64]).unwrap();
    }
    assert!(granted.iter().any(|old| leased.contains(&ExtentId(old.extent))), "the honest one has some of it");
    for old in &granted {
        let (mut late, _) = door::prove(site.address(), HOSTILE, Some(of)).unwrap();
        let target = wire::target(old.key, 0, 64);
        late.write_all(&wire::frame(kind::READ, 1, &target)).unwrap();
        assert_eq!(read_frame(&mut late).unwrap().0, kind::FAILED);
    }
    site.victim.return_extents(&leased).unwrap();
    site.victim.renew().unwrap();
}

#[test]
fn endpoints_of_all_identities_of_a_tenant() {
    let site = Site::start(false);
    site.node.configure(&tenants_with(Limits { endpoints: Some(5), ..Limits::default() })).unwrap();
    let links = [HOSTILE, ACCOMPLICE].map(|secret| RawLink::open_as(site.address(), secret).unwrap());
    let mut endpoints: Vec<_> = (0..5).map(|at: usize| links[at % 2].endpoint().unwrap()).collect();
    // The node has accepted both links once it answers them.
    for endpoint in &mut endpoints {
        assert!(endpoint.call(&get_statistics(9)).unwrap().is_err());
    }
    let of = |name: &str| site.node.tenants().into_iter().find(|it| it.name.as_str() == name).unwrap();
    assert_eq!((of("hostile").endpoints, of("hostile").most_endpoints), (5, 5));
    let busy = code(ErrorKind::Busy);
    for link in &links {
        let refused = link.endpoint().unwrap_err().to_string();
        let named = "tenant hostile has its most endpoints: 5; 1 more asked for";
        assert!(refused.starts_with(&format!("refused ({busy}): {named}")), "{refused}");
        assert!(refused.contains("raise \"endpoints\" of this tenant"), "{refused}");
    }
    assert_eq!((of("hostile").limited_calls, of("honest").limited_calls), (2, 0));
    site.use_it();
    // A tenant that gives up one endpoint has room for another, whichever identity it used.
    drop(endpoints.pop());
    eventually("there is room again", || links[1].endpoint().is_ok());
    site.use_it();
}

#[test]
fn half_a_handshake_on_two_thousand_links() {
    for tls in [true, false] {
        let site = Site::start(tls);
        let address = site.address().trim_start_matches("tcp://").to_owned();
        let half: &[u8] = if tls { &[0x16, 3, 1, 2, 0, 1, 0] } else { &wire::hello(None)[..20] };
        let mut strangers = std::collections::VecDeque::new();
        for number in 0..2000 {
            let mut socket = TcpStream::connect(&address).unwrap();
            // The node may have shown it out.
            let _ = socket.write_all(half);
            strangers.push_back(socket);
            // Connections that the node has given up are also closed here: a process has few
            // descriptors.
            if strangers.len() > 200 {
                strangers.pop_front();
            }
            if number % 250 == 249 {
                site.victim.renew().unwrap();
            }
        }
        site.use_it();
        assert!(site.node.is_running() && site.sessions_of("hostile") == 0);
    }
}

#[test]
fn a_flood_of_key_updates() {
    // TLS 1.3 has no renegotiation. What remains is that either side may ask for new keys.
    let site = Site::start(true);
    let papers = site.papers(site.authority.issue(&["hostile"], 8, 4000));
    let (_control, endpoint) = door::tls_endpoint(site.address(), &papers).unwrap();
    let mut endpoint = RawEndpoint::over(endpoint);
    let opened = endpoint.call(&open_session("", "")).unwrap().unwrap();
    let statistics = get_statistics(opened.session);
    // Some of these between calls are allowed.
    for _ in 0..100 {
        endpoint.stream.conn.refresh_traffic_keys().unwrap();
        endpoint.call(&statistics).unwrap().unwrap();
    }
    // A stream of only these soon ends the connection.
    let mut sent = 0;
    while sent < 10_000 && endpoint.stream.conn.refresh_traffic_keys().is_ok() && endpoint.stream.flush().is_ok() {
        sent += 1;
    }
    assert!(endpoint.call(&statistics).is_err(), "{sent} key updates");
    // A hello within the session is an attempt at the old renegotiation.
    let (mut control, endpoint) = door::tls_endpoint(site.address(), &papers).unwrap();
    let mut endpoint = RawEndpoint::over(endpoint);
    endpoint.stream.sock.write_all(&client_hello_of_1_2()).unwrap();
    assert!(read_frame(&mut endpoint.stream).is_err());
    // The link stands: its control connection sent nothing wrong.
    control.sock.set_nonblocking(true).unwrap();
    assert!(control.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    site.use_it();
}
