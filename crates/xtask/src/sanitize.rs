//! Runs the tests of the parts with unsafe or lock-free code under the tools that see what tests alone do not.
//!
//! ```text
//!   cargo xtask sanitize KIND [--long] --> Recipe: environment, program, arguments --> its exit status
//! ```
//!
//! Each kind builds into a folder of its own below `target`, as its flags apply to every crate.

use crate::cargo;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The modules with unsafe code, by the names of their tests.
const UNSAFE_PARTS: &[&str] = &[
    "memtable::",
    "cache::",
    "encoding::bloom::",
    "sstable::block",
    "sstable::cursor",
    "read::view_cell",
    "types::value",
    "txn::queue",
    "txn::snapshots",
];

/// Those of them that an interpreter finishes in minutes.
const MIRI_PARTS: &[&str] =
    &["memtable::permutation", "memtable::arena", "memtable::tests::small", "cache::budget", "types::value"];

/// What a tool is told.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    /// The folder below `target`, and the flags for the compiler.
    name: &'static str,
    rustflags: &'static str,
    env: &'static [(&'static str, &'static str)],
    args: Vec<&'static str>,
}

/// The kinds, with a line of help each.
pub(crate) const KINDS: &[(&str, &str)] = &[
    ("loom", "models of the lock-free parts, in every interleaving"),
    ("address", "AddressSanitizer: use after free, out of bounds (nightly)"),
    ("thread", "ThreadSanitizer: data races (nightly with rust-src)"),
    ("valgrind", "valgrind's memcheck: also memory that was never written"),
    ("miri", "Miri: undefined behaviour by the language's rules (nightly with miri and rust-src)"),
];

/// Runs one kind; whether it found nothing.
pub(crate) fn run(kind: &str, long: bool) -> Result<bool, String> {
    let recipe = recipe(kind, long)?;
    let mut command = cargo::program("cargo");
    command.args(&recipe.args).envs(recipe.env.iter().copied()).env("RUSTFLAGS", recipe.rustflags);
    command.env("CARGO_TARGET_DIR", cargo::target_dir().join(recipe.name));
    println!("{}: RUSTFLAGS='{}' cargo {}", recipe.name, recipe.rustflags, recipe.args.join(" "));
    let status = command.status().map_err(|e| format!("cargo cannot be started: {e}"))?;
    Ok(status.success())
}

fn recipe(kind: &str, long: bool) -> Result<Recipe, String> {
    let parts = UNSAFE_PARTS.iter().copied();
    let library = ["-p", "esker", "--lib"];
    Ok(match kind {
        "loom" => Recipe {
            name: "loom",
            rustflags: "--cfg loom",
            env: if long { &[("LOOM_MAX_PREEMPTIONS", "3")] } else { &[] },
            args: [&["test"], &library[..], &["models"]].concat(),
        },
        "address" => Recipe {
            name: "address",
            rustflags: "-Zsanitizer=address",
            // Epochs give their last garbage to nobody when the process ends.
            env: &[("ASAN_OPTIONS", "detect_leaks=0")],
            args: if long {
                let all = [
                    "+nightly",
                    "test",
                    "--target",
                    TARGET,
                    "-p",
                    "esker",
                    "-p",
                    "esker-env",
                    "-p",
                    "esker-fuzz-targets",
                    "--tests",
                ];
                all.to_vec()
            } else {
                [&["+nightly", "test", "--target", TARGET], &library[..], &["--"]]
                    .concat()
                    .into_iter()
                    .chain(parts)
                    .collect()
            },
        },
        "thread" => Recipe {
            name: "thread",
            rustflags: "-Zsanitizer=thread",
            env: &[],
            args: if long {
                vec!["+nightly", "test", "-Zbuild-std", "--target", TARGET, "-p", "esker", "--tests"]
            } else {
                let build = ["+nightly", "test", "-Zbuild-std", "--target", TARGET];
                [&build[..], &library[..], &["--"]].concat().into_iter().chain(parts).collect()
            },
        },
        "valgrind" => Recipe {
            name: "valgrind",
            // valgrind knows no AVX-512; the engine chooses at run time, by what valgrind says there is.
            rustflags: "",
            env: &[(
                "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
                "valgrind --quiet --error-exitcode=1 --leak-check=no --fair-sched=yes",
            )],
            args: {
                let short = ["memtable::", "sstable::block", "types::value"];
                let parts = if long { UNSAFE_PARTS } else { &short };
                [&["test"], &library[..], &["--"], parts].concat()
            },
        },
        "miri" => Recipe {
            name: "miri",
            rustflags: "",
            env: &[(
                "MIRIFLAGS",
                "-Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation",
            )],
            args: {
                let parts = if long { UNSAFE_PARTS } else { MIRI_PARTS };
                let library = ["-p", "esker", "--lib", "--no-default-features"];
                [&["+nightly", "miri", "test"], &library[..], &["--"], parts].concat()
            },
        },
        _ => {
            let names: Vec<_> = KINDS.iter().map(|k| k.0).collect();
            return Err(format!("`{kind}` is no kind of check: {} are", names.join(", ")));
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
}
