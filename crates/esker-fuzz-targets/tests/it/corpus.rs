//! Runs all files of the fuzzers' corpus without a fuzzer, as regression tests.
//!
//! ```text
//!   fuzz/corpus/TARGET/* --> TARGETS
//! ```
#![expect(clippy::disallowed_methods, reason = "it reads the repository")]

use std::fs;
use std::path::{Path, PathBuf};

use esker_fuzz_targets::TARGETS;

use crate::own_process;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Returns the inputs of a directory. Panics if there are none.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a folder that can be read").path());
    let mut inputs: Vec<_> =
        paths.map(|path| (path.clone(), fs::read(path).expect("a file that can be read"))).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{}: no inputs", folder.display());
    inputs
}

/// Names the input if the test panics.
struct Report<'a>(&'static str, &'a Path);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: cargo run -p esker-fuzz-targets -- replay {} fuzz/corpus/{}/{}",
                self.0,
                self.0,
                self.1.file_name().unwrap_or_default().display()
            );
        }
    }
}

#[test]
fn every_input_of_the_corpus_still_passes() {
    own_process::run(|| {
        for target in TARGETS {
            for (path, bytes) in inputs(&corpus().join(target.name)) {
                let _report = Report(target.name, &path);
                (target.run)(&bytes);
            }
        }
    });
}

#[test]
fn the_corpus_has_no_folder_without_a_target_and_stays_small() {
    let mut folders: Vec<_> =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut targets: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    folders.sort();
    targets.sort();
    assert_eq!(folders, targets);
    let sizes = TARGETS.iter().flat_map(|target| inputs(&corpus().join(target.name)));
    let sizes: Vec<_> = sizes.map(|(_, bytes)| bytes.len()).collect();
    assert!(sizes.len() <= 800 && sizes.iter().sum::<usize>() <= 1 << 20, "minimise it: docs/testing.md");
}

#[test]
#[should_panic(expected = "no inputs")]
fn an_empty_folder_is_noticed() {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    fs::create_dir_all(&empty).unwrap();
    inputs(&empty);
}

#[test]
#[should_panic(expected = "nothing-here")]
fn a_missing_folder_is_noticed() {
    inputs(&corpus().join("nothing-here"));
}
