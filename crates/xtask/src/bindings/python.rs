//! Builds and tests the Python binding.
//!
//! ```text
//!   bindings/python --maturin--> sdist --maturin--> wheel --pip--> a venv below target/ --> pytest, mypy
//! ```
//!
//! Needs Python 3.10 or newer as `python3`, or is left out. Packages come from PyPI.

use std::fs;
use std::path::{Path, PathBuf};

use super::succeeds;
use crate::cargo::{program, root, target_dir};

const TOOLS: [&str; 11] = [
    "maturin==1.16.0",
    "pytest==9.2.0",
    "mypy==2.4.1",
    "msgpack>=1",
    "pip>=23",
    // Interfaces that modules of the binding implement, and what their tests need.
    "langgraph==1.2.24",
    "langgraph-checkpoint==4.3.2",
    "langgraph-checkpoint-conformance==0.0.2",
    "py-key-value-aio==0.5.0",
    "pytest-asyncio==1.5.0",
    "pytest-mock==3.15.1",
];

/// Builds the wheel from the source distribution, and runs the tests with it. Returns whether all is well.
pub(crate) fn run() -> Result<bool, String> {
    if program("python3").arg("--version").output().is_err() {
        println!("there is no python3 here: the Python binding is not tested");
        return Ok(true);
    }
    let venv = target_dir().join("python-venv");
    let python = venv.join("bin/python");
    if !python.exists() && !succeeds(program("python3").args(["-m", "venv"]).arg(&venv))? {
        return Err("python3 cannot make a virtual environment".to_owned());
    }
    let mut install = program(&python.to_string_lossy());
    if !succeeds(install.args(["-m", "pip", "install", "--quiet"]).args(TOOLS))? {
        return Err("the tools for Python cannot be installed".to_owned());
    }
    let wheels = target_dir().join("python-wheels");
    // Wheels of earlier runs.
    let _ = fs::remove_dir_all(&wheels);
    let manifest = root().join("bindings/python/Cargo.toml");
    let mut build = program(&python.to_string_lossy());
    build.args(["-m", "maturin", "build", "--sdist", "--profile", "dev", "--manifest-path"]).arg(&manifest);
    if !succeeds(build.arg("--out").arg(&wheels))? {
        return Ok(false);
    }
    let mut install = program(&python.to_string_lossy());
    install.args(["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"]);
    if !succeeds(install.arg(wheel_in(&wheels)?))? {
        return Ok(false);
    }
    // Beside the tests there is no package `esker` that would come before the installed one.
    let mut test = program(&python.to_string_lossy());
    test.current_dir(root().join("bindings/python/tests"));
    succeeds(test.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "."]))
}

fn wheel_in(directory: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let wheel = paths.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| format!("there is no wheel in {}", directory.display()))
}
