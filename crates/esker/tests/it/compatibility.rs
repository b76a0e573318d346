//! Databases of earlier versions are read; those of later ones are refused with a typed error.
//!
//! ```text
//!   tests/goldens/database-N/NAME --copy--> open, read, check, repair <--> EXPECTED
//! ```
//!
//! CO1. Every golden directory, of every version, opens, holds exactly what it did, and is sound; it can be written and
//!      merged, and is repaired without loss.
//! CO2. A file of a newer format is refused with its name and both versions, and nothing is changed.
//! CO3. Opening a database for writing brings its manifest to the newest format; what that format guards is guarded then.
//! CO4. A sound block in the place of another, which tables of formats 1 and 2 do not tell from the right one, ends a merge.
//! CO5. An opening that is cut off at any change, by a kill or a loss of power, loses nothing of what an earlier version wrote.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read golden files")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::contents::{Contents, difference, dump_sound};
use crate::common::damage::{Golden, blocks, overwrite, path, read, replace};
use crate::common::goldens::{EXPECTED, NAMES, decode, encode, make};
use crate::common::{dir, simulated};
use esker::Error;
use esker_env::{FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind};

/// The newest version of the manifest.
const NEWEST: u8 = 3;
/// The newest directories of golden databases: those that this version would write. The first three have manifests of their number, the
/// later ones have those of the third.
const NEWEST_DIRECTORY: u8 = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// All golden directories.
fn goldens() -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    list(&root()).iter().flat_map(|version| list(version)).collect()
}

/// A copy in memory, and what it should hold.
fn load(golden: &Path) -> (MemFs, Contents) {
    let fs = MemFs::new();
    fs.create_dir_all(dir()).unwrap();
    let mut expected = None;
    for entry in std::fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        let (name, bytes) = (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
        if name == EXPECTED {
            expected = Some(decode(std::str::from_utf8(&bytes).unwrap()));
        } else {
            replace(&fs, &name, &bytes);
        }
    }
    (fs, expected.expect("a golden directory says what it holds"))
}

