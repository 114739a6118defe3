//! Tenants, as the operator configures them: who may use a node, and how much of it.
//!
//! A link's [`Identity`] determines its tenant. An identity that a [`TenantOptions`] lists belongs to that tenant. Any other
//! identity is a tenant by itself, with the identity as its name.
//!
//! | limit | default | what it bounds |
//! |---|---|---|
//! | memory | all for tenants that are listed and for those who prove nothing, half for others | extents of sessions and shards until they are free again, except what is owed to the reserve |
//! | links | 256 | links; the oldest without a session goes first |
//! | endpoints | 512; no more than the node has for those who prove nothing | endpoints, over all links |
//! | sessions | 256 | sessions |
//! | stores | 1,024 | stores |
//! | shards | 4,096 | shards, each with a root of at most 4 KiB |
//! | keys | 262,144 | keys to extents: one a session and extent |
//! | ranges | 262,144 | outputs of jobs, each at least 4 KiB of memory |
//! | jobs | 64 | jobs that wait or run |
//! | calls | 1,024 | calls that wait for their turn |

use crate::Error;
use forebay_env::HashSet;
use forebay_fabric::Peer;
use forebay_fabric::admission::Name;
use std::fmt;
use std::sync::Arc;

/// Longest name of a tenant or an identity, bytes.
pub const MAX_NAME_BYTES: usize = 96;
/// Largest weight of a tenant.
pub const MAX_WEIGHT: u32 = 1000;
/// Most tenants of a node.
pub const MAX_TENANTS: usize = 1024;
/// The identity and the tenant of those who prove nothing.
const ANONYMOUS: &str = "anonymous";
const UNKNOWN: &str = "unknown";

/// The identity that a link has proven, in text such as `certificate:alice`.
///
/// It consists of letters, digits and `. _ - :`, so it can go into a log or a metric unchanged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    text: Arc<str>,
    is_proven: bool,
}

impl Identity {
    /// The identity of a client that nobody asked to prove itself.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { text: ANONYMOUS.into(), is_proven: false }
    }

    /// The identity of a client that has proven a name that cannot be written here.
    fn unknown() -> Self {
        Self { text: UNKNOWN.into(), is_proven: true }
    }

    /// A process of this user of the machine. Processes of the node's own user, and of the system's, have full
    /// control of the node, so they need not prove anything.
    fn user(uid: u32) -> Self {
        Self { text: format!("uid:{uid}").into(), is_proven: !forebay_fabric::admission::is_own_user(uid) }
    }

    /// The identity of this text.
    ///
    /// # Errors
    /// [`Error::Options`] when it is not a name.
    pub fn new(text: &str) -> Result<Self, Error> {
        check_name("identity", text).map(|()| Self { text: text.into(), is_proven: text != ANONYMOUS })
    }

    /// An identity that an operator lists, in one of the forms that links prove: `anonymous`, `uid:NUMBER`,
    /// `certificate:NAME` or `secret:NAME`.
    ///
    /// # Errors
    /// [`Error::Options`] for any other text, which nobody can have proven.
    pub fn listed(text: &str) -> Result<Self, Error> {
        let is_uid = |number: &str| number.parse::<u32>().is_ok_and(|uid| uid.to_string() == number);
        let can_be_proven = match text.split_once(':') {
            None => text == ANONYMOUS,
            Some(("uid", number)) => is_uid(number),
            Some(("certificate" | "secret", name)) => name.parse::<Name>().is_ok(),
            Some(_) => false,
        };
        if !can_be_proven {
            return Err(Error::Options(format!(
                "{text:?} is no identity: use certificate:NAME, secret:NAME, uid:NUMBER or {ANONYMOUS}"
            )));
        }
        Self::new(text)
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// False for clients that are trusted without proof: they share the node's process or user, or the node asks
    /// for nothing.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

type Tell = dyn Fn(&dyn Peer) -> Identity + Send + Sync;

/// Identifies the client of a link. The only place where the node learns this.
#[derive(Clone)]
pub struct Identify(Arc<Tell>);

impl Identify {
    /// Asks `tell`.
    pub fn new(tell: impl Fn(&dyn Peer) -> Identity + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// The identity of the link's client.
    #[must_use]
    pub fn of(&self, peer: &dyn Peer) -> Identity {
        (self.0)(peer)
    }
}

impl Default for Identify {
    /// What the link has proven to the fabric.
    fn default() -> Self {
        use forebay_fabric::admission::Identity as Proven;
        Self::new(|peer| match peer.origin().identity {
            proven @ (Proven::Certificate(_) | Proven::Secret(_)) => {
                // A name that is not valid here is nobody's.
                Identity::new(&proven.to_string()).unwrap_or_else(|_| Identity::unknown())
            }
            Proven::User { uid, .. } => Identity::user(uid),
            _ => Identity::anonymous(),
        })
    }
}

impl fmt::Debug for Identify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identify")
    }
}

