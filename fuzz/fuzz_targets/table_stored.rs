//! The stored form of a table's parts: checksums and compression.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::table_stored(bytes));
