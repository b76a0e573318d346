//! Golden files are append-only: bytes that an earlier version wrote stay as they are, so that reading them stays tested.
//!
//! ```text
//!   files under any goldens/ folder <--same hash--> crates/xtask/goldens.lock
//! ```
//!
//! G1. The lock names every golden file, with its size and XXH3-128.
//! G2. `cargo xtask goldens --add` adds new files and changes no line that is there.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_128;

use crate::finding::Finding;
use crate::repo::Repo;

const LOCK: &str = "crates/xtask/goldens.lock";

/// One line per file, sorted by path: hash, size in bytes, path.
type Lock = BTreeMap<String, String>;

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let locked = read_lock(repo);
    let present = present(repo);
    let mut findings = Vec::new();
    for (path, print) in &present {
        match locked.get(path) {
            None => findings.push(Finding::error(
                path,
                1,
                "new golden file: run `cargo xtask goldens --add` (G1)",
            )),
            Some(old) if old != print => {
                let message = "golden file changed: restore it and add a new one beside it";
                findings.push(Finding::error(path, 1, message));
            }
            Some(_) => {}
        }
    }
    for path in locked.keys().filter(|path| !present.contains_key(*path)) {
        findings.push(Finding::error(LOCK, 1, format!("golden file is gone: {path}")));
    }
    findings
}

/// Adds new files to the lock; false, with a report, if an old one changed.
pub(crate) fn add(repo: &Repo) -> Result<bool, String> {
    let (lock, added) = match extend(read_lock(repo), present(repo)) {
        Ok(extended) => extended,
        Err(paths) => {
            for path in paths {
                println!("{path}:1: golden file changed or gone: restore it and add a new one beside it");
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

/// The golden files as they are now.
fn present(repo: &Repo) -> Lock {
    let is_golden = |path: &str| path.split('/').rev().skip(1).any(|folder| folder == "goldens");
    repo.files
        .iter()
        .filter(|file| is_golden(&file.path))
        .map(|file| (file.path.clone(), format!("{:032x} {}", xxh3_128(&file.bytes), file.bytes.len())))
        .collect()
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
    fn g1_new_changed_and_missing_files_are_found() {
        let lock = lock_of("bytes");
        assert_eq!(places(check, &[(GOLDEN, "bytes")]), [format!("{GOLDEN}:1")]);
        assert_eq!(places(check, &[(GOLDEN, "bytes"), (LOCK, &lock)]), [""; 0]);
        assert_eq!(places(check, &[(GOLDEN, "bytEs"), (LOCK, &lock)]), [format!("{GOLDEN}:1")]);
        assert_eq!(places(check, &[(LOCK, &lock)]), [format!("{LOCK}:1")]);
    }

    #[test]
    fn g2_adding_keeps_what_is_there() {
        let repo = |text| Repo::of(&[(GOLDEN, text), ("a/goldens/v2.bin", "x")]);
        let locked = read_lock(&Repo::of(&[(LOCK, &lock_of("bytes"))]));
        let (extended, added) = extend(locked.clone(), present(&repo("bytes"))).unwrap();
        assert_eq!((extended.len(), added), (2, 1));
        assert_eq!(extend(locked, present(&repo("other"))), Err(vec![GOLDEN.to_owned()]));
    }
}
