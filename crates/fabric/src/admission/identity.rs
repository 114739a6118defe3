//! The identity at the other end of a link, and its place.

use crate::Error;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name, bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name that an administrator gave: 1 to 64 letters, digits, dots, dashes and underscores of ASCII. It can
/// go into a log, a metric or a file name unchanged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_fit) {
            return Err(Error::Invalid(format!(
                "{text:?} is no name: use 1 to {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores"
            )));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The identity that a link has proven, before its node heard of the link.
///
/// As text it is `anonymous`, `process`, `uid:<number>`, `certificate:<name>` or `secret:<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Identity {
    /// Nobody asked: the node admits everyone who reaches it.
    Anonymous,
    /// The node's own process.
    Process,
    /// A process of this user of the same machine, according to the operating system.
    User {
        /// The user.
        uid: u32,
        /// The group that the process runs as.
        gid: u32,
    },
    /// The holder of the key of a certificate for this name.
    Certificate(Name),
    /// The holder of the secret of this name.
    Secret(Name),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Process => f.write_str("process"),
            Self::User { uid, .. } => write!(f, "uid:{uid}"),
            Self::Certificate(name) => write!(f, "certificate:{name}"),
            Self::Secret(name) => write!(f, "secret:{name}"),
        }
    }
}

/// Where a link comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// This process.
    Here,
    /// A process of this machine, by its number.
    Process(i32),
    /// An address of the network.
    Network(SocketAddr),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this process"),
            Self::Process(number) => write!(f, "process {number}"),
            Self::Network(address) => write!(f, "{address}"),
        }
    }
}

/// The identity at the other end of a link, and its place. It does not change while the link
/// stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The identity that it has proven.
    pub identity: Identity,
    /// Where it comes from.
    pub source: Source,
}

impl Origin {
    /// A link within the process.
    #[must_use]
    pub const fn here() -> Self {
        Self { identity: Identity::Process, source: Source::Here }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_logs() {
        for name in ["a", "db-1.example_2", &"x".repeat(MAX_NAME_BYTES)] {
            assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
        }
        for wrong in ["", "a b", "line\nbreak", "\u{1b}[31m", "naïve", "*", &"x".repeat(MAX_NAME_BYTES + 1)] {
            let said = wrong.parse::<Name>().unwrap_err().to_string();
            assert!(said.contains("letters") && !said.contains(['\n', '\u{1b}']), "{said}");
        }
    }

    #[test]
    fn identities_as_text() {
        let name: Name = "alice".parse().unwrap();
        let identities = [
            Identity::Anonymous,
            Identity::Process,
            Identity::User { uid: 7, gid: 8 },
            Identity::Certificate(name.clone()),
            Identity::Secret(name),
        ];
        let text = identities.map(|identity| identity.to_string());
        assert_eq!(text, ["anonymous", "process", "uid:7", "certificate:alice", "secret:alice"]);
    }
}
