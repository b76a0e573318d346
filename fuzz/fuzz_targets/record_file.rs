//! Whole record files, through every reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker::fuzzing::recordio::record_file(bytes));
