//! Injected faults that a sanitizer must report, to prove that it works.
//!
//! ```text
//!   Canary { fault, test, report } --ESKER_FAULT=fault, one test--> output --> failed with the report?
//! ```

use std::process::Command;

/// The variable that enables a fault: `crates/esker/src/sync/fault.rs`.
const VARIABLE: &str = "ESKER_FAULT";

/// A fault, a test that triggers it, and the expected report of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Canary {
    fault: &'static str,
    test: &'static str,
    report: &'static str,
}

/// A value that points to freed bytes.
const fn value_not_kept(report: &'static str) -> Canary {
    Canary { fault: "ValueNotKept", test: "types::value::tests::value_1_a_value_outlives_its_maker", report }
}

/// A data race: a store without Release.
const fn race(fault: &'static str, test: &'static str) -> Canary {
    Canary { fault, test, report: "ThreadSanitizer: data race" }
}

pub(super) const ADDRESS: &[Canary] = &[value_not_kept("AddressSanitizer: heap-use-after-free")];
pub(super) const VALGRIND: &[Canary] = &[value_not_kept("Invalid read of size")];
pub(super) const MIRI: &[Canary] = &[value_not_kept("Undefined Behavior")];
pub(super) const THREAD: &[Canary] = &[
    race("BlockNotReleased", "cache::block_cache::tests::slot_2_readers_and_evictions_at_the_same_time"),
    race(
        "PermutationNotReleased",
        "memtable::tests::memtable_1_concurrent_readers_see_exactly_their_snapshot",
    ),
    race(
        "ViewNotReleased",
        "read::view_cell::tests::view_cell_1_view_cell_2_view_cell_3_readers_and_replacements_at_the_same_time",
    ),
];

impl Canary {
    /// Returns whether the test fails with the tool's report when the fault is enabled. `command` is cargo up
    /// to `--`.
    pub(super) fn is_found(self, mut command: Command, tool: &str) -> Result<bool, String> {
        let Canary { fault, test, .. } = self;
        let output = command
            .args(["--exact", test])
            .env(VARIABLE, fault)
            .output()
            .map_err(|e| format!("cargo cannot be started: {e}"))?;
        let text =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let found = self.shows(output.status.success(), &text);
        if found {
            println!("{tool}: canary {fault} found by {test}");
        } else {
            println!("{text}\n{tool}: canary {fault} NOT found by {test}");
        }
        Ok(found)
    }

    /// Returns whether the output shows the fault. A failed assertion of the test is not sufficient.
    fn shows(self, succeeded: bool, output: &str) -> bool {
        !succeeded && output.contains(self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tools_own_report_counts() {
        let canary = value_not_kept("Invalid read of size");
        assert!(canary.shows(false, "==7== Invalid read of size 1"));
        assert!(!canary.shows(true, "==7== Invalid read of size 1"), "a report that fails nothing");
        assert!(!canary.shows(false, "assertion failed: value.1"), "the test's own");
        assert!(!canary.shows(true, "test result: ok"));
    }

    #[test]
    fn each_tool_has_canaries_of_faults_that_there_are() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../esker/src/sync/fault.rs");
        let source = std::fs::read_to_string(source).unwrap();
        let list = source.split_once("SANITIZED:").unwrap().1.split_once("=").unwrap().1;
        let list = list.split_once(';').unwrap().0;
        let has = |fault: &str| list.split(|c: char| !c.is_alphanumeric()).any(|word| word == fault);
        assert!(!has("SecondLeader"), "loom's own");
        for canaries in [ADDRESS, VALGRIND, MIRI, THREAD] {
            assert!(!canaries.is_empty());
            for canary in canaries {
                assert!(has(canary.fault), "{canary:?}");
            }
        }
    }
}
