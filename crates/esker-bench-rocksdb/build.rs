//! Hands the version of the `rocksdb` crate to the adapter, from the lock file of the workspace that builds
//! it.

use std::path::Path;

fn main() {
    let manifest_dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts");
    let lock = Path::new(&manifest_dir).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    for (crate_name, variable) in
        [("rocksdb", "VERSION_ROCKSDB"), ("librocksdb-sys", "VERSION_LIBROCKSDB_SYS")]
    {
        let version = text
            .split("[[package]]")
            .find(|package| package.contains(&format!("name = \"{crate_name}\"\n")))
            .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
            .unwrap_or("unknown");
        println!("cargo::rustc-env={variable}={version}");
    }
}
