//! KEYS, and the keys that files contain.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::key_file(bytes));
