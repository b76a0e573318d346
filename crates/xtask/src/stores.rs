//! Tests the stores of `esker-kv` against servers.
//!
//! ```text
//!   apt: PostgreSQL --> tests of esker-kv, by features
//! ```
//!
//! Without a server the tests that need it are left out; with `ESKER_REQUIRE=stores` this is an error.

use std::path::PathBuf;
use std::process::Stdio;

use crate::cargo::program;

/// Installs the servers and runs the tests. Returns whether they succeed.
pub(crate) fn run() -> Result<bool, String> {
    let stores = [("postgres", "ESKER_POSTGRES", postgres())];
    for (feature, variable, found) in stores {
        let mut clippy = program("cargo");
        clippy.args(["clippy", "-p", "esker-kv", "--all-targets", "--features", feature]);
        clippy.args(["--", "-D", "warnings"]);
        let mut tests = program("cargo");
        tests.args(["test", "-p", "esker-kv", "--features", feature, "--lib", "--test", feature]);
        match found {
            Some(path) => drop(tests.env(variable, path)),
            None => println!("the server of {feature} cannot be installed here: its tests are left out"),
        }
        for mut command in [clippy, tests] {
            if !command.status().map_err(|e| format!("cargo: {e}"))?.success() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Installs PostgreSQL from the distribution. Returns the directory of its programs.
fn postgres() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ESKER_POSTGRES") {
        return Some(dir.into());
    }
    for arguments in [&["update"][..], &["install", "-y", "--no-install-recommends", "postgresql"]] {
        if let Some(dir) = installed_postgres() {
            return Some(dir);
        }
        let mut apt = program("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        apt.stderr(Stdio::null()).status().ok()?;
    }
    installed_postgres()
}

/// Returns the programs of the newest release that Debian's packages have installed.
fn installed_postgres() -> Option<PathBuf> {
    let releases = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let dirs = releases.flatten().map(|release| release.path().join("bin"));
    dirs.filter(|dir| dir.join("initdb").exists()).max()
}
