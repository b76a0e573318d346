//! Varints and length-prefixed strings.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::numbers(bytes));
