//! Shared secrets, and how one side proves to the other that it has one (`docs/formats/tcp-frame.md`).
//!
//! A secret is never sent. Node and client each draw a nonce. Each side sends an HMAC-SHA-256, under the secret,
//! of both nonces, of what the client asked for, and of the channel:
//!
//! ```text
//!   HMAC(secret, label, node's nonce, client's nonce, channel, request, name)
//!
//!   label     32  "forebay admission 1: client" or "...: node", filled with zeros
//!   nonces    32  each, random: an answer is of no use in another connection
//!   channel   32  SHA-256 of the node's certificate where there is TLS, else zeros: an answer that was
//!                 got out of the client by another node is of no use at this one
//!   request   28  the body of the hello: role, link and token
//!   name     1-64
//! ```
//!
//! The labels differ, so an answer cannot be sent back to the side that made it. All parts but the last have a
//! fixed length, so no two statements have the same bytes. Answers are compared in time that does not depend on
//! where they differ, and a name that does not exist costs the node as much as one that does.

use super::files;
use super::identity::Name;
use crate::Error;
use forebay_env::Random;
use ring::{digest, hmac};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Shortest secret, characters: 128 bits even where each is one of sixteen.
pub const MIN_SECRET_CHARACTERS: usize = 32;
/// Longest secret, characters.
pub const MAX_SECRET_CHARACTERS: usize = 256;

/// Length of a nonce, of a proof and of a channel's name, bytes.
pub(crate) const PROOF_BYTES: usize = 32;
/// Length of what a client asks for, bytes.
pub(crate) const REQUEST_BYTES: usize = 28;

/// A nonce, a proof, or the name of a channel.
pub(crate) type Bytes32 = [u8; PROOF_BYTES];

/// A secret that a node and a client share, and its name. Printed, it shows only the name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: Name,
    value: Arc<str>,
}

impl Secret {
    /// The name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// A secret that nobody has, which no proof fits.
    pub(super) fn decoy() -> Result<Self, Error> {
        let value = nonce()?.map(|byte| format!("{byte:02x}")).concat();
        Ok(Self { name: "nobody".parse()?, value: value.into() })
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.value.as_bytes())
    }

    /// The proof that this side has the secret.
    pub(crate) fn prove(&self, side: Side, statement: &Statement) -> Bytes32 {
        let tag = hmac::sign(&self.key(), &statement.bytes(side, &self.name));
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether `proof` shows that the other side, which is `side`, has the secret.
    pub(crate) fn is_proven(&self, side: Side, statement: &Statement, proof: &Bytes32) -> bool {
        hmac::verify(&self.key(), &statement.bytes(side, &self.name), proof).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}

/// The side that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Node,
}

/// What a proof covers, except the secret and its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(crate) node_nonce: Bytes32,
    pub(crate) client_nonce: Bytes32,
    pub(crate) channel: Bytes32,
    pub(crate) request: [u8; REQUEST_BYTES],
}

impl Statement {
    fn bytes(&self, side: Side, name: &Name) -> Vec<u8> {
        let mut label = [0; PROOF_BYTES];
        let text: &[u8] = match side {
            Side::Client => b"forebay admission 1: client",
            Side::Node => b"forebay admission 1: node",
        };
        label.iter_mut().zip(text).for_each(|(into, byte)| *into = *byte);
        let Self { node_nonce, client_nonce, channel, request } = self;
        [&label[..], node_nonce, client_nonce, channel, request, name.as_str().as_bytes()].concat()
    }
}

/// Random bytes that were never used.
pub(crate) fn nonce() -> Result<Bytes32, Error> {
    let mut nonce = [0; PROOF_BYTES];
    for half in nonce.chunks_exact_mut(16) {
        let drawn = Random::secret().map_err(|e| Error::io("drawing a nonce", e))?;
        half.copy_from_slice(&drawn.to_le_bytes());
    }
    Ok(nonce)
}

/// The name of a channel: the hash of the node's certificate.
pub(crate) fn channel_of(certificate: &[u8]) -> Bytes32 {
    let mut channel = [0; PROOF_BYTES];
    channel.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    channel
}

