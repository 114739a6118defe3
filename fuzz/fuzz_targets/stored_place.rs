//! Any bytes for `forebay_hostile::decoders::stored_places`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::stored_places(bytes));
