//! The output of a flush or compaction: a sorted run of tables.
//!
//! ```text
//!   entries ---------.
//!   range tombstones -+-- cut at fences and at table size --> TableWriter, TableWriter, ...
//!
//!   keys        a  c  f | g  k | p
//!   tombstones  [----------)       [---)      each table takes the part up to the next one's start
//! ```
//!
//! compaction_output.1. The tables' ranges, tombstones included, do not overlap (version.2), and no table crosses a fence.
//! compaction_output.2. All versions of a key are in one table.
//! compaction_output.3. Every file made is known by its id in `made` from before it is created, so that a failed output can be removed; and no file
//!      that was there before.
//! compaction_output.4. A table says which commit is the newest that went into the flush or compaction, although judge.rs may have forgotten its number or
//!      left it out: a table that the manifest lost proves by it that there was more (engine/disk/unnamed.rs).
//! compaction_output.5. A table ends long before its index has no more room (index.5 in sstable/index.rs).

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::Env;

use crate::manifest::edit::AddedTable;
use crate::manifest::file_name::table_path;
use crate::manifest::version::{Level, RunId};
use crate::sstable::{BlockCache, IndexLimits, Table, TableOptions, TableWriter};
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::range_tombstone::{Fragment, RangeTombstones, SharedKey};
use crate::types::{Error, FileId, Result, SeqNo};

/// What tables are made with.
pub(crate) struct Place<'a> {
    /// Files.
    pub env: Env,
    /// The database's directory.
    pub dir: PathBuf,
    /// The tables' blocks in memory.
    pub cache: Arc<BlockCache>,
    /// Whether the blocks of new tables are in it from the start, while it has room.
    pub keeps_warm: bool,
    /// How tables are written.
    pub options: TableOptions,
    /// Gives a new file id.
    pub new_file: Box<dyn Fn() -> FileId + Send + Sync + 'a>,
}

/// Where an output goes and how it is cut.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Level of the run.
    pub level: Level,
    /// The run.
    pub run: RunId,
    /// A table of this size is full.
    pub table_bytes: u64,
    /// First keys that tables must not reach over, ascending.
    pub fences: Vec<Vec<u8>>,
    /// The newest commit that goes in. Every table says so (compaction_output.4).
    pub newest_commit: SeqNo,
}

/// The tables that were written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The tables.
    pub added: Vec<AddedTable>,
    /// The same tables, open.
    pub opened: HashMap<FileId, Arc<Table>>,
}

/// Writes one run.
pub(crate) struct Output<'a> {
    place: Place<'a>,
    shape: Shape,
    /// Index of the first fence that lies ahead.
    fence: usize,
    /// What is left of the tombstones, from the start of the current table on.
    tombstones: VecDeque<Fragment>,
    writer: Option<(FileId, TableWriter)>,
    /// The last key of the current table, once that is full.
    full_at: Option<Vec<u8>>,
    /// What the index of a table can hold. A table is full with half of that: all versions of its last key are still to come.
    index_limits: IndexLimits,
    written: Written,
    made: Vec<FileId>,
}

impl<'a> Output<'a> {
    /// An output without tables yet. `tombstones` are those to keep.
    pub(crate) fn new(place: Place<'a>, shape: Shape, tombstones: &RangeTombstones) -> Self {
        Output {
            place,
            shape,
            fence: 0,
            tombstones: tombstones.fragments().cloned().collect(),
            writer: None,
            full_at: None,
            index_limits: IndexLimits::MAX,
            written: Written::default(),
            made: Vec::new(),
        }
    }

