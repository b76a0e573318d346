//! Runs the tests of unsafe and lock-free code under sanitizers and similar tools.
//!
//! ```text
//!   cargo xtask sanitize KIND [--long] --> Recipe: environment, program, arguments, filters --> tests
//! ```
//!
//! Each kind builds into its own directory below `target`, because its flags apply to every crate.
//!
//! A filter that selects no test fails the run, so that renamed tests are noticed.
//! - A tool that does not report an injected fault fails the run: after the tests, each canary's test runs
//!   again with its fault (`crates/esker/src/sync/fault.rs`) and must fail with the tool's report. The
//!   canaries of loom are ordinary tests.

mod canary;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use self::canary::Canary;

use crate::cargo;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Unsafe and lock-free code, by test names.
const UNSAFE_PARTS: &[&str] = &[
    "memtable::",
    "cache::",
    "encoding::bloom::",
    "sstable::block",
    "read::view_cell",
    "types::value",
    "txn::queue",
    "txn::snapshots",
    "types::range_tombstone",
    // In esker-env.
    "aligned::",
    "pages::",
    "window::",
    "real::",
    "fs::tests",
];

/// The subset that valgrind finishes in half a minute.
const VALGRIND_PARTS: &[&str] = &[
    "memtable::arena",
    "memtable::filter",
    "memtable::tests::a_value_larger_than_a_chunk",
    "memtable::tests::equal_heads",
    "memtable::tests::memtable_4_cursors_and_scans_outlive_the_memtable",
    "memtable::tests::random_keys",
    "memtable::tests::the_longest_keys",
    "sstable::block",
    "read::view_cell",
    "types::value",
    "aligned::",
    "pages::",
];

/// The subset that Miri finishes in a minute.
const MIRI_PARTS: &[&str] =
    &["memtable::permutation", "memtable::arena", "cache::budget", "read::view_cell", "types::value"];

/// The subset whose system calls Miri supports; takes a quarter of an hour.
const INTERPRETED_PARTS: &[&str] = &[
    "memtable::",
    "cache::",
    "encoding::bloom::",
    "sstable::block",
    "read::view_cell",
    "types::value",
    "txn::queue",
    "txn::snapshots",
    "aligned::",
    "pages::",
];

/// The models of lock-free code.
const LOOM_MODELS: &[&str] =
    &["cache::models", "memtable::models", "range_tombstone::models", "read::models", "txn::models"];

/// Crates with unsafe or lock-free code.
const LIBRARIES: [&str; 5] = ["-p", "esker", "-p", "esker-env", "--lib"];

/// The short forms mostly compile, so they skip optimization and C dependencies.
const NOT_OPTIMISED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
const WITHOUT_C: &str = "--no-default-features";

/// How to run a tool.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    /// The directory below `target`, and compiler flags.
    name: &'static str,
    rustflags: &'static str,
    env: &'static [(&'static str, &'static str)],
    args: Vec<&'static str>,
    /// Parts of the names of tests to run; all if empty.
    filters: &'static [&'static str],
    canaries: &'static [Canary],
}

impl Recipe {
    /// Returns the cargo command up to `--`.
    fn command(&self) -> Command {
        let mut command = cargo::program("cargo");
        command.args(&self.args).arg("--");
        command.envs(self.env.iter().copied()).env("RUSTFLAGS", self.rustflags);
        command.env("CARGO_TARGET_DIR", cargo::target_dir().join(self.name));
        command
    }
}

/// The kinds and their help.
pub(crate) const KINDS: &[(&str, &str)] = &[
    ("loom", "models of the lock-free parts, in every interleaving"),
    ("address", "AddressSanitizer: use after free, out of bounds (nightly)"),
    (
        "thread",
        "ThreadSanitizer: data races (nightly with rust-src: rustup component add --toolchain nightly rust-src)",
    ),
    ("valgrind", "valgrind's memcheck: also memory that was never written"),
    ("miri", "Miri: undefined behaviour by the language's rules (nightly with rust-src and miri)"),
];

/// Runs one kind. Returns whether the tests passed and all canaries were found.
pub(crate) fn run(kind: &str, long: bool) -> Result<bool, String> {
    let recipe = recipe(kind, long)?;
    if !run_tests(&recipe)? {
        return Ok(false);
    }
    let mut missed = 0;
    for canary in recipe.canaries {
        missed += usize::from(!canary.is_found(recipe.command(), recipe.name)?);
    }
    Ok(missed == 0)
}

/// Runs the tests. Returns whether there were any and all passed.
fn run_tests(recipe: &Recipe) -> Result<bool, String> {
    let mut command = recipe.command();
    command.args(recipe.filters);
    let (args, filters) = (recipe.args.join(" "), recipe.filters.join(" "));
    println!("{}: RUSTFLAGS='{}' cargo {args} -- {filters}", recipe.name, recipe.rustflags);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|e| format!("cargo cannot be started: {e}"))?;
    let lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut tests = Vec::new();
    // Tests may print arbitrary bytes.
    for line in lines.split(b'\n') {
        let line = line.map_err(|e| format!("the output of cargo: {e}"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        // Failing to show the line is not an error.
        let _ = std::io::stdout().flush();
        tests.extend(test_name(&line));
    }
    let status = child.wait().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Ok(false);
    }
    for filter in idle_filters(recipe.filters, &tests) {
        println!("{}: no test ran that has `{filter}` in its name", recipe.name);
    }
    println!("{}: {} tests ran", recipe.name, tests.len());
    Ok(!tests.is_empty() && idle_filters(recipe.filters, &tests).is_empty())
}

