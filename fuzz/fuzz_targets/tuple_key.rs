//! Keys of typed tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::tuple_key(bytes));
