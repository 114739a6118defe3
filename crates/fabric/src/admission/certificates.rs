//! Certificates, keys and revocation lists from PEM files, and the TLS configurations made from them.
//!
//! TLS 1.3 only. No session is resumed and no early data is sent. Each connection shows its certificates anew, so no part of
//! a handshake can be replayed.

use super::files;
use super::identity::Name;
use crate::Error;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that a record carries. The C library copies 8 KiB and more with one string instruction, which some processors
/// carry out at a third of the speed of a loop, so records stay below that size. Records of half the size cost more because
/// there are more of them.
pub(crate) const RECORD_BYTES: usize = (8 << 10) - 64;
/// Bytes of a record's header, which rustls counts too.
const RECORD_HEADER_BYTES: usize = 5;

/// The algorithms, the cheapest first: all of them are strong.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..default_provider() })
}

/// A certificate with the chain to its authority, and its key.
pub(super) struct Pair {
    pub(super) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Pair {
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let chain = objects(&files::read(certificate, "certificate")?, certificate, "certificate")?;
        let text = files::read_secret(key, "key")?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            // The parser's message may quote the file.
            Error::Invalid(format!("there is no private key in PEM in {} (without a password)", key.display()))
        })?;
        Ok(Self { chain, key })
    }

    /// The same pair, for a second use.
    pub(super) fn again(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// The authorities to trust, and their lists of revoked certificates, with the files that these are from.
pub(super) struct Authority<'p> {
    path: &'p Path,
    roots: Arc<RootCertStore>,
    revoked: Option<(&'p Path, Vec<CertificateRevocationListDer<'static>>)>,
}

impl<'p> Authority<'p> {
    pub(super) fn read(path: &'p Path, revoked: Option<&'p Path>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in objects(&files::read(path, "authority")?, path, "certificate")? {
            roots.add(certificate).map_err(|e| unfit(path, e))?;
        }
        let revoked = revoked.map(|path| {
            let lists = objects(&files::read(path, "revocation list")?, path, "revocation list");
            lists.map(|lists| (path, lists))
        });
        Ok(Self { path, roots: Arc::new(roots), revoked: revoked.transpose()? })
    }

    /// What is wrong with the lists, if there are any, or with the authorities.
    fn unfit(&self, cause: impl Display) -> Error {
        unfit(self.revoked.as_ref().map_or(self.path, |(path, _)| *path), cause)
    }
}

fn objects<T: PemObject>(text: &str, path: &Path, what: &str) -> Result<Vec<T>, Error> {
    let objects: Vec<T> = T::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().map_err(|e| unfit(path, e))?;
    if objects.is_empty() {
        return Err(Error::Invalid(format!("there is no {what} in PEM in {}", path.display())));
    }
    Ok(objects)
}

fn unfit(path: &Path, cause: impl Display) -> Error {
    Error::Invalid(format!("{}: {cause}", path.display()))
}

/// How a node checks the certificates of clients. With `others`, clients may have none.
pub(super) fn client_verifier(authority: &Authority<'_>, others: bool) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authority.roots), provider());
    if let Some((_, lists)) = &authority.revoked {
        // Intermediate authorities need not have a list.
        builder = builder.with_crls(lists.iter().cloned()).only_check_end_entity_revocation();
    }
    if others {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|e| authority.unfit(e))
}

/// How a node speaks TLS.
pub(super) fn server(
    pair: Pair,
    whence: &Path,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| unfit(whence, e))?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(pair.chain, pair.key).map_err(|e| unfit(whence, e))?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_fragment_size = Some(RECORD_HEADER_BYTES + RECORD_BYTES);
    Ok(Arc::new(config))
}

/// How a client speaks TLS: whom it trusts, and the certificate that it shows.
pub(super) fn client(authority: &Authority<'_>, pair: Option<(Pair, &Path)>) -> Result<Arc<ClientConfig>, Error> {
    let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(&authority.roots), provider());
    if let Some((_, lists)) = &authority.revoked {
        // As for clients.
        builder = builder.with_crls(lists.iter().cloned()).only_check_end_entity_revocation();
    }
    let verifier = builder.build().map_err(|e| authority.unfit(e))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| unfit(authority.path, e))?
        .with_webpki_verifier(verifier);
    let mut config = match pair {
        Some((pair, whence)) => builder.with_client_auth_cert(pair.chain, pair.key).map_err(|e| unfit(whence, e))?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = rustls::client::Resumption::disabled();
    config.max_fragment_size = Some(RECORD_HEADER_BYTES + RECORD_BYTES);
    Ok(Arc::new(config))
}

/// The name that a client's certificate is for: the one DNS name among its subject's alternative names.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<Name> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let name = names.next()?.parse().ok()?;
    if names.next().is_some() { None } else { Some(name) }
}

/// The last second in which a chain that is valid now stays valid. The verifier names the expiry of the first
/// certificate that has expired at a given time, and each such answer brings that time nearer. `None` when the
/// chain never expires.
pub(super) fn expiry_of(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> Option<UnixTime> {
    let (first, rest) = chain.split_first()?;
    let mut expiry = None;
    let mut at = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    for _ in chain {
        match verifier.verify_client_cert(first, rest, at) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                (at, expiry) = (not_after, Some(not_after));
            }
            _ => break,
        }
    }
    expiry
}
