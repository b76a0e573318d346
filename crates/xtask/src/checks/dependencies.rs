//! Every dependency has a line in docs/dependencies.md that says why it is there, and every line has a
//! dependency.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::repo::Repo;

const DOCUMENT: &str = "docs/dependencies.md";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let documented: BTreeMap<&str, usize> = repo
        .texts(&[DOCUMENT])
        .flat_map(|(_, text)| text.lines().enumerate())
        .filter_map(|(number, line)| Some((line.strip_prefix("| `")?.split('`').next()?, number + 1)))
        .collect();
    let mut used = Vec::new();
    let mut findings = Vec::new();
    for (file, text) in repo.texts(&["Cargo.toml"]) {
        for (name, line) in dependencies(text) {
            if !documented.contains_key(name) {
                let message = format!("dependency `{name}` has no line in {DOCUMENT}");
                findings.push(Finding::error(&file.path, line, message));
            }
            used.push(name);
        }
    }
    for (name, line) in documented.into_iter().filter(|(name, _)| !used.contains(name)) {
        findings.push(Finding::error(DOCUMENT, line, format!("nothing depends on `{name}` any more")));
    }
    findings
}

/// Names and lines of the dependencies that a manifest declares itself; those of this repository (`path`) and
/// those taken over from the workspace are left out.
fn dependencies(manifest: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for (number, line) in manifest.lines().enumerate() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default();
            in_dependencies = section.ends_with("dependencies");
            if let Some((before, name)) =
                section.rsplit_once('.').filter(|(b, _)| b.ends_with("dependencies"))
            {
                debug_assert!(!before.is_empty(), "the filter asks for more");
                found.push((name, number + 1));
            }
            continue;
        }
        let Some((name, spec)) = line.split_once('=').filter(|_| in_dependencies) else { continue };
        let name = name.trim();
        let is_own = name.starts_with('#') || name.contains(".workspace") || name.contains(".path");
        if !is_own && !spec.contains("workspace = true") && !spec.contains("path = ") {
            found.push((name, number + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn both_directions_are_checked() {
        let manifest = "[workspace.dependencies]\nown = { path = \"x\" }\nserde = \"1\"\ncsv = { version = \"1\" }\n\
                        [profile.dev]\nopt = 1\n[target.'cfg(unix)'.dependencies]\nlibc = \"0\"\n";
        let member = "[dependencies]\nserde.workspace = true\ncsv = { workspace = true }\n# x = 1\n";
        let document = "| crate | why |\n|---|---|\n| `serde` | x |\n| `gone` | x |\n";
        let files = [("Cargo.toml", manifest), ("crates/a/Cargo.toml", member), (DOCUMENT, document)];
        assert_eq!(places(check, &files), ["Cargo.toml:4", "Cargo.toml:8", "docs/dependencies.md:4"]);
    }
}
