//! Logs of several segments, as recovery and repair read them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::salvage_log(bytes));
