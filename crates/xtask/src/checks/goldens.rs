//! Golden bytes are append-only: what an earlier version wrote stays as it is, so that reading it stays
//! tested.
//!
//! ```text
//!   files under any goldens/ folder                     \
//!   tests and constants of tests that have golden        >--size, hash--> crates/xtask/goldens.lock
//!   in their name, constants in tests/golden.rs files   /
//! ```
//!
//! - The lock names every golden file and item, with the size and XXH3-128 of its bytes; of an item, those of
//!   its literals, so that names and calls around them may change.
//! - `cargo xtask goldens --add` adds what is new and changes no line that is there.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_128;

use crate::finding::Finding;
use crate::repo::{Repo, RepoFile};
use crate::source::{Source, is_name};

const LOCK: &str = "crates/xtask/goldens.lock";

/// One line per file or item, sorted by path: hash, size in bytes, path.
type Lock = BTreeMap<String, String>;

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let locked = read_lock(repo);
    let present = present(repo);
    let mut findings = Vec::new();
    for (path, print) in &present {
        let problem = match locked.get(path) {
            None => "new golden bytes: run `cargo xtask goldens --add`",
            Some(old) if old != print => "golden bytes changed: restore them and add new ones beside them",
            Some(_) => continue,
        };
        let (file, item) = path.split_once('#').unwrap_or((path, "the file"));
        findings.push(Finding::error(file, 1, format!("{item}: {problem}")));
    }
    for path in locked.keys().filter(|path| !present.contains_key(*path)) {
        findings.push(Finding::error(LOCK, 1, format!("golden bytes are gone: {path}")));
    }
    findings
}

/// Adds new files to the lock; false, with a report, if an old one changed.
pub(crate) fn add(repo: &Repo) -> Result<bool, String> {
    let (lock, added) = match extend(read_lock(repo), present(repo)) {
        Ok(extended) => extended,
        Err(paths) => {
            for path in paths {
                println!("{path}:1: golden bytes changed or gone: restore them and add new ones beside them");
            }
            return Ok(false);
        }
    };
    let text: String = lock.iter().map(|(path, print)| format!("{print} {path}\n")).collect();
    std::fs::write(repo.root.join(LOCK), text).map_err(|e| format!("write {LOCK}: {e}"))?;
    println!("goldens: {added} added, {} in all", lock.len());
    Ok(true)
}

/// The lock with the new files and their number, or the paths that make it refuse.
fn extend(mut lock: Lock, present: Lock) -> Result<(Lock, usize), Vec<String>> {
    let spoiled: Vec<String> = lock
        .iter()
        .filter(|(path, old)| present.get(*path) != Some(old))
        .map(|(path, _)| path.clone())
        .collect();
    if !spoiled.is_empty() {
        return Err(spoiled);
    }
    let before = lock.len();
    lock.extend(present);
    let added = lock.len() - before;
    Ok((lock, added))
}

