//! Ingest: sorted pairs of one keyspace are written straight to the tables of a private run, which the commit
//! adopts.
//!
//! ```text
//!   put, table --keys ascend?--> Output (compaction/output.rs) --finish--> Layers --submit--> adoption.rs
//! ```
//!
//! - Each key is above the one before it. Any other key is refused, and changes nothing.
//!
//! ingest.2. All pairs become visible in one commit, or none does. After any other error nothing can be
//!     committed.
//! - A dropped or failed ingest leaves no file. After a crash, or if the database was closed first, the next
//!   opening removes its files.

use std::path::Path;
use std::sync::Arc;

use crate::blob::BlobWriter;
use crate::compaction::output::{Output, OutputContext};
use crate::compaction::private::private_shape;
use crate::encryption::without_keys;
use crate::engine::core::Core;
use crate::manifest::level::{Level, RunId};
use crate::manifest::version::Run;
use crate::sstable::Table;
use crate::txn::blobs::BlobUse;
use crate::txn::commit::{CommitRequest, Durability, KeyspaceLife};
use crate::txn::layers::{Layers, PrivateRun};
use crate::types::cursor::SourceCursor;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::key::encode_key;
use crate::types::limits::{check_key, check_value};
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// The free space is queried after this many bytes, or this part of the bytes that may be taken.
const ROOM_BYTES_MAX: u64 = 1 << 20;
const ROOM_PART: u64 = 16;

/// An ingest in progress.
pub(crate) struct SortedPairs {
    core: Arc<Core>,
    keyspace: KeyspaceId,
    /// When all of the pairs expire.
    expiry: Option<Expiry>,
    /// Buffer for an expiry and its value.
    beside: Vec<u8>,
    /// The tables being written. `None` before the first pair and after `finish`.
    output: Option<Output<'static>>,
    /// Number of pairs in `output`.
    unfinished: u64,
    /// Finished tables.
    layers: Layers,
    /// Writer of the large values.
    blobs: Option<BlobWriter>,
    /// The last key, encoded.
    last: Vec<u8>,
    /// Length of the keyspace's prefix in `last`.
    prefix_len: usize,
    pairs: u64,
    /// Bytes that may be written before the free space is queried again (reserve.1).
    room: u64,
    /// Set by any error but a key out of order (ingest.2).
    has_failed: bool,
}

impl SortedPairs {
    /// An ingest without pairs.
    pub(crate) fn new(core: Arc<Core>, keyspace: KeyspaceId, expiry: Option<Expiry>) -> Self {
        let last = encode_key(keyspace, &[]);
        SortedPairs {
            core,
            keyspace,
            expiry,
            beside: Vec::new(),
            output: None,
            unfinished: 0,
            layers: Layers::default(),
            blobs: None,
            prefix_len: last.len(),
            last,
            pairs: 0,
            room: 0,
            has_failed: false,
        }
    }