#[test]
fn co1_every_version_is_read() {
    let all = goldens();
    assert!(all.len() >= NAMES.len(), "{all:?}");
    for golden in all {
        let name = golden.display();
        let (fs, mut expected) = load(&golden);
        let builder = simulated(Arc::new(fs.clone()));
        let offline = builder.clone().check_offline(dir()).unwrap();
        assert!(offline.problems.is_empty(), "{name}: {:#?}", offline.problems);
        let repaired = builder.clone().repair(dir(), "repaired").unwrap();
        assert!(repaired.losses.is_empty(), "{name}: {:#?}", repaired.losses);
        let db = builder.open("repaired").unwrap();
        assert!(dump_sound(&db).unwrap() == expected, "{name}: repaired");

        let builder = simulated(Arc::new(fs)).create_if_missing(false);
        let db = builder.open(dir()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = dump_sound(&db).unwrap();
        assert!(found == expected, "{name}: {}", difference(&found, &expected));
        db.default_keyspace().put("a new key", "of this version").unwrap();
        db.compact().unwrap();
        expected.get_mut("default").unwrap().insert(b"a new key".to_vec(), b"of this version".to_vec());
        let found = dump_sound(&db).unwrap();
        assert!(found == expected, "{name}: {}", difference(&found, &expected));
    }
}

#[test]
fn co5_an_opening_that_is_cut_off_loses_nothing() {
    let mut cut_off = 0;
    for golden in goldens() {
        let (fs, expected) = load(&golden);
        let durable = fs.crash_keep_all();
        for n in 1.. {
            let fs = durable.kill();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let end = FaultAction::Freeze { keep: [0, 7, 600, usize::MAX][n as usize % 4] };
            faults.add(FaultRule::new(&OpKind::CHANGES, end).nth(n));
            let opened = simulated(Arc::new(faults.clone())).open(dir());
            let is_over = !faults.is_frozen();
            // A process that ends closes nothing.
            faults.freeze();
            drop(opened);
            if is_over {
                break;
            }
            for left in [fs.kill(), fs.crash_strict(), fs.crash(n)] {
                let what = format!("{}, cut off at change {n}", golden.display());
                let opened = simulated(Arc::new(left)).create_if_missing(false).open(dir());
                let found = dump_sound(&opened.unwrap_or_else(|e| panic!("{what}: {e}"))).unwrap();
                assert!(found == expected, "{what}: {}", difference(&found, &expected));
            }
            cut_off += 1;
        }
    }
    assert!(cut_off > 300, "{cut_off}");
}

#[test]
fn co4_a_merge_of_a_misplaced_block_fails_and_names_its_table() {
    let mut failed = 0;
    for golden in goldens() {
        let (sound, _) = load(&golden);
        let tables: Vec<_> =
            sound.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")).collect();
        let mut all = Vec::new();
        for name in &tables {
            let bytes = read(&sound, name);
            // Of formats 1 and 2; the checksums of later ones know their place.
            if bytes[bytes.len() - 16] < 3 {
                let stored = blocks(&sound, name).into_iter().map(|block| block.start..block.end);
                all.extend(stored.map(|at| (name, at.start, bytes[at].to_vec())));
            }
        }
        for (name, start, was) in &all {
            let others = all.iter().map(|(_, _, bytes)| bytes);
            for other in others.filter(|other| other.len() == was.len() && *other != was) {
                let what = format!("{}: {name} at {start}", golden.display());
                let fs = sound.kill();
                overwrite(&fs, name, *start, other);
                let db = match simulated(Arc::new(fs)).open(dir()) {
                    Ok(db) => db,
                    // It made the catalog of keyspaces one that cannot be.
                    Err(error) => {
                        assert!(error.is_corrupt(), "{what}: {error}");
                        continue;
                    }
                };
                // Lies over all tables that there are.
                db.create_keyspace("zz").unwrap();
                let error = db.compact().expect_err(&what);
                assert!(
                    matches!(&error, Error::Corrupt { path: named, .. } if *named == path(name)),
                    "{what}: {error}"
                );
                let stats = db.stats();
                assert_eq!((stats.merges_failed, stats.tables_unreadable), (1, 1), "{what}: {stats:?}");
                failed += 1;
            }
        }
    }
    assert!(failed > 8, "{failed}");
}

/// The first record of the manifest in force.
fn manifest_header(fs: &MemFs) -> Vec<u8> {
    let current = String::from_utf8(read(fs, "CURRENT")).unwrap();
    let env = esker_env::Env::simulated(Arc::new(fs.clone()), 1);
    let name = current.split(' ').next().unwrap();
    esker::recordio::Reader::options().env(&env).open(path(name)).unwrap().next().unwrap().unwrap().to_vec()
}

#[test]
fn co3_a_manifest_is_brought_to_the_newest_version_and_a_lost_log_is_noticed_from_then_on() {
    let mut lost = 0;
    for golden in goldens() {
        let name = golden.display();
        let (fs, expected) = load(&golden);
        let version = golden.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let written = version.strip_prefix("database-").unwrap().parse::<u8>().unwrap();
        assert_eq!(manifest_header(&fs).last(), Some(&written.min(NEWEST)), "{name}");
        let open = |fs: &MemFs| simulated(Arc::new(fs.clone())).memtable_bytes(64 << 10).open(dir());
        drop(open(&fs).unwrap());
        assert_eq!(manifest_header(&fs).last(), Some(&NEWEST), "{name}");
        assert!(dump_sound(&open(&fs).unwrap()).unwrap() == expected, "{name}");
        for segment in fs.list_dir(dir()).unwrap().iter().filter(|name| name.ends_with(".wal")) {
            let fs = fs.kill();
            fs.remove_file(&path(segment)).unwrap();
            let error = open(&fs).map(drop).unwrap_err();
            assert!(
                matches!(&error, Error::Corrupt { path: p, .. } if *p == path(segment)),
                "{name}: {error}"
            );
            lost += 1;
        }
    }
    assert!(lost > 4, "{lost}");
}

/// The versions that the headers of log segments and the footers of tables have.
fn versions(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> BTreeSet<(&'static str, u32)> {
    let files = files.into_iter().filter_map(|(name, bytes)| {
        let (kind, at) = match name.rsplit_once('.')?.1 {
            "wal" => ("log", 8),
            "sst" => ("table", bytes.len() - 16),
            _ => return None,
        };
        Some((kind, u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())))
    });
    files.collect()
}

#[test]
fn what_this_version_writes_is_what_its_directories_expect() {
    assert!(!root().join(format!("database-{}", NEWEST_DIRECTORY + 1)).exists(), "there are newer ones");
    let dir = root().join(format!("database-{NEWEST_DIRECTORY}"));
    let mut there: Vec<_> = goldens().into_iter().filter(|golden| golden.starts_with(&dir)).collect();
    for name in NAMES {
        let golden = dir.join(name);
        assert!(there.contains(&golden), "{} is missing", golden.display());
        there.retain(|other| *other != golden);
        let files = make(name).unwrap();
        let expected = String::from_utf8(files[EXPECTED].clone()).unwrap();
        assert_eq!(encode(&decode(&expected)), expected, "{name}");
        let kept = std::fs::read_to_string(golden.join(EXPECTED)).unwrap();
        assert!(kept == expected, "{name}: {}", difference(&decode(&expected), &decode(&kept)));
        let version = manifest_header(&load(&golden).0).pop();
        assert_eq!(version, Some(NEWEST), "{name}: the manifest's version");
        let kept = load(&golden).0;
        let names = kept.list_dir(crate::common::dir()).unwrap().into_iter();
        let kept = versions(names.map(|name| (name.clone(), read(&kept, &name))));
        assert_eq!(kept, versions(files.clone()), "{name}: a new version of a format needs new directories");
        let bytes: usize = files.values().map(Vec::len).sum();
        assert!(bytes < 60_000, "{name}: {bytes} bytes are too many for the repository");
    }
    assert!(there.is_empty(), "nobody makes {there:?}");
}

/// Raises a number in a file whose bytes `covered` have their checksum at `crc_at`.
fn raise(bytes: &mut [u8], at: usize, covered: std::ops::Range<usize>, crc_at: usize) {
    bytes[at] = 99;
    let crc = crc32c::crc32c(&bytes[covered]).to_le_bytes();
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc);
}

