//! Relative links in documents lead to files of the repository, and so do the documents that sources name
//! (`docs/x.md`).

use crate::finding::Finding;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in repo.texts(&[".md"]) {
        let mut in_code = false;
        for (number, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if in_code {
                continue;
            }
            for target in targets(line) {
                if !resolve(&file.path, target).is_some_and(|path| repo.contains(&path)) {
                    findings.push(Finding::error(
                        &file.path,
                        number + 1,
                        format!("link to nowhere: {target}"),
                    ));
                }
            }
        }
    }
    for (file, source) in repo.rust().filter(|(file, _)| !file.path.starts_with("crates/xtask/")) {
        for (number, line) in source.text.lines().enumerate() {
            for path in named_documents(line).filter(|path| repo.get(path).is_none()) {
                findings.push(Finding::error(&file.path, number + 1, format!("no such document: {path}")));
            }
        }
    }
    findings
}

/// The relative targets of `[text](target)`, without their anchors; inline code is left out.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let outside_code = line.split('`').step_by(2);
    // `[`name`](target)` is split within its text, so the closing bracket opens a piece: both are found by
    // `](`.
    outside_code
        .flat_map(|piece| piece.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split([' ', '#']).next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// The path of a link's target from the root; none if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Paths such as `docs/formats/wal.md` in a line.
fn named_documents(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn links_to_nowhere_are_found() {
        let doc = "[a](b.md#x) [c](../README.md)\n[d](gone.md)\n`[e](code.md)` <https://x.y/z>\n[`f`](../../out.md)\n\
                   ```\n[g](in-code.md)\n```\n[h](https://x.y/z) [i](#anchor) [j](../docs)\n";
        let files = [("docs/a.md", doc), ("docs/b.md", ""), ("README.md", "")];
        assert_eq!(places(check, &files), ["docs/a.md:2", "docs/a.md:4"]);
    }

    #[test]
    fn documents_named_in_sources_exist() {
        let files = [("a.rs", "//! Bytes: docs/wal.md.\n//! See docs/gone.md\n"), ("docs/wal.md", "")];
        assert_eq!(places(check, &files), ["a.rs:2"]);
    }
}