    /// Number of pairs so far.
    pub(crate) fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Adds a pair.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.check()?;
        self.check_order(key)?;
        self.last.truncate(self.prefix_len);
        self.last.extend_from_slice(key);
        let added = self.add(value);
        if added.is_err() {
            self.fail();
            return added;
        }
        self.unfinished += 1;
        self.pairs += 1;
        Ok(())
    }

    /// Adds the last key with this value.
    #[inline]
    fn add(&mut self, value: &[u8]) -> Result<()> {
        let mut pointer = Vec::new();
        let (kind, value) = match self.core.blobs.takes(self.keyspace, value.len()) {
            true => {
                let writer = self.blobs.get_or_insert_with(|| BlobWriter::new(&self.core.blobs));
                writer.put(value)?.encode(&mut pointer);
                (Kind::PUT_BLOB, &*pointer)
            }
            false => (Kind::PUT, value),
        };
        let (kind, value) = match self.expiry {
            Some(expiry) => {
                self.beside.clear();
                self.beside.extend_from_slice(&expiry.to_bytes());
                self.beside.extend_from_slice(value);
                (kind.expiring(), &*self.beside)
            }
            None => (kind, value),
        };
        let bytes = (self.last.len() + value.len()) as u64;
        if self.room < bytes {
            let spare = self.core.spare_bytes();
            if spare < bytes {
                return Err(self.core.no_space_but_reserve());
            }
            self.room = bytes.saturating_add((spare / ROOM_PART).min(ROOM_BYTES_MAX));
        }
        self.room -= bytes;
        let entry = EntryRef { key: &self.last, seq: SeqNo::ZERO, kind, value };
        self.output.get_or_insert_with(|| begin_output(&self.core)).add(entry)
    }

    /// Finishes the large values, and returns the blob files that hold them.
    fn blobs_used(&mut self) -> Result<BlobUse> {
        let mut used = BlobUse::default();
        if let Some(writer) = &mut self.blobs {
            writer.flush()?;
            used.extend(writer.leases(), writer.bytes());
        }
        Ok(used)
    }

    /// Adds all pairs of a table that belongs to no database.
    pub(crate) fn table(&mut self, path: &Path) -> Result<()> {
        self.check()?;
        let table = Table::open(&without_keys(&self.core.env), path, &self.core.cache)?;
        let counts = table.properties().counts;
        if counts.tombstones + counts.range_tombstones + counts.expiring > 0
            || table.newest_commit()? > SeqNo::ZERO
        {
            let text = "is a table of a database, or has tombstones: only pairs that sstable::Writer put can be ingested";
            return Err(Error::Invalid(format!("{} {text}", path.display())));
        }
        let mut cursor = table.cursor(SeqNo::MAX, false);
        cursor.seek_first()?;
        if cursor.valid() {
            self.check_order(cursor.key())?;
        }
        let copied = self.copy(cursor);
        if copied.is_err() {
            self.fail();
        }
        copied
    }

    fn copy(&mut self, mut cursor: impl SourceCursor) -> Result<()> {
        while cursor.valid() {
            self.put(cursor.key(), cursor.stored().beside())?;
            cursor.next()?;
        }
        Ok(())
    }

    /// Commits. May be repeated after an error.
    pub(crate) fn commit(&mut self, durability: Durability, life: KeyspaceLife) -> Result<SeqNo> {
        self.check()?;
        self.finish()?;
        let blobs = self.blobs_used()?;
        self.core.submit(CommitRequest {
            blobs,
            keyspaces: Arc::new(vec![life]),
            ..CommitRequest::of(Arc::default(), self.layers.clone(), durability)
        })
    }

    fn check(&self) -> Result<()> {
        if self.has_failed {
            let text =
                "an ingest can neither go on nor be committed after an error of its files: begin another one";
            return Err(Error::Invalid(text.to_owned()));
        }
        self.core.check_able()
    }

    #[inline]
    fn check_order(&self, key: &[u8]) -> Result<()> {
        let last = &self.last[self.prefix_len..];
        if self.pairs == 0 || *last < *key { Ok(()) } else { Err(out_of_order(key, last)) }
    }

    /// Finishes the current output as a private run.
    fn finish(&mut self) -> Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let written = output.finish().inspect_err(|_| self.fail())?;
        self.output = None;
        let tables = self.core.private_tables(written);
        let puts = vec![(self.keyspace, std::mem::take(&mut self.unfinished) as i64)];
        let run = Arc::new(Run::new(Level::L0, RunId(0), tables));
        let run = PrivateRun { run, puts, has_operands: false, tier: 0 };
        self.layers.replace_from(self.layers.all().len(), run);
        Ok(())
    }

    /// Ends the ingest after an error (ingest.2).
    fn fail(&mut self) {
        self.has_failed = true;
        self.layers = Layers::default();
        self.discard();
    }

    /// Removes unfinished tables.
    fn discard(&mut self) {
        if let Some(output) = self.output.take() {
            output.discard_by(&*self.core.lock.remover(self.core.env.fs.clone()));
        }
    }
}

impl Drop for SortedPairs {
    fn drop(&mut self) {
        self.discard();
    }
}

fn begin_output(core: &Core) -> Output<'static> {
    let place = OutputContext {
        env: core.env.clone(),
        dir: core.dir.clone(),
        cache: core.cache.clone(),
        // Copying each block to the cache would be a third of the work, for data that may not be read soon.
        keeps_warm: false,
        options: core.options.table_options(true),
        new_file: Box::new(core.tables.file_numbers()),
    };
    Output::new(place, private_shape(core.limits().table_bytes), &RangeTombstones::default())
}

#[cold]
fn out_of_order(key: &[u8], last: &[u8]) -> Error {
    let (key_text, last) = (key.escape_ascii(), last.escape_ascii());
    Error::OutOfOrder(format!(
        "the keys of an ingest ascend, each once: \"{key_text}\" does not come after \"{last}\""
    ))
}
