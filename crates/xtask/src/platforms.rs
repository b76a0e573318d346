//! Tests the engine and the tool on other systems, under emulators.
//!
//! ```text
//!   Debian: rustc-web, rust-web-src --build-std--> tests for a target --> wine, qemu-user
//! ```
//!
//! The standard library is compiled from its sources, so that no toolchain of another target is needed. The
//! packages are installed if the system is Debian; otherwise the command says what is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{program, root, target_dir};

/// A system, and what is run on it.
struct Platform {
    name: &'static str,
    target: &'static str,
    linker: &'static str,
    /// The emulator and its arguments.
    runner: &'static str,
    /// Packages of Debian, beside those of the compiler.
    packages: &'static [&'static str],
    /// Arguments of `cargo test`, for each run.
    runs: &'static [&'static [&'static str]],
}

const COMPILER: &[&str] = &["rustc-web", "cargo-web", "rust-web-src"];

const ALL: &[Platform] = &[
    Platform {
        name: "windows",
        target: "x86_64-pc-windows-gnu",
        linker: "x86_64-w64-mingw32-gcc-posix",
        runner: "wine",
        packages: &["gcc-mingw-w64-x86-64-posix", "g++-mingw-w64-x86-64-posix", "wine", "wine64"],
        runs: &[&["-p", "esker-env", "-p", "esker", "--lib", "--tests"]],
    },
    Platform {
        name: "arm",
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
        runner: "qemu-aarch64 -L /usr/aarch64-linux-gnu",
        packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"],
        runs: &[&["-p", "esker-env", "-p", "esker", "--lib", "--tests"]],
    },
    // Big-endian: for the formats.
    Platform {
        name: "s390x",
        target: "s390x-unknown-linux-gnu",
        linker: "s390x-linux-gnu-gcc",
        runner: "qemu-s390x -L /usr/s390x-linux-gnu",
        packages: &["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user"],
        runs: &[&["-p", "esker", "--lib"], &["-p", "esker", "--test", "it", "--", "goldens::", "formats::"]],
    },
];

/// Names of all platforms.
pub(crate) fn names() -> String {
    ALL.iter().map(|platform| platform.name).collect::<Vec<_>>().join(", ")
}

/// Tests these platforms, or all. Returns whether the tests succeed.
pub(crate) fn run(names_wanted: &[&str]) -> Result<bool, String> {
    if let Some(unknown) = names_wanted.iter().find(|name| ALL.iter().all(|one| one.name != **name)) {
        return Err(format!("no platform has the name {unknown}: {}", names()));
    }
    let mut all_passed = true;
    for platform in ALL.iter().filter(|one| names_wanted.is_empty() || names_wanted.contains(&one.name)) {
        if !platform.is_ready() {
            let packages = [COMPILER, platform.packages].concat().join(" ");
            println!("{}: not tested, packages of Debian are missing: {packages}", platform.name);
            all_passed &= std::env::var_os("ESKER_REQUIRE").is_none_or(|what| what != "platforms");
            continue;
        }
        for arguments in platform.runs {
            println!("{}: cargo test {}", platform.name, arguments.join(" "));
            all_passed &= platform.test(arguments)?;
        }
    }
    Ok(all_passed)
}

impl Platform {
    fn is_ready(&self) -> bool {
        let runner = self.runner.split(' ').next().unwrap_or_default();
        let is_there = || {
            let has_sources =
                Path::new("/usr/lib/rustlib/src").exists() || Path::new("/usr/src/rustc").exists();
            has_sources
                && ["rustc", self.linker, runner].iter().all(|name| Path::new("/usr/bin").join(name).exists())
        };
        if !is_there() {
            let mut apt = program("apt-get");
            apt.args(["install", "-y", "--no-install-recommends"]).args(COMPILER).args(self.packages);
            apt.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).stderr(Stdio::null());
            let _ = apt.status();
        }
        is_there()
    }

    fn test(&self, arguments: &[&str]) -> Result<bool, String> {
        let dir = target_dir().join("platforms");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let dir = std::path::absolute(dir).map_err(|e| e.to_string())?;
        let variable =
            |what: &str| format!("CARGO_TARGET_{}_{what}", self.target.to_uppercase().replace('-', "_"));
        let mut cargo = program("/usr/bin/cargo");
        cargo.args(["test", "-Z", "build-std=std,panic_unwind", "--target", self.target]).args(arguments);
        // The compiler of the distribution, whose sources build the library. It is stable: `-Z` needs this.
        cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &dir);
        cargo.env("PATH", "/usr/bin:/bin").env(variable("LINKER"), self.linker);
        cargo.env(variable("RUNNER"), self.runner);
        if self.runner == "wine" {
            let prefix = wine(&dir)?;
            let windows_dir = format!("Z:{}", dir.display()).replace('/', "\\");
            cargo.env("WINEPREFIX", &prefix).env("WINEDEBUG", "-all").env("WINEPATH", windows_dir);
        }
        status(cargo)
    }
}

/// Makes the directory of a Windows system. Wine 8 lacks a library that Rust takes random numbers from: this
/// one is found through WINEPATH.
fn wine(dir: &Path) -> Result<PathBuf, String> {
    let source = root().join("crates/xtask/src/platforms/process_prng.c");
    let library = dir.join("bcryptprimitives.dll");
    if !library.exists() {
        let mut gcc = program("x86_64-w64-mingw32-gcc-posix");
        gcc.args(["-shared", "-O1", "-o"]).arg(&library).arg(source).arg("-ladvapi32");
        if !status(gcc)? {
            return Err("mingw cannot build bcryptprimitives.dll".to_owned());
        }
    }
    Ok(dir.join("wine"))
}

fn status(mut command: Command) -> Result<bool, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.status().map(|status| status.success()).map_err(|e| format!("{name}: {e}"))
}
