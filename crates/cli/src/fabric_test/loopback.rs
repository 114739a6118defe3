//! Memory nodes of this process that are reached over TCP on loopback: one in plain, and one within TLS, with certificates
//! that are made for the run.

use super::target::BYTES;
use crate::failure::{Failure, Stage};
use crate::nodes::Reached;
use forebay::admission::{AccessOptions, Admission, AdmissionOptions};
use forebay::{ListenOptions, MemoryNode, MemoryNodeOptions, NodeAddress};
use forebay_env::Random;
use forebay_fabric::admission::Access;
use forebay_fabric::tcp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fmt::Display;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Starts a node and opens a link to it, in plain.
///
/// # Errors
/// When the node cannot be started or reached.
pub fn plain() -> Result<Reached, Failure> {
    reach(None, Access::default())
}

/// The same within TLS: node and client show each other certificates.
///
/// # Errors
/// When the node cannot be started or reached.
pub fn within_tls() -> Result<Reached, Failure> {
    let folder = Folder::new()?;
    let (admission, access) = folder.certified()?;
    reach(Some(Arc::new(admission)), access)
}

fn reach(admission: Option<Arc<Admission>>, access: Access) -> Result<Reached, Failure> {
    let failed = |error: forebay::Error| Failure::new(error.kind(), Stage::Start, error);
    let address: NodeAddress = "tcp://127.0.0.1:0".parse().map_err(unmade)?;
    let listener =
        forebay::listen(&address, ListenOptions { admission, ..ListenOptions::default() }).map_err(failed)?;
    let node = MemoryNode::start(listener, MemoryNodeOptions::with_memory(4 * BYTES))
        .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let link = tcp::connect(node.address(), tcp::Options { access, ..tcp::Options::default() });
    Ok(Reached { link: link.map_err(Failure::fabric(Stage::Start))?, node: Some(node) })
}

fn unmade(cause: impl Display) -> Failure {
    Failure::new(forebay_base::ErrorKind::Io, Stage::Start, format_args!("making certificates: {cause}"))
}

/// A folder of this user's own, for as long as certificates are read from it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let name = Random::secret().map_err(unmade)?;
        let path = std::env::temp_dir().join(format!("forebay-fabric-test-{name:032x}"));
        DirBuilder::new().mode(0o700).create(&path).map_err(unmade)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(unmade)?;
        file.write_all(text.as_bytes()).map_err(unmade)?;
        Ok(path)
    }

    /// What a node and a client need to trust each other, and nobody else.
    fn certified(&self) -> Result<(Admission, Access), Failure> {
        let mut params = CertificateParams::new(Vec::new()).map_err(unmade)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(unmade)?;
        let authority = self.write("authority.pem", &params.self_signed(&key).map_err(unmade)?.pem())?;
        let issuer = Issuer::new(params, key);
        let issue = |name: &str| -> Result<(PathBuf, PathBuf), Failure> {
            let key = KeyPair::generate().map_err(unmade)?;
            let params = CertificateParams::new(vec![name.to_owned()]).map_err(unmade)?;
            let certificate = params.signed_by(&key, &issuer).map_err(unmade)?;
            let key = self.write(&format!("{name}.key"), &key.serialize_pem())?;
            Ok((self.write(&format!("{name}.pem"), &certificate.pem())?, key))
        };
        let ((node, node_key), (client, client_key)) = (issue("127.0.0.1")?, issue("fabric-test")?);
        let admission = Admission::load(AdmissionOptions {
            certificate: Some(node),
            key: Some(node_key),
            client_authority: Some(authority.clone()),
            ..AdmissionOptions::default()
        });
        let access = Access::load(&AccessOptions {
            authority: Some(authority),
            certificate: Some(client),
            key: Some(client_key),
            ..AccessOptions::default()
        });
        Ok((admission.map_err(unmade)?, access.map_err(unmade)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = ?self.0, %error, "the folder of certificates stays");
        }
    }
}