/// Opening, checking and repairing refuse `name` as newer (CO2).
fn refused(golden: &Golden, name: &str, bytes: &[u8]) {
    let fs = golden.copy();
    replace(&fs, name, bytes);
    let builder = simulated(Arc::new(fs.clone()));
    let outcomes =
        [builder.clone().open(dir()).map(drop), builder.clone().repair(dir(), "repaired").map(drop)];
    for outcome in outcomes {
        match outcome {
            Err(Error::UnsupportedVersion { path: named, found: 99, supported, .. }) => {
                assert_eq!(named, path(name));
                assert!(supported < 99);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let checked = builder.check_offline(dir());
    assert!(!matches!(&checked, Ok(report) if report.problems.is_empty()), "{name}: {checked:?}");
    assert!(read(&fs, name) == bytes, "{name} was changed");
}

#[test]
fn co2_newer_formats_are_refused() {
    let golden = Golden::merged();
    let file = |part: &str| golden.files.iter().rfind(|name| name.contains(part)).unwrap();

    let table = file(".sst");
    let mut bytes = golden.read(table);
    let footer = bytes.len() - 80;
    raise(&mut bytes[footer..], 64, 0..68, 68);
    refused(&golden, table, &bytes);

    let log = file(".wal");
    let mut bytes = golden.read(log);
    raise(&mut bytes, 8, 0..28, 28);
    refused(&golden, log, &bytes);

    let manifest = file("MANIFEST-");
    let mut bytes = golden.read(manifest);
    // The record file around it, then what is in it.
    raise(&mut bytes, 8, 0..16, 16);
    refused(&golden, manifest, &bytes);
    let fs = MemFs::new();
    let env = esker_env::Env::simulated(Arc::new(fs.clone()), 1);
    fs.create_dir_all(dir()).unwrap();
    let mut writer = esker::recordio::Writer::options().env(&env).create(path("new")).unwrap();
    writer.append(b"esker manifest\x63").unwrap();
    writer.append(b"").unwrap();
    writer.finish().unwrap();
    refused(&golden, manifest, &read(&fs, "new"));
}

#[test]
fn co2_a_newer_table_that_nothing_names_is_refused_and_kept() {
    let golden = Golden::merged();
    let mut bytes = golden.read(golden.named(".sst").last().unwrap());
    let footer = bytes.len() - 80;
    raise(&mut bytes[footer..], 64, 0..68, 68);
    let (fs, name) = (golden.copy(), "000900.sst");
    replace(&fs, name, &bytes);
    let builder = simulated(Arc::new(fs.clone()));
    match builder.clone().open(dir()).map(drop) {
        Err(Error::UnsupportedVersion { path: named, found: 99, .. }) => assert_eq!(named, path(name)),
        other => panic!("{other:?}"),
    }
    let checked = builder.clone().check_offline(dir()).unwrap();
    assert!(checked.problems.iter().any(|problem| problem.contains(name)), "{checked:#?}");
    assert!(!checked.notes.iter().any(|note| note.contains(name)), "{checked:#?}");
    // A repair goes on without it, and says so.
    let repaired = builder.clone().repair(dir(), "repaired").unwrap();
    assert!(repaired.losses.iter().any(|loss| loss.path == path(name)), "{repaired:#?}");
    assert!(dump_sound(&builder.open("repaired").unwrap()).unwrap() == golden.newest);
    assert!(read(&fs, name) == bytes, "it was changed");
}

#[test]
fn options_are_for_people_and_may_say_anything() {
    let golden = Golden::merged();
    let fs = golden.copy();
    replace(&fs, "OPTIONS", b"of_a_later_version = yes\n");
    let db = simulated(Arc::new(fs)).open(dir()).unwrap();
    assert!(dump_sound(&db).unwrap() == golden.newest);
}
