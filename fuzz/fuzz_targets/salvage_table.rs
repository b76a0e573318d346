//! Damaged tables, as repair reads them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::salvage_table(bytes));
