//! What a dump shows of damaged and unreadable files.
//!
//! - A dump of a sound database shows no damage.
//! - A file that cannot be read is shown as damage, and all others are shown.
//! - A changed byte of `CURRENT` or `OPTIONS` is shown as damage.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::common::damage::{Golden, overwrite, path, replace};
use crate::common::dir;
use esker::{DumpItem, DumpOptions, DumpValue, Result};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, FsRef, OpKind};

/// The files that a dump shows, and those of them that it shows as damaged.
fn dump(fs: FsRef, path: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let (mut files, mut damaged) = (Vec::new(), Vec::new());
    let each = |item: DumpItem| match (item.kind, item.fields.first()) {
        ("file", Some((_, DumpValue::Text(name)))) => {
            files.push(name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned());
        }
        ("damage", _) => damaged.extend(files.last().cloned()),
        _ => {}
    };
    DumpOptions::default().env(Env::simulated(fs, 1)).dump(path, each)?;
    Ok((files, damaged))
}

#[test]
fn a_file_that_cannot_be_read_is_damage_and_the_others_are_shown() {
    let golden = Golden::merged();
    let (files, damaged) = dump(Arc::new(golden.copy()), dir()).unwrap();
    assert_eq!((files, damaged.len()), (golden.files.clone(), 0));
    for name in &golden.files {
        for call in [OpKind::Open, OpKind::Stat, OpKind::Read] {
            let faults = FaultFs::new(Arc::new(golden.copy()));
            let fail = FaultAction::Fail(ErrorKind::Other);
            faults.add(FaultRule::new(&[call], fail).on_path(name).forever());
            let (files, damaged) = dump(Arc::new(faults.clone()), dir()).unwrap();
            assert_eq!((&files, &damaged), (&golden.files, &vec![name.clone()]), "{call:?}");
            // A dump of the file alone is an error.
            assert!(dump(Arc::new(faults), &path(name)).is_err(), "{call:?} of {name}");
        }
    }
}

#[test]
fn log_files_for_later_use_are_shown_as_such_whatever_is_in_them() {
    let fs = Golden::flushed().copy();
    let spares = ["000077.wal-next", "wal-spare-3.tmp"];
    for name in spares {
        replace(&fs, name, &[0; 100]);
    }
    let mut shown = Vec::new();
    let each = |item: DumpItem| {
        if let [(_, DumpValue::Text(path)), (_, DumpValue::Text(what)), ..] = &item.fields[..]
            && item.kind == "file"
            && what == "log file for later use"
        {
            shown.push(path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned());
        }
        assert_ne!(item.kind, "damage");
    };
    DumpOptions::default().env(Env::simulated(Arc::new(fs), 1)).dump(dir(), each).unwrap();
    assert_eq!(shown, spares);
}

#[test]
fn a_directory_is_damage_only_in_the_place_of_a_file() {
    for (name, expected) in [("backup", 0), ("CURRENT", 1), ("000099.sst", 1), ("000099.wal", 1)] {
        let fs = Golden::flushed().copy();
        let _ignored = fs.remove_file(&path(name));
        fs.create_dir_all(&path(name)).unwrap();
        let (files, damaged) = dump(Arc::new(fs), dir()).unwrap();
        assert!(files.iter().any(|file| file == name), "{name}: {files:?}");
        assert_eq!(damaged, vec![name.to_owned(); expected]);
    }
}

#[test]
fn a_changed_byte_of_a_text_with_a_checksum_is_damage() {
    let golden = Golden::flushed();
    for name in ["CURRENT", "OPTIONS"] {
        for (at, byte) in golden.read(name).iter().enumerate() {
            let fs = golden.copy();
            overwrite(&fs, name, at, &[byte ^ 1]);
            assert_eq!(dump(Arc::new(fs), dir()).unwrap().1, [name], "byte {at}");
        }
    }
}
