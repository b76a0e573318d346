//! Whole record files, through every reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::record_file(bytes));
