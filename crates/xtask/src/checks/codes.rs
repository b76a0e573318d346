//! Invariants have codes such as `memtable.1`. A code is defined once, in the module text of the file that
//! keeps the invariant, and cited elsewhere.
//!
//! ```text
//!   //! memtable.1. Text of the invariant     definition: the file's name, then a number
//!   // memtable.1    "memtable.1: ..."        citation: in comments and in messages of assertions
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::repo::Repo;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut defined: BTreeMap<(String, u32), (String, usize)> = BTreeMap::new();
    for (file, source) in repo.rust() {
        for (number, line) in source.text.lines().enumerate() {
            let Some(code) = line.trim_start().strip_prefix("//! ").and_then(definition) else { continue };
            let place = (file.path.clone(), number + 1);
            if let Some((other, _)) = defined.insert(code.clone(), place) {
                let message = format!("{}.{} is defined in {other}, too", code.0, code.1);
                findings.push(Finding::error(&file.path, number + 1, message));
            }
        }
    }
    let names: BTreeSet<&str> = defined.keys().map(|(name, _)| name.as_str()).collect();
    for (file, source) in repo.rust() {
        // Fields of tuples look the same in code.
        for (number, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
            let in_code: BTreeSet<_> = citations(code).collect();
            let cited = citations(line).filter(|citation| !in_code.contains(citation));
            for (name, n) in cited.filter(|(name, _)| names.contains(name)) {
                if !defined.contains_key(&(name.to_owned(), n)) {
                    let message = format!("{name}.{n} is defined nowhere");
                    findings.push(Finding::error(&file.path, number + 1, message));
                }
            }
        }
    }
    findings
}

/// The code that a line of a module's text defines.
fn definition(text: &str) -> Option<(String, u32)> {
    let (code, rest) = text.split_once(". ").filter(|(_, rest)| !rest.is_empty())?;
    let (name, number) = code.split_once('.')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let number = number.parse().ok().filter(|_| is_name && !rest.starts_with('.'))?;
    Some((name.to_owned(), number))
}

/// Everything in a line that has the form of a code.
fn citations(line: &str) -> impl Iterator<Item = (&str, u32)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    line.split(move |c| !is_part(c)).filter_map(|word| {
        let (name, number) = word.trim_end_matches('.').split_once('.')?;
        Some((name, number.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn codes_that_are_defined_twice_or_nowhere_are_found() {
        let files = [
            (
                "a.rs",
                "//! Text.\n//!\n//! log.1. It holds.\n//! log.2. So does this (log.1, memtable.1).\n// log.3, 1.5, x.9\n",
            ),
            ("b.rs", "//! log.2. Again.\n//! memtable.1. One.\n"),
        ];
        assert_eq!(places(check, &files), ["b.rs:1", "a.rs:5"]);
    }
}
