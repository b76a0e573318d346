//! The API as a whole: operations, crashes and faults, against a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::operations(bytes));