/// Returns the name of an executed test in a line of the test harness.
fn test_name(line: &str) -> Option<String> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (!outcome.starts_with("ignored")).then(|| name.trim_end_matches(" - should panic").to_owned())
}

/// Returns the filters that match no test.
fn idle_filters(filters: &[&'static str], tests: &[String]) -> Vec<&'static str> {
    filters.iter().copied().filter(|filter| !tests.iter().any(|test| test.contains(filter))).collect()
}

/// Returns arguments that test these packages, or in the short form the libraries without C dependencies.
fn args(build: &[&'static str], packages: Option<&[&'static str]>) -> Vec<&'static str> {
    packages.map_or_else(|| [build, &LIBRARIES, &[WITHOUT_C]].concat(), |packages| [build, packages].concat())
}

fn recipe(kind: &str, long: bool) -> Result<Recipe, String> {
    Ok(match kind {
        "loom" => Recipe {
            name: "loom",
            rustflags: "--cfg loom",
            env: if long { &[("LOOM_MAX_PREEMPTIONS", "3")] } else { &[NOT_OPTIMISED] },
            args: vec!["test", "-p", "esker", "--lib", WITHOUT_C],
            filters: LOOM_MODELS,
            canaries: &[],
        },
        "address" => Recipe {
            name: "address",
            // It detects accesses beyond a buffer only if each has its own allocation.
            rustflags: "-Zsanitizer=address --cfg esker_plain_pages",
            // Memory left to the epochs at the end of the process is not a leak.
            env: if long {
                &[("ASAN_OPTIONS", "detect_leaks=0")]
            } else {
                &[("ASAN_OPTIONS", "detect_leaks=0"), NOT_OPTIMISED]
            },
            args: args(
                &["+nightly", "test", "--target", TARGET],
                long.then_some(&["-p", "esker", "-p", "esker-env", "-p", "esker-fuzz-targets", "--tests"]),
            ),
            filters: if long { &[] } else { UNSAFE_PARTS },
            canaries: canary::ADDRESS,
        },
        "thread" => Recipe {
            name: "thread",
            rustflags: "-Zsanitizer=thread --cfg esker_plain_pages",
            env: &[],
            args: args(
                &["+nightly", "test", "-Zbuild-std", "--target", TARGET],
                long.then_some(&["-p", "esker", "-p", "esker-env", "--tests"]),
            ),
            filters: if long { &[] } else { UNSAFE_PARTS },
            canaries: canary::THREAD,
        },
        "valgrind" => Recipe {
            name: "valgrind",
            // valgrind lacks AVX-512; the engine detects at run time what is available.
            rustflags: "",
            env: &[(
                "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
                "valgrind --quiet --error-exitcode=1 --leak-check=no --fair-sched=yes",
            )],
            args: args(&["test"], long.then_some(&LIBRARIES)),
            filters: if long { UNSAFE_PARTS } else { VALGRIND_PARTS },
            canaries: canary::VALGRIND,
        },
        "miri" => Recipe {
            name: "miri",
            rustflags: "",
            // Tree borrows, because crossbeam's epochs violate the older stacked borrows.
            env: &[(
                "MIRIFLAGS",
                "-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation",
            )],
            args: args(&["+nightly", "miri", "test"], None),
            filters: if long { INTERPRETED_PARTS } else { MIRI_PARTS },
            canaries: canary::MIRI,
        },
        _ => {
            let names: Vec<_> = KINDS.iter().map(|k| k.0).collect();
            return Err(format!("`{kind}` is not a kind of check; kinds are {}", names.join(", ")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_recipe_in_a_folder_of_its_own() {
        for (kind, _) in KINDS {
            for long in [false, true] {
                assert_eq!(recipe(kind, long).map(|r| r.name), Ok(*kind));
            }
        }
        assert!(recipe("luck", false).is_err_and(|e| e.contains("thread")));
    }

    #[test]
    fn a_filter_that_selects_no_test_is_found() {
        let lines = [
            "running 2 tests",
            "test memtable::arena::tests::aligned ... ok",
            "test cache::budget::tests::canary - should panic ... ok",
            "test sstable::cursor::tests::slow ... ignored",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out",
        ];
        let tests: Vec<_> = lines.iter().filter_map(|line| test_name(line)).collect();
        assert_eq!(tests, ["memtable::arena::tests::aligned", "cache::budget::tests::canary"]);
        assert_eq!(idle_filters(&["memtable::", "sstable::cursor", "cache::"], &tests), ["sstable::cursor"]);
        assert_eq!(idle_filters(&["memtable::"], &[]), ["memtable::"]);
        assert_eq!(idle_filters(&[], &tests), [""; 0]);
    }
}
