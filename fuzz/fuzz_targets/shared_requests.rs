//! Requests of a shared database's guests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::shared_requests(bytes));
