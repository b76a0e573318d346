//! Hands the versions of the peers' crates, as Cargo.lock pins them, to the adapters: `env!("VERSION_REDB")`.

use std::path::Path;

const PEERS: &[&str] =
    &["bf-tree", "canopydb", "fjall", "heed", "persy", "redb", "sanakirja", "signet-libmdbx", "sled"];

fn main() {
    let manifest_dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts");
    let lock = Path::new(&manifest_dir).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    for peer in PEERS {
        let version = text
            .split("[[package]]")
            .find(|package| package.contains(&format!("name = \"{peer}\"\n")))
            .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
            .unwrap_or("unknown");
        println!("cargo::rustc-env=VERSION_{}={version}", peer.to_uppercase().replace('-', "_"));
    }
}
