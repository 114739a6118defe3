//! A client at a node's door, by hand: proofs of secrets as `docs/formats/tcp-frame.md` shows them, and TLS by a library
//! that is made to do what clients do not.

use crate::socket::{connect, read_frame, wrong};
use crate::wire::{self, CHECKSUM_BYTES, kind};
use ring::hmac;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Error, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// The request that a client sends before its proof: a link, or an endpoint of a link.
#[must_use]
pub fn request(endpoint_of: Option<(u64, u128)>) -> Vec<u8> {
    wire::hello(endpoint_of).split_off(wire::HEADER_BYTES + CHECKSUM_BYTES)
}

/// The proof by `side` that it has the secret `value` with this `name`.
#[must_use]
pub fn proof((name, value): (&str, &str), side: &str, challenge: &[u8], nonce: &[u8; 32], request: &[u8]) -> Vec<u8> {
    let mut statement = format!("forebay admission 1: {side}").into_bytes();
    statement.resize(32, 0);
    let channel = [0; 32];
    for part in [challenge, nonce, &channel, request, name.as_bytes()] {
        statement.extend_from_slice(part);
    }
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, value.as_bytes()), &statement).as_ref().to_vec()
}

/// The frame of a proof.
#[must_use]
pub fn proof_frame(nonce: &[u8; 32], proof: &[u8], name: &str) -> Vec<u8> {
    wire::checked(kind::PROOF, 0, &[&nonce[..], proof, name.as_bytes()].concat())
}

/// Connects, says what it wants, and returns the challenge.
///
/// # Errors
/// As for sockets; when there is no challenge.
pub fn challenged(address: &str, request: &[u8]) -> Result<(TcpStream, Vec<u8>)> {
    let mut stream = connect(address)?;
    stream.write_all(&wire::checked(kind::HELLO, 0, request))?;
    match read_frame(&mut stream)? {
        (kind::CHALLENGE, _, body) => Ok((stream, body.get(CHECKSUM_BYTES..).unwrap_or_default().to_vec())),
        _ => Err(wrong("no challenge")),
    }
}

/// Connects with a secret. Returns the connection, and the welcome's body.
///
/// # Errors
/// As for sockets; when the node does not admit it.
pub fn prove(address: &str, secret: (&str, &str), endpoint_of: Option<(u64, u128)>) -> Result<(TcpStream, Vec<u8>)> {
    let (request, nonce) = (request(endpoint_of), [5; 32]);
    let (mut stream, challenge) = challenged(address, &request)?;
    let own = proof(secret, "client", &challenge, &nonce, &request);
    stream.write_all(&proof_frame(&nonce, &own, secret.0))?;
    match read_frame(&mut stream)? {
        (kind::PROVEN, _, body)
            if body.get(CHECKSUM_BYTES..) == Some(&proof(secret, "node", &challenge, &nonce, &request)) => {}
        _ => return Err(wrong("the node proves nothing")),
    }
    match read_frame(&mut stream)? {
        (kind::WELCOME, _, body) => Ok((stream, body)),
        (kind::REFUSED, _, body) => match body.get(CHECKSUM_BYTES..) {
            Some([code, text @ ..]) => {
                Err(Error::other(format!("refused ({code}): {}", String::from_utf8_lossy(text))))
            }
            _ => Err(wrong("a refusal that cannot be read")),
        },
        _ => Err(wrong("no welcome")),
    }
}

/// PEM of a client's certificate and key, and of the authority that it trusts.
#[derive(Debug, Clone)]
pub struct Papers {
    /// Certificate.
    pub certificate: String,
    /// Key.
    pub key: String,
    /// Authority of the node.
    pub authority: String,
}

/// A client's session of TLS 1.3 on a socket.
pub type Session = StreamOwned<ClientConnection, TcpStream>;

/// Begins TLS with a node on loopback. Nothing is sent before something is written.
///
/// # Errors
/// As for sockets; when the papers are invalid.
pub fn tls(address: &str, papers: &Papers) -> Result<Session> {
    let pem = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).map_err(Error::other);
    let mut store = RootCertStore::empty();
    store.add(pem(&papers.authority)?).map_err(Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).map_err(Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::other)?
        .with_root_certificates(store)
        .with_client_auth_cert(vec![pem(&papers.certificate)?], key)
        .map_err(Error::other)?;
    let name = ServerName::try_from("localhost").map_err(Error::other)?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(Error::other)?;
    Ok(StreamOwned::new(session, connect(address)?))
}

/// Opens a link and an endpoint of it within TLS.
///
/// # Errors
/// As for sockets; when the node does not admit it.
pub fn tls_endpoint(address: &str, papers: &Papers) -> Result<(Session, Session)> {
    let mut control = tls(address, papers)?;
    control.write_all(&wire::hello(None))?;
    let link = wire::welcomed(&read_frame(&mut control)?).ok_or_else(|| wrong("no welcome"))?;
    let mut endpoint = tls(address, papers)?;
    endpoint.write_all(&wire::hello(Some(link)))?;
    match read_frame(&mut endpoint)?.0 {
        kind::WELCOME => Ok((control, endpoint)),
        _ => Err(wrong("no welcome")),
    }
}
