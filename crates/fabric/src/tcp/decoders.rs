//! The frame parser, and both sides of a door, for fuzzers.
//!
//! No fuzzer guesses a checksum or a proof. So both sides also get frames made of its bytes with the right
//! checksums, and right proofs at places that it chooses.

use super::buffer::Buffer;
use super::frame::{Decoded, Frame, Hello, decode, put_checked};
use super::gate::Gate;
use super::porter::Porter;
use crate::admission::{
    Access, Admission, AdmissionOptions, Identity, PROOF_BYTES, Rules, Secret, Secrets, Side, Statement,
};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

const SECRET: &str = "alice 0123456789abcdef0123456789abcdef";
/// Kinds in a script that stand for a right proof.
const RIGHT_PROOF: std::ops::RangeFrom<u8> = 200..;

static SECRETS: LazyLock<Secrets> = LazyLock::new(|| Secrets::parse(SECRET, "a fuzzer").expect("a secret"));
static RULES: LazyLock<[Arc<Rules>; 2]> = LazyLock::new(|| {
    [Secrets::default(), SECRETS.clone()].map(|secrets| {
        let options = AdmissionOptions { secrets, ..AdmissionOptions::default() };
        Admission::load(options).expect("an admission").rules()
    })
});

fn secret() -> &'static Secret {
    SECRETS.only().expect("one secret")
}

/// Decodes consecutive frames, as they come over a connection.
///
/// # Panics
/// When a decoded frame does not encode to the same bytes.
pub fn frames(bytes: &[u8]) {
    let mut left = bytes;
    while let Ok(Some(Decoded { number, frame, length })) = decode(left) {
        let mut again = Buffer::default();
        frame.encode(number, &mut again);
        let (front, rest) = left.split_at(length);
        assert_eq!(again.filled(), front, "{frame:?}");
        left = rest;
    }
}

/// The frames of a script: for each a kind, a length, and that many bytes of a body.
fn each_frame(script: &[u8], mut take: impl FnMut(u8, &Buffer) -> bool) {
    let mut left = script;
    while let [kind, length, rest @ ..] = left {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        let mut made = Buffer::default();
        put_checked(&mut made, *kind, 0, body);
        if !take(*kind, &made) {
            return;
        }
        left = rest;
    }
}

fn first(bytes: &[u8]) -> Option<Frame<'_>> {
    decode(bytes).ok().flatten().map(|decoded| decoded.frame)
}

/// Gives a node a stranger's frames. The first byte chooses whether it asks for a secret.
///
/// # Panics
/// When somebody is admitted without proof.
pub fn node(bytes: &[u8]) {
    let Some((&which, script)) = bytes.split_first() else { return };
    let asks = which % 2 == 1;
    let mut porter = Porter::new(Arc::clone(&RULES[usize::from(asks)]));
    let mut hello = Hello::Control;
    each_frame(script, |kind, made| {
        let is_right = RIGHT_PROOF.contains(&kind);
        let mut proof = Buffer::default();
        if is_right {
            // Answers the challenge that it got.
            let Some(Frame::Challenge(node_nonce)) = first(porter.out.filled()) else { return false };
            let (nonce, channel) = ([kind; PROOF_BYTES], [0; PROOF_BYTES]);
            let statement = Statement { node_nonce, client_nonce: nonce, channel, request: hello.request() };
            let name = secret().name().as_str();
            Frame::Proof { nonce, proof: secret().prove(Side::Client, &statement), name }.encode(0, &mut proof);
        }
        let Some(frame) = first(if is_right { proof.filled() } else { made.filled() }) else { return false };
        if let Frame::Hello(said) = frame {
            hello = said;
        }
        match porter.take(frame, None) {
            Ok(None) => true,
            Ok(Some(admitted)) => {
                let identity = if asks { Identity::Secret(secret().name().clone()) } else { Identity::Anonymous };
                assert_eq!((admitted.identity, admitted.hello), (identity, hello));
                assert_eq!((is_right, admitted.proof.is_some()), (asks, asks), "let in without a proof");
                false
            }
            Err(cause) => {
                assert!(!is_right, "a right proof is refused: {cause}");
                porter.account(&cause);
                false
            }
        }
    });
}

/// Gives a client a node's frames. The first byte chooses whether it has a secret.
///
/// # Panics
/// When it accepts a node that has not proven that it has the secret.
pub fn client(bytes: &[u8]) {
    let Some((&which, script)) = bytes.split_first() else { return };
    let has_secret = which % 2 == 1;
    let access = Access { secret: has_secret.then(|| secret().clone()), ..Access::default() };
    let mut gate = Gate::new(SocketAddr::from(([127, 0, 0, 1], 1)), &access, Hello::Control, [0; PROOF_BYTES]);
    let (mut challenge, mut has_proven) = (None, false);
    each_frame(script, |kind, made| {
        let mut proof = Buffer::default();
        if RIGHT_PROOF.contains(&kind) {
            // The client's proof follows the hello.
            let sent = gate.out.filled();
            let Ok(Some(Decoded { length, .. })) = decode(sent) else { return false };
            let said = first(sent.get(length..).unwrap_or_default());
            let (Some(node_nonce), Some(Frame::Proof { nonce, .. })) = (challenge, said) else { return false };
            let (channel, request) = ([0; PROOF_BYTES], Hello::Control.request());
            let statement = Statement { node_nonce, client_nonce: nonce, channel, request };
            Frame::Proven(secret().prove(Side::Node, &statement)).encode(0, &mut proof);
            has_proven = true;
        }
        let Some(frame) = first(if proof.is_empty() { made.filled() } else { proof.filled() }) else { return false };
        if let Frame::Challenge(nonce) = frame {
            challenge = Some(nonce);
        }
        match gate.take(frame) {
            Ok(None) => true,
            Ok(Some(_)) => {
                assert!(has_proven || !has_secret, "in at a node that has proven nothing");
                false
            }
            Err(_) => false,
        }
    });
}
