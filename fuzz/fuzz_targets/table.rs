//! Whole tables, read in every way.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::table(bytes));
