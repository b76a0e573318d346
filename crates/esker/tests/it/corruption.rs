//! Damaged, cut, lost, swapped and foreign files in any place of a database.
//!
//! ```text
//!   script --> database --damage one file--> open, read everything, check --> compact, open again -->
//!   the right data, or an error
//! ```
//!
//! - Damage gives the right data, or a typed error that names a damaged file and, in tables and the log, the
//!   damaged block, record or other part. There is no panic and no wrong data, even where only `check` sees
//!   the damage, and after everything was compacted.
//! - The exception is a log that was not closed. Damage to the last record of its last segment, or to a
//!   record synced together with it, and zeros up to its end, look like a write torn by a crash. It then
//!   counts as never made: the data is exactly that of the commits before it.
//! - Damage to files without data (LOCK, OPTIONS) is harmless.
//! - An offline check reports a problem if and only if opening refuses the database or an online check
//!   reports one. A dump shows any database.
//! - Damage does not cost much memory or time.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample. With `--nocapture` the tests print how many
//! databases they damaged.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::contents::{Contents, difference, dump, dump_knowing, dump_sound};
use crate::common::damage::{
    Golden, LOGGED, blocks, cut, logged_value, one_in, overwrite, parts, path, places, read, records, replace,
};
use crate::common::goldens::NAMES;
use crate::common::{dir, simulated};
use crate::memory;
use esker::{Error, Result};
use esker_env::{Env, Fs, MemFs};

/// Memory limit of opening, reading, checking, compacting or dumping a damaged database. The databases have 1
/// MiB.
const MEMORY_BYTES_MAX: usize = 24 << 20;
/// Time limit of the same. Generous, since machines under load stall.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Outcome of opening and reading everything.
enum Outcome {
    /// The contents, and the problems that `check` reports.
    Data(Contents, Vec<String>),
    Refused(Error),
}

fn examine(golden: &Golden, fs: &MemFs) -> Outcome {
    let attempt = || {
        let db = simulated(Arc::new(fs.clone())).open(dir())?;
        Ok((dump_knowing(&db, &golden.keys)?, db.check()?.problems))
    };
    attempt().map_or_else(Outcome::Refused, |(contents, problems)| Outcome::Data(contents, problems))
}

/// Compacts everything if the database opens, and examines it again. Also returns the outcome of the
/// compaction. A failed compaction must not change the contents.
fn merge_and_examine(golden: &Golden, fs: &MemFs) -> (Result<()>, Outcome) {
    let merge = || simulated(Arc::new(fs.clone())).open(dir())?.compact();
    (merge(), examine(golden, fs))
}

/// The contents that are allowed, if there is no error.
#[derive(Clone, Copy)]
enum Allowed {
    /// The newest contents.
    Newest,
    /// The newest contents, or those before the last commit.
    LastCommitTorn,
    /// The contents this many commits ago, and no error: the log ends where the zeros start.
    Exactly(usize),
}

/// Reads all files one by one without opening the database. Returns the problems.
fn examine_offline(fs: &MemFs) -> Result<Vec<String>> {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let mut damaged = Vec::new();
    esker::DumpOptions::default().env(env).dump(dir(), |item| damaged.push(item.kind == "damage"))?;
    assert!(damaged.len() > 3, "a dump shows something");
    Ok(simulated(Arc::new(fs.clone())).check_offline(dir())?.problems)
}

