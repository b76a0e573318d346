//! Databases written by earlier versions are read. Those of later versions are refused with a typed error.
//!
//! ```text
//!   tests/goldens/database-1/NAME --copy--> open, read, check, repair <--> EXPECTED
//! ```
//!
//! - Every golden directory opens, holds exactly its expected contents, and is sound. It can be written and
//!   compacted, and is repaired without loss.
//! - A file with a newer format, or with flags that this build does not know, is refused. The error names the
//!   file and both versions, and nothing changes.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read golden files")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::contents::{Contents, difference, dump, dump_sound};
use crate::common::damage::{Golden, path, read, replace};
use crate::common::goldens::{EXPECTED, NAMES, decode, encode, make};
use crate::common::{dir, simulated};
use esker::Error;
use esker_env::{Fs, MemFs};

/// The golden directories.
fn goldens() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/database-1");
    let mut paths: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A copy in memory, and its expected contents.
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
fn golden_directories_are_read() {
    for golden in goldens() {
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

/// The version in the first record of the current manifest.
fn manifest_version(fs: &MemFs) -> u8 {
    let current = String::from_utf8(read(fs, "CURRENT")).unwrap();
    let env = esker_env::Env::simulated(Arc::new(fs.clone()), 1);
    let name = current.split(' ').next().unwrap();
    let mut reader = esker::recordio::Reader::options().env(&env).open(path(name)).unwrap();
    *reader.next().unwrap().unwrap().last().unwrap()
}

/// The versions in the headers of log segments and the footers of tables.
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
fn what_this_version_writes_is_what_the_directories_expect() {
    let mut there = goldens();
    for name in NAMES {
        let golden = there.iter().position(|golden| golden.ends_with(name));
        let golden = there.swap_remove(golden.unwrap_or_else(|| panic!("{name} is missing")));
        let files = make(name).unwrap();
        let expected = String::from_utf8(files[EXPECTED].clone()).unwrap();
        assert_eq!(encode(&decode(&expected)), expected, "{name}");
        let kept = std::fs::read_to_string(golden.join(EXPECTED)).unwrap();
        assert!(kept == expected, "{name}: {}", difference(&decode(&expected), &decode(&kept)));
        let kept = load(&golden).0;
        assert_eq!(manifest_version(&kept), 1, "{name}: the manifest's version");
        let names = kept.list_dir(dir()).unwrap().into_iter();
        let kept = versions(names.map(|name| (name.clone(), read(&kept, &name))));
        assert_eq!(kept, versions(files.clone()), "{name}: a new version of a format needs new directories");
        let bytes: usize = files.values().map(Vec::len).sum();
        assert!(bytes < 60_000, "{name}: {bytes} bytes are too many for the repository");
    }
    assert!(there.is_empty(), "no test makes {there:?}");
}

/// A version that no format has.
const LATER: u8 = 99;

/// Sets a byte in a file. The checksum of the bytes `covered` is at `crc_at`.
fn set(bytes: &mut [u8], (at, to): (usize, u8), covered: std::ops::Range<usize>, crc_at: usize) {
    bytes[at] = to;
    let crc = crc32c::crc32c(&bytes[covered]).to_le_bytes();
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc);
}

/// Opening, checking and repairing refuse `name` as of this version.
fn refused(golden: &Golden, name: &str, version: u8, bytes: &[u8]) {
    let fs = golden.copy();
    replace(&fs, name, bytes);
    let builder = simulated(Arc::new(fs.clone()));
    let outcomes = [
        builder.clone().open(dir()).and_then(|db| dump(&db)).map(drop),
        builder.clone().repair(dir(), "repaired").map(drop),
    ];
    for outcome in outcomes {
        match outcome {
            Err(Error::UnsupportedVersion { path: named, found, supported, .. }) => {
                // Version 2 of a segment of the log is encrypted.
                let newest = if name.ends_with(".wal") { 2 } else { 1 };
                assert_eq!((named, found, supported), (path(name), version.into(), newest));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let checked = builder.check_offline(dir());
    assert!(!matches!(&checked, Ok(report) if report.problems.is_empty()), "{name}: {checked:?}");
    assert!(read(&fs, name) == bytes, "{name} was changed");
}

#[test]
fn newer_formats_are_refused() {
    let golden = Golden::merged();
    let file = |part: &str| golden.files.iter().rfind(|name| name.contains(part)).unwrap();

    let table = file(".sst");
    let mut bytes = golden.read(table);
    let footer = bytes.len() - 80;
    set(&mut bytes[footer..], (64, LATER), 0..68, 68);
    refused(&golden, table, LATER, &bytes);
    // The flags of a table.
    let mut bytes = golden.read(table);
    set(&mut bytes[footer..], (52, 8), 0..68, 68);
    refused(&golden, table, 1, &bytes);

    let log = file(".wal");
    let mut bytes = golden.read(log);
    set(&mut bytes, (8, LATER), 0..28, 28);
    refused(&golden, log, LATER, &bytes);

    let manifest = file("MANIFEST-");
    let mut bytes = golden.read(manifest);
    // First the record file itself, then its content.
    set(&mut bytes, (8, LATER), 0..16, 16);
    refused(&golden, manifest, LATER, &bytes);
    let fs = MemFs::new();
    let env = esker_env::Env::simulated(Arc::new(fs.clone()), 1);
    fs.create_dir_all(dir()).unwrap();
    let mut writer = esker::recordio::Writer::options().env(&env).create(path("new")).unwrap();
    writer.append(b"esker manifest\x63").unwrap();
    writer.append(b"").unwrap();
    writer.finish().unwrap();
    refused(&golden, manifest, LATER, &read(&fs, "new"));
}

#[test]
fn a_newer_table_that_nothing_names_is_refused_and_kept() {
    let golden = Golden::merged();
    let mut bytes = golden.read(golden.named(".sst").last().unwrap());
    let footer = bytes.len() - 80;
    set(&mut bytes[footer..], (64, LATER), 0..68, 68);
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
    // A repair continues without it, and reports that.
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
