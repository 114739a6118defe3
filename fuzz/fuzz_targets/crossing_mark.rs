//! Any bytes for `forebay_hostile::decoders::crossing_marks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::crossing_marks(bytes));
