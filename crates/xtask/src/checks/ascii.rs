//! Sources and documents are ASCII: what one sees is what a search finds, in every terminal and editor.

use crate::finding::Finding;
use crate::repo::Repo;

const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".txt", ".lock", ".ci/run"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files.iter().filter(|f| ENDINGS.iter().any(|e| f.path.ends_with(e))) {
        for (number, line) in file.bytes.split(|b| *b == b'\n').enumerate() {
            if let Some(column) = line.iter().position(|b| !b.is_ascii() || *b == b'\r') {
                let message = format!("column {}: not an ASCII character, or a carriage return", column + 1);
                findings.push(Finding::error(&file.path, number + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn other_characters_are_found() {
        let files = [("a.rs", "//! ok\n// \u{e9}\n"), ("b.md", "x\r\n"), ("c.tsv", "\u{e9}")];
        assert_eq!(places(check, &files), ["a.rs:2", "b.md:1"]);
    }
}
