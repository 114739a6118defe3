//! Who may connect to a node, and how both sides prove who they are.
//!
//! A node that several machines share admits nobody without proof. Over TCP a client proves itself with a certificate, in
//! the handshake of TLS 1.3, or with a shared secret (`secret`), within TLS or without; over a Unix socket the operating
//! system says which user's process it is. In the other direction, a node proves itself with its certificate, or proves that
//! it has the same secret. The proven [`Identity`] of a link reaches the layers above through
//! [`Peer::origin`](crate::Peer::origin).
//!
//! | the node has | clients show | the identity |
//! |---|---|---|
//! | an authority of clients | a certificate that it signed | `certificate:<name>` |
//! | secrets | that they have one of them | `secret:<name>` |
//! | both | a certificate, or else that they have a secret | either |
//! | neither | nothing | `anonymous` |
//!
//! Nothing is negotiated. A client that was given an authority speaks only TLS. A client that has a secret insists that the
//! node proves that it has the secret. A node that has a certificate serves nobody without TLS.
//!
//! A node reads from files what it asks for, and can read them again while it runs ([`Admission::reload`]). Links whose
//! proof would no longer be accepted end then.

mod certificates;
mod files;
mod identity;
mod secret;
mod tally;
mod users;

pub use files::is_open_to_all;
pub use identity::{Identity, MAX_NAME_BYTES, Name, Origin, Source};
pub use secret::{MAX_SECRET_CHARACTERS, MIN_SECRET_CHARACTERS, Secret, Secrets};
pub use tally::AdmissionCounts;
pub use users::{Users, is_own_user};

pub(crate) use secret::{Bytes32, PROOF_BYTES, REQUEST_BYTES, Side, Statement, channel_of, nonce};
pub(crate) use tally::{Tally, Turned};

/// Connections that every user or identity can have when a node is short of them. Once all together have as many connections
/// as one may have, the rest is for those who have fewer than this. So a few with very many connections lock out nobody
/// else.
pub(crate) const FEW_CONNECTIONS: usize = 16;

use crate::{Denial, Error};
pub(crate) use certificates::RECORD_BYTES;
use certificates::{Authority, Pair};
use forebay_env::sync::lock;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Where a node finds its own proof, and what it asks of clients.
#[derive(Debug, Clone, Default)]
pub struct AdmissionOptions {
    /// A PEM file: the node's certificate, and those that lead from it to its authority. With it the node speaks only TLS.
    pub certificate: Option<PathBuf>,
    /// A PEM file: the certificate's private key. Not everybody may open it.
    pub key: Option<PathBuf>,
    /// A PEM file: authorities whose certificates clients may show. A client's certificate has one DNS name, which
    /// becomes its identity.
    pub client_authority: Option<PathBuf>,
    /// A PEM file: lists of clients' certificates that were revoked.
    pub client_revocations: Option<PathBuf>,
    /// A file of secrets that clients may have ([`Secrets::parse`]). Not everybody may open it.
    pub secret_file: Option<PathBuf>,
    /// More secrets, which are not read again.
    pub secrets: Secrets,
}

/// What a node asks of those who connect. Shared by all listeners and by the code that reloads it.
#[derive(Debug)]
pub struct Admission {
    options: AdmissionOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: Arc<Rules>,
    watchers: Vec<Weak<dyn Watcher>>,
}

/// Is told of new rules.
pub(crate) trait Watcher: Send + Sync + std::fmt::Debug {
    /// Tells that there are new rules.
    fn notify(&self);
}

impl Admission {
    /// Reads what the options name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that cannot be read or does not hold what it should, and for options that do
    /// not go together.
    pub fn load(options: AdmissionOptions) -> Result<Self, Error> {
        let rules = Arc::new(Rules::load(&options)?);
        Ok(Self { options, state: Mutex::new(State { rules, watchers: Vec::new() }) })
    }

    /// Reads all files again. From then on connections are judged by the new contents, and links that would no
    /// longer be admitted end.
    ///
    /// # Errors
    /// As [`Admission::load`]; then everything stays as it was.
    pub fn reload(&self) -> Result<(), Error> {
        let rules = Arc::new(Rules::load(&self.options)?);
        let watchers: Vec<_> = {
            let mut state = lock(&self.state);
            state.rules = rules;
            state.watchers.retain(|watcher| watcher.strong_count() > 0);
            state.watchers.iter().filter_map(Weak::upgrade).collect()
        };
        watchers.iter().for_each(|watcher| watcher.notify());
        Ok(())
    }

