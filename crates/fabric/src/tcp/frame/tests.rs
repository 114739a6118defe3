//! The frames as bytes (`docs/formats/tcp-frame.md`), and bytes that are no frames.

use super::*;
use proptest::prelude::*;

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut out = Buffer::default();
    frame.encode(0x0102_0304_0506_0708, &mut out);
    out.filled().to_vec()
}

fn address() -> RemoteAddress {
    AccessKey::new(3, 0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110).at(0x2726_2524_2322_2120)
}

/// Header of a frame of this kind, flags and body length.
fn head(kind: u8, flags: u8, length: u8) -> Vec<u8> {
    vec![0xfb, 1, kind, flags, length, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]
}

/// A target at `address()` of `length` bytes.
fn target_bytes(length: u8) -> Vec<u8> {
    let mut bytes = vec![3, 0, 0, 0];
    bytes.extend(0x10..0x28);
    bytes.extend([length, 0, 0, 0]);
    bytes
}

#[test]
fn golden_frames() {
    let joined = |parts: &[&[u8]]| parts.concat();
    let (hello, endpoint) = (Hello::Control, Hello::Endpoint { link: 9, token: 5 });
    let zeros = [0u8; 32];
    let welcome = Welcome { node: 1, incarnation: 2, link: 3, token: 4, endpoint: 6 };
    let failure = Failure::of(&Error::OutOfBounds { offset: 7, length: 8 });
    let golden: Vec<(Frame<'_>, Vec<u8>)> = vec![
        (Frame::Hello(hello), joined(&[&head(1, 0, 32), &zeros])),
        (
            Frame::Hello(endpoint),
            joined(&[&head(1, 0, 32), &[0, 0, 0, 0], &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5], &zeros[..15]]),
        ),
        (
            Frame::Welcome(welcome),
            joined(&[
                &head(2, 0, 44),
                &[0, 0, 0, 0],
                &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
                &zeros[..15],
                &[6, 0, 0, 0],
            ]),
        ),
        (Frame::Read(Target { at: address(), length: 64 }), joined(&[&head(3, 0, 32), &target_bytes(64)])),
        (
            Frame::Write { to: Target { at: address(), length: 5 }, immediate: Some(0x77), bytes: b"abc" },
            joined(&[&head(4, 1, 39), &target_bytes(5), &[0x77, 0, 0, 0], b"abc"]),
        ),
        (
            Frame::Write { to: Target { at: address(), length: 0 }, immediate: None, bytes: b"" },
            joined(&[&head(4, 0, 36), &target_bytes(0), &[0; 4]]),
        ),
        (
            Frame::CompareSwap { at: address(), expected: 1, new: 2 },
            joined(&[&head(5, 0, 48), &target_bytes(8), &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]]),
        ),
        (
            Frame::FetchAdd { at: address(), delta: 3 },
            joined(&[&head(6, 0, 40), &target_bytes(8), &[3, 0, 0, 0, 0, 0, 0, 0]]),
        ),
        (Frame::Message(b"hey"), joined(&[&head(7, 0, 7), &[0, 0, 0, 0], b"hey"])),
        (Frame::Data(b"data"), joined(&[&head(8, 0, 4), b"data"])),
        (Frame::Done, head(9, 0, 0)),
        (Frame::Word(4), joined(&[&head(10, 0, 8), &[4, 0, 0, 0, 0, 0, 0, 0]])),
        (
            Frame::Failed(failure),
            joined(&[&head(11, 0, 24), &[0, 0, 0, 0], &[2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]]),
        ),
        (Frame::Challenge([7; 32]), joined(&[&head(12, 0, 36), &[0, 0, 0, 0], &[7; 32]])),
        (
            Frame::Proof { nonce: [8; 32], proof: [9; 32], name: "al" },
            joined(&[&head(13, 0, 70), &[0, 0, 0, 0], &[8; 32], &[9; 32], b"al"]),
        ),
        (Frame::Proven([6; 32]), joined(&[&head(14, 0, 36), &[0, 0, 0, 0], &[6; 32]])),
        (
            Frame::Refused { kind: ErrorKind::Busy, text: "full" },
            joined(&[&head(15, 0, 9), &[0, 0, 0, 0], &[5], b"full"]),
        ),
    ];
    for (frame, mut bytes) in golden {
        if matches!(bytes[2], 1 | 2 | 7 | 11..=15) {
            let crc = checksum_append(checksum(&bytes[..16]), &bytes[20..]);
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        }
        assert_eq!(encoded(frame), bytes, "{frame:?}");
        let decoded = decode(&bytes).unwrap().unwrap();
        assert_eq!(decoded, Decoded { number: 0x0102_0304_0506_0708, frame, length: bytes.len() });
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
    }
    // The checksum itself, once, as bytes.
    assert_eq!(encoded(Frame::Message(b"hey"))[16..20], GOLDEN_CHECKSUM);
}

