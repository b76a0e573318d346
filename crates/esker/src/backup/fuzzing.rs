//! Fuzzing entry points: read arbitrary bytes as records and streams of backups.
//!
//! ```text
//!   bytes --unchanged, and with valid checksums--> record::read --> refused, or round-trips
//!                                            `--> Restore::read --> refused, or a directory to open
//! ```

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs, OpenOptions, read_range};

use super::record;
use super::{Backup, Restore, Stream};
use crate::blob::Blobs;
use crate::db::Db;
use crate::recordio;

const PATH: &str = "record";

/// Reads the bytes as the record of a backup.
pub fn backup_record(bytes: &[u8]) {
    read(bytes);
    let mut bytes = bytes.to_vec();
    recordio::fuzzing::repair(&mut bytes);
    read(&bytes);
}

fn read(bytes: &[u8]) {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let path = Path::new(PATH);
    let file = env.fs.open(path, OpenOptions::create()).expect("a new file in memory");
    file.write_all_at(bytes, 0).expect("there is room");
    let Ok(found) = record::read(&env, path) else { return };
    record::write(&env, path, &found).expect("there is room");
    assert_eq!(record::read(&env, path).expect("it was read before"), found);
}

/// Returns records of small databases.
///
/// # Panics
/// If a database or backup cannot be created.
pub fn backup_records() -> Vec<Vec<u8>> {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let builder = Db::builder().stepped().blobs(Blobs::From(64)).env(env.clone());
    let db = builder.open("db").expect("a new database in memory");
    let mut backup = Backup::open_in(env.clone(), "backups").expect("a new directory");
    let mut records = Vec::new();
    for len in [0, 10, 100] {
        db.default_keyspace().put([len], vec![len; len.into()]).expect("there is room");
        let id = backup.create(&db).expect("there is room").id;
        let file = env.fs.open(&backup.record_path(id), OpenOptions::read()).expect("it was made");
        let bytes = file.len().expect("a file in memory") as usize;
        records.push(read_range(&*file, 0, bytes).expect("a file in memory"));
    }
    records
}

/// Reads the bytes as the stream of a backup.
pub fn backup_stream(bytes: &[u8]) {
    restore(bytes);
    let mut bytes = bytes.to_vec();
    recordio::fuzzing::repair(&mut bytes);
    restore(&bytes);
}

fn restore(bytes: &[u8]) {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let restored = Restore::new("restored").env(env.clone()).read(bytes);
    let is_there = env.fs.exists(Path::new("restored")).expect("a file system in memory");
    assert_eq!(restored.is_ok(), is_there, "stream.1");
    if restored.is_ok() {
        // The files need not be those of a database.
        let _ = Db::builder().stepped().env(env).create_if_missing(false).open("restored");
    }
}

/// Returns streams of small databases.
///
/// # Panics
/// If a database cannot be created.
pub fn backup_streams() -> Vec<Vec<u8>> {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let builder = Db::builder().stepped().blobs(Blobs::From(64)).env(env);
    let db = builder.open("db").expect("a new database in memory");
    let stream = |len: u8| {
        db.default_keyspace().put([len], vec![len; len.into()]).expect("there is room");
        let mut stream = Vec::new();
        Stream::new().write(&db, &mut stream).expect("there is room");
        stream
    };
    [0, 100].map(stream).into()
}
