//! Checks the bindings for other languages: the C API here, the others in a file each.
//!
//! ```text
//!   header:   crates/esker-c/src --cbindgen--> include/esker.h, compared with the file or written to it
//!   bindings: header, then the C and C++ programs: alone, under valgrind, with AddressSanitizer
//! ```
//!
//! cbindgen is installed below `target/tools` in its exact version, once.

mod go;
mod java;
mod node;
mod python;

use std::fs;
use std::process::Command;

use crate::cargo::{program, root, target_dir};

const CBINDGEN_VERSION: &str = "0.29.4";
const VALGRIND: &str = "valgrind -q --leak-check=full --show-leak-kinds=definite,indirect \
                        --errors-for-leak-kinds=definite,indirect --error-exitcode=9";

/// Checks the header and tests the bindings. Returns whether all is well.
pub(crate) fn run() -> Result<bool, String> {
    if !header(false)? {
        return Ok(false);
    }
    let mut is_well = succeeds(&mut test())?;
    if Command::new("valgrind").arg("--version").output().is_ok() {
        is_well &= succeeds(test().env("ESKER_C_UNDER", VALGRIND))?;
    } else {
        println!("there is no valgrind here: the C programs do not run under it");
    }
    let with = |compiler: &str| format!("{compiler} -fsanitize=address,undefined");
    is_well &= succeeds(test().env("ESKER_CC", with("cc")).env("ESKER_CXX", with("c++")))?;
    is_well &= java::test()?;
    is_well &= node::run()?;
    is_well &= go::test()?;
    is_well &= python::run()?;
    Ok(is_well)
}

/// Makes the header of the C API. Writes it, or compares it with the one that is there.
pub(crate) fn header(write: bool) -> Result<bool, String> {
    let made = made_header()?;
    let path = root().join("crates/esker-c/include/esker.h");
    if write {
        return fs::write(&path, made).map(|()| true).map_err(|e| format!("{}: {e}", path.display()));
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|there| there == made);
    if !is_current {
        println!("{} is not what its Rust code says: cargo xtask header", path.display());
    }
    Ok(is_current)
}

fn made_header() -> Result<String, String> {
    let tools = target_dir().join("tools");
    let cbindgen = tools.join("bin/cbindgen");
    let is_there = Command::new(&cbindgen)
        .arg("--version")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(CBINDGEN_VERSION));
    if !is_there {
        let mut install = program("cargo");
        install.args(["install", "cbindgen", "--version", CBINDGEN_VERSION, "--locked", "--force", "--root"]);
        if !succeeds(install.arg(&tools))? {
            return Err(format!("cbindgen {CBINDGEN_VERSION} cannot be installed"));
        }
    }
    let mut run = program(&cbindgen.to_string_lossy());
    let output = run
        .current_dir(root().join("crates/esker-c"))
        .args(["--quiet", "--config", "cbindgen.toml", "."])
        .output()
        .map_err(|e| format!("cbindgen: {e}"))?;
    if !output.status.success() {
        return Err(format!("cbindgen: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8(output.stdout).map_err(|e| format!("cbindgen: {e}"))?;
    Ok(text.replace("ErrorPlace error", "esker_error **error"))
}

fn test() -> Command {
    let mut command = program("cargo");
    command.args(["test", "--quiet", "-p", "esker-c"]);
    command
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    println!("{command:?}");
    command.status().map(|status| status.success()).map_err(|e| format!("{command:?}: {e}"))
}
