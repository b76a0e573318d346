//! Segments of the write-ahead log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::wal_segment(bytes));