/// Secrets by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Parses secrets from text. Each line has a name and a secret with a space between them. Empty lines and
    /// lines that begin with `#` are skipped. `whence` says where the text is from, for errors, which quote none
    /// of the text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a line of another form, a secret that is too short, a name that occurs twice.
    pub fn parse(text: &str, whence: &str) -> Result<Self, Error> {
        let mut secrets: Vec<Secret> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |cause: &str| Error::Invalid(format!("{whence}, line {}: {cause}", number + 1));
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("a name, a space and a secret are needed"));
            };
            // Not quoted: if the name was left out, the secret is in its place.
            let unfit = "the first word is no name: use letters, digits, dots, dashes and underscores, 64 at most";
            let name: Name = name.parse().map_err(|_| wrong(unfit))?;
            let is_long = (MIN_SECRET_CHARACTERS..=MAX_SECRET_CHARACTERS).contains(&value.len());
            if !is_long || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong(&format!(
                    "a secret has {MIN_SECRET_CHARACTERS} to {MAX_SECRET_CHARACTERS} characters of ASCII; take 64 random \
                     hexadecimal digits"
                )));
            }
            if secrets.iter().any(|secret| secret.name == name) {
                return Err(wrong(&format!("{name} has a secret already")));
            }
            secrets.push(Secret { name, value: value.into() });
        }
        Ok(Self(secrets))
    }

    /// Reads secrets from a file, which must not be open to everybody.
    ///
    /// # Errors
    /// As [`Secrets::parse`]; [`Error::Invalid`] when the file cannot be read, everybody may open it, or there is
    /// no secret in it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = files::read_secret(path, "secrets")?;
        let secrets = Self::parse(&text, &path.display().to_string())?;
        if secrets.is_empty() {
            return Err(Error::Invalid(format!(
                "there is no secret in {}: a line each, name and secret",
                path.display()
            )));
        }
        Ok(secrets)
    }

    /// The union of both.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a name is in both.
    pub fn and(mut self, others: &Self) -> Result<Self, Error> {
        for secret in &others.0 {
            if self.get(secret.name.as_str()).is_some() {
                return Err(Error::Invalid(format!("there are two secrets with the name {}", secret.name)));
            }
            self.0.push(secret.clone());
        }
        Ok(self)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The only one.
    #[must_use]
    pub fn only(&self) -> Option<&Secret> {
        if let [secret] = &self.0[..] { Some(secret) } else { None }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Secret> {
        self.0.iter().find(|secret| secret.name.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "0123456789abcdef0123456789abcdef";

    fn statement() -> Statement {
        Statement { node_nonce: [1; 32], client_nonce: [2; 32], channel: [3; 32], request: [4; 28] }
    }

    fn secret(name: &str) -> Secret {
        Secrets::parse(&format!("{name} {LONG}"), "test").unwrap().only().unwrap().clone()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri cannot call what the library has in assembly")]
    fn golden_proofs() {
        let hex = |proof: Bytes32| proof.map(|byte| format!("{byte:02x}")).concat();
        let (client, node) = (
            "224ece99035e19c8e50597e9371aa8bc5e5e0c11a5c7fe674361cac562f292b7",
            "94243a692a1962eeba531d0a854925fe343791d456a3825f12aa45e3855fdd4a",
        );
        assert_eq!(hex(secret("alice").prove(Side::Client, &statement())), client);
        assert_eq!(hex(secret("alice").prove(Side::Node, &statement())), node);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri cannot call what the library has in assembly")]
    fn a_proof_is_of_one_secret_side_and_statement() {
        let alice = secret("alice");
        let proof = alice.prove(Side::Client, &statement());
        assert!(alice.is_proven(Side::Client, &statement(), &proof));
        assert!(!alice.is_proven(Side::Node, &statement(), &proof));
        assert!(!secret("bob").is_proven(Side::Client, &statement(), &proof));
        assert!(!Secret::decoy().unwrap().is_proven(Side::Client, &statement(), &proof));
        let changes: [fn(&mut Statement); 4] =
            [|s| s.node_nonce[31] ^= 1, |s| s.client_nonce[0] ^= 1, |s| s.channel[7] ^= 1, |s| s.request[27] ^= 1];
        for change in changes {
            let mut other = statement();
            change(&mut other);
            assert!(!alice.is_proven(Side::Client, &other, &proof));
        }
        for bit in 0..8 * PROOF_BYTES {
            let mut other = proof;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!alice.is_proven(Side::Client, &statement(), &other));
        }
    }

    #[test]
    fn texts_of_secrets() {
        let text = format!("# keys\n\n alice {LONG}\nbob\t{LONG}x\n");
        let secrets = Secrets::parse(&text, "test").unwrap();
        assert!(secrets.get("alice").is_some() && secrets.get("bob").is_some() && secrets.get("eve").is_none());
        assert!(secrets.only().is_none());
        assert!(Secrets::parse("", "test").unwrap().is_empty());
        assert!(secrets.clone().and(&secrets).unwrap_err().to_string().contains("alice"));
        for (wrong, hint) in [
            (LONG.to_string(), "line 1"),
            (format!("alice {LONG} {LONG}"), "a space"),
            (format!("alice\u{7} {LONG}"), "no name"),
            ("alice short-secret".into(), "32 to 256"),
            (format!("alice {LONG}\u{e9}"), "ASCII"),
            (format!("alice {LONG}\nalice {LONG}"), "line 2"),
        ] {
            let said = Secrets::parse(&wrong, "test").unwrap_err().to_string();
            assert!(said.contains(hint) && !said.contains("0123456789") && !said.contains("short-secret"), "{said}");
        }
    }

    #[test]
    fn nothing_prints_a_secret() {
        let secrets = Secrets::parse(&format!("alice {LONG}"), "test").unwrap();
        assert!(!format!("{secrets:?} {:?}", secrets.only()).contains("0123"));
    }
}
