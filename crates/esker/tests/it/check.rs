//! Checks of a database while it is written, and of disagreements that a check must find.
//!
//! - A check of a sound database finds nothing, whatever runs meanwhile.
//! - Disagreements between files that are sound by themselves are found. Here: those visible from outside.
//!   `src/rescue/check/tests.rs` has those of a manifest and a catalog.
#![expect(clippy::disallowed_methods, reason = "writers are threads of their own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::damage::{Golden, cut, overwrite, parts, path, read, records, replace};
use crate::common::{dir, simulated, tiny};
use esker::{BackgroundStep, Durability, Error};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind};

#[test]
fn nothing_is_found_while_others_write() {
    let env = Env::with_fs(Arc::new(MemFs::new()));
    let db = tiny(env).background(true).durability(Durability::Buffered).open(dir()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU32::new(0));
    let writers: Vec<_> = (0..3u32)
        .map(|w| {
            let (db, done, written) = (db.clone(), done.clone(), written.clone());
            std::thread::spawn(move || {
                let mut n = 0u32;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    written.fetch_add(1, Ordering::Relaxed);
                    let name = format!("space {}", (w + n / 50) % 5);
                    // Another writer may have dropped it.
                    let Ok(keyspace) = db.keyspace(&name) else { continue };
                    let key = (n % 97).to_be_bytes();
                    let _ = match n % 50 {
                        7 => db.drop_keyspace(&name),
                        9 => keyspace.delete_range(3u32.to_be_bytes()..40u32.to_be_bytes()).map(drop),
                        11 => keyspace.clear().map(drop),
                        13 => db.flush(),
                        k if k % 5 == 0 => keyspace.delete(key).map(drop),
                        _ => keyspace.put(key, vec![w as u8; 40]).map(drop),
                    };
                }
            })
        })
        .collect();
    let (mut checks, mut counted) = (0, 0);
    while checks < 40 || counted == 0 || written.load(Ordering::Relaxed) < 2000 {
        let report = db.check().unwrap();
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        checks += 1;
        counted += report.tables + report.log_segments;
    }
    done.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    db.close().unwrap();
}

#[test]
fn a_manifest_that_the_next_opening_would_not_find_is_a_problem_now() {
    let fs = Golden::flushed().copy();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let check = || db.check().unwrap().problems;
    assert_eq!(check(), Vec::<String>::new());
    let current = read(&fs, "CURRENT");
    let others: [&[u8]; 2] = [b"?", b"MANIFEST-"];
    for other in others {
        replace(&fs, "CURRENT", other);
        assert!(matches!(&check()[..], [problem] if problem.contains("CURRENT")), "{:?}", check());
    }
    // The manifest of another time, with its checksum.
    let other = "MANIFEST-000099";
    let older = format!("{other} {:08x}\n", crc32c::crc32c(other.as_bytes())).into_bytes();
    replace(&fs, "CURRENT", &older);
    assert!(matches!(&check()[..], [problem] if problem.contains("it names")), "{:?}", check());
    fs.remove_file(&path("CURRENT")).unwrap();
    assert!(matches!(&check()[..], [problem] if problem.contains("missing")), "{:?}", check());
    replace(&fs, "CURRENT", &current);
    assert_eq!(check(), Vec::<String>::new());
}

#[test]
fn leftovers_are_noted_and_missing_files_are_problems() {
    let golden = Golden::layered();
    let fs = golden.copy();
    let builder = || simulated(Arc::new(fs.clone()));
    let sound = builder().check_offline(dir()).unwrap();
    assert!(sound.problems.is_empty() && sound.live_keys > Some(0) && sound.commits > 0, "{sound:?}");
    replace(&fs, "999999.sst", b"an orphan");
    replace(&fs, "CURRENT.tmp", b"left over");
    let noted = builder().check_offline(dir()).unwrap();
    assert!(noted.problems.is_empty(), "{:?}", noted.problems);
    assert!(noted.notes.iter().filter(|n| n.contains("not needed")).count() >= 2, "{:?}", noted.notes);
    // Two problems at once: both are reported.
    let is_needed = |name: &&String| !sound.notes.iter().any(|note| note.contains(&***name));
    let tables: Vec<_> = golden.named(".sst").filter(is_needed).collect();
    fs.remove_file(&path(tables[0])).unwrap();
    overwrite(&fs, tables[1], 3, b"?");
    // Of the last two, the properties and the footer, the first.
    let parts = parts(&golden.fs, tables[1]);
    overwrite(&fs, tables[1], parts[parts.len() - 2].end - 1, b"?");
    let found = builder().check_offline(dir()).unwrap().problems;
    assert!(found.iter().any(|p| p.contains(&**tables[0]) && p.contains("missing")), "{found:#?}");
    assert!(found.iter().filter(|p| p.contains(&**tables[1])).count() >= 2, "{found:#?}");
    assert!(fs.exists(&path("999999.sst")).unwrap(), "nothing is removed");
}

