//! Tests the Java binding with Maven, if there is a JDK with the foreign function interface.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::succeeds;
use crate::cargo::{program, root, target_dir};

/// The first version of Java with the foreign function interface.
const VERSION_MIN: u32 = 22;
/// Directories whose entries are JDKs.
const USUAL_PLACES: &[&str] = &["/usr/lib/jvm", "/opt/java", "/Library/Java/JavaVirtualMachines"];

/// Builds the library and runs `mvn test`. Returns whether all is well, also if nothing can be tested here.
pub(super) fn test() -> Result<bool, String> {
    let Some(jdk) = jdk() else {
        println!("there is no JDK {VERSION_MIN} or newer here (JAVA_HOME): the Java binding is not tested");
        return Ok(true);
    };
    let has_maven =
        Command::new("mvn").arg("--version").env("JAVA_HOME", &jdk).stdout(Stdio::null()).status();
    if !has_maven.is_ok_and(|status| status.success()) {
        println!("there is no Maven here (mvn): the Java binding is not tested");
        return Ok(true);
    }
    if !succeeds(program("cargo").args(["build", "--quiet", "-p", "esker-c"]))? {
        return Ok(false);
    }
    let library = root().join(target_dir()).join("debug").join(format!("{DLL_PREFIX}esker_c{DLL_SUFFIX}"));
    let mut maven = program("mvn");
    maven.current_dir(root().join("bindings/java")).args(["-q", "-B", "test"]);
    succeeds(maven.env("JAVA_HOME", jdk).env("ESKER_LIBRARY", library))
}

/// Finds a JDK that is new enough: the one of `JAVA_HOME`, or one in the usual places.
fn jdk() -> Option<PathBuf> {
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let found = USUAL_PLACES.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let found = found.flat_map(|entry| [entry.path(), entry.path().join("Contents/Home")]);
    named.into_iter().chain(found).find(|path| {
        path.join("bin/javac").exists() && version(path).is_some_and(|version| version >= VERSION_MIN)
    })
}

/// The version of a JDK, of its file `release`.
fn version(jdk: &Path) -> Option<u32> {
    version_of(&fs::read_to_string(jdk.join("release")).ok()?)
}

fn version_of(release: &str) -> Option<u32> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    line.trim_matches('"').split(['.', '-', '+', '_']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version_of("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.1\"\n"), Some(25));
        assert_eq!(version_of("JAVA_VERSION=\"22\""), Some(22));
        assert_eq!(version_of("JAVA_VERSION=\"1.8.0_462\""), Some(1));
        assert_eq!(version_of("nothing"), None);
    }
}
