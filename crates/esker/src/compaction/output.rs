//! The output of a flush or merge: a sorted run of tables.
//!
//! ```text
//!   entries ---------.
//!   range tombstones -+-- cut at fences and at table size --> TableWriter, TableWriter, ...
//!
//!   keys        a  c  f | g  k | p
//!   tombstones  [----------)       [---)      each table takes the part up to the next one's start
//! ```
//!
//! OU1. The tables' ranges, tombstones included, do not overlap (VN2), and no table crosses a fence.
//! OU2. All versions of a key are in one table.
//! OU3. Every file made is known by its id in `made` from before it is created, so that a failed output can be removed.
//! OU4. A table says which commit is the newest that went into the flush or merge, although garbage.rs may have forgotten its number or
//!      left it out: a table that the manifest lost proves by it that there was more (db/unnamed.rs).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::execute::Context;
use crate::manifest::edit::AddedTable;
use crate::manifest::file_name::table_path;
use crate::manifest::version::{Level, RunId};
use crate::sstable::{Table, TableWriter};
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::range_tombstone::{Fragment, RangeTombstones, SharedKey};
use crate::types::{Error, FileId, Result, SeqNo};

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
    /// The newest commit that goes in. Every table says so (OU4).
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
    context: &'a Context<'a>,
    shape: Shape,
    /// Index of the first fence that lies ahead.
    fence: usize,
    /// What is left of the tombstones, from the start of the current table on.
    tombstones: VecDeque<Fragment>,
    writer: Option<(FileId, TableWriter)>,
    /// The last key of the current table, once that is full.
    full_at: Option<Vec<u8>>,
    written: Written,
    made: Vec<FileId>,
}

impl<'a> Output<'a> {
    /// An output without tables yet. `tombstones` are those to keep.
    pub(crate) fn new(context: &'a Context<'a>, shape: Shape, tombstones: &RangeTombstones) -> Self {
        Output {
            context,
            shape,
            fence: 0,
            tombstones: tombstones.fragments().cloned().collect(),
            writer: None,
            full_at: None,
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
        if writer.estimated_bytes() >= table_bytes && self.full_at.is_none() {
            self.full_at = Some(entry.key.to_vec());
        }
        Ok(())
    }

    /// Writes what is left, and makes the names of all tables durable (EX1).
    pub(crate) fn finish(&mut self) -> Result<Written> {
        for fence in std::mem::take(&mut self.shape.fences).into_iter().skip(self.fence) {
            self.cut(Some(&fence))?;
        }
        self.cut(None)?;
        if !self.made.is_empty() {
            let dir = self.context.dir;
            let synced = self.context.env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e));
            if !canary::is_set(Canary::TableNameFailureIgnored) {
                synced?;
            }
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// Removes every file made (OU3). What cannot be removed is garbage that the next open collects.
    pub(crate) fn discard(mut self) {
        self.writer = None;
        self.written = Written::default();
        for &file in &self.made {
            let _ = self.context.env.fs.remove_file(&table_path(self.context.dir, file));
        }
    }

    fn writer(&mut self) -> Result<&mut TableWriter> {
        if self.writer.is_none() {
            let file = (self.context.new_file)();
            self.made.push(file);
            let path = table_path(self.context.dir, file);
            let mut writer = TableWriter::create(self.context.env, &path, self.context.options.clone())?;
            writer.keep_warm(self.context.cache);
            writer.note_commit(self.shape.newest_commit);
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
        let (meta, table) = writer.finish_open(None, self.context.cache)?;
        if let Some(before) = self.written.added.last() {
            assert!(!before.meta.range.overlaps(&meta.range), "OU1");
        }
        self.written.added.push(AddedTable { file, level: self.shape.level, run: self.shape.run, meta });
        self.written.opened.insert(file, table);
        Ok(())
    }
}
