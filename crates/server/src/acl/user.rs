//! A user: whether it may log in, with which passwords, and what it may do.

use crate::acl::selector::{Asked, Denied, Selector};
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subtle::{Choice, ConstantTimeEq};

/// The digest of a password.
pub type PasswordDigest = [u8; SHA256_OUTPUT_LEN];

/// The digest of a password.
#[must_use]
pub fn digest_of(password: &[u8]) -> PasswordDigest {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest(&SHA256, password).as_ref());
    bytes
}

/// The rules for a user. With empty rules, the user may not log in and may do nothing.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Whether it may log in.
    pub is_on: bool,
    /// Whether any password is right.
    pub has_no_password: bool,
    /// What `sanitize-payload` or `skip-sanitize-payload` said. It is only kept to be shown: no payload is taken here.
    pub sanitizes: Option<bool>,
    /// Digests of passwords.
    pub passwords: Vec<PasswordDigest>,
    /// The root selector: what the user may do.
    pub root: Selector,
    /// More selectors: what else the user may do.
    pub selectors: Vec<Selector>,
}

impl Rules {
    /// Judges a request: one of the selectors must allow it.
    ///
    /// # Errors
    /// Why it is not allowed.
    pub fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let mut denied = match self.root.judge(asked) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match selector.judge(asked) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.max(other),
            }
        }
        Err(denied)
    }

    /// Whether one of the selectors allows the request, and also allows reading every key.
    #[must_use]
    pub fn reads_all_keys(&self, asked: &Asked<'_>) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.reads_all_keys() && selector.judge(asked).is_ok())
    }

    /// Whether the user may log in with a password. It takes the same time for every wrong password.
    #[must_use]
    pub fn admit(&self, password: &[u8]) -> bool {
        let given = digest_of(password);
        let is_known = self.passwords.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&given));
        self.is_on && (self.has_no_password || bool::from(is_known))
    }
}

/// A user. Connections that have logged in share it, so that other rules hold for them at once.
#[derive(Debug)]
pub struct User {
    name: Bytes,
    may_do_all: AtomicBool,
    rules: Mutex<Arc<Rules>>,
}

impl User {
    /// Makes a user with these rules.
    #[must_use]
    pub fn new(name: Bytes, rules: Rules) -> Self {
        let user = Self { name, may_do_all: AtomicBool::new(false), rules: Mutex::default() };
        user.set(rules);
        user
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &Bytes {
        &self.name
    }

    /// Returns the user's current rules.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.rules))
    }

    /// Replaces the user's rules from now on.
    pub fn set(&self, rules: Rules) {
        let mut held = lock(&self.rules);
        self.may_do_all.store(rules.root.allows_all(), Ordering::Relaxed);
        *held = Arc::new(rules);
    }

    /// Whether the user may do everything: the most common case, which is quick to check.
    #[must_use]
    pub fn may_do_all(&self) -> bool {
        self.may_do_all.load(Ordering::Relaxed)
    }
}
