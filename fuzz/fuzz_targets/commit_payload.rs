//! The payload of a commit's log record.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::commit_payload(bytes));
