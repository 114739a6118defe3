//! Any bytes for `forebay_hostile::decoders::fabric::tcp_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::fabric::tcp_frames(bytes));
