//! Replies of a shared database's host.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::shared_replies(bytes));