const GOLDEN_CHECKSUM: [u8; 4] = [20, 15, 248, 235];

#[test]
fn what_is_wrong_is_refused_as_soon_as_it_shows() {
    let refused = |change: &dyn Fn(&mut Vec<u8>), frame: Frame<'_>| {
        let mut bytes = encoded(frame);
        change(&mut bytes);
        decode(&bytes).is_err()
    };
    assert!(refused(&|b| b[0] ^= 1, Frame::Done));
    assert!(refused(&|b| b[1] = 2, Frame::Done));
    assert!(refused(&|b| b[2] = 16, Frame::Done));
    assert!(refused(&|b| b[3] = 1, Frame::Done));
    assert!(refused(
        &|b| b[3] = 2,
        Frame::Write { to: Target { at: address(), length: 0 }, immediate: None, bytes: b"" }
    ));
    // Too long, and none of the body has arrived yet.
    assert!(refused(&|b| b[4..8].copy_from_slice(&(MAX_BODY_BYTES as u32 + 1).to_le_bytes()), Frame::Done));
    // More bytes than the operation has, or none of those it has.
    let write = |length, bytes| Frame::Write { to: Target { at: address(), length }, immediate: None, bytes };
    assert!(refused(&|_| {}, write(2, b"abc")));
    assert!(refused(&|_| {}, write(2, b"")));
    for i in 16..23 {
        assert!(refused(&|b| b[i] ^= 0x10, Frame::Message(b"hey")));
    }
    assert!(refused(&|b| b[HEADER_BYTES + 28] = 16, Frame::FetchAdd { at: address(), delta: 1 }));
}

#[test]
fn failures_come_back_as_they_went() {
    for error in [
        Error::AccessDenied,
        Error::OutOfBounds { offset: 1, length: u64::MAX },
        Error::Misaligned { offset: 3 },
        Error::TooLarge { length: 9, limit: 8 },
        Error::denied("the node", Denial::Secret),
        Error::denied("the node", Denial::Plain),
        Error::denied("the node", Denial::Tls),
        Error::denied("the node", Denial::Crowded),
    ] {
        assert_eq!(Failure::of(&error).error(), error);
    }
    assert!(matches!(Failure::of(&Error::Unsupported("x")).error(), Error::Unsupported(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
    #[test]
    fn any_bytes_decode_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..17) {
        let _ = decode(&bytes);
        let _ = peek_read(&bytes);
        if let Some(rest) = bytes.len().checked_sub(HEADER_BYTES) {
            let head = [MAGIC, VERSION, kind, bytes[3] & 1, rest as u8, 0, 0, 0];
            bytes[..8].copy_from_slice(&head);
            let _ = decode(&bytes);
            if rest >= CHECKSUM_BYTES {
                bytes[3] = 0;
                let crc = checksum_append(checksum(&bytes[..16]), &bytes[20..]);
                bytes[16..20].copy_from_slice(&crc.to_le_bytes());
                if let Ok(Some(decoded)) = decode(&bytes) {
                    prop_assert_eq!(decoded.length, bytes.len());
                }
            }
        }
    }

    #[test]
    fn writes_round_trip(offset: u64, length in 1usize..300, more in 0u32..100, immediate: Option<u32>) {
        let bytes = vec![0x5a; length];
        let to = Target { at: address().key.at(offset), length: length as u32 + more };
        let frame = Frame::Write { to, immediate, bytes: &bytes };
        let encoded = encoded(frame);
        prop_assert_eq!(decode(&encoded).unwrap().unwrap().frame, frame);
    }

    #[test]
    fn refusals_are_cut_at_a_character(text in "\\PC{0,300}") {
        let encoded = encoded(Frame::Refused { kind: ErrorKind::Full, text: &text });
        let Some(Decoded { frame: Frame::Refused { kind, text: told }, .. }) = decode(&encoded).unwrap() else {
            panic!("no refusal")
        };
        prop_assert!(kind == ErrorKind::Full && text.starts_with(told));
        prop_assert!(told.len() <= MAX_TEXT_BYTES && (told == text || told.len() > MAX_TEXT_BYTES - 4));
    }
}
