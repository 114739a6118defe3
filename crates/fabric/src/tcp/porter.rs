//! The node's side of an introduction, the counterpart of [`super::gate`]. A stranger's frames go in; frames for it,
//! and who is admitted, come out.

use super::buffer::Buffer;
use super::frame::{Frame, Hello};
use crate::admission::{Bytes32, Identity, Name, PROOF_BYTES, Rules, Side, Standing, Statement, nonce};
use crate::{Denial, Error};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// Who is admitted, and for what.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) identity: Identity,
    pub(super) standing: Standing,
    pub(super) hello: Hello,
    /// What the node proves in return.
    pub(super) proof: Option<Bytes32>,
}

#[derive(Debug)]
pub(super) struct Porter {
    pub(super) rules: Arc<Rules>,
    /// What the stranger wants, and the challenge that it must answer.
    challenged: Option<(Hello, Bytes32)>,
    /// The name under which it wants to come in.
    claimed: Option<Name>,
    /// Bytes to be sent.
    pub(super) out: Buffer,
}

impl Porter {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self { rules, challenged: None, claimed: None, out: Buffer::default() }
    }

    /// Handles a frame of a stranger who has shown these certificates. Returns who it is when it is admitted.
    pub(super) fn take(
        &mut self,
        frame: Frame<'_>,
        shown: Option<&[CertificateDer<'static>]>,
    ) -> Result<Option<Admitted>, Error> {
        match (frame, self.challenged) {
            (Frame::Hello(hello), None) => self.hello(hello, shown),
            (Frame::Proof { nonce, proof, name }, Some((hello, node_nonce))) => {
                self.claimed = name.parse().ok();
                let channel = self.rules.tls.as_ref().map_or([0; PROOF_BYTES], |(_, channel)| *channel);
                let statement = Statement { node_nonce, client_nonce: nonce, channel, request: hello.request() };
                let secret = self.rules.secret_of(name, &statement, &proof);
                let secret = secret.ok_or_else(|| Error::denied("the node", Denial::Secret))?.clone();
                let proof = Some(secret.prove(Side::Node, &statement));
                let identity = Identity::Secret(secret.name().clone());
                Ok(Some(Admitted { identity, standing: Standing::Secret(secret), hello, proof }))
            }
            _ => Err(Error::Protocol("a connection that does not begin as connections do".into())),
        }
    }

    fn hello(&mut self, hello: Hello, shown: Option<&[CertificateDer<'static>]>) -> Result<Option<Admitted>, Error> {
        let unnamed = || Error::denied("the node", Denial::Certificate("it is not for one DNS name".into()));
        let (identity, standing) = match shown {
            Some(chain) => self.rules.identity_of(chain).ok_or_else(unnamed)?,
            None if !self.rules.asks() => (Identity::Anonymous, Standing::Nothing),
            // Without secrets, TLS has made sure that there is a certificate.
            None => {
                let node_nonce = nonce()?;
                self.challenged = Some((hello, node_nonce));
                Frame::Challenge(node_nonce).encode(0, &mut self.out);
                return Ok(None);
            }
        };
        Ok(Some(Admitted { identity, standing, hello, proof: None }))
    }

    /// Why the stranger is not admitted, for the log of the node.
    pub(super) fn account(&self, cause: &Error) -> String {
        match cause {
            Error::NotAdmitted { cause: Denial::Plain, .. } => "it does not speak TLS".into(),
            Error::NotAdmitted { cause: Denial::Tls, .. } => "it speaks TLS, and the node has no certificate".into(),
            Error::NotAdmitted { cause: Denial::Certificate(text), .. } => format!("its certificate: {text}"),
            Error::NotAdmitted { .. } => match &self.claimed {
                Some(name) => format!("it does not prove to have the secret of {name}"),
                None => "it does not prove to have a secret".into(),
            },
            cause => cause.to_string(),
        }
    }
}
