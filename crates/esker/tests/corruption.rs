//! Damaged, cut, lost, swapped and foreign files in any place of a database.
//!
//! ```text
//!   script --> closed database --damage one file--> open, read everything, check --> the right data, or an error
//! ```
//!
//! D1. Damage gives the right data or a typed error that names a file of the database; no panic, no wrong data.
//! D2. The exception: damage in the last record of the log or of the manifest looks like a write that a crash tore.
//!     It then counts as never made: the data is that of an earlier commit.
//! D3. Files that hold no data (LOCK, OPTIONS) do no harm.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::contents::{Contents, difference, dump};
use common::script::{Change, Script, Step, steps};
use common::{dir, simulated};
use esker::{Durability, Error};
use esker_env::{Fs, MemFs, OpenOptions};

/// A closed database.
struct Golden {
    fs: MemFs,
    files: Vec<String>,
    /// What it holds.
    newest: Contents,
    /// What it held earlier, newest first: commits that are only in the log.
    earlier: Vec<Contents>,
}

/// Commits after the last flush: they live in the log.
const LOGGED: usize = 8;

fn golden() -> Golden {
    let fs = MemFs::new();
    let mut script = Script::new(simulated(Arc::new(fs.clone())));
    script.run(&steps()).unwrap();
    script.step(&Step::Flush).unwrap();
    let flushed = script.journal.history().len();
    for n in 0..LOGGED {
        let change = Change::Put(format!("logged/{n}").into_bytes(), vec![n as u8; 30]);
        script.step(&Step::Commit(vec![("default", change)], Durability::Sync)).unwrap();
    }
    script.close().unwrap();
    // Obsolete tables may still be on their way out: what is there now stays.
    let fs = fs.crash_keep_all();
    let states = script.journal.history()[flushed - 1..].iter().map(|s| s.first().unwrap().clone());
    let mut earlier: Vec<_> = states.collect();
    let newest = earlier.pop().unwrap();
    earlier.reverse();
    let mut files = fs.list_dir(dir()).unwrap();
    files.sort();
    let kinds = [".wal", ".sst", "MANIFEST", "CURRENT", "OPTIONS", "LOCK"];
    assert!(kinds.iter().all(|kind| files.iter().any(|f| f.contains(kind))), "{files:?}");
    Golden { fs, files, newest, earlier }
}

fn path(name: &str) -> PathBuf {
    dir().join(name)
}

