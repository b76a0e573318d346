//! Loads the module that cargo has built into the Python of this machine, and runs `smoke.py` with it. All
//! other tests of the binding need packages: `cargo xtask bindings` runs them.
//!
//! ```text
//!   lib_esker.so --copied to--> DIRECTORY/esker/_esker.abi3.so   beside the files of python/esker
//!   PYTHONPATH=DIRECTORY python3 tests/smoke.py
//! ```

#![cfg(unix)]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests: what is missing ends them")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Exits with 0 if the interpreter is new enough.
const NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 10))";

#[test]
fn the_module_works_in_an_interpreter() {
    if !Command::new("python3").args(["-c", NEW_ENOUGH]).status().is_ok_and(|status| status.success()) {
        println!("there is no Python 3.10 or newer as python3: the Python module is not tested");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    copy_files(&source.join("python/esker"), &dir.path().join("esker"));
    let program = std::env::current_exe().unwrap();
    let library = program.with_file_name(format!("lib_esker{}", std::env::consts::DLL_SUFFIX));
    fs::copy(library, dir.path().join("esker/_esker.abi3.so")).unwrap();
    let mut run = Command::new("python3");
    run.arg("-B").arg(source.join("tests/smoke.py")).arg(dir.path().join("db"));
    let output = run.env("PYTHONPATH", dir.path()).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text == "ok\n", "{text}{errors}");
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_files(&path, &copy);
        } else {
            fs::copy(&path, copy).unwrap();
        }
    }
}
