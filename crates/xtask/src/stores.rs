//! Tests the stores of `esker-kv`, and backups in S3, against servers.
//!
//! ```text
//!   apt: PostgreSQL ------------.
//!   PyPI: moto, an S3 server ----+--> tests of esker-kv, by features; tests of esker-backup-s3
//!   Go's module proxy: mocktikv -|
//!   this repository: esker ------'
//! ```
//!
//! All but PostgreSQL are installed below `target/stores`. Without a server the tests that need it are left
//! out; with `ESKER_REQUIRE=stores` this is an error.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cargo::{program, root, target_dir};

const MOTO: &str = "moto[server]==5.2.5";

/// Installs the servers and runs the tests. Returns whether they succeed.
pub(crate) fn run() -> Result<bool, String> {
    let dir = root().join(target_dir()).join("stores");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let moto = moto(&dir);
    let of_kv = |feature| vec!["-p", "esker-kv", "--features", feature, "--lib", "--test", feature];
    let backups = vec!["-p", "esker-backup-s3"];
    let tool = vec!["-p", "esker-cli", "--features", "s3", "--test", "s3"];
    let stores = [
        (of_kv("postgres"), "ESKER_POSTGRES", postgres()),
        (of_kv("slatedb"), "ESKER_MOTO_SERVER", moto.clone()),
        (of_kv("tikv"), "ESKER_TIKV_MOCK", tikv(&dir)),
        (of_kv("client"), "ESKER_SERVE", esker()),
        (backups, "ESKER_MOTO_SERVER", moto.clone()),
        (tool, "ESKER_MOTO_SERVER", moto),
    ];
    for (arguments, variable, found) in stores {
        let mut clippy = program("cargo");
        // The package and its features.
        let targets = arguments.iter().position(|argument| ["--lib", "--test"].contains(argument));
        clippy.arg("clippy").args(&arguments[..targets.unwrap_or(arguments.len())]).arg("--all-targets");
        clippy.args(["--", "-D", "warnings"]);
        let mut tests = program("cargo");
        tests.arg("test").args(&arguments);
        match found {
            Some(path) => drop(tests.env(variable, path)),
            None => println!("{variable} cannot be installed here: tests with this server are left out"),
        }
        for mut command in [clippy, tests] {
            if !command.status().map_err(|e| format!("cargo: {e}"))?.success() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Compiles the tool. Returns its program.
fn esker() -> Option<PathBuf> {
    let built = program("cargo").args(["build", "-q", "-p", "esker-cli"]).status();
    let path = std::path::absolute(target_dir().join("debug/esker")).ok()?;
    built.ok().filter(|status| status.success()).map(|_| path)
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

/// Installs moto, an S3 server. Returns its program.
fn moto(dir: &Path) -> Option<PathBuf> {
    let bin = dir.join("moto/bin");
    let server = bin.join("moto_server");
    if !server.exists() {
        let made = program("python3").args(["-m", "venv"]).arg(dir.join("moto")).status();
        let pip = || program(&bin.join("pip").to_string_lossy()).args(["install", "-q", MOTO]).status();
        made.ok().filter(|status| status.success()).and_then(|_| pip().ok())?;
    }
    server.exists().then_some(server)
}

/// Builds the servers of TiKV's protocol. Returns their program.
fn tikv(dir: &Path) -> Option<PathBuf> {
    let server = dir.join("tikv-mock");
    let mut go = program("go");
    go.args(["build", "-o"]).arg(&server).arg(".").env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
    let built = go.current_dir(root().join("crates/esker-kv/tests/tikv-mock")).status();
    built.is_ok_and(|status| status.success()).then_some(server)
}
