//! Passes the versions of the lab's dependencies from Cargo.lock to the adapters: `env!("VERSION_REDB")`.

use std::path::Path;

fn main() {
    let manifest_dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts");
    let lock = Path::new(&manifest_dir).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).expect("cargo writes it before it builds");
    let package = |name: &str| {
        let line = format!("name = \"{name}\"\n");
        text.split("[[package]]").find(|package| package.contains(&line)).expect("the lock file is whole")
    };
    let lab = package("esker-bench");
    let (_, dependencies) = lab.split_once("dependencies = [").expect("the lab has peers");
    for dependency in dependencies.lines().filter_map(quoted) {
        // A name, followed by a version if the lock file has several.
        let (name, version) = match dependency.split_once(' ') {
            Some((name, rest)) => (name, rest.split(' ').next()),
            None => {
                let mut lines = package(dependency).lines();
                (dependency, lines.find_map(|line| quoted(line.strip_prefix("version = ")?)))
            }
        };
        let variable = name.to_uppercase().replace('-', "_");
        println!("cargo::rustc-env=VERSION_{variable}={}", version.unwrap_or("unknown"));
    }
}

/// Returns the text between the first two quotation marks.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}