    /// Whether clients must prove themselves.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.rules().asks()
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.rules().tls.is_some()
    }

    /// The TLS configuration for new connections, for servers of protocols other than the fabric's; `None`
    /// without certificates. Such a server must itself ask for what the handshake does not prove, such as a
    /// secret.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.rules().tls.as_ref().map(|(config, _)| Arc::clone(config))
    }

    /// The TLS configuration for new connections to other servers, whose certificates are from the authorities of
    /// clients and not revoked; the certificate shown to them is this one's own. `None` without certificates or such
    /// an authority.
    #[must_use]
    pub fn as_client(&self) -> Option<Arc<ClientConfig>> {
        self.rules().as_client.clone()
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.state).rules)
    }

    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        lock(&self.state).watchers.push(watcher);
    }
}

/// What a node asks for at a given time.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// How it speaks TLS, and the name of such a channel.
    pub(crate) tls: Option<(Arc<ServerConfig>, Bytes32)>,
    /// How it speaks TLS to servers whose certificates are from the authorities of clients: with its own certificate.
    as_client: Option<Arc<ClientConfig>>,
    certificates: Option<Arc<dyn ClientCertVerifier>>,
    secrets: Secrets,
    /// Stands in for a secret that does not exist.
    decoy: Option<Secret>,
}

/// The proof for which a link was admitted, to be judged again under other rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Nothing,
    Certificate {
        chain: Arc<[CertificateDer<'static>]>,
        /// The last second in which the chain is valid, if there is one.
        expiry: Option<UnixTime>,
    },
    Secret(Secret),
}

impl Standing {
    /// What the client is told when the proof is no longer accepted.
    pub(crate) fn denial(&self) -> Denial {
        match self {
            Self::Certificate { .. } => Denial::Certificate("it is not taken any more".into()),
            Self::Nothing | Self::Secret(_) => Denial::Secret,
        }
    }

    /// The last second in which the proof is valid, if there is one.
    pub(crate) const fn expiry(&self) -> Option<UnixTime> {
        match self {
            Self::Certificate { expiry, .. } => *expiry,
            Self::Nothing | Self::Secret(_) => None,
        }
    }
}

impl Rules {
    fn load(options: &AdmissionOptions) -> Result<Self, Error> {
        let AdmissionOptions { certificate, key, client_authority, client_revocations, secret_file, secrets } = options;
        let wrong = |text: &str| Err(Error::Invalid(text.into()));
        let pair = together(certificate.as_deref(), key.as_deref())?;
        if client_authority.is_some() && pair.is_none() {
            return wrong("clients show certificates within TLS only: give the node a certificate and a key as well");
        }
        if client_revocations.is_some() && client_authority.is_none() {
            return wrong("a revocation list is of use only with an authority of clients");
        }
        let secrets = match secret_file {
            Some(path) => Secrets::read(path)?.and(secrets)?,
            None => secrets.clone(),
        };
        let authority = client_authority.as_deref().map(|path| Authority::read(path, client_revocations.as_deref()));
        let authority = authority.transpose()?;
        let verifier = |authority| certificates::client_verifier(authority, !secrets.is_empty());
        let certificates = authority.as_ref().map(verifier).transpose()?;
        let pair = pair.map(|(certificate, key)| Pair::read(certificate, key).map(|pair| (pair, certificate)));
        let pair = pair.transpose()?;
        let as_client = authority.as_ref().zip(pair.as_ref()).map(|(authority, (pair, certificate))| {
            certificates::client(authority, Some((pair.again(), *certificate)))
        });
        let as_client = as_client.transpose()?;
        let tls = pair.map(|(pair, certificate)| {
            let channel = pair.chain.first().map_or([0; PROOF_BYTES], |first| channel_of(first));
            certificates::server(pair, certificate, certificates.clone()).map(|config| (config, channel))
        });
        Ok(Self { tls: tls.transpose()?, as_client, certificates, secrets, decoy: Some(Secret::decoy()?) })
    }

    /// Whether clients must prove themselves.
    pub(crate) fn asks(&self) -> bool {
        self.certificates.is_some() || !self.secrets.is_empty()
    }

