//! Damaged, cut, lost, swapped and foreign files in any place of a database.
//!
//! ```text
//!   script --> closed database --damage one file--> open, read everything, check --> the right data, or an error
//! ```
//!
//! D1. Damage gives the right data or a typed error that names a file of the database; no panic, no wrong data.
//! D2. The exception: damage in the last record of the log or of the manifest looks like a write that a crash tore.
//!     It then counts as never made: the data is that of an earlier commit. A file that is lost is no such exception.
//! D3. Files that hold no data (LOCK, OPTIONS) do no harm.
//! D4. Checking offline finds something wrong exactly if opening refuses the database or checking it online does; a
//!     dump shows any database.
//! D5. No damage takes much memory or time.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample. With `--nocapture` the tests tell how many databases
//! they damaged.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

mod common;

#[path = "common/memory.rs"]
mod memory;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::contents::{Contents, difference, dump};
use common::damage::{Golden, LOGGED, cut, overwrite, path, places, read, replace};
use common::{dir, simulated};
use esker::{Error, Result};
use esker_env::{Env, Fs, MemFs};

/// No damage makes opening, reading, checking or dumping take more memory. The databases have 1 MiB.
const MEMORY_BYTES_MAX: usize = 24 << 20;
/// Nor more time. Generous, since machines under load stall.
const TIME_MAX: Duration = Duration::from_secs(20);

/// What opening and reading everything gave.
enum Outcome {
    Data(Contents),
    Refused(Error),
    /// `check` says what is wrong.
    Problems(Vec<String>),
}

fn examine(fs: &MemFs) -> Outcome {
    let attempt = || {
        let db = simulated(Arc::new(fs.clone())).open(dir())?;
        let contents = dump(&db)?;
        Ok((contents, db.check()?.problems))
    };
    match attempt() {
        Ok((contents, problems)) if problems.is_empty() => Outcome::Data(contents),
        Ok((_, problems)) => Outcome::Problems(problems),
        Err(error) => Outcome::Refused(error),
    }
}

/// What was done to a file.
#[derive(Clone, Copy)]
enum Harm {
    /// Some bytes are others.
    Bytes,
    /// It is shorter, or another file.
    Content,
    /// It is not there.
    Loss,
}

/// How many of the newest commits may be missing.
fn commits_at_stake(name: &str, harm: Harm) -> usize {
    match harm {
        _ if !name.ends_with(".wal") => 0,
        Harm::Bytes => 1,
        // A cut log ends wherever it was cut.
        Harm::Content => LOGGED,
        // The manifest names it.
        Harm::Loss => 0,
    }
}

/// Reads all files one by one, without opening the database: is anything wrong? (D4)
fn examine_offline(fs: &MemFs) -> Result<Vec<String>> {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let mut damaged = Vec::new();
    esker::DumpOptions::default().env(env).dump(dir(), |item| damaged.push(item.kind == "damage"))?;
    assert!(damaged.len() > 3, "a dump shows something");
    Ok(simulated(Arc::new(fs.clone())).check_offline(dir())?.problems)
}

