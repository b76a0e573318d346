//! No file contains a path of one machine: it would be wrong on every other one.

use crate::finding::Finding;
use crate::repo::Repo;
use crate::source::is_name;

/// First parts of absolute paths that belong to a person or a machine.
const FOLDERS: &[&str] = &["home", "root", "work", "Users", "tmp/target"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let patterns: Vec<String> = FOLDERS.iter().map(|folder| format!("/{folder}")).collect();
    let mut findings = Vec::new();
    for (file, text) in repo.texts(&[""]) {
        for (number, line) in text.lines().enumerate() {
            for pattern in patterns.iter().filter(|pattern| has_absolute(line, pattern)) {
                let message = format!("`{pattern}`: a path of one machine; make it relative or configurable");
                findings.push(Finding::error(&file.path, number + 1, message));
            }
        }
    }
    findings
}

/// Whether an absolute path that starts with `pattern` stands in the line.
fn has_absolute(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + pattern.len()..].chars().next();
        !before.is_some_and(|c| is_name(c) || "./-*})>]~".contains(c)) && matches!(after, Some('/' | '-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn absolute_paths_are_found() {
        let lines = FOLDERS.iter().map(|f| format!("see /{f}/x\n")).collect::<String>();
        let found: Vec<String> = (1..=FOLDERS.len()).map(|line| format!("a.md:{line}")).collect();
        assert_eq!(places(check, &[("a.md", &lines)]), found);
        let relative =
            FOLDERS.iter().map(|f| format!("a/{f}/x https://x.y/{f}/z /{f}s\n")).collect::<String>();
        assert_eq!(places(check, &[("a.md", &relative)]), [""; 0]);
    }
}