    /// The secret of this name, if `proof` shows that the client has it. The check costs the same if no
    /// such secret exists.
    pub(crate) fn secret_of(&self, name: &str, statement: &Statement, proof: &Bytes32) -> Option<&Secret> {
        let found = self.secrets.get(name).or(self.decoy.as_ref())?;
        found.is_proven(Side::Client, statement, proof).then_some(found)
    }

    /// The identity in the certificates that a client showed and TLS has checked.
    pub(crate) fn identity_of(&self, chain: &[CertificateDer<'static>]) -> Option<(Identity, Standing)> {
        let name = certificates::name_of(chain.first()?)?;
        let expiry = self.certificates.as_ref().and_then(|verifier| certificates::expiry_of(&**verifier, chain));
        Some((Identity::Certificate(name), Standing::Certificate { chain: chain.into(), expiry }))
    }

    /// Whether a link would still be admitted.
    pub(crate) fn still_admit(&self, standing: &Standing) -> bool {
        match standing {
            Standing::Nothing => !self.asks(),
            Standing::Secret(secret) => self.secrets.get(secret.name().as_str()) == Some(secret),
            Standing::Certificate { chain, .. } => match (&self.certificates, chain.split_first()) {
                (Some(verifier), Some((first, rest))) => {
                    verifier.verify_client_cert(first, rest, UnixTime::now()).is_ok()
                }
                _ => false,
            },
        }
    }
}

/// Both or neither.
fn together<'a>(certificate: Option<&'a Path>, key: Option<&'a Path>) -> Result<Option<(&'a Path, &'a Path)>, Error> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::Invalid("a certificate needs the file of its key as well".into())),
        (None, Some(_)) => Err(Error::Invalid("a key needs the file of its certificate as well".into())),
    }
}

/// Where a client finds its own proof, and whom it trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessOptions {
    /// A PEM file: authorities of nodes. With it the client speaks only TLS.
    pub authority: Option<PathBuf>,
    /// The name that the node's certificate must be for, where it is not the host of the node's address.
    pub node_name: Option<String>,
    /// A PEM file: the client's certificate, and those that lead from it to its authority.
    pub certificate: Option<PathBuf>,
    /// A PEM file: the certificate's private key. Not everybody may open it.
    pub key: Option<PathBuf>,
    /// A file with one secret ([`Secrets::parse`]). Not everybody may open it.
    pub secret_file: Option<PathBuf>,
    /// The secret, where it is in no file.
    pub secret: Option<Secret>,
}

/// How a client proves itself, and what it asks of nodes.
#[derive(Debug, Clone, Default)]
pub struct Access {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) node_name: Option<ServerName<'static>>,
    pub(crate) secret: Option<Secret>,
}

impl Access {
    /// Reads what the options name.
    ///
    /// # Errors
    /// As [`Admission::load`].
    pub fn load(options: &AccessOptions) -> Result<Self, Error> {
        let AccessOptions { authority, node_name, certificate, key, secret_file, secret } = options;
        let wrong = |text: &str| Err(Error::Invalid(text.into()));
        let pair = together(certificate.as_deref(), key.as_deref())?;
        if authority.is_none() && (pair.is_some() || node_name.is_some()) {
            return wrong(
                "certificates are of use within TLS only: give the authority of the node's certificate as well",
            );
        }
        let secret = match (secret_file, secret) {
            (Some(_), Some(_)) => return wrong("a secret and a file of secrets: give one of them"),
            (Some(path), None) => match Secrets::read(path)?.only() {
                Some(secret) => Some(secret.clone()),
                None => return wrong("a client has one secret, and there are several in its file"),
            },
            (None, secret) => secret.clone(),
        };
        if secret.is_some() && pair.is_some() {
            return wrong("a certificate and a secret: a client proves itself with one of them");
        }
        let pair = pair.map(|(certificate, key)| Pair::read(certificate, key).map(|pair| (pair, certificate)));
        let pair = pair.transpose()?;
        let authority = authority.as_deref().map(|path| Authority::read(path, None)).transpose()?;
        let tls = authority.as_ref().map(|authority| certificates::client(authority, pair)).transpose()?;
        let node_name = node_name.as_deref().map(server_name).transpose()?;
        Ok(Self { tls, node_name, secret })
    }

    /// The name that the certificate of the node at `host` must be for.
    pub(crate) fn name_of(&self, host: &str) -> Result<ServerName<'static>, Error> {
        match &self.node_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host),
        }
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, Error> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        Error::Invalid(format!("{text:?} is neither a DNS name nor an IP address, so no certificate is for it"))
    })
}
