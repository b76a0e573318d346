//! Lists files that have grown too long for one concept, longest first. A warning: the cure is thought, not a split at any line.

use std::cmp::Reverse;

use crate::finding::Finding;
use crate::repo::Repo;

/// Files with more lines than this are listed.
const LINES_MAX: usize = 600;
/// Unit tests with more lines than this belong in a file of their own.
const INLINE_TEST_LINES_MAX: usize = 150;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut long = Vec::new();
    for (file, source) in repo.rust() {
        let lines = source.text.lines().count();
        let tests = (1..=lines).filter(|line| source.is_test_line(*line)).count();
        if tests == lines {
            continue;
        }
        if lines > LINES_MAX {
            let message = format!("{lines} lines: does the file hold one concept?");
            long.push((lines, Finding::warning(&file.path, 1, message)));
        }
        if tests > INLINE_TEST_LINES_MAX {
            let message = format!("{tests} lines of tests: move them to NAME/tests.rs");
            long.push((tests, Finding::warning(&file.path, 1, message)));
        }
    }
    long.sort_by_key(|(lines, _)| Reverse(*lines));
    long.into_iter().map(|(_, finding)| finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn long_files_are_listed_longest_first_without_tests() {
        let (short, long, longer) = ("//\n".repeat(600), "//\n".repeat(601), "//\n".repeat(700));
        let tests = format!("//\n#[cfg(test)]\nmod tests {{\n{}}}\n", "//\n".repeat(200));
        let files = [
            ("short.rs", &*short),
            ("long.rs", &*long),
            ("longer.rs", &*longer),
            ("a/tests.rs", &*long),
            ("inline.rs", &*tests),
        ];
        assert_eq!(places(check, &files), ["longer.rs:1", "long.rs:1", "inline.rs:1"]);
    }
}
