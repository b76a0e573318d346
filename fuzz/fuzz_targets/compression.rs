//! Compressed data of every codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::compression(bytes));
