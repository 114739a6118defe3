//! The client's side of a node's door: it says what it wants, proves who it is, and makes sure that the node also
//! proves itself. Frames go in, frames and the welcome come out.
//!
//! ```text
//!   client                     node
//!   Hello ──────────────────►
//!         ◄────────────────── Challenge     (where the node asks for a secret)
//!   Proof ──────────────────►
//!         ◄────────────────── Proven
//!         ◄────────────────── Welcome
//! ```

use super::buffer::Buffer;
use super::frame::{Frame, Hello, Welcome};
use crate::admission::{Access, Bytes32, Secret, Side, Statement, nonce};
use crate::{Denial, Error};
use std::net::SocketAddr;

#[derive(Debug)]
pub(super) struct Gate<'a> {
    node: SocketAddr,
    secret: Option<&'a Secret>,
    hello: Hello,
    channel: Bytes32,
    /// What this side has proven.
    statement: Option<Statement>,
    /// Whether the node has proven that it has the secret.
    proven: bool,
    /// Bytes to be sent.
    pub(super) out: Buffer,
}

impl<'a> Gate<'a> {
    pub(super) fn new(node: SocketAddr, access: &'a Access, hello: Hello, channel: Bytes32) -> Self {
        let mut out = Buffer::default();
        Frame::Hello(hello).encode(0, &mut out);
        Self { node, secret: access.secret.as_ref(), hello, channel, statement: None, proven: false, out }
    }

    /// Handles a frame of the node; the welcome is the last.
    pub(super) fn take(&mut self, frame: Frame<'_>) -> Result<Option<Welcome>, Error> {
        match (frame, self.secret, &self.statement) {
            (Frame::Challenge(node_nonce), Some(secret), None) => {
                let request = self.hello.request();
                let statement = Statement { node_nonce, client_nonce: nonce()?, channel: self.channel, request };
                let (nonce, proof) = (statement.client_nonce, secret.prove(Side::Client, &statement));
                Frame::Proof { nonce, proof, name: secret.name().as_str() }.encode(0, &mut self.out);
                self.statement = Some(statement);
                Ok(None)
            }
            (Frame::Challenge(_), None, _) => Err(self.denied(Denial::SecretMissing)),
            (Frame::Proven(proof), Some(secret), Some(statement)) => {
                self.proven = secret.is_proven(Side::Node, statement, &proof);
                if self.proven { Ok(None) } else { Err(self.denied(Denial::NodeSecret)) }
            }
            (Frame::Welcome(_), Some(_), _) if !self.proven => Err(self.denied(Denial::NodeSecret)),
            (Frame::Welcome(welcome), _, _) => Ok(Some(welcome)),
            (Frame::Failed(failure), _, _) => Err(match failure.error() {
                Error::NotAdmitted { cause, .. } => self.denied(cause),
                error => error,
            }),
            (Frame::Refused { kind, text }, _, _) => {
                // The node may have proven nothing, and control characters would act on a terminal.
                let text: String = text.chars().filter(|c| !c.is_control()).collect();
                Err(Error::Remote { kind, message: format!("{} refuses a connection: {text}", self.node) })
            }
            _ => Err(Error::Protocol(format!("{} answers a hello with another frame", self.node))),
        }
    }

    fn denied(&self, cause: Denial) -> Error {
        Error::denied(self.node, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Secrets;
    use forebay_base::ErrorKind;

    fn access(secret: Option<&str>) -> Access {
        let parse = |text: &str| Secrets::parse(text, "test").unwrap().only().unwrap().clone();
        Access { secret: secret.map(parse), ..Access::default() }
    }

    fn cause(result: Result<Option<Welcome>, Error>) -> Denial {
        match result {
            Err(Error::NotAdmitted { cause, .. }) => cause,
            other => panic!("not denied: {other:?}"),
        }
    }

    #[test]
    fn a_node_that_proves_nothing_gets_no_client() {
        let node = "127.0.0.1:1".parse().unwrap();
        let welcome = Frame::Welcome(Welcome { node: 1, incarnation: 2, link: 3, token: 4, endpoint: 0 });
        let with_secret = access(Some("alice 0123456789abcdef0123456789abcdef"));
        let without = access(None);
        let gate = |access| Gate::new(node, access, Hello::Control, [0; 32]);
        assert!(gate(&without).take(welcome).unwrap().is_some());
        assert_eq!(cause(gate(&with_secret).take(welcome)), Denial::NodeSecret);
        assert_eq!(cause(gate(&without).take(Frame::Challenge([1; 32]))), Denial::SecretMissing);
        let mut challenged = gate(&with_secret);
        assert!(challenged.take(Frame::Challenge([1; 32])).unwrap().is_none());
        assert_eq!(cause(challenged.take(welcome)), Denial::NodeSecret);
        // This side's own proof proves nothing about the other side.
        let statement = challenged.statement.unwrap();
        let own = with_secret.secret.as_ref().unwrap().prove(Side::Client, &statement);
        assert_eq!(cause(challenged.take(Frame::Proven(own))), Denial::NodeSecret);
        let right = with_secret.secret.as_ref().unwrap().prove(Side::Node, &statement);
        assert!(challenged.take(Frame::Challenge([1; 32])).is_err(), "a second challenge");
        assert!(challenged.take(Frame::Proven(right)).unwrap().is_none());
        assert!(challenged.take(welcome).unwrap().is_some());
        assert!(gate(&without).take(Frame::Proven(right)).is_err());
    }

    #[test]
    fn a_refusal_is_a_text_and_nothing_else() {
        let access = access(None);
        let mut gate = Gate::new("127.0.0.1:1".parse().unwrap(), &access, Hello::Control, [0; 32]);
        let refused =
            gate.take(Frame::Refused { kind: ErrorKind::Busy, text: "full\n\u{1b}[2J\u{9b}31m" }).unwrap_err();
        let message = "127.0.0.1:1 refuses a connection: full[2J31m".into();
        assert_eq!(refused, Error::Remote { kind: ErrorKind::Busy, message });
    }
}
