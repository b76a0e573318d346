//! Tests of tables: against a sorted list, golden files and damage.

mod corruption;
mod full;
mod golden;
mod model;
mod paged;
mod probing;
mod salvage;
mod windows;

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, MemFs};

use super::*;
use crate::cache::MemoryBudget;
use crate::types::SeqNo;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;

/// An owned entry. Ordered like the entries of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: Vec<u8>,
    seq: u64,
    kind: Kind,
    value: Vec<u8>,
}

impl Entry {
    fn put(key: impl Into<Vec<u8>>, seq: u64, value: impl Into<Vec<u8>>) -> Self {
        Entry { key: key.into(), seq, kind: Kind::PUT, value: value.into() }
    }

    fn tombstone(key: impl Into<Vec<u8>>, seq: u64) -> Self {
        Entry { key: key.into(), seq, kind: Kind::REMOVE, value: Vec::new() }
    }

    fn borrowed(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, seq: SeqNo::new(self.seq), kind: self.kind, value: &self.value }
    }
}

fn sort(entries: &mut Vec<Entry>) {
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
    entries.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
}

fn memory() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

fn cache(bytes: u64) -> Arc<BlockCache> {
    BlockCache::new(MemoryBudget::new(bytes))
}

const PATH: &str = "1.sst";

fn write(env: &Env, options: &TableOptions, entries: &[Entry]) -> TableMeta {
    let mut writer = TableWriter::create(env, Path::new(PATH), options.clone()).unwrap();
    entries.iter().for_each(|e| writer.add(e.borrowed()).unwrap());
    writer.finish(None).unwrap()
}

fn open(env: &Env, cache: &Arc<BlockCache>) -> crate::Result<Arc<Table>> {
    Table::open(env, Path::new(PATH), cache)
}

/// Returns the bytes of the file.
fn file_bytes(env: &Env) -> Vec<u8> {
    let file = env.fs.open(Path::new(PATH), esker_env::OpenOptions::read()).unwrap();
    let len = file.len().unwrap() as usize;
    esker_env::read_range(&*file, 0, len).unwrap()
}

/// Replaces the file.
fn put_file(env: &Env, bytes: &[u8]) {
    let file = env.fs.open(Path::new(PATH), esker_env::OpenOptions::create()).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// Returns the index of a table without pages.
fn index(table: &Table) -> Arc<caches::BlockIndex> {
    let index = table.index(caches::Wanted::Key(&[]), true).unwrap();
    assert_eq!(index.range(), 0..table.blocks());
    index
}

/// Returns the positions of the blocks of such a table.
fn extents(table: &Table) -> Vec<std::ops::Range<u64>> {
    let index = index(table);
    index.range().map(|number| index.extent(number)).collect()
}
