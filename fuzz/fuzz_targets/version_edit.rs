//! Edits in the manifest.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker::fuzzing::manifest::version_edit(bytes));
