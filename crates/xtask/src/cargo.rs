//! Starts cargo from a program that cargo started.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/xtask has two parents")
}

/// Returns cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}

/// Returns a command for a program of the toolchain, in the root of the repository, that may select another
/// toolchain.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    // The parent cargo set these for its own toolchain.
    command.current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
    command
}
