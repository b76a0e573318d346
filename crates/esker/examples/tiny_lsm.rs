//! A store of building blocks: a log of record files, a memtable, and sorted tables.
//!
//! ```text
//!   put --> log, memtable --flush--> 000001.sst 000002.sst ... --compact--> one table
//!   get --> memtable, then the tables from new to old
//! ```
#![expect(clippy::disallowed_methods, reason = "it removes its files")]

use esker::sstable::{Reader, Writer, merge};
use esker::{Result, Value, memtable::Entry, memtable::Map, wal::Log};

struct Store {
    dir: std::path::PathBuf,
    log: Log,
    memtable: Map,
    /// Newest first. The names are the numbers of the log's segments up to which a table holds the writes.
    tables: Vec<Reader>,
}

impl Store {
    fn open(dir: std::path::PathBuf) -> Result<Store> {
        let mut log = Log::options().segment_bytes(4 << 20).open(dir.join("log"))?;
        let (path, first) = (|n| dir.join(format!("{n:06}.sst")), *log.segments().start());
        // A table above the log's first segment is of an interrupted flush. The log still has its writes.
        (first + 1..=*log.segments().end()).for_each(|n| std::fs::remove_file(path(n)).unwrap_or_default());
        let tables = (1..=first).rev().map(path).filter(|file| file.exists()).map(Reader::open);
        let (tables, memtable) = (tables.collect::<Result<_>>()?, Map::new());
        // A write is a key's length, the key, and the value, or no value for a deletion.
        log.replay(|_, record| {
            let (len, rest) = record.split_at(2);
            let (key, value) = rest.split_at(u16::from_le_bytes([len[0], len[1]]).into());
            if value.is_empty() { memtable.delete(key) } else { memtable.put(key, value) }
        })?;
        Ok(Store { dir, log, memtable, tables })
    }

    /// Writes a value, or deletes the key if the value is empty.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let len = (key.len() as u16).to_le_bytes();
        self.log.append_sync(&[&len[..], key, value].concat())?;
        if value.is_empty() {
            self.memtable.delete(key)?
        } else {
            self.memtable.put(key, value)?
        }
        if self.memtable.size_bytes() > 4 << 20 { self.flush() } else { Ok(()) }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let mut found = self.memtable.entry(key);
        for table in &self.tables {
            found = if found.is_none() { table.entry(key)? } else { found };
        }
        Ok(found.and_then(Entry::into_value))
    }

    fn flush(&mut self) -> Result<()> {
        let next = self.log.rotate()?;
        let path = self.dir.join(format!("{next:06}.sst"));
        std::mem::take(&mut self.memtable).flush_to(Writer::create(&path)?)?;
        self.tables.insert(0, Reader::open(path)?);
        self.log.remove_below(next)
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut store = Store::open(dir.path().to_path_buf())?;
    (0..1000_u32).try_for_each(|n| store.put(&n.to_be_bytes(), b"value"))?;
    store.flush()?;
    store.put(&7_u32.to_be_bytes(), b"")?;
    drop(store);
    let mut store = Store::open(dir.path().to_path_buf())?;
    assert_eq!((store.get(&7_u32.to_be_bytes())?, store.get(&8_u32.to_be_bytes())?.is_some()), (None, true));
    store.flush()?;
    let mut writer = Writer::create(dir.path().join("merged.sst"))?;
    merge(&store.tables, &mut writer, |_key, values| Some(values[0].to_vec()))?;
    assert_eq!(writer.len(), 999);
    writer.finish().map(drop)
}
