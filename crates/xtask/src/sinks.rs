//! Tests `esker feed --to` against a NATS server and a Kafka broker.
//!
//! ```text
//!   Go's module proxy --> nats-server, Maven Central --> Kafka's jars --> tests of esker-cli, by features
//! ```
//!
//! Both have pinned versions, and are installed below `target/sinks`. Without a server its tests are left
//! out; with `ESKER_REQUIRE=sinks` this is an error.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cargo::{program, root, target_dir};

const NATS: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

/// Installs the servers and runs the tests. Returns whether they succeed.
pub(crate) fn run() -> Result<bool, String> {
    let dir = root().join(target_dir()).join("sinks");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let found = [("nats", "ESKER_NATS_SERVER", nats(&dir)), ("kafka", "ESKER_KAFKA", kafka(&dir))];
    let is_required = std::env::var("ESKER_REQUIRE").is_ok_and(|list| list.contains("sinks"));
    let mut features = Vec::new();
    let mut tests = program("cargo");
    for (feature, variable, found) in found {
        match found {
            Some(path) => {
                features.push(feature);
                tests.env(variable, path);
            }
            None if is_required => return Err(format!("the server of {feature} cannot be installed here")),
            None => println!("the server of {feature} cannot be installed here: its tests are left out"),
        }
    }
    let features = features.join(",");
    let mut clippy = program("cargo");
    clippy.args([
        "clippy",
        "-p",
        "esker-cli",
        "--all-targets",
        "--features",
        &features,
        "--",
        "-D",
        "warnings",
    ]);
    tests.args(["test", "-p", "esker-cli", "--features", &features, "--test", "it", "--", "sinks::"]);
    for mut command in [clippy, tests] {
        if !command.status().map_err(|e| format!("cargo: {e}"))?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Installs the NATS server. Returns its program.
fn nats(dir: &Path) -> Option<PathBuf> {
    let server = dir.join("nats-server");
    let mut go = program("go");
    go.args(["install", NATS]).env("GOBIN", dir).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
    let is_there = server.exists() || go.current_dir(dir).status().is_ok_and(|status| status.success());
    is_there.then_some(server)
}

/// Copies the jars of a Kafka broker. Returns their directory.
fn kafka(dir: &Path) -> Option<PathBuf> {
    let java = program("java").arg("-version").stderr(Stdio::null()).status();
    if !java.is_ok_and(|status| status.success()) {
        return None;
    }
    let jars = dir.join("kafka");
    let mut maven = program("mvn");
    maven.args(["-q", "-B", "dependency:copy-dependencies", "-f", "crates/xtask/sinks/pom.xml"]);
    maven.arg(format!("-DoutputDirectory={}", jars.display()));
    let is_there = jars.join("kafka_2.13-4.3.1.jar").exists() || maven.status().is_ok_and(|s| s.success());
    is_there.then_some(jars)
}
