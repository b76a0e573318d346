//! Starts cargo from within a program that cargo itself has started.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/xtask has two parents")
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}

/// A program of the toolchain, in the root of the repository, free to choose another toolchain.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    // Set by the cargo that runs this, for its own toolchain.
    command.current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
    command
}
