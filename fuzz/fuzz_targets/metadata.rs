//! Any bytes for `forebay_hostile::decoders::metadata`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::metadata(bytes));
