//! Nothing half-done is committed: no placeholders, no forgotten debugging, no tests switched off. Work to
//! come is an issue.

use crate::finding::Finding;
use crate::repo::Repo;

/// Code, and what to do about it. The names end before their `!` and `(` here, or this file would find
/// itself.
const CODE: &[(&str, &str)] = &[
    ("todo!", "write the code, or open an issue"),
    ("unimplemented!", "write the code, or return a typed error"),
    ("dbg!", "remove the debugging aid"),
    ("#[ignore", "make the test run, or remove it"),
];

/// Comments that promise instead of doing.
const COMMENTS: &[&str] = &["TODO", "FIXME", "XXX", "Placeholder until"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in repo.rust() {
        for (number, line) in source.code_lines() {
            for (code, cure) in CODE.iter().filter(|(code, _)| line.contains(code)) {
                findings.push(Finding::error(&file.path, number, format!("`{code}`: {cure}")));
            }
        }
        for (number, line) in source.text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            for word in COMMENTS.iter().filter(|word| comment.contains(*word)) {
                findings.push(Finding::error(
                    &file.path,
                    number + 1,
                    format!("`{word}`: open an issue instead"),
                ));
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
    fn unfinished_code_is_found() {
        let text = format!(
            "fn f() {{ todo!() }}\n#[ignore]\nfn g() {{ \"todo!\" }}\n{}{}: later\n",
            "/".repeat(2),
            " TODO"
        );
        assert_eq!(places(check, &[("a.rs", &text)]), ["a.rs:1", "a.rs:2", "a.rs:4"]);
    }
}
