//! Golden directories: databases as this version of the engine writes them, kept for later ones to read.
//!
//! ```text
//!   make(NAME) --> files of a database, and EXPECTED: what it holds
//! ```
//!
//! Each is made in a simulated world, so the same code makes the same bytes. How to add one:
//! docs/compatibility.md

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{BackgroundStep, Db, Result, TableCompression};
use esker_env::{Fs, MemFs};

use super::contents::{Contents, dump};
use super::damage::{read, remove_replaced};
use super::{dir, simulated};

/// The file of a golden directory with the contents of the database. Not part of the database.
pub const EXPECTED: &str = "EXPECTED";

/// Names of the golden directories.
pub const NAMES: [&str; 7] =
    ["plain", "lz4", "zstd", "log-tail", "log-segments", "many-keyspaces", "range-tombstones"];

/// Those left by a crash instead of closed.
pub const LEFT_BY_A_CRASH: [&str; 2] = ["log-tail", "log-segments"];

/// The files of a golden directory, by name.
pub fn make(name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let fs = MemFs::new();
    let compression = match name {
        "lz4" => TableCompression::Lz4,
        "zstd" => TableCompression::Zstd,
        _ => TableCompression::None,
    };
    let builder = simulated(Arc::new(fs.clone()))
        .tuning(|t| t.block_bytes(512).table_bytes(4096))
        .compression(compression);
    let builder =
        if name == "log-segments" { builder.tuning(|t| t.memtable_bytes(16 << 10)) } else { builder };
    let db = builder.open(dir())?;
    match name {
        "log-tail" => log_tail(&db)?,
        "log-segments" => log_segments(&db)?,
        "many-keyspaces" => many_keyspaces(&db)?,
        "range-tombstones" => range_tombstones(&db)?,
        _ => tables(&db)?,
    }
    let expected = dump(&db)?;
    // Some are left by a crash; the others are closed.
    let fs = if LEFT_BY_A_CRASH.contains(&name) {
        fs.crash_keep_all()
    } else {
        db.close()?;
        fs.crash_keep_all()
    };
    remove_replaced(simulated(Arc::new(fs.clone())), &fs);
    let names = fs.list_dir(dir()).expect("it is there");
    // The lock file holds a process id.
    let mut files: BTreeMap<_, _> =
        names.into_iter().filter(|n| n != "LOCK").map(|n| (n.clone(), read(&fs, &n))).collect();
    files.insert(EXPECTED.to_owned(), encode(&expected).into_bytes());
    Ok(files)
}

fn text(n: u32) -> String {
    format!("value {n}: {}", "abc ".repeat(n as usize % 9))
}

/// Compacted tables below newer ones, with tombstones and several versions.
fn tables(db: &Db) -> Result<()> {
    let (all, users) = (db.default_keyspace(), db.keyspace("users")?);
    for n in 0..60 {
        all.put(format!("key/{n:04}"), text(n))?;
        users.put(n.to_be_bytes(), n.to_le_bytes())?;
    }
    db.compact()?;
    for n in (0..60).step_by(7) {
        all.put(format!("key/{n:04}"), text(n + 1))?;
        users.delete(n.to_be_bytes())?;
    }
    db.flush()?;
    all.put("", "the empty key")?;
    all.put(b"binary\0\xff", vec![0, 255, 10])?;
    db.flush()
}

/// Commits that only the log has. The last one is incomplete.
fn log_tail(db: &Db) -> Result<()> {
    let all = db.default_keyspace();
    for n in 0..30 {
        all.put(format!("key/{n:04}"), text(n))?;
    }
    db.transact(|t| {
        t.put(&all, "a", "1")?;
        t.delete(&all, "key/0003")?;
        t.delete_range(&all, "key/0010".."key/0014")
    })
}

/// Commits in several log segments, and a prepared file for the next one.
fn log_segments(db: &Db) -> Result<()> {
    let all = db.default_keyspace();
    for n in 0..45 {
        all.put(format!("key/{n:04}"), text(n).repeat(5))?;
    }
    db.step(BackgroundStep::PrepareLog).map(drop)
}

/// More keyspaces than there are ids of one byte; renamed, dropped and cleared ones.
fn many_keyspaces(db: &Db) -> Result<()> {
    for n in 0..260 {
        let keyspace = db.create_keyspace(&format!("space {n:03}"))?;
        if n % 20 == 0 || n > 250 {
            keyspace.put(format!("in {n}"), text(n))?;
        }
    }
    db.rename_keyspace("space 040", "renamed")?;
    db.drop_keyspace("space 060")?;
    db.open_keyspace("space 080")?.clear()?;
    db.compact()
}

/// Removed ranges in newer tables over older ones, and in the log.
fn range_tombstones(db: &Db) -> Result<()> {
    let all = db.default_keyspace();
    for n in 0..80 {
        all.put(format!("key/{n:04}"), text(n))?;
    }
    db.compact()?;
    all.delete_range("key/0010".."key/0030")?;
    all.put("key/0020", "again")?;
    db.flush()?;
    all.delete_range("key/0019".."key/0040")?;
    all.put("key/0021", "once more")?;
    db.flush()?;
    all.delete_range("key/0070"..).map(drop)
}

/// Encodes contents as lines of keyspace, key and value. Keys and values are hexadecimal. An empty keyspace
/// has one line.
pub fn encode(contents: &Contents) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let mut out = String::new();
    for (name, map) in contents {
        out.push_str(&format!("{name}\n"));
        for (key, value) in map {
            out.push_str(&format!("{name}\t{}\t{}\n", hex(key), hex(value)));
        }
    }
    out
}

/// The inverse of [`encode`].
pub fn decode(text: &str) -> Contents {
    let unhex = |text: &str| -> Vec<u8> {
        let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("ASCII"));
        digits.map(|two| u8::from_str_radix(two, 16).expect("hexadecimal")).collect()
    };
    let mut out = Contents::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let map = out.entry(fields.next().expect("a name").to_owned()).or_default();
        if let (Some(key), Some(value)) = (fields.next(), fields.next()) {
            map.insert(unhex(key), unhex(value));
        }
    }
    out
}
