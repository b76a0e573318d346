//! A build without the feature `encryption` refuses what is encrypted, and says why.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use esker::backup::{Backup, Restore};
use esker::unload::Load;
use esker::{Db, EncryptionProblem, Error, Result};
use esker_env::{Env, Fs, MemFs, OpenOptions, read_range};

use crate::common::{DIR, simulated};

/// The header of an encrypted file with its own keys, as `esker unload` and `esker backup send` begin.
const HEADER: [u8; 20] = [
    0x89, 0x45, 0x53, 0x4b, 0x52, 0x45, 0x43, 0x0a, 0x01, 0x03, 0x03, 0x00, 0x07, 0x6a, 0x5b, 0x01, 0xac,
    0xf3, 0xb9, 0x55,
];

fn write(fs: &MemFs, path: &str, bytes: &[u8]) {
    let file = fs.open(Path::new(path), OpenOptions::create()).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

fn assert_key_is_missing<T: Debug>(what: &str, outcome: Result<T>) {
    let error = outcome.unwrap_err();
    let is_missing = matches!(error, Error::Encryption { problem: EncryptionProblem::KeyMissing, .. });
    assert!(is_missing && error.to_string().contains("it is encrypted"), "{what}: {error}");
}

#[test]
fn what_is_encrypted_is_refused_and_unchanged() {
    let fs = MemFs::new();
    let builder = || simulated(Arc::new(fs.clone())).stepped();
    let env = || Env::simulated(Arc::new(fs.clone()), 1);
    let db = builder().open(DIR).unwrap();
    Backup::open_in(env(), "backups").unwrap().create(&db).unwrap();
    db.close().unwrap();
    let image = || {
        let mut names = fs.list_dir(Path::new(DIR)).unwrap();
        names.retain(|name| name != "LOCK");
        names.sort();
        let content = |name: String| {
            let file = fs.open(&Path::new(DIR).join(&name), OpenOptions::read()).unwrap();
            (name, read_range(&*file, 0, file.len().unwrap() as usize).unwrap())
        };
        names.into_iter().map(content).collect::<Vec<_>>()
    };
    for dir in [DIR, "backups"] {
        write(&fs, &format!("{dir}/KEYS"), b"eskerKYS");
    }
    let before = image();
    assert_key_is_missing("open", builder().open(DIR));
    assert_key_is_missing("open_read_only", builder().open_read_only(DIR));
    assert_key_is_missing("open_follower", builder().open_follower(DIR));
    assert_key_is_missing("check", builder().check_offline(DIR));
    assert_key_is_missing("repair", builder().repair(DIR, "repaired"));
    assert_key_is_missing("list", Backup::open_in(env(), "backups").and_then(|backups| backups.list()));
    let restored =
        Backup::open_in(env(), "backups").and_then(|mut all| all.restore("restored").backup(1).run());
    assert_key_is_missing("restore", restored);
    assert!(image() == before);
    let sealed = [&HEADER[..], &[0; 5000]].concat();
    assert_key_is_missing("receive", Restore::new("received").env(env()).read(&sealed[..]));
    assert_key_is_missing("load", Load::new().env(env()).open_from(&sealed[..]).map(drop));
    let other = Db::builder().env(env()).open("other").unwrap();
    write(&fs, "file", &sealed);
    assert_key_is_missing("load", Load::new().env(env()).read(&other, "file"));
    for made in ["repaired", "restored", "received"] {
        assert!(!fs.exists(Path::new(made)).unwrap(), "{made}");
    }
    // KEYS are lost: the files themselves say that they are encrypted.
    fs.remove_file(&Path::new(DIR).join("KEYS")).unwrap();
    let manifest = fs.list_dir(Path::new(DIR)).unwrap().into_iter().find(|name| name.contains("MANIFEST"));
    write(&fs, &format!("{DIR}/{}", manifest.unwrap()), &sealed);
    assert_key_is_missing("open without KEYS", builder().open(DIR));
}
