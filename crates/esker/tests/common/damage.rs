//! A closed database with everything in it, whose files the tests of damage spoil.
//!
//! ```text
//!   script --> closed database --copy, damage--> open, check, repair, dump
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use esker::Durability;
use esker_env::{Fs, MemFs, OpenOptions};

use super::contents::Contents;
use super::script::{Change, Script, Step, steps};
use super::{dir, simulated};

/// A closed database.
pub struct Golden {
    pub fs: MemFs,
    pub files: Vec<String>,
    /// What it holds.
    pub newest: Contents,
    /// What it held earlier, newest first: commits that are only in the log.
    pub earlier: Vec<Contents>,
    /// What it held after each step, oldest first.
    pub history: Vec<Contents>,
}

/// Commits after the last flush: they live in the log.
pub const LOGGED: usize = 8;

impl Golden {
    /// One run of merged tables, and a log.
    pub fn merged() -> Golden {
        Self::after(Vec::new())
    }

    /// Several runs, tombstones and range tombstones of several keyspaces in them, and a log.
    pub fn layered() -> Golden {
        let mut more = Vec::new();
        for n in 0..4u8 {
            let key = |i: u8| format!("layer/{i:02}").into_bytes();
            let put = |name, i| (name, Change::Put(key(i), vec![n; 20 + usize::from(n)]));
            let mut changes: Vec<_> = (n * 5..n * 5 + 12).map(|i| put("default", i)).collect();
            changes.extend((0..6).map(|i| put("people", i * n)));
            changes.push(("default", Change::Remove(key(n * 5 + 1))));
            more.push(Step::Commit(changes, Durability::Sync));
            let range = Change::RemoveRange(key(n * 4), key(n * 4 + 2));
            more.push(Step::Commit(vec![("people", range)], Durability::Sync));
            more.push(Step::Flush);
        }
        Self::after(more)
    }

    fn after(more: Vec<Step>) -> Golden {
        let fs = MemFs::new();
        let mut script = Script::new(simulated(Arc::new(fs.clone())));
        script.run(&steps()).expect("no faults");
        script.run(&more).expect("no faults");
        script.step(&Step::Flush).expect("no faults");
        let flushed = script.journal.history().len();
        for n in 0..LOGGED {
            let change = Change::Put(format!("logged/{n}").into_bytes(), vec![n as u8; 30]);
            script.step(&Step::Commit(vec![("default", change)], Durability::Sync)).expect("no faults");
        }
        script.close().expect("no faults");
        // Obsolete tables may still be on their way out: what is there now stays.
        let fs = fs.crash_keep_all();
        let history: Vec<Contents> =
            script.journal.history().iter().map(|s| s.first().expect("one").clone()).collect();
        let mut earlier = history[flushed - 1..].to_vec();
        let newest = earlier.pop().expect("there is a last");
        earlier.reverse();
        let mut files = fs.list_dir(dir()).expect("it is there");
        files.sort();
        let kinds = [".wal", ".sst", "MANIFEST", "CURRENT", "OPTIONS", "LOCK"];
        assert!(kinds.iter().all(|kind| files.iter().any(|f| f.contains(kind))), "{files:?}");
        Golden { fs, files, newest, earlier, history }
    }

    /// A copy to damage.
    pub fn copy(&self) -> MemFs {
        self.fs.crash_keep_all()
    }

    /// The bytes of a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        read(&self.fs, name)
    }
}

/// The path of a file of the database.
pub fn path(name: &str) -> PathBuf {
    dir().join(name)
}

/// The bytes of a file.
pub fn read(fs: &MemFs, name: &str) -> Vec<u8> {
    let file = fs.open(&path(name), OpenOptions::read()).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it has one") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is that long");
    bytes
}

/// Puts other bytes in a file's place.
pub fn replace(fs: &MemFs, name: &str, bytes: &[u8]) {
    let file = fs.open(&path(name), OpenOptions::create()).expect("memory does not fail");
    file.write_all_at(bytes, 0).expect("memory does not fail");
}

/// Changes some bytes of a file.
pub fn overwrite(fs: &MemFs, name: &str, at: usize, bytes: &[u8]) {
    let file = fs.open(&path(name), OpenOptions::write()).expect("it is there");
    file.write_all_at(bytes, at as u64).expect("memory does not fail");
}

/// Cuts a file.
pub fn cut(fs: &MemFs, name: &str, len: usize) {
    fs.open(&path(name), OpenOptions::write()).expect("it is there").set_len(len as u64).expect("memory");
}

/// Whether the long forms are asked for.
pub fn full() -> bool {
    std::env::var("ESKER_SWEEP").is_ok_and(|v| v == "full")
}

/// Places in a file of `len` bytes: all of a small one, or in the long form, else a sample with both ends.
pub fn places(len: usize, sample: usize) -> Vec<usize> {
    if full() || len <= sample {
        return (0..len).collect();
    }
    let edge = sample / 4;
    let inner = (0..2 * edge).map(|i| edge + i * (len - 2 * edge) / (2 * edge));
    (0..edge).chain(inner).chain(len - edge..len).collect()
}