#[test]
fn tables_that_prove_a_lost_end_are_reported_beside_other_damage_and_not_called_leftovers() {
    let golden = Golden::flushed();
    let tables: Vec<_> = golden.named(".sst").collect();
    let manifest = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
    let mut reported = 0;
    for at in 0..golden.read(manifest).len() {
        let fs = golden.copy();
        cut(&fs, manifest, at);
        overwrite(&fs, tables[0], 20, &[!golden.read(tables[0])[20]]);
        let report = simulated(Arc::new(fs)).check_offline(dir()).unwrap();
        let has_problem =
            |name: &str, text: &str| report.problems.iter().any(|p| p.contains(name) && p.contains(text));
        // The manifest also names the other table, whose block is damaged.
        if has_problem(tables[0], "block") && has_problem(tables[1], "The end of the manifest is lost") {
            reported += 1;
            assert!(!report.notes.iter().any(|note| note.contains(&**tables[1])), "{report:#?}");
        }
    }
    assert!(reported > 0);
}

#[test]
fn an_unnamed_table_that_cannot_be_read_is_reported_beside_other_damage() {
    let golden = Golden::flushed();
    let fs = golden.copy();
    let table = golden.named(".sst").next().unwrap();
    overwrite(&fs, table, 20, &[!golden.read(table)[20]]);
    fs.create_dir_all(&dir().join("000099.sst")).unwrap();
    let report = simulated(Arc::new(fs.clone())).check_offline(dir()).unwrap();
    for name in [&**table, "000099.sst"] {
        assert!(report.problems.iter().any(|problem| problem.contains(name)), "{name}: {report:#?}");
    }
    assert!(!report.notes.iter().any(|note| note.contains("000099.sst")), "{report:#?}");
    assert!(simulated(Arc::new(fs)).open(dir()).is_err(), "what it holds is not known");
}

#[test]
fn a_database_that_was_never_finished_is_none_and_one_without_current_is_damaged() {
    let fs = MemFs::new();
    let builder = || simulated(Arc::new(fs.clone()));
    fs.create_dir_all(dir()).unwrap();
    replace(&fs, "MANIFEST-000001", b"torn");
    assert!(matches!(builder().check_offline(dir()), Err(Error::NotFound(_))));
    let db = builder().open(dir()).unwrap();
    db.default_keyspace().put("k", "v").unwrap();
    db.close().unwrap();
    fs.remove_file(&path("CURRENT")).unwrap();
    let problems = builder().check_offline(dir()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("CURRENT")), "{problems:?}");
    assert!(builder().open(dir()).unwrap_err().is_corrupt());
}