fn read(fs: &MemFs, name: &str) -> Vec<u8> {
    let file = fs.open(&path(name), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn replace(fs: &MemFs, name: &str, bytes: &[u8]) {
    fs.open(&path(name), OpenOptions::create()).unwrap().write_all_at(bytes, 0).unwrap();
}

/// What opening and reading everything gave.
enum Outcome {
    Data(Contents),
    Refused(Error),
    /// `check` says what is wrong.
    Problems(Vec<String>),
}

fn examine(fs: MemFs) -> Outcome {
    let attempt = || {
        let db = simulated(Arc::new(fs)).open(dir())?;
        let contents = dump(&db)?;
        Ok((contents, db.check()?.problems))
    };
    match attempt() {
        Ok((contents, problems)) if problems.is_empty() => Outcome::Data(contents),
        Ok((_, problems)) => Outcome::Problems(problems),
        Err(error) => Outcome::Refused(error),
    }
}

/// How many of the newest commits may be missing.
fn commits_at_stake(name: &str, cut: bool) -> usize {
    match name {
        // A cut log ends wherever it was cut.
        _ if name.ends_with(".wal") && cut => LOGGED,
        _ if name.ends_with(".wal") => 1,
        _ => 0,
    }
}

impl Golden {
    /// Damages one copy and judges what comes of it (D1 to D3).
    fn judge(&self, what: &str, name: &str, cut: bool, damage: impl FnOnce(&MemFs)) {
        let fs = self.fs.crash_keep_all();
        damage(&fs);
        let outcome = catch_unwind(AssertUnwindSafe(|| examine(fs)));
        let outcome = outcome.unwrap_or_else(|_| panic!("D1: {what} of {name}: panic"));
        match outcome {
            Outcome::Data(found) if found == self.newest => {}
            Outcome::Data(found) => {
                let allowed = &self.earlier[..commits_at_stake(name, cut)];
                let text = difference(&found, &self.newest);
                assert!(allowed.contains(&found), "D1: {what} of {name}: wrong data: {text}");
            }
            Outcome::Refused(error) => {
                assert!(name != "LOCK" && name != "OPTIONS", "D3: {what} of {name}: {error}");
                assert!(names_a_file(&error), "D1: {what} of {name}: {error:?}");
            }
            Outcome::Problems(problems) => {
                assert!(name.ends_with(".sst"), "D1: {what} of {name}: found by check only: {problems:?}");
            }
        }
    }
}

fn names_a_file(error: &Error) -> bool {
    match error {
        Error::Corrupt { path, .. } | Error::UnsupportedVersion { path, .. } => path.starts_with(dir()),
        _ => false,
    }
}

/// Places in a file of `len` bytes.
fn places(len: usize, sample: usize) -> Vec<usize> {
    let full = std::env::var("ESKER_SWEEP").is_ok_and(|v| v == "full");
    if full || len <= sample {
        return (0..len).collect();
    }
    let edge = sample / 4;
    let inner = (0..2 * edge).map(|i| edge + i * (len - 2 * edge) / (2 * edge));
    (0..edge).chain(inner).chain(len - edge..len).collect()
}

#[test]
fn d1_a_flipped_bit_anywhere() {
    let golden = golden();
    for name in &golden.files {
        let bytes = read(&golden.fs, name);
        for at in places(bytes.len(), 400) {
            golden.judge(&format!("bit {} of byte {at} flipped", at % 8), name, false, |fs| {
                let file = fs.open(&path(name), OpenOptions::write()).unwrap();
                file.write_all_at(&[bytes[at] ^ 1 << (at % 8)], at as u64).unwrap();
            });
        }
    }
}

#[test]
fn d1_any_byte_turned_around() {
    let golden = golden();
    for name in &golden.files {
        let bytes = read(&golden.fs, name);
        for at in places(bytes.len(), 120) {
            golden.judge(&format!("byte {at} inverted"), name, false, |fs| {
                let file = fs.open(&path(name), OpenOptions::write()).unwrap();
                file.write_all_at(&[!bytes[at]], at as u64).unwrap();
            });
        }
    }
}

#[test]
fn d1_cut_at_any_length() {
    let golden = golden();
    for name in &golden.files {
        let bytes = read(&golden.fs, name);
        for len in places(bytes.len(), 160) {
            golden.judge(&format!("cut to {len} of {} bytes", bytes.len()), name, true, |fs| {
                fs.open(&path(name), OpenOptions::write()).unwrap().set_len(len as u64).unwrap();
            });
        }
    }
}

#[test]
fn d1_each_file_lost() {
    let golden = golden();
    for name in &golden.files {
        golden.judge("loss", name, true, |fs| fs.remove_file(&path(name)).unwrap());
    }
}

#[test]
fn d1_each_file_foreign() {
    let golden = golden();
    let mut rng = fastrand::Rng::with_seed(5);
    let noise: Vec<u8> = (0..5000).map(|_| rng.u8(..)).collect();
    let text = b"This is not the file you are looking for.\n".repeat(20);
    for name in &golden.files {
        let len = read(&golden.fs, name).len();
        for (what, bytes) in
            [("nothing", vec![]), ("noise", noise.clone()), ("text", text.clone()), ("zeros", vec![0; len])]
        {
            golden.judge(&format!("{what} instead"), name, true, |fs| replace(fs, name, &bytes));
        }
        for other in &golden.files {
            let bytes = read(&golden.fs, other);
            golden.judge(&format!("{other} instead"), name, true, |fs| replace(fs, name, &bytes));
        }
    }
}

#[test]
fn d1_tables_swapped() {
    let golden = golden();
    let tables: Vec<_> = golden.files.iter().filter(|name| name.ends_with(".sst")).collect();
    for (i, a) in tables.iter().enumerate() {
        for b in &tables[i + 1..] {
            golden.judge(&format!("swap with {b}"), a, false, |fs| {
                let (first, second) = (read(fs, a), read(fs, b));
                replace(fs, a, &second);
                replace(fs, b, &first);
            });
        }
    }
}

#[test]
fn d3_strange_files_beside_ours_are_left_alone() {
    let golden = golden();
    let fs = golden.fs.crash_keep_all();
    let strange = ["notes.txt", "000001.sst.bak", "MANIFEST", "x.wal", "999999999999999999999999.sst"];
    for name in strange {
        replace(&fs, name, b"mine");
    }
    match examine(fs.clone()) {
        Outcome::Data(found) => assert!(found == golden.newest),
        Outcome::Refused(error) => panic!("{error}"),
        Outcome::Problems(problems) => panic!("{problems:?}"),
    }
    for name in strange {
        assert_eq!(read(&fs, name), b"mine", "{name}");
    }
    assert!(fs.exists(Path::new(dir())).unwrap());
}

#[test]
fn canary_unchecked_damage_is_noticed() {
    // A database that holds something else must be told from the golden one.
    let golden = golden();
    let other = catch_unwind(AssertUnwindSafe(|| {
        golden.judge("another commit", "CURRENT", false, |fs| {
            let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
            db.default_keyspace().put("a", "b").unwrap();
            db.close().unwrap();
        });
    }));
    assert!(other.is_err());
}
