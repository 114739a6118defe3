//! Any bytes for `forebay_hostile::decoders::table_tails`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_hostile::decoders::table_tails(bytes));
