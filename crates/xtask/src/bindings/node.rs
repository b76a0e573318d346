//! The Node binding: checks and builds the addon, and runs the tests of `bindings/node`.

use std::process::Command;

use crate::cargo::{program, root};

/// Returns whether all is well, also if there is no Node here.
pub(super) fn run() -> Result<bool, String> {
    if Command::new("node").arg("--version").output().is_err() {
        println!("there is no Node here: its binding is not tested");
        return Ok(true);
    }
    let folder = root().join("bindings/node");
    let mut lint = program("cargo");
    lint.args(["clippy", "-p", "esker-node", "--locked", "--", "-D", "warnings"]);
    if !super::succeeds(&mut lint)? {
        return Ok(false);
    }
    for words in [&["node", "scripts/build.js"][..], &["npm", "ci"], &["npm", "test"]] {
        let mut command = program(words[0]);
        if !super::succeeds(command.args(&words[1..]).current_dir(&folder))? {
            return Ok(false);
        }
    }
    Ok(true)
}
