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
//! - The tables' ranges, tombstones included, do not overlap (version.2), and no table crosses a fence.
//!
//! compaction_output.2. All versions of a key are in one table.
//! - `made` contains the id of every file before it is created, so that a failed output can be removed. It
//!   never contains a file that existed before.
//!
//! compaction_output.4. Each table records the newest commit among the inputs, even if the judge dropped it
//!     or its number. If the manifest loses the table, this shows which commits existed
//!     (engine/disk/unnamed.rs).
//! - A table ends long before its index is full (sstable/index.rs).

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::Env;

use crate::manifest::edit::AddedTable;
use crate::manifest::file_name::table_path;
use crate::manifest::level::{Level, RunId};
use crate::sstable::{BlockCache, IndexLimits, Table, TableOptions, TableWriter};
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::range_tombstone::{Fragment, RangeTombstones, SharedKey};
use crate::types::{Error, FileId, Result, SeqNo};

/// What an output needs to create tables.
pub(crate) struct OutputContext<'a> {
    /// The file system.
    pub env: Env,
    /// The database's directory.
    pub dir: PathBuf,
    /// Cache of the tables' blocks.
    pub cache: Arc<BlockCache>,
    /// Whether the blocks of new tables go to the cache while it has space.
    pub keeps_warm: bool,
    /// Format options of tables.
    pub options: TableOptions,
    /// Returns a new file id.
    pub new_file: Box<dyn Fn() -> FileId + Send + Sync + 'a>,
}

/// Where an output goes and how it is cut.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Level of the run.
    pub level: Level,
    /// The run.
    pub run: RunId,
    /// Size at which a table is full.
    pub table_bytes: u64,
    /// Keys at which tables are cut, ascending.
    pub fences: Vec<Vec<u8>>,
    /// The newest commit among the inputs (compaction_output.4).
    pub newest_commit: SeqNo,
}

/// The tables that were written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The tables.
    pub added: Vec<AddedTable>,
    /// The same tables, opened.
    pub opened: HashMap<FileId, Arc<Table>>,
}

/// Writes one run.
pub(crate) struct Output<'a> {
    context: OutputContext<'a>,
    shape: Shape,
    /// Index of the first fence ahead.
    fence: usize,
    /// The tombstones from the start of the current table on.
    tombstones: VecDeque<Fragment>,
    writer: Option<(FileId, TableWriter)>,
    /// The last key of the current table once the table is full.
    full_at: Option<Vec<u8>>,
    /// Capacity of a table's index. A table is full at half of it, because all versions of its last key still
    /// follow.
    index_limits: IndexLimits,
    written: Written,
    made: Vec<FileId>,
}

impl<'a> Output<'a> {
    /// Returns an output without tables. `tombstones` are the range tombstones to keep.
    pub(crate) fn new(context: OutputContext<'a>, shape: Shape, tombstones: &RangeTombstones) -> Self {
        Output {
            context,
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

    /// Adds an entry. Entries come by key ascending, then sequence number descending.
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

    /// Writes the rest, and makes the names of all tables durable (execute.1).
    pub(crate) fn finish(&mut self) -> Result<Written> {
        for fence in std::mem::take(&mut self.shape.fences).into_iter().skip(self.fence) {
            self.cut(Some(&fence))?;
        }
        self.cut(None)?;
        if !self.made.is_empty() {
            let dir = &self.context.dir;
            let synced = self.context.env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e));
            if !canary::is_set(Canary::TableNameFailureIgnored) {
                synced?;
            }
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// Removes every file made. The next opening removes files that are left.
    pub(crate) fn discard(self) {
        let fs = self.context.env.fs.clone();
        self.discard_by(&|path| drop(fs.remove_file(path)));
    }

    /// Removes every file made by calling `remove`, which checks that the directory is still locked.
    pub(crate) fn discard_by(mut self, remove: &(dyn Fn(&Path) + Send + Sync)) {
        self.writer = None;
        self.written = Written::default();
        self.made.iter().for_each(|&file| remove(&table_path(&self.context.dir, file)));
    }

    fn writer(&mut self) -> Result<&mut TableWriter> {
        if self.writer.is_none() {
            let file = (self.context.new_file)();
            self.made.push(file);
            let path = table_path(&self.context.dir, file);
            let created = TableWriter::create(&self.context.env, &path, self.context.options.clone());
            let mut writer = created.inspect_err(|error| {
                if matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists) {
                    self.made.pop();
                }
            })?;
            if self.context.keeps_warm {
                writer.keep_warm(&self.context.cache);
            }
            writer.note_commit(self.shape.newest_commit);
            writer.limit_index(self.index_limits);
            self.writer = Some((file, writer));
        }
        Ok(&mut self.writer.as_mut().expect("made above").1)
    }

    /// Ends the current table before `boundary`; with `None`, ends the last one.
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
        let (meta, table) = writer.finish_open(None, &self.context.cache)?;
        if let Some(before) = self.written.added.last() {
            assert!(!before.meta.range.overlaps(&meta.range));
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
    fn a_table_ends_before_its_index_is_full() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let cache = BlockCache::new(MemoryBudget::new(1 << 20));
        let files = AtomicU64::new(1);
        let new_file = || FileId::new(files.fetch_add(1, Ordering::Relaxed));
        let context = || OutputContext {
            env: env.clone(),
            dir: PathBuf::new(),
            cache: cache.clone(),
            keeps_warm: true,
            options: TableOptions { block_bytes: 1, ..TableOptions::default() },
            new_file: Box::new(new_file),
        };
        // Every entry is a block; no table's index can hold all keys.
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
            let mut output = Output::new(context(), shape, &RangeTombstones::default());
            output.index_limits = index_limits;
            for key in 0..100_u32 {
                let key = key.to_be_bytes();
                // Versions of one key, which stay together (compaction_output.2).
                for seq in [9, 8, 7] {
                    let entry = EntryRef { key: &key, seq: SeqNo::new(seq), kind: Kind::PUT, value: b"v" };
                    output.add(entry).unwrap();
                }
            }
            let written = output.finish().unwrap();
            assert!(written.added.len() > 5, "{} tables", written.added.len());
            let entries: u64 = written.opened.values().map(|table| table.verify().unwrap().entries).sum();
            assert_eq!(entries, 300, "{index_limits:?}");
        }
    }
}