fn read_lock(repo: &Repo) -> Lock {
    let text = repo.get(LOCK).and_then(|f| f.text()).unwrap_or_default();
    let entry = |line: &str| {
        let (print, path) = line.match_indices(' ').nth(1).map(|(at, _)| line.split_at(at))?;
        Some((path.trim_start().to_owned(), print.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

/// The golden files and items as they are now.
fn present(repo: &Repo) -> Lock {
    let is_golden = |path: &str| path.split('/').rev().skip(1).any(|folder| folder == "goldens");
    let files = repo.files.iter().filter(|file| is_golden(&file.path));
    let mut found: Lock = files.map(|file| (file.path.clone(), print(&file.bytes))).collect();
    for (file, source) in repo.rust().filter(|(file, _)| !file.path.starts_with("crates/xtask/")) {
        found.extend(items(file, source));
    }
    found
}

/// The golden items of a Rust file: `path#name` and the print of their literals.
fn items<'a>(file: &'a RepoFile, source: &'a Source) -> impl Iterator<Item = (String, String)> + 'a {
    let in_golden_file = file.path.ends_with("/golden.rs");
    let named = |keyword: &'static str| source.words(keyword).map(move |offset| (keyword, offset));
    named("fn ").chain(named("const ")).filter_map(move |(keyword, offset)| {
        let name: String =
            source.code[offset + keyword.len()..].chars().take_while(|c| is_name(*c)).collect();
        let is_golden = match keyword {
            "const " => in_golden_file || name.contains("GOLDEN"),
            _ => name.contains("golden") && source.code[..offset].trim_end().ends_with("#[test]"),
        };
        let literals = source.literals(source.item(offset));
        (is_golden && source.is_test_line(source.line_of(offset)) && !literals.is_empty())
            .then(|| (format!("{}#{name}", file.path), print(literals.as_bytes())))
    })
}

/// The hash and the size of some bytes.
fn print(bytes: &[u8]) -> String {
    format!("{:032x} {}", xxh3_128(bytes), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    const GOLDEN: &str = "crates/a/goldens/v1.bin";

    fn lock_of(text: &str) -> String {
        format!("{:032x} {} {GOLDEN}\n", xxh3_128(text.as_bytes()), text.len())
    }

    #[test]
    fn new_changed_and_missing_files_are_found() {
        let lock = lock_of("bytes");
        assert_eq!(places(check, &[(GOLDEN, "bytes")]), [format!("{GOLDEN}:1")]);
        assert_eq!(places(check, &[(GOLDEN, "bytes"), (LOCK, &lock)]), [""; 0]);
        assert_eq!(places(check, &[(GOLDEN, "bytEs"), (LOCK, &lock)]), [format!("{GOLDEN}:1")]);
        assert_eq!(places(check, &[(LOCK, &lock)]), [format!("{LOCK}:1")]);
    }

    #[test]
    fn files_of_golden_directories_are_pinned_too() {
        let (table, log) = ("crates/a/tests/goldens/database-1/plain/000002.sst", "a/goldens/x/y/CURRENT");
        assert_eq!(places(check, &[(table, "t"), (log, "l")]), [format!("{log}:1"), format!("{table}:1")]);
    }

    #[test]
    fn golden_items_are_pinned_by_their_literals() {
        let source = |bytes: &str, name: &str| {
            let test = format!("#[test]\nfn golden_v1() {{ assert_eq!({name}(), \"{bytes}\"); }}\n");
            format!("//! x\nfn golden_gate() -> u8 {{ 3 }}\n#[cfg(test)]\nmod tests {{\n{test}}}\n")
        };
        let lock = format!("{} a.rs#golden_v1\n", print(b"\"01ff\" "));
        assert_eq!(places(check, &[("a.rs", &source("01ff", "encode"))]), ["a.rs:1"]);
        assert_eq!(places(check, &[("a.rs", &source("01ff", "encode")), (LOCK, &lock)]), [""; 0]);
        assert_eq!(places(check, &[("a.rs", &source("01ff", "renamed")), (LOCK, &lock)]), [""; 0]);
        assert_eq!(places(check, &[("a.rs", &source("01fe", "encode")), (LOCK, &lock)]), ["a.rs:1"]);
        let file = ("a/tests/golden.rs", "const value.1: &str = \"01\";\nfn f() { 1; }\n");
        assert_eq!(places(check, &[file]), ["a/tests/golden.rs:1"]);
    }

    #[test]
    fn adding_keeps_what_is_there() {
        let repo = |text| Repo::of(&[(GOLDEN, text), ("a/goldens/v2.bin", "x")]);
        let locked = read_lock(&Repo::of(&[(LOCK, &lock_of("bytes"))]));
        let (extended, added) = extend(locked.clone(), present(&repo("bytes"))).unwrap();
        assert_eq!((extended.len(), added), (2, 1));
        assert_eq!(extend(locked, present(&repo("other"))), Err(vec![GOLDEN.to_owned()]));
    }
}