/// Damages databases, judges the outcomes, and counts them for a test.
struct Judge(&'static str, AtomicU64);

impl Judge {
    fn new(test: &'static str) -> Judge {
        Judge(test, AtomicU64::new(0))
    }

    /// Damages one copy and judges the outcome.
    fn damaged(
        &self,
        golden: &Golden,
        what: &str,
        names: &[&str],
        allowed: Allowed,
        damage: impl FnOnce(&MemFs),
    ) {
        self.damaged_in(golden, what, names, None, allowed, damage);
    }

    /// Same as `damaged`. If the damage lies in one part of the file, errors must point to it.
    fn damaged_in(
        &self,
        golden: &Golden,
        what: &str,
        names: &[&str],
        part: Option<Range<usize>>,
        allowed: Allowed,
        damage: impl FnOnce(&MemFs),
    ) {
        self.1.fetch_add(1, Ordering::Relaxed);
        let fs = golden.copy();
        damage(&fs);
        let what = format!("{what} of {}", names.join(" and "));
        let started = Instant::now();
        let mut results = None;
        let peak = memory::peak_of(|| {
            let work = || (examine_offline(&fs), examine(golden, &fs), merge_and_examine(golden, &fs));
            results = Some(catch_unwind(AssertUnwindSafe(work)));
        });
        assert!(peak <= MEMORY_BYTES_MAX, "{what}: {peak} bytes of memory");
        assert!(started.elapsed() <= TIME_MAX, "{what}: {:?}", started.elapsed());
        let results = results.expect("it ran");
        let (offline, read, (merge, merged)) = results.unwrap_or_else(|_| panic!("{what}: panic"));
        let found_offline = !matches!(&offline, Ok(problems) if problems.is_empty());
        let found_online = !matches!(&read, Outcome::Data(_, problems) if problems.is_empty());
        let judge_place = |problems: &[String], when: &str| {
            let Some(part) = part.as_ref().filter(|_| !problems.is_empty()) else { return };
            let is_right = problems.iter().any(|text| points_into(text, names, part));
            assert!(is_right, "{what}{when}: none of this is about {part:?}: {problems:?}");
        };
        if let Ok(problems) = &offline {
            judge_place(problems, ", offline");
        }
        for (outcome, when) in [(read, ""), (merged, ", after a merge")] {
            match outcome {
                Outcome::Data(found, problems) => {
                    judge_data(golden, &found, allowed, &format!("{what}{when}"));
                    let table = names.iter().any(|name| name.ends_with(".sst"));
                    assert!(problems.is_empty() || table, "{what}{when}: found by check only: {problems:?}");
                    judge_place(&problems, when);
                }
                Outcome::Refused(error) => {
                    judge_error(&error, names, allowed, &format!("{what}{when}"));
                    judge_place(&[error.to_string()], when);
                }
            }
        }
        if let Err(error) = merge {
            judge_error(&error, names, allowed, &format!("{what}, merging"));
            judge_place(&[error.to_string()], ", merging");
        }
        assert_eq!(found_offline, found_online, "{what}: offline: {offline:?}");
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        println!("{}: {} damaged databases", self.0, self.1.load(Ordering::Relaxed));
    }
}

/// Asserts that the contents are allowed.
fn judge_data(golden: &Golden, found: &Contents, allowed: Allowed, what: &str) {
    let missing = match allowed {
        Allowed::Newest => 0..=0,
        Allowed::LastCommitTorn => 0..=1,
        Allowed::Exactly(commits) => commits..=commits,
    };
    let text = || difference(found, golden.without(*missing.start()));
    assert!(missing.clone().any(|n| found == golden.without(n)), "{what}: wrong data: {}", text());
}

/// Asserts that an error is allowed, and is the right one.
fn judge_error(error: &Error, names: &[&str], allowed: Allowed, what: &str) {
    assert!(names_the_damage(error, names), "{what}: {error:?}");
    let may_fail = !matches!(allowed, Allowed::Exactly(_));
    assert!(may_fail, "{what}: refused, though nothing stands behind it: {error}");
    let harmless = names.iter().all(|name| *name == "LOCK" || *name == "OPTIONS");
    assert!(!harmless, "{what}: {error}");
}

/// Returns whether the error names a damaged file or what it led to. CURRENT names the manifest, and a wrong
/// manifest names tables and segments that are missing or different.
fn names_the_damage(error: &Error, names: &[&str]) -> bool {
    let (Error::Corrupt { path, .. } | Error::UnsupportedVersion { path, .. }) = error else { return false };
    let Some(named) = path.strip_prefix(dir()).ok().and_then(Path::to_str) else { return false };
    let by_manifest = named == "CURRENT" || named.ends_with(".sst") || named.ends_with(".wal");
    names.iter().any(|name| *name == named || (name.starts_with("MANIFEST-") && by_manifest))
}

/// Returns whether a text names one of these files and an offset in this part of it.
fn points_into(text: &str, names: &[&str], part: &Range<usize>) -> bool {
    let Some((before, behind)) = text.split_once(" at offset ") else { return false };
    let digits = behind.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    let is_inside = digits.parse::<usize>().is_ok_and(|at| part.contains(&at));
    is_inside && names.iter().any(|name| before.ends_with(*name))
}

/// The contents that a changed byte may cost.
fn at_stake(golden: &Golden, name: &str, at: usize) -> Allowed {
    let last = records(&golden.fs, golden.last_segment()).pop();
    let is_tail =
        name == golden.last_segment() && last.is_some_and(|last| (last.start..last.end).contains(&at));
    // A finished log ends with an End record, which proves that its last record was durable.
    if is_tail && !golden.closed { Allowed::LastCommitTorn } else { Allowed::Newest }
}

#[test]
fn a_flipped_bit_anywhere() {
    let judge = Judge::new("a flipped bit");
    let goldens = [
        (Golden::merged(), 200),
        (Golden::layered(), 60),
        (Golden::twins(), 24),
        (Golden::killed(), 24),
        (Golden::segmented(), 24),
    ];
    for (golden, sample) in goldens {
        for name in &golden.files {
            let bytes = golden.read(name);
            let has_parts = name.ends_with(".sst") || name.ends_with(".wal");
            let parts = has_parts.then(|| parts(&golden.fs, name));
            for at in one_in(2, places(bytes.len(), sample).into_iter()) {
                let what = format!("bit {} of byte {at} flipped", at % 8);
                // Bytes that are never read give no error.
                let part = |parts: &Vec<Range<usize>>| {
                    parts.iter().find(|part| part.contains(&at)).cloned().unwrap_or(at..at)
                };
                let (part, allowed) = (parts.as_ref().map(part), at_stake(&golden, name, at));
                judge.damaged_in(&golden, &what, &[name], part, allowed, |fs| {
                    overwrite(fs, name, at, &[bytes[at] ^ 1 << (at % 8)]);
                });
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_each_record_of_the_log() {
    let judge = Judge::new("a flipped bit of a record");
    for golden in [Golden::merged(), Golden::killed(), Golden::segmented()] {
        for name in golden.named(".wal") {
            let bytes = golden.read(name);
            for record in records(&golden.fs, name) {
                for at in [record.start, record.start + 13, record.start + 23, record.end - 1] {
                    let (part, allowed) = (Some(record.start..record.end), at_stake(&golden, name, at));
                    judge.damaged_in(&golden, &format!("byte {at}"), &[name], part, allowed, |fs| {
                        overwrite(fs, name, at, &[bytes[at] ^ 4])
                    });
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_group_of_commits_that_was_synced_as_one_is_refused() {
    let (judge, golden) = (Judge::new("a flipped bit of a group"), Golden::grouped());
    let name = golden.last_segment();
    let (bytes, records) = (golden.read(name), records(&golden.fs, name));
    let mut passed_by = Vec::new();
    for (i, record) in records.iter().enumerate() {
        // Number of records without proof before a record that was made when this one was durable.
        let unproven = records[i + 1..].iter().position(|later| later.synced_to > record.start);
        passed_by.push(unproven);
        let missing = golden.commits_behind(name, record.start);
        let allowed = unproven.map_or(Allowed::Exactly(missing), |_| Allowed::Newest);
        for at in [record.start, record.start + 13, record.start + 23, record.end - 1] {
            let (what, part) = (format!("byte {at}"), Some(record.start..record.end));
            let flip = |fs: &MemFs| overwrite(fs, name, at, &[bytes[at] ^ 4]);
            if unproven.is_some() {
                let fs = golden.copy();
                flip(&fs);
                refused(&golden, &fs, name, &what);
            }
            judge.damaged_in(&golden, &what, &[name], part, allowed, flip);
        }
    }
    // Three groups that are followed by another one, and the last group.
    let group = [Some(2), Some(1), Some(0)];
    let expected: Vec<Option<usize>> = [group, group, group, [None; 3]].concat();
    assert_eq!(passed_by, expected);
}

#[test]
fn damage_of_each_kind_of_database() {
    let judge = Judge::new("damage of each kind");
    for kind in NAMES {
        let golden = Golden::kind(kind);
        let last_record = golden.named(".wal").last().and_then(|name| records(&golden.fs, name).pop());
        for name in &golden.files {
            let bytes = golden.read(name);
            let is_last_segment = golden.named(".wal").last() == Some(name);
            for at in places(bytes.len(), 12) {
                // The cost of a torn tail is known where the earlier states are.
                if is_last_segment && last_record.is_some_and(|last| at >= last.start) {
                    continue;
                }
                let what = format!("{kind}: byte {at} inverted");
                judge.damaged(&golden, &what, &[name], Allowed::Newest, |fs| {
                    overwrite(fs, name, at, &[!bytes[at]]);
                });
            }
            if !name.ends_with(".wal-next") {
                let lose = |fs: &MemFs| fs.remove_file(&path(name)).unwrap();
                judge.damaged(&golden, &format!("{kind}: loss"), &[name], Allowed::Newest, lose);
            }
        }
    }
}

#[test]
fn any_byte_turned_around() {
    let (judge, golden) = (Judge::new("an inverted byte"), Golden::merged());
    for name in &golden.files {
        let bytes = golden.read(name);
        for at in places(bytes.len(), 60) {
            let allowed = at_stake(&golden, name, at);
            judge.damaged(&golden, &format!("byte {at} inverted"), &[name], allowed, |fs| {
                overwrite(fs, name, at, &[!bytes[at]]);
            });
        }
    }
}

#[test]
fn cut_at_any_length() {
    let judge = Judge::new("a cut");
    for (golden, sample) in [(Golden::merged(), 100), (Golden::killed(), 40), (Golden::segmented(), 40)] {
        for name in &golden.files {
            let bytes = golden.read(name);
            for len in one_in(2, places(bytes.len(), sample).into_iter()) {
                let what = format!("cut to {len} of {} bytes", bytes.len());
                judge.damaged(&golden, &what, &[name], Allowed::Newest, |fs| cut(fs, name, len));
            }
        }
    }
}

#[test]
fn a_manifest_that_lost_its_end_is_refused_before_its_tables_are_removed() {
    let judge = Judge::new("an end of a manifest");
    for golden in [Golden::flushed(), Golden::flushed_once(), Golden::compacted(), Golden::compacted_later()]
    {
        let name = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
        let bytes = golden.read(name);
        for at in one_in(3, 0..bytes.len()) {
            judge.damaged(&golden, &format!("cut to {at}"), &[name], Allowed::Newest, |fs| cut(fs, name, at));
            judge.damaged(&golden, &format!("zeros from {at}"), &[name], Allowed::Newest, |fs| {
                overwrite(fs, name, at, &vec![0; bytes.len() - at]);
            });
        }
    }
}

#[test]
fn a_block_in_the_place_of_another_is_noticed() {
    let judge = Judge::new("a misplaced block");
    for golden in [Golden::merged(), Golden::layered(), Golden::twins()] {
        let stored = |name: &str| {
            let bytes = golden.read(name);
            blocks(&golden.fs, name)
                .into_iter()
                .map(move |block| (block.start, bytes[block.start..block.end].to_vec()))
        };
        let all: Vec<_> =
            golden.named(".sst").flat_map(|name| stored(name).map(move |block| (name, block))).collect();
        let mut misplaced = 0;
        for (name, (start, was)) in &all {
            for (_, (_, other)) in
                all.iter().filter(|(_, (_, other))| other.len() == was.len() && other != was)
            {
                misplaced += 1;
                judge.damaged(&golden, &format!("a block at {start}"), &[name], Allowed::Newest, |fs| {
                    overwrite(fs, name, *start, other);
                });
            }
        }
        assert!(misplaced > 3, "{misplaced}");
    }
}

/// Asserts that the database is refused with the file's name and advice.
fn refused(golden: &Golden, fs: &MemFs, name: &str, what: &str) {
    match examine(golden, fs) {
        Outcome::Refused(error @ Error::Corrupt { .. }) => {
            assert!(
                names_the_damage(&error, &[name]) && error.to_string().contains("esker repair"),
                "{error}"
            );
        }
        Outcome::Refused(error) => panic!("{what}: {error}"),
        Outcome::Data(_, problems) => panic!("{what}: it opens: {problems:?}"),
    }
}

#[test]
fn a_log_cut_between_records_is_refused() {
    for golden in [Golden::merged(), Golden::killed(), Golden::segmented()] {
        let name = golden.last_segment();
        for record in records(&golden.fs, name) {
            for len in [record.start, record.end - 1, record.end] {
                let fs = golden.copy();
                cut(&fs, name, len);
                refused(&golden, &fs, name, &format!("{name} cut to {len}"));
            }
        }
    }
}

#[test]
fn a_log_of_zeros_behind_a_record_ends_there_unless_it_was_closed() {
    let judge = Judge::new("zeros");
    for golden in [Golden::merged(), Golden::killed()] {
        let name = golden.last_segment();
        let len = golden.read(name).len();
        for record in records(&golden.fs, name) {
            let to_the_end = |fs: &MemFs| overwrite(fs, name, record.start, &vec![0; len - record.start]);
            if golden.closed {
                let fs = golden.copy();
                to_the_end(&fs);
                refused(&golden, &fs, name, "zeros to the end");
            }
            let missing = golden.commits_behind(name, record.start);
            let allowed = if golden.closed { Allowed::Newest } else { Allowed::Exactly(missing) };
            judge.damaged(&golden, "zeros to the end", &[name], allowed, to_the_end);
            // Zeros followed by anything valid are damage.
            let allowed = at_stake(&golden, name, record.start);
            judge.damaged(&golden, "a record of zeros", &[name], allowed, |fs| {
                overwrite(fs, name, record.start, &vec![0; record.end - record.start]);
            });
        }
    }
}

#[test]
fn files_of_another_database_of_the_same_shape_are_refused() {
    let judge = Judge::new("a twin's file");
    let (one, other) = (Golden::double(1), Golden::double(2));
    assert!(one.files == other.files && one.newest != other.newest, "{:?}, {:?}", one.files, other.files);
    for name in one.files.iter().filter(|name| name.ends_with(".sst") || name.ends_with(".wal")) {
        let theirs = other.read(name);
        assert!(theirs.len() == one.read(name).len() && theirs != one.read(name), "{name}");
        let exchange = |fs: &MemFs| replace(fs, name, &theirs);
        let fs = one.copy();
        exchange(&fs);
        refused(&one, &fs, name, &format!("{name} of another database"));
        judge.damaged(&one, "a twin's file instead", &[name], Allowed::Newest, exchange);
    }
    for name in one.files.iter().filter(|name| name.starts_with("MANIFEST-")) {
        let exchange = |fs: &MemFs| replace(fs, name, &other.read(name));
        judge.damaged(&one, "a twin's file instead", &[name], Allowed::Newest, exchange);
    }
}

#[test]
fn a_log_segment_called_prepared_is_missed() {
    let golden = Golden::segmented();
    let name = golden.last_segment();
    let fs = golden.copy();
    fs.rename(&path(name), &path(&format!("{name}-next"))).unwrap();
    refused(&golden, &fs, name, "the last segment renamed");
}

#[test]
fn each_file_lost() {
    let judge = Judge::new("a loss");
    for golden in
        [Golden::merged(), Golden::layered(), Golden::twins(), Golden::killed(), Golden::segmented()]
    {
        for name in &golden.files {
            let lose = |fs: &MemFs| fs.remove_file(&path(name)).unwrap();
            judge.damaged(&golden, "loss", &[name], Allowed::Newest, lose);
        }
    }
}

#[test]
fn each_file_foreign() {
    let judge = Judge::new("a foreign file");
    let mut rng = fastrand::Rng::with_seed(5);
    let noise: Vec<u8> = (0..5000).map(|_| rng.u8(..)).collect();
    let text = b"This is not the file you are looking for.\n".repeat(20);
    for golden in [Golden::merged(), Golden::segmented()] {
        for name in &golden.files {
            let len = golden.read(name).len();
            let strange = [
                ("nothing", vec![]),
                ("noise", noise.clone()),
                ("text", text.clone()),
                ("zeros", vec![0; len]),
            ];
            let others = golden.files.iter().map(|other| (other.as_str(), golden.read(other)));
            for (what, bytes) in strange.into_iter().chain(others) {
                judge.damaged(&golden, &format!("{what} instead"), &[name], Allowed::Newest, |fs| {
                    replace(fs, name, &bytes)
                });
            }
        }
    }
}

#[test]
fn any_two_files_swapped() {
    let judge = Judge::new("a swap");
    for golden in [Golden::layered(), Golden::twins(), Golden::segmented()] {
        for (i, a) in golden.files.iter().enumerate() {
            for b in &golden.files[i + 1..] {
                judge.damaged(&golden, "swap", &[a, b], Allowed::Newest, |fs| {
                    replace(fs, a, &golden.read(b));
                    replace(fs, b, &golden.read(a));
                });
            }
        }
    }
}

#[test]
fn two_tables_of_one_shape_swapped_are_refused() {
    let golden = Golden::twins();
    let [a, b] = golden.twin_tables();
    let fs = golden.copy();
    replace(&fs, a, &golden.read(b));
    replace(&fs, b, &golden.read(a));
    let read = simulated(Arc::new(fs)).open(dir()).and_then(|db| dump(&db));
    let error = read.map(drop).unwrap_err();
    assert!(error.is_corrupt() && names_the_damage(&error, &[a, b]), "{error}");
}

#[test]
fn a_torn_log_tail_is_trimmed_in_silence_and_counted() {
    let golden = Golden::killed();
    let log = golden.last_segment();
    let bytes = golden.read(log);
    // In the value of the last commit.
    let at = bytes.windows(30).rposition(|w| w == logged_value(LOGGED - 1)).unwrap() + 7;
    let fs = golden.copy();
    overwrite(&fs, log, at, &vec![0; bytes.len() - at]);
    let db = simulated(Arc::new(fs)).open(dir()).unwrap();
    assert_eq!(dump(&db).unwrap(), golden.earlier[0]);
    let stats = db.stats();
    assert!(stats.recovered_torn_bytes > 0, "{stats:?}");
    assert!(db.check().unwrap().problems.is_empty());
}

#[test]
fn damage_in_the_middle_of_the_log_is_refused_and_repair_named() {
    let golden = Golden::merged();
    let log = golden.last_segment();
    let at = golden.read(log).windows(30).position(|w| w == logged_value(2)).unwrap();
    let fs = golden.copy();
    overwrite(&fs, log, at, b"!");
    let error = simulated(Arc::new(fs.clone())).open(dir()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset: 1.., .. }), "{error:?}");
    assert!(error.to_string().contains("esker repair"), "{error}");
    assert_eq!(read(&fs, log)[at], b'!', "nothing was changed");
}

#[test]
fn each_segment_of_the_log_lost() {
    // Segments of 16 KiB, and one memtable for all commits.
    let builder = |fs: &MemFs| simulated(Arc::new(fs.clone())).tuning(|t| t.memtable_bytes(64 << 10));
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
            let reported = report.losses.iter().find(|loss| loss.path == path(segment));
            assert!(reported.is_some_and(|loss| loss.detail.contains("missing")), "{:#?}", report.losses);
            let db = builder(&fs).open("repaired").unwrap();
            let left = dump_sound(&db).unwrap()["default"].len();
            assert!(left > 0 && left < 40, "{segment}: {left}");
        }
    }
}

#[test]
fn strange_files_beside_ours_are_left_alone() {
    let golden = Golden::merged();
    let fs = golden.copy();
    let strange = ["notes.txt", "000001.sst.bak", "MANIFEST", "x.wal", "999999999999999999999999.sst"];
    for name in strange {
        replace(&fs, name, b"mine");
    }
    match examine(&golden, &fs) {
        Outcome::Data(found, problems) => {
            assert!(found == golden.newest && problems.is_empty(), "{problems:?}")
        }
        Outcome::Refused(error) => panic!("{error}"),
    }
    for name in strange {
        assert_eq!(read(&fs, name), b"mine", "{name}");
    }
    assert!(fs.exists(Path::new(dir())).unwrap());
}

#[test]
fn canary_wrong_data_is_noticed() {
    let judge = Judge::new("a canary");
    let notices = |golden: &Golden, names: &[&str], allowed: Allowed, damage: &dyn Fn(&MemFs)| {
        catch_unwind(AssertUnwindSafe(|| judge.damaged(golden, "a canary", names, allowed, damage))).is_err()
    };
    let golden = Golden::merged();
    let log = golden.last_segment().to_owned();
    // A database with other contents must be distinguished from the golden one.
    assert!(notices(&golden, &["CURRENT"], Allowed::Newest, &|fs| {
        let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
        db.default_keyspace().put("a", "b").unwrap();
        db.close().unwrap();
    }));
    // An error that points to another part than the damaged one. The newest table: older ones may still exist
    // although they were replaced.
    let table = golden.named(".sst").last().unwrap();
    let last_byte = golden.read(table).len() - 1;
    let points_elsewhere = |part: Range<usize>| {
        let flip = |fs: &MemFs| overwrite(fs, table, last_byte, b"?");
        let work = || judge.damaged_in(&golden, "a canary", &[table], Some(part), Allowed::Newest, flip);
        catch_unwind(AssertUnwindSafe(work)).is_err()
    };
    assert!(points_elsewhere(0..9) && !points_elsewhere(last_byte - 79..last_byte + 1));
    // One commit more or less than the zeros cost, and an error that names a sound file.
    let killed = Golden::killed();
    let last = killed.last_segment().to_owned();
    let (start, len) = (records(&killed.fs, &last)[4].start, killed.read(&last).len());
    for missing in [3, 4, 5] {
        let zeros = |fs: &MemFs| overwrite(fs, &last, start, &vec![0; len - start]);
        let noticed = notices(&killed, &[&last], Allowed::Exactly(missing), &zeros);
        assert_eq!(noticed, missing != LOGGED - 4, "{missing}");
    }
    assert!(notices(&golden, &["CURRENT"], Allowed::Newest, &|fs| overwrite(fs, &log, 0, b"?")));
}