/// How many copies were damaged, by test.
struct Tally(&'static str, AtomicU64);

impl Tally {
    fn new(test: &'static str) -> Tally {
        Tally(test, AtomicU64::new(0))
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        println!("{}: {} damaged databases", self.0, self.1.load(Ordering::Relaxed));
    }
}

/// Damages one copy and judges what comes of it (D1 to D4).
fn judge(
    golden: &Golden,
    tally: &Tally,
    what: &str,
    names: &[&str],
    harm: Harm,
    damage: impl FnOnce(&MemFs),
) {
    tally.1.fetch_add(1, Ordering::Relaxed);
    let fs = golden.copy();
    damage(&fs);
    let what = format!("{what} of {}", names.join(" and "));
    let started = Instant::now();
    let mut results = None;
    let peak = memory::peak_of(|| {
        let work = || (examine_offline(&fs), examine(&fs));
        results = Some(catch_unwind(AssertUnwindSafe(work)));
    });
    assert!(peak <= MEMORY_BYTES_MAX, "D5: {what}: {peak} bytes of memory");
    assert!(started.elapsed() <= TIME_MAX, "D5: {what}: {:?}", started.elapsed());
    let results = results.expect("it ran");
    let (offline, outcome) = results.unwrap_or_else(|_| panic!("D1: {what}: panic"));
    let found_offline = !matches!(&offline, Ok(problems) if problems.is_empty());
    match outcome {
        Outcome::Data(found) => {
            assert!(!found_offline, "D4: {what}: sound, but offline: {offline:?}");
            if found != golden.newest {
                let stake = names.iter().map(|name| commits_at_stake(name, harm)).max().unwrap_or(0);
                let text = difference(&found, &golden.newest);
                assert!(golden.earlier[..stake].contains(&found), "D1: {what}: wrong data: {text}");
            }
        }
        Outcome::Refused(error) => {
            assert!(found_offline, "D4: {what}: refused, but nothing is found offline: {error}");
            let harmless = names.iter().all(|name| *name == "LOCK" || *name == "OPTIONS");
            assert!(!harmless, "D3: {what}: {error}");
            assert!(names_a_file(&error), "D1: {what}: {error:?}");
        }
        Outcome::Problems(problems) => {
            assert!(found_offline, "D4: {what}: nothing is found offline: {problems:?}");
            let table = names.iter().any(|name| name.ends_with(".sst"));
            assert!(table, "D1: {what}: found by check only: {problems:?}");
        }
    }
}

fn names_a_file(error: &Error) -> bool {
    match error {
        Error::Corrupt { path, .. } | Error::UnsupportedVersion { path, .. } => path.starts_with(dir()),
        _ => false,
    }
}

#[test]
fn d1_a_flipped_bit_anywhere() {
    let tally = Tally::new("a flipped bit");
    for (golden, sample) in [(Golden::merged(), 200), (Golden::layered(), 60)] {
        for name in &golden.files {
            let bytes = golden.read(name);
            for at in places(bytes.len(), sample) {
                let what = format!("bit {} of byte {at} flipped", at % 8);
                judge(&golden, &tally, &what, &[name], Harm::Bytes, |fs| {
                    overwrite(fs, name, at, &[bytes[at] ^ 1 << (at % 8)]);
                });
            }
        }
    }
}

#[test]
fn d1_any_byte_turned_around() {
    let (tally, golden) = (Tally::new("an inverted byte"), Golden::merged());
    for name in &golden.files {
        let bytes = golden.read(name);
        for at in places(bytes.len(), 60) {
            judge(&golden, &tally, &format!("byte {at} inverted"), &[name], Harm::Bytes, |fs| {
                overwrite(fs, name, at, &[!bytes[at]]);
            });
        }
    }
}

#[test]
fn d1_cut_at_any_length() {
    let (tally, golden) = (Tally::new("a cut"), Golden::merged());
    for name in &golden.files {
        let bytes = golden.read(name);
        for len in places(bytes.len(), 100) {
            let what = format!("cut to {len} of {} bytes", bytes.len());
            judge(&golden, &tally, &what, &[name], Harm::Content, |fs| cut(fs, name, len));
        }
    }
}

#[test]
fn d1_each_file_lost() {
    let tally = Tally::new("a loss");
    for golden in [Golden::merged(), Golden::layered()] {
        for name in &golden.files {
            judge(&golden, &tally, "loss", &[name], Harm::Loss, |fs| fs.remove_file(&path(name)).unwrap());
        }
    }
}

#[test]
fn d1_each_file_foreign() {
    let (tally, golden) = (Tally::new("a foreign file"), Golden::merged());
    let mut rng = fastrand::Rng::with_seed(5);
    let noise: Vec<u8> = (0..5000).map(|_| rng.u8(..)).collect();
    let text = b"This is not the file you are looking for.\n".repeat(20);
    for name in &golden.files {
        let len = golden.read(name).len();
        for (what, bytes) in
            [("nothing", vec![]), ("noise", noise.clone()), ("text", text.clone()), ("zeros", vec![0; len])]
        {
            judge(&golden, &tally, &format!("{what} instead"), &[name], Harm::Content, |fs| {
                replace(fs, name, &bytes)
            });
        }
        for other in &golden.files {
            let bytes = golden.read(other);
            judge(&golden, &tally, &format!("{other} instead"), &[name], Harm::Content, |fs| {
                replace(fs, name, &bytes)
            });
        }
    }
}

#[test]
fn d1_any_two_files_swapped() {
    let (tally, golden) = (Tally::new("a swap"), Golden::layered());
    for (i, a) in golden.files.iter().enumerate() {
        for b in &golden.files[i + 1..] {
            judge(&golden, &tally, "swap", &[a, b], Harm::Content, |fs| {
                replace(fs, a, &golden.read(b));
                replace(fs, b, &golden.read(a));
            });
        }
    }
}

#[test]
fn a_torn_log_tail_is_trimmed_in_silence_and_counted() {
    let golden = Golden::merged();
    let log = golden.files.iter().rfind(|name| name.ends_with(".wal")).unwrap();
    let bytes = golden.read(log);
    // In the value of the last commit; what follows it, End, was not synced apart from it.
    let at = bytes.windows(30).rposition(|w| w == [LOGGED as u8 - 1; 30]).unwrap();
    let fs = golden.copy();
    cut(&fs, log, at + 7);
    let db = simulated(Arc::new(fs)).open(dir()).unwrap();
    assert_eq!(dump(&db).unwrap(), golden.earlier[0]);
    let stats = db.stats();
    assert!(stats.recovered_torn_bytes > 0, "{stats:?}");
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn damage_in_the_middle_of_the_log_is_refused_and_repair_named() {
    let golden = Golden::merged();
    let log = golden.files.iter().rfind(|name| name.ends_with(".wal")).unwrap();
    let at = golden.read(log).windows(30).position(|w| w == [2; 30]).unwrap();
    let fs = golden.copy();
    overwrite(&fs, log, at, b"!");
    let error = simulated(Arc::new(fs.clone())).open(dir()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset: 1.., .. }), "{error:?}");
    assert!(error.to_string().contains("esker repair"), "{error}");
    assert_eq!(read(&fs, log)[at], b'!', "nothing was changed");
}

