//! Latencies of reads and writes over TCP on loopback, plain and within TLS by turns in one run:
//! `tls_rate [bytes] [operations in flight]`.

use forebay_env::{Clock, SystemClock};
use forebay_fabric::admission::{Access, AccessOptions, Admission, AdmissionOptions};
use forebay_fabric::tcp::{self, Options, TcpListener};
use forebay_fabric::{AccessKey, Endpoint, EndpointOptions, Error, Event, Link, Listener, Outcome, Region, Rights};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const REGION_BYTES: usize = 16 << 20;
/// Short rounds by turns: others use the machine as well.
const ROUNDS: usize = 40;
const BATCHES: usize = 100;

/// A node in this process, and an endpoint to it.
struct Pair {
    _node: TcpListener,
    _link: Arc<dyn Link>,
    _region: Region,
    endpoint: Endpoint,
    key: AccessKey,
}

fn main() -> Result<(), Error> {
    let argument = |place: usize, usual: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(usual).max(1)
    };
    let (bytes, depth) = (argument(1, 64 << 10).min(REGION_BYTES), argument(2, 1));
    let folder = std::env::temp_dir().join(format!("forebay-tls-rate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(invalid)?;
    let made = certified(&folder);
    let removed = std::fs::remove_dir_all(&folder).map_err(invalid);
    let (admission, access) = made?;
    removed?;
    let mut plain = pair(Options::default(), Options::default())?;
    let admission = Options { admission: Some(Arc::new(admission)), ..Options::default() };
    let mut encrypted = pair(admission, Options { access, ..Options::default() })?;
    println!("{bytes} bytes, {depth} in flight, median of the rounds' medians, us:");
    for (name, reads) in [("read", true), ("write", false)] {
        let mut medians = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (pair, medians) in [&mut plain, &mut encrypted].into_iter().zip(&mut medians) {
                medians.push(round(pair, bytes, depth, reads)?);
            }
        }
        let [plain, encrypted] = medians.map(|mut medians| median(&mut medians) as f64 / 1e3);
        println!("{name:5}  plain {plain:8.1}  TLS {encrypted:8.1}  plain by TLS {:.2}", plain / encrypted);
    }
    Ok(())
}

fn invalid(cause: impl std::fmt::Display) -> Error {
    Error::Invalid(cause.to_string())
}

/// What a node and a client need to trust each other.
fn certified(folder: &Path) -> Result<(Admission, Access), Error> {
    let write = |name: &str, text: &str| -> Result<PathBuf, Error> {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(invalid)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(invalid)?;
        Ok(path)
    };
    let mut params = CertificateParams::new(Vec::new()).map_err(invalid)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(invalid)?;
    let authority = write("authority.pem", &params.self_signed(&key).map_err(invalid)?.pem())?;
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| -> Result<(PathBuf, PathBuf), Error> {
        let key = KeyPair::generate().map_err(invalid)?;
        let params = CertificateParams::new(vec![name.to_owned()]).map_err(invalid)?;
        let certificate = params.signed_by(&key, &issuer).map_err(invalid)?;
        Ok((write(&format!("{name}.pem"), &certificate.pem())?, write(&format!("{name}.key"), &key.serialize_pem())?))
    };
    let ((node, node_key), (client, client_key)) = (issue("127.0.0.1")?, issue("client")?);
    let admission = Admission::load(AdmissionOptions {
        certificate: Some(node),
        key: Some(node_key),
        client_authority: Some(authority.clone()),
        ..AdmissionOptions::default()
    })?;
    let access = Access::load(&AccessOptions {
        authority: Some(authority),
        certificate: Some(client),
        key: Some(client_key),
        ..AccessOptions::default()
    })?;
    Ok((admission, access))
}

fn pair(node: Options, client: Options) -> Result<Pair, Error> {
    let mut node = tcp::listen("127.0.0.1:0".parse().map_err(invalid)?, 1, node)?;
    let link = tcp::connect(&node.address(), client)?;
    let Some(Event::Joined(peer)) = node.next(Duration::from_secs(5))? else {
        return Err(Error::Invalid("no link".into()));
    };
    let region = node.allocate(REGION_BYTES)?;
    region.commit()?;
    let key = peer.grant(&region, 0, REGION_BYTES as u64, Rights::ALL)?;
    let endpoint = link.endpoint(EndpointOptions::default())?;
    Ok(Pair { _node: node, _link: link, _region: region, endpoint, key })
}

/// The median time of a batch, nanoseconds.
fn round(pair: &mut Pair, bytes: usize, depth: usize, reads: bool) -> Result<u64, Error> {
    let clock = SystemClock::new();
    let places = (REGION_BYTES / bytes) as u64;
    let mut times = Vec::with_capacity(BATCHES);
    for batch in 0..BATCHES {
        let start = clock.now();
        for place in 0..depth {
            let at = pair.key.at((batch * depth + place) as u64 % places * bytes as u64);
            let slot = pair.endpoint.slot(bytes)?;
            if reads { pair.endpoint.post_read(at, slot) } else { pair.endpoint.post_write(at, slot) }?;
        }
        pair.endpoint.wait_all(|_, outcome| match outcome {
            Outcome::Read(slot) => Some(slot),
            Outcome::Done(slot) => slot,
            Outcome::Word(_) => None,
        })?;
        times.push(clock.now() - start);
    }
    Ok(median(&mut times))
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