    /// Adds an entry: key ascending, sequence number descending.
    #[inline]
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        while self.shape.fences.get(self.fence).is_some_and(|fence| fence.as_slice() <= entry.key) {
            let fence = std::mem::take(&mut self.shape.fences[self.fence]);
            self.cut(Some(&fence))?;
            self.fence += 1;
        }
        if self.full_at.as_ref().is_some_and(|last| last.as_slice() != entry.key) {
            self.cut(Some(entry.key))?;
        }
        let table_bytes = self.shape.table_bytes;
        let writer = self.writer()?;
        writer.add(entry)?;
        let is_full = writer.estimated_bytes() >= table_bytes || writer.is_index_half_full();
        if is_full && self.full_at.is_none() {
            self.full_at = Some(entry.key.to_vec());
        }
        Ok(())
    }

    /// Writes what is left, and makes the names of all tables durable (execute.1).
    pub(crate) fn finish(&mut self) -> Result<Written> {
        for fence in std::mem::take(&mut self.shape.fences).into_iter().skip(self.fence) {
            self.cut(Some(&fence))?;
        }
        self.cut(None)?;
        if !self.made.is_empty() {
            let dir = &self.place.dir;
            let synced = self.place.env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e));
            if !canary::is_set(Canary::TableNameFailureIgnored) {
                synced?;
            }
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// Removes every file made (compaction_output.3). What cannot be removed is garbage that the next open collects.
    pub(crate) fn discard(self) {
        let fs = self.place.env.fs.clone();
        self.discard_by(&|path| drop(fs.remove_file(path)));
    }

    /// Removes every file made by `remove`, which checks that the directory is still locked.
    pub(crate) fn discard_by(mut self, remove: &(dyn Fn(&Path) + Send + Sync)) {
        self.writer = None;
        self.written = Written::default();
        self.made.iter().for_each(|&file| remove(&table_path(&self.place.dir, file)));
    }

    fn writer(&mut self) -> Result<&mut TableWriter> {
        if self.writer.is_none() {
            let file = (self.place.new_file)();
            self.made.push(file);
            let path = table_path(&self.place.dir, file);
            let created = TableWriter::create(&self.place.env, &path, self.place.options.clone());
            let mut writer = created.inspect_err(|error| {
                if matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists) {
                    self.made.pop();
                }
            })?;
            if self.place.keeps_warm {
                writer.keep_warm(&self.place.cache);
            }
            writer.note_commit(self.shape.newest_commit);
            writer.limit_index(self.index_limits);
            self.writer = Some((file, writer));
        }
        Ok(&mut self.writer.as_mut().expect("made above").1)
    }

    /// Ends the current table before `boundary`, or for good.
    fn cut(&mut self, boundary: Option<&[u8]>) -> Result<()> {
        self.full_at = None;
        while let Some(mut fragment) = self.tombstones.pop_front() {
            let Some(boundary) = boundary else {
                self.writer()?.add_fragment(fragment);
                continue;
            };
            if *fragment.start >= *boundary {
                self.tombstones.push_front(fragment);
                break;
            }
            if *fragment.end > *boundary {
                let boundary = SharedKey::from(boundary);
                self.tombstones.push_front(Fragment { start: boundary.clone(), ..fragment.clone() });
                fragment.end = boundary;
                self.writer()?.add_fragment(fragment);
                break;
            }
            self.writer()?.add_fragment(fragment);
        }
        let Some((file, writer)) = self.writer.take() else { return Ok(()) };
        let (meta, table) = writer.finish_open(None, &self.place.cache)?;
        if let Some(before) = self.written.added.last() {
            assert!(!before.meta.range.overlaps(&meta.range), "compaction_output.1");
        }
        self.written.added.push(AddedTable { file, level: self.shape.level, run: self.shape.run, meta });
        self.written.opened.insert(file, table);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use esker_env::MemFs;

    use super::*;
    use crate::cache::MemoryBudget;
    use crate::types::op::Kind;

    #[test]
    fn compaction_output_5_a_table_ends_before_its_index_is_full() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let cache = BlockCache::new(MemoryBudget::new(1 << 20));
        let files = AtomicU64::new(1);
        let new_file = || FileId::new(files.fetch_add(1, Ordering::Relaxed));
        let place = || Place {
            env: env.clone(),
            dir: PathBuf::new(),
            cache: cache.clone(),
            keeps_warm: true,
            options: TableOptions { block_bytes: 1, ..TableOptions::default() },
            new_file: Box::new(new_file),
        };
        // Every entry is a block; no index of a table holds those of all keys.
        for index_limits in [
            IndexLimits { blocks: 20, separator_bytes: u64::MAX },
            IndexLimits { blocks: u64::MAX, separator_bytes: 40 },
        ] {
            let shape = Shape {
                level: Level::L0,
                run: RunId(1),
                table_bytes: u64::MAX,
                fences: Vec::new(),
                newest_commit: SeqNo::new(9),
            };
            let mut output = Output::new(place(), shape, &RangeTombstones::default());
            output.index_limits = index_limits;
            for key in 0..100_u32 {
                let key = key.to_be_bytes();
                // Versions of one key, which belong together (compaction_output.2).
                for seq in [9, 8, 7] {
                    let entry = EntryRef { key: &key, seq: SeqNo::new(seq), kind: Kind::PUT, value: b"v" };
                    output.add(entry).unwrap();
                }
            }
            let written = output.finish().unwrap();
            assert!(written.added.len() > 5, "compaction_output.5: {} tables", written.added.len());
            let entries: u64 = written.opened.values().map(|table| table.verify().unwrap().entries).sum();
            assert_eq!(entries, 300, "compaction_output.5: {index_limits:?}");
        }
    }
}
