//! Tests the Go binding: the module in bindings/go and that of its adapters.
//!
//! ```text
//!   cargo build (C library, `esker`) --> go vet, go test, go test -race --> the same for the adapters
//! ```

use std::path::Path;
use std::process::Command;

use super::succeeds;
use crate::cargo::{program, root, target_dir};

/// Returns whether all tests pass. Without Go none run.
pub(super) fn test() -> Result<bool, String> {
    if Command::new("go").arg("version").output().is_err() {
        println!("there is no Go here: the Go binding is not tested");
        return Ok(true);
    }
    if !succeeds(program("cargo").args(["build", "--quiet", "-p", "esker-c", "-p", "esker-cli"]))? {
        return Ok(false);
    }
    let module = root().join("bindings/go");
    let adapters = module.join("adapters");
    let mut is_well = succeeds(&mut go(&module, &["vet"]))?;
    is_well &= succeeds(&mut go(&module, &["test", "-count=1"]))?;
    is_well &= succeeds(go(&module, &["test", "-count=1", "-race"]).env("GODEBUG", "cgocheck=1"))?;
    is_well &= succeeds(&mut go(&adapters, &["vet"]))?;
    is_well &= succeeds(&mut go(&adapters, &["test", "-count=1"]))?;
    Ok(is_well)
}

/// Runs the tool on all packages of a module, with the library that cargo has built.
fn go(module: &Path, arguments: &[&str]) -> Command {
    let built = root().join(target_dir()).join("debug");
    let mut command = program("go");
    command.current_dir(module).args(arguments).args(["-tags", "esker_source", "./..."]);
    command.env("GOTOOLCHAIN", "local");
    command.env("CGO_LDFLAGS", format!("-L{}", built.display())).env("ESKER_PROGRAM", built.join("esker"));
    command
}