#[test]
fn commits_that_finished_segments_miss_are_found_while_the_database_is_open() {
    let fs = MemFs::new();
    let builder = || simulated(Arc::new(fs.clone())).tuning(|t| t.memtable_bytes(64 << 10));
    let db = builder().open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    for n in 0..60u8 {
        keyspace.put([n], vec![n; 700]).unwrap();
        if n == 9 {
            db.flush().unwrap();
        }
    }
    let names = fs.list_dir(dir()).unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".wal")).collect();
    assert!(segments.len() > 2, "{names:?}");
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    for segment in &segments[..segments.len() - 1] {
        let (bytes, all) = (read(&fs, segment), records(&fs, segment));
        // Whole commits at the start, in the middle and at the end, each followed by another.
        for n in [0, all.len() / 2, all.len() - 2] {
            let (record, next) = (all[n], all[n + 1]);
            let is_whole = |n: usize| n == 0 || all[n - 1].seq != all[n].seq;
            if !record.ends_commit || !is_whole(n) || (n == 0 && *segment != segments[0]) {
                continue;
            }
            let mut without = [&bytes[..record.start], &bytes[next.start..]].concat();
            without.resize(bytes.len(), 0);
            replace(&fs, segment, &without);
            let found = db.check().unwrap().problems;
            let expected = format!("commit {} follows commit {}", record.seq + 1, record.seq - 1);
            assert_eq!(found.len(), 1, "{segment}, record {n}: {found:#?}");
            assert!(found[0].contains(&**segment) && found[0].contains(&expected), "{found:#?}");
            let killed = fs.kill();
            let offline = simulated(Arc::new(killed)).check_offline(dir()).unwrap().problems;
            assert!(offline.iter().any(|p| p.contains(&expected)), "{offline:#?}");
        }
        replace(&fs, segment, &bytes);
    }
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn lost_segments_of_the_log_are_found_while_the_database_is_open() {
    let fs = MemFs::new();
    let builder = simulated(Arc::new(fs.clone())).memory(16 << 20).tuning(|t| t.memtable_bytes(4 << 20));
    let db = builder.open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    // More than the first two segments hold, which have 256 and 512 KiB.
    for n in 0..1000u32 {
        keyspace.put(n.to_be_bytes(), vec![b'v'; 1000]).unwrap();
    }
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    let names = fs.list_dir(dir()).unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".wal")).collect();
    assert!(segments.len() > 2, "{names:?}");
    for (lost, name) in segments.iter().enumerate() {
        fs.remove_file(&path(name)).unwrap();
        let found = db.check().unwrap().problems;
        assert!(found.iter().any(|p| p.contains(&***name) && p.contains("missing")), "{found:#?}");
        assert_eq!(found.len(), lost + 1, "{found:#?}");
    }
}

#[test]
fn foreign_and_renamed_segments_of_the_log_are_found_while_the_database_is_open() {
    let open = |seed| {
        let fs = MemFs::new();
        let builder = tiny(Env::simulated(Arc::new(fs.clone()), seed));
        let db = builder.memory(16 << 20).tuning(|t| t.memtable_bytes(4 << 20)).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        for n in 0..1000u32 {
            keyspace.put(n.to_be_bytes(), vec![b'v'; 1000]).unwrap();
        }
        (fs, db)
    };
    let ((fs, db), (other, _its_db)) = (open(1), open(2));
    let names = fs.list_dir(dir()).unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".wal")).collect();
    assert!(segments.len() > 2, "{names:?}");
    // The newest is being written, so an online check skips it.
    for name in &segments[..segments.len() - 1] {
        let own = read(&fs, name);
        replace(&fs, name, &read(&other, name));
        let found = db.check().unwrap().problems;
        assert!(found.len() == 1 && found[0].contains(&***name), "{found:#?}");
        assert!(found[0].contains("of the log of another database"), "{found:#?}");
        replace(&fs, name, &own);
        let prepared = path(&format!("{name}-next"));
        fs.rename(&path(name), &prepared).unwrap();
        let found = db.check().unwrap().problems;
        assert!(found.iter().any(|p| p.contains(&***name) && p.contains("missing")), "{found:#?}");
        fs.rename(&prepared, &path(name)).unwrap();
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn what_cannot_be_read_is_reported_as_that_and_not_as_damage() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let builder =
        simulated(Arc::new(fs.clone())).stepped().memory(16 << 20).tuning(|t| t.memtable_bytes(4 << 20));
    let db = builder.open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    for n in 0..1000u32 {
        keyspace.put(n.to_be_bytes(), vec![b'v'; 1000]).unwrap();
    }
    // The file for the next segment has a name before it is a segment.
    db.step(BackgroundStep::PrepareLog).unwrap();
    let (mut reported, mut nth) = (0, 0);
    loop {
        nth += 1;
        for times in [1, u64::MAX] {
            fs.add(FaultRule {
                times,
                ..FaultRule::new(&[OpKind::Open, OpKind::Read], FaultAction::Fail(std::io::ErrorKind::Other))
                    .nth(nth)
            });
            let before = fs.fired();
            // An error of the check itself counts as well.
            let problems = db.check().map_or_else(|error| vec![error.to_string()], |report| report.problems);
            let fired = fs.fired() > before;
            fs.clear();
            assert!(
                problems.iter().all(|p| p.contains("injected fault")),
                "call {nth}, {times}: {problems:#?}"
            );
            reported += usize::from(!problems.is_empty());
            if !fired {
                assert!(problems.is_empty() && reported > 10, "{reported}");
                return;
            }
        }
    }
}
