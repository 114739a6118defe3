//! Any bytes as requests of the Redis protocol, in pieces.

#![no_main]

use forebay_server::protocol::request::Requests;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    let mut requests = Requests::default();
    for piece in bytes.chunks(usize::from(size) + 1) {
        requests.push(piece);
        loop {
            if requests.parse(3, 1 << 16, size.is_multiple_of(2)).is_err() {
                return;
            }
            let whole = requests.len();
            let _ = (0..whole).map(|at| requests.arguments(at).map(<[u8]>::len).sum::<usize>()).sum::<usize>();
            requests.consume(whole);
            if whole < 3 {
                break;
            }
        }
    }
});
