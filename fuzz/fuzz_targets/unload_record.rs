//! Records of unloaded databases.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::unload_record(bytes));