#[test]
fn d1_each_segment_of_the_log_lost() {
    // 16 KiB a segment, and all of it in one memtable.
    let builder = |fs: &MemFs| simulated(Arc::new(fs.clone())).memtable_bytes(64 << 10);
    let open = MemFs::new();
    let db = builder(&open).open(dir()).unwrap();
    for n in 0..40u8 {
        db.default_keyspace().put([n], vec![n; 1000]).unwrap();
    }
    let killed = open.kill();
    db.close().unwrap();
    for fs in [open, killed] {
        let names = |fs: &MemFs| {
            let mut names = fs.list_dir(dir()).unwrap();
            names.sort();
            names
        };
        let segments: Vec<_> = names(&fs).into_iter().filter(|name| name.ends_with(".wal")).collect();
        assert!(segments.len() >= 3, "{segments:?}");
        assert!(builder(&fs).check_offline(dir()).unwrap().problems.is_empty());
        for segment in &segments {
            let fs = fs.kill();
            fs.remove_file(&path(segment)).unwrap();
            let before = names(&fs);
            let problems = examine_offline(&fs).unwrap();
            assert!(problems.iter().any(|p| p.contains(segment) && p.contains("missing")), "{problems:?}");
            match builder(&fs).open(dir()).map(drop) {
                Err(Error::Corrupt { path: named, detail, .. }) => {
                    assert_eq!(named, path(segment));
                    assert!(detail.contains("missing") && detail.contains("esker repair"), "{detail}");
                }
                other => panic!("{segment}: {other:?}"),
            }
            assert_eq!(names(&fs), before, "nothing was changed");
            let report = builder(&fs).repair(dir(), "repaired").unwrap();
            let told = report.losses.iter().find(|loss| loss.path == path(segment));
            assert!(told.is_some_and(|loss| loss.detail.contains("missing")), "{:#?}", report.losses);
            let db = builder(&fs).open("repaired").unwrap();
            let left = common::contents::dump_sound(&db).unwrap()["default"].len();
            assert!(left > 0 && left < 40, "{segment}: {left}");
        }
    }
}

#[test]
fn d3_strange_files_beside_ours_are_left_alone() {
    let golden = Golden::merged();
    let fs = golden.copy();
    let strange = ["notes.txt", "000001.sst.bak", "MANIFEST", "x.wal", "999999999999999999999999.sst"];
    for name in strange {
        replace(&fs, name, b"mine");
    }
    match examine(&fs) {
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
    let (tally, golden) = (Tally::new("a canary"), Golden::merged());
    let other = catch_unwind(AssertUnwindSafe(|| {
        judge(&golden, &tally, "another commit", &["CURRENT"], Harm::Bytes, |fs| {
            let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
            db.default_keyspace().put("a", "b").unwrap();
            db.close().unwrap();
        });
    }));
    assert!(other.is_err());
}
