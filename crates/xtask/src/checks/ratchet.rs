//! Limits with a list of the exceptions that exist. An exception may only shrink.
//!
//! ```text
//!   measure --values above the limit--> compare with crates/xtask/ratchet.txt --> error if new or larger
//! ```
//!
//! Each line of the list is `KIND PATH ITEM VALUE`. `cargo xtask ratchet` writes the list again from the
//! present state. It refuses if the values of a kind, taken together, exceed its limit by more than before,
//! so a moved function is accepted and a grown one is not.

use std::collections::BTreeMap;

use crate::checks::limit::{Limit, Measured};
use crate::checks::{circles, prose, sizes};
use crate::finding::Finding;
use crate::repo::Repo;

/// The list of exceptions.
pub(super) const LIST: &str = "crates/xtask/ratchet.txt";

const HEAD: &str = "\
# What exceeds a limit of `cargo xtask tidy`, with its present value. Values may only shrink.
# `cargo xtask ratchet` writes this file. Columns: kind, path, item, value.
";

const LIMITS: &[Limit] = &[
    sizes::FUNCTIONS,
    sizes::PARAMETERS,
    sizes::FIELDS,
    sizes::FILES,
    circles::CIRCLES,
    prose::WORDS,
    prose::WIDTHS,
];

/// An exception's name: path and item.
type Key = (String, String);
type Exceptions = BTreeMap<(String, Key), usize>;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let listed = match listed(repo) {
        Ok(listed) => listed,
        Err(finding) => return vec![finding],
    };
    // Without a list nothing is excepted yet, and nothing fails.
    let finding = if repo.get(LIST).is_some() { Finding::error } else { Finding::warning };
    let mut findings = Vec::new();
    let mut unused = listed.clone();
    for limit in LIMITS {
        for found in exceeding(repo, limit) {
            let key = (limit.kind.to_owned(), (found.path.clone(), found.item.clone()));
            let allowed = listed.get(&key).copied().unwrap_or(limit.max);
            if found.value >= allowed {
                unused.remove(&key);
            }
            if found.value > allowed {
                let Measured { path, line, item, value, detail } = found;
                let (kind, unit) = (limit.kind, limit.unit);
                let message = format!("{kind} `{item}`: {value} {unit}, {allowed} are allowed{detail}");
                findings.push(finding(&path, line, message));
            }
        }
    }
    findings.extend(unused.into_keys().map(|(kind, (path, item))| {
        let message = format!("{kind} {path} {item} has shrunk: run `cargo xtask ratchet`");
        Finding::error(LIST, 1, message)
    }));
    findings
}

/// Writes the list from the present state, unless a kind exceeds its limit by more than the list allows.
pub(crate) fn tighten(repo: &Repo) -> Result<bool, String> {
    let listed = listed(repo).map_err(|finding| finding.to_string())?;
    let mut text = HEAD.to_owned();
    for limit in LIMITS {
        let found = exceeding(repo, limit);
        let excess: usize = found.iter().map(|f| f.value - limit.max).sum();
        let allowed: usize = listed
            .iter()
            .filter(|((kind, _), _)| kind == limit.kind)
            .map(|(_, value)| value.saturating_sub(limit.max))
            .sum();
        if excess > allowed && repo.get(LIST).is_some() {
            println!(
                "{}: {excess} {} above the limit, {allowed} are allowed. `cargo xtask tidy` lists them.",
                limit.kind, limit.unit
            );
            return Ok(false);
        }
        let mut lines: Vec<_> =
            found.iter().map(|f| format!("{} {} {} {}\n", limit.kind, f.path, f.item, f.value)).collect();
        lines.sort();
        text.extend(lines);
    }
    std::fs::write(repo.root.join(LIST), text).map_err(|e| format!("write {LIST}: {e}"))?;
    Ok(true)
}

/// What exceeds a limit. Of several with one name in one file, the largest.
fn exceeding(repo: &Repo, limit: &Limit) -> Vec<Measured> {
    let mut largest: BTreeMap<Key, Measured> = BTreeMap::new();
    for found in (limit.measure)(repo).into_iter().filter(|found| found.value > limit.max) {
        let key = (found.path.clone(), found.item.clone());
        if largest.get(&key).is_none_or(|other| other.value < found.value) {
            largest.insert(key, found);
        }
    }
    largest.into_values().collect()
}

fn listed(repo: &Repo) -> Result<Exceptions, Finding> {
    let text = repo.get(LIST).and_then(|file| file.text()).unwrap_or_default();
    let mut exceptions = Exceptions::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let parsed = match line.split_whitespace().collect::<Vec<_>>()[..] {
            [kind, path, item, value] => value
                .parse()
                .ok()
                .map(|value| exceptions.insert((kind.to_owned(), (path.to_owned(), item.to_owned())), value)),
            _ => None,
        };
        if parsed.is_none() {
            return Err(Finding::error(LIST, number + 1, "expected KIND PATH ITEM VALUE"));
        }
    }
    Ok(exceptions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn an_exception_may_shrink_and_not_grow() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        let list = |value: usize| format!("# text\nfunction a.rs f {value}\n");
        let check_with = |lines, list: &str| places(check, &[("a.rs", &*function(lines)), (LIST, list)]);
        assert_eq!(check_with(70, ""), [""; 0]);
        assert_eq!(check_with(71, ""), ["a.rs:1"]);
        assert_eq!(check_with(80, &list(80)), [""; 0]);
        assert_eq!(check_with(81, &list(80)), ["a.rs:1"]);
        assert_eq!(check_with(79, &list(80)), [format!("{LIST}:1")]);
        assert_eq!(check_with(60, "function a.rs\n"), [format!("{LIST}:1")]);
    }
}
