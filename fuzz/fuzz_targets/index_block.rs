//! Any bytes for `forebay_hostile::decoders::index_blocks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::index_blocks(bytes));