/// What a tenant may have. `None` is the default of the table at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Memory, bytes; rounded down to whole extents.
    pub memory_bytes: Option<u64>,
    /// Links.
    pub links: Option<u64>,
    /// Endpoints, over all links.
    pub endpoints: Option<u64>,
    /// Sessions.
    pub sessions: Option<u64>,
    /// Stores.
    pub stores: Option<u64>,
    /// Shards, over all stores.
    pub shards: Option<u64>,
    /// Keys to extents.
    pub keys: Option<u64>,
    /// Outputs of jobs.
    pub ranges: Option<u64>,
    /// Jobs that wait or run.
    pub jobs: Option<u64>,
    /// Calls that wait for their turn.
    pub calls: Option<u64>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantOptions {
    /// Its name: 1 to 96 letters, digits and `. _ - :`.
    pub name: String,
    /// The identities that belong to it.
    pub identities: Vec<Identity>,
    /// What it may have.
    pub limits: Limits,
    /// The weight of its share of the node's time: 1 to 1000.
    pub weight: u32,
    /// What it may do.
    pub rights: TenantRights,
}

/// What a tenant may do, besides keeping sessions and looking at its own figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantRights {
    /// Use stores and memory.
    pub data: bool,
    /// See the figures of all tenants.
    pub administer: bool,
}

impl Default for TenantRights {
    fn default() -> Self {
        Self { data: true, administer: false }
    }
}

impl TenantOptions {
    /// A tenant with nothing but defaults.
    #[must_use]
    pub fn new(name: &str, identities: Vec<Identity>) -> Self {
        let rights = TenantRights::default();
        Self { name: name.into(), identities, limits: Limits::default(), weight: 1, rights }
    }
}

/// The tenants of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantsOptions {
    /// The configured tenants.
    pub known: Vec<TenantOptions>,
    /// What each other tenant may have.
    pub others: Limits,
}

impl TenantsOptions {
    /// Checks names and weights, and that no identity belongs to two tenants.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub fn check(&self) -> Result<(), Error> {
        let (mut names, mut identities) = (HashSet::default(), HashSet::default());
        if self.known.len() > MAX_TENANTS / 2 {
            let count = self.known.len();
            return Err(Error::Options(format!("{count} tenants: use at most {}", MAX_TENANTS / 2)));
        }
        for tenant in &self.known {
            check_name("tenant", &tenant.name)?;
            if !(1..=MAX_WEIGHT).contains(&tenant.weight) {
                let TenantOptions { name, weight, .. } = tenant;
                return Err(Error::Options(format!("tenant {name} has weight {weight}: use 1 to {MAX_WEIGHT}")));
            }
            // Otherwise a client that has proven that identity would belong to this tenant.
            let is_identity = tenant.name.contains(':') || matches!(tenant.name.as_str(), ANONYMOUS | UNKNOWN);
            if is_identity && !tenant.identities.iter().any(|identity| identity.as_str() == tenant.name) {
                return Err(Error::Options(format!(
                    "{} names an identity: list it among the tenant's identities, or give the tenant another name",
                    tenant.name
                )));
            }
            if !names.insert(tenant.name.as_str()) {
                return Err(Error::Options(format!("there are two tenants named {}", tenant.name)));
            }
            if let Some(twice) = tenant.identities.iter().find(|identity| !identities.insert(identity.as_str())) {
                return Err(Error::Options(format!("{twice} is of two tenants: list it once")));
            }
        }
        Ok(())
    }
}

fn check_name(what: &str, text: &str) -> Result<(), Error> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_fit) {
        return Err(Error::Options(format!(
            "{text:?} is no name of a {what}: use 1 to {MAX_NAME_BYTES} letters, digits and . _ - :"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tenants_say_what_is_right() {
        let tenant = |name: &str, identity: &str| TenantOptions::new(name, vec![Identity::new(identity).unwrap()]);
        let wrong = |known: Vec<TenantOptions>| {
            TenantsOptions { known, others: Limits::default() }.check().unwrap_err().to_string()
        };
        assert!(wrong(vec![tenant("a", "x"), tenant("b", "x")]).contains("x is of two tenants"));
        assert!(wrong(vec![tenant("a", "x"), tenant("a", "y")]).contains("two tenants named a"));
        assert!(wrong(vec![tenant("a b", "x")]).contains("letters"));
        for name in ["secret:b", "anonymous", "unknown"] {
            assert!(wrong(vec![tenant(name, "secret:a")]).contains("names an identity"), "{name}");
        }
        assert!(wrong(vec![TenantOptions { weight: 0, ..tenant("a", "x") }]).contains("1 to 1000"));
        for identity in ["anonymous", "uid:0", "uid:4294967295", "certificate:a.b-c_d", "secret:orders"] {
            assert_eq!(Identity::listed(identity).unwrap().as_str(), identity);
        }
        let long = format!("secret:{}", "x".repeat(65));
        for identity in [
            "foo:x",
            "x",
            "unknown",
            "process",
            "uid:",
            "uid:root",
            "uid:07",
            "uid:+7",
            "uid:4294967296",
            "secret:",
            "secret:a:b",
            "Secret:a",
            &long,
        ] {
            let said = Identity::listed(identity).unwrap_err().to_string();
            assert!(said.contains("certificate:NAME"), "{identity}: {said}");
        }
        let forged = Identity::new("a\nforged \u{1b}[31m").unwrap_err().to_string();
        assert!(!forged.contains(['\n', '\u{1b}']), "{forged}");
    }
}
