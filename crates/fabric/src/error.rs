//! Errors of the fabric.

use forebay_base::ErrorKind;
use thiserror::Error;

/// Why an operation failed. Cheap to clone: it is handed to every operation that it flushes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is forged, stale, revoked, or lacks the right. The target does not say which.
    #[error("the target refused the access key")]
    AccessDenied,
    /// The operation leaves the granted range.
    #[error("{length} bytes at offset {offset} leave the granted range")]
    OutOfBounds {
        /// Offset in the granted range, bytes.
        offset: u64,
        /// Length of the operation, bytes.
        length: u64,
    },
    /// An atomic operation's offset is not a multiple of 8.
    #[error("offset {offset} is not a multiple of 8, as an atomic operation needs")]
    Misaligned {
        /// Offset in the granted range, bytes.
        offset: u64,
    },
    /// The operation is larger than the back end can do at once.
    #[error("{length} bytes are more than the {limit} that this back end does at once")]
    TooLarge {
        /// Length of the operation, bytes.
        length: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// The node is gone, or cannot be reached.
    #[error("the connection to {node} is lost: {cause}")]
    PeerLost {
        /// The node's address or identity.
        node: String,
        /// What was seen.
        cause: String,
    },
    /// An earlier operation of the same endpoint failed.
    #[error("flushed, because an earlier operation of this endpoint failed")]
    Flushed,
    /// The endpoint is broken: open a new one.
    #[error("the endpoint is broken by an earlier failure: {0}")]
    Broken(Box<Error>),
    /// The deadline passed; the endpoint is broken.
    #[error("no completion within {0:?}")]
    TimedOut(std::time::Duration),
    /// The peer sent what the protocol does not allow.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// The peer speaks another version of the protocol.
    #[error(
        "{peer} speaks version {found} of the protocol, and this build version {known}: both sides need the same build"
    )]
    OtherVersion {
        /// Who.
        peer: String,
        /// The peer's version.
        found: u64,
        /// This build's.
        known: u64,
    },
    /// One side does not accept the other's identity, or has no room for it. A retry cannot succeed until
    /// something changes.
    #[error("no link to {node}: {cause}")]
    NotAdmitted {
        /// The node's address.
        node: String,
        /// Why.
        cause: Denial,
    },
    /// The address or an argument is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The other side answered with an error.
    #[error("{message}")]
    Remote {
        /// What kind of error it was.
        kind: ErrorKind,
        /// Its text.
        message: String,
    },
    /// The operating system refused.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The operating system's answer.
        cause: String,
    },
    /// The operating system refused a file, a folder or a socket.
    #[error("{what} {path}: {cause}")]
    File {
        /// What kind of error that is.
        kind: ErrorKind,
        /// What was tried.
        what: &'static str,
        /// Its path.
        path: String,
        /// The operating system's answer.
        cause: String,
    },
    /// The back end cannot do it.
    #[error("not supported by this back end: {0}")]
    Unsupported(&'static str),
}

/// Why a node that is reachable gives no link.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Denial {
    /// The node refuses the proof, and does not say what is wrong with it.
    #[error("the node does not take this process's name and secret")]
    Secret,
    /// The node asks for the proof of a secret.
    #[error("the node asks for a secret, and this process has none (--secret-file)")]
    SecretMissing,
    /// The node asks for no proof, or cannot prove that it has the secret itself.
    #[error("the node does not prove that it has this process's secret as well: it may be another node")]
    NodeSecret,
    /// The node serves TLS only.
    #[error("the node serves TLS only: say which authority signed its certificate (--tls-authority)")]
    Plain,
    /// The node does not serve TLS.
    #[error("what answers there does not serve TLS, which --tls-authority asks for")]
    Tls,
    /// The node's certificate is not one that this process trusts.
    #[error("the node's certificate is not trusted: {0}")]
    NodeCertificate(String),
    /// The node asks for a certificate.
    #[error("the node asks for a certificate, and this process has none (--tls-certificate, --tls-key)")]
    CertificateMissing,
    /// The node refuses this process's certificate.
    #[error("the node does not take this process's certificate: {0}")]
    Certificate(String),
    /// The node has too many connections, in all or of this identity.
    #[error("the node has no room for another connection")]
    Crowded,
}

impl Error {
    /// A link that `node` refused, or whose node is not trusted.
    pub fn denied(node: impl std::fmt::Display, cause: Denial) -> Self {
        Self::NotAdmitted { node: node.to_string(), cause }
    }

    /// An operating system error while trying `what`.
    pub fn io(what: &'static str, cause: impl std::fmt::Display) -> Self {
        Self::Io { what, cause: cause.to_string() }
    }

    /// An operating system error while trying `what` with the file, folder or socket at `path`.
    pub fn file(what: &'static str, path: &std::path::Path, cause: impl Into<std::io::Error>) -> Self {
        let cause = cause.into();
        let kind = ErrorKind::of_file(cause.kind());
        Self::File { kind, what, path: path.display().to_string(), cause: cause.to_string() }
    }

    /// A lost node.
    pub fn lost(node: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        Self::PeerLost { node: node.to_string(), cause: cause.to_string() }
    }

    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAdmitted { cause: Denial::Crowded, .. } => ErrorKind::Busy,
            Self::AccessDenied | Self::NotAdmitted { .. } => ErrorKind::AccessDenied,
            Self::OutOfBounds { .. } | Self::Misaligned { .. } | Self::TooLarge { .. } | Self::Invalid(_) => {
                ErrorKind::Invalid
            }
            Self::PeerLost { .. } | Self::Flushed | Self::Protocol(_) => ErrorKind::Unavailable,
            Self::Broken(cause) => cause.kind(),
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Remote { kind, .. } | Self::File { kind, .. } => *kind,
            Self::Io { .. } => ErrorKind::Io,
            Self::OtherVersion { .. } | Self::Unsupported(_) => ErrorKind::Unsupported,
        }
    }
}
